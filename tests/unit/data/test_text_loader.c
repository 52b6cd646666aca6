/* Training windows and evaluation windows: every token is covered, labels are the next tokens, and a position says all. */
#include "data/text/text_loader.h"
#include "data/text/text_perplexity.c" /* windows are inside of it */
#include "data_testing.h"
#include "unit/token_cache_of.h"

enum { VOCABULARY = 1 << 20 };

/* Token i is i, so that a window tells where it was cut. */
static TokenCache *counting(int64_t count) {
  int32_t *ids = malloc((size_t)count * sizeof *ids);
  TokenCache *cache;
  assert_non_null(ids);
  for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)i;
  assert_ok(token_cache_of(&cache, ids, count, VOCABULARY));
  free(ids);
  return cache;
}

/* One epoch: each row is a run of the text, labels follow inputs; counts how often each token was a label. */
static void count_epoch(TextLoader *loader, int64_t context, int *seen) {
  TextBatch batch;
  do {
    text_loader_next(loader, &batch);
    for (int row = 0; row < batch.count; row++) {
      for (int64_t i = 0; i < context; i++) {
        int32_t id = batch.ids[row * context + i], label = batch.labels[row * context + i];
        assert_int_equal(label, id + 1);
        if (i) assert_int_equal(id, batch.labels[row * context + i - 1]);
        seen[label]++;
      }
    }
  } while (!batch.last);
}

static void test_every_token(void **state) {
  (void)state;
  static const int64_t contexts[] = {1, 2, 7, 16, 63};
  for (int64_t tokens = 64; tokens < 200; tokens += 9) {
    TokenCache *cache = counting(tokens);
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
      for (int shuffle = 0; shuffle < 2; shuffle++) {
        TextLoader *loader;
        assert_ok(text_loader_windows(
            &loader, cache, &(TextLoaderOptions){.context = contexts[c], .batch = 3, .shuffle = shuffle, .drop_last = false, .seed = 5}));
        assert_int_equal(text_loader_facts(loader)->steps, (text_loader_facts(loader)->samples + 2) / 3);
        for (int epoch = 0; epoch < 3; epoch++) {
          int seen[256] = {0}, surplus = 0;
          count_epoch(loader, contexts[c], seen);
          for (int64_t i = 1; i < tokens; i++) {
            assert_true(seen[i] >= 1);
            surplus += seen[i] - 1;
          }
          assert_int_equal(seen[0], 0);
          assert_true(surplus < contexts[c] * (1 + shuffle));
        }
        text_loader_free(loader);
      }
    }
    token_cache_close(cache);
  }
}

static void test_order(void **state) {
  (void)state;
  TokenCache *cache = counting(1001);
  TextLoader *loader;
  TextBatch batch;
  assert_ok(text_loader_windows(&loader, cache,
                                &(TextLoaderOptions){.context = 10, .batch = 4, .shuffle = false, .drop_last = false, .seed = 1}));
  assert_int_equal(text_loader_facts(loader)->steps, 25);
  for (int step = 0; step < 25; step++) {
    text_loader_next(loader, &batch);
    assert_int_equal(batch.count, 4);
    assert_int_equal(batch.step, step);
    for (int row = 0; row < 4; row++) assert_int_equal(batch.ids[row * 10], step * 40 + row * 10);
  }
  assert_true(batch.last);
  text_loader_free(loader);
  assert_ok(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 10, .batch = 3, .shuffle = false, .drop_last = true, .seed = 1}));
  assert_int_equal(text_loader_facts(loader)->steps, 33); /* the hundredth window is left out */
  text_loader_free(loader);
  token_cache_close(cache);
}

/* The windows of two epochs of `loader`, a checksum each. */
static void record(TextLoader *loader, int64_t context, int steps, uint64_t *sums) {
  TextBatch batch;
  for (int i = 0; i < steps; i++) {
    text_loader_next(loader, &batch);
    sums[i] = (uint64_t)(batch.epoch * 1000 + batch.step);
    for (int64_t j = 0; j < batch.count * context; j++) sums[i] = sums[i] * 31 + (uint64_t)batch.ids[j];
  }
}

static void test_position_says_all(void **state) {
  (void)state;
  TokenCache *cache = counting(777);
  TextLoaderOptions options = {.context = 16, .batch = 4, .shuffle = true, .seed = 42};
  TextLoader *loader, *other;
  assert_ok(text_loader_windows(&loader, cache, &options));
  int steps = (int)text_loader_facts(loader)->steps;
  uint64_t straight[64], resumed[64];
  assert_true(3 * steps <= 64);
  record(loader, 16, 3 * steps, straight);
  for (int epoch = 0; epoch < 3; epoch++) {
    for (int step = 0; step < steps; step++) {
      assert_ok(text_loader_windows(&other, cache, &options));
      assert_ok(text_loader_seek(other, epoch, step));
      record(other, 16, 1, resumed);
      assert_true(resumed[0] == straight[epoch * steps + step]);
      text_loader_free(other);
    }
  }
  assert_ok(text_loader_seek(loader, 0, steps)); /* the next epoch's first */
  record(loader, 16, 1, resumed);
  assert_true(resumed[0] == straight[steps]);
  assert_fails(text_loader_seek(loader, 0, steps + 1), STATUS_BAD_VALUE, "another text");
  assert_fails(text_loader_seek(loader, -1, 0), STATUS_BAD_VALUE, "epoch -1");
  options.seed = 43;
  assert_ok(text_loader_windows(&other, cache, &options));
  record(other, 16, 1, resumed);
  assert_true(resumed[0] != straight[0]);
  text_loader_free(other);
  text_loader_free(loader);
  token_cache_close(cache);
}

