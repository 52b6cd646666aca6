/* Texts and their classes as a task: padding says nothing, batches are as wide as they need to be, what is learnt is measured by accuracy
 * and Matthews' correlation, a run goes on bit for bit and leaves a checkpoint that classifies. */
#include "train/codebooks.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_text.h"
#include <math.h>

/* ---------------------------------------------------------------- batches */

static void batches_are_as_wide_as_they_need_to_be(void **state) {
  (void)state;
  TrainOptions options = tiny_table_options(MODEL_GPT2);
  Session session;
  int64_t narrowest = 1000, seen = 0;
  tiny_open(&session, &options);
  for (int64_t step = 0; step < session.data.steps; step++) {
    TaskBatch batch;
    int64_t longest = options.devices[1];
    tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
    for (int i = 0; i < batch.count; i++) longest = batch.lengths[i] > longest ? batch.lengths[i] : longest;
    assert_int_equal(batch.tokens, longest);
    assert_true(batch.tokens <= session.tokens);
    for (int i = 0; i < batch.count; i++)
      for (int64_t t = batch.lengths[i]; t < batch.tokens; t++) /* what codebooks learn from are tokens of texts */
        assert_int_equal(batch.ids[i * batch.tokens + t], batch.ids[i * batch.tokens + t % batch.lengths[i]]);
    if (batch.tokens < narrowest) narrowest = batch.tokens;
  }
  assert_true(narrowest < session.tokens);
  tiny_check(session.task->source->seek(&session, TASK_TEST, 0, 0));
  while (seen < session.data.count[TASK_TEST]) {
    TaskBatch batch;
    tiny_check(session.task->source->next(&session, TASK_TEST, &batch));
    for (int i = 0; i < batch.count; i++) assert_int_equal(batch.lengths[i], batch.lengths[0]);
    seen += batch.count;
  }
  assert_int_equal(seen, TEXTS_TEST);
  session_close(&session);
}

/* A text among longer ones is answered as by itself. */
static void padding_says_nothing(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_table_options(kind);
    Session session;
    TaskBatch batch, alone;
    options.groups = 0;
    tiny_open(&session, &options);
    tape_record(session.tape, false);
    do tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
    while (batch.lengths[0] == batch.tokens);
    Tensor *loss, *together, *single;
    tiny_check(task_lay_plain(&session, batch.tokens));
    together = session.task->head->answer(session.model, session.tape, &batch, &session.plain_layout, NULL, &loss);
    assert_non_null(together);
    alone = batch;
    alone.count = 1;
    alone.tokens = batch.lengths[0];
    tiny_check(task_lay_plain(&session, alone.tokens));
    single = session.task->head->answer(session.model, session.tape, &alone, &session.plain_layout, NULL, &loss);
    assert_non_null(single);
    for (int c = 0; c < 2; c++) assert_float_equal(single->value[c], together->value[c], 1e-5);
    assert_true(fabs((double)(together->value[2] - single->value[0])) > 1e-6); /* another text, another answer */
    session_close(&session);
  }
}

/* K-means begins with as many rows as there are tokens, of short texts too, and with none of them twice. */
static void codebooks_count_tokens_and_no_padding(void **state) {
  (void)state;
  TrainOptions options = tiny_table_options(MODEL_GPT2);
  Session session;
  CodebooksPlan plan;
  int64_t tokens = 0, longest = 0;
  options.batch = 1; /* no text is left out of an epoch */
  options.kmeans_samples = 1 << 20;
  tiny_open(&session, &options);
  tiny_check(session.task->source->seek(&session, TASK_TRAIN, 0, 0));
  for (int64_t step = 0; step < session.data.steps; step++) {
    TaskBatch batch;
    tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
    tokens += batch.lengths[0];
    if (batch.lengths[0] > longest) longest = batch.lengths[0];
  }
  tiny_check(codebooks_plan(&session, &plan));
  assert_true(tokens < TEXTS_TRAIN * longest); /* they differ in length */
  assert_int_equal(plan.count, tokens);
  assert_float_equal(plan.batches, TEXTS_TRAIN, 0);
  session_close(&session);
}

/* Rows that the averages of a codebook count, of all codewords. */
static double start_of_averages(const Session *session) {
  const EmulateSite *site = &session->emulation.site[0];
  double sum = 0;
  for (int64_t k = 0; k < site->book.entries; k++) sum += (double)site->ema.sizes[k];
  return sum;
}

