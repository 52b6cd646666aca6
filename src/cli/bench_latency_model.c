/* Weights and codebooks at random. */
#include "cli/bench_latency_model.h"
#include <stdlib.h>

static void describe(ModelConfig *config, const LatencySize *size) {
  config_defaults(config, MODEL_VIT);
  config->width = size->width;
  config->blocks = size->blocks;
  config->heads = config->kv_heads = size->heads;
  config->mlp = 4 * size->width;
  config->patch = 16, config->image = 512; /* of no matter: rows are given, nothing is embedded */
  config->channels = 3;
  config->astra = (AstraConfig){
      .groups = 1, .codebook_size = (int)size->entries, .devices = 4, .devices_least = 1, .site = SITE_X, .class_token = CLASS_DISTRIBUTED};
}

Status bench_latency_model_open(LatencyModel *model, const LatencySize *size) {
  Rng rng;
  *model = (LatencyModel){.groups = 0};
  describe(&model->config, size);
  TRY(config_set_labels(&model->config, NULL, 2));
  TRY(model_new(&model->weights.model, &model->config));
  TRY(param_allocate(model_params(model->weights.model), false));
  rng_init(&rng, 1, 0);
  model_initialise(model->weights.model, &rng);
  model->weights.config = model_config(model->weights.model);
  return STATUS_OK;
}

static void release_books(LatencyModel *model) {
  for (int64_t b = 0; model->books && b < model->config.blocks; b++) codebook_release(&model->books[b]);
  free(model->books);
  key_tables_free(model->tables);
  model->books = NULL;
  model->tables = NULL;
  model->groups = model->entries = 0;
}

void bench_latency_model_close(LatencyModel *model) {
  release_books(model);
  model_free(model->weights.model);
  config_release(&model->config);
  *model = (LatencyModel){.groups = 0};
}

static Status draw_books(LatencyModel *model, int groups, int entries) {
  Rng rng;
  rng_init(&rng, 1, 1);
  model->books = calloc((size_t)model->config.blocks, sizeof *model->books);
  if (!model->books) return status_set(STATUS_NO_MEMORY, "no memory for codebooks");
  for (int64_t b = 0; b < model->config.blocks; b++) {
    Codebook *book = &model->books[b];
    TRY(codebook_init(book, groups, entries, model->config.width, NULL));
    for (int64_t i = 0; i < book->entries * book->width; i++) book->codewords[i] = (real)(rng_uniform(&rng) - 0.5);
    codebook_refresh(book);
  }
  return STATUS_OK;
}

static Status build_tables(LatencyModel *model, size_t memory) {
  const real **codewords = calloc((size_t)model->config.blocks, sizeof *codewords);
  if (!codewords) return status_set(STATUS_NO_MEMORY, "no memory for tables of keys and values");
  for (int64_t b = 0; b < model->config.blocks; b++) codewords[b] = model->books[b].codewords;
  const KeyTablesSetup setup = {.codewords = codewords,
                                .groups = model->books[0].groups,
                                .entries = model->books[0].entries,
                                .memory = memory,
                                .measure = model->books[0].groups > 1};
  Status status = key_tables_build(&model->tables, model->weights.model, &setup);
  free(codewords);
  return status;
}

Status bench_latency_model_codes(LatencyModel *model, int groups, int entries, double table_bytes) {
  if (model->groups == groups && model->entries == entries) return STATUS_OK;
  release_books(model);
  Status status = draw_books(model, groups, entries);
  if (status == STATUS_OK && table_bytes >= 1) status = build_tables(model, (size_t)table_bytes);
  if (status == STATUS_OK)
    model->groups = groups, model->entries = entries;
  else
    release_books(model);
  return status;
}
