/* Layouts: the examples of the header by hand, then properties over random maps. Attention's use of spans is tested with attention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "nn/layout.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

static void assert_list(const int32_t *list, const int32_t *expected, size_t count) {
  for (size_t i = 0; i < count; i++) assert_int_equal(list[i], expected[i]);
}

static void assert_span(AttentionSpan span, int64_t begin, int64_t count, int64_t own, int64_t own_count) {
  assert_int_equal(span.begin, begin);
  assert_int_equal(span.count, count);
  assert_int_equal(span.own, own);
  assert_int_equal(span.own_count, own_count);
}

static void two_devices_distributed(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const int64_t counts[] = {2, 3};
  const int32_t order[] = {4, 1, 0, 3, 2};
  assert_int_equal(layout_build(&layout, 5, 2, counts, order, CLASS_DISTRIBUTED, -1), STATUS_OK);
  assert_int_equal(layout.rows, 7);
  assert_list(layout.row_token, (int32_t[]){-1, 4, 1, -1, 0, 3, 2}, 7);
  assert_int_equal(layout.spans, 2);
  assert_span(layout.span[0], 0, 3, 0, 2);
  assert_span(layout.span[1], 3, 4, 2, 3);
  assert_int_equal(layout.class_rows, 2);
  assert_list(layout.class_row, (int32_t[]){0, 3}, 2);
  assert_true(layout.class_tokens[0] == 2 && layout.class_tokens[1] == 3);
  assert_int_equal(layout.shared, 5);
  assert_int_equal(layout.shared_rows, 5);
  assert_int_equal(layout.remote, 5);
  assert_list(layout.shared_row, (int32_t[]){1, 2, 4, 5, 6}, 5);
  assert_int_equal(layout.device_shared[1], 2);
  layout_release(&layout);
  assert_null(layout.memory);
}

static void one_node_distributed(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const int64_t counts[] = {2, 3};
  const int32_t order[] = {4, 1, 0, 3, 2};
  assert_int_equal(layout_build(&layout, 5, 2, counts, order, CLASS_DISTRIBUTED, 1), STATUS_OK);
  assert_int_equal(layout.rows, 4);
  assert_list(layout.row_token, (int32_t[]){-1, 0, 3, 2}, 4);
  assert_int_equal(layout.spans, 1);
  assert_span(layout.span[0], 0, 4, 2, 0);
  assert_int_equal(layout.class_rows, 1);
  assert_int_equal(layout.shared, 5);
  assert_int_equal(layout.shared_rows, 3);
  assert_int_equal(layout.device_shared[layout.self], 2);
  assert_int_equal(layout.remote, 2);
  layout_release(&layout);
}

static void single_class_token(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const int64_t counts[] = {2, 1};
  assert_int_equal(layout_build(&layout, 3, 2, counts, NULL, CLASS_SINGLE, -1), STATUS_OK);
  assert_list(layout.row_token, (int32_t[]){-1, 0, 1, 2}, 4);
  assert_int_equal(layout.shared, 4);
  assert_int_equal(layout.remote, 4);
  assert_list(layout.shared_row, (int32_t[]){0, 1, 2, 3}, 4);
  assert_span(layout.span[0], 0, 3, 0, 3);
  assert_span(layout.span[1], 3, 1, 3, 1);
  assert_int_equal(layout.class_rows, 1);
  assert_int_equal(layout.class_row[0], 0);
  assert_int_equal(layout_build(&layout, 3, 2, counts, NULL, CLASS_SINGLE, 0), STATUS_OK);
  assert_span(layout.span[0], 0, 3, 0, 0);
  assert_int_equal(layout.remote, 1);
  assert_int_equal(layout_build(&layout, 3, 2, counts, NULL, CLASS_SINGLE, 1), STATUS_OK);
  assert_int_equal(layout.class_rows, 0);
  assert_int_equal(layout.remote, 3);
  assert_int_equal(layout.device_shared[layout.self], 3);
  assert_span(layout.span[0], 0, 1, 3, 0);
  layout_release(&layout);
}

static void plain_has_no_remote_rows(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const ClassToken kinds[] = {CLASS_DISTRIBUTED, CLASS_SINGLE, CLASS_NONE};
  for (size_t i = 0; i < 3; i++) {
    const int has_class = kinds[i] != CLASS_NONE;
    assert_int_equal(layout_build_plain(&layout, 6, kinds[i]), STATUS_OK);
    assert_int_equal(layout.remote, 0);
    assert_int_equal(layout.rows, 6 + has_class);
    assert_int_equal(layout.class_rows, has_class);
    assert_span(layout.span[0], 0, 6 + has_class, 0, 0);
    for (int t = 0; t < 6; t++) assert_int_equal(layout.row_token[t + has_class], t);
  }
  layout_release(&layout);
}

/* Every content token stands in exactly one row and is shared; spans follow each other and cover all rows. */
static void check_emulation(const TokenLayout *layout, const int64_t *counts) {
  int seen[MAX] = {0};
  int64_t classes = 0, at = 0;
  for (int64_t r = 0; r < layout->rows; r++)
    if (layout->row_token[r] < 0)
      assert_int_equal(layout->class_row[classes++], r);
    else
      seen[layout->row_token[r]]++;
  for (int64_t t = 0; t < layout->tokens; t++) assert_int_equal(seen[t], 1);
  assert_int_equal(classes, layout->class_rows);
  assert_int_equal(layout->spans, layout->devices);
  for (int d = 0; d < layout->devices; d++) {
    const AttentionSpan *span = &layout->span[d];
    const int has_class = layout->class_token == CLASS_DISTRIBUTED || (layout->class_token == CLASS_SINGLE && d == 0);
    assert_int_equal(span->begin, at);
    assert_int_equal(span->count, counts[d] + has_class);
    for (int64_t i = 0; i < span->count; i++) assert_int_equal(layout->row_token[at + i] < 0, has_class && i == 0);
    at += span->count;
    assert_int_equal(span->own, layout->device_shared[d]);
    assert_int_equal(span->own + span->own_count, layout->device_shared[d + 1]);
    for (int64_t i = span->own; i < span->own + span->own_count; i++) {
      assert_true(layout->shared_row[i] >= span->begin);
      assert_true(layout->shared_row[i] < span->begin + span->count);
      if (i > span->own) assert_true(layout->shared_row[i] > layout->shared_row[i - 1]);
    }
  }
  assert_int_equal(at, layout->rows);
  assert_int_equal(layout->device_shared[layout->devices], layout->shared);
  assert_int_equal(layout->shared, layout->tokens + (layout->class_token == CLASS_SINGLE));
}