/* Inner windows begin elsewhere in each epoch, and come in another order. */
static void test_epochs_differ(void **state) {
  (void)state;
  enum { CONTEXT = 64, EPOCHS = 8 };
  TokenCache *cache = counting(100 * CONTEXT);
  TextLoader *loader;
  TextBatch batch;
  int offsets[EPOCHS], firsts[EPOCHS], other_offsets = 0, other_firsts = 0;
  assert_ok(text_loader_windows(&loader, cache,
                                &(TextLoaderOptions){.context = CONTEXT, .batch = 1, .shuffle = true, .drop_last = false, .seed = 9}));
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    firsts[epoch] = offsets[epoch] = -1;
    do {
      text_loader_next(loader, &batch);
      if (firsts[epoch] < 0) firsts[epoch] = batch.ids[0] / CONTEXT;
      bool inner = batch.ids[0] > 0 && batch.ids[0] < 98 * CONTEXT;
      if (inner && offsets[epoch] < 0) offsets[epoch] = batch.ids[0] % CONTEXT;
      if (inner) assert_int_equal(batch.ids[0] % CONTEXT, offsets[epoch]);
    } while (!batch.last);
    other_offsets += offsets[epoch] != offsets[0];
    other_firsts += firsts[epoch] != firsts[0];
  }
  assert_true(other_offsets >= EPOCHS - 2);
  assert_true(other_firsts >= EPOCHS - 2);
  text_loader_free(loader);
  token_cache_close(cache);
}

static void test_refusals(void **state) {
  (void)state;
  TokenCache *cache = counting(10);
  TextLoader *loader;
  assert_fails(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 10, .batch = 1, .shuffle = false, .drop_last = false, .seed = 1}),
      STATUS_BAD_VALUE, "10 tokens");
  assert_fails(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 0, .batch = 1, .shuffle = false, .drop_last = false, .seed = 1}),
      STATUS_BAD_VALUE, "context of 0");
  assert_fails(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 2, .batch = 0, .shuffle = false, .drop_last = false, .seed = 1}),
      STATUS_BAD_VALUE, "batch of 0");
  assert_fails(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 9, .batch = 2, .shuffle = false, .drop_last = true, .seed = 1}),
      STATUS_BAD_VALUE, "smaller");
  assert_ok(
      text_loader_windows(&loader, cache, &(TextLoaderOptions){.context = 9, .batch = 2, .shuffle = false, .drop_last = false, .seed = 1}));
  text_loader_free(loader);
  TextWindows windows;
  assert_fails(text_windows_init(&windows, cache, 4, 5), STATUS_BAD_VALUE, "stride of 5");
  assert_fails(text_windows_init(&windows, cache, 4, 0), STATUS_BAD_VALUE, "stride of 0");
  token_cache_close(cache);
  cache = counting(1);
  assert_fails(text_windows_init(&windows, cache, 4, 4), STATUS_BAD_VALUE, "needs two");
  token_cache_close(cache);
  assert_fails(token_cache_of(&cache, (int32_t[]){0, 7}, 2, 7), STATUS_BAD_VALUE, "id 7");
}

/* Each label once, with the context that is promised; padding and ids as documented. */
static void check_windows(int64_t tokens, int64_t context, int64_t stride) {
  TokenCache *cache = counting(tokens);
  TextWindows windows;
  int32_t ids[64], labels[64];
  int64_t next = 1;
  assert_ok(text_windows_init(&windows, cache, context, stride));
  for (int64_t w = 0; w < windows.count; w++) {
    const int64_t rows = text_windows_rows(&windows, w), width = w % 2 == 0 ? context : rows;
    const int64_t left = windows.count - w, last = text_windows_rows(&windows, windows.count - 1);
    int64_t counted = 0;
    assert_in_range(rows, 1, context);
    assert_true(rows == context || left == 1); /* the last alone is short, */
    assert_int_equal(text_windows_alike(&windows, w, 3), left > 3 ? 3 : left > 1 && last < context ? left - 1 : left); /* and by itself */
    text_windows_fill(&windows, w, width, ids, labels);
    for (int64_t i = 0; i < width; i++) {
      assert_int_equal(ids[i], i < rows ? w * stride + i : 0);
      if (labels[i] < 0) continue;
      assert_true(i < rows);
      assert_int_equal(labels[i], next++);
      assert_int_equal(labels[i], ids[i] + 1);
      assert_true(w == 0 || i >= context - stride);
      counted++;
    }
    assert_true(counted > 0);
  }
  assert_int_equal(next, tokens);
  assert_int_equal(text_windows_labels(&windows), tokens - 1);
  token_cache_close(cache);
}

static void test_evaluation_windows(void **state) {
  (void)state;
  for (int64_t tokens = 2; tokens < 60; tokens++) {
    for (int64_t context = 1; context < 20; context += 3) {
      for (int64_t stride = 1; stride <= context; stride++) check_windows(tokens, context, stride);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_token),       cmocka_unit_test(test_order),
                                     cmocka_unit_test(test_position_says_all), cmocka_unit_test(test_epochs_differ),
                                     cmocka_unit_test(test_refusals),          cmocka_unit_test(test_evaluation_windows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
