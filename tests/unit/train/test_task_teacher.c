/* Distillation: a student that is its teacher has nothing to learn; what the loss is; a teacher that does not fit is refused; a run with a
 * teacher goes on bit for bit. */
#include "train/task.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_text.h"
#include <math.h>

/* The largest gradient of any parameter after the first batch. */
static double first_gradient(const TrainOptions *options, StepResult *result) {
  Session session;
  TaskBatch batch;
  double max = 0;
  tiny_open(&session, options);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(model_params(session.model));
  tiny_check(micro_step(&session, &batch, result));
  const ParamSet *params = model_params(session.model);
  for (int64_t i = 0; i < params->total; i++) max = fmax(max, fabs((double)params->grads[i]));
  session_close(&session);
  return max;
}

/* The plain model with its own probabilities as targets: the gradient vanishes up to rounding, the loss is their entropy. */
static void check_own_teacher(TrainOptions options) {
  StepResult labels, taught, mixed;
  options.groups = 0;
  const double without = first_gradient(&options, &labels);
  options.distill = 1;
  const double with = first_gradient(&options, &taught);
  assert_true(without > 1e-3 && with < 2e-3 * without);
  assert_true(taught.task > 0);
  options.distill = 0.25;
  first_gradient(&options, &mixed);
  assert_float_equal(mixed.task, 0.75 * labels.task + 0.25 * taught.task, 1e-5 * labels.task);
}

static void its_own_teacher_teaches_nothing(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.mixup = 0.8; /* the teacher sees the blended image */
  check_own_teacher(options);
}

static void texts_have_teachers(void **state) {
  (void)state;
  tiny_text_files();
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) check_own_teacher(tiny_text_options(kind));
}

/* Codes instead of tokens: there is something to learn. */
static void quantised_students_learn(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  StepResult result;
  options.distill = 1;
  assert_true(first_gradient(&options, &result) > 1e-3);
  options.rates[1] = 2, options.rates[2] = 4; /* of several bit rates */
  assert_true(first_gradient(&options, &result) > 1e-3);
}

/* The relative error of rows after each block: none of a plain student that is its teacher and of a device that has all tokens, some of
 * four devices; it is added to the loss with its weight. */
static double hidden_error(TrainOptions options, double weight) {
  StepResult with, without;
  options.distill = 0.5;
  options.noise = 0;
  first_gradient(&options, &without);
  options.distill_hidden = weight;
  first_gradient(&options, &with);
  assert_float_equal(with.task, without.task, 1e-6 * without.task);
  return (with.loss - without.loss) / weight;
}

static void rows_after_blocks_are_compared(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  const double four = hidden_error(options, 2);
  assert_true(four > 1e-3 && four < 2);
  assert_float_equal(hidden_error(options, 4), four, 1e-3 * four);
  options.devices[0] = options.devices[1] = 1;
  assert_float_equal(hidden_error(options, 2), 0, 1e-5);
  options.groups = 0;
  assert_float_equal(hidden_error(options, 2), 0, 1e-5);
  tiny_text_files();
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions text = tiny_text_options(kind);
    text.groups = 0;
    assert_float_equal(hidden_error(text, 2), 0, 1e-5);
  }
}

static void check_refused(const TrainOptions *options, const char *message) {
  Session session;
  assert_int_equal(session_open(&session, options, SESSION_TRAIN), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), message));
}

/* A plain model that fits the run, which the caller changes and gives to save_teacher. */
static void describe_teacher(ModelConfig *config) {
  const TrainOptions options = tiny_options();
  Session session;
  tiny_open(&session, &options);
  assert_int_equal(config_copy(config, session.config), STATUS_OK);
  session_close(&session);
  config->astra.groups = config->astra.rate_count = 0;
}

/* Saves a model of this description, its weights at 0, as NAME in the test's folder, and releases the description. */
static void save_teacher(ModelConfig *config, const char *name) {
  Model *model;
  assert_int_equal(model_new(&model, config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  assert_int_equal(checkpoint_save(model, tiny_path(name), NULL, NULL, SAFE_F32), STATUS_OK);
  model_free(model);
  config_release(config);
}

static void teachers_that_do_not_fit_are_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.teacher = tiny_path("model");
  check_refused(&options, "--teacher is for --distill");
  options.distill = 0.5;
  options.teacher = NULL;
  options.init = "random";
  check_refused(&options, "--teacher DIR");
  ModelConfig config;
  describe_teacher(&config);
  assert_int_equal(config_set_labels(&config, NULL, 7), STATUS_OK);
  save_teacher(&config, "seven");
  options = tiny_options();
  options.distill = 0.5;
  options.teacher = tiny_path("seven");
  check_refused(&options, "classes: 7");
}

/* A teacher is given the student's patches: those of another size are another number of tokens, or parts of the image. */
static void teachers_of_other_patches_are_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.distill = 0.5;
  for (int half = 0; half < 2; half++) {
    ModelConfig config;
    describe_teacher(&config);
    config.patch = half ? config.patch / 2 : config.patch * 2;
    save_teacher(&config, half ? "half" : "twice");
    options.teacher = tiny_path(half ? "half" : "twice");
    check_refused(&options, half ? "patches of side 4, the run 8" : "patches of side 16, the run 8");
  }
}

