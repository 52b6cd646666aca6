/* 16-bit numbers: every one of them widened by every table, products with 16-bit vectors of awkward lengths, and whole products against the
 * textbook loop, on one thread and two. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/narrow.h"
#include "base/rng.h"
#include "base/threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ALL = 1 << 16 };
#define WATCH ((real)12345.0)
#define TIGHT (REAL_IS_DOUBLE ? 1e-14 : 1e-6)

static const NarrowKind kinds[] = {NARROW_F16, NARROW_BF16};
static const char *const table_names[] = {"portable", "avx2", "avx512"};
static Rng rng;

/* As the formats are defined: sign, exponent, fraction. */
static double defined(NarrowKind kind, uint16_t bits) {
  const int fraction_bits = kind == NARROW_F16 ? 10 : 7, exponents = kind == NARROW_F16 ? 31 : 255, bias = exponents / 2;
  const int exponent = bits >> fraction_bits & exponents, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == exponents) return fraction ? (double)NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
  return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void every_number_is_widened_exactly(void **state) {
  (void)state;
  static uint16_t bits[ALL];
  static real wide[ALL];
  for (int i = 0; i < ALL; i++) bits[i] = (uint16_t)i;
  for (int t = 0; t < 3; t++)
    for (int k = 0; k < 2 && kernels_named(table_names[t]); k++) {
      kernels_named(table_names[t])->widen(kinds[k], ALL, bits, wide);
      for (int i = 0; i < ALL; i++) {
        const double want = defined(kinds[k], (uint16_t)i);
        if (isnan(want) ? !isnan(wide[i]) : (double)wide[i] != want || !signbit(wide[i]) != !signbit(want))
          fail_msg("%s, kind %d, %04x: %g, expected %g", table_names[t], kinds[k], (unsigned)i, (double)wide[i], want);
      }
    }
}

/* Between two neighbours lies one number that is as near to both: the even one gets it. Numbers beside it go to their nearer one. */
static void numbers_are_narrowed_to_the_nearest(void **state) {
  (void)state;
  enum { PLACES = 3, MAX = 0x7f80 };
  static real wide[2 * MAX * PLACES + 3];
  static uint16_t want[2 * MAX * PLACES + 3], got[2 * MAX * PLACES + 3];
  int count = 0;
  for (int bits = 0; bits < MAX - 1; bits++)
    for (int sign = 0; sign < 2; sign++) {
      const uint32_t lower = ((uint32_t)sign << 15 | (uint32_t)bits) << 16;
      wide[count] = (real)narrow_float_of_bits(lower | 0x7fff), want[count++] = (uint16_t)(lower >> 16);
      wide[count] = (real)narrow_float_of_bits(lower | 0x8000), want[count++] = (uint16_t)((lower >> 16) + (bits & 1));
      wide[count] = (real)narrow_float_of_bits(lower | 0x8001), want[count++] = (uint16_t)((lower >> 16) + 1);
    }
  wide[count] = (real)INFINITY, want[count++] = 0x7f80;
  wide[count] = (real)3.4e38, want[count++] = 0x7f80;
  wide[count] = (real)NAN, want[count++] = 0;
  for (int t = 0; t < 3; t++)
    for (int first = 0; first < 3 && kernels_named(table_names[t]); first++) { /* tails of several lengths */
      memset(got, 0xff, sizeof got);
      kernels_named(table_names[t])->narrow(count - first, wide + first, got + first);
      assert_memory_equal(got + first, want + first, (size_t)(count - first - 1) * sizeof *want);
      assert_true(isnan(narrow_bfloat_to_float(got[count - 1])));
    }
}

/* All halves, the middles between neighbours (the even one gets them) and what lies beside a middle. */
static void halves_are_the_nearest(void **state) {
  (void)state;
  enum { FINITE = 0x7c00 };
  static real wide[2 * FINITE * 4];
  static uint16_t want[2 * FINITE * 4], got[2 * FINITE * 4];
  int count = 0;
  for (int bits = 0; bits < FINITE - 1; bits++)
    for (int sign = 0; sign < 2; sign++) {
      const uint16_t lower = (uint16_t)(sign << 15 | bits), upper = (uint16_t)(lower + 1);
      const float below = narrow_half_to_float(lower), middle = (below + narrow_half_to_float(upper)) / 2;
      wide[count] = (real)below, want[count++] = lower;
      wide[count] = (real)middle, want[count++] = bits & 1 ? upper : lower;
      wide[count] = (real)nextafterf(middle, 0), want[count++] = lower;
      wide[count] = (real)nextafterf(middle, sign ? -INFINITY : INFINITY), want[count++] = upper;
    }
  for (int t = 0; t < 3; t++)
    for (int first = 0; first < 3 && kernels_named(table_names[t]); first++) { /* tails of several lengths */
      memset(got, 0xff, sizeof got);
      assert_true(kernels_named(table_names[t])->narrow_half(count - first, wide + first, got + first));
      assert_memory_equal(got + first, want + first, (size_t)(count - first) * sizeof *want);
    }
}

