/* Elementary functions on vectors of floats, for the files that define the primitives listed in kernels_vector.h. No branches, no tables.
 * Coefficients named "fitted" are minimax fits in relative error over the stated range; the others are those of Cephes (Moshier). */
#ifndef AUTOGRAD_VECTOR_MATH_H
#define AUTOGRAD_VECTOR_MATH_H

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

#endif
