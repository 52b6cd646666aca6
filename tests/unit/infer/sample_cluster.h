/* A small random ASTRA checkpoint, and what N devices must compute with it, emulated in one process with the same model code but without
 * any of src/infer's. Shared by the tests of src/infer and by make_sample. */
#ifndef TESTS_SAMPLE_CLUSTER_H
#define TESTS_SAMPLE_CLUSTER_H
#include "autograd/ops/ops.h"
#include "autograd/tape.h"
#include "nn/checkpoint.h"
#include "vq/codebook.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct SampleCluster {
  ModelConfig config;
  Model *model;
  Codebook *books; /* config_codebooks */
  real *codewords;
  bool no_ties; /* an answer with a code that is nearly a tie is an error */
} SampleCluster;

/* What the emulation found. */
typedef struct SampleAnswer {
  Exchange exchange; /* first */
  SampleCluster *cluster;
  Tensor *remote[2]; /* of each site */
  Tensor *known;     /* exchange.h */
  int32_t *codes;    /* [blocks * sites][B, T, G], content tokens in the image's order */
  real *logits;      /* [B, classes], of a text [B, V] */
  int64_t batch;
} SampleAnswer;

/* A preset, or a small one of three kinds: tiny (images), tiny-gpt2, tiny-llama (texts, with a vocabulary of 512). With ":N" behind it
 * one of texts has a head of N classes. */
static inline Status sample_config(ModelConfig *config, const char *preset, int groups, int entries, int devices, ClassToken class_token) {
  static const char *const of[][2] = {{"tiny", "vit-cifar"}, {"tiny-gpt2", "gpt2-mini"}, {"tiny-llama", "llama-mini"}};
  char name[32];
  snprintf(name, sizeof name, "%s", preset);
  name[strcspn(name, ":")] = 0;
  const char *classes = strchr(preset, ':');
  preset = name;
  int tiny = -1;
  for (int i = 0; i < 3; i++) {
    if (strcmp(preset, of[i][0]) == 0) tiny = i;
  }
  bool text = strncmp(tiny < 0 ? preset : of[tiny][1], "vit", 3) != 0;
  TRY(config_preset(config, tiny < 0 ? preset : of[tiny][1], text ? 0 : tiny == 0 ? 7 : 100));
  if (tiny == 0) config->image = 16, config->patch = 4, config->heads = config->kv_heads = 2;
  if (tiny > 0) config->heads = config->kv_heads = 4, config->vocabulary = 512, config->context = 48;
  if (tiny == 2) config->kv_heads = 2;
  if (tiny >= 0) config->width = 32, config->mlp = 64, config->blocks = 3;
  if (classes) TRY(config_set_labels(config, NULL, atoi(classes + 1)));
  config->astra.groups = groups;
  config->astra.codebook_size = entries;
  config->astra.devices = config->astra.devices_min = devices;
  config->astra.class_token = text ? CLASS_NONE : class_token;
  return STATUS_OK;
}

/* Matrices of deviation 0.6 / sqrt(inputs), so that every part of the model shows in the logits without blowing rounding up; a little on
 * everything else. */
static inline void sample_scale(Param *param, Rng *rng) {
  Tensor *tensor = &param->tensor;
  int64_t count = tensor_count(tensor);
  double factor = param->decay ? 0.6 / sqrt((double)count / (double)tensor->shape[0]) / 0.02 : 1;
  for (int64_t i = 0; i < count; i++) tensor->value[i] = (real)((double)tensor->value[i] * factor + 0.02 * rng_normal(rng));
}

/* Random weights; random codebooks of the scale of a LayerNorm's output. */
static inline Status sample_open(SampleCluster *cluster, const ModelConfig *config, uint64_t seed) {
  Rng rng;
  rng_init(&rng, seed, 0);
  *cluster = (SampleCluster){0};
  TRY(config_copy(&cluster->config, config));
  TRY(model_new(&cluster->model, config));
  ParamSet *params = model_params(cluster->model);
  TRY(param_allocate(params, false));
  param_initialise(params, &rng);
  for (size_t i = 0; i < params->count; i++) sample_scale(&params->list[i], &rng);
  int sets = (int)config_codebooks(config);
  int64_t each = config->astra.codebook_size * config_site_width(config);
  cluster->books = calloc((size_t)sets + 1, sizeof(Codebook));
  cluster->codewords = malloc((size_t)(sets * each + 1) * sizeof(real));
  for (int64_t i = 0; i < sets * each; i++) cluster->codewords[i] = (real)(3 * rng_normal(&rng));
  for (int i = 0; i < sets; i++) {
    TRY(codebook_init(&cluster->books[i], config->astra.groups, config->astra.codebook_size, config_site_width(config),
                      cluster->codewords + i * each));
    codebook_refresh(&cluster->books[i]);
  }
  return STATUS_OK;
}

