/* Products of bf16 matrices, through each library that is there, against sums in double: one rounding of the result, nothing else; and that
 * a signal in the middle of one changes nothing. */
#include "autograd/kernels/matmul.h"
#include "base/rng.h"
#include "base/threads.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/autograd/signal_flood.h"

typedef struct Shape {
  int64_t m, n, k;
} Shape;
static const Shape shapes[] = {{1, 1, 1}, {1, 70, 33}, {17, 80, 48}, {64, 64, 64}, {33, 257, 130}, {300, 40, 600}, {5, 300, 520}};

static uint16_t *random_numbers(int64_t count, Rng *rng) {
  uint16_t *numbers = malloc((size_t)count * sizeof *numbers);
  assert_non_null(numbers);
  for (int64_t i = 0; i < count; i++) numbers[i] = narrow_bfloat((float)rng_normal(rng));
  return numbers;
}

static double number(uint16_t bits) { return (double)narrow_bfloat_to_float(bits); }

typedef struct Case {
  Shape shape;
  bool transpose_a, transpose_b, add, bias, narrow, single;
} Case;

typedef struct Call {
  const Case *product;
  const uint16_t *a, *b;
  const real *bias;
  Numbers to;
  int64_t lda, ldb, ldc;
} Call;

static void multiply(void *context, int64_t begin, int64_t end, int thread) {
  const Call *call = context;
  const Case *c = call->product;
  (void)begin, (void)end, (void)thread;
  matmul_bf16(c->transpose_a, c->transpose_b, c->shape.m, c->shape.n, c->shape.k, call->a, call->lda, call->b, call->ldb, call->bias,
              c->add, call->to, call->ldc);
}

static void check(const Case *c) {
  const int64_t m = c->shape.m, n = c->shape.n, k = c->shape.k, lda = (c->transpose_a ? m : k) + 3, ldb = (c->transpose_b ? k : n) + 1;
  const int64_t ldc = n + 2;
  Rng rng;
  rng_init(&rng, 7, 1);
  uint16_t *a = random_numbers((c->transpose_a ? k : m) * lda, &rng), *b = random_numbers((c->transpose_b ? n : k) * ldb, &rng);
  uint16_t *narrow = random_numbers(m * ldc, &rng), *before = malloc((size_t)(m * ldc) * sizeof *before);
  real *wide = malloc((size_t)(m * ldc) * sizeof *wide), *bias = malloc((size_t)n * sizeof *bias);
  double *columns = malloc((size_t)(k * n) * sizeof *columns), *sums = malloc((size_t)n * sizeof *sums),
         *sizes = malloc((size_t)n * sizeof *sizes);
  assert_true(before && wide && bias && columns && sums && sizes);
  for (int64_t x = 0; x < k; x++)
    for (int64_t j = 0; j < n; j++) columns[x * n + j] = number(b[c->transpose_b ? j * ldb + x : x * ldb + j]);
  memcpy(before, narrow, (size_t)(m * ldc) * sizeof *before);
  for (int64_t i = 0; i < m * ldc; i++) wide[i] = (real)number(narrow[i]);
  for (int64_t i = 0; i < n; i++) bias[i] = (real)rng_normal(&rng);
  const Numbers to = c->narrow ? (Numbers){.narrow = narrow} : (Numbers){.wide = wide};
  Call call = {c, a, b, c->bias ? bias : NULL, to, lda, ldb, ldc};
  if (c->single)
    threads_for(1, 1, multiply, &call); /* inside a body: on one thread */
  else
    multiply(&call, 0, 1, 0);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) sums[j] = c->bias ? (double)bias[j] : 0, sizes[j] = fabs(sums[j]);
    for (int64_t x = 0; x < k; x++) {
      const double left = number(a[c->transpose_a ? x * lda + i : i * lda + x]), *row = columns + x * n;
      for (int64_t j = 0; j < n; j++) sums[j] += left * row[j], sizes[j] += fabs(left * row[j]);
    }
    for (int64_t j = 0; j < ldc; j++) {
      const double old = number(before[i * ldc + j]);
      const double found = c->narrow ? number(narrow[i * ldc + j]) : (double)wide[i * ldc + j];
      if (j >= n) {
        assert_true(found == old); /* what lies between the rows stays */
        continue;
      }
      const double sum = sums[j] + (c->add ? old : 0), size = sizes[j] + (c->add ? fabs(old) : 0);
      const double allowed = size * 1e-6 + (c->narrow ? fabs(sum) / 256 : 0);
      if (!(fabs(found - sum) <= allowed))
        fail_msg("[%lld, %lld, %lld] at %lld, %lld: %g instead of %g", (long long)m, (long long)n, (long long)k, (long long)i, (long long)j,
                 found, sum);
    }
  }
  free(a), free(b), free(narrow), free(before), free(wide), free(bias), free(columns), free(sums), free(sizes);
}

