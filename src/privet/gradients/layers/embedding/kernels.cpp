// Norms and sums of embedding gradients, as the torch functions of reference.py define them; kernels.py compares the two before
// these are used.
//
// Inner loops run over the width of the table without branches, so that the compiler vectorises them. Norms are accumulated in
// float64 over several lanes; their order and rounding matter, so -ffast-math must stay off.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <vector>

namespace {

constexpr std::int64_t LANES = 32;        // independent partial sums: several vectors of any width
constexpr std::int64_t AHEAD = 6;         // positions between prefetching a row and adding to it
constexpr std::uintptr_t LINE = 64;       // bytes per prefetch
constexpr std::uintptr_t FETCHED = 1024;  // bytes of a row to prefetch; the hardware prefetcher does the rest

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
    double sum = 0.0;
    for (double lane : lanes) sum += lane;
    return sum;
}

template <typename Number>
void accumulate(const Number *__restrict x, std::int64_t size, double *__restrict sum) {
    for (std::int64_t k = 0; k < size; k++) sum[k] += static_cast<double>(x[k]);
}

// Positions of one example by index: a hash table with at least twice as many slots, cleared by incrementing the example.
class Positions {
  public:
    struct Group {
        std::int64_t index, example, last, count;
    };

    explicit Positions(std::int64_t positions) : before(positions) {
        while ((std::int64_t{1} << bits) < 2 * positions) bits++;
        slots.assign(std::size_t{1} << bits, Group{0, -1, 0, 0});
        groups.reserve(positions);
    }

    // Add a position to the group of its index, and return the previous size of the group.
    std::int64_t add(std::int64_t index, std::int64_t example, std::int64_t position) {
        const std::size_t mask = slots.size() - 1;
        std::size_t place = static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15u >> (64 - bits);
        while (slots[place].example == example && slots[place].index != index) place = (place + 1) & mask;
        Group &group = slots[place];
        if (group.example != example) {
            group = Group{index, example, position, 1};
            before[position] = -1;
            groups.push_back(&group);
            return 0;
        }
        before[position] = group.last;
        group.last = position;
        return group.count++;
    }

    std::vector<const Group *> groups;  // in order of first occurrence of their indices
    std::vector<std::int64_t> before;   // the group's position before this one, or −1

  private:
    int bits = 1;
    std::vector<Group> slots;
};

template <typename Number>
void measure(const Lookups<Number> &of, double *squares, double *rounding) {
    Positions found(of.positions);
    std::vector<double> sum(of.width);
    for (std::int64_t i = 0; i < of.examples; i++) {
        found.groups.clear();
        std::int64_t many = 0, square_of_counts = 0;
        for (std::int64_t t = 0; t < of.positions; t++) {
            const std::int64_t index = of.index(i, t);
            if (index == of.padding) continue;
            square_of_counts += 2 * found.add(index, i, t) + 1;
            many++;
        }
        squares[i] = rounding[i] = 0.0;
        if (many > 0 && of.gradient_position == 0) {
            const double square = squared_norm(of.gradient(i, 0), of.width);
            squares[i] = square * static_cast<double>(square_of_counts);
            rounding[i] = std::sqrt(square) * (static_cast<double>(many) + 0.5 * static_cast<double>(square_of_counts));
            continue;
        }
        for (const Positions::Group *group : found.groups) {
            double square = squared_norm(of.gradient(i, group->last), of.width);
            double lengths = std::sqrt(square);
            if (group->count > 1) {
                sum.assign(of.width, 0.0);
                accumulate(of.gradient(i, group->last), of.width, sum.data());
                for (std::int64_t t = found.before[group->last]; t >= 0; t = found.before[t]) {
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

// Writes every row of the total: the first gradient of a row is stored and not added, and rows without one become zero, which
// saves a pass over the table.
template <typename Number>
bool add_up(const Lookups<Number> &of, const Number *weights, std::int64_t size, Number *total) {
    std::vector<unsigned char> written(size);
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(total), row_bytes = of.width * sizeof(Number);
    const std::uintptr_t fetched = std::min(row_bytes, FETCHED);
    for (std::int64_t i = 0; i < of.examples; i++) {
        const Number weight = weights[i];
        for (std::int64_t t = 0; t < of.positions; t++) {
            if (t + AHEAD < of.positions) {
                // As an integer: for an index outside the table the pointer would be invalid; prefetching the address is harmless.
                const std::uintptr_t row = start + static_cast<std::uintptr_t>(of.index(i, t + AHEAD)) * row_bytes;
                for (std::uintptr_t byte = 0; byte < fetched; byte += LINE)
                    __builtin_prefetch(reinterpret_cast<const void *>(row + byte), 1);
            }
            const std::int64_t index = of.index(i, t);
            if (index == of.padding) continue;
            if (index < 0 || index >= size) return false;
            const Number *__restrict gradient = of.gradient(i, t);
            Number *__restrict row = total + index * of.width;
            if (written[index]) {
                for (std::int64_t k = 0; k < of.width; k++) row[k] += weight * gradient[k];
            } else {
                for (std::int64_t k = 0; k < of.width; k++) row[k] = weight * gradient[k];
                written[index] = 1;
            }
        }
    }
    for (std::int64_t index = 0; index < size; index++)
        if (!written[index]) std::fill_n(total + index * of.width, of.width, Number{0});
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
