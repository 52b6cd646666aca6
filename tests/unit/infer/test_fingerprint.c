/* Fingerprints change with everything that changes an answer; what does not match is refused with both values. */
#include "infer/cluster/hello.h"
#include "sample_cluster.h"
#include <cmocka.h>

static Weights weights_of(SampleCluster *cluster) {
  return (Weights){.model = cluster->model,
                   .config = model_config(cluster->model),
                   .books = cluster->books,
                   .book_count = cluster->books ? (int)config_codebooks(&cluster->config) : 0};
}

static void open_cluster(SampleCluster *cluster, ModelConfig *config, uint64_t seed) {
  assert_int_equal(sample_open(cluster, config, seed), STATUS_OK);
}

static Fingerprints of(SampleCluster *cluster) {
  Fingerprints fingerprints;
  const Weights weights = weights_of(cluster);
  assert_int_equal(fingerprint_weights(&weights, &fingerprints), STATUS_OK);
  assert_int_equal(fingerprints.partition, 0);
  return fingerprints;
}

static Fingerprints of_config(ModelConfig *config) {
  SampleCluster cluster;
  open_cluster(&cluster, config, 1);
  Fingerprints fingerprints = of(&cluster);
  sample_close(&cluster);
  return fingerprints;
}

static void equal_models_have_equal_numbers(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  Fingerprints one = of_config(&config), two = of_config(&config);
  assert_memory_equal(&one, &two, sizeof one);
  assert_true(one.model != 0 && one.codebook != 0 && one.model != one.codebook);
  config.norm_eps *= 2;
  two = of_config(&config);
  assert_true(one.model != two.model && one.codebook == two.codebook);
  config.norm_eps /= 2;
  config.astra.class_bias = -0.8; /* of attention on every device */
  two = of_config(&config);
  assert_true(one.model != two.model && one.codebook == two.codebook);
  config.astra.class_bias = 0, config.astra.exchange_blocks = 2; /* nothing is sent of the third */
  two = of_config(&config);
  assert_true(one.model != two.model && one.codebook != two.codebook);
  config_release(&config);
}

static void every_weight_and_codeword_counts(void **state) {
  (void)state;
  ModelConfig config;
  SampleCluster cluster;
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  open_cluster(&cluster, &config, 1);
  const Fingerprints before = of(&cluster);
  ParamSet *params = model_params(cluster.model);
  for (size_t i = 0; i < params->count; i++) {
    Tensor *tensor = &params->list[i].tensor;
    real *last = &tensor->value[tensor_count(tensor) - 1], kept = *last;
    *last += 1;
    const Fingerprints after = of(&cluster);
    *last = kept;
    assert_true(after.model != before.model && after.codebook == before.codebook);
  }
  const int books = (int)config.blocks * config_sites(&config);
  cluster.books[books - 1].codewords[7] += 1;
  const Fingerprints after = of(&cluster);
  assert_true(after.model == before.model && after.codebook != before.codebook);
  sample_close(&cluster);
  config_release(&config);
}

static void every_number_of_a_large_tensor_counts(void **state) {
  (void)state;
  ModelConfig config;
  SampleCluster cluster;
  assert_int_equal(sample_config(&config, "tiny", 4, 16384, 4, CLASS_DISTRIBUTED), STATUS_OK); /* 2 MiB a block */
  open_cluster(&cluster, &config, 1);
  const Fingerprints before = of(&cluster);
  real *codewords = cluster.books[1].codewords;
  const int64_t count = 16384 * config.width, places[] = {0, 1777, count / 7, count / 2 + 1, count - 2000, count - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    real kept = codewords[places[i]];
    codewords[places[i]] += 1;
    assert_true(of(&cluster).codebook != before.codebook);
    codewords[places[i]] = kept;
  }
  assert_true(of(&cluster).codebook == before.codebook);
  sample_close(&cluster);
  config_release(&config);
}