static inline void sample_close(SampleCluster *cluster) {
  for (int i = 0; i < config_codebooks(&cluster->config); i++) codebook_release(&cluster->books[i]);
  free(cluster->books);
  free(cluster->codewords);
  model_free(cluster->model);
  config_release(&cluster->config);
}

static inline Status sample_save(SampleCluster *cluster, const char *directory) {
  return checkpoint_save(cluster->model, directory, cluster->config.astra.groups ? cluster->codewords : NULL, NULL, SAFE_F32);
}

static inline void sample_pixels(const ModelConfig *config, uint64_t seed, int64_t batch, float *pixels) {
  Rng rng;
  rng_init(&rng, seed, 1);
  for (int64_t i = 0; i < batch * config->channels * config->image * config->image; i++) pixels[i] = (float)rng_normal(&rng);
}

/* NUMERIC unless the codeword nearest to each group of x [rows, width] is nearer than all others by far more than any kernel's rounding
 * (2e-7 of the squares that make up a distance): then every kernel chooses the same codes, and they can be compared exactly. */
static inline Status sample_check_margins(const Codebook *book, const real *x, int64_t rows) {
  const int64_t n = book->width / book->groups;
  for (int64_t i = 0; i < rows * book->groups; i++) {
    const real *part = x + i * n, *words = book->codewords + i % book->groups * book->entries * n;
    double nearest = INFINITY, second = INFINITY, squares = 0;
    for (int64_t k = 0; k < book->entries; k++) {
      double distance = 0, sum = 0;
      for (int64_t j = 0; j < n; j++) {
        const double a = (double)part[j], b = (double)words[k * n + j];
        distance += (a - b) * (a - b);
        sum += a * a + b * b;
      }
      if (distance < nearest)
        second = nearest, nearest = distance, squares = sum;
      else if (distance < second)
        second = distance;
    }
    if (second - nearest < 2e-6 * squares)
      return status_set(STATUS_NUMERIC, "row %lld: the sample has a code that is nearly a tie; choose another seed",
                        (long long)(i / book->groups));
  }
  return STATUS_OK;
}

static inline Status sample_quantise(SampleAnswer *answer, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  const ModelConfig *config = &answer->cluster->config;
  int set = (block - config_first_coded(config)) * config_sites(config) + site;
  const Codebook *book = &answer->cluster->books[set];
  int64_t batch = h->shape[0], width = book->width, shape[3] = {batch, layout->shared, width};
  Status status = STATUS_OK;
  real *x = malloc((size_t)(layout->shared * width) * sizeof(real));
  int32_t *codes = malloc((size_t)(layout->shared * book->groups) * sizeof(int32_t));
  void *scratch = malloc(codebook_assign_scratch(book, layout->shared));
  Tensor *expected = NULL;
  if (answer->exchange.predict_weight[site])
    expected =
        op_linear(tape, answer->known, answer->exchange.predict_weight[site], answer->exchange.predict_bias[site], ACTIVATION_NONE, NULL);
  answer->remote[site] = tape_tensor(tape, 3, shape);
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t i = 0; i < layout->shared; i++)
      memcpy(x + i * width, h->value + (b * layout->rows + layout->shared_row[i]) * width, (size_t)width * sizeof(real));
    for (int64_t i = 0; expected && i < layout->shared * width; i++) x[i] -= expected->value[b * layout->shared * width + i];
    if (answer->cluster->no_ties && status == STATUS_OK) status = sample_check_margins(book, x, layout->shared);
    codebook_assign(book, x, layout->shared, codes, NULL, scratch);
    codebook_lookup(book, codes, layout->shared, answer->remote[site]->value + b * layout->shared * width);
    for (int64_t i = 0; i < layout->shared; i++) {
      int64_t token = layout->row_token[layout->shared_row[i]];
      if (token < 0) continue;
      memcpy(answer->codes + (((int64_t)set * batch + b) * layout->tokens + token) * book->groups, codes + i * book->groups,
             (size_t)book->groups * sizeof(int32_t));
    }
  }
  for (int64_t i = 0; expected && i < tensor_count(expected); i++) answer->remote[site]->value[i] += expected->value[i];
  free(x);
  free(codes);
  free(scratch);
  return status;
}

static inline Status sample_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                  Tensor *const h[EXCHANGE_SITES]) {
  (void)part;
  for (int site = 0; site < EXCHANGE_SITES && h[site]; site++)
    TRY(sample_quantise((SampleAnswer *)self, tape, layout, block, site, h[site]));
  Tensor **remote = ((SampleAnswer *)self)->remote;
  ((SampleAnswer *)self)->known = h[1] ? op_join(tape, remote[0], remote[1]) : remote[0];
  return tape_status(tape);
}

