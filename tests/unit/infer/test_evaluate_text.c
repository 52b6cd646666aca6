/* Perplexity through real processes: the sum of what an emulation of the same devices finds in each window by itself, whatever the batch;
 * and of a model that knows its text by heart. */
#include "infer/evaluate.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/float_equal.h"
#include "unit/token_cache_of.h"

enum { CONTEXT = 16, TOKENS = 100 };
static const char stories[] = "tests/golden/stories260K";

typedef struct Fixture {
  SampleFixture base;
  TokenSplit split;
  Vocabulary vocabulary;
  TokenCache *cache;
  int32_t ids[TOKENS];
} Fixture;

/* A piece of more than a space that begins with one. */
static int32_t space_piece(const Tokenizer *tokenizer) {
  for (int32_t id = 3; id < tokenizer_count(tokenizer); id++) {
    size_t size;
    const char *piece = tokenizer_piece(tokenizer, id, &size);
    if (size > 1 && *piece == ' ') return id;
  }
  fail_msg("no piece begins with a space");
  return -1;
}

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny-gpt2", 4, 50, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  assert_int_equal(vocabulary_open(&f->vocabulary, stories, &f->base.sample.config), STATUS_OK);
  sample_ids(&f->base.sample.config, 8, TOKENS, f->ids);
  f->ids[40] = 1; /* a document begins, with the space that this vocabulary puts in front */
  f->ids[41] = space_piece(f->vocabulary.tokenizer);
  assert_int_equal(token_cache_of(&f->cache, f->ids, TOKENS, f->base.sample.config.vocabulary), STATUS_OK);
}

static void close_fixture(Fixture *f) {
  token_cache_close(f->cache);
  vocabulary_close(&f->vocabulary);
  sample_fixture_close(&f->base);
}

static Leader *start(Fixture *f, int nodes, int64_t batch) {
  LeaderOptions options = {.batch_max = batch, .tokens_max = CONTEXT, .timeout = 20, .threads = 1};
  Leader *leader;
  assert_int_equal(token_split_init(&f->split, nodes, NULL), STATUS_OK);
  if (leader_start_text(&leader, &f->base.weights, &f->split, &options) != STATUS_OK) fail_msg("%s", status_message());
  return leader;
}

/* Window by window, with labels from the text itself: token i + 1 is what token i predicts. The last one has fewer tokens, which the nodes
 * share out as they are, but for padding where some would have none. */
static double emulate(Fixture *f, int nodes, int64_t stride, int64_t *counted) {
  int64_t counts[SAMPLE_NODES], known = 1; /* tokens below are counted; the first has none before it */
  double loss = 0;
  *counted = 0;
  for (int64_t begin = 0; known < TOKENS; begin += stride) {
    int32_t ids[CONTEXT] = {0}, labels[CONTEXT];
    SampleText text;
    const int64_t left = TOKENS - 1 - begin, rows = left < CONTEXT ? left : CONTEXT, width = rows < nodes ? nodes : rows;
    layout_even_counts(width, nodes, counts);
    for (int64_t i = 0; i < width; i++) {
      int64_t next = begin + i + 1;
      labels[i] = next < TOKENS && next >= known ? f->ids[next] : -1;
      if (begin + i < TOKENS - 1) ids[i] = f->ids[begin + i];
    }
    assert_int_equal(sample_text(&f->base.sample, nodes, counts, ids, labels, 1, width, &text), STATUS_OK);
    loss += text.loss;
    *counted += text.counted;
    sample_text_release(&text);
    known = begin + CONTEXT + 1;
  }
  return loss;
}

