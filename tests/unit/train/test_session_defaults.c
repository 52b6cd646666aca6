/* Defaults that follow from the data and from where the weights come from; those that are given stand; runs of earlier versions keep
 * theirs. */
#include "train/session.c"
#include "unit/train/tiny_run.h"

static TrainOptions open_options(void) {
  TrainOptions options = tiny_options();
  options.groups = options.max_steps = options.batch = 0;
  options.warmup = SESSION_AUTO;
  options.optimizer.rate = SESSION_AUTO;
  return options;
}

static void little_data_gets_enough_steps(void **state) {
  (void)state;
  TrainOptions options = open_options();
  for (SessionUse use = SESSION_TRAIN; use <= SESSION_PLAN; use += SESSION_PLAN - SESSION_TRAIN) {
    Session session;
    tiny_check(session_open(&session, &options, use));
    assert_int_equal(session.options.batch, 8); /* of 44 images */
    assert_int_equal(session.options.epochs, 80);
    assert_int_equal(session.total_steps, 400);
    assert_int_equal(session.options.warmup, 40);
    assert_int_equal(session.options.eval_every, 4);
    assert_true(session.options.optimizer.rate == 1e-4);
    assert_non_null(strstr(session.chosen, "batch 8 for 44 images, 80 epochs"));
    session_close(&session);
  }
}

static void the_rate_follows_from_the_weights(void **state) {
  (void)state;
  TrainOptions options = open_options();
  Session session;
  options.init = "random";
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_true(session.options.optimizer.rate == 1e-3);
  session_close(&session);
  options.init = NULL;
  options.lora_rank = 2;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_true(session.options.optimizer.rate == 3e-4);
  session_close(&session);
}

static void check_recipe(const TrainOptions *options, bool predicts, double distill, double hidden) {
  for (SessionUse use = SESSION_TRAIN; use <= SESSION_PLAN; use += SESSION_PLAN - SESSION_TRAIN) {
    Session session;
    tiny_check(session_open(&session, options, use));
    assert_int_equal(session.config->astra.prediction, predicts);
    assert_int_equal(session.config->astra.rotation, predicts || options->rotation);
    assert_true(session.options.distill == distill && (session.teacher.model != NULL) == (distill > 0));
    assert_true(session.options.distill_hidden == hidden);
    session_close(&session);
  }
}

static void check_mean(const TrainOptions *options, double power) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  assert_true(session.options.class_mean_power == power && session.config->astra.class_mean_power == power);
  session_close(&session);
}

/* Class tokens count by the tokens of their devices, where there are several and nothing else is given. */
static void the_recipe_averages_class_tokens_by_shares(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  check_mean(&options, 0); /* the paper's */
  options.recipe = RECIPE_TUNED;
  check_mean(&options, 0.5);
  options.class_token = CLASS_SINGLE;
  check_mean(&options, 0);
  options.class_token = CLASS_DISTRIBUTED, options.class_mean_power = 0;
  check_mean(&options, 0);
  options.recipe = RECIPE_PAPER, options.class_mean_power = 1;
  check_mean(&options, 1);
}

static void check_bias(const TrainOptions *options, double bias) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  assert_true(session.options.class_bias == bias && session.config->astra.class_bias == bias);
  session_close(&session);
}

/* Class tokens have a bias towards their own device where codes are coarse: groups of 24 numbers or more. */
static void the_recipe_biases_class_tokens(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = TINY_WIDTH / 24;
  check_bias(&options, 0); /* the paper's */
  options.recipe = RECIPE_TUNED;
  check_bias(&options, -0.8);
  options.groups *= 2;
  check_bias(&options, 0);
  options.groups = 1;
  check_bias(&options, -0.4);
  options.class_bias = -0.25;
  check_bias(&options, -0.25);
  options.class_bias = (double)NAN, options.class_token = CLASS_SINGLE;
  check_bias(&options, 0);
}

static void check_mixing(const TrainOptions *options, double mixup, double cutmix) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  assert_true(session.options.mixup == mixup && session.options.cutmix == cutmix);
  session_close(&session);
}

/* Images are mixed where a pretrained model is taught by itself, unless the command line says anything of either kind. */
static void the_recipe_mixes_images(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.mixup = options.cutmix = SESSION_AUTO;
  check_mixing(&options, 0, 0); /* the paper's */
  options.recipe = RECIPE_TUNED;
  check_mixing(&options, 1, 1);
  options.distill = 0.5;
  check_mixing(&options, 0, 0);
  options.distill = SESSION_AUTO, options.mixup = 0.25;
  check_mixing(&options, 0.25, 0);
  options.mixup = SESSION_AUTO, options.cutmix = 0;
  check_mixing(&options, 0, 0);
  options.cutmix = SESSION_AUTO, options.batch = 1;
  check_mixing(&options, 0, 0); /* an image has no other */
}

