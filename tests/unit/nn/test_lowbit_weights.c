/* A model's matrices rounded to 8 and 4 bits: which ones, transposed ones too, what they stand for, the answers they give, and refusals. */
#include "base/threads.h"
#include "nn/lowbit_weights.h"
#include "nn/model_internal.h"
#include "unit/nn/small_decoder.h"
#include <math.h>

static const ModelKind MODELS[] = {MODEL_GPT2, MODEL_LLAMA};
static const int32_t IDS[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9};
enum { TOKENS = sizeof IDS / sizeof *IDS };

static void logits_of(Model *model, real *logits) {
  SmallRun run;
  TokenLayout layout = {0};
  small_open(&run);
  assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_NONE), STATUS_OK);
  const ModelInput input = {.ids = IDS, .batch = 1};
  const Tensor *out = model_logits(model, run.tape, model_encode(model, run.tape, &input, &layout, NULL, MODEL_ROWS_ALL));
  if (out == NULL) fail_msg("%s", status_message());
  memcpy(logits, out->value, (size_t)tensor_count(out) * sizeof *logits);
  layout_release(&layout);
  small_close(&run);
}

static void check_matrix(const Param *before, const Tensor *after, const LowbitMatrix *matrix, double step) {
  const int64_t outputs = before->tensor.shape[before->transposed ? 1 : 0], inputs = before->tensor.shape[before->transposed ? 0 : 1];
  real row[128];
  double error = 0, size = 0;
  assert_int_equal(matrix->outputs, outputs);
  assert_int_equal(matrix->inputs, inputs);
  assert_true(after->value == NULL && after->narrow == NULL);
  for (int64_t o = 0; o < outputs; o++) {
    lowbit_widen(matrix, o, 0, inputs, row);
    for (int64_t i = 0; i < inputs; i++) {
      const double want = (double)before->tensor.value[before->transposed ? i * outputs + o : o * inputs + i];
      error += pow((double)row[i] - want, 2), size += want * want;
    }
  }
  assert_true(sqrt(error / size) < step);
}

static void all_matrices_of_a_decoder_are_rounded(void **state) {
  (void)state;
  for (int m = 0; m < 2; m++)
    for (int bits = 8; bits >= 4; bits -= 4) {
      Model *model = small_decoder(MODELS[m], false), *original = small_decoder(MODELS[m], false);
      LowbitWeights *made;
      real have[TOKENS * SMALL_VOCABULARY], want[TOKENS * SMALL_VOCABULARY];
      logits_of(model, want);
      assert_int_equal(lowbit_weights_make(model, bits == 8 ? LOWBIT_INT8 : LOWBIT_Q4_0, &made), STATUS_OK);
      const ParamSet *set = model_params(model);
      for (size_t i = 0; i < set->count; i++) {
        const Param *param = &set->list[i];
        const bool matrix = param->tensor.dims == 2 && !strstr(param->name, "wpe");
        assert_true((param->tensor.lowbit != NULL) == matrix);
        if (!matrix) continue;
        const bool vocabulary = strstr(param->name, "wte") || strstr(param->name, "embed_tokens") || strstr(param->name, "lm_head");
        assert_int_equal(param->tensor.lowbit->kind, bits == 8 ? LOWBIT_INT8 : vocabulary ? LOWBIT_Q8_0 : LOWBIT_Q4_0);
        check_matrix(&model_params(original)->list[i], &param->tensor, param->tensor.lowbit, bits == 8 || vocabulary ? 0.01 : 0.1);
      }
      assert_int_equal(lowbit_weights_of(model), bits == 8 ? LOWBIT_INT8 : LOWBIT_Q4_0);
      logits_of(model, have);
      double error = 0, size = 0;
      for (int i = 0; i < TOKENS * SMALL_VOCABULARY; i++) error += pow((double)(have[i] - want[i]), 2), size += pow((double)want[i], 2);
      assert_true(sqrt(error / size) < (bits == 8 ? 0.05 : 0.25));
      model_free(model);
      model_free(original);
      lowbit_weights_free(made);
    }
}

static void heads_of_classes_and_patches_stay(void **state) {
  (void)state;
  ModelConfig config;
  Model *model;
  LowbitWeights *made;
  assert_int_equal(config_preset(&config, "vit-cifar", 10), STATUS_OK);
  config.blocks = 1;
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  assert_int_equal(lowbit_weights_make(model, LOWBIT_Q4_0, &made), STATUS_OK);
  int rounded = 0;
  for (size_t i = 0; i < model_params(model)->count; i++) {
    const Param *param = &model_params(model)->list[i];
    rounded += param->tensor.lowbit != NULL;
    if (strstr(param->name, "classifier") || strstr(param->name, "embeddings") || strstr(param->name, "norm"))
      assert_true(param->tensor.lowbit == NULL && param->tensor.value != NULL);
  }
  assert_int_equal(rounded, 6);
  model_free(model);
  lowbit_weights_free(made);
  config_release(&config);
}

static void other_bits_are_refused(void **state) {
  (void)state;
  Model *model = small_decoder(MODEL_GPT2, false);
  LowbitWeights *made, *again;
  assert_int_equal(lowbit_weights_make(model, LOWBIT_INT8, &made), STATUS_OK);
  assert_int_equal(lowbit_weights_make(model, LOWBIT_Q4_0, &again), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "8 bits"));
  assert_null(again);
  assert_int_equal(lowbit_weights_make(model, LOWBIT_INT8, &again), STATUS_OK); /* there is nothing to be done */
  lowbit_weights_free(again);
  model_free(model);
  lowbit_weights_free(made);
}

int main(void) {
  threads_start(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_matrices_of_a_decoder_are_rounded),
                                     cmocka_unit_test(heads_of_classes_and_patches_stay), cmocka_unit_test(other_bits_are_refused)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  threads_stop();
  return failed;
}
