/* Counts and maps, and the command-line forms of them. */
#include "infer/classify.h"
#include "infer/partition.h"
#include "infer/wire.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void even_spans_in_raster_order(void **state) {
  (void)state;
  Partition p;
  const int64_t counts[3] = {4, 3, 3};
  assert_int_equal(partition_init(&p, 10, 3, NULL), STATUS_OK);
  assert_memory_equal(p.counts, counts, sizeof counts);
  for (int i = 0; i < 10; i++) assert_int_equal(p.order[i], i);
  partition_release(&p);
}

static void split_follows_the_weights(void **state) {
  (void)state;
  Partition p;
  const int64_t counts[4] = {32, 11, 11, 10};
  assert_int_equal(partition_init(&p, 64, 4, "3,1,1,1"), STATUS_OK);
  assert_memory_equal(p.counts, counts, sizeof counts);
  partition_release(&p);
  assert_int_equal(partition_init(&p, 64, 2, "1.5,.5"), STATUS_OK);
  assert_int_equal(p.counts[0], 48);
  partition_release(&p);
  assert_int_equal(partition_split_length("3,1,1,1"), 4);
}

static void malformed_splits_are_refused(void **state) {
  (void)state;
  const char *const bad[] = {"", ",", "1,", ",1", "1,,1", "1,a", "1,-1", "0,1", "1,nan", "1,inf", "1 1", "1e999,1", "1,1x"};
  Partition p;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(partition_split_length(bad[i]), 0);
    assert_int_equal(partition_init(&p, 64, 2, bad[i]), STATUS_BAD_USAGE);
    assert_non_null(strstr(status_message(), "--split"));
  }
  assert_int_equal(partition_init(&p, 64, 3, "1,1"), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "2 nodes"));
}

static void more_nodes_than_tokens_is_refused(void **state) {
  (void)state;
  Partition p;
  assert_int_equal(partition_init(&p, 3, 4, NULL), STATUS_BAD_VALUE);
  assert_int_equal(partition_init(&p, 3, 0, NULL), STATUS_BAD_VALUE);
  assert_int_equal(partition_init(&p, 1000, WIRE_NODES + 1, NULL), STATUS_BAD_VALUE);
}

static void any_map_becomes_an_order(void **state) {
  (void)state;
  const int32_t device_of[6] = {1, 0, 2, 1, 0, 1}, order[6] = {1, 4, 0, 3, 5, 2};
  const int64_t counts[3] = {2, 3, 1};
  Partition p;
  TokenLayout layout = {0};
  assert_int_equal(partition_map(&p, 6, device_of), STATUS_OK);
  assert_int_equal(p.nodes, 3);
  assert_memory_equal(p.counts, counts, sizeof counts);
  assert_memory_equal(p.order, order, sizeof order);
  assert_int_equal(partition_layout(&p, CLASS_DISTRIBUTED, 1, &layout), STATUS_OK);
  assert_int_equal(layout.rows, 4);
  assert_int_equal(layout.row_token[1], 0);
  assert_int_equal(layout.remote, 3);
  layout_release(&layout);
  partition_release(&p);
}

static void bad_maps_are_refused(void **state) {
  (void)state;
  const int32_t hole[3] = {0, 2, 2}, negative[3] = {0, -1, 1}, huge[3] = {0, 1, WIRE_NODES};
  Partition p;
  assert_int_equal(partition_map(&p, 3, hole), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "device 1"));
  assert_int_equal(partition_map(&p, 3, negative), STATUS_BAD_VALUE);
  assert_int_equal(partition_map(&p, 3, huge), STATUS_BAD_VALUE);
}

/* The map stays when counts change and when tokens are spread over other nodes. */
static void a_layout_stays_when_counts_change(void **state) {
  (void)state;
  const TokenMap strided = {TOKEN_MAP_STRIDED, 0};
  const int64_t uneven[4] = {7, 4, 3, 2}, of_three[3] = {8, 6, 2};
  int32_t expected[16];
  Partition p, fewer;
  assert_int_equal(partition_init(&p, 16, 4, NULL), STATUS_OK);
  assert_int_equal(partition_place(&p, &strided, 4, 4), STATUS_OK);
  for (int i = 0; i < 16; i++) assert_int_equal(p.order[i], i % 4 * 4 + i / 4);
  assert_int_equal(partition_recount(&p, uneven), STATUS_OK);
  assert_int_equal(token_map_order(&strided, 4, 4, 4, uneven, expected), STATUS_OK);
  assert_memory_equal(p.order, expected, sizeof expected);
  assert_int_equal(partition_spread(&fewer, &p, 3, of_three), STATUS_OK);
  assert_int_equal(token_map_order(&strided, 4, 4, 3, of_three, expected), STATUS_OK);
  assert_memory_equal(fewer.order, expected, sizeof expected);
  assert_int_equal(partition_place(&p, &strided, 4, 5), STATUS_BAD_VALUE);
  assert_int_equal(partition_place(&p, &strided, 0, 4), STATUS_BAD_VALUE);
  partition_release(&fewer);
  partition_release(&p);
}

static void ranking_orders_and_sums_to_one(void **state) {
  (void)state;
  const real logits[6] = {1, 5, 2, 5, -1000, 4};
  int32_t index[6];
  double probability[6], sum = 0;
  ranking_top(logits, 6, 6, index, probability);
  const int32_t expected[6] = {1, 3, 5, 2, 0, 4};
  assert_memory_equal(index, expected, sizeof expected);
  for (int i = 0; i < 6; i++) sum += probability[i];
  assert_true(fabs(sum - 1) < 1e-12);
  assert_true(fabs(probability[0] / probability[2] - exp(1)) < 1e-9);
  ranking_top(logits, 6, 2, index, NULL);
  assert_int_equal(index[0], 1);
  assert_int_equal(index[1], 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(even_spans_in_raster_order),
                                     cmocka_unit_test(split_follows_the_weights),
                                     cmocka_unit_test(malformed_splits_are_refused),
                                     cmocka_unit_test(more_nodes_than_tokens_is_refused),
                                     cmocka_unit_test(a_layout_stays_when_counts_change),
                                     cmocka_unit_test(any_map_becomes_an_order),
                                     cmocka_unit_test(bad_maps_are_refused),
                                     cmocka_unit_test(ranking_orders_and_sums_to_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
