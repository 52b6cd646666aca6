/* The training loop on a run in miniature: determinism, accumulation, learning, what a plan says, what a run leaves behind, and what it
 * does when numbers stop being numbers. */
#include "autograd/kernels/matmul.h"
#include "train/plan.c"
#include "train/state.h"
#include "unit/float_equal.h"
#include "unit/param_named.h"
#include "unit/train/tiny_run.h"
#include <math.h>

/* ---------------------------------------------------------------- determinism */

static void two_runs_are_the_same(const TrainOptions *options, int threads) {
  assert_int_equal(threads_start(threads), STATUS_OK);
  Session first, second;
  tiny_open(&first, options);
  tiny_steps(&first, 7);
  tiny_open(&second, options);
  tiny_steps(&second, 7);
  tiny_assert_same(&first, &second);
  session_close(&second);
  TrainOptions other = *options;
  other.seed++;
  tiny_open(&second, &other);
  tiny_steps(&second, 7);
  assert_memory_not_equal(model_params(first.model)->values, model_params(second.model)->values,
                          (size_t)model_params(first.model)->total * sizeof(real));
  session_close(&first);
  session_close(&second);
  threads_stop();
}

static void one_seed_gives_one_result(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.mixup = 0.2;
  options.codebook_decay = 0.5; /* so that codewords die */
  options.dead_below = 0.5;
  options.optimizer.average = 0.99;
  for (int threads = 1; threads <= 2; threads++) two_runs_are_the_same(&options, threads);
}

/* What workers prepare depends on the place in the data alone. */
static void the_number_of_workers_changes_nothing(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session one, three;
  tiny_open(&one, &options);
  tiny_steps(&one, 7);
  options.workers = 3;
  tiny_open(&three, &options);
  tiny_steps(&three, 7);
  tiny_assert_same(&one, &three);
  session_close(&one);
  session_close(&three);
}

/* ---------------------------------------------------------------- gradients */

static void copy_gradients(Session *session, real *to) {
  memcpy(to, model_params(session->model)->grads, (size_t)model_params(session->model)->total * sizeof(real));
}

/* The gradient of a batch of 8, and half the sum of those of its halves. */
static void accumulated_batches_sum_to_the_whole_one(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 0;
  options.augment = "none";
  Session session;
  TaskBatch batch;
  StepResult whole, half;
  tiny_open(&session, &options);
  ParamSet *params = model_params(session.model);
  real *expected = malloc((size_t)params->total * sizeof *expected);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(params);
  tiny_check(micro_step(&session, &batch, &whole));
  copy_gradients(&session, expected);
  param_zero_grads(params);
  double loss = 0;
  int64_t correct = 0;
  for (int part = 0; part < 2; part++) {
    TaskBatch piece = batch;
    piece.count = 4;
    piece.pixels += part * 4 * 3 * TINY_SIDE * TINY_SIDE;
    piece.labels += part * 4;
    tiny_check(micro_step(&session, &piece, &half));
    loss += half.loss / 2;
    correct += half.correct;
  }
  double largest = 0;
  for (int64_t i = 0; i < params->total; i++) {
    largest = fmax(largest, fabs((double)expected[i]));
    assert_float_equal((double)params->grads[i] / 2, (double)expected[i], 2e-6 + 1e-4 * fabs((double)expected[i]));
  }
  assert_true(largest > 1e-2);
  assert_float_equal(loss, whole.loss, 1e-5);
  assert_int_equal(correct, whole.correct);
  free(expected);
  session_close(&session);
}

/* The loss that is reported is task + beta commitment, and beta's gradient is felt. */
static void the_commitment_is_weighed_in(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.commitment_weight = 0.25;
  Session session;
  TaskBatch batch;
  StepResult result;
  tiny_open(&session, &options);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(model_params(session.model));
  tiny_check(micro_step(&session, &batch, &result));
  assert_true(result.commitment > 0);
  assert_float_equal(result.loss, result.task + 0.25 * result.commitment, 1e-5 * result.loss);
  session_close(&session);
}

/* ---------------------------------------------------------------- learning */