/* Averages start from n = rows of a batch / K: a batch is as wide as its own longest text, whether codebooks are made or read. */
static void averages_start_as_heavy_as_a_batch(void **state) {
  (void)state;
  static const int64_t batches[] = {8, 4 * TEXTS_TRAIN}; /* the second takes all texts at once */
  TrainOptions options = tiny_table_options(MODEL_GPT2);
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
    Session session;
    int64_t rows = 0, steps;
    options.batch = batches[i];
    tiny_open(&session, &options);
    steps = session.data.steps;
    for (int64_t step = 0; step < steps; step++) {
      TaskBatch batch;
      tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
      rows += batch.count * batch.tokens;
    }
    const double mean = (double)rows / (double)steps;
    if (i == 0) assert_true(mean < 0.9 * (double)(options.batch * session.tokens)); /* most are narrower than the longest text */
    assert_float_equal(start_of_averages(&session), mean, 1);
    if (i == 0) tiny_check(tiny_save(&session));
    tiny_check(codebooks_read(&session, options.out));
    assert_float_equal(start_of_averages(&session), mean, 1);
    session_close(&session);
  }
}

/* ---------------------------------------------------------------- measures */

static void matthews_is_that_of_the_four_counts(void **state) {
  (void)state;
  double values[TASK_MEASURES];
  TaskScore score = {.items = 100, .correct = 80, .answers = {{50, 8}, {12, 30}}};
  task_find("cola:x")->report->measure(&score, values);
  double expected = (30.0 * 50 - 8 * 12) / sqrt((30.0 + 8) * (30 + 12) * (50.0 + 8) * (50 + 12));
  assert_float_equal(values[0], 0.8, 1e-12);
  assert_float_equal(values[1], expected, 1e-12);
  score = (TaskScore){.items = 9, .correct = 9, .answers = {{9, 0}, {0, 0}}};
  task_find("cola:x")->report->measure(&score, values);
  assert_true(values[1] == 0); /* nothing varies */
  score = (TaskScore){.items = 9, .correct = 9};
  task_find("cola:x")->report->measure(&score, values);
  assert_true(isnan(values[1])); /* more than two classes */
}

/* ---------------------------------------------------------------- learning */

/* Long and slow enough that all seeds end there, and so all roundings: after 150 steps at 1e-2 some are on their way still. */
static void a_cat_is_found(void **state) {
  (void)state;
  enum { STEPS = 300 };
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_table_options(kind);
    Session session;
    Validation plain, devices;
    double values[TASK_MEASURES];
    options.max_steps = STEPS;
    options.optimizer.rate = 4e-3;
    tiny_open(&session, &options);
    tiny_steps_to(&session, STEPS);
    tiny_check(validate_run(&session, 0, 0, &plain));
    tiny_check(validate_run(&session, 4, 0, &devices));
    session.task->report->measure(&devices.score, values);
    assert_int_equal(plain.samples, TEXTS_TEST);
    if (plain.accuracy < 0.9 || devices.accuracy < 0.85 || values[1] < 0.6)
      fail_msg("accuracy %g plain, %g on devices, correlation %g", plain.accuracy, devices.accuracy, values[1]);
    session_close(&session);
  }
}

static void going_on_gives_the_same_bits(void **state) {
  (void)state;
  TrainOptions options = tiny_table_options(MODEL_LLAMA);
  Session whole;
  tiny_open(&whole, &options);
  tiny_steps_to(&whole, session_epoch_steps(&whole) + 3);
  tiny_assert_goes_on(&whole, &options, 5);
  session_close(&whole);
}

static void the_checkpoint_classifies(void **state) {
  (void)state;
  TrainOptions options = tiny_table_options(MODEL_GPT2), again = tiny_table_options(MODEL_GPT2);
  TrainResult result;
  Session session;
  Validation read;
  char out[256];
  tiny_set_out(&options, out, "classifier");
  tiny_open(&session, &options);
  assert_true(session.report.new_head);
  tiny_check(trainer_run(&session, &result));
  session_close(&session);
  again.model = out;
  again.tokenizer = NULL;
  tiny_check(session_open(&session, &again, SESSION_EVALUATE));
  assert_false(session.report.new_head);
  tiny_check(codebooks_read(&session, out));
  tiny_check(validate_run(&session, 4, 0, &read));
  assert_float_equal(read.loss, result.emulated.loss, 1e-6);
  session_close(&session);
}

static void what_is_for_plain_text_is_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_table_options(MODEL_GPT2);
  Session session;
  options.stride = 4;
  assert_int_equal(session_open(&session, &options, SESSION_TRAIN), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--stride is for text:PATH"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_are_as_wide_as_they_need_to_be), cmocka_unit_test(padding_says_nothing),
      cmocka_unit_test(matthews_is_that_of_the_four_counts),    cmocka_unit_test(a_cat_is_found),
      cmocka_unit_test(going_on_gives_the_same_bits),           cmocka_unit_test(the_checkpoint_classifies),
      cmocka_unit_test(what_is_for_plain_text_is_refused),      cmocka_unit_test(codebooks_count_tokens_and_no_padding),
      cmocka_unit_test(averages_start_as_heavy_as_a_batch),
  };
  return cmocka_run_group_tests(tests, tiny_text_make, tiny_remove);
}
