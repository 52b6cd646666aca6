/* Timed steps: samples that are kept, figures that fit each other, a profile that adds up; and which rows the noise moments of a large
 * batch come from. */
#define bench_step_command tested_bench_step_command
#include "cli/bench_step.c" /* its steps are inside of it */
#undef bench_step_command
#include "train/plan.c"
#include "unit/float_equal.h"
#include "unit/train/tiny_run.h"

enum { STEPS = 3 };

static TrainOptions bench_options(int64_t groups, int64_t batch) {
  TrainOptions options = tiny_options();
  options.dataset = "synthetic:32x32:100:640";
  options.init = "random";
  options.augment = "none";
  options.groups = groups;
  options.batch = batch;
  return options;
}

static void open_and_run(BenchStep *bench, Session *session, bool plain, bool forward) {
  tiny_check(bench_step_open(bench, session, plain, forward, STEPS));
  bench->profiled = true;
  tiny_check(bench_step_run(bench, false));
  assert_int_equal(bench->count, 0);
  assert_int_equal(bench->profile.parts, 0);
  for (int i = 0; i < STEPS + 1; i++) tiny_check(bench_step_run(bench, true));
  assert_int_equal(bench->count, STEPS); /* no more than there is room for */
}

static const BenchPart *part_of(const BenchStep *bench, const char *name, TapePhase phase) {
  for (int i = 0; i < bench->profile.parts; i++)
    if (bench->profile.part[i].phase == phase && strcmp(bench->profile.part[i].name, name) == 0) return &bench->profile.part[i];
  return NULL;
}

static void check_summary(BenchStep *bench) {
  BenchSummary summary;
  bench_step_summary(bench, &summary);
  assert_true(summary.min > 0 && summary.median >= summary.min && summary.processor > 0);
  assert_true(summary.product_share > 0 && summary.product_share <= 1);
  assert_true(summary.flops > 0 && summary.flops_per_second > 0 && summary.activations > 0);
  assert_float_equal(summary.units_per_second * summary.median, 8, 1e-9);
  assert_float_equal(summary.training, bench->forward ? 0 : 3 * summary.weights, 0);
}

static void check_parts(const BenchStep *bench, bool astra) {
  const BenchPart *linear = part_of(bench, "linear", TAPE_FORWARD);
  assert_non_null(linear);
  assert_true(linear->seconds > 0 && linear->product_seconds > 0);
  assert_int_equal(linear->calls % (STEPS + 1), 0);
  assert_int_equal(part_of(bench, "linear", TAPE_BACKWARD) != NULL, !bench->forward);
  assert_int_equal(part_of(bench, "optimizer", TAPE_AROUND) != NULL, !bench->forward);
  assert_int_equal(part_of(bench, "nearest codewords", TAPE_FORWARD) != NULL, astra);
  assert_int_equal(part_of(bench, "noise moments", TAPE_AROUND) != NULL, astra && !bench->forward);
}

static void test_steps(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    BenchStep bench;
    Session session;
    TrainOptions options = bench_options(kind & 1 ? 4 : 0, 8);
    tiny_check(bench_session_open(&session, &options, kind & 2));
    open_and_run(&bench, &session, false, kind & 2);
    assert_int_equal(session.step, kind & 2 ? 0 : STEPS + 2); /* the weights moved, or stayed */
    check_parts(&bench, kind & 1);
    check_summary(&bench);
    bench_step_close(&bench);
    session_close(&session);
  }
}

/* One session serves both sides in turns: the plain one computes and takes what a plain session does, and there is one model's memory. */
static void test_sides_share_a_session(void **state) {
  (void)state;
  BenchStep side[2], alone;
  BenchSummary of_side[2], of_alone;
  Session session, plain;
  TrainOptions options = bench_options(4, 8), plain_options = bench_options(0, 8);
  tiny_check(bench_session_open(&session, &options, false));
  tiny_check(bench_session_open(&plain, &plain_options, false));
  tiny_check(bench_step_open(&alone, &plain, true, false, STEPS));
  for (int i = 0; i < 2; i++) tiny_check(bench_step_open(&side[i], &session, i == 0, false, STEPS));
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < 2; i++) tiny_check(bench_step_run(&side[i], true));
    tiny_check(bench_step_run(&alone, true));
  }
  for (int i = 0; i < 2; i++) bench_step_summary(&side[i], &of_side[i]);
  bench_step_summary(&alone, &of_alone);
  assert_true(session_astra(&session));
  assert_true(of_side[0].flops == of_alone.flops && of_side[1].flops > of_side[0].flops);
  assert_true(of_side[0].activations == of_alone.activations && of_side[1].activations > of_side[0].activations);
  for (int i = 0; i < 2; i++) bench_step_close(&side[i]);
  bench_step_close(&alone);
  session_close(&plain);
  session_close(&session);
}

