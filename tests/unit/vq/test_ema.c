/* Moving averages of clusters against plain loops in double, smoothing, revival, limits of the decay, independence of the thread count. */
#include "base/threads.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/ema.h"

static const double TOLERANCE = REAL_IS_DOUBLE ? 1e-12 : 2e-5;

static int32_t *random_codes(int64_t rows, int64_t groups, int64_t entries) {
  int32_t *codes = malloc((size_t)(rows * groups) * sizeof *codes);
  Rng rng;
  rng_init(&rng, 9, 1);
  for (int64_t i = 0; i < rows * groups; i++) codes[i] = (int32_t)rng_below(&rng, (uint64_t)entries);
  return codes;
}

/* The equations of the header, one number at a time; n [K], m [K, d] of one group. */
static void expect_group(double *n, double *m, const real *x, const int32_t *codes, int64_t rows, const Codebook *book, int64_t g,
                         const EmaOptions *options, double *e) {
  int64_t d = book->width / book->groups, entries = book->entries;
  double total = 0;
  for (int64_t k = 0; k < entries; k++) {
    double count = 0;
    for (int64_t r = 0; r < rows; r++) count += codes[r * book->groups + g] == k;
    n[k] = options->decay * n[k] + (1 - options->decay) * count;
    total += n[k];
    for (int64_t j = 0; j < d; j++) {
      double sum = 0;
      for (int64_t r = 0; r < rows; r++) sum += codes[r * book->groups + g] == k ? (double)x[r * book->width + g * d + j] : 0;
      m[k * d + j] = options->decay * m[k * d + j] + (1 - options->decay) * sum;
    }
  }
  for (int64_t k = 0; k < entries; k++) {
    double smooth = (n[k] + options->smoothing) / (total + (double)entries * options->smoothing) * total;
    for (int64_t j = 0; j < d; j++) e[k * d + j] = m[k * d + j] / smooth;
  }
}

static void equations(void **state) {
  (void)state;
  enum { G = 3, K = 10, W = 9, D = W / G, ROWS = 70, STEPS = 4 };
  Codebook book;
  CodebookEma ema;
  real *words = points_normal(K * W, 1);
  assert_int_equal(codebook_init(&book, G, K, W, words), STATUS_OK);
  assert_int_equal(ema_init(&ema, &book, 5), STATUS_OK);
  double n[G * K], m[G * K * D], e[G * K * D];
  for (int i = 0; i < G * K; i++) n[i] = 5;
  for (int i = 0; i < G * K * D; i++) m[i] = 5 * (double)words[i];
  const EmaOptions options = {0.9, 0.01, 0};
  int32_t *codes = random_codes(ROWS, G, K - 1); /* the last one gets no samples */
  for (int step = 0; step < STEPS; step++) {
    real *x = points_normal(ROWS * W, 20 + (uint64_t)step);
    assert_int_equal(ema_update(&ema, &book, x, codes, ROWS, &options, NULL), 0);
    for (int64_t g = 0; g < G; g++) expect_group(n + g * K, m + g * K * D, x, codes, ROWS, &book, g, &options, e + g * K * D);
    for (int i = 0; i < G * K; i++) CHECK_NEAR(ema.sizes[i], n[i], TOLERANCE * 10);
    for (int i = 0; i < G * K * D; i++) CHECK_NEAR(ema.sums[i], m[i], TOLERANCE * 10);
    for (int i = 0; i < G * K * D; i++) CHECK_NEAR(book.codewords[i], e[i], TOLERANCE);
    for (int i = 0; i < G * K; i++) {
      double norm = 0;
      for (int j = 0; j < D; j++) norm += e[i * D + j] * e[i * D + j];
      CHECK_NEAR(book.half_norms[i], norm / 2, TOLERANCE * 4);
    }
    free(x);
  }
  free(codes);
  ema_release(&ema);
  codebook_release(&book);
  free(words);
}

/* Smoothing moves sizes towards each other and keeps their sum: sum of n~ is sum of n. With s -> 0, e is m / n. */
static void smoothing(void **state) {
  (void)state;
  enum { K = 6, ROWS = 60 };
  Codebook book;
  CodebookEma ema;
  real *words = points_normal(K, 2), *x = points_normal(ROWS, 3);
  assert_int_equal(codebook_init(&book, 1, K, 1, words), STATUS_OK);
  int32_t *codes = random_codes(ROWS, 1, K);
  assert_int_equal(ema_init(&ema, &book, 3), STATUS_OK);
  EmaOptions options = {0.5, 2.0, 0};
  ema_update(&ema, &book, x, codes, ROWS, &options, NULL);
  double smoothed = 0, sizes = 0;
  for (int k = 0; k < K; k++) {
    double size = (double)ema.sums[k] / (double)book.codewords[k];
    smoothed += size;
    sizes += (double)ema.sizes[k];
    double mean = ema.totals[0] / K, raw = (double)ema.sizes[k];
    assert_true(fabs(size - mean) < fabs(raw - mean));
  }
  CHECK_NEAR(smoothed, sizes, sizes * TOLERANCE);
  options.smoothing = 0;
  ema_update(&ema, &book, x, codes, ROWS, &options, NULL);
  for (int k = 0; k < K; k++) CHECK_NEAR(book.codewords[k], (double)ema.sums[k] / (double)ema.sizes[k], TOLERANCE);
  free(codes);
  ema_release(&ema);
  codebook_release(&book);
  free(words);
  free(x);
}

