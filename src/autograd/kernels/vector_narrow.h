/* Products of 16-bit matrices with float vectors, widened in registers: bound by reading the matrix, at half the bytes of floats. Four rows
 * go side by side, which gives the adders enough independent sums and reads (or writes) the vector once for four rows. Each function is
 * compiled for both kinds: `kind` is a constant where v_load_narrow is inlined. */
#ifndef AUTOGRAD_VECTOR_NARROW_H
#define AUTOGRAD_VECTOR_NARROW_H

enum { NARROW_ROWS = 4 };

#define FOR_EACH_KIND(kind, function, ...)                                                                                                 \
  do {                                                                                                                                     \
    if ((kind) == NARROW_F16)                                                                                                              \
      function(NARROW_F16, __VA_ARGS__);                                                                                                   \
    else                                                                                                                                   \
      function(NARROW_BF16, __VA_ARGS__);                                                                                                  \
  } while (0)

static inline __attribute__((always_inline)) Vector v_load_narrow(NarrowKind kind, const uint16_t *p, int64_t left) {
  return kind == NARROW_F16 ? v_load_half(p, left) : v_load_bfloat(p, left);
}

static inline __attribute__((always_inline)) void widen_kind(NarrowKind kind, int64_t n, const uint16_t *x, float *y) {
  EACH_VECTOR(n, v_store(y + i, v_load_narrow(kind, x + i, left), left););
}

static void vector_widen(NarrowKind kind, int64_t n, const uint16_t *x, float *y) { FOR_EACH_KIND(kind, widen_kind, n, x, y); }

static void vector_narrow(int64_t n, const float *x, uint16_t *y) { EACH_VECTOR(n, v_store_bfloat(y + i, v_load(x + i, left), left);); }

/* What rounds to no finite half: a number too large shows in the largest of |x|, infinities and NaNs in the sum of x - x. */
static bool vector_narrow_half(int64_t n, const float *x, uint16_t *y) {
  Vector largest = v_set(0), differences = v_set(0);
  EACH_VECTOR(n, {
    const Vector number = v_load(x + i, left);
    largest = v_max(v_max(number, -number), largest);
    differences += number - number;
    v_store_half(y + i, number, left);
  });
  return v_reduce_max(largest) < 65520 && v_sum(differences) == 0;
}

static inline __attribute__((always_inline)) void dots_kind(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride,
                                                            const float *x, float *y) {
  int64_t r = 0;
  for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
    const uint16_t *row = w + r * stride;
    Vector a = v_set(0), b = v_set(0), c = v_set(0), d = v_set(0);
    EACH_VECTOR(n, {
      const Vector number = v_load(x + i, left);
      a = v_fma(v_load_narrow(kind, row + i, left), number, a);
      b = v_fma(v_load_narrow(kind, row + stride + i, left), number, b);
      c = v_fma(v_load_narrow(kind, row + 2 * stride + i, left), number, c);
      d = v_fma(v_load_narrow(kind, row + 3 * stride + i, left), number, d);
    });
    y[r] += v_sum(a), y[r + 1] += v_sum(b), y[r + 2] += v_sum(c), y[r + 3] += v_sum(d);
  }
  for (; r < rows; r++) {
    Vector sum = v_set(0);
    EACH_VECTOR(n, sum = v_fma(v_load_narrow(kind, w + r * stride + i, left), v_load(x + i, left), sum););
    y[r] += v_sum(sum);
  }
}

static void vector_narrow_dots(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const float *x, float *y) {
  FOR_EACH_KIND(kind, dots_kind, rows, n, w, stride, x, y);
}

static inline __attribute__((always_inline)) void sums_kind(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride,
                                                            const float *x, float *y) {
  int64_t r = 0;
  for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
    const uint16_t *row = w + r * stride;
    const Vector a = v_set(x[r]), b = v_set(x[r + 1]), c = v_set(x[r + 2]), d = v_set(x[r + 3]);
    EACH_VECTOR(n, {
      Vector sum = v_fma(a, v_load_narrow(kind, row + i, left), v_load(y + i, left));
      sum = v_fma(b, v_load_narrow(kind, row + stride + i, left), sum);
      sum = v_fma(c, v_load_narrow(kind, row + 2 * stride + i, left), sum);
      v_store(y + i, v_fma(d, v_load_narrow(kind, row + 3 * stride + i, left), sum), left);
    });
  }
  for (; r < rows; r++) {
    const Vector factor = v_set(x[r]);
    EACH_VECTOR(n, v_store(y + i, v_fma(factor, v_load_narrow(kind, w + r * stride + i, left), v_load(y + i, left)), left););
  }
}

static void vector_narrow_sums(NarrowKind kind, int64_t rows, int64_t n, const uint16_t *w, int64_t stride, const float *x, float *y) {
  FOR_EACH_KIND(kind, sums_kind, rows, n, w, stride, x, y);
}

#endif
