/* Small language models with random weights, lively enough that every part of them shows, and a tape to run them on. */
#ifndef TESTS_NN_SMALL_DECODER_H
#define TESTS_NN_SMALL_DECODER_H
#include "base/files.h"
#include "nn/model.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_VOCABULARY = 37, SMALL_CONTEXT = 24, SMALL_WIDTH = 24, SMALL_BLOCKS = 2, SMALL_STORY = 201 };

static inline void small_config(ModelConfig *config, ModelKind kind, int64_t classes) {
  assert_int_equal(config_preset(config, kind == MODEL_GPT2 ? "gpt2-mini" : "llama-mini", classes), STATUS_OK);
  config->width = SMALL_WIDTH;
  config->blocks = SMALL_BLOCKS;
  config->heads = kind == MODEL_GPT2 ? 4 : 6;
  config->kv_heads = kind == MODEL_GPT2 ? 4 : 2;
  config->mlp = 40;
  config->vocabulary = SMALL_VOCABULARY;
  config->context = SMALL_CONTEXT;
  config->astra.codebook_size = 5;
  config->astra.devices = config->astra.devices_min = 2;
}

static inline void small_values(Model *model, uint64_t seed) {
  ParamSet *set = model_params(model);
  Rng rng;
  rng_init(&rng, seed, 0);
  for (size_t i = 0; i < set->count; i++) {
    const Tensor *tensor = &set->list[i].tensor;
    double middle = set->list[i].init == PARAM_ONES ? 1 : 0;
    for (int64_t j = 0; tensor->value && j < tensor_count(tensor); j++) tensor->value[j] = (real)(middle + 0.2 * rng_normal(&rng));
  }
}

static inline Model *small_model(const ModelConfig *config, bool grads) {
  Model *model;
  assert_int_equal(model_new(&model, config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), grads), STATUS_OK);
  small_values(model, 11);
  return model;
}

static inline Model *small_decoder(ModelKind kind, bool grads) {
  ModelConfig config;
  small_config(&config, kind, 0);
  Model *model = small_model(&config, grads);
  config_release(&config);
  return model;
}

typedef struct SmallRun {
  Arena *arena;
  Tape *tape;
} SmallRun;

static inline void small_open(SmallRun *run) {
  run->arena = arena_new((size_t)1 << 30);
  run->tape = tape_new(run->arena);
  assert_non_null(run->tape);
  tape_record(run->tape, false);
}

static inline void small_close(SmallRun *run) {
  tape_free(run->tape);
  arena_free(run->arena);
}

static inline void small_ids(int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)(i * i * 7 + i * 3 + 5) % SMALL_VOCABULARY;
}

/* Of the plain model: [B, T, D], on the run's tape. */
static inline Tensor *small_encode(Model *model, SmallRun *run, const int32_t *ids, int64_t batch, int64_t tokens, ModelRows rows) {
  TokenLayout layout = {0};
  assert_int_equal(layout_build_plain(&layout, tokens, CLASS_NONE), STATUS_OK);
  Tensor *x = model_encode(model, run->tape, &(ModelInput){.ids = ids, .batch = batch}, &layout, NULL, rows);
  layout_release(&layout);
  return x;
}

static inline void small_assert_close(const real *a, const real *b, int64_t count, double allowed) {
  for (int64_t i = 0; i < count; i++) assert_float_equal((double)a[i], (double)b[i], allowed);
}

/* The ids of the story that tests/golden/stories260K tells without a prompt. */
static inline void small_story_ids(int32_t ids[SMALL_STORY]) {
  char *text, *at;
  size_t size;
  assert_int_equal(files_read("tests/golden/stories260K/golden_ids.json", 1 << 16, &text, &size), STATUS_OK);
  at = text;
  for (int i = 0; i < SMALL_STORY; i++) {
    while (*at == '[' || *at == ',' || *at == ' ') at++;
    char *end;
    ids[i] = (int32_t)strtol(at, &end, 10);
    assert_true(end > at);
    at = end;
  }
  assert_int_equal(*at, ']');
  free(text);
}

#endif