/* With decay 0 the codewords are the means of the batch: one Lloyd step. Empty ones stay, and nothing becomes NaN. */
static void no_memory_of_the_past(void **state) {
  (void)state;
  const real x[8] = {1, 1, 3, 5, -2, 0, -4, 2}; /* [4, 2] */
  const int32_t codes[4] = {0, 0, 2, 2};
  real words[6] = {9, 9, 7, 8, 9, 9};
  const real wanted[6] = {2, 3, 7, 8, -3, 1};
  Codebook book;
  CodebookEma ema;
  assert_int_equal(codebook_init(&book, 1, 3, 2, words), STATUS_OK);
  assert_int_equal(ema_init(&ema, &book, 1), STATUS_OK);
  const EmaOptions options = {0, 0, 0};
  ema_update(&ema, &book, x, codes, 4, &options, NULL);
  for (int i = 0; i < 6; i++) CHECK_NEAR(words[i], wanted[i], 1e-6);
  ema_release(&ema);
  codebook_release(&book);
}

/* Revival sets e, n and m together: e is one of the samples, n the batch's mean size, m = e n; the living are left alone. */
static void revival(void **state) {
  (void)state;
  enum { G = 2, K = 8, W = 4, D = 2, ROWS = 48 };
  Codebook book;
  CodebookEma ema;
  real *words = points_normal(K * W, 5), *x = points_normal(ROWS * W, 6);
  assert_int_equal(codebook_init(&book, G, K, W, words), STATUS_OK);
  assert_int_equal(ema_init(&ema, &book, 6), STATUS_OK);
  int32_t *codes = random_codes(ROWS, G, K - 2); /* 6 and 7 of both groups fade */
  const EmaOptions options = {0.5, 1e-5, 0.2};   /* dead below 1.2 */
  Rng rng;
  rng_init(&rng, 1, 1);
  assert_int_equal(ema_update(&ema, &book, x, codes, ROWS, &options, &rng), 0); /* 3 */
  assert_int_equal(ema_update(&ema, &book, x, codes, ROWS, &options, &rng), 0); /* 1.5 */
  assert_int_equal(ema_update(&ema, &book, x, codes, ROWS, &options, &rng), 4); /* 0.75 */
  for (int64_t g = 0; g < G; g++)
    for (int64_t k = 6; k < K; k++) {
      const real *e = words + (g * K + k) * D, *m = ema.sums + (g * K + k) * D;
      CHECK_NEAR(ema.sizes[g * K + k], 6, 0);
      int found = 0;
      for (int64_t r = 0; r < ROWS; r++) found += memcmp(e, x + r * W + g * D, sizeof(real) * D) == 0;
      assert_int_equal(found, 1);
      for (int j = 0; j < D; j++) CHECK_NEAR(m[j], 6 * (double)e[j], TOLERANCE);
      CHECK_NEAR(book.half_norms[g * K + k], ((double)e[0] * (double)e[0] + (double)e[1] * (double)e[1]) / 2, TOLERANCE);
    }
  assert_int_equal(ema_update(&ema, &book, x, codes, ROWS, &options, &rng), 0);
  for (int i = 0; i < K * W; i++) assert_true(isfinite(words[i]));
  free(codes);
  ema_release(&ema);
  codebook_release(&book);
  free(words);
  free(x);
}

/* A cluster without samples for 20,000 steps: no NaN, no denormal numbers left behind. */
static void fading_away(void **state) {
  (void)state;
  real words[4] = {1, 2, 3, 4};
  const real x[2] = {1, 2};
  const int32_t code = 0;
  Codebook book;
  CodebookEma ema;
  assert_int_equal(codebook_init(&book, 1, 2, 2, words), STATUS_OK);
  assert_int_equal(ema_init(&ema, &book, 1), STATUS_OK);
  const EmaOptions options = {0.99, 1e-5, 0};
  for (int step = 0; step < 20000; step++) ema_update(&ema, &book, x, &code, 1, &options, NULL);
  for (int j = 0; j < 4; j++) assert_true(isfinite(words[j]));
  assert_true(ema.sizes[1] == 0 && ema.sums[2] == 0 && ema.sums[3] == 0);
  CHECK_NEAR(words[0], 1, 1e-4);
  CHECK_NEAR(words[1], 2, 1e-4);
  ema_release(&ema);
  codebook_release(&book);
}

static void same_for_any_thread_count(void **state) {
  (void)state;
  enum { G = 2, K = 40, W = 300, ROWS = 333 };
  real *x = points_normal(ROWS * W, 7), *start = points_normal(K * W, 8), *first = malloc(K * W * sizeof *first);
  int32_t *codes = random_codes(ROWS, G, K);
  const EmaOptions options = {0.9, 1e-5, 0.95};
  int64_t first_revived = 0;
  for (int threads = 1; threads <= 4; threads++) {
    Codebook book;
    CodebookEma ema;
    Rng rng;
    rng_init(&rng, 1, 1);
    assert_int_equal(threads_start(threads), STATUS_OK);
    assert_int_equal(codebook_init(&book, G, K, W, NULL), STATUS_OK);
    memcpy(book.codewords, start, K * W * sizeof *start);
    assert_int_equal(ema_init(&ema, &book, (double)ROWS / K), STATUS_OK);
    int64_t revived = 0;
    for (int step = 0; step < 3; step++) revived += ema_update(&ema, &book, x, codes, ROWS, &options, &rng);
    if (threads == 1) {
      memcpy(first, book.codewords, K * W * sizeof *first);
      first_revived = revived;
      assert_true(revived > 0);
    }
    assert_int_equal(revived, first_revived);
    assert_memory_equal(book.codewords, first, K * W * sizeof *first);
    ema_release(&ema);
    codebook_release(&book);
    threads_stop();
  }
  free(codes);
  free(first);
  free(start);
  free(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equations), cmocka_unit_test(smoothing),   cmocka_unit_test(no_memory_of_the_past),
      cmocka_unit_test(revival),   cmocka_unit_test(fading_away), cmocka_unit_test(same_for_any_thread_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
