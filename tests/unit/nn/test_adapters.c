/* Low-rank adapters: that a fresh one changes nothing, that nothing else learns, that gradients are right, and that merging on the way into
 * a file computes the same. */
#include "nn/checkpoint.h"
#include "unit/float_equal.h"
#include "unit/nn/scratch.h"
#include "unit/nn/small_decoder.h"
#include "unit/param_named.h"
#include <jansson.h>
#include <math.h>

enum { TOKENS = 9, RANK = 3 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 1e-5;

static Model *adapted(ModelKind kind, int64_t classes, const char *targets) {
  ModelConfig config;
  Model *model;
  small_config(&config, kind, classes);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(model_add_adapters(model, RANK, 6, targets), STATUS_OK);
  config_release(&config);
  return model;
}

/* Weights as small_decoder's, adapters as they begin. */
static Model *fresh(ModelKind kind, const char *targets) {
  Model *model = adapted(kind, 0, targets);
  Rng rng;
  rng_init(&rng, 3, 0);
  assert_int_equal(param_allocate(model_params(model), true), STATUS_OK);
  assert_int_equal(param_allocate_frozen(model_params(model)), STATUS_OK);
  small_values(model, 11);
  model_initialise_adapters(model, &rng);
  return model;
}

static bool is_adapter(const Param *param) { return strncmp(param->name, "astra.lora.", 11) == 0; }

static void stir_adapters(Model *model) {
  ParamSet *set = model_params(model);
  Rng rng;
  rng_init(&rng, 8, 0);
  for (size_t i = 0; i < set->count; i++)
    for (int64_t j = 0; is_adapter(&set->list[i]) && j < tensor_count(&set->list[i].tensor); j++)
      set->list[i].tensor.value[j] = (real)(0.2 * rng_normal(&rng));
}

static void encode(Model *model, real *out) {
  SmallRun run;
  int32_t ids[TOKENS];
  small_ids(ids, TOKENS);
  small_open(&run);
  Tensor *x = small_encode(model, &run, ids, 1, TOKENS, MODEL_ROWS_ALL);
  assert_non_null(x);
  memcpy(out, x->value, TOKENS * SMALL_WIDTH * sizeof *out);
  small_close(&run);
}

static void fresh_adapters_change_nothing(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    real before[TOKENS * SMALL_WIDTH], after[TOKENS * SMALL_WIDTH];
    Model *plain = small_decoder((ModelKind)kind, false), *model = fresh((ModelKind)kind, "all");
    assert_int_equal(model_params(model)->count - model_params(plain)->count, 2 * SMALL_BLOCKS * (kind == MODEL_GPT2 ? 6 : 7));
    encode(plain, before);
    encode(model, after);
    small_assert_close(before, after, TOKENS * SMALL_WIDTH, CLOSE / 10);
    stir_adapters(model);
    encode(model, after);
    assert_true(fabs((double)(before[5] - after[5])) > 1e-3);
    model_free(plain);
    model_free(model);
  }
}

/* The loss of a batch; with gradients where wanted. */
static double loss_of(Model *model, bool backward) {
  SmallRun run;
  int32_t ids[TOKENS], labels[TOKENS];
  TokenLayout layout = {0};
  small_ids(ids, TOKENS);
  for (int i = 0; i < TOKENS; i++) labels[i] = (ids[i] + 3) % SMALL_VOCABULARY;
  assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_NONE), STATUS_OK);
  small_open(&run);
  tape_record(run.tape, backward);
  Tensor *x = model_encode(model, run.tape, &(ModelInput){.ids = ids, .batch = 1}, &layout, NULL, MODEL_ROWS_ALL);
  Tensor *loss = model_token_loss(model, run.tape, x, &(VocabLoss){.labels = labels});
  assert_non_null(loss);
  double value = (double)loss->value[0];
  param_zero_grads(model_params(model));
  if (backward) assert_int_equal(tape_backward(run.tape, loss), STATUS_OK);
  small_close(&run);
  layout_release(&layout);
  return value;
}