/* Whoever entropy-codes must have the same frequencies, and choose codes with the same weight. */
static void frequencies_and_their_weight_count(void **state) {
  (void)state;
  ModelConfig config;
  SampleCluster cluster;
  assert_int_equal(sample_config(&config, "tiny", 4, 50, 4, CLASS_DISTRIBUTED), STATUS_OK);
  open_cluster(&cluster, &config, 1);
  Weights weights = weights_of(&cluster);
  const int64_t count = weights.book_count * 4 * 50;
  weights.frequencies = calloc((size_t)count, sizeof *weights.frequencies);
  assert_non_null(weights.frequencies);
  Fingerprints numbers[5];
  numbers[0] = of(&cluster);
  assert_int_equal(fingerprint_weights(&weights, &numbers[1]), STATUS_OK);
  weights.frequencies[count - 1] = 1;
  assert_int_equal(fingerprint_weights(&weights, &numbers[2]), STATUS_OK);
  weights.entropy_weight = (real)0.04;
  assert_int_equal(fingerprint_weights(&weights, &numbers[3]), STATUS_OK);
  weights.entropy_weight = (real)0.06;
  assert_int_equal(fingerprint_weights(&weights, &numbers[4]), STATUS_OK);
  for (int i = 0; i < 5; i++) {
    assert_true(numbers[i].model == numbers[0].model);
    for (int j = i + 1; j < 5; j++) assert_true(numbers[i].codebook != numbers[j].codebook);
  }
  free(weights.frequencies);
  sample_close(&cluster);
  config_release(&config);
}

static void partitions_differ(void **state) {
  (void)state;
  const int64_t even[2] = {3, 3}, uneven[2] = {4, 2};
  const int32_t raster[6] = {0, 1, 2, 3, 4, 5}, other[6] = {0, 2, 1, 3, 4, 5};
  const double weights[2] = {3, 3}, more[2] = {3, 4};
  const FingerprintShares shares[] = {{2, 6, even, NULL, NULL},  {2, 6, even, raster, NULL},  {2, 6, uneven, NULL, NULL},
                                      {2, 6, even, other, NULL}, {2, 0, NULL, NULL, weights}, {2, 0, NULL, NULL, more}};
  uint64_t numbers[6];
  for (int i = 0; i < 6; i++) assert_int_equal(fingerprint_shares(&shares[i], &numbers[i]), STATUS_OK);
  assert_true(numbers[0] == numbers[1]); /* raster order is what NULL means */
  for (int i = 1; i < 6; i++) {
    for (int j = i + 1; j < 6; j++) assert_true(numbers[i] != numbers[j]);
  }
}

static void both_values_are_named(void **state) {
  (void)state;
  const Fingerprints here = {1, 2, 3};
  const struct {
    Fingerprints there;
    const char *message; /* NULL: it fits */
  } rows[] = {{{1, 2, 3}, NULL},
              {{1, 2, 0}, NULL},
              {{0xabc, 7, 7}, "worker a:1: another model: 0000000000000abc there, 0000000000000001 here (--checkpoint"},
              {{1, 7, 7}, "worker a:1: another codebook: 0000000000000007 there, 0000000000000002 here (--checkpoint"},
              {{1, 2, 7}, "worker a:1: another partition: 0000000000000007 there, 0000000000000003 here ("}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Status status = hello_compare(&rows[i].there, &here, "worker a:1");
    assert_int_equal(status, rows[i].message ? STATUS_BAD_VALUE : STATUS_OK);
    if (rows[i].message) assert_memory_equal(status_message(), rows[i].message, strlen(rows[i].message));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_models_have_equal_numbers),
                                     cmocka_unit_test(every_weight_and_codeword_counts),
                                     cmocka_unit_test(every_number_of_a_large_tensor_counts),
                                     cmocka_unit_test(frequencies_and_their_weight_count),
                                     cmocka_unit_test(partitions_differ),
                                     cmocka_unit_test(both_values_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
