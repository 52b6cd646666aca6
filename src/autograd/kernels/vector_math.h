/* Elementary functions on vectors of floats, for the files that define the primitives listed in kernels_vector.h. No branches, no tables.
 * Coefficients named "fitted" are minimax fits in relative error over the stated range; the others are those of Cephes (Moshier). */
#ifndef AUTOGRAD_VECTOR_MATH_H
#define AUTOGRAD_VECTOR_MATH_H
#include "autograd/kernels/philox.h"

/* Runs the statements for i = 0, WIDTH, ... with left = WIDTH lanes (a constant, so that masks fold away), then once for the tail. */
#define EACH_VECTOR(n, ...)                                                                                                                \
  do {                                                                                                                                     \
    int64_t i = 0;                                                                                                                         \
    for (; i + VECTOR_WIDTH <= (n); i += VECTOR_WIDTH) {                                                                                   \
      const int64_t left = VECTOR_WIDTH;                                                                                                   \
      __VA_ARGS__                                                                                                                          \
    }                                                                                                                                      \
    const int64_t left = (n)-i;                                                                                                            \
    if (left > 0) { __VA_ARGS__ }                                                                                                          \
  } while (0)

/* The value of the polynomial with coefficients c[0] + c[1] x + ...; unrolled, since `degree` is constant where this is inlined. */
static inline __attribute__((always_inline)) Vector v_polynomial(Vector x, int degree, const float *c) {
  Vector sum = v_set(c[degree]);
  for (int i = degree - 1; i >= 0; i--) sum = v_fma(sum, x, v_set(c[i]));
  return sum;
}

static inline Vector v_absolute(Vector x) { return (Vector)((Words)x & 0x7fffffffu); }

/* exp x: 2^n exp r with |r| <= log(2)/2. Relative error 1.2e-7; 0 and infinity beyond the range of floats; NaN stays NaN. */
static inline Vector v_exp(Vector x) {
  static const float tail[] = {0.4999999345f, 0.1666652062f, 0.04166838734f, 0.008368718233f, 0.001381466026f}; /* fitted */
  x = v_min(v_set(89.0f), v_max(v_set(-104.0f), x));
  const Vector n = v_round(x * 1.44269504088896341f);
  Vector r = v_fma(n, v_set(-0.693359375f), x); /* log 2 in two parts, the first of which has few bits */
  r = v_fma(n, v_set(2.12194440e-4f), r);
  return v_scale(v_fma(v_polynomial(r, 4, tail), r * r, r + 1.0f), n);
}

/* 2^x: 2^n 2^r with |r| <= 1/2, in fewer steps than exp x. Relative error 1.6e-7; 0 and infinity beyond the range of floats; NaN stays NaN.
 */
static inline Vector v_exp2(Vector x) {
  static const float c[] = {1.0f, 0.693147f, 0.24022242f, 0.055507336f, 0.009671513f, 0.0013264727f}; /* fitted */
  x = v_min(v_set(129.0f), v_max(v_set(-152.0f), x));
  const Vector n = v_round(x);
  return v_scale(v_polynomial(x - n, 5, c), n);
}

