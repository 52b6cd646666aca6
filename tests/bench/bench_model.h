/* What benchmarks of blocks share. */
#ifndef TESTS_BENCH_MODEL_H
#define TESTS_BENCH_MODEL_H
#include "nn/model.h"
#include <stdio.h>
#include <stdlib.h>

static inline void must(Status status) {
  if (status == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(1);
}

/* ViT-Base with so many blocks and random weights. */
static inline Model *make_model(int64_t blocks) {
  ModelConfig config;
  Model *model;
  Rng rng;
  must(config_preset(&config, "vit-base", 10));
  config.blocks = blocks;
  must(model_new(&model, &config));
  must(param_allocate(model_params(model), false));
  rng_init(&rng, 1, 0);
  model_initialise(model, &rng);
  config_release(&config);
  return model;
}

#endif
