/* A training run in miniature: a directory with a CIFAR-100-like data set of coloured squares and an untrained vision transformer of two
 * blocks of width 48 on 16 tokens, and sessions opened on it. */
#ifndef TESTS_TINY_RUN_H
#define TESTS_TINY_RUN_H
#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "train/codebooks.h"
#include "train/micro_step.h"
#include "train/state.h"
#include "train/trainer.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TINY_TRAIN = 44, TINY_TEST = 12, TINY_SIDE = 32, TINY_CLASSES = 100, TINY_TOKENS = 16, TINY_WIDTH = 48, TINY_BLOCKS = 2 };

static char tiny_dir[TEMPORARY_PATH];

/* "DIR/name"; valid until the eighth call after this one. */
static inline const char *tiny_path(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", tiny_dir, name);
  return path;
}

/* Records of a coarse label, a fine one and three planes of 32 x 32. The class decides the colour of each quarter; the rest is noise. */
static inline void tiny_write_records(const char *path, int count, uint64_t seed) {
  Rng rng;
  rng_init(&rng, seed, 0);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (int i = 0; i < count; i++) {
    int class = i % 4;
    fputc(class, file);
    fputc(class, file);
    for (int plane = 0; plane < 3; plane++)
      for (int y = 0; y < TINY_SIDE; y++)
        for (int x = 0; x < TINY_SIDE; x++) {
          int bright = (class >> (plane % 2) & 1) ^ (y / 16) ^ (x / 16);
          fputc((bright ? 170 : 60) + (int)rng_below(&rng, 25), file);
        }
  }
  assert_int_equal(fclose(file), 0);
}

static inline void tiny_config(ModelConfig *config) {
  assert_int_equal(config_preset(config, "vit-cifar", TINY_CLASSES), STATUS_OK);
  config->width = TINY_WIDTH;
  config->heads = config->kv_heads = 4;
  config->blocks = TINY_BLOCKS;
  config->mlp = 96;
  config->patch = 8;
}

static inline void tiny_write_model(const char *directory) {
  ModelConfig config;
  Model *model;
  Rng rng;
  tiny_config(&config);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  rng_init(&rng, 11, 0);
  param_initialise(model_params(model), &rng);
  for (int64_t i = 0; i < model_params(model)->total; i++) model_params(model)->values[i] *= 3; /* livelier than a fresh start */
  assert_int_equal(checkpoint_save(model, directory, NULL, NULL, SAFE_F32), STATUS_OK);
  model_free(model);
  config_release(&config);
}

static inline int tiny_make(void **state) {
  (void)state;
  log_quiet(true);
  if (make_temporary_folder(tiny_dir) != 0) return -1;
  tiny_write_records(tiny_path("train.bin"), TINY_TRAIN, 1);
  tiny_write_records(tiny_path("test.bin"), TINY_TEST, 2);
  tiny_write_model(tiny_path("model"));
  return 0;
}

static inline int tiny_remove(void **state) {
  (void)state;
  return remove_tree(tiny_dir);
}

/* What runs on images and on texts share: groups, a few codewords, 2 devices at least. */
static inline TrainOptions tiny_shared_options(void) {
  TrainOptions options;
  session_defaults(&options);
  options.warmup = 2;
  options.optimizer.rate = 1e-3;
  options.optimizer.decay = 0.05;
  options.groups = 4;
  options.entries = 8;
  options.devices[0] = 2;
  options.log_every = 4;
  options.quiet = true;
  return options;
}

/* Everything on: groups, noise, random maps over 2 to 4 devices, averages. 5 steps make an epoch. */
static inline TrainOptions tiny_options(void) {
  TrainOptions options = tiny_shared_options();
  static char model[256], out[256];
  snprintf(model, sizeof model, "%s/model", tiny_dir);
  snprintf(out, sizeof out, "%s/out", tiny_dir);
  options.model = model;
  options.out = out;
  options.data_dir = tiny_dir;
  options.batch = 8;
  options.max_steps = 12;
  options.map = COUNTS_DIRICHLET;
  options.kmeans_samples = 256;
  options.eval_samples = 8;
  return options;
}

/* Another place for the checkpoint, kept in `path`. */
static inline void tiny_set_out(TrainOptions *options, char path[256], const char *name) {
  snprintf(path, 256, "%s/%s", tiny_dir, name);
  options->out = path;
}

static inline void tiny_check(Status status) {
  if (status != STATUS_OK) fail_msg("%s: %s", status_text(status), status_message());
}

static inline void tiny_open(Session *session, const TrainOptions *options) {
  tiny_check(session_open(session, options, SESSION_TRAIN));
  if (session_astra(session)) tiny_check(codebooks_fit(session, NULL));
  tiny_check(session->task->source->seek(session, TASK_TRAIN, 0, 0));
}

/* The checkpoint of a session as it is: that of a run with nothing left to do. */
static inline Status tiny_save(Session *session) {
  TrainResult result;
  int64_t total = session->total_steps;
  session->total_steps = session->step;
  Status status = trainer_run(session, &result);
  session->total_steps = total;
  return status;
}