/* Wherever it stands among many: one number that no finite half is near to. */
static void what_no_half_holds_is_told(void **state) {
  (void)state;
  enum { COUNT = 37 };
  static const real bad[] = {(real)65520, (real)-65520, (real)1e30, (real)INFINITY, (real)-INFINITY, (real)NAN};
  real x[COUNT];
  uint16_t y[COUNT];
  for (int t = 0; t < 3; t++)
    for (size_t b = 0; b < sizeof bad / sizeof *bad && kernels_named(table_names[t]); b++)
      for (int at = 0; at < COUNT; at++) {
        for (int i = 0; i < COUNT; i++) x[i] = (real)65519;
        assert_true(kernels_named(table_names[t])->narrow_half(COUNT, x, y));
        x[at] = bad[b];
        assert_false(kernels_named(table_names[t])->narrow_half(COUNT, x, y));
        assert_int_equal(y[at] & 0x7c00, 0x7c00);
      }
}

/* Finite numbers of moderate size. */
static uint16_t *random_narrow(NarrowKind kind, int64_t count) {
  uint16_t *bits = malloc((size_t)count * sizeof *bits);
  assert_non_null(bits);
  for (int64_t i = 0; i < count; i++) {
    const uint64_t sign = rng_below(&rng, 2) << 15;
    bits[i] = (uint16_t)(sign | (kind == NARROW_F16 ? (12 + rng_below(&rng, 4)) << 10 | rng_below(&rng, 1024)
                                                    : (124 + rng_below(&rng, 4)) << 7 | rng_below(&rng, 128)));
  }
  return bits;
}

static real *random_reals(int64_t count, int64_t margin) {
  real *numbers = malloc((size_t)(count + margin) * sizeof *numbers);
  assert_non_null(numbers);
  for (int64_t i = 0; i < count; i++) numbers[i] = (real)rng_normal(&rng);
  for (int64_t i = count; i < count + margin; i++) numbers[i] = WATCH;
  return numbers;
}

static void check_close(double got, double want, double size, const char *what, int64_t m, int64_t n, int64_t k) {
  if (fabs(got - want) <= TIGHT * size) return;
  fail_msg("%s, %dx%dx%d: %.9g, expected %.9g", what, (int)m, (int)n, (int)k, got, want);
}

/* The matrix and the vectors end exactly where they should: a sanitizer sees one number too many. */
static void check_vectors(const Kernels *table, NarrowKind kind, int64_t rows, int64_t n, int64_t stride) {
  uint16_t *w = random_narrow(kind, (rows - 1) * stride + n);
  real *x = random_reals(n, 0), *y = random_reals(rows, 4), *z = random_reals(rows, 0), *s = random_reals(n, 4);
  const real y0 = y[rows - 1], s0 = s[n - 1];
  table->narrow_dots(kind, rows, n, w, stride, x, y);
  table->narrow_sums(kind, rows, n, w, stride, z, s);
  double dot = (double)y0, sum = (double)s0, dot_size = 1, sum_size = 1;
  for (int64_t i = 0; i < n; i++) {
    const double term = defined(kind, w[(rows - 1) * stride + i]) * (double)x[i];
    dot += term, dot_size += fabs(term);
  }
  for (int64_t r = 0; r < rows; r++) {
    const double term = defined(kind, w[r * stride + n - 1]) * (double)z[r];
    sum += term, sum_size += fabs(term);
  }
  check_close((double)y[rows - 1], dot, dot_size, table->name, 1, rows, n);
  check_close((double)s[n - 1], sum, sum_size, table->name, 1, n, rows);
  for (int i = 0; i < 4; i++) assert_true(y[rows + i] == WATCH && s[n + i] == WATCH);
  free(w), free(x), free(y), free(z), free(s);
}

static void vectors_of_any_length(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 3, 7, 8, 9, 15, 16, 17, 33, 64, 192, 1001};
  rng_init(&rng, 1, 0);
  for (int t = 0; t < 3; t++)
    for (int k = 0; k < 2 && kernels_named(table_names[t]); k++)
      for (int l = 0; l < 12; l++)
        for (int64_t rows = 1; rows <= 9; rows++)
          check_vectors(kernels_named(table_names[t]), kinds[k], rows, lengths[l], lengths[l] + 3 * (l % 2));
}

