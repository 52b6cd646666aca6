/* Merging with a heap against the plain rule (lowest rank first, leftmost among equals), on random tables of pairs; the table itself. */
#include "base/rng.h"
#include "data/tokenizer/tokenizer.c" /* merging is inside of it */
#include "data_testing.h"

enum { SYMBOLS = 12, MAX = 60 };

/* Looks through the piece for every merge. */
static size_t merge_plainly(const BpePairs *pairs, int32_t *ids, size_t count) {
  for (;;) {
    const BpePair *best = NULL;
    size_t at = 0;
    for (size_t i = 0; i + 1 < count; i++) {
      const BpePair *pair = bpe_pairs_find(pairs, ids[i], ids[i + 1]);
      if (pair && (!best || pair->rank < best->rank)) best = pair, at = i;
    }
    if (!best) return count;
    ids[at] = best->id;
    memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof *ids);
    count--;
  }
}

/* Ranks may be shared, and a merge may make a symbol that a lower rank merges on: more unusual than any real table. */
static void random_pairs(BpePairs *pairs, Rng *rng) {
  assert_ok(bpe_pairs_init(pairs, 1));
  for (int i = 0; i < 60; i++) {
    bool fresh;
    assert_ok(bpe_pairs_add(pairs, (int32_t)rng_below(rng, SYMBOLS), (int32_t)rng_below(rng, SYMBOLS), (uint32_t)rng_below(rng, 20),
                            (int32_t)rng_below(rng, SYMBOLS), &fresh));
  }
}

static void test_heap_merges_as_the_plain_rule(void **state) {
  (void)state;
  Rng rng;
  BpeMerge merge = {0};
  rng_init(&rng, 42, 1);
  for (int i = 0; i < 2000; i++) {
    BpePairs pairs;
    int32_t want[MAX], got[MAX];
    size_t count = 1 + rng_below(&rng, MAX);
    random_pairs(&pairs, &rng);
    assert_ok(bpe_merge_reserve(&merge, count));
    for (size_t j = 0; j < count; j++) want[j] = merge.symbols[j].id = (int32_t)rng_below(&rng, i % 2 ? SYMBOLS : 3);
    size_t kept = bpe_merge_run(&merge, &pairs, count, got);
    assert_int_equal(kept, merge_plainly(&pairs, want, count));
    assert_memory_equal(got, want, kept * sizeof *got);
    bpe_pairs_release(&pairs);
  }
  bpe_merge_release(&merge);
}

static void test_pairs(void **state) {
  (void)state;
  BpePairs pairs;
  bool fresh;
  assert_ok(bpe_pairs_init(&pairs, 4));
  for (int32_t i = 0; i < 1000; i++) {
    assert_ok(bpe_pairs_add(&pairs, i, 1000 - i, (uint32_t)i, 2 * i, &fresh));
    assert_true(fresh);
  }
  assert_ok(bpe_pairs_add(&pairs, 7, 993, 5, 5, &fresh));
  assert_false(fresh);
  for (int32_t i = 0; i < 1000; i++) {
    const BpePair *pair = bpe_pairs_find(&pairs, i, 1000 - i);
    assert_non_null(pair);
    assert_int_equal(pair->rank, i);
    assert_int_equal(pair->id, 2 * i);
    assert_null(bpe_pairs_find(&pairs, i, 1001 - i));
  }
  assert_int_equal(pairs.count, 1000);
  bpe_pairs_release(&pairs);
}

static void test_too_long(void **state) {
  (void)state;
  BpeMerge merge = {0};
  assert_fails(bpe_merge_reserve(&merge, (size_t)1 << 31), STATUS_BAD_VALUE, "2147483648 bytes");
  bpe_merge_release(&merge);
}

/* What one long piece of a request took is not kept for good. */
static void test_a_long_piece_is_given_back(void **state) {
  (void)state;
  TokenizerStates *states;
  TokenizerState *one;
  assert_ok(tokenizer_states_new(&states, NULL));
  for (size_t i = 0; i < 2; i++) {
    assert_ok(tokenizer_states_take(states, &one));
    assert_ok(bpe_merge_reserve(&one->merge, i == 0 ? 1000 : 1000000));
    tokenizer_states_give(states, one);
    assert_ptr_equal(states->idle, one);
    assert_int_equal(one->merge.room, i == 0 ? 1024 : 0);
  }
  tokenizer_states_free(states);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_heap_merges_as_the_plain_rule), cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_too_long), cmocka_unit_test(test_a_long_piece_is_given_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
