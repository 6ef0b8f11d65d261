// Norms and sums of embedding gradients, as the torch functions of reference.py define them; kernels.py compares the two before
// these are used.
//
// Inner loops run over the width of the table without branches, so that the compiler vectorises them. Norms are accumulated in
// float64 over several lanes; their order and rounding matter, so -ffast-math must stay off.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <numeric>
#include <vector>

namespace {

constexpr std::int64_t LANES = 32;        // independent partial sums: several vectors of any width
constexpr std::int64_t AHEAD = 4;         // lookups, or rows, between prefetching and use
constexpr std::int64_t MANY = 16;         // rows to set to zero at once
constexpr std::int64_t LINE = 64;         // bytes per prefetch
constexpr std::int64_t FETCHED = 1024;    // bytes to prefetch of a gradient or a row; the hardware prefetcher does the rest
#ifdef __AVX__
constexpr std::int64_t VECTOR = 32;  // bytes of a register
#else
constexpr std::int64_t VECTOR = 16;
#endif

// Strides count elements. Gradients of one position are contiguous; a position stride of zero shares one gradient.
template <typename Number>
struct Lookups {
    const std::int64_t *indices;
    std::int64_t index_example, index_position;
    const Number *gradients;
    std::int64_t gradient_example, gradient_position;
    std::int64_t examples, positions, width;
    std::int64_t padding;  // the lowest integer for none

