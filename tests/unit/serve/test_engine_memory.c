/* The engine's share of the memory that is available, which the test sets: how many sequences a device has room for, beside the one whose
 * prompt it computes. */
#define memory_available scripted_memory
#include "serve/engine.c"
#include <cmocka.h>

static double available;
double scripted_memory(void) { return available; }

/* 2 blocks of keys and values of 8 numbers in two bytes each, 100 tokens. */
enum { SEQUENCE_BYTES = 100 * 2 * 2 * 8 * 2 };

static int sequences(int nodes, double cache_bytes, double memory) {
  const ModelConfig config = {.blocks = 2, .heads = 4, .kv_heads = 2, .width = 16, .context = 100};
  const Weights weights = {.config = &config, .cache_kind = NARROW_BF16};
  const TokenSplit split = {.nodes = nodes};
  const LeaderOptions leader = {0};
  const EngineOptions options = {
      .weights = &weights, .split = &split, .leader = &leader, .sequences_max = 16, .cache_bytes = (int64_t)cache_bytes};
  available = memory;
  return sequences_each(&options);
}

static void a_quarter_of_what_is_available_is_shared(void **state) {
  (void)state;
  assert_int_equal(sequences(1, 0, 4.0 * 6 * SEQUENCE_BYTES), 5);
  assert_int_equal(sequences(2, 0, 4.0 * 2 * 6 * SEQUENCE_BYTES), 5);
  assert_int_equal(sequences(1, 0, 4.0 * 500 * SEQUENCE_BYTES), 16); /* as many as are wanted */
  assert_int_equal(sequences(1, 0, 0), 1);
  assert_int_equal(sequences(1, 0, INFINITY), 16); /* the system does not say */
}

static void what_was_asked_for_counts_alone(void **state) {
  (void)state;
  assert_int_equal(sequences(1, 7 * SEQUENCE_BYTES, 0), 6);
  assert_int_equal(sequences(1, 7 * SEQUENCE_BYTES - 1, 0), 5);
  assert_int_equal(sequences(1, 2 * SEQUENCE_BYTES, 0), 1);
  assert_int_equal(sequences(1, SEQUENCE_BYTES, 0), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_quarter_of_what_is_available_is_shared),
      cmocka_unit_test(what_was_asked_for_counts_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