/* Central differences in double; in float it is enough that gradients are there. */
static void adapters_alone_learn(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = fresh((ModelKind)kind, "all");
    ParamSet *set = model_params(model);
    stir_adapters(model);
    loss_of(model, true);
    int64_t trainable = 0;
    for (size_t i = 0; i < set->count; i++) {
      Tensor *tensor = &set->list[i].tensor;
      assert_int_equal(set->list[i].frozen, !is_adapter(&set->list[i]));
      assert_int_equal(tensor->grad == NULL, set->list[i].frozen);
      if (set->list[i].frozen) continue;
      trainable += tensor_count(tensor);
      int64_t j = tensor_count(tensor) / 2;
      real kept = tensor->value[j], gradient = tensor->grad[j];
      assert_true(tensor->grad[0] != 0 && tensor->value == set->values + param_offset(set, i));
      if (!REAL_IS_DOUBLE) continue;
      const double step = 1e-5;
      tensor->value[j] = (real)((double)kept + step);
      double above = loss_of(model, false);
      tensor->value[j] = (real)((double)kept - step);
      double below = loss_of(model, false);
      tensor->value[j] = kept;
      assert_float_equal((double)gradient, (above - below) / (2 * step), 1e-8);
      loss_of(model, true);
    }
    assert_int_equal(param_count_trainable(set), trainable);
    model_free(model);
  }
}

static void merging_keeps_the_function(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    real before[TOKENS * SMALL_WIDTH], merged[TOKENS * SMALL_WIDTH];
    Model *model = fresh((ModelKind)kind, "query,value,mlp");
    stir_adapters(model);
    encode(model, before);
    real *values = malloc((size_t)model_params(model)->total * sizeof *values); /* other adapters, as averaged ones are */
    memcpy(values, model_params(model)->values, (size_t)model_params(model)->total * sizeof *values);
    assert_int_equal(checkpoint_save(model, scratch_path("merged"), NULL, NULL, SAFE_REAL), STATUS_OK);
    memset(model_params(model)->values, 0, (size_t)model_params(model)->total * sizeof *values);
    assert_int_equal(checkpoint_save(model, scratch_path("given"), NULL, values, SAFE_REAL), STATUS_OK);
    static const char *const names[] = {"merged", "given"};
    for (int i = 0; i < 2; i++) {
      Model *plain = small_decoder((ModelKind)kind, false);
      CheckpointReport report;
      assert_int_equal(checkpoint_load_params(plain, scratch_path(names[i]), NULL, &report), STATUS_OK);
      assert_int_equal(report.unused, 0);
      encode(plain, merged);
      small_assert_close(before, merged, TOKENS * SMALL_WIDTH, CLOSE);
      model_free(plain);
    }
    free(values);
    model_free(model);
  }
}

/* PEFT's way: weight + lora_alpha / r * B A, where weights are [out, in], or its transpose. */
static double from_export(const SafeFile *base, const SafeFile *adapter, const json_t *config, const char *module, int64_t row,
                          int64_t column) {
  char name[200];
  real weight[SMALL_WIDTH * 128], a[64 * 64], b[128 * 64];
  real *const into[] = {weight, a, b};
  const SafeTensor *tensor[3];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name,
             i == 0   ? "%s.weight"
             : i == 1 ? "base_model.model.%s.lora_A.weight"
                      : "base_model.model.%s.lora_B.weight",
             module);
    tensor[i] = safetensors_find(i == 0 ? base : adapter, name);
    assert_non_null(tensor[i]);
    assert_int_equal(safetensors_to_real(tensor[i], into[i]), STATUS_OK);
  }
  bool transposed = json_is_true(json_object_get(config, "fan_in_fan_out"));
  const json_t *own_rank = json_object_get(json_object_get(config, "rank_pattern"), module);
  const json_t *own_alpha = json_object_get(json_object_get(config, "alpha_pattern"), module);
  int64_t rank = json_integer_value(own_rank ? own_rank : json_object_get(config, "r"));
  double alpha = json_number_value(own_alpha ? own_alpha : json_object_get(config, "lora_alpha")), sum = 0;
  int64_t in = tensor[0]->shape[transposed ? 0 : 1], out = tensor[0]->shape[transposed ? 1 : 0];
  assert_true(tensor[1]->shape[0] == rank && tensor[1]->shape[1] == in && tensor[2]->shape[0] == out && tensor[2]->shape[1] == rank);
  int64_t output = transposed ? column : row, input = transposed ? row : column;
  for (int64_t r = 0; r < rank; r++) sum += (double)b[output * rank + r] * (double)a[r * in + input];
  return (double)weight[row * tensor[0]->shape[1] + column] + alpha / (double)rank * sum;
}

