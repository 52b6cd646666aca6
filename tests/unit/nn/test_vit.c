/* Mimetic initialisation: the structure it promises, weight by weight, and what it leaves alone. How well it trains is not tested here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/model.h"
#include "unit/nn/small_decoder.h"
#include "unit/param_named.h"
#include <math.h>
#include <stdio.h>

enum { SEED = 7, LAYER_NAME = 96 };

/* vit-cifar, allocated and initialised; mimetic or not. */
static Model *make(bool mimetic) {
  ModelConfig config;
  Model *model;
  Rng rng;
  assert_int_equal(config_preset(&config, "vit-cifar", 10), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  config_release(&config);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  rng_init(&rng, SEED, 1);
  param_initialise(model_params(model), &rng);
  if (mimetic) assert_int_equal(model_initialise_mimetic(model, &rng), STATUS_OK);
  return model;
}

static const Tensor *weight(Model *model, const char *name) {
  const Param *param = param_named(model_params(model), name);
  assert_non_null(param);
  return &param->tensor;
}

static const Tensor *layer_weight(Model *model, int64_t block, const char *name) {
  char full[LAYER_NAME];
  snprintf(full, sizeof full, "vit.encoder.layer.%lld.%s.weight", (long long)block, name);
  return weight(model, full);
}

static double deviation(const Tensor *tensor) {
  double sum = 0, squares = 0, count = (double)tensor_count(tensor);
  for (int64_t i = 0; i < tensor_count(tensor); i++) {
    sum += (double)tensor->value[i];
    squares += (double)tensor->value[i] * (double)tensor->value[i];
  }
  return sqrt(squares / count - sum / count * (sum / count));
}

/* Mean of the diagonal of a^T b over one head's rows, [rows, D] each. */
static double mean_diagonal(const real *a, const real *b, int64_t rows, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < rows * width; i++) sum += (double)a[i] * (double)b[i];
  return sum / (double)width;
}

static void query_is_key(void **state) {
  (void)state;
  Model *model = make(true);
  const ModelConfig *config = model_config(model);
  for (int64_t block = 0; block < config->blocks; block++) {
    const Tensor *query = layer_weight(model, block, "attention.attention.query");
    const Tensor *key = layer_weight(model, block, "attention.attention.key");
    assert_memory_equal(query->value, key->value, (size_t)tensor_count(key) * sizeof(real));
    int64_t rows = config->width / config->heads;
    for (int64_t head = 0; head < config->heads; head++) {
      int64_t at = head * rows * config->width;
      assert_true(fabs(mean_diagonal(query->value + at, key->value + at, rows, config->width) - 0.25) < 0.02);
    }
  }
  const Tensor *first = layer_weight(model, 0, "attention.attention.key"), *second = layer_weight(model, 1, "attention.attention.key");
  assert_memory_not_equal(first->value, second->value, (size_t)tensor_count(first) * sizeof(real)); /* blocks differ */
  model_free(model);
}

static void output_is_minus_transposed_value(void **state) {
  (void)state;
  Model *model = make(true);
  int64_t width = model_config(model)->width;
  for (int64_t block = 0; block < model_config(model)->blocks; block++) {
    const real *value = layer_weight(model, block, "attention.attention.value")->value;
    const real *output = layer_weight(model, block, "attention.output.dense")->value;
    double diagonal = 0; /* of output value */
    for (int64_t row = 0; row < width; row++)
      for (int64_t column = 0; column < width; column++) {
        assert_true(output[row * width + column] == -value[column * width + row]);
        diagonal += (double)output[row * width + column] * (double)value[column * width + row];
      }
    assert_true(fabs(diagonal / (double)width + 0.4) < 0.02);
  }
  model_free(model);
}

static void positions_tell_tokens_apart(void **state) {
  (void)state;
  Model *model = make(true), *plain = make(false);
  const ModelConfig *config = model_config(model);
  const real *position = weight(model, "vit.embeddings.position_embeddings")->value;
  int64_t tokens = config_tokens(config), width = config->width;
  for (int64_t a = 1; a <= tokens; a++) {
    double length = 0;
    for (int64_t i = 0; i < width; i++) length += (double)position[a * width + i] * (double)position[a * width + i];
    assert_true(fabs(sqrt(length / (double)width) - 0.35) < 1e-5); /* sin^2 + cos^2 */
    for (int64_t b = 1; b < a; b++) {
      double distance = 0;
      for (int64_t i = 0; i < width; i++) distance += pow((double)position[a * width + i] - (double)position[b * width + i], 2);
      assert_true(sqrt(distance / (double)width) > 0.05);
    }
  }
  const real *untouched = weight(plain, "vit.embeddings.position_embeddings")->value; /* the class token's place is no image's */
  assert_memory_equal(position, untouched, (size_t)width * sizeof(real));
  model_free(model);
  model_free(plain);
}

static void the_rest(void **state) {
  (void)state;
  Model *model = make(true), *plain = make(false);
  const Tensor *patch = weight(model, "vit.embeddings.patch_embeddings.projection.weight");
  int64_t depth = tensor_count(patch) / model_config(model)->width;
  assert_true(fabs(deviation(patch) * sqrt((double)depth) - 0.5) < 0.02);
  const char *const same[] = {"vit.encoder.layer.0.intermediate.dense.weight", "vit.encoder.layer.5.output.dense.weight",
                              "vit.layernorm.weight", "classifier.weight", "vit.encoder.layer.3.attention.attention.query.bias"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    assert_memory_equal(weight(model, same[i])->value, weight(plain, same[i])->value,
                        (size_t)tensor_count(weight(plain, same[i])) * sizeof(real));
  Model *again = make(true);
  assert_memory_equal(model_params(model)->values, model_params(again)->values, (size_t)model_params(model)->total * sizeof(real));
  model_free(model);
  model_free(plain);
  model_free(again);
}

/* Their weights have other shapes and places. */
static void decoders_are_refused(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Rng rng;
    rng_init(&rng, SEED, 1);
    Model *model = small_decoder((ModelKind)kind, false), *same = small_decoder((ModelKind)kind, false);
    assert_int_equal(model_initialise_mimetic(model, &rng), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "vision transformers; use random"));
    assert_memory_equal(model_params(model)->values, model_params(same)->values, (size_t)model_params(same)->total * sizeof(real));
    model_free(model);
    model_free(same);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(query_is_key),
      cmocka_unit_test(output_is_minus_transposed_value),
      cmocka_unit_test(positions_tell_tokens_apart),
      cmocka_unit_test(the_rest),
      cmocka_unit_test(decoders_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
