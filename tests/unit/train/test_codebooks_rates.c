/* One model for several bit rates: at each it is what a model of that rate alone is, in codebooks, losses and files. */
#include "train/codebooks.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_run.h"

static const int64_t RATES[] = {8, 1, 4, 8};

static TrainOptions several_rates(void) {
  TrainOptions options = tiny_options();
  memcpy(options.rates, RATES, sizeof RATES);
  return options;
}

static void assert_same_codebooks(const Session *several, int rate, const Session *one) {
  const int sites = emulate_sites(&one->emulation);
  assert_int_equal(several->emulation.all[rate * sites].book.groups, one->config->astra.groups);
  assert_memory_equal(several->emulation.all[rate * sites].book.codewords, one->emulation.codewords,
                      tiny_codeword_count(one) * sizeof(real));
}

/* Codebooks and, from the same weights, losses. */
static void each_rate_is_that_of_a_model_with_one(void **state) {
  (void)state;
  TrainOptions options = several_rates();
  Session several;
  Validation last, rates[CONFIG_RATES] = {{0}};
  tiny_open(&several, &options);
  assert_int_equal(several.config->astra.groups, 8);
  tiny_check(validate_rates(&several, 0, &last, rates));
  assert_true(last.loss == rates[2].loss && several.config->astra.groups == 8);
  for (int rate = 0; rate < 3; rate++) {
    TrainOptions alone = tiny_options();
    alone.groups = RATES[1 + rate];
    Session one;
    Validation validation;
    tiny_open(&one, &alone);
    assert_same_codebooks(&several, rate, &one);
    tiny_check(validate_run(&one, (int)alone.devices[1], 0, &validation));
    if (validation.loss != rates[rate].loss) fail_msg("%d groups: %g, alone %g", (int)alone.groups, rates[rate].loss, validation.loss);
    session_close(&one);
  }
  session_close(&several);
}

/* With predictions the rate with the most groups decides the basis, and is as it is alone; the others have predictions of their own. */
static void each_rate_has_its_predictions(void **state) {
  (void)state;
  TrainOptions options = several_rates(), alone = tiny_options();
  Session several, one;
  CodebookReport reports[3 * TINY_BLOCKS];
  options.prediction = alone.prediction = true;
  alone.groups = 8;
  tiny_check(session_open(&several, &options, SESSION_TRAIN));
  tiny_check(codebooks_fit(&several, reports));
  tiny_open(&one, &alone);
  assert_same_codebooks(&several, 2, &one);
  for (size_t i = 0; i < model_params(one.model)->count; i++) {
    const Param *param = &model_params(one.model)->list[i], *same = NULL;
    for (size_t j = 0; j < model_params(several.model)->count && same == NULL; j++)
      if (strcmp(model_params(several.model)->list[j].name, param->name) == 0) same = &model_params(several.model)->list[j];
    assert_non_null(same);
    assert_memory_equal(same->tensor.value, param->tensor.value, (size_t)tensor_count(&param->tensor) * sizeof(real));
  }
  for (int block = 0; block < TINY_BLOCKS; block++) /* more groups lose less */
    for (int rate = 1; rate < 3; rate++)
      assert_true(reports[rate * TINY_BLOCKS + block].usage.distortion < reports[(rate - 1) * TINY_BLOCKS + block].usage.distortion);
  /* What a rate's own prediction leaves over is less than what another rate's does, and the tokens of all rates are the same. */
  CodebookReport own[3 * TINY_BLOCKS], other[3 * TINY_BLOCKS];
  tiny_check(codebooks_evaluate(&several, 0, false, own));
  real *weight = NULL, *most = NULL;
  int64_t numbers = 0;
  for (size_t i = 0; i < model_params(several.model)->count; i++) {
    const Param *param = &model_params(several.model)->list[i];
    if (strcmp(param->name, "astra.layers.1.groups1.prediction.weight") == 0) weight = param->tensor.value;
    if (strcmp(param->name, "astra.layers.1.prediction.weight") == 0) most = param->tensor.value, numbers = tensor_count(&param->tensor);
  }
  assert_true(weight != NULL && most != NULL);
  memcpy(weight, most, (size_t)numbers * sizeof *weight);
  tiny_check(codebooks_evaluate(&several, 0, false, other));
  assert_true(own[1].usage.distortion < other[1].usage.distortion);
  assert_true(own[2 * TINY_BLOCKS + 1].usage.distortion == other[2 * TINY_BLOCKS + 1].usage.distortion);
  for (int i = 0; i < 3 * TINY_BLOCKS; i++) {
    const double variance = own[2 * TINY_BLOCKS + i % TINY_BLOCKS].variance;
    assert_float_equal(own[i].variance, variance, 1e-5 * variance);
    assert_float_equal(other[i].variance, variance, 1e-5 * variance);
  }
  session_close(&several);
  session_close(&one);
}

/* The others are alike. Bounds: four standard deviations. */
static void half_of_all_batches_have_the_most_groups(void **state) {
  (void)state;
  Emulation emulation = {.rates = 3, .options = {.seed = 7}};
  int drawn[3] = {0};
  for (emulation.step = 0; emulation.step < 6000; emulation.step++) drawn[emulate_draw_rate(&emulation)]++;
  assert_in_range(drawn[2], 3000 - 155, 3000 + 155);
  assert_in_range(drawn[0], 1500 - 135, 1500 + 135);
  assert_in_range(drawn[1], 1500 - 135, 1500 + 135);
  emulation.rates = 1;
  assert_int_equal(emulate_draw_rate(&emulation), 0);
}

/* What is written has all rates; a program that knows none of this takes it for a checkpoint of the largest. */
static void a_checkpoint_holds_all_rates(void **state) {
  (void)state;
  TrainOptions options = several_rates();
  Session session;
  ModelConfig config;
  tiny_open(&session, &options);
  tiny_steps(&session, 3);
  tiny_check(tiny_save(&session));
  tiny_check(config_load(&config, options.out));
  assert_int_equal(config.astra.groups, 8);
  assert_int_equal(config_rates(&config), 3);
  const size_t numbers = tiny_codeword_count(&session);
  real *read = calloc(numbers, sizeof *read);
  assert_non_null(read);
  tiny_check(checkpoint_load_codebooks(&config, options.out, read));
  for (size_t i = 0; i < numbers; i++) assert_true((float)read[i] == (float)session.emulation.codewords[i]);
  config.astra.rate_count = 0;
  tiny_check(checkpoint_load_codebooks(&config, options.out, read));
  for (size_t i = 0; i < numbers / 3; i++) assert_true((float)read[i] == (float)session.emulation.codewords[2 * numbers / 3 + i]);
  free(read);
  config_release(&config);
  session_close(&session);
}

static void rates_that_cannot_be_are_refused(void **state) {
  (void)state;
  TrainOptions options = several_rates();
  Session session;
  options.rates[2] = 5; /* 48 numbers */
  assert_int_equal(session_open(&session, &options, SESSION_TRAIN), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "--groups 5 does not divide"));
  options = several_rates();
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_int_equal(model_use_rate(session.model, 2), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "those of 1, 4, 8"));
  session_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rate_is_that_of_a_model_with_one),    cmocka_unit_test(each_rate_has_its_predictions),
      cmocka_unit_test(half_of_all_batches_have_the_most_groups), cmocka_unit_test(a_checkpoint_holds_all_rates),
      cmocka_unit_test(rates_that_cannot_be_are_refused),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