static void check_node(const TokenLayout *node, const TokenLayout *whole, int d) {
  const AttentionSpan *span = &whole->span[d];
  assert_int_equal(node->rows, span->count);
  assert_list(node->row_token, whole->row_token + span->begin, (size_t)span->count);
  assert_int_equal(node->shared, whole->shared);
  assert_int_equal(node->shared_rows, span->own_count);
  assert_int_equal(node->device_shared[node->self], span->own);
  assert_memory_equal(node->device_shared, whole->device_shared, (size_t)(whole->devices + 1) * sizeof(int64_t));
  for (int64_t i = 0; i < node->shared_rows; i++) assert_int_equal(node->shared_row[i], whole->shared_row[span->own + i] - span->begin);
  assert_int_equal(node->remote, node->class_token == CLASS_NONE ? span->own : whole->shared - span->own_count);
  assert_int_equal(node->spans, 1);
  assert_span(node->span[0], 0, node->rows, span->own, 0);
}

static void nodes_are_parts_of_the_emulation(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 1);
  TokenLayout whole = {0}, node = {0};
  for (int trial = 0; trial < 300; trial++) {
    const int64_t tokens = 1 + (int64_t)rng_below(&rng, MAX);
    const int devices = 1 + (int)rng_below(&rng, (uint64_t)(tokens < 9 ? tokens : 9));
    const ClassToken kind = (ClassToken)(trial % 3);
    double weights[9];
    int64_t counts[9];
    int32_t order[MAX];
    for (int d = 0; d < devices; d++) weights[d] = rng_gamma(&rng, 0.7) + 1e-9;
    for (int64_t t = 0; t < tokens; t++) order[t] = (int32_t)t;
    rng_shuffle(&rng, order, tokens);
    assert_int_equal(layout_weighted_counts(tokens, devices, weights, counts), STATUS_OK);
    const int32_t *given = trial % 5 ? order : NULL;
    assert_int_equal(layout_build(&whole, tokens, devices, counts, given, kind, -1), STATUS_OK);
    check_emulation(&whole, counts);
    assert_int_equal(whole.remote, whole.shared);
    for (int d = 0; d < devices; d++) {
      assert_int_equal(layout_build(&node, tokens, devices, counts, given, kind, d), STATUS_OK);
      check_node(&node, &whole, d);
    }
  }
  layout_release(&whole);
  layout_release(&node);
}