/* What is counted while running is what a plan counts, when every step has the same map. */
static void test_flops_are_the_plans(void **state) {
  (void)state;
  BenchStep bench;
  BenchSummary summary;
  TrainPlan plan;
  TrainOptions options = bench_options(4, 8);
  options.map = COUNTS_EVEN;
  options.devices[0] = options.devices[1] = 2;
  Session session;
  tiny_check(bench_session_open(&session, &options, false));
  tiny_check(bench_step_open(&bench, &session, false, false, STEPS));
  tiny_check(plan_make(&session, &plan));
  for (int i = 0; i <= STEPS; i++) tiny_check(bench_step_run(&bench, i > 0));
  bench_step_summary(&bench, &summary);
  assert_float_equal(summary.flops / plan.step_flops, 1, 1e-9);
  assert_float_equal(summary.activations / plan.activations, 1, 1e-3);
  bench_step_close(&bench);
  session_close(&session);
}

static void test_failure_closes(void **state) {
  (void)state;
  Session session;
  TrainOptions options = bench_options(5, 8);
  assert_int_not_equal(bench_session_open(&session, &options, false), STATUS_OK);
  assert_null(session.model);
  session_close(&session);
}

/* ---------------------------------------------------------------- noise moments of a large batch */

enum { LARGE = 160, LARGE_ROWS = LARGE * TINY_TOKENS, USED = 1024 }; /* a quarter is less than the least */

static void forward(Session *session) {
  static TokenLayout layout;
  int64_t counts[2] = {TINY_TOKENS / 2, TINY_TOKENS / 2};
  TaskBatch batch;
  tiny_check(session->task->source->next(session, TASK_TRAIN, &batch));
  assert_int_equal(batch.count, LARGE);
  tiny_check(layout_build(&layout, TINY_TOKENS, 2, counts, NULL, CLASS_DISTRIBUTED, -1));
  emulate_begin_step(&session->emulation, true);
  ModelInput input = task_input(session->tape, &batch, session->config);
  model_encode(session->model, session->tape, &input, &layout, &session->emulation.exchange, MODEL_ROWS_CLASS);
  tiny_check(tape_status(session->tape));
  assert_int_equal(session->emulation.site[0].rows, LARGE_ROWS);
  layout_release(&layout);
}

/* Column means of the residual over rows [first, first + USED). */
static void residual_means(const EmulateSite *site, int64_t first, double mean[TINY_WIDTH]) {
  static real q[USED * TINY_WIDTH];
  codebook_lookup(&site->book, site->codes + first * site->book.groups, USED, q);
  for (int column = 0; column < TINY_WIDTH; column++) mean[column] = 0;
  for (int64_t i = 0; i < USED * TINY_WIDTH; i++) mean[i % TINY_WIDTH] += ((double)site->x[first * TINY_WIDTH + i] - (double)q[i]) / USED;
}

static void test_moments_take_turns(void **state) {
  (void)state;
  Session opened, *session = &opened;
  TrainOptions options = bench_options(4, LARGE);
  tiny_check(bench_session_open(session, &options, false));
  Navq *navq = &session->emulation.site[0].navq;
  tape_record(session->tape, false);
  navq->decay = 0; /* the moments of the last step alone */
  for (int step = 0; step < 6; step++) {
    static const int64_t first[] = {0, USED, LARGE_ROWS - USED}; /* the last turn takes some rows of the one before it, too */
    double mean[TINY_WIDTH];
    forward(session);
    residual_means(&session->emulation.site[0], first[step % 3], mean);
    tiny_check(emulate_update(&session->emulation, session->tape, &session->revive_rng));
    for (int column = 0; column < TINY_WIDTH; column++) assert_float_equal((double)navq->mean[column], mean[column], 1e-5);
    tape_clear(session->tape);
  }
  session_close(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_sides_share_a_session),
                                     cmocka_unit_test(test_flops_are_the_plans), cmocka_unit_test(test_failure_closes),
                                     cmocka_unit_test(test_moments_take_turns)};
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
