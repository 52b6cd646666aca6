/* After its first steps a training step asks the system for no memory: every request of the program is counted, on all threads, over
 * optimizer, tape, quantisation, noise, averages, revival, random maps and the loader's workers; of images and of texts. */
#include "unit/count_allocations.h"
#include "unit/train/tiny_text.h"

/* Steps 3 to 8: the fifth ends an epoch, so that a new order of the data is drawn, too. */
static void assert_no_allocation(const TrainOptions *options) {
  Session session;
  tiny_open(&session, options);
  tiny_steps(&session, 2);
  for (int step = 3; step <= 8; step++) {
    long before = allocations_so_far();
    tiny_step(&session);
    long during = allocations_so_far() - before;
    if (during != 0) fail_msg("step %d asked for memory %ld times", step, during);
  }
  int64_t revived = session.emulation.revived;
  if (options->dead_below > 0.1) assert_true(revived > 0); /* that path was walked, too */
  session_close(&session);
}

static TrainOptions even_three(void) {
  TrainOptions options = tiny_options();
  options.devices[0] = options.devices[1] = 3;
  options.map = COUNTS_EVEN;
  return options;
}

static void an_astra_step_allocates_nothing(void **state) {
  (void)state;
  allocations_need_count();
  TrainOptions options = even_three();
  assert_no_allocation(&options);
  options.codebook_decay = 0.5;
  options.dead_below = 0.5;
  options.optimizer.average = 0.99;
  options.accumulate = 1;
  options.mixup = 0.2;
  options.cutmix = 1;
  options.drop_path = 0.2;
  options.augment = "randaugment:3,15";
  options.erase = 0.5;
  options.smoothing = 0.1;
  options.workers = 2;
  assert_no_allocation(&options);
}

static void other_numbers_of_devices_allocate_nothing(void **state) {
  (void)state;
  allocations_need_count();
  TrainOptions options = tiny_options(); /* 2 to 4 devices, Dirichlet counts */
  options.groups = 1;
  options.class_token = CLASS_SINGLE;
  options.gradient = QUANTISE_ROTATION;
  assert_no_allocation(&options);
  options.accumulate = 2;
  options.covariance = NOISE_DIAGONAL;
  options.gradient = QUANTISE_NONE;
  options.crop_min = 0.3;
  assert_no_allocation(&options);
}

static void a_plain_step_allocates_nothing(void **state) {
  (void)state;
  allocations_need_count();
  TrainOptions options = tiny_options();
  options.groups = 0;
  assert_no_allocation(&options);
  options.patch_drop = 0.5;
  assert_no_allocation(&options);
}

static void a_language_model_s_step_allocates_nothing(void **state) {
  (void)state;
  allocations_need_count();
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_text_options(kind); /* 2 to 4 devices, Dirichlet counts */
    assert_no_allocation(&options);
    options.recompute = SESSION_ALL_BLOCKS;
    assert_no_allocation(&options);
    options.recompute = 0;
    options.groups = 0;
    options.smoothing = 0.1;
    options.accumulate = 2;
    assert_no_allocation(&options);
  }
}

/* Batches of other widths than before, too. */
static void a_classifier_s_step_allocates_nothing(void **state) {
  (void)state;
  allocations_need_count();
  TrainOptions options = tiny_table_options(MODEL_GPT2);
  assert_no_allocation(&options);
  options.groups = 0;
  assert_no_allocation(&options);
}

static int with_threads(void **state) {
  if (threads_start(2) != STATUS_OK || tiny_make(state) != 0) return -1;
  tiny_text_files();
  return 0;
}

static int without_threads(void **state) {
  threads_stop();
  return tiny_remove(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_astra_step_allocates_nothing),       cmocka_unit_test(other_numbers_of_devices_allocate_nothing),
      cmocka_unit_test(a_plain_step_allocates_nothing),        cmocka_unit_test(a_language_model_s_step_allocates_nothing),
      cmocka_unit_test(a_classifier_s_step_allocates_nothing),
  };
  return cmocka_run_group_tests(tests, with_threads, without_threads);
}