static void smaller_layouts_reuse_the_memory(void **state) {
  (void)state;
  TokenLayout layout = {0};
  int64_t counts[MAX];
  layout_even_counts(MAX, 1, counts);
  assert_int_equal(layout_build(&layout, MAX, 1, counts, NULL, CLASS_NONE, -1), STATUS_OK);
  const void *memory = layout.memory;
  for (int n = 1; n <= MAX; n++) {
    layout_even_counts(MAX, n, counts);
    assert_int_equal(layout_build(&layout, MAX, n, counts, NULL, CLASS_DISTRIBUTED, -1), STATUS_OK);
    assert_ptr_equal(layout.memory, memory);
    check_emulation(&layout, counts);
  }
  layout_release(&layout);
}

static void bad_maps_are_refused(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const int64_t good[] = {2, 2}, zero[] = {4, 0}, few[] = {1, 2}, wraps[] = {INT64_MAX, INT64_MAX, 6};
  assert_int_equal(layout_build(&layout, 4, 2, good, NULL, CLASS_NONE, -1), STATUS_OK);
  assert_int_equal(layout_build(&layout, 4, 2, zero, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout.rows, 0);
  assert_int_equal(layout_build(&layout, 4, 2, few, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 3, wraps, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 5, (int64_t[]){1, 1, 1, 1, 1}, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "5 devices for 4 tokens"));
  assert_int_equal(layout_build(&layout, 4, 0, good, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 0, 1, good, NULL, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 2, good, NULL, CLASS_NONE, 2), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 2, good, (int32_t[]){0, 1, 1, 3}, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 2, good, (int32_t[]){0, 1, 2, 4}, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout_build(&layout, 4, 2, good, (int32_t[]){0, -1, 2, 3}, CLASS_NONE, -1), STATUS_BAD_VALUE);
  assert_int_equal(layout.rows, 0);
  layout_release(&layout);
}

static void counts_follow_weights(void **state) {
  (void)state;
  int64_t counts[4];
  layout_even_counts(10, 4, counts);
  assert_memory_equal(counts, ((int64_t[]){3, 3, 2, 2}), sizeof counts);
  assert_int_equal(layout_weighted_counts(64, 4, (double[]){3, 1, 1, 1}, counts), STATUS_OK);
  assert_memory_equal(counts, ((int64_t[]){32, 11, 11, 10}), sizeof counts);
  assert_int_equal(layout_weighted_counts(10, 3, (double[]){9.5, 0.25, 0.25}, counts), STATUS_OK);
  assert_memory_equal(counts, ((int64_t[]){8, 1, 1}), 3 * sizeof *counts);
  assert_int_equal(layout_weighted_counts(4, 4, (double[]){1e9, 1, 1, 1}, counts), STATUS_OK);
  assert_memory_equal(counts, ((int64_t[]){1, 1, 1, 1}), sizeof counts);
  assert_int_equal(layout_weighted_counts(3, 4, (double[]){1, 1, 1, 1}, counts), STATUS_BAD_VALUE);
  assert_int_equal(layout_weighted_counts(8, 2, (double[]){1, 0}, counts), STATUS_BAD_VALUE);
  assert_int_equal(layout_weighted_counts(8, 2, (double[]){1, (double)NAN}, counts), STATUS_BAD_VALUE);
  assert_int_equal(layout_weighted_counts(8, 2, (double[]){1, (double)INFINITY}, counts), STATUS_BAD_VALUE);
  assert_int_equal(layout_weighted_counts(8, 2, (double[]){1e-320, 1e-320}, counts), STATUS_BAD_VALUE);
  assert_true(fabs(layout_fpar(8, 2, (int64_t[]){6, 2}) - 40.0 / 64) < 1e-15);
}

static void chosen_tokens(void **state) {
  (void)state;
  TokenLayout layout = {0};
  const int32_t chosen[] = {6, 0, 5};
  assert_int_equal(layout_build_chosen(&layout, 8, chosen, 3), STATUS_OK);
  assert_int_equal(layout.rows, 4);
  assert_list(layout.row_token, (int32_t[]){-1, 6, 0, 5}, 4);
  assert_int_equal(layout.spans, 1);
  assert_span(layout.span[0], 0, 4, 0, 0);
  assert_int_equal(layout.class_rows, 1);
  assert_int_equal(layout.class_row[0], 0);
  assert_int_equal(layout.class_of_span[0], 1);
  assert_int_equal(layout.remote, 0);
  void *memory = layout.memory;
  assert_int_equal(layout_build_chosen(&layout, 8, chosen, 1), STATUS_OK); /* fewer: the same memory */
  assert_int_equal(layout.rows, 2);
  assert_ptr_equal(layout.memory, memory);
  const int32_t bad[][2] = {{3, 8}, {-1, 3}};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(layout_build_chosen(&layout, 8, bad[i], 2), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "outside [0, 8)"));
    assert_int_equal(layout.rows, 0);
  }
  assert_int_equal(layout_build_chosen(&layout, 8, chosen, 0), STATUS_BAD_VALUE);
  assert_int_equal(layout.rows, 0);
  layout_release(&layout);
}

