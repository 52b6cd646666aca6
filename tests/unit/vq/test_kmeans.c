/* K-means on made-up points: every option, every edge of K against the samples, repair, restarts, and independence of the thread count. */
#include "base/threads.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/kmeans.h"
#include "vq/kmeans_split.h"
#include "vq/kmeans_step.h"

static double plain_distortion(const Codebook *book, const real *x, int64_t rows) {
  int64_t d = book->width / book->groups;
  double sum = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t g = 0; g < book->groups; g++) {
      double min = INFINITY;
      for (int64_t k = 0; k < book->entries; k++) {
        double distance = 0;
        for (int64_t j = 0; j < d; j++) {
          double difference = (double)x[r * book->width + g * d + j] - (double)book->codewords[(g * book->entries + k) * d + j];
          distance += difference * difference;
        }
        min = fmin(min, distance);
      }
      sum += min;
    }
  return sum;
}

/* Fits, checks that the codewords are finite and that the distortion is what the codebook gives, and returns it. */
static double fit(Codebook *book, const real *x, int64_t rows, const KmeansOptions *options, KmeansResult *result) {
  assert_int_equal(kmeans_fit(book, x, rows, options, result), STATUS_OK);
  for (int64_t i = 0; i < book->entries * book->width; i++) assert_true(isfinite(book->codewords[i]));
  double plain = plain_distortion(book, x, rows);
  CHECK_NEAR(result->distortion, plain, (REAL_IS_DOUBLE ? 1e-10 : 1e-5) * plain + 1e-9);
  return result->distortion;
}

static void finds_the_clusters(void **state) {
  (void)state;
  enum { W = 12, CENTRES = 9, ROWS = 1800 };
  real *x = points_clustered(ROWS, W, CENTRES, 1);
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, CENTRES, W, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.restarts = 5;
  double expected = 0.01 * W * (ROWS - CENTRES);
  CHECK_NEAR(fit(&book, x, ROWS, &options, &result), expected, 0.05 * expected);
  options.start = KMEANS_RANDOM;
  options.restarts = 40;
  CHECK_NEAR(fit(&book, x, ROWS, &options, &result), expected, 0.05 * expected);
  codebook_release(&book);
  free(x);
}

typedef struct Trace {
  int restarts, calls;
  double last;
  bool rose;
} Trace;

static void trace(void *context, int restart, int iteration, double distortion) {
  Trace *t = context;
  if (iteration > 0 && distortion > t->last * (1 + (REAL_IS_DOUBLE ? 1e-12 : 1e-6))) t->rose = true;
  t->last = distortion;
  t->restarts = restart + 1;
  t->calls++;
}