/* log x for normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)). */
static inline Vector v_log(Vector x) {
  static const float tail[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,  -1.6668057665e-1f, 1.4249322787e-1f,
                               -1.2420140846e-1f, 1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
  const Integers exponent = (Integers)((Words)x - 0x3f3504f3u) >> 23;
  const Vector f = (Vector)((Words)x - ((Words)exponent << 23)) - 1.0f, e = v_to_float(exponent), square = f * f;
  Vector sum = v_polynomial(f, 8, tail) * f * square;
  sum = v_fma(e, v_set(-2.12194440e-4f), sum);
  sum = v_fma(square, v_set(-0.5f), sum);
  return v_fma(e, v_set(0.693359375f), f + sum);
}

/* sin and cos of 2 pi turn / 2^32: the nearest quarter turn is split off in integers, the rest is at most an eighth. */
static inline void v_sin_cos(Words turn, Vector *sine, Vector *cosine) {
  static const float sine_tail[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  static const float cosine_tail[] = {4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f};
  const Words quarter = (turn + 0x20000000u) >> 30;
  const Vector x = v_to_float((Integers)(turn - (quarter << 30))) * 1.4629180792671596e-9f, square = x * x; /* 2 pi / 2^32 */
  const Vector s = v_fma(v_polynomial(square, 2, sine_tail) * square, x, x);
  const Vector c = v_fma(v_polynomial(square, 2, cosine_tail), square * square, v_fma(square, v_set(-0.5f), v_set(1.0f)));
  const Words swap = 0 - (quarter & 1);
  const Words sine_bits = ((Words)c & swap) | ((Words)s & ~swap), cosine_bits = ((Words)s & swap) | ((Words)c & ~swap);
  *sine = (Vector)(sine_bits ^ ((quarter & 2) << 30));
  *cosine = (Vector)(cosine_bits ^ (((quarter + 1) & 2) << 30));
}

/* Phi(z), and exp(-z^2 / 2) on the way. The tail Phi(-|z|) = exp(-z^2/2) R(|z|), with R a polynomial in 1 / (1 + 0.3 |z|): relative
 * precision far into the tail, and the exponential serves the density too. */
static inline Vector v_normal_cdf(Vector z, Vector *exponential) {
  static const float ratio[] = {6.927021217e-6f, 0.1194918064f, 0.1218909915f,  0.0947981594f, 0.1422665732f, /* fitted, |z| <= 13.6 */
                                -0.07611732665f, 0.2283200269f, -0.1690015895f, 0.0383444605f};
  const Vector t = 1.0f / v_fma(v_absolute(z), v_set(0.3f), v_set(1.0f));
  *exponential = v_exp(z * z * -0.5f);
  const Vector tail = *exponential * v_polynomial(t, 8, ratio);
  return v_select(v_less(z, v_set(0.0f)), tail, 1.0f - tail);
}

/* 1 / (1 + exp(-x)) and its slope s (1 - s), both with relative precision on either side: exp(-|x|) never exceeds 1. */
static inline Vector v_sigmoid(Vector x, Vector *slope) {
  const Vector exponential = v_exp(-v_absolute(x)), upper = 1.0f / (1.0f + exponential), lower = exponential * upper;
  *slope = upper * lower;
  return v_select(v_less(x, v_set(0.0f)), lower, upper);
}

/* ---- normal numbers ---- */

/* Philox4x32-10 on one counter a lane, Box and Muller on the words: the same bits as philox.h. Lane 4 l + k runs counter WIDTH/4 k + l, so
 * that transposing 4 x 4 numbers within 128-bit lanes puts them in order. */
static inline void v_philox(uint64_t key, uint64_t counter, Words word[PHILOX_WORDS]) {
  uint32_t offset[VECTOR_WIDTH];
  for (uint32_t lane = 0; lane < VECTOR_WIDTH; lane++) offset[lane] = VECTOR_WIDTH / 4 * (lane % 4) + lane / 4;
  Words w0, w1, w2 = {0}, w3 = {0};
  memcpy(&w0, offset, sizeof w0);
  w0 += (uint32_t)counter;
  w1 = (uint32_t)(counter >> 32) - (Words)(w0 < (uint32_t)counter); /* the carry: a true comparison is -1 */
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    Words high0, low0, high2, low2;
    v_multiply_wide(w0, PHILOX_MULTIPLIER_0, &high0, &low0);
    v_multiply_wide(w2, PHILOX_MULTIPLIER_2, &high2, &low2);
    w0 = high2 ^ w1 ^ key0;
    w1 = low2;
    w2 = high0 ^ w3 ^ key1;
    w3 = low0;
    key0 += PHILOX_KEY_STEP_0;
    key1 += PHILOX_KEY_STEP_1;
  }
  word[0] = w0, word[1] = w1, word[2] = w2, word[3] = w3;
}

/* A radius from the first word (31 bits, never 0), an angle from the second. */
static inline void v_box_muller(const Words word[2], Vector x[2]) {
  const Vector u = (v_to_float((Integers)(word[0] >> 1)) + 0.5f) * 0x1p-31f;
  const Vector radius = v_sqrt(v_max(v_set(0.0f), v_log(u) * -2.0f));
  Vector sine, cosine;
  v_sin_cos(word[1], &sine, &cosine);
  x[0] = radius * cosine;
  x[1] = radius * sine;
}

static void vector_normal(int64_t n, uint64_t seed, uint64_t counter, float *x) {
  for (int64_t i = 0; i < n; i += PHILOX_WORDS * VECTOR_WIDTH, counter += VECTOR_WIDTH) {
    Words word[PHILOX_WORDS];
    Vector block[PHILOX_WORDS];
    v_philox(seed, counter, word);
    v_box_muller(word, block);
    v_box_muller(word + 2, block + 2);
    v_transpose_4x4(block);
    for (int r = 0; r < PHILOX_WORDS; r++) {
      const int64_t at = i + r * VECTOR_WIDTH, left = n - at;
      if (left > 0) v_store(x + at, block[r], left < VECTOR_WIDTH ? left : VECTOR_WIDTH);
    }
  }
}

#endif