static void windows_through_processes_equal_the_emulation(void **state) {
  (void)state;
  Fixture f;
  const struct {
    int nodes;
    int64_t stride, batch;
  } cases[] = {{4, CONTEXT, 3}, {4, 5, 4}, {1, CONTEXT, 1}, {3, 11, 64}};
  open_fixture(&f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    TextWindows windows;
    TextEvaluation evaluation;
    int64_t counted;
    double loss = emulate(&f, cases[i].nodes, cases[i].stride, &counted);
    assert_int_equal(text_windows_init(&windows, f.cache, CONTEXT, cases[i].stride), STATUS_OK);
    Leader *leader = start(&f, cases[i].nodes, cases[i].batch);
    if (evaluate_text_run(leader, &f.vocabulary, &windows, 0, cases[i].batch, true, NULL, &evaluation) != STATUS_OK)
      fail_msg("%s", status_message());
    leader_stop(leader);
    assert_int_equal(counted, TOKENS - 1);
    assert_int_equal(evaluation.score.counted, TOKENS - 1);
    assert_int_equal(evaluation.windows, windows.count);
    assert_float_equal(evaluation.score.loss, loss, 1e-5 * loss);
    assert_float_equal(evaluation.perplexity, exp(loss / (TOKENS - 1)), 1e-4 * exp(loss / (TOKENS - 1)));
    int64_t bytes = 0;
    for (int t = 1; t < TOKENS; t++) {
      size_t size;
      bool text = f.ids[t] != 1 && f.ids[t] != 2, first = f.ids[t - 1] == 1 || f.ids[t - 1] == 2; /* begin and end */
      const char *piece = tokenizer_piece(f.vocabulary.tokenizer, f.ids[t], &size);
      assert_non_null(piece);
      bytes += text ? (int64_t)size - (first && *piece == ' ') : 0;
    }
    assert_int_equal(evaluation.bytes, bytes);
    assert_float_equal(evaluation.bits_per_byte, loss / log(2) / (double)evaluation.bytes, 1e-4);
  }
  close_fixture(&f);
}

/* Rows of requests, each behind the other, whose sums are the evaluation's. */
static void check_rows(const char *rows, int64_t windows, int64_t batch, const TextEvaluation *evaluation) {
  int64_t sample = 0, items = 0, correct = 0;
  double loss = 0;
  const char head[] = "sample,items,correct,loss\n";
  assert_int_equal(strncmp(rows, head, strlen(head)), 0);
  for (rows += strlen(head); sample < windows; sample += batch) {
    long long numbers[3];
    double nats;
    int read = 0;
    assert_int_equal(sscanf(rows, "%lld,%lld,%lld,%lf\n%n", &numbers[0], &numbers[1], &numbers[2], &nats, &read), 4);
    assert_int_equal(numbers[0], sample);
    items += numbers[1];
    correct += numbers[2];
    loss += nats;
    rows += read;
  }
  assert_string_equal(rows, "");
  assert_int_equal(items, evaluation->score.counted);
  assert_int_equal(correct, evaluation->score.correct);
  assert_float_equal(loss, evaluation->score.loss, 1e-6 * loss);
}

static void only_some_windows(void **state) {
  (void)state;
  Fixture f;
  TextWindows windows;
  TextEvaluation evaluation;
  char *text;
  size_t size;
  open_fixture(&f);
  assert_int_equal(text_windows_init(&windows, f.cache, CONTEXT, CONTEXT), STATUS_OK);
  Leader *leader = start(&f, 2, 2);
  FILE *rows = open_memstream(&text, &size);
  assert_non_null(rows);
  assert_int_equal(evaluate_text_run(leader, &f.vocabulary, &windows, 3, 2, true, rows, &evaluation), STATUS_OK);
  assert_int_equal(fclose(rows), 0);
  assert_int_equal(evaluation.windows, 3);
  assert_int_equal(evaluation.score.counted, 3 * CONTEXT);
  check_rows(text, 3, 2, &evaluation);
  free(text);
  leader_stop(leader);
  close_fixture(&f);
}

static void nothing_counted_is_no_perplexity(void **state) {
  (void)state;
  Fixture f;
  TextEvaluation evaluation = {.perplexity = 7, .bits_per_byte = 7};
  open_fixture(&f);
  const TextWindows none = {.cache = f.cache, .context = CONTEXT, .stride = CONTEXT};
  Leader *leader = start(&f, 2, 2);
  assert_int_equal(evaluate_text_run(leader, &f.vocabulary, &none, 0, 2, true, NULL, &evaluation), STATUS_OK);
  leader_stop(leader);
  assert_int_equal(evaluation.windows, 0);
  assert_int_equal(evaluation.score.counted, 0);
  assert_true(evaluation.perplexity == 0 && evaluation.bits_per_byte == 0);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(windows_through_processes_equal_the_emulation), cmocka_unit_test(only_some_windows),
                                     cmocka_unit_test(nothing_counted_is_no_perplexity)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