typedef struct Case {
  int64_t m, n, k;
  int pad;
} Case;

static void check_product(const Case *c, NarrowKind kind, bool transpose, bool add) {
  const int64_t lda = c->k + c->pad, ldb = (transpose ? c->k : c->n) + c->pad, ldc = c->n + c->pad, rows = transpose ? c->n : c->k;
  real *a = random_reals(c->m * lda, 0), *got = random_reals(c->m * ldc, 0), *scratch = random_reals(matmul_narrow_scratch(), 0);
  uint16_t *b = random_narrow(kind, rows * ldb);
  real *before = malloc((size_t)(c->m * ldc) * sizeof *before);
  double *wide = malloc((size_t)(rows * ldb) * sizeof *wide);
  assert_true(before && wide);
  for (int64_t i = 0; i < rows * ldb; i++) wide[i] = defined(kind, b[i]);
  for (int64_t i = 0; i < c->m * ldc; i++) { /* C must not be read unless it is added to */
    if (!add && i % ldc < c->n) got[i] = (real)NAN;
    before[i] = got[i];
  }
  matmul_narrow(transpose, c->m, c->n, c->k, a, lda, kind, b, ldb, add, got, ldc, scratch);
  for (int64_t i = 0; i < c->m; i++)
    for (int64_t j = 0; j < ldc; j++) {
      double sum = 0, size = 1;
      for (int64_t l = 0; l < c->k && j < c->n; l++) {
        const double term = (double)a[i * lda + l] * wide[transpose ? j * ldb + l : l * ldb + j];
        sum += term, size += fabs(term);
      }
      if (j >= c->n) assert_true(got[i * ldc + j] == before[i * ldc + j]); /* between the rows */
      if (j < c->n) check_close((double)got[i * ldc + j], sum + (add ? (double)before[i * ldc + j] : 0), size, "product", c->m, c->n, c->k);
    }
  free(a), free(got), free(scratch), free(b), free(before), free(wide);
}

static void products(void **state) {
  (void)state;
  static const Case cases[] = {{1, 1, 1, 0},   {1, 300, 129, 1},  {1, 900, 700, 0}, {2, 33, 65, 3},   {8, 17, 40, 1},
                               {9, 17, 40, 1}, {20, 300, 600, 2}, {100, 31, 64, 5}, {30, 530, 530, 0}};
  rng_init(&rng, 2, 0);
  for (int threads = 1; threads <= 2; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
      for (int flags = 0; flags < 8; flags++) check_product(&cases[c], kinds[flags & 1], flags & 2, flags & 4);
    threads_stop();
  }
}

/* Inside a body each thread uses its own part of the one scratch. */
typedef struct Nested {
  const real *a;
  const uint16_t *b;
  real *c, *scratch;
} Nested;

enum { ITEMS = 24, M = 10, N = 70, K = 50 };

static void nested_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Nested *work = context;
  for (int64_t i = begin; i < end; i++)
    matmul_narrow(true, M, N, K, work->a + i * M * K, K, NARROW_F16, work->b, K, false, work->c + i * M * N, N, work->scratch);
}

static void products_inside_of_bodies(void **state) {
  (void)state;
  rng_init(&rng, 3, 0);
  assert_int_equal(threads_start(2), STATUS_OK);
  Nested work = {random_reals(ITEMS * M * K, 0), random_narrow(NARROW_F16, N * K), random_reals(ITEMS * M * N, 0),
                 random_reals(matmul_narrow_scratch(), 0)};
  Nested alone = work;
  alone.c = random_reals(ITEMS * M * N, 0);
  matmul_reset_count();
  threads_for(ITEMS, 1, nested_body, &work);
  assert_true(matmul_counted().flops == 2.0 * ITEMS * M * N * K);
  nested_body(&alone, 0, ITEMS, 0);
  assert_memory_equal(work.c, alone.c, ITEMS * M * N * sizeof(real));
  threads_stop();
  free((void *)(uintptr_t)work.a), free((void *)(uintptr_t)work.b), free(work.c), free(work.scratch), free(alone.c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number_is_widened_exactly), cmocka_unit_test(numbers_are_narrowed_to_the_nearest),
      cmocka_unit_test(halves_are_the_nearest),          cmocka_unit_test(what_no_half_holds_is_told),
      cmocka_unit_test(vectors_of_any_length),           cmocka_unit_test(products),
      cmocka_unit_test(products_inside_of_bodies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
