/* Bins of batches by full-precision attention rate; shares that are drawn, and scores that are the evaluation's; the error of class tokens
 * beside one that is computed here from the model's answers. */
#define bench_fpar_command        tested_bench_fpar_command
#define bench_class_token_command tested_bench_class_token_command
#include "cli/bench_claims.c" /* its measures are inside of it */
#undef bench_fpar_command
#undef bench_class_token_command
#include "unit/train/tiny_run.h"
#include <math.h>

static void bins_hold_equal_parts(void **state) {
  (void)state;
  FparBatch list[10] = {{.fpar = 0}};
  FparBin bin[3];
  for (int i = 0; i < 10; i++)
    list[i] = (FparBatch){.fpar = 0.25 + 0.01 * i, .score = {.loss = i, .samples = 4, .items = 4, .correct = i % 5}};
  claims_fpar_bins(list, 10, 2, bin);
  assert_int_equal(bin[0].score.samples, 20), assert_int_equal(bin[1].score.samples, 20);
  assert_int_equal(bin[0].score.correct, 0 + 1 + 2 + 3 + 4);
  assert_true(fabs(bin[1].score.loss - (5 + 6 + 7 + 8 + 9)) < 1e-12);
  assert_true(bin[0].low == 0.25 && bin[0].high == list[4].fpar && bin[1].low == list[5].fpar && bin[1].high == list[9].fpar);
  claims_fpar_bins(list, 1, 3, bin); /* more bins than batches */
  assert_int_equal(bin[0].score.samples, 4), assert_int_equal(bin[1].score.samples, 0), assert_int_equal(bin[2].score.samples, 0);
}

static void open_evaluated(Session *session) {
  TrainOptions options = tiny_options();
  options.eval_samples = 0;
  options.batch = 5; /* the last batch is smaller */
  tiny_open(session, &options);
}

static void shares_follow_from_the_seed(void **state) {
  (void)state;
  Session session;
  FparBatch *list, *again;
  int64_t count, more;
  open_evaluated(&session);
  tiny_check(claims_fpar(&session, 3, 1, 0, 1, &list, &count));
  tiny_check(claims_fpar(&session, 3, 1, 0, 1, &again, &more));
  assert_int_equal(count, (TINY_TEST + 4) / 5), assert_int_equal(more, count);
  int64_t samples = 0;
  for (int64_t i = 0; i < count; i++) {
    assert_true(list[i].fpar >= 1.0 / 3 - 0.01 && list[i].fpar <= 1);
    assert_true(i == 0 || list[i].fpar >= list[i - 1].fpar);
    assert_true(list[i].fpar == again[i].fpar && list[i].score.loss == again[i].score.loss);
    samples += list[i].score.samples;
  }
  assert_int_equal(samples, TINY_TEST);
  assert_true(list[count - 1].fpar > list[0].fpar);
  free(list), free(again);
  tiny_check(claims_fpar(&session, 3, 1, 7, 2, &list, &count)); /* 5 and 2 samples, twice, each with other shares */
  assert_int_equal(count, 4);
  assert_false(list[0].fpar == list[1].fpar && list[2].fpar == list[3].fpar); /* as if both had the same */
  free(list);
  tiny_check(claims_fpar(&session, 4, 1e6, 7, 1, &list, &count)); /* shares that are as good as even */
  assert_int_equal(count, 2), assert_int_equal(list[0].score.samples + list[1].score.samples, 7);
  assert_true(list[0].fpar == 0.25 && list[1].fpar == 0.25);
  free(list);
  tiny_check(claims_fpar(&session, 1, 1, 0, 1, &list, &count)); /* a device alone is the plain model */
  Validation plain;
  tiny_check(validate_run(&session, 0, 0, &plain));
  double loss = 0;
  for (int64_t i = 0; i < count; i++) assert_true(list[i].fpar == 1), loss += list[i].score.loss;
  assert_true(fabs(loss - plain.score.loss) <= 1e-5 * fabs(loss));
  free(list);
  session_close(&session);
}

/* What the head takes of the first batch: [B, N, W] in the tape's memory. */
static const Tensor *encode(Session *session, const TaskBatch *batch, int devices) {
  const ModelInput input = task_input(session->tape, batch, session->config);
  tiny_check(devices > 1 ? device_map_place(&session->layout, session->config, batch->tokens, devices, session->order)
                         : task_lay_plain(session, batch->tokens));
  emulate_begin_step(&session->emulation, false);
  const Tensor *encoded = model_encode(session->model, session->tape, &input, devices > 1 ? &session->layout : &session->plain_layout,
                                       devices > 1 ? &session->emulation.exchange : NULL, MODEL_ROWS_CLASS);
  assert_non_null(encoded);
  return encoded;
}

static void errors_are_distances(void **state) {
  (void)state;
  enum { DEVICES = 4, PLACES = TINY_BLOCKS + 1, SAMPLES = 3 };
  Session session;
  ClassTokenError errors[(DEVICES - 1) * PLACES];
  open_evaluated(&session);
  tiny_check(claims_class_token(&session, DEVICES, SAMPLES, errors));
  for (int n = 2; n <= DEVICES; n++) {
    const ClassTokenError *of = errors + (n - 2) * PLACES;
    TaskBatch batch;
    double one = 0, mean = 0;
    assert_true(of[0].one == 0 && of[0].mean == 0); /* nothing was attended to yet */
    for (int place = 1; place < PLACES; place++) assert_true(of[place].one > 0 && of[place].mean <= of[place].one * (1 + 1e-9));
    tape_record(session.tape, false);
    tiny_check(session.task->source->seek(&session, TASK_TEST, 0, 0));
    tiny_check(session.task->source->next(&session, TASK_TEST, &batch));
    batch.count = SAMPLES;
    const Tensor *plain = encode(&session, &batch, 1), *devices = encode(&session, &batch, n);
    for (int64_t b = 0; b < SAMPLES; b++)
      for (int64_t i = 0; i < TINY_WIDTH; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) {
          const double error = (double)devices->value[(b * n + k) * TINY_WIDTH + i] - (double)plain->value[b * TINY_WIDTH + i];
          one += error * error / n / SAMPLES;
          sum += error / n;
        }
        mean += sum * sum / SAMPLES;
      }
    assert_true(fabs(of[TINY_BLOCKS].one - one) <= 1e-5 * one);
    assert_true(fabs(of[TINY_BLOCKS].mean - mean) <= 1e-5 * one);
    tape_clear(session.tape);
  }
  session_close(&session);
}

static void one_class_token_is_refused(void **state) {
  (void)state;
  Session session;
  ClassTokenError errors[TINY_BLOCKS + 1];
  TrainOptions options = tiny_options();
  options.class_token = CLASS_SINGLE;
  tiny_open(&session, &options);
  assert_int_equal(claims_class_token(&session, 2, 1, errors), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "distributed"));
  session_close(&session);
}

int main(void) {
  threads_start(1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(bins_hold_equal_parts), cmocka_unit_test(shares_follow_from_the_seed),
                                     cmocka_unit_test(errors_are_distances), cmocka_unit_test(one_class_token_is_refused)};
  int failed = cmocka_run_group_tests(tests, tiny_make, tiny_remove);
  threads_stop();
  return failed;
}