/* All tokens chosen in order is the plain layout. */
static void all_chosen_is_plain(void **state) {
  (void)state;
  TokenLayout chosen = {0}, plain = {0};
  int32_t order[MAX];
  for (int32_t i = 0; i < MAX; i++) order[i] = i;
  assert_int_equal(layout_build_chosen(&chosen, MAX, order, MAX), STATUS_OK);
  assert_int_equal(layout_build_plain(&plain, MAX, CLASS_DISTRIBUTED), STATUS_OK);
  assert_int_equal(chosen.rows, plain.rows);
  assert_list(chosen.row_token, plain.row_token, (size_t)plain.rows);
  assert_span(chosen.span[0], plain.span[0].begin, plain.span[0].count, plain.span[0].own, plain.span[0].own_count);
  assert_int_equal(chosen.remote, plain.remote);
  layout_release(&chosen);
  layout_release(&plain);
}

/* Where remote rows and the last token come from: of a decoder their positions. */
static void remote_tokens_and_the_last(void **state) {
  (void)state;
  const int64_t counts[] = {2, 1, 3};
  TokenLayout layout = {0};
  assert_int_equal(layout_build(&layout, 6, 3, counts, NULL, CLASS_NONE, -1), STATUS_OK);
  assert_int_equal(layout.remote, 6);
  for (int32_t i = 0; i < 6; i++) assert_true(layout.remote_token[i] == i && layout.row_token[i] == i);
  assert_true(layout.last_rows == 1 && layout.last_row[0] == 5 && layout.last_token[0] == 5);
  assert_true(layout.last_of_span[0] == 0 && layout.last_of_span[1] == 0 && layout.last_of_span[2] == 1);
  static const int32_t before[3][3] = {{0}, {0, 1}, {0, 1, 2}}, remote[3] = {0, 2, 3};
  for (int self = 0; self < 3; self++) {
    assert_int_equal(layout_build(&layout, 6, 3, counts, NULL, CLASS_NONE, self), STATUS_OK);
    assert_int_equal(layout.remote, remote[self]); /* nothing that comes behind */
    assert_memory_equal(layout.remote_token, before[self], (size_t)layout.remote * sizeof(int32_t));
    assert_int_equal(layout.last_rows, self == 2);
    assert_int_equal(layout.last_of_span[0], self == 2);
    if (self == 2) assert_int_equal(layout.last_row[0], 2);
  }
  assert_int_equal(layout_build(&layout, 3, 2, (int64_t[]){1, 2}, (int32_t[]){2, 0, 1}, CLASS_SINGLE, -1), STATUS_OK);
  assert_memory_equal(layout.remote_token, ((int32_t[]){-1, 2, 0, 1}), 4 * sizeof(int32_t));
  assert_true(layout.last_row[0] == 1 && layout.last_of_span[0] == 1); /* behind the class token */
  assert_int_equal(layout_build(&layout, 3, 2, (int64_t[]){1, 2}, (int32_t[]){2, 0, 1}, CLASS_SINGLE, 1), STATUS_OK);
  assert_memory_equal(layout.remote_token, ((int32_t[]){-1, 2}), 2 * sizeof(int32_t));
  layout_release(&layout);
}