static void teachers_of_other_pixels_are_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  ModelConfig config;
  Session session;
  options.distill = 0.5;
  describe_teacher(&config);
  config.image_mean[1] += 0.01;
  save_teacher(&config, "darker");
  options.teacher = tiny_path("darker");
  check_refused(&options, "pixels less a mean of");
  describe_teacher(&config);
  config.image_std[2] *= 2;
  save_teacher(&config, "wider");
  options.teacher = tiny_path("wider");
  check_refused(&options, "preprocessor_config.json");
  describe_teacher(&config);
  for (int i = 0; i < 3; i++) config.image_mean[i] = round(1e4 * config.image_mean[i]) / 1e4; /* as other programs write them */
  save_teacher(&config, "rounded");
  options.teacher = tiny_path("rounded");
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  session_close(&session);
}

/* The data's classes with names; those of `shift` 1 are the same in another order. */
static void name_classes(ModelConfig *config, int64_t shift) {
  char names[TINY_CLASSES][16], *labels[TINY_CLASSES];
  for (int64_t i = 0; i < TINY_CLASSES; i++) {
    snprintf(names[i], sizeof names[i], "class %lld", (long long)((i + shift) % TINY_CLASSES));
    labels[i] = names[i];
  }
  assert_int_equal(config_set_labels(config, labels, TINY_CLASSES), STATUS_OK);
}

static void check_other_names(const TrainOptions *options, bool others) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  assert_int_equal(session.teacher.other_names, others);
  session_close(&session);
}

/* Classes are compared by number: where both have names, these have to agree. The weights of the run teach unless --teacher is given. */
static void teachers_of_other_names_are_told_of(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  FILE *names = fopen(tiny_path("fine_label_names.txt"), "w");
  assert_non_null(names);
  for (int i = 0; i < TINY_CLASSES; i++) fprintf(names, "class %d\n", i);
  assert_int_equal(fclose(names), 0);
  options.distill = 0.5;
  check_other_names(&options, false); /* LABEL_0... says nothing */
  for (int shift = 0; shift < 2; shift++) {
    ModelConfig config;
    describe_teacher(&config);
    name_classes(&config, shift);
    save_teacher(&config, shift ? "shifted" : "named");
    options.teacher = tiny_path(shift ? "shifted" : "named");
    check_other_names(&options, shift == 1);
    options.teacher = NULL;
    options.init = tiny_path(shift ? "shifted" : "named");
    if (shift) /* the head of what learns is put in order, so that its own file would teach something else */
      check_refused(&options, "are in another order");
    else
      check_other_names(&options, false);
    options.init = NULL;
  }
  assert_int_equal(unlink(tiny_path("fine_label_names.txt")), 0);
}

static void taught_runs_resume_bit_for_bit(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session straight, first, second;
  options.distill = 0.5;
  options.distill_hidden = 0.1;
  options.noise = 1;
  tiny_open(&straight, &options);
  tiny_steps(&straight, 4);
  tiny_open(&first, &options);
  tiny_steps(&first, 2);
  tiny_check(tiny_save(&first));
  session_close(&first);
  tiny_check(session_open(&second, &options, SESSION_TRAIN));
  tiny_check(state_load(&second, options.out));
  tiny_seek(&second);
  tiny_steps(&second, 2);
  tiny_assert_same(&straight, &second);
  session_close(&straight);
  session_close(&second);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(its_own_teacher_teaches_nothing),
                                     cmocka_unit_test(texts_have_teachers),
                                     cmocka_unit_test(quantised_students_learn),
                                     cmocka_unit_test(rows_after_blocks_are_compared),
                                     cmocka_unit_test(teachers_that_do_not_fit_are_refused),
                                     cmocka_unit_test(teachers_of_other_patches_are_refused),
                                     cmocka_unit_test(teachers_of_other_pixels_are_refused),
                                     cmocka_unit_test(teachers_of_other_names_are_told_of),
                                     cmocka_unit_test(taught_runs_resume_bit_for_bit)};
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
