// Standard normals from random words, and the pass that adds them to a sum, both as the torch functions of reference.py define
// them; compiled.py compares the two before these are used.
//
// Everything is straight arithmetic on vectors, without branches or calls: no value decides how long it takes. -ffast-math must
// stay off, as rounding and order are meant.

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
// Arithmetic on 64 bytes has two ports, so what counts is the number of operations, and that enough of them are independent.
constexpr std::size_t BYTES = 64, REGISTERS = 4;
#elif defined(__AVX__)
constexpr std::size_t BYTES = 32, REGISTERS = 1;
#else
constexpr std::size_t BYTES = 16, REGISTERS = 1;
#endif
constexpr std::size_t LANES = BYTES / sizeof(double);
constexpr std::int64_t STEP = REGISTERS * LANES;  // numbers at once

typedef double Doubles __attribute__((vector_size(BYTES)));
typedef std::uint64_t Integers __attribute__((vector_size(BYTES)));
typedef std::uint64_t Unaligned __attribute__((vector_size(BYTES), aligned(8), may_alias));

// Several registers. Operations on them are next to each other in the program, and the processor overlaps them.
template <typename Vector>
struct Wide {
    Vector part[REGISTERS];
};
using Reals = Wide<Doubles>;
using Words = Wide<Integers>;

#define EACH _Pragma("GCC unroll 4") for (std::size_t k = 0; k < REGISTERS; k++)
#define OPERATOR(Type, sign, Scalar)                      \
    inline Type operator sign(Type a, const Type &b) {    \
        EACH a.part[k] = a.part[k] sign b.part[k];        \
        return a;                                         \
    }                                                     \
    inline Type operator sign(Type a, Scalar b) {         \
        EACH a.part[k] = a.part[k] sign b;                \
        return a;                                         \
    }
OPERATOR(Reals, +, double)
OPERATOR(Reals, -, double)
OPERATOR(Reals, *, double)
OPERATOR(Words, +, std::uint64_t)
OPERATOR(Words, &, std::uint64_t)
OPERATOR(Words, |, std::uint64_t)
OPERATOR(Words, ^, std::uint64_t)
OPERATOR(Words, <<, std::uint64_t)
OPERATOR(Words, >>, std::uint64_t)

inline Words bits_of(const Reals &x) {
    Words bits;
    EACH bits.part[k] = (Integers)x.part[k];
    return bits;
}

inline Reals from_bits(const Words &bits) {
    Reals x;
    EACH x.part[k] = (Doubles)bits.part[k];
    return x;
}

inline Words load(const double *from) {
    Words words;
    EACH words.part[k] = reinterpret_cast<const Unaligned *>(from)[k];
    return words;
}

inline void store(double *to, const Reals &x) {
    EACH reinterpret_cast<Unaligned *>(to)[k] = (Integers)x.part[k];
}

constexpr std::uint64_t MANTISSA = (std::uint64_t{1} << 52) - 1;
constexpr std::uint64_t ONE = std::uint64_t{1023} << 52, FOUR = std::uint64_t{1025} << 52;  // the bits of 1.0 and 4.0
constexpr std::uint64_t POWER = std::uint64_t{1075} << 52;  // the bits of 2⁵², to which the lowest 52 bits add themselves
constexpr std::uint64_t ROOT_HALF = 0x3fe6a09e667f3bcd;     // the bits of 1/√2
constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;  // together ln 2; HIGH · k is exact
constexpr double TO_INTEGER = 0x1.8p52;  // x + TO_INTEGER has the integer nearest to x in its lowest bits

// Polynomials in z, highest power first, interpolated at Chebyshev's points of the range where each is used: −4·artanh(s)/s in
// s² to one part in 2⁵⁷, sin(πx/2)/x and cos(πx/2) in x² to one in 2⁵², and 1/d in d to one in 2¹³.
constexpr double ARTANH[] = {-0x1.2b584aae78a67p-2, -0x1.39fe606542ddcp-2, -0x1.7462b4ab2ef6bp-2, -0x1.c71c62e5800a1p-2,
                             -0x1.2492492df148dp-1, -0x1.99999999952e2p-1, -0x1.5555555555558p+0, -4.0};
constexpr double SINE[] = {0x1.e0404f9ceb610p-25, -0x1.e2f5414e15617p-19, 0x1.5078232454425p-13, -0x1.32d2ccd58ed75p-8,
                           0x1.466bc6774bcd2p-4,  -0x1.4abbce625bdb3p-1,  0x1.921fb54442d18p+0};
