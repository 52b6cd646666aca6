/* Distances of Gaussians whose distance is known, and the moments of a point set that can be worked out by hand. */
#include "autograd/kernels/matmul.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/basis.c" /* the distance of Gaussians by itself */
#include "vq/kmeans.h"

/* C = Q D Q^T with Q a product of reflections: [n, n]. */
static void turned(int64_t n, const double *diagonal, uint64_t stream, double *c) {
  real *v = points_normal(3 * n, stream);
  for (int64_t i = 0; i < n * n; i++) c[i] = i / n == i % n ? diagonal[i / n] : 0;
  for (int r = 0; r < 3; r++) { /* C <- H C H */
    const real *u = v + r * n;
    double square = 0, *p = malloc((size_t)n * sizeof *p), dot = 0;
    for (int64_t i = 0; i < n; i++) square += (double)u[i] * (double)u[i];
    for (int64_t i = 0; i < n; i++) {
      p[i] = 0;
      for (int64_t j = 0; j < n; j++) p[i] += 2 / square * c[i * n + j] * (double)u[j];
    }
    for (int64_t i = 0; i < n; i++) dot += p[i] * (double)u[i];
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++)
        c[i * n + j] += 2 * dot / square * (double)u[i] * (double)u[j] - p[i] * (double)u[j] - (double)u[i] * p[j];
    free(p);
  }
  free(v);
}