static void never_rises_and_stops_early(void **state) {
  (void)state;
  enum { W = 8, ROWS = 3000 };
  real *x = points_normal(ROWS * W, 4);
  Codebook book;
  assert_int_equal(codebook_init(&book, 4, 50, W, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  Trace full = {0}, early = {0};
  kmeans_defaults(&options);
  options.report = trace;
  options.context = &full;
  options.tolerance = 0;
  options.iterations = 40;
  double lowest = fit(&book, x, ROWS, &options, &result);
  assert_false(full.rose);
  CHECK_NEAR(full.last, lowest, 1e-6 * lowest);
  options.context = &early;
  options.tolerance = 0.05;
  options.restarts = 2;
  fit(&book, x, ROWS, &options, &result);
  assert_int_equal(early.restarts, 2);
  assert_true(result.iterations < 15);
  codebook_release(&book);
  free(x);
}

/* With the default tolerance it ends where another iteration gains nothing, or when its iterations are used up, and says which. */
static void runs_until_nothing_moves_or_iterations_end(void **state) {
  (void)state;
  enum { W = 8, ROWS = 3000, SHORT = 12 };
  real *x = points_normal(ROWS * W, 12);
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, 50, W, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.iterations = SHORT;
  double stopped = fit(&book, x, ROWS, &options, &result);
  assert_int_equal(result.iterations, SHORT);
  assert_false(result.converged);
  options.iterations = 1000;
  double converged = fit(&book, x, ROWS, &options, &result);
  assert_true(result.converged);
  assert_true(result.iterations > 2 * SHORT && result.iterations < 1000);
  assert_true(converged < stopped);
  options.tolerance = 0.01;
  fit(&book, x, ROWS, &options, &result);
  assert_true(result.converged && result.iterations < SHORT);
  codebook_release(&book);
  free(x);
}

/* Clusters as many as centres: each is found more often when the best of several candidates is taken. */
static void greedy_starts_end_lower(void **state) {
  (void)state;
  enum { W = 4, CENTRES = 64, ROWS = 3200, SEEDS = 8 };
  real *x = points_clustered(ROWS, W, CENTRES, 14);
  double sum[2] = {0, 0};
  for (int seed = 0; seed < SEEDS; seed++)
    for (int start = KMEANS_GREEDY; start <= KMEANS_PLUS_PLUS; start++) {
      Codebook book;
      assert_int_equal(codebook_init(&book, 1, CENTRES, W, NULL), STATUS_OK);
      KmeansOptions options;
      KmeansResult result;
      kmeans_defaults(&options);
      options.start = (KmeansStart)start;
      options.seed = (uint64_t)seed;
      sum[start] += fit(&book, x, ROWS, &options, &result) / SEEDS;
      codebook_release(&book);
    }
  assert_true(sum[KMEANS_GREEDY] < 0.9 * sum[KMEANS_PLUS_PLUS]);
  free(x);
}

/* The first restarts are the same whatever their number, and each group keeps its own best. */
static void more_restarts_are_never_worse(void **state) {
  (void)state;
  enum { W = 6, ROWS = 600 };
  real *x = points_clustered(ROWS, W, 30, 6);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.start = KMEANS_RANDOM;
  double before = INFINITY;
  for (options.restarts = 1; options.restarts <= 8; options.restarts *= 2) {
    Codebook book;
    assert_int_equal(codebook_init(&book, 3, 20, W, NULL), STATUS_OK);
    double now = fit(&book, x, ROWS, &options, &result);
    assert_true(now <= before);
    before = now;
    codebook_release(&book);
  }
  free(x);
}

static void as_many_codewords_as_samples(void **state) {
  (void)state;
  enum { W = 6, ROWS = 300 };
  real *x = points_normal(ROWS * W, 8);
  for (int start = KMEANS_GREEDY; start <= KMEANS_SPLIT; start++) {
    Codebook book;
    assert_int_equal(codebook_init(&book, 2, ROWS, W, NULL), STATUS_OK);
    KmeansOptions options;
    KmeansResult result;
    kmeans_defaults(&options);
    options.start = (KmeansStart)start;
    CHECK_NEAR(fit(&book, x, ROWS, &options, &result), 0, 1e-12);
    codebook_release(&book);
  }
  free(x);
}

/* 7 distinct points, 40 codewords, 200 samples: no NaN, nothing left over, no endless repair. */
static void fewer_distinct_points_than_codewords(void **state) {
  (void)state;
  enum { W = 3, ROWS = 200, DISTINCT = 7 };
  real *points = points_normal(DISTINCT * W, 9), x[ROWS * W];
  for (int r = 0; r < ROWS; r++) memcpy(x + r * W, points + r % DISTINCT * W, W * sizeof(real));
  for (int start = KMEANS_GREEDY; start <= KMEANS_SPLIT; start++)
    for (int64_t minibatch = 0; minibatch <= 50; minibatch += 50) {
      Codebook book;
      assert_int_equal(codebook_init(&book, 1, 40, W, NULL), STATUS_OK);
      KmeansOptions options;
      KmeansResult result;
      kmeans_defaults(&options);
      options.start = (KmeansStart)start;
      options.minibatch = minibatch;
      CHECK_NEAR(fit(&book, x, ROWS, &options, &result), 0, 1e-9);
      codebook_release(&book);
    }
  free(points);
}

static void all_samples_alike(void **state) {
  (void)state;
  real x[60];
  for (int i = 0; i < 60; i++) x[i] = (real)0.1;
  Codebook book;
  assert_int_equal(codebook_init(&book, 3, 4, 3, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  CHECK_NEAR(fit(&book, x, 20, &options, &result), 0, 1e-12);
  codebook_release(&book);
}

static void two_codewords(void **state) {
  (void)state;
  const real x[6] = {0, 1, 2, 10, 11, 15};
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, 2, 1, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  CHECK_NEAR(fit(&book, x, 6, &options, &result), 2 + 14, 1e-5);
  CHECK_NEAR(fmin((double)book.codewords[0], (double)book.codewords[1]), 1, 1e-6);
  CHECK_NEAR(fmax((double)book.codewords[0], (double)book.codewords[1]), 12, 1e-5);
  codebook_release(&book);
}

/* Three codewords, all samples at the first: the two empty ones go to the two farthest samples, which leave the first's mean. */
static void repair_takes_the_farthest(void **state) {
  (void)state;
  real words[3] = {0, 500, 600};
  const real x[6] = {1, -1, 3, 9, -7, 0};
  int32_t codes[6] = {0, 0, 0, 0, 0, 0};
  Codebook book;
  KmeansStep step;
  assert_int_equal(codebook_init(&book, 1, 3, 1, words), STATUS_OK);
  assert_int_equal(kmeans_step_init(&step, &book, 6), STATUS_OK);
  kmeans_step_clear(&step);
  assert_int_equal(kmeans_step_move(&step, x, codes, 6, true), 2);
  CHECK_NEAR(words[0], 0.75, 1e-6);
  CHECK_NEAR(words[1], 9, 0);
  CHECK_NEAR(words[2], -7, 0);
  const int32_t wanted[6] = {0, 0, 0, 1, 2, 0};
  assert_memory_equal(codes, wanted, sizeof codes);
  CHECK_NEAR(book.half_norms[1], 40.5, 1e-5);
  words[1] = 700; /* without repair an empty one stays */
  for (int i = 0; i < 6; i++) codes[i] = codes[i] == 1 ? 0 : codes[i];
  kmeans_step_clear(&step);
  assert_int_equal(kmeans_step_move(&step, x, codes, 6, false), 0);
  CHECK_NEAR(words[1], 700, 0);
  kmeans_step_release(&step);
  codebook_release(&book);
}

static void minibatch_comes_close(void **state) {
  (void)state;
  enum { W = 16, ROWS = 20000, K = 60 };
  real *x = points_normal(ROWS * W, 11);
  Codebook book;
  assert_int_equal(codebook_init(&book, 2, K, W, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  double full = fit(&book, x, ROWS, &options, &result);
  options.minibatch = 1000;
  options.iterations = 200;
  double small = fit(&book, x, ROWS, &options, &result);
  assert_true(small < 1.03 * full);
  assert_true(result.iterations <= 200);
  codebook_release(&book);
  free(x);
}

/* The thinned start: more samples than k-means++ looks at. */
static void more_samples_than_the_start_sees(void **state) {
  (void)state;
  enum { W = 2, ROWS = 40000, CENTRES = 8 };
  real *x = points_clustered(ROWS, W, CENTRES, 14);
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, CENTRES, W, NULL), STATUS_OK);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.restarts = 16;
  double expected = 0.01 * W * ROWS;
  assert_true(fit(&book, x, ROWS, &options, &result) < 1.05 * expected);
  codebook_release(&book);
  free(x);
}

/* One fit on so many threads: codewords [K, W] and distortion. */
static double fit_on_threads(int threads, int64_t groups, KmeansOptions options, const real *x, real *words) {
  Codebook book;
  KmeansResult result;
  assert_int_equal(threads_start(threads), STATUS_OK);
  assert_int_equal(codebook_init(&book, groups, 70, 30, words), STATUS_OK);
  assert_int_equal(kmeans_fit(&book, x, 2500, &options, &result), STATUS_OK);
  codebook_release(&book);
  threads_stop();
  return result.distortion;
}

static void same_for_any_thread_count(void **state) {
  (void)state;
  real *x = points_clustered(2500, 30, 40, 16), first[70 * 30], words[70 * 30];
  KmeansOptions options;
  kmeans_defaults(&options);
  options.restarts = 2;
  for (int variant = 0; variant < 6; variant++) { /* a group or three; in full, by mini-batches, by splitting */
    const int64_t groups = variant % 2 ? 3 : 1;
    options.minibatch = variant / 2 == 1 ? 400 : 0;
    options.start = variant / 2 == 2 ? KMEANS_SPLIT : KMEANS_GREEDY;
    options.seed = 42;
    double distortion = fit_on_threads(1, groups, options, x, first);
    for (int threads = 2; threads <= 4; threads++) {
      double again = fit_on_threads(threads, groups, options, x, words);
      assert_memory_equal(words, first, sizeof first);
      assert_memory_equal(&again, &distortion, sizeof distortion);
    }
    options.seed = 43;
    fit_on_threads(1, groups, options, x, words);
    assert_memory_not_equal(words, first, sizeof first);
  }
  free(x);
}

/* Of the clusters of a fit to the first half of x [2 ROWS, W], the share of those that no sample of the other half is in; the mean
 * distortion of that half. */
static double share_unused(KmeansStart start, int64_t entries, int64_t width, const real *x, int64_t rows, double *distortion) {
  Codebook book;
  CodeUsage usage;
  KmeansOptions options;
  KmeansResult result;
  assert_int_equal(codebook_init(&book, 1, entries, width, NULL), STATUS_OK);
  assert_int_equal(usage_init(&usage, 1, entries), STATUS_OK);
  kmeans_defaults(&options);
  options.start = start;
  options.iterations = 10;
  fit(&book, x, rows, &options, &result);
  int32_t *codes = malloc((size_t)rows * sizeof *codes);
  void *scratch = malloc(codebook_assign_scratch(&book, rows));
  codebook_assign(&book, x + rows * width, rows, codes, distortion, scratch);
  usage_add(&usage, codes, rows, *distortion);
  const UsageSummary summary = usage_summary(&usage);
  *distortion = summary.distortion;
  free(codes), free(scratch);
  usage_release(&usage);
  codebook_release(&book);
  return summary.dead;
}

/* In a wide group centres that started as samples are left alone, those that were split are not, and other samples are nearer to them. */
static void splitting_leaves_no_centre_alone(void **state) {
  (void)state;
  enum { W = 96, ROWS = 6000, K = 200 };
  real *x = points_normal(2 * ROWS * W, 17), *scale = points_normal(2 * ROWS, 18);
  for (int64_t i = 0; i < 2 * ROWS * W; i++) x[i] *= (real)exp(0.25 * (double)scale[i / W]); /* as tokens, some are longer than others */
  double by_samples, by_splitting;
  const double alone = share_unused(KMEANS_GREEDY, K, W, x, ROWS, &by_samples);
  assert_true(alone > 0.1);
  assert_true(share_unused(KMEANS_SPLIT, K, W, x, ROWS, &by_splitting) < 0.05);
  assert_true(by_splitting < by_samples);
  free(x), free(scale);
}

/* Two pairs of points far apart: -10 and 10 are their means, and the third centre halves the wider pair's, a tenth of the way from it. */
static void the_widest_is_split(void **state) {
  (void)state;
  const real x[4] = {-11, -9, 6, 14};
  real words[3];
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, 3, 1, words), STATUS_OK);
  assert_int_equal(kmeans_split(&book, x, 4, 42, 0), STATUS_OK);
  CHECK_NEAR(fmin((double)words[0], (double)words[1]), -10, 1e-5);
  CHECK_NEAR(fmax(fmax((double)words[0], (double)words[1]), (double)words[2]), 10.4, 1e-5);
  CHECK_NEAR(words[0] + words[1] + words[2], 10, 1e-5);
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.start = KMEANS_SPLIT;
  CHECK_NEAR(fit(&book, x, 4, &options, &result), 2, 1e-5);
  codebook_release(&book);
}

/* The workspace holds the codes of all samples, a mini-batch beside them, and for the start the samples that it draws from. */
static void the_workspace_is_known(void **state) {
  (void)state;
  enum { GROUPS = 4, K = 64, W = 32, COUNT = 100000 };
  Codebook book;
  KmeansOptions options;
  assert_int_equal(codebook_init(&book, GROUPS, K, W, NULL), STATUS_OK);
  kmeans_defaults(&options);
  options.start = KMEANS_RANDOM;
  const size_t full = kmeans_bytes(&book, COUNT, &options), codes = (size_t)COUNT * GROUPS * sizeof(int32_t);
  assert_true(full > codes && kmeans_bytes(&book, 2 * COUNT, &options) >= full + codes);
  options.minibatch = 1000;
  const size_t small = kmeans_bytes(&book, COUNT, &options);
  assert_true(small > codes + 1000 * W * sizeof(real) && small < full);
  options.start = KMEANS_GREEDY;
  assert_true(kmeans_bytes(&book, COUNT, &options) >= small);
  options.start = KMEANS_SPLIT;
  assert_true(kmeans_bytes(&book, COUNT, &options) >= kmeans_split_bytes(&book, COUNT) && kmeans_split_bytes(&book, COUNT) > codes);
  assert_true(kmeans_flops(&book, COUNT, &options) > kmeans_split_flops(&book, COUNT));
  options.minibatch = 0; /* a further start comes while the workspace of the iterations is there */
  options.restarts = 2;
  assert_true(kmeans_bytes(&book, COUNT, &options) >= kmeans_split_bytes(&book, COUNT) + full);
  options.start = KMEANS_RANDOM;
  assert_int_equal(kmeans_bytes(&book, COUNT, &options), full);
  codebook_release(&book);
}

static void what_is_refused(void **state) {
  (void)state;
  real x[20] = {0};
  Codebook book;
  KmeansOptions options;
  KmeansResult result;
  assert_int_equal(codebook_init(&book, 1, 11, 2, NULL), STATUS_OK);
  kmeans_defaults(&options);
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "11 codewords"));
  assert_non_null(strstr(status_message(), "10 samples"));
  codebook_release(&book);
  assert_int_equal(codebook_init(&book, 1, 4, 2, NULL), STATUS_OK);
  x[7] = (real)NAN;
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_NUMERIC);
  assert_non_null(strstr(status_message(), "sample 3"));
  x[7] = 0;
  options.iterations = 0;
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_BAD_VALUE);
  kmeans_defaults(&options);
  options.restarts = 0;
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_BAD_VALUE);
  kmeans_defaults(&options);
  options.tolerance = NAN;
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_BAD_VALUE);
  kmeans_defaults(&options);
  options.minibatch = -1;
  assert_int_equal(kmeans_fit(&book, x, 10, &options, &result), STATUS_BAD_VALUE);
  codebook_release(&book);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_the_clusters),
      cmocka_unit_test(never_rises_and_stops_early),
      cmocka_unit_test(runs_until_nothing_moves_or_iterations_end),
      cmocka_unit_test(greedy_starts_end_lower),
      cmocka_unit_test(more_restarts_are_never_worse),
      cmocka_unit_test(as_many_codewords_as_samples),
      cmocka_unit_test(fewer_distinct_points_than_codewords),
      cmocka_unit_test(all_samples_alike),
      cmocka_unit_test(two_codewords),
      cmocka_unit_test(repair_takes_the_farthest),
      cmocka_unit_test(minibatch_comes_close),
      cmocka_unit_test(more_samples_than_the_start_sees),
      cmocka_unit_test(same_for_any_thread_count),
      cmocka_unit_test(splitting_leaves_no_centre_alone),
      cmocka_unit_test(the_widest_is_split),
      cmocka_unit_test(the_workspace_is_known),
      cmocka_unit_test(what_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