static void check_all(void) {
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int bits = 0; bits < 64; bits++)
      check(&(Case){shapes[s], bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, bits >> 4 & 1, bits >> 5 & 1});
}

static void openblas_multiplies(void **state) {
  (void)state;
  assert_int_equal(matmul_choose_backend("openblas"), STATUS_OK);
  assert_string_equal(matmul_backend().name, "openblas");
  assert_false(matmul_backend().bf16);
  check_all();
}

static void onednn_multiplies(void **state) {
  (void)state;
  if (matmul_choose_backend("onednn") != STATUS_OK) {
    printf("skipped: %s\n", status_message());
    skip();
  }
  check_all();
}

typedef struct Repeated {
  Shape shape;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldc;
  uint16_t *a, *b;
  real *c;
} Repeated;

static void repeat(void *context) {
  const Repeated *r = context;
  matmul_bf16(r->transpose_a, r->transpose_b, r->shape.m, r->shape.n, r->shape.k, r->a, r->lda, r->b, r->ldb, NULL, false,
              (Numbers){.wide = r->c}, r->ldc);
}

static void signals_change_nothing(void **state) {
  (void)state;
  static const Shape interrupted[] = {{16, 48, 1700}, {64, 48, 100}, {128, 200, 197}};
  enum { PAD = 32 };
  Rng rng;
  rng_init(&rng, 8, 1);
  assert_int_equal(matmul_choose_backend("auto"), STATUS_OK);
  for (size_t i = 0; i < sizeof interrupted / sizeof *interrupted; i++)
    for (int transposes = 0; transposes < 4; transposes++) {
      const Shape s = interrupted[i];
      Repeated r = {.shape = s, .transpose_a = transposes & 1, .transpose_b = transposes & 2, .ldc = s.n + PAD};
      r.lda = (r.transpose_a ? s.m : s.k) + PAD, r.ldb = (r.transpose_b ? s.k : s.n) + PAD;
      r.a = random_numbers((r.transpose_a ? s.k : s.m) * r.lda, &rng), r.b = random_numbers((r.transpose_b ? s.n : s.k) * r.ldb, &rng);
      const size_t bytes = (size_t)(s.m * r.ldc) * sizeof *r.c;
      real *want = malloc(bytes);
      r.c = calloc(1, bytes);
      assert_true(want && r.c);
      repeat(&r);
      memcpy(want, r.c, bytes);
      flood(repeat, &r, r.c, want, bytes);
      free(r.a), free(r.b), free(r.c), free(want);
    }
}

static void threads_share_the_work(void **state) {
  (void)state;
  assert_int_equal(threads_start(3), STATUS_OK);
  assert_int_equal(matmul_choose_backend("auto"), STATUS_OK);
  check(&(Case){.shape = {300, 200, 100}, .bias = true, .narrow = true});
  check(&(Case){.shape = {100, 300, 200}, .bias = true, .transpose_b = true});
  threads_stop();
}

static void other_names_are_refused(void **state) {
  (void)state;
  assert_int_equal(matmul_choose_backend("mkl"), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "auto, openblas, onednn and onednn-int8"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(openblas_multiplies), cmocka_unit_test(onednn_multiplies),
                                     cmocka_unit_test(threads_share_the_work), cmocka_unit_test(signals_change_nothing),
                                     cmocka_unit_test(other_names_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