static int ascending(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

static void eigenvalues(void **state) {
  (void)state;
  enum { N = 40 };
  double c[N * N], want[N], values[N];
  for (int64_t n = 1; n <= N; n += n < 4 ? 1 : 9) {
    for (int64_t i = 0; i < n; i++) want[i] = i % 3 == 0 ? 0 : (double)i / 4 - 1;
    turned(n, want, 3, c);
    assert_int_equal(eigen_symmetric(n, c, values), STATUS_OK);
    qsort(want, (size_t)n, sizeof *want, ascending);
    for (int64_t i = 0; i < n; i++) CHECK_NEAR(values[i], want[i], 1e-12 * (double)N);
  }
  c[0] = c[1] = c[2] = c[3] = NAN;
  assert_int_equal(eigen_symmetric(2, c, values), STATUS_NUMERIC);
  assert_int_equal(eigen_symmetric(32767, c, values), STATUS_UNSUPPORTED); /* before it reads a number */
  assert_non_null(strstr(status_message(), "a matrix of 32767 columns: at most 32766"));
}

/* The same axes with the negative values gone, on top of what is there. */
static void positive_parts(void **state) {
  (void)state;
  enum { N = 21 };
  double values[N], kept[N], c[N * N], want[N * N], sum[N * N];
  for (int i = 0; i < N; i++) values[i] = i % 3 == 0 ? 0 : (double)i / 4 - 2, kept[i] = fmax(values[i], 0);
  turned(N, values, 5, c), turned(N, kept, 5, want);
  for (int i = 0; i < N * N; i++) sum[i] = i;
  assert_int_equal(eigen_add_positive_part(N, c, sum), STATUS_OK);
  for (int i = 0; i < N * N; i++) CHECK_NEAR(sum[i] - i, want[i], 1e-12 * N * N);
  c[3] = INFINITY, sum[0] = 7;
  assert_int_equal(eigen_add_positive_part(N, c, sum), STATUS_NUMERIC);
  assert_true(sum[0] == 7);
}

/* Covariances with the same axes: the sum of (s1 - s2)^2. Some axes have no variance. */
static void same_axes(void **state) {
  (void)state;
  enum { N = 30 };
  double one[N], two[N], c1[N * N], c2[N * N], mean1[N], mean2[N], want = 0, squared = 0;
  for (int i = 0; i < N; i++) {
    one[i] = i % 4 == 1 ? 0 : 0.1 + i, two[i] = i % 5 == 2 ? 0 : 3 - 0.05 * i;
    mean1[i] = 0.1 * i, mean2[i] = 1;
    want += pow(mean1[i] - mean2[i], 2) + pow(sqrt(one[i]) - sqrt(two[i]), 2);
  }
  turned(N, one, 4, c1), turned(N, two, 4, c2);
  assert_int_equal(gaussian_distance(N, mean1, c1, mean2, c2, &squared), STATUS_OK);
  CHECK_NEAR(squared, want, 1e-5 * want); /* roots of eigenvalues that are 0 but for rounding */
}

/* Other axes: of two by two the trace of the root is sqrt(tr M + 2 sqrt(det M)), M = C1 C2. */
static void other_axes(void **state) {
  (void)state;
  const double c1[] = {4, 1, 1, 2}, c2[] = {1, -0.5, -0.5, 3}, mean[] = {0, 0};
  double trace = 4 * 1 + 2 * 1 * -0.5 + 2 * 3, determinant = 7 * 2.75, squared = 0;
  assert_int_equal(gaussian_distance(2, mean, c1, mean, c2, &squared), STATUS_OK);
  CHECK_NEAR(squared, 6 + 4 - 2 * sqrt(trace + 2 * sqrt(determinant)), 1e-12);
}

/* X = (a, a), a = -3, -1, 1, 3; a group for each number, codewords the means of their cells: -2 and 2 in the first, -3 and 1 in the second.
 * Cov(X^, R) = [0, 2; 1, 0], Cov(R) = [1, 0; 0, 2], Cov(X^) = [4, 2; 2, 3]. Cov(X) = [5, 5; 5, 5] has rank 1: the trace of the root of
 * Cov(X)^1/2 C Cov(X)^1/2 is sqrt(5 (1, 1) C (1, 1)^T). Cov(X) - Cov(X^) = [1, 3; 3, 2] has one eigenvalue l above 0, of (3, l - 1). */
static void two_groups_by_hand(void **state) {
  (void)state;
  const real x[] = {-3, -3, -1, -1, 1, 1, 3, 3};
  Codebook book;
  ResidualMoments moments;
  int32_t codes[8];
  assert_int_equal(codebook_init(&book, 2, 2, 2, NULL), STATUS_OK);
  memcpy(book.codewords, (const real[]){-2, 2, -3, 1}, 4 * sizeof(real));
  codebook_refresh(&book);
  memcpy(codes, (const int32_t[]){0, 0, 0, 1, 1, 1, 1, 1}, sizeof codes);
  assert_int_equal(residual_moments(&book, x, NULL, codes, 4, &moments), STATUS_OK);
  CHECK_NEAR(moments.dependence, 1, 1e-6);
  CHECK_NEAR(moments.quantised, 10 + 7 - 2 * sqrt(55), 1e-5);
  CHECK_NEAR(moments.noisy, 10 + 10 - 2 * sqrt(70), 1e-5); /* farther than without noise */
  CHECK_NEAR(moments.full, 10 + 10 - 2 * sqrt(70), 1e-5);
  const double l = (3 + sqrt(37)) / 2, along = pow(3 + l - 1, 2) / (9 + pow(l - 1, 2));
  CHECK_NEAR(moments.restored, 10 + 7 + l - 2 * sqrt(5 * (11 + l * along)), 1e-5);
  codebook_release(&book);
}

/* What is known beforehand goes with the residual: x = -3, -1, 1, 3 with codewords -2 and 2 and known = -1, 1, -1, 1 = R. X = -4, 0, 0, 4
 * of variance 8, X^ = -3, -1, 1, 3 of variance 5, R of variance 1, Cov(X^, R) = 1: without what is known X has variance 5, X^ 4, and noise
 * restores X, but here variance 6 is 2 short of 8. */
static void what_is_known_counts(void **state) {
  (void)state;
  const real x[] = {-3, -1, 1, 3}, known[] = {-1, 1, -1, 1};
  const int32_t codes[] = {0, 0, 1, 1};
  Codebook book;
  ResidualMoments moments;
  assert_int_equal(codebook_init(&book, 1, 2, 1, NULL), STATUS_OK);
  memcpy(book.codewords, (const real[]){-2, 2}, 2 * sizeof(real));
  codebook_refresh(&book);
  assert_int_equal(residual_moments(&book, x, NULL, codes, 4, &moments), STATUS_OK);
  CHECK_NEAR(moments.dependence, 0, 1e-6);
  CHECK_NEAR(moments.quantised, pow(sqrt(5) - 2, 2), 1e-6);
  CHECK_NEAR(moments.noisy, 0, 1e-6);
  assert_int_equal(residual_moments(&book, x, known, codes, 4, &moments), STATUS_OK);
  CHECK_NEAR(moments.dependence, 1, 1e-6);
  CHECK_NEAR(moments.quantised, pow(sqrt(8) - sqrt(5), 2), 1e-6);
  CHECK_NEAR(moments.noisy, pow(sqrt(8) - sqrt(6), 2), 1e-6);
  CHECK_NEAR(moments.restored, 0, 1e-6);
  codebook_release(&book);
}

/* Where the claim after theorem 1 holds, and where not: K-means to the end on samples whose columns go together. */
static void one_group_and_many(void **state) {
  (void)state;
  enum { W = 8, ROWS = 4000 };
  real *x = points_normal(ROWS * W, 21);
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t j = 1; j < W; j++) x[r * W + j] = x[r * W] + (real)0.3 * x[r * W + j];
  for (int64_t groups = 1; groups <= W; groups *= W) {
    Codebook book;
    KmeansOptions options;
    KmeansResult result;
    ResidualMoments moments;
    assert_int_equal(codebook_init(&book, groups, 16, W, NULL), STATUS_OK);
    kmeans_defaults(&options);
    options.iterations = 1000;
    assert_int_equal(kmeans_fit(&book, x, ROWS, &options, &result), STATUS_OK);
    int32_t *codes = malloc((size_t)(ROWS * groups) * sizeof *codes);
    void *scratch = malloc(codebook_assign_scratch(&book, ROWS));
    codebook_assign(&book, x, ROWS, codes, NULL, scratch);
    assert_int_equal(residual_moments(&book, x, NULL, codes, ROWS, &moments), STATUS_OK);
    if (groups == 1) {
      assert_true(moments.dependence < 1e-3);
      assert_true(moments.noisy < 1e-3 * moments.quantised);
    } else {
      assert_true(moments.dependence > 0.1);
      assert_true(moments.noisy > 0.01 * moments.quantised);
      assert_true(moments.full < moments.noisy);
      assert_true(moments.restored < moments.full);
    }
    free(codes), free(scratch);
    codebook_release(&book);
  }
  free(x);
}

int main(void) {
  matmul_start();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eigenvalues),       cmocka_unit_test(positive_parts),       cmocka_unit_test(same_axes),
      cmocka_unit_test(other_axes),        cmocka_unit_test(what_is_known_counts), cmocka_unit_test(two_groups_by_hand),
      cmocka_unit_test(one_group_and_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
