/* A value that is not finite is found in the place where it first appears: in a pass that is not recorded the pass fails and names the
 * place; in one that is recorded the place is noted. */
#include "unit/nn/small_decoder.h"
#include "unit/param_named.h"
#include <math.h>
#include <stdio.h>

enum { TOKENS = 7 };

static void test_any_place_in_a_tensor(void **state) {
  (void)state;
  static real values[10000];
  static const real odd[] = {INFINITY, -INFINITY, NAN};
  for (int64_t count = 1; count < 10000; count = count * 3 + 1) {
    Tensor tensor = {.dims = 1, .shape = {count}, .value = values};
    assert_true(tensor_is_finite(&tensor));
    for (int64_t i = 0; i < count; i += 1 + count / 50) {
      values[i] = odd[i % 3];
      assert_false(tensor_is_finite(&tensor));
      values[i] = 0;
    }
  }
}

/* The last pass's logits, or NULL, with weights of which the named one begins with an infinity. */
static Tensor *pass(Model *model, SmallRun *run, const char *bad) {
  int32_t ids[TOKENS];
  TokenLayout layout = {0};
  small_ids(ids, TOKENS);
  small_values(model, 11);
  if (bad) {
    Param *param = param_named(model_params(model), bad);
    assert_non_null(param);
    for (int64_t i = 0; i < tensor_count(&param->tensor); i++) param->tensor.value[i] = INFINITY;
  }
  assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_NONE), STATUS_OK);
  tape_clear(run->tape);
  ModelInput input = {.ids = ids, .batch = 1};
  Tensor *logits = model_logits(model, run->tape, model_encode(model, run->tape, &input, &layout, NULL, MODEL_ROWS_ALL));
  layout_release(&layout);
  return logits;
}

static void test_places(void **state) {
  (void)state;
  static const struct {
    const char *bad;
    int place;
    const char *said;
  } list[] = {{"model.embed_tokens.weight", BLOCK_EMBEDDING, "the embedding gives numbers that are not finite"},
              {"model.layers.0.self_attn.v_proj.weight", 0, "block 0 of 2, counted from 0, gives"},
              {"model.layers.1.mlp.down_proj.weight", 1, "block 1 of 2, counted from 0, gives"},
              {"lm_head.weight", SMALL_BLOCKS, "the head gives"}};
  ModelConfig config;
  small_config(&config, MODEL_LLAMA, 0);
  config.tied = false;
  Model *model = small_model(&config, true);
  config_release(&config);
  SmallRun run;
  small_open(&run);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    tape_record(run.tape, false);
    assert_non_null(pass(model, &run, NULL));
    assert_int_equal(model_not_finite(model), BLOCK_NONE);
    assert_null(pass(model, &run, list[i].bad));
    assert_int_equal(tape_status(run.tape), STATUS_NUMERIC);
    if (!strstr(status_message(), list[i].said)) fail_msg("\"%s\" does not say \"%s\"", status_message(), list[i].said);
    assert_int_equal(model_not_finite(model), list[i].place);
    tape_record(run.tape, true);
    assert_non_null(pass(model, &run, list[i].bad));
    assert_int_equal(tape_status(run.tape), STATUS_OK);
    assert_int_equal(model_not_finite(model), list[i].place);
  }
  small_close(&run);
  model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_place_in_a_tensor), cmocka_unit_test(test_places)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