/* The mean loss of some steps at the session's rate times `factor`. */
static double mean_task_loss(Session *session, int steps, double factor) {
  double sum = 0, norm;
  for (int i = 0; i < steps; i++) {
    TaskBatch batch;
    StepResult result;
    param_zero_grads(model_params(session->model));
    tiny_check(session->task->source->next(session, TASK_TRAIN, &batch));
    tiny_check(micro_step(session, &batch, &result));
    tiny_check(optimizer_step(&session->optimizer, factor, 1, &norm));
    sum += result.task / steps;
  }
  return sum;
}

/* Four kinds of images that differ plainly: chance among them is log 4 = 1.39. The rate falls at the end: at the full one the loss leaps to
 * 1 now and then, and the last bit of a product decides when. */
static void coloured_squares_are_learnt(void **state) {
  (void)state;
  for (int groups = 0; groups <= 4; groups += 4) {
    TrainOptions options = tiny_options();
    options.groups = groups;
    options.augment = "none";
    Session session;
    Validation plain, emulated;
    tiny_open(&session, &options);
    double first = mean_task_loss(&session, 5, 1);
    mean_task_loss(&session, 120, 1);
    mean_task_loss(&session, 40, 0.1);
    double last = mean_task_loss(&session, 5, 0.1);
    if (!(first > 2 && last < 0.1)) fail_msg("%d groups: the loss went from %g to %g", groups, first, last);
    tiny_check(validate_run(&session, 0, 0, &plain));
    assert_int_equal(plain.samples, TINY_TEST);
    if (groups > 0) tiny_check(validate_run(&session, 4, 10, &emulated));
    if (groups > 0) assert_int_equal(emulated.samples, 10);
    if (groups > 0 && emulated.accuracy < 0.7) fail_msg("4 devices: %g of the test images", emulated.accuracy);
    if (groups == 0 && plain.accuracy < 0.9) fail_msg("plain: %g of the test images", plain.accuracy);
    session_close(&session);
  }
}

/* Evaluation looks, and leaves the run as it was: with the averaged weights, too. */
static void evaluation_leaves_no_trace(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.optimizer.average = 0.9;
  Session watched, alone;
  Validation first, again;
  tiny_open(&watched, &options);
  tiny_open(&alone, &options);
  tiny_steps(&watched, 3);
  tiny_steps(&alone, 3);
  tiny_check(validate_run(&watched, 3, 0, &first));
  tiny_check(validate_run(&watched, 0, 5, &again));
  tiny_check(validate_run(&watched, 3, 0, &again));
  assert_memory_equal(&first, &again, sizeof first);
  tiny_steps(&watched, 3);
  tiny_steps(&alone, 3);
  tiny_assert_same(&watched, &alone);
  session_close(&watched);
  session_close(&alone);
}

/* ---------------------------------------------------------------- plan */

static void a_plan_is_what_a_step_takes(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.devices[0] = options.devices[1] = 4;
  options.map = COUNTS_EVEN;
  Session session, untouched;
  TrainPlan plan;
  tiny_open(&session, &options);
  tiny_open(&untouched, &options);
  size_t fitted = tape_peak_bytes(session.tape); /* by K-means: smaller than a step */
  tiny_check(plan_make(&session, &plan));
  assert_true((double)fitted < plan.activations);
  tiny_check(session.task->source->seek(&session, TASK_TRAIN, 0, 0));
  tiny_step(&session); /* the first draws no noise yet, and factorises its moments */
  matmul_reset_count();
  tiny_step(&session);
  if (matmul_counted().flops != plan.step_flops) fail_msg("planned %g, took %g", plan.step_flops, matmul_counted().flops);
  tiny_steps(&untouched, 2);
  tiny_assert_same(&session, &untouched); /* planning left no trace */
  assert_int_equal(tape_peak_bytes(session.tape), (size_t)plan.activations);
  assert_int_equal(tape_peak_bytes(untouched.tape), (size_t)plan.activations);
  assert_true(plan.parameters == (double)param_count_numbers(model_params(session.model)));
  assert_true(plan.weights == (double)((size_t)model_params(session.model)->total * sizeof(real)));
  double copied = REAL_IS_DOUBLE ? plan.weights : 0; /* else its weights are mapped */
  assert_true(plan.selftest > copied && plan.selftest <= copied + plan.codebooks);
  assert_true(plan.forward_flops > 0 && plan.step_flops > 2.5 * plan.forward_flops);
  session_close(&session);
  session_close(&untouched);
}

