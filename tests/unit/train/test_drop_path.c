/* Stochastic depth in training: which branches are left out, how often, and that nothing else notices: exchange, evaluation. */
#include "train/validate.h"
#include "unit/train/tiny_run.h"

enum { SEEDS = 800, BATCH = 3, OUTCOMES = 8 };

/* Of two blocks the first never leaves anything out; the second's two branches make four outcomes of a sample, each as likely at a rate of
 * 1/2. Of the same sample all passes that leave out the same give the same bits. */
static void branches_of_the_last_block_are_left_out(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 0;
  Session session;
  TaskBatch batch;
  tiny_open(&session, &options);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  batch.count = BATCH;
  static real seen[BATCH][OUTCOMES][TINY_WIDTH];
  int outcomes[BATCH] = {0}, times[BATCH][OUTCOMES] = {{0}}, alike = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    int which[BATCH];
    tape_record(session.tape, true);
    model_drop_path(session.model, 0.5, seed, 0);
    ModelInput input = task_input(session.tape, &batch, session.config);
    const Tensor *encoded = model_encode(session.model, session.tape, &input, &session.plain_layout, NULL, MODEL_ROWS_CLASS);
    tiny_check(tape_status(session.tape));
    assert_int_equal(tensor_count(encoded), BATCH * TINY_WIDTH);
    for (int b = 0; b < BATCH; b++) {
      const real *row = encoded->value + b * TINY_WIDTH;
      int i = 0;
      while (i < outcomes[b] && memcmp(seen[b][i], row, sizeof seen[b][i]) != 0) i++;
      assert_true(i < OUTCOMES);
      if (i == outcomes[b]) memcpy(seen[b][outcomes[b]++], row, sizeof seen[b][i]);
      times[b][which[b] = i]++;
    }
    alike += which[0] == which[1];
    tape_clear(session.tape);
  }
  for (int b = 0; b < BATCH; b++) {
    assert_int_equal(outcomes[b], 4);
    for (int i = 0; i < 4; i++) assert_in_range(times[b][i], SEEDS / 4 - 60, SEEDS / 4 + 60);
  }
  assert_in_range(alike, 1, SEEDS * 3 / 5); /* each sample has draws of its own (outcomes are numbered by their first appearance) */
  session_close(&session);
}

static StepResult first_result(const TrainOptions *options, double *accuracy, int batches) {
  Session session;
  TaskBatch batch;
  StepResult result = {0};
  Validation validation;
  tiny_open(&session, options);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(model_params(session.model));
  for (int i = 0; i < batches; i++) tiny_check(micro_step(&session, &batch, &result));
  tiny_check(validate_run(&session, 0, 0, &validation));
  *accuracy = validation.loss;
  session_close(&session);
  return result;
}

/* Both blocks send the same codes as without, since what the last one leaves out comes after its exchange; the loss differs. */
static void the_exchange_goes_on(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.augment = "none";
  double plain_loss, loss;
  StepResult plain = first_result(&options, &plain_loss, 1);
  options.drop_path = 0.9;
  StepResult dropped = first_result(&options, &loss, 1), again = first_result(&options, &loss, 1);
  assert_true(plain.commitment == dropped.commitment && plain.commitment > 0);
  assert_true(plain.task != dropped.task);
  assert_memory_equal(&dropped, &again, sizeof again);
  assert_true(loss == plain_loss); /* evaluation leaves nothing out */
}

/* Another batch of the same step draws anew. */
static void every_batch_draws_anew(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 0;
  options.augment = "none";
  options.drop_path = 0.9;
  double loss;
  assert_true(first_result(&options, &loss, 1).task != first_result(&options, &loss, 2).task);
  options.drop_path = 0;
  assert_true(first_result(&options, &loss, 1).task == first_result(&options, &loss, 2).task);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(branches_of_the_last_block_are_left_out), cmocka_unit_test(the_exchange_goes_on),
                                     cmocka_unit_test(every_batch_draws_anew)};
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
