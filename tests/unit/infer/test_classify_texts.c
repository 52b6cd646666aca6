/* Texts to classify through real processes: of any lengths in one call, each answered as by itself and under its own number; accuracy,
 * correlation and loss as they follow from the logits. */
#include "infer/evaluate.h"
#include "sample_fixture.h"
#include "sample_text.h"
#include "unit/float_equal.h"

enum { CLASSES = 2, CONTEXT = 48, TEXTS = 23, VOCABULARY = 512 };
static const double CLOSE = 1e-5;

/* One token a byte. */
static Status encode(void *context, const char *text, size_t bytes, TokenList *out) {
  (void)context;
  for (size_t i = 0; i < bytes; i++) TRY(token_list_add(out, (unsigned char)text[i]));
  return STATUS_OK;
}

static const TextEncoder encoder = {.encode = encode, .vocabulary = VOCABULARY, .begin = -1, .separator = 300};

typedef struct Fixture {
  SampleFixture base;
  TokenSplit split;
  Leader *leader;
  Texts texts;
  real logits[TEXTS * CLASSES];
  int taken[TEXTS];
} Fixture;

/* Lengths from 1 to beyond the context, in no order; some are pairs. */
static void add_texts(Fixture *f) {
  char text[CONTEXT + TEXTS + 1];
  for (int i = 0; i < TEXTS; i++) {
    int length = i % 8 == 3 ? CONTEXT + i : 1 + i * 7 % TEXTS;
    for (int j = 0; j < length; j++) text[j] = (char)('a' + (i * 31 + j * j * 7) % 26);
    text[length] = 0;
    assert_int_equal(texts_add(&f->texts, &encoder, text, i % 4 == 3 ? "pair" : NULL, CONTEXT), STATUS_OK);
  }
}