/* One optimizer step, as trainer.c makes it. */
static inline void tiny_step(Session *session) {
  param_zero_grads(model_params(session->model));
  for (int64_t i = 0; i < session->options.accumulate; i++) {
    TaskBatch batch;
    StepResult result;
    tiny_check(session->task->source->next(session, TASK_TRAIN, &batch));
    tiny_check(micro_step(session, &batch, &result));
  }
  double norm, factor = optimizer_schedule(session->step, session->options.warmup, session->total_steps, session->options.rate_floor);
  tiny_check(optimizer_step(&session->optimizer, factor, 1.0 / (double)session->options.accumulate, &norm));
  session->step++;
}

static inline void tiny_steps(Session *session, int count) {
  for (int i = 0; i < count; i++) tiny_step(session);
}

/* To the batch that the session's step begins with. */
static inline void tiny_seek(Session *session) { tiny_check(session_seek_step(session)); }

/* Steps until there have been `last`. As trainer.c goes on from epoch to epoch: micro-batches left over at the end of one are not used. */
static inline void tiny_steps_to(Session *session, int64_t last) {
  while (session->step < last) {
    tiny_step(session);
    if (session->step % session_epoch_steps(session) == 0) tiny_seek(session);
  }
}

static inline size_t tiny_codeword_count(const Session *session) {
  return (size_t)emulate_all_sites(&session->emulation) * (size_t)session->config->astra.codebook_size *
         (size_t)config_site_width(session->config);
}

/* Weights, moments and codebooks of two runs are the same bits. */
static inline void tiny_assert_same(Session *a, Session *b) {
  size_t bytes = (size_t)model_params(a->model)->total * sizeof(real);
  assert_int_equal(model_params(a->model)->total, model_params(b->model)->total);
  assert_memory_equal(model_params(a->model)->values, model_params(b->model)->values, bytes);
  size_t moment = bytes / sizeof(real) * (a->optimizer.options.moments == OPTIMIZER_32_BITS ? sizeof(real) : 1),
         scales = (size_t)a->optimizer.scales;
  if (a->optimizer.options.moments == OPTIMIZER_16_BITS) moment *= sizeof(uint16_t);
  assert_memory_equal(a->optimizer.first.numbers, b->optimizer.first.numbers, moment);
  assert_memory_equal(a->optimizer.second.numbers, b->optimizer.second.numbers, moment);
  if (a->optimizer.first.scales) assert_memory_equal(a->optimizer.first.scales, b->optimizer.first.scales, scales * sizeof(float));
  if (a->optimizer.second.scales) assert_memory_equal(a->optimizer.second.scales, b->optimizer.second.scales, scales * sizeof(float));
  if (a->optimizer.average) assert_memory_equal(a->optimizer.average, b->optimizer.average, bytes);
  if (!session_astra(a)) return;
  assert_memory_equal(a->emulation.codewords, b->emulation.codewords, tiny_codeword_count(a) * sizeof(real));
  for (int i = 0; i < emulate_all_sites(&a->emulation); i++) {
    const EmulateSite *x = &a->emulation.all[i], *y = &b->emulation.all[i];
    size_t width = (size_t)x->book.width;
    assert_memory_equal(x->ema.sizes, y->ema.sizes, (size_t)(x->book.groups * x->book.entries) * sizeof(real));
    assert_memory_equal(x->ema.sums, y->ema.sums, (size_t)x->book.entries * width * sizeof(real));
    assert_memory_equal(x->navq.mean, y->navq.mean, width * sizeof(real));
    assert_memory_equal(x->navq.factor, y->navq.factor, width * (width / (size_t)x->book.groups) * sizeof(real));
  }
}

/* Another run of `options` stops after `stop` steps, goes on from what it saved, and at the step of `whole` holds the same bits. */
static inline void tiny_assert_goes_on(Session *whole, const TrainOptions *options, int64_t stop) {
  Session first, second;
  tiny_open(&first, options);
  tiny_steps_to(&first, stop);
  tiny_check(state_save(&first, options->out));
  session_close(&first);
  tiny_check(session_open(&second, options, SESSION_TRAIN));
  tiny_check(state_load(&second, options->out));
  tiny_seek(&second);
  tiny_steps_to(&second, whole->step);
  tiny_assert_same(whole, &second);
  session_close(&second);
}

static inline char *tiny_read(const char *path, size_t *size) {
  char *data;
  tiny_check(files_read(path, (size_t)64 << 20, &data, size));
  return data;
}

static inline void tiny_assert_same_files(const char *a, const char *b) {
  size_t size_a, size_b;
  char *data_a = tiny_read(a, &size_a), *data_b = tiny_read(b, &size_b);
  assert_int_equal(size_a, size_b);
  assert_memory_equal(data_a, data_b, size_a);
  free(data_a);
  free(data_b);
}

#endif
