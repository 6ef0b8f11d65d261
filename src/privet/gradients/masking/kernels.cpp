// Products with a sparse matrix of ones (a mask), as the torch functions of kernels.py define them; the two are compared before
// these are used.
//
// Matrices are row-major with examples along the rows, so that each kept entry is applied to vectors of examples. Sums stay in
// registers; the order of their terms is unspecified.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace {

// Bytes of a vector register. Wider vectors than the processor's would go through memory.
#if defined(__AVX512F__)
constexpr std::int64_t BYTES = 64;
#elif defined(__AVX__)
constexpr std::int64_t BYTES = 32;
#else
constexpr std::int64_t BYTES = 16;
#endif
constexpr std::int64_t VECTORS = 4;  // sums held in registers at once

template <typename Number>
struct Vectors {
    static constexpr std::int64_t lanes = BYTES / sizeof(Number);
    typedef Number type __attribute__((vector_size(BYTES), aligned(sizeof(Number)), may_alias));
};

// The kept entries in CSR format: the columns of row j are columns[starts[j]] to columns[starts[j + 1] - 1].
struct Rows {
    const std::int64_t *starts, *columns;
    std::int64_t rows, examples;
};

// m x for x of (columns, examples), for the rows from `first` to `last`.
template <typename Number>
void product(const Rows &mask, const Number *x, Number *out, std::int64_t first, std::int64_t last) {
    typedef typename Vectors<Number>::type Vector;
    constexpr std::int64_t lanes = Vectors<Number>::lanes, block = VECTORS * lanes;
    std::int64_t i = 0;
    for (; i + block <= mask.examples; i += block)
        for (std::int64_t j = first; j < last; j++) {
            Vector sum[VECTORS] = {};
            for (std::int64_t k = mask.starts[j]; k < mask.starts[j + 1]; k++) {
                const Vector *row = reinterpret_cast<const Vector *>(x + mask.columns[k] * mask.examples + i);
                for (std::int64_t v = 0; v < VECTORS; v++) sum[v] += row[v];
            }
            Vector *to = reinterpret_cast<Vector *>(out + j * mask.examples + i);
            for (std::int64_t v = 0; v < VECTORS; v++) to[v] = sum[v];
        }
    for (std::int64_t j = first; j < last && i < mask.examples; j++) {
        Number *to = out + j * mask.examples;
        std::fill(to + i, to + mask.examples, Number{0});
        for (std::int64_t k = mask.starts[j]; k < mask.starts[j + 1]; k++) {
            const Number *row = x + mask.columns[k] * mask.examples;
            for (std::int64_t e = i; e < mask.examples; e++) to[e] += row[e];
        }
    }
}

// Inner products of several rows with one row.
template <typename Number, std::int64_t many>
void inner(const Number *row, const Number *const *others, std::int64_t examples, Number *values) {
    typedef typename Vectors<Number>::type Vector;
    constexpr std::int64_t lanes = Vectors<Number>::lanes;
    Vector sum[many] = {};
    std::int64_t i = 0;
    for (; i + lanes <= examples; i += lanes) {
        const Vector here = *reinterpret_cast<const Vector *>(row + i);
        for (std::int64_t c = 0; c < many; c++) sum[c] += here * *reinterpret_cast<const Vector *>(others[c] + i);
    }
    for (std::int64_t c = 0; c < many; c++) {
        Number total = 0;
        for (std::int64_t lane = 0; lane < lanes; lane++) total += sum[c][lane];
        for (std::int64_t e = i; e < examples; e++) total += row[e] * others[c][e];
        values[c] = total;
    }
}

// The kept entries of left rightᵀ, for the rows from `first` to `last`.
template <typename Number>
void outer(const Rows &mask, const Number *left, const Number *right, Number *values, std::int64_t first, std::int64_t last) {
    const Number *others[VECTORS];
    for (std::int64_t j = first; j < last; j++) {
        const Number *row = left + j * mask.examples;
        std::int64_t k = mask.starts[j];
        for (; k + VECTORS <= mask.starts[j + 1]; k += VECTORS) {
            for (std::int64_t c = 0; c < VECTORS; c++) others[c] = right + mask.columns[k + c] * mask.examples;
            inner<Number, VECTORS>(row, others, mask.examples, values + k);
        }
        for (; k < mask.starts[j + 1]; k++) {
            others[0] = right + mask.columns[k] * mask.examples;
            inner<Number, 1>(row, others, mask.examples, values + k);
        }
    }
}

// Distribute the rows evenly over threads.
template <typename Part>
void shared(std::int64_t rows, std::int64_t threads, const Part &part) {
    std::vector<std::thread> others;
    try {
        for (std::int64_t t = 1; t < threads; t++) others.emplace_back(part, rows * t / threads, rows * (t + 1) / threads);
    } catch (const std::exception &) {
        // No further thread is available: this one processes the remaining rows.
    }
    part(0, rows / threads);
    for (std::int64_t t = static_cast<std::int64_t>(others.size()) + 1; t < threads; t++)
        part(rows * t / threads, rows * (t + 1) / threads);
    for (std::thread &other : others) other.join();
}

}  // namespace

#define PRIVET_MASK(NUMBER, NAME)                                                                                         \
    void product_##NAME(const Rows *mask, const NUMBER *x, NUMBER *out, std::int64_t threads) {                           \
        shared(mask->rows, threads, [=](std::int64_t a, std::int64_t b) { product(*mask, x, out, a, b); });              \
    }                                                                                                                     \
    void outer_##NAME(const Rows *mask, const NUMBER *left, const NUMBER *right, NUMBER *values, std::int64_t threads) { \
        shared(mask->rows, threads, [=](std::int64_t a, std::int64_t b) { outer(*mask, left, right, values, a, b); });    \
    }

extern "C" {
PRIVET_MASK(float, float32)
PRIVET_MASK(double, float64)
}