/* What is merged is what somebody with PEFT would merge from the exported adapters. */
static void exported_adapters_are_those_that_are_merged(void **state) {
  (void)state;
  static const char *const targets[] = {"all", "query,value", "key,up"};
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++)
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
      SafeFile base, merged, adapter;
      Model *plain = small_decoder((ModelKind)kind, false), *model = fresh((ModelKind)kind, targets[t]);
      stir_adapters(model);
      assert_int_equal(checkpoint_save(plain, scratch_path("base"), NULL, NULL, SAFE_REAL), STATUS_OK);
      assert_int_equal(checkpoint_save(model, scratch_path("merged"), NULL, NULL, SAFE_REAL), STATUS_OK);
      assert_int_equal(checkpoint_save_adapters(model, scratch_path("adapter"), NULL, "some/base"), STATUS_OK);
      assert_int_equal(checkpoint_save_adapters(plain, scratch_path("none"), NULL, NULL), STATUS_BAD_VALUE);
      assert_int_equal(safetensors_open(&base, scratch_path("base/model.safetensors")), STATUS_OK);
      assert_int_equal(safetensors_open(&merged, scratch_path("merged/model.safetensors")), STATUS_OK);
      assert_int_equal(safetensors_open(&adapter, scratch_path("adapter/adapter_model.safetensors")), STATUS_OK);
      json_t *config = json_load_file(scratch_path("adapter/adapter_config.json"), 0, NULL);
      assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "LORA");
      assert_string_equal(json_string_value(json_object_get(config, "task_type")), "CAUSAL_LM");
      assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), "some/base");
      const json_t *modules = json_object_get(config, "target_modules");
      assert_int_equal(adapter.count, 2 * json_array_size(modules));
      int changed = 0;
      for (size_t m = 0; m < json_array_size(modules); m++) {
        const char *module = json_string_value(json_array_get(modules, m));
        char name[200];
        real weight[SMALL_WIDTH * 128], before[SMALL_WIDTH * 128];
        snprintf(name, sizeof name, "%s.weight", module);
        const SafeTensor *tensor = safetensors_find(&merged, name);
        assert_non_null(tensor);
        assert_int_equal(safetensors_to_real(tensor, weight), STATUS_OK);
        assert_int_equal(safetensors_to_real(safetensors_find(&base, name), before), STATUS_OK);
        for (int64_t at = 0; at < tensor->count; at += 7) {
          double expected = from_export(&base, &adapter, config, module, at / tensor->shape[1], at % tensor->shape[1]);
          assert_float_equal((double)weight[at], expected, 1e-5);
          changed += fabs((double)weight[at] - (double)before[at]) > 1e-3;
        }
      }
      assert_true(changed > 100);
      json_decref(config);
      safetensors_close(&base);
      safetensors_close(&merged);
      safetensors_close(&adapter);
      model_free(plain);
      model_free(model);
    }
}