static inline Status sample_know(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  (void)layout, (void)part, (void)own;
  if (remote) ((SampleAnswer *)self)->known = op_widen(tape, remote);
  return tape_status(tape);
}

static inline Status sample_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                   ExchangeRows rows[EXCHANGE_SITES]) {
  (void)tape, (void)layout, (void)block, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++) rows[site].x = ((SampleAnswer *)self)->remote[site];
  return STATUS_OK;
}

/* The answer of `devices` devices: counts and order as in layout_build. */
static inline Status sample_answer(SampleCluster *cluster, int devices, const int64_t *counts, const int32_t *order, const float *pixels,
                                   int64_t batch, SampleAnswer *answer) {
  const ModelConfig *config = &cluster->config;
  int64_t tokens = config_tokens(config), shape[4] = {batch, config->channels, config->image, config->image};
  TokenLayout layout = {0};
  *answer = (SampleAnswer){.exchange = {.begin = sample_begin, .finish = sample_finish}, .cluster = cluster, .batch = batch};
  answer->codes = calloc((size_t)(config->blocks * batch * tokens * (config->astra.groups + 1)), sizeof(int32_t));
  answer->logits = calloc((size_t)(batch * config->classes), sizeof(real));
  Arena *arena = arena_new((size_t)1 << 32);
  Tape *tape = tape_new(arena);
  tape_record(tape, false);
  Status status = devices > 1 ? layout_build(&layout, tokens, devices, counts, order, config->astra.class_token, -1)
                              : layout_build_plain(&layout, tokens, config->astra.class_token);
  if (status == STATUS_OK) {
    Tensor *input = tape_tensor(tape, 4, shape);
    for (int64_t i = 0; i < tensor_count(input); i++) input->value[i] = (real)pixels[i];
    Tensor *replicas = model_encode(cluster->model, tape, &(ModelInput){.pixels = input}, &layout, devices > 1 ? &answer->exchange : NULL,
                                    MODEL_ROWS_CLASS);
    Tensor *logits = model_classify_replicas(cluster->model, tape, replicas, layout.class_tokens);
    status = tape_status(tape);
    if (logits) memcpy(answer->logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  }
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
  return status;
}

static inline void sample_answer_release(SampleAnswer *answer) {
  free(answer->codes);
  free(answer->logits);
}

/* selftest.safetensors of `batch` images, as training writes it, over an even contiguous map of config.astra.devices. */
static inline Status sample_save_selftest(SampleCluster *cluster, const char *directory, int64_t batch) {
  const ModelConfig *config = &cluster->config;
  int devices = config->astra.devices;
  int64_t tokens = config_tokens(config), numbers = batch * config->channels * config->image * config->image, counts[64];
  float *pixels = malloc((size_t)numbers * sizeof(float));
  int32_t *device_of = malloc((size_t)tokens * sizeof(int32_t));
  SampleAnswer answer;
  SafeItem items[64];
  char names[60][48], path[4096];
  sample_pixels(config, 7, batch, pixels);
  layout_even_counts(tokens, devices, counts);
  for (int64_t d = 0, i = 0; d < devices; i += counts[d++]) {
    for (int64_t j = 0; j < counts[d]; j++) device_of[i + j] = (int32_t)d;
  }
  TRY(sample_answer(cluster, devices, counts, NULL, pixels, batch, &answer));
  size_t count = 0;
  items[count++] = (SafeItem){.name = "pixel_values",
                              .dtype = SAFE_F32,
                              .source = SAFE_F32,
                              .dims = 4,
                              .shape = {batch, config->channels, config->image, config->image},
                              .data = pixels};
  items[count++] = (SafeItem){
      .name = "logits", .dtype = SAFE_F32, .source = SAFE_REAL, .dims = 2, .shape = {batch, config->classes}, .data = answer.logits};
  items[count++] = (SafeItem){.name = "device_of", .dtype = SAFE_I32, .source = SAFE_I32, .dims = 1, .shape = {tokens}, .data = device_of};
  for (int64_t i = 0; i < config_codebooks(config) && i < 60; i++) {
    snprintf(names[i], sizeof names[i], "codes.astra.layers.%lld.x", (long long)i);
    items[count++] = (SafeItem){.name = names[i],
                                .dtype = SAFE_I32,
                                .source = SAFE_I32,
                                .dims = 3,
                                .shape = {batch, tokens, config->astra.groups},
                                .data = answer.codes + i * batch * tokens * config->astra.groups};
  }
  snprintf(path, sizeof path, "%s/selftest.safetensors", directory);
  Status status = safetensors_save(path, items, count, NULL);
  free(pixels);
  free(device_of);
  sample_answer_release(&answer);
  return status;
}

#endif