static void open_fixture(Fixture *f, const char *model, int nodes, const char *list, int64_t batch) {
  ModelConfig config = {0};
  *f = (Fixture){.leader = NULL};
  assert_int_equal(sample_config(&config, model, 4, 50, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  add_texts(f);
  LeaderOptions options = {.batch_max = batch, .tokens_max = f->texts.longest, .timeout = 20, .threads = 1};
  assert_int_equal(token_split_init(&f->split, nodes, list), STATUS_OK);
  if (leader_start_text(&f->leader, &f->base.weights, &f->split, &options) != STATUS_OK) fail_msg("%s", status_message());
}

static void close_fixture(Fixture *f) {
  leader_stop(f->leader);
  sample_fixture_no_children();
  texts_release(&f->texts);
  sample_fixture_close(&f->base);
}

static Status take(void *context, int64_t index, const real *logits, double seconds) {
  Fixture *f = context;
  assert_true(seconds >= 0 && index >= 0 && index < TEXTS);
  f->taken[index]++;
  memcpy(f->logits + index * CLASSES, logits, CLASSES * sizeof *logits);
  return STATUS_OK;
}

static void compare_texts(Fixture *f, int64_t batch) {
  double seconds;
  memset(f->taken, 0, sizeof f->taken);
  if (texts_classify(f->leader, &f->texts, batch, true, take, f, &seconds) != STATUS_OK) fail_msg("%s", status_message());
  for (int64_t i = 0; i < TEXTS; i++) {
    SampleText expected;
    int64_t counts[SAMPLE_NODES], tokens = texts_length(&f->texts, i);
    int nodes = token_split_counts(&f->split, tokens, counts);
    const int32_t *ids = f->texts.tokens.ids + f->texts.begin[i];
    assert_int_equal(f->taken[i], 1);
    assert_int_equal(sample_text(&f->base.sample, nodes, counts, ids, NULL, 1, tokens, &expected), STATUS_OK);
    sample_fixture_close_to(f->logits + i * CLASSES, expected.answer.logits, CLASSES, CLOSE, 1e-3);
    sample_text_release(&expected);
  }
}

static void each_text_is_answered_as_by_itself(void **state) {
  (void)state;
  const char *const splits[] = {NULL, "4,1,2"};
  for (int s = 0; s < 2; s++) {
    Fixture f;
    open_fixture(&f, "tiny-llama:2", 3, splits[s], 5);
    assert_int_equal(f.texts.longest, CONTEXT);
    assert_int_equal(f.texts.shortest, 1);
    assert_true(f.texts.cut > 0 && f.texts.cut < TEXTS / 2);
    compare_texts(&f, 5);
    compare_texts(&f, 1);
    close_fixture(&f);
  }
}

static double loss_at(const real *z, int32_t label, double temperature) {
  return log(exp((double)z[0] / temperature) + exp((double)z[1] / temperature)) - (double)z[label] / temperature;
}

/* A row of each text, in whatever order they were answered. */
static void check_rows(const Fixture *f, const char *rows, const int32_t *labels, double temperature) {
  const char head[] = "sample,items,correct,loss,tempered_loss\n";
  bool seen[TEXTS] = {false};
  assert_int_equal(strncmp(rows, head, strlen(head)), 0);
  rows += strlen(head);
  for (int i = 0; i < TEXTS; i++) {
    int sample, items, correct, read = 0;
    double loss, tempered;
    assert_int_equal(sscanf(rows, "%d,%d,%d,%lf,%lf\n%n", &sample, &items, &correct, &loss, &tempered, &read), 5);
    assert_in_range(sample, 0, TEXTS - 1);
    assert_false(seen[sample]);
    seen[sample] = true;
    const real *z = f->logits + sample * CLASSES;
    assert_int_equal(items, 1);
    assert_int_equal(correct, (z[1] > z[0]) == labels[sample]);
    assert_float_equal(loss, loss_at(z, labels[sample], 1), 1e-5);
    assert_float_equal(tempered, loss_at(z, labels[sample], temperature), 1e-5);
    rows += read;
  }
  assert_string_equal(rows, "");
}

static void what_is_counted_follows_from_the_logits(void **state) {
  (void)state;
  Fixture f;
  char *text;
  size_t size;
  LabelEvaluation e;
  int32_t labels[TEXTS];
  int64_t correct = 0, answers[2][2] = {{0}};
  double loss = 0;
  for (int i = 0; i < TEXTS; i++) labels[i] = i % 3 == 0;
  open_fixture(&f, "tiny-llama:2", 4, NULL, 8);
  compare_texts(&f, 8);
  for (int i = 0; i < TEXTS; i++) {
    const real *z = f.logits + i * CLASSES;
    int answer = z[1] > z[0];
    correct += answer == labels[i];
    answers[labels[i]][answer]++;
    loss += loss_at(z, labels[i], 1);
  }
  FILE *rows = open_memstream(&text, &size);
  assert_non_null(rows);
  assert_int_equal(evaluate_labels_run(f.leader, &f.texts, labels, 8, true, rows, &e), STATUS_OK);
  assert_int_equal(fclose(rows), 0);
  check_rows(&f, text, labels, e.scores.temperature);
  free(text);
  assert_int_equal(e.scores.samples, TEXTS);
  assert_int_equal(e.scores.correct1, correct);
  for (int i = 0; i < 4; i++) assert_int_equal(e.answers[i / 2][i % 2], answers[i / 2][i % 2]);
  assert_true(fabs(e.scores.loss - loss / TEXTS) < 1e-6);
  assert_true(fabs(e.accuracy - (double)correct / TEXTS) < 1e-12);
  double tn = (double)answers[0][0], fp = (double)answers[0][1], fn = (double)answers[1][0], tp = (double)answers[1][1];
  double scale = sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)), expected = scale > 0 ? (tp * tn - fp * fn) / scale : 0;
  assert_true(fabs(e.matthews - expected) < 1e-12);
  close_fixture(&f);
}

static void a_correlation_is_of_two_classes(void **state) {
  (void)state;
  Fixture f;
  LabelEvaluation e = {.matthews = 7};
  int32_t labels[TEXTS];
  for (int i = 0; i < TEXTS; i++) labels[i] = i % 3;
  open_fixture(&f, "tiny-llama:3", 2, NULL, 8);
  assert_int_equal(evaluate_labels_run(f.leader, &f.texts, labels, 8, true, NULL, &e), STATUS_OK);
  assert_int_equal(e.scores.samples, TEXTS);
  assert_true(isfinite(e.accuracy) && isfinite(e.scores.loss));
  assert_true(isnan(e.matthews));
  for (int i = 0; i < 4; i++) assert_int_equal(e.answers[i / 2][i % 2], 0);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_text_is_answered_as_by_itself),
                                     cmocka_unit_test(what_is_counted_follows_from_the_logits),
                                     cmocka_unit_test(a_correlation_is_of_two_classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