constexpr double COSINE[] = {0x1.f4b536b457c37p-22, -0x1.a6cc32d07dc94p-16, 0x1.e1f50093e4c8fp-11, -0x1.55d3c7e10153fp-6,
                             0x1.03c1f081b4b74p-2,  -0x1.3bd3cc9be45dbp+0,  1.0};

template <std::size_t size>
inline Reals polynomial(const double (&coefficients)[size], const Reals &z) {
    Reals sum = z * coefficients[0] + coefficients[1];
#pragma GCC unroll 16
    for (std::size_t i = 2; i < size; i++) sum = sum * z + coefficients[i];
    return sum;
}

// The divider takes longer than everything else on 64 bytes, which the processor does not overlap with it.
#ifdef __AVX512F__
constexpr double INVERSE[] = {-0x1.d40cd3e49833cp-5, 0x1.e23f00f2a6e29p-2, -0x1.72d380d97422fp+0, 0x1.f8686395963fbp+0};

// n / d for d in [1 + 1/√2, 1 + √2), to about an ulp.
inline Reals quotient(const Reals &n, const Reals &d) {
    Reals inverse = polynomial(INVERSE, d);
    inverse = inverse + inverse * (d * inverse * -1.0 + 1.0);
    const Reals ratio = n * inverse;
    return ratio + (n - d * ratio) * inverse;
}

// √x for normal x, to about an ulp: the estimate is off by 2⁻¹⁴, and a series in its error by that to the fourth power.
inline Reals root(const Reals &x) {
    Reals estimate;
    EACH estimate.part[k] = (Doubles)_mm512_rsqrt14_pd((__m512d)x.part[k]);
    const Reals near = x * estimate, error = near * estimate * -1.0 + 1.0;
    return near + near * error * (error * (error * (5.0 / 16) + 3.0 / 8) + 1.0 / 2);
}
#else
inline Reals quotient(Reals n, const Reals &d) {
    EACH n.part[k] /= d.part[k];
    return n;
}

inline Reals root(const Reals &x) {
    Reals found;
    EACH for (std::size_t lane = 0; lane < LANES; lane++) found.part[k][lane] = std::sqrt(x.part[k][lane]);
    return found;
}
#endif

// (m + ½) · 2⁻⁵² · scale for the lowest 52 bits m, exactly; `scale` is a power of two, with these bits.
inline Reals uniform(const Words &words, double scale, std::uint64_t bits) {
    return from_bits((words & MANTISSA) | bits) - scale * (1.0 - 0x1p-53);
}

// −2·ln x for x = 2ᵏ·f with f in [1/√2, √2): ln f = 2·artanh s, where s = (f − 1)/(f + 1) and |s| < 0.172.
inline Reals squared_radius(const Reals &x) {
    const Words shifted = bits_of(x) + (ONE - ROOT_HALF);
    const Reals exponent = from_bits((shifted >> 52) | POWER) - (0x1p52 + 1023);
    const Reals f = from_bits((shifted & MANTISSA) + ROOT_HALF);
    const Reals s = quotient(f - 1.0, f + 1.0);
    return exponent * (-2 * LN2_HIGH) + (exponent * (-2 * LN2_LOW) + s * polynomial(ARTANH, s * s));
}

// Turn `STEP` pairs of words into standard normals where they stand.
inline void transform(double *first, double *second) {
    const Reals radius = root(squared_radius(uniform(load(first), 1.0, ONE)));
    const Reals turns = uniform(load(second), 4.0, FOUR);  // quarter turns
    const Reals nearest = turns + TO_INTEGER;
    const Words quadrant = bits_of(nearest);
    const Reals x = turns - (nearest - TO_INTEGER), z = x * x;
    const Words sine = bits_of(x * polynomial(SINE, z)), cosine = bits_of(polynomial(COSINE, z));
    Words swap = quadrant & 1;
    EACH swap.part[k] = -swap.part[k] & (sine.part[k] ^ cosine.part[k]);
    store(first, radius * from_bits(cosine ^ swap ^ (((quadrant + 1) & 2) << 62)));
    store(second, radius * from_bits(sine ^ swap ^ ((quadrant & 2) << 62)));
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
    double *second = block + pairs;
    std::int64_t i = 0;
    for (; i + STEP <= pairs; i += STEP) transform(block + i, second + i);
    double rest[2 * STEP] = {};
    const std::size_t bytes = (pairs - i) * sizeof(double);
    std::memcpy(rest, block + i, bytes);
    std::memcpy(rest + STEP, second + i, bytes);
    transform(rest, rest + STEP);
    std::memcpy(block + i, rest, bytes);
    std::memcpy(second + i, rest + STEP, bytes);
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