/* Parts tile a node's rows and what it shares; both kinds of pieces belong together, and every process cuts alike. */
static void parts_tile_the_rows(void **state) {
  (void)state;
  static const ClassToken kinds[] = {CLASS_DISTRIBUTED, CLASS_SINGLE, CLASS_NONE};
  const int64_t counts[] = {5, 1, 7};
  TokenLayout layout = {0}, other = {0};
  for (int k = 0; k < 3; k++) {
    for (int self = 0; self < 3; self++) {
      assert_int_equal(layout_build(&layout, 13, 3, counts, NULL, kinds[k], self), STATUS_OK);
      assert_int_equal(layout_build(&other, 13, 3, counts, NULL, kinds[k], (self + 1) % 3), STATUS_OK);
      for (int parts = 1; parts <= 9; parts++) {
        int64_t at = 0, shared_at = 0, max = 0, min = 13;
        for (int p = 0; p < parts; p++) {
          int64_t first, rows, first_shared, shared, there, count;
          layout_part(&layout, parts, p, &first, &rows, &first_shared, &shared);
          assert_true(first == at && first_shared == shared_at && rows >= 0 && shared >= 0);
          at += rows, shared_at += shared;
          for (int64_t i = first_shared; i < first_shared + shared; i++) assert_in_range(layout.shared_row[i], first, first + rows - 1);
          layout_part_shared(&other, self, parts, p, &there, &count);
          assert_true(there == first_shared && count == shared);
          int64_t tokens = rows - (p == 0 ? layout.class_rows : 0);
          max = tokens > max ? tokens : max, min = tokens < min ? tokens : min;
        }
        assert_true(at == layout.rows && shared_at == layout.shared_rows && max - min <= 1);
      }
    }
  }
  int64_t first, count;
  layout_part_shared(&layout, 3, 2, 0, &first, &count); /* of a node that takes no part */
  assert_true(first == 0 && count == 0);
  layout_release(&layout);
  layout_release(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chosen_tokens),
      cmocka_unit_test(all_chosen_is_plain),
      cmocka_unit_test(two_devices_distributed),
      cmocka_unit_test(one_node_distributed),
      cmocka_unit_test(single_class_token),
      cmocka_unit_test(plain_has_no_remote_rows),
      cmocka_unit_test(nodes_are_parts_of_the_emulation),
      cmocka_unit_test(smaller_layouts_reuse_the_memory),
      cmocka_unit_test(bad_maps_are_refused),
      cmocka_unit_test(counts_follow_weights),
      cmocka_unit_test(remote_tokens_and_the_last),
      cmocka_unit_test(parts_tile_the_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