/* What is fitted to the codebooks is no part of the model that PEFT knows; a head of classes, which learns as well, is. */
static void numbers_that_are_not_finite_are_not_exported(void **state) {
  (void)state;
  Model *model = adapted(MODEL_GPT2, 3, "query");
  ParamSet *params = model_params(model);
  int checked = 0;
  assert_int_equal(param_allocate(params, true), STATUS_OK);
  assert_int_equal(param_allocate_frozen(params), STATUS_OK);
  for (size_t i = 0; i < params->count; i++) {
    real *last = params->list[i].tensor.value + tensor_count(&params->list[i].tensor) - 1;
    const real kept = *last;
    if (params->list[i].frozen) continue;
    *last = NAN; /* of an A or B, or of the head */
    assert_int_equal(checkpoint_save_adapters(model, scratch_path("nan"), NULL, NULL), STATUS_NUMERIC);
    assert_non_null(strstr(status_message(), "holds a NaN or an infinity: nothing has been saved"));
    *last = kept;
    checked++;
  }
  assert_true(checked > 2);
  assert_int_equal(checkpoint_save_adapters(model, scratch_path("nan"), NULL, NULL), STATUS_OK);
  model_free(model);
}

static void fitted_bases_are_not_exported(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    Model *model;
    SafeFile adapter;
    small_config(&config, (ModelKind)kind, 4);
    config.astra.groups = 4;
    config.astra.rotation = config.astra.prediction = true;
    assert_int_equal(model_new(&model, &config), STATUS_OK);
    config_release(&config);
    assert_int_equal(model_add_adapters(model, RANK, 6, "query"), STATUS_OK);
    assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
    assert_int_equal(param_allocate_frozen(model_params(model)), STATUS_OK);
    small_values(model, 11);
    assert_non_null(param_named(model_params(model), "astra.layers.1.remote_key.weight"));
    assert_int_equal(checkpoint_save_adapters(model, scratch_path("bases"), NULL, NULL), STATUS_OK);
    assert_int_equal(safetensors_open(&adapter, scratch_path("bases/adapter_model.safetensors")), STATUS_OK);
    assert_int_equal(adapter.count, 2 * SMALL_BLOCKS + 1);
    assert_non_null(safetensors_find(&adapter, "base_model.model.score.weight"));
    json_t *saved = json_load_file(scratch_path("bases/adapter_config.json"), 0, NULL);
    const json_t *heads = json_object_get(saved, "modules_to_save");
    assert_int_equal(json_array_size(heads), 1);
    assert_string_equal(json_string_value(json_array_get(heads, 0)), "score");
    json_decref(saved);
    safetensors_close(&adapter);
    model_free(model);
  }
}

/* Weights in the file are read as the same numbers as in memory. */
static void assert_same_numbers(Model *in_file, Model *loaded) {
  const ParamSet *set = model_params(in_file);
  int narrow = 0;
  for (size_t i = 0; i < set->count; i++) {
    const Tensor *tensor = &set->list[i].tensor;
    if (!tensor->narrow) continue;
    const size_t bytes = (size_t)tensor_count(tensor) * sizeof(real);
    real *numbers = malloc(bytes);
    tensor_read(tensor, 0, tensor_count(tensor), numbers);
    assert_memory_equal(numbers, model_params(loaded)->list[i].tensor.value, bytes);
    free(numbers);
    narrow++;
  }
  assert_true(narrow > 4);
}