    std::int64_t index(std::int64_t i, std::int64_t t) const { return indices[i * index_example + t * index_position]; }
    const Number *gradient(std::int64_t i, std::int64_t t) const {
        return gradients + i * gradient_example + t * gradient_position;
    }
};

template <typename Number>
double squared_norm(const Number *x, std::int64_t size) {
    double lanes[LANES] = {};
    std::int64_t j = 0;
    for (; j + LANES <= size; j += LANES)
        for (std::int64_t k = 0; k < LANES; k++) lanes[k] += static_cast<double>(x[j + k]) * static_cast<double>(x[j + k]);
    for (; j < size; j++) lanes[j % LANES] += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    for (std::int64_t half = LANES / 2; half > 0; half /= 2)
        for (std::int64_t k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

template <typename Number>
void accumulate(const Number *__restrict x, std::int64_t size, double *__restrict sum) {
    for (std::int64_t k = 0; k < size; k++) sum[k] += static_cast<double>(x[k]);
}

// Groups of positions of one example by index: a hash table with at least four times as many slots as positions, which is cleared
// by incrementing the example.
class Groups {
  public:
    struct Group {
        std::int64_t index, example, last, count;
    };

    explicit Groups(std::int64_t positions) {
        while ((std::int64_t{1} << bits) < 4 * positions) bits++;
        slots.assign(std::size_t{1} << bits, Group{0, -1, -1, 0});
    }

    // Return the group of an index; its count is zero if the index is new.
    Group &find(std::int64_t index, std::int64_t example) {
        const std::size_t mask = slots.size() - 1;
        std::size_t place = static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15u >> (64 - bits);
        while (slots[place].example == example && slots[place].index != index) place = (place + 1) & mask;
        Group &group = slots[place];
        if (group.example != example) group = Group{index, example, -1, 0};
        return group;
    }

  private:
    int bits = 1;
    std::vector<Group> slots;
};

// All positions share one gradient: the sum at an index is as many times as long as the index is frequent.
template <typename Number>
void measure_shared(const Lookups<Number> &of, double *squares, double *rounding) {
    Groups groups(of.positions);
    for (std::int64_t i = 0; i < of.examples; i++) {
        std::int64_t many = 0, square_of_counts = 0;
        for (std::int64_t t = 0; t < of.positions; t++) {
            const std::int64_t index = of.index(i, t);
            if (index == of.padding) continue;
            square_of_counts += 2 * groups.find(index, i).count++ + 1;
            many++;
        }
        const double square = many > 0 ? squared_norm(of.gradient(i, 0), of.width) : 0.0;
        squares[i] = square * static_cast<double>(square_of_counts);
        rounding[i] = std::sqrt(square) * (static_cast<double>(many) + 0.5 * static_cast<double>(square_of_counts));
    }
}

template <typename Number>
void measure(const Lookups<Number> &of, double *squares, double *rounding) {
    if (of.gradient_position == 0) return measure_shared(of, squares, rounding);
    Groups groups(of.positions);
    std::vector<const Groups::Group *> found;         // in order of first occurrence of their indices
    std::vector<std::int64_t> before(of.positions);  // the group's position before this one, or −1
    std::vector<double> sum(of.width);
    for (std::int64_t i = 0; i < of.examples; i++) {
        found.clear();
        for (std::int64_t t = 0; t < of.positions; t++) {
            const std::int64_t index = of.index(i, t);
            if (index == of.padding) continue;
            Groups::Group &group = groups.find(index, i);
            before[t] = group.last;
            group.last = t;
            if (group.count++ == 0) found.push_back(&group);
        }
        squares[i] = rounding[i] = 0.0;
        for (const Groups::Group *group : found) {
            double square = squared_norm(of.gradient(i, group->last), of.width);
            double lengths = std::sqrt(square);
            if (group->count > 1) {
                sum.assign(of.width, 0.0);
                accumulate(of.gradient(i, group->last), of.width, sum.data());
                for (std::int64_t t = before[group->last]; t >= 0; t = before[t]) {
                    lengths += std::sqrt(squared_norm(of.gradient(i, t), of.width));
                    accumulate(of.gradient(i, t), of.width, sum.data());
                }
                square = squared_norm(sum.data(), of.width);
            }
            squares[i] += square;
            rounding[i] += lengths * (1.0 + 0.5 * static_cast<double>(group->count));
        }
    }
}

template <typename Number>
struct Term {
    const Number *gradient;
    Number weight;
    std::int32_t example;
};

// Numbers that are added up in registers, where compilers keep vectors but not arrays. They need not be aligned in memory.
template <typename Number>
struct Block {
    typedef Number Vector __attribute__((vector_size(VECTOR), aligned(alignof(Number)), may_alias));
    static constexpr std::int64_t VECTORS = 128 / VECTOR, SIZE = 128 / sizeof(Number);
};

// Returns where the terms of the first term's example end.
template <typename Number>
const Term<Number> *end_of_example(const Term<Number> *term, const Term<Number> *end) {
    const std::int32_t example = term->example;
    do term++;
    while (term < end && term->example == example);
    return term;
}

// Writes the sum of one or more terms to a row. Several terms of one example are added before the sum of all: each of them would be
// rounded to the precision of that sum, which is larger than the example's own.
template <typename Number>
void write_sum(const Term<Number> *first, const Term<Number> *end, std::int64_t width, Number *row) {
    using Vector = typename Block<Number>::Vector;
    constexpr std::int64_t VECTORS = Block<Number>::VECTORS, SIZE = Block<Number>::SIZE;
    const auto gradients = [](const Term<Number> *term, std::int64_t k) {
        return reinterpret_cast<const Vector *>(term->gradient + k);
    };
    std::int64_t k = 0;
    for (; k + SIZE <= width; k += SIZE) {
        Vector sum[VECTORS] = {};
        for (const Term<Number> *term = first; term < end;) {
            const Term<Number> *next = end_of_example(term, end);
            if (next == term + 1) {  // the usual case
                for (std::int64_t j = 0; j < VECTORS; j++) sum[j] += term->weight * gradients(term, k)[j];
            } else {
                Vector own[VECTORS] = {};
                for (const Term<Number> *each = term; each < next; each++)
                    for (std::int64_t j = 0; j < VECTORS; j++) own[j] += each->weight * gradients(each, k)[j];
                for (std::int64_t j = 0; j < VECTORS; j++) sum[j] += own[j];
            }
            term = next;
        }
        for (std::int64_t j = 0; j < VECTORS; j++) reinterpret_cast<Vector *>(row + k)[j] = sum[j];
    }
    for (; k < width; k++) {
        row[k] = 0;
        for (const Term<Number> *term = first; term < end;) {
            const Term<Number> *next = end_of_example(term, end);
            Number own = 0;
            for (; term < next; term++) own += term->weight * term->gradient[k];
            row[k] += own;
        }
    }
}

template <bool WRITE, typename Number>
void prefetch(const Number *numbers, std::int64_t size) {
    const std::int64_t bytes = std::min<std::int64_t>(size * sizeof(Number), FETCHED);
    for (std::int64_t byte = 0; byte < bytes; byte += LINE)
        __builtin_prefetch(reinterpret_cast<const char *>(numbers) + byte, WRITE);
}

// Sorts the terms by row, in order of examples and positions, and then writes every row of the total in turn. Adding them as they
// come would read and write rows all over the table.
template <typename Number>
bool add_up(const Lookups<Number> &of, const Number *weights, std::int64_t size, Number *total) {
    std::vector<std::int64_t> begins(size + 1);  // of the terms of each row
    for (std::int64_t i = 0; i < of.examples; i++)
        for (std::int64_t t = 0; t < of.positions; t++) {
            const std::int64_t index = of.index(i, t);
            if (index == of.padding) continue;
            if (index < 0 || index >= size) return false;
            begins[index]++;
        }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());  // the ends, from which the next loop counts down
    std::vector<Term<Number>> terms(begins[size]);
    for (std::int64_t i = of.examples - 1; i >= 0; i--)
        for (std::int64_t t = of.positions - 1; t >= 0; t--)
            if (const std::int64_t index = of.index(i, t); index != of.padding)
                terms[--begins[index]] = {of.gradient(i, t), weights[i], static_cast<std::int32_t>(i)};
    for (std::int64_t index = 0; index < size; index++) {
        Number *row = total + index * of.width;
        const std::int64_t begin = begins[index], end = begins[index + 1];
        if (index + MANY <= size && begins[index + MANY] == begin) {  // a part of the table that no example looked up
            std::fill_n(row, MANY * of.width, Number{0});
            index += MANY - 1;
            continue;
        }
        if (of.gradient_position == 0)
            prefetch<true>(row + AHEAD * of.width, of.width);  // shared gradients stay in the cache, so writing takes the time
        else
            for (std::int64_t place = begin + AHEAD; place < std::min(end + AHEAD, begins[size]); place++)
                prefetch<false>(terms[place].gradient, of.width);
        if (begin == end)
            std::fill_n(row, of.width, Number{0});
        else
            write_sum(&terms[begin], &terms[begin] + (end - begin), of.width, row);
    }
    return true;
}

}  // namespace

// Both return whether they succeeded: false if memory runs out or an index is outside the table.
#define PRIVET_EMBEDDING(NUMBER, NAME)                                                                                          \
    bool measure_##NAME(const Lookups<NUMBER> *of, double *squares, double *rounding) try {                                        \
        measure(*of, squares, rounding);                                                                                           \
        return true;                                                                                                            \
    } catch (const std::exception &) {                                                                                          \
        return false;                                                                                                           \
    }                                                                                                                           \
    bool add_up_##NAME(const Lookups<NUMBER> *of, const NUMBER *weights, std::int64_t size, NUMBER *total) try {                \
        return add_up(*of, weights, size, total);                                                                               \
    } catch (const std::exception &) {                                                                                          \
        return false;                                                                                                           \
    }

extern "C" {
PRIVET_EMBEDDING(float, float32)
PRIVET_EMBEDDING(double, float64)
}
