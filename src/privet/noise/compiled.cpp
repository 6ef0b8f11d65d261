// Standard normals from random words, and the pass that adds them to a sum, both as the torch functions of normals.py define
// them; kernels.py compares the two before these are used.
//
// Loop bodies are straight arithmetic without branches or calls: the compiler turns them into vector instructions, and no value
// decides how long they take. -ffast-math must stay off, as rounding and order are meant.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr std::uint64_t MANTISSA = (std::uint64_t{1} << 52) - 1;
constexpr std::uint64_t ONE = std::uint64_t{1023} << 52;            // the bits of 1.0
constexpr std::uint64_t ROOT_HALF = 0x3fe6a09e667f3bcd;             // the bits of 1/√2
constexpr double HALF_PI = 0x1.921fb54442d18p+0;
constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;  // together ln 2; HIGH · k is exact
constexpr double TO_INTEGER = 0x1.8p52;  // x + TO_INTEGER has the integer nearest to x in its lowest bits

// Series in z, highest power first: artanh(s)/s in s², sin(x)/x and cos(x) in −x². Each ends below one part in 2⁵⁶ on its range.
constexpr double ARTANH[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3};
constexpr double SINE[] = {1.0 / 355687428096000, 1.0 / 1307674368000, 1.0 / 6227020800, 1.0 / 39916800,
                           1.0 / 362880,          1.0 / 5040,          1.0 / 120,        1.0 / 6};
constexpr double COSINE[] = {1.0 / 20922789888000, 1.0 / 87178291200, 1.0 / 479001600, 1.0 / 3628800,
                             1.0 / 40320,          1.0 / 720,         1.0 / 24,        1.0 / 2};

template <std::size_t size>
inline double polynomial(const double (&coefficients)[size], double z) {
    double sum = coefficients[0];
#pragma GCC unroll 16
    for (std::size_t i = 1; i < size; i++) sum = sum * z + coefficients[i];
    return sum;
}

inline std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline double from_bits(std::uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// (m + ½) · 2⁻⁵² for the lowest 52 bits m, exactly.
inline double uniform(std::uint64_t word) { return from_bits((word & MANTISSA) | ONE) - (1.0 - 0x1p-53); }

// ln x for x = 2ᵏ·f with f in [1/√2, √2): ln f = 2·artanh s, where s = (f − 1)/(f + 1) and |s| < 0.172.
inline double logarithm(double x) {
    const std::uint64_t shifted = bits_of(x) - ROOT_HALF + ONE;
    const double k = from_bits((shifted >> 52) | bits_of(0x1p52)) - (0x1p52 + 1023);
    const double f = from_bits((shifted & MANTISSA) + ROOT_HALF);
    const double s = (f - 1.0) / (f + 1.0), z = s * s, twice = s + s;
    return k * LN2_HIGH + (k * LN2_LOW + (twice * z * polynomial(ARTANH, z) + twice));
}

template <typename Number>
void add(const Number *sum, const double *normals, std::int64_t size, double cells, double grid, double unit, Number *released) {
    const double inverse = 1.0 / grid;
    for (std::int64_t i = 0; i < size; i++)
        released[i] = static_cast<Number>((std::rint(normals[i] * cells) + std::rint(sum[i] * inverse)) * unit);
}

}  // namespace

extern "C" {

// Turn 2·pairs words into standard normals where they stand (Box–Muller): radii from the first half, angles from the second.
void box_muller(double *block, std::int64_t pairs) {
    double *first = block, *second = block + pairs;
    for (std::int64_t i = 0; i < pairs; i++) {
        const double radius = std::sqrt(-2.0 * logarithm(uniform(bits_of(first[i]))));
        const double turns = 4.0 * uniform(bits_of(second[i]));  // quarter turns
        const double nearest = turns + TO_INTEGER;
        const std::uint64_t quadrant = bits_of(nearest);
        const double x = (turns - (nearest - TO_INTEGER)) * HALF_PI, z = -x * x;
        const double sine = x * z * polynomial(SINE, z) + x, cosine = z * polynomial(COSINE, z) + 1.0;
        const bool odd = quadrant & 1;
        const double c = odd ? sine : cosine, s = odd ? cosine : sine;
        first[i] = radius * from_bits(bits_of(c) ^ (((quadrant + 1) & 2) << 62));
        second[i] = radius * from_bits(bits_of(s) ^ ((quadrant & 2) << 62));
    }
}

// released = (round(normals · cells) + round(sum / grid)) · unit; `grid` is a power of two, so its inverse is exact.
void add_noise_float32(const float *sum, const double *normals, std::int64_t size, double cells, double grid, double unit,
                       float *released) {
    add(sum, normals, size, cells, grid, unit, released);
}

void add_noise_float64(const double *sum, const double *normals, std::int64_t size, double cells, double grid, double unit,
                       double *released) {
    add(sum, normals, size, cells, grid, unit, released);
}
}