static void a_plain_plan_counts_every_product(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 0;
  Session session;
  TrainPlan plan;
  tiny_open(&session, &options);
  tiny_check(plan_make(&session, &plan));
  tiny_check(session.task->source->seek(&session, TASK_TRAIN, 0, 0));
  matmul_reset_count();
  tiny_step(&session);
  assert_true(matmul_counted().flops == plan.step_flops);
  assert_int_equal(tape_peak_bytes(session.tape), (size_t)plan.activations);
  assert_true((plan.selftest == 0 || REAL_IS_DOUBLE) && plan.codebooks == 0); /* the rest of its self-test is mapped */
  session_close(&session);
}

/* ---------------------------------------------------------------- what a run leaves */

static int64_t rows_of_metrics(const char *path) {
  size_t size;
  char *text = tiny_read(path, &size);
  int64_t lines = 0;
  for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
  free(text);
  return lines - 1; /* its header */
}

static void a_run_leaves_a_whole_checkpoint(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  char out[256];
  tiny_set_out(&options, out, "run");
  options.optimizer.average = 0.9;
  Session session;
  TrainResult result;
  tiny_open(&session, &options);
  tiny_check(trainer_run(&session, &result));
  assert_int_equal(result.steps, 12);
  assert_int_equal(result.plain.samples, 8);
  assert_int_equal(result.emulated.samples, 8);
  assert_true(isfinite(result.loss));
  static const char *const FILES[] = {
      "config.json", "preprocessor_config.json",  "model.safetensors", "selftest.safetensors", "metrics.csv",
      "curves.png",  "training/state.safetensors"};
  for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
    char name[64];
    snprintf(name, sizeof name, "run/%s", FILES[i]);
    if (!files_exists(tiny_path(name))) fail_msg("%s is missing", name);
  }
  assert_int_equal(rows_of_metrics(tiny_path("run/metrics.csv")), 3 + 3); /* intervals of 4; epochs end at 5, 10, the run at 12 */

  /* The exported weights are the averaged ones, with the codebooks beside them. */
  ModelConfig config;
  Model *model;
  tiny_check(config_load(&config, options.out));
  tiny_check(model_new(&model, &config));
  tiny_check(param_allocate(model_params(model), false));
  tiny_check(checkpoint_load_params(model, options.out, NULL, NULL));
  for (int64_t i = 0; i < model_params(model)->total; i++)
    assert_true(model_params(model)->values[i] == (real)(float)session.optimizer.average[i]);
  size_t numbers = tiny_codeword_count(&session);
  real *codewords = malloc(numbers * sizeof *codewords);
  tiny_check(checkpoint_load_codebooks(&config, options.out, codewords));
  for (size_t i = 0; i < numbers; i++) assert_true(codewords[i] == (real)(float)session.emulation.codewords[i]);
  free(codewords);
  model_free(model);
  config_release(&config);
  session_close(&session);
}

/* A column of the intervals' rows (not of the evaluations', which have no loss), at most `max` of them; returns how many there are. */
static int read_intervals(const char *path, const char *column, double *values, int max) {
  size_t size;
  int at = 0, wanted = -1, rows = 0;
  char *text = tiny_read(path, &size), *rest = text, *line = strsep(&rest, "\n"), *field;
  for (char *names = line; (field = strsep(&names, ",")) != NULL; at++)
    if (strcmp(field, column) == 0) wanted = at;
  assert_true(wanted >= 0);
  while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
    bool interval = true;
    for (at = 0; (field = strsep(&line, ",")) != NULL; at++) {
      if (at == 2 && *field == '\0') interval = false; /* step, seconds, loss */
      if (at == wanted && interval && rows < max) values[rows] = strtod(field, NULL);
    }
    rows += interval;
  }
  free(text);
  return rows;
}