/* Predictions and distillation for pretrained models that are adapted for devices; what is given stands. */
static void the_recipe_is_for_pretrained_models(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  check_recipe(&options, false, 0, 0); /* the paper's */
  options.recipe = RECIPE_TUNED;
  check_recipe(&options, true, 0.5, 1);
  options.distill_hidden = 0.25;
  check_recipe(&options, true, 0.5, 0.25);
  options.distill_hidden = SESSION_AUTO, options.distill = 0;
  check_recipe(&options, true, 0, 0);
  options.basis_given = true; /* --no-prediction */
  check_recipe(&options, false, 0, 0);
  options.basis_given = false, options.rotation = true;
  check_recipe(&options, false, 0, 0);
  options = tiny_options(), options.recipe = RECIPE_TUNED, options.init = "random";
  check_recipe(&options, false, 0, 0);
  options.init = NULL, options.groups = 0;
  check_recipe(&options, false, 0, 0);
  options.groups = 4, options.site = SITE_KV;
  check_recipe(&options, false, 0, 0);
  options.site = SESSION_SITE_AUTO, options.lora_rank = 2;
  check_recipe(&options, false, 0, 0);
}

/* At no length is the rate still rising at the end, nor does it stay below its peak. */
static void the_warmup_is_a_tenth_of_any_run(void **state) {
  (void)state;
  for (int64_t steps = 1; steps <= 4096; steps *= 2) {
    TrainOptions options = open_options();
    Session session;
    double peak = 0;
    options.max_steps = steps;
    tiny_check(session_open(&session, &options, SESSION_PLAN));
    assert_true(session.options.warmup <= steps / 10 && session.options.warmup <= 100);
    for (int64_t step = 0; step < steps; step++) {
      double rate = optimizer_schedule(step, session.options.warmup, session.total_steps, 0);
      peak = rate > peak ? rate : peak;
    }
    assert_true(peak == 1);
    assert_string_equal(session.doubt, "");
    session_close(&session);
  }
}

static void what_is_given_stands(void **state) {
  (void)state;
  TrainOptions options = open_options();
  Session session;
  options.batch = 16, options.epochs = 3, options.warmup = 100, options.eval_every = 2, options.optimizer.rate = 0;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_int_equal(session.options.batch, 16);
  assert_int_equal(session.total_steps, 6); /* 44 images: 2 whole batches */
  assert_int_equal(session.options.warmup, 100);
  assert_int_equal(session.options.eval_every, 2);
  assert_true(session.options.optimizer.rate == 0);
  assert_string_equal(session.chosen, "");
  assert_non_null(strstr(session.doubt, "--warmup 100"));
  assert_non_null(strstr(session.doubt, "run of 6 steps"));
  assert_non_null(strstr(session.doubt, "5% of its peak"));
  session_close(&session);
}

static void earlier_runs_keep_their_defaults(void **state) {
  (void)state;
  TrainOptions options = open_options();
  Session session;
  options.earlier_defaults = true;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_int_equal(session.options.batch, 64);
  assert_int_equal(session.options.epochs, 32);
  assert_int_equal(session.options.warmup, 100);
  assert_int_equal(session.options.eval_every, 1);
  assert_true(session.options.optimizer.rate == 1e-4);
  session_close(&session);
}

/* Nothing is learnt from one class; codebooks are made of any images. */
static void one_class_is_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.dataset = "synthetic:32x32:1";
  for (SessionUse use = SESSION_TRAIN; use <= SESSION_PLAN; use += SESSION_PLAN - SESSION_TRAIN) {
    Session session;
    assert_int_equal(session_open(&session, &options, use), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "--dataset synthetic:32x32:1 has one class"));
  }
  Session session;
  tiny_check(session_open(&session, &options, SESSION_LOOK));
  session_close(&session);
}

static void token_losses_are_read(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double share, span;
  } good[] = {{NULL, 0, 0},      {"0", 0, 0},           {"0.05", 0.05, 0}, {"0.05,span:8", 0.05, 8}, {"0.95,span:19", 0.95, 19},
              {"1e-3", 1e-3, 0}, {"0.5,span:1", 0.5, 1}};
  static const char *const bad[] = {
      "",           "x",          "-0.1",          "0.96",          "nan",          "0.05,",         "0.05,span",
      "0.05,span:", "0.05,run:8", "0.05,span:0.5", "0.9,span:8.99", "0.05,span:8x", "0.05,span:2e6", "5%"};
  TokenLoss loss;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    assert_int_equal(parse_token_loss(&loss, good[i].text), STATUS_OK);
    assert_true(loss.share == good[i].share && loss.span == good[i].span);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (parse_token_loss(&loss, bad[i]) != STATUS_BAD_USAGE) fail_msg("\"%s\" was accepted", bad[i]);
    assert_non_null(strstr(status_message(), "--token-loss"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(token_losses_are_read),
                                     cmocka_unit_test(little_data_gets_enough_steps),
                                     cmocka_unit_test(the_rate_follows_from_the_weights),
                                     cmocka_unit_test(the_recipe_is_for_pretrained_models),
                                     cmocka_unit_test(the_recipe_averages_class_tokens_by_shares),
                                     cmocka_unit_test(the_recipe_biases_class_tokens),
                                     cmocka_unit_test(the_recipe_mixes_images),
                                     cmocka_unit_test(the_warmup_is_a_tenth_of_any_run),
                                     cmocka_unit_test(what_is_given_stands),
                                     cmocka_unit_test(earlier_runs_keep_their_defaults),
                                     cmocka_unit_test(one_class_is_refused)};
  threads_start(1);
  int failures = cmocka_run_group_tests(tests, tiny_make, tiny_remove);
  threads_stop();
  return failures;
}