/* A large model's way: the weights stay in the file, in 16 bits, and only adapters and a new head have memory. */
static void frozen_weights_stay_in_the_file(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    const int kind = variant % 2 ? MODEL_LLAMA : MODEL_GPT2;
    real in_file[TOKENS * SMALL_WIDTH], loaded[TOKENS * SMALL_WIDTH];
    Model *base = small_decoder((ModelKind)kind, false), *model = adapted((ModelKind)kind, 4, "attention"), *copy;
    CheckpointMapping *mapping;
    CheckpointReport report;
    Rng rng;
    rng_init(&rng, 3, 0);
    assert_int_equal(checkpoint_save(base, scratch_path("base"), NULL, NULL, variant < 2 ? SAFE_BF16 : SAFE_F16), STATUS_OK);
    assert_int_equal(param_allocate(model_params(model), true), STATUS_OK);
    model_initialise_adapters(model, &rng);
    stir_adapters(model);
    assert_int_equal(checkpoint_map_params(model, scratch_path("base"), &mapping), STATUS_OK);
    assert_int_equal(checkpoint_load_params(model, scratch_path("base"), &rng, &report), STATUS_OK);
    assert_true(report.new_head && report.unused == 0);
    const Param *score = param_named(model_params(model), "score.weight");
    assert_true(!score->frozen && score->tensor.value && score->tensor.grad && !score->tensor.narrow);
    assert_non_null(model_params(model)->list[0].tensor.narrow);
    assert_null(model_params(model)->frozen_values);
    encode(model, in_file);
    copy = adapted((ModelKind)kind, 4, "attention");
    assert_int_equal(param_allocate(model_params(copy), false), STATUS_OK);
    assert_int_equal(param_allocate_frozen(model_params(copy)), STATUS_OK);
    stir_adapters(copy);
    assert_int_equal(checkpoint_load_params(copy, scratch_path("base"), &rng, NULL), STATUS_OK);
    assert_same_numbers(model, copy);
    encode(copy, loaded);
    small_assert_close(in_file, loaded, TOKENS * SMALL_WIDTH, CLOSE);
    assert_int_equal(checkpoint_save(model, scratch_path("folded"), NULL, NULL, SAFE_REAL), STATUS_OK);
    ModelConfig config;
    assert_int_equal(config_load(&config, scratch_path("folded")), STATUS_OK);
    assert_int_equal(config.classes, 4);
    Model *plain = small_model(&config, false);
    assert_int_equal(checkpoint_load_params(plain, scratch_path("folded"), NULL, NULL), STATUS_OK);
    encode(plain, loaded);
    small_assert_close(in_file, loaded, TOKENS * SMALL_WIDTH, CLOSE);
    config_release(&config);
    model_free(plain);
    model_free(copy);
    model_free(model);
    model_free(base);
    checkpoint_unmap(mapping);
  }
}

static void bad_targets_and_ranks(void **state) {
  (void)state;
  ModelConfig config;
  Model *model;
  small_config(&config, MODEL_GPT2, 0);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  static const char *const bad[] = {"", "gate", "queries", "query,", ",query", "query value", "query,,key"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(model_add_adapters(model, 4, 8, bad[i]), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "query, key, value, output, up, down"));
  }
  assert_int_equal(model_add_adapters(model, 0, 8, "all"), STATUS_BAD_VALUE);
  assert_int_equal(model_add_adapters(model, SMALL_WIDTH + 1, 8, "all"), STATUS_BAD_VALUE);
  assert_int_equal(model_add_adapters(model, 4, 0, "all"), STATUS_BAD_VALUE);
  assert_int_equal(model_add_adapters(model, 4, NAN, "all"), STATUS_BAD_VALUE);
  for (size_t i = 0; i < model_params(model)->count; i++) assert_false(model_params(model)->list[i].frozen);
  assert_int_equal(model_add_adapters(model, 4, 8, "mlp"), STATUS_OK);
  assert_int_equal(model_add_adapters(model, 4, 8, "mlp"), STATUS_BAD_VALUE);
  model_free(model);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fresh_adapters_change_nothing),   cmocka_unit_test(adapters_alone_learn),
      cmocka_unit_test(merging_keeps_the_function),      cmocka_unit_test(exported_adapters_are_those_that_are_merged),
      cmocka_unit_test(fitted_bases_are_not_exported),   cmocka_unit_test(numbers_that_are_not_finite_are_not_exported),
      cmocka_unit_test(frozen_weights_stay_in_the_file), cmocka_unit_test(bad_targets_and_ranks),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