/* What is said of codes is said of all steps since the line before, whether there was an evaluation between them or not. */
static void an_evaluation_takes_no_codes_away(void **state) {
  (void)state;
  static const char *const COLUMNS_OF_CODES[] = {"codebook_perplexity", "codebook_dead", "codewords_revived"};
  TrainOptions options = tiny_options();
  char often[256], once[256], path[300];
  options.codebook_decay = options.dead_below = 0.5; /* so that codewords die */
  for (int run = 0; run < 2; run++) {
    Session session;
    TrainResult result;
    options.eval_every = run == 0 ? 1 : 100; /* after steps 5, 10 and 12; after the last alone */
    tiny_set_out(&options, run == 0 ? often : once, run == 0 ? "often" : "once");
    tiny_open(&session, &options);
    tiny_check(trainer_run(&session, &result));
    session_close(&session);
  }
  for (int column = 0; column < 3; column++) {
    double with[3], without[3];
    snprintf(path, sizeof path, "%s/metrics.csv", often);
    assert_int_equal(read_intervals(path, COLUMNS_OF_CODES[column], with, 3), 3);
    snprintf(path, sizeof path, "%s/metrics.csv", once);
    assert_int_equal(read_intervals(path, COLUMNS_OF_CODES[column], without, 3), 3);
    for (int row = 0; row < 3; row++)
      if (with[row] != without[row])
        fail_msg("%s, interval %d: %g, without an evaluation in it %g", COLUMNS_OF_CODES[column], row, with[row], without[row]);
    assert_true(column < 2 || with[1] > 0); /* some were revived */
  }
}

/* ---------------------------------------------------------------- not a number */

static void assert_says(const char *words) {
  if (strstr(status_message(), words) == NULL) fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

/* Weights that are finite, but whose products are not: the first tensor that suffered is named. */
static void the_tensor_that_overflowed_is_named(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  TaskBatch batch;
  StepResult result;
  tiny_open(&session, &options);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  Param *weight = param_named(model_params(session.model), "vit.encoder.layer.0.intermediate.dense.weight");
  real huge = REAL_IS_DOUBLE ? (real)1e308 : (real)3e38;
  for (int64_t i = 0; i < tensor_count(&weight->tensor); i++) weight->tensor.value[i] = huge;
  assert_int_equal(micro_step(&session, &batch, &result), STATUS_NUMERIC);
  assert_says("step 1");
  assert_says(", 48] of operation "); /* the hidden numbers themselves are not kept */
  assert_says("\"mlp\"");
  session_close(&session);
}

static void a_loss_that_is_no_number_ends_the_run(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  char out[256];
  tiny_set_out(&options, out, "nan");
  Session session;
  TrainResult result;
  size_t weights_size, state_size;
  tiny_open(&session, &options);
  tiny_steps(&session, 2);
  tiny_check(tiny_save(&session));
  char *weights = tiny_read(tiny_path("nan/model.safetensors"), &weights_size);
  char *kept = tiny_read(tiny_path("nan/training/state.safetensors"), &state_size);
  Param *bias = param_named(model_params(session.model), "vit.encoder.layer.1.intermediate.dense.bias");
  assert_non_null(bias);
  bias->tensor.value[5] = (real)NAN;
  assert_int_equal(trainer_run(&session, &result), STATUS_NUMERIC);
  assert_says("step 3");
  assert_says("the weight vit.encoder.layer.1.intermediate.dense.bias itself");
  size_t size;
  char *now = tiny_read(tiny_path("nan/model.safetensors"), &size);
  assert_int_equal(size, weights_size);
  assert_memory_equal(now, weights, size);
  free(now);
  now = tiny_read(tiny_path("nan/training/state.safetensors"), &size);
  assert_int_equal(size, state_size);
  assert_memory_equal(now, kept, size);
  free(now);
  free(weights);
  free(kept);
  assert_int_equal(tiny_save(&session), STATUS_NUMERIC); /* nor would such weights be written over good ones */
  assert_non_null(strstr(status_message(), "vit.encoder.layer.1.intermediate.dense.bias"));
  session_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_seed_gives_one_result),
      cmocka_unit_test(the_number_of_workers_changes_nothing),
      cmocka_unit_test(accumulated_batches_sum_to_the_whole_one),
      cmocka_unit_test(the_commitment_is_weighed_in),
      cmocka_unit_test(coloured_squares_are_learnt),
      cmocka_unit_test(evaluation_leaves_no_trace),
      cmocka_unit_test(a_plan_is_what_a_step_takes),
      cmocka_unit_test(a_plain_plan_counts_every_product),
      cmocka_unit_test(a_run_leaves_a_whole_checkpoint),
      cmocka_unit_test(an_evaluation_takes_no_codes_away),
      cmocka_unit_test(the_tensor_that_overflowed_is_named),
      cmocka_unit_test(a_loss_that_is_no_number_ends_the_run),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
