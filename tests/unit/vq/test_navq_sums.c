/* A batch in shares: moments and codebooks that follow from the added sums are those of the whole batch. */
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/ema.h"
#include "vq/navq.h"

enum { W = 12, ROWS = 90, STEPS = 3, SHARES = 3, K = 10 };
static const int64_t CUT[SHARES + 1] = {0, 40, 40, ROWS}; /* one has nothing */
static const double TOLERANCE = REAL_IS_DOUBLE ? 1e-12 : 4e-5;

static void add(real *to, const real *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

static void check_noise(int64_t groups, NoiseCovariance kind) {
  Navq whole, parts;
  assert_int_equal(navq_init(&whole, groups, W, kind), STATUS_OK);
  assert_int_equal(navq_init(&parts, groups, W, kind), STATUS_OK);
  void *scratch = malloc(navq_scratch(&whole, ROWS));
  const int64_t count = residual_sums_count(&parts), spread = noise_spread(groups, W, kind);
  real *sums = malloc((size_t)count * sizeof *sums), *all = malloc((size_t)count * sizeof *all);
  for (int step = 0; step < STEPS; step++) {
    real *x = points_normal(ROWS * W, 10 + (uint64_t)step), *q = points_normal(ROWS * W, 20 + (uint64_t)step);
    for (int i = 0; i < ROWS * W; i++) x[i] += (real)(i % W); /* a mean that is not zero */
    navq_update(&whole, x, q, ROWS, scratch);
    memset(all, 0, (size_t)count * sizeof *all);
    for (int s = 0; s < SHARES; s++) {
      residual_sums_take(&parts, x + CUT[s] * W, q + CUT[s] * W, CUT[s + 1] - CUT[s], sums, scratch);
      add(all, sums, count);
    }
    residual_sums_apply(&parts, all, ROWS);
    free(x);
    free(q);
  }
  for (int64_t i = 0; i < W; i++) CHECK_NEAR(parts.mean[i], whole.mean[i], TOLERANCE);
  for (int64_t i = 0; i < spread; i++) CHECK_NEAR(parts.covariance[i], whole.covariance[i], 10 * TOLERANCE);
  for (int64_t i = 0; i < spread; i++) CHECK_NEAR(parts.factor[i], whole.factor[i], 10 * TOLERANCE);
  assert_int_equal(parts.updates, whole.updates);
  free(scratch);
  free(sums);
  free(all);
  navq_release(&whole);
  navq_release(&parts);
}

static void noise_of_shares(void **state) {
  (void)state;
  for (int64_t groups = 1; groups <= 4; groups *= 2) {
    check_noise(groups, NOISE_FULL);
    check_noise(groups, NOISE_DIAGONAL);
    check_noise(groups, NOISE_JOINT);
    check_noise(groups, NOISE_RESTORED);
  }
}

static void codebooks_of_shares(void **state) {
  (void)state;
  enum { G = 3 };
  Codebook whole, parts;
  CodebookEma one, many, share;
  const EmaOptions options = {0.9, 1e-5, 0.5};
  real *words = points_normal(K * W, 1), *copy = malloc(K * W * sizeof *copy), sums[K * W];
  memcpy(copy, words, K * W * sizeof *copy);
  assert_int_equal(codebook_init(&whole, G, K, W, words), STATUS_OK);
  assert_int_equal(codebook_init(&parts, G, K, W, copy), STATUS_OK);
  assert_int_equal(ema_init(&one, &whole, (double)ROWS / K), STATUS_OK);
  assert_int_equal(ema_init(&many, &parts, (double)ROWS / K), STATUS_OK);
  assert_int_equal(ema_init(&share, &parts, 0), STATUS_OK);
  int32_t codes[ROWS * G], counts[G * K];
  Rng rng, again;
  rng_init(&rng, 9, 1);
  for (int i = 0; i < ROWS * G; i++) codes[i] = (int32_t)rng_below(&rng, K - 1); /* the last one fades and is revived */
  again = rng;
  int64_t revived = 0;
  for (int step = 0; step < 8; step++) {
    real *x = points_normal(ROWS * W, 30 + (uint64_t)step);
    revived += ema_update(&one, &whole, x, codes, ROWS, &options, &rng);
    memset(sums, 0, sizeof sums);
    memset(counts, 0, sizeof counts);
    for (int s = 0; s < SHARES; s++) {
      ema_sum_share(&share, &parts, x + CUT[s] * W, codes + CUT[s] * G, CUT[s + 1] - CUT[s]);
      add(sums, share.sums, K * W);
      for (int i = 0; i < G * K; i++) counts[i] += share.counts[i];
    }
    memcpy(many.counts, counts, sizeof counts);
    ema_apply(&many, &parts, sums, &options);
    for (int64_t i = 0; i < G * K; i++)
      if (ema_is_dead(&many, i, (double)ROWS / K, &options))
        ema_revive(&many, &parts, i, x + (int64_t)rng_below(&again, ROWS) * W + i / K * (W / G), (double)ROWS / K);
    free(x);
  }
  assert_true(revived > 0);
  for (int i = 0; i < G * K; i++) CHECK_NEAR(many.sizes[i], one.sizes[i], TOLERANCE);
  for (int i = 0; i < K * W; i++) CHECK_NEAR(many.sums[i], one.sums[i], 10 * TOLERANCE);
  for (int i = 0; i < K * W; i++) CHECK_NEAR(parts.codewords[i], whole.codewords[i], 10 * TOLERANCE);
  ema_release(&one);
  ema_release(&many);
  ema_release(&share);
  codebook_release(&whole);
  codebook_release(&parts);
  free(words);
  free(copy);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(noise_of_shares), cmocka_unit_test(codebooks_of_shares)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
