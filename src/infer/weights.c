/* Loads a checkpoint for inference; the files themselves are nn/checkpoint.c's. */
#include "infer/weights.h"
#include "vq/code_frequencies.h"
#include "vq/pack.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static Status load_model(Weights *weights, const char *directory) {
  ModelConfig config = {0};
  TRY(config_load(&config, directory));
  Status status = model_new(&weights->model, &config);
  config_release(&config);
  if (status != STATUS_OK) return status_wrap(status, "%s", directory);
  weights->config = model_config(weights->model);
  return checkpoint_map_params(weights->model, directory, &weights->mapping);
}

/* One shared mapping for all codewords: forked nodes read the same pages, and a stray write is a fault instead of a wrong answer. */
static Status load_codewords(Weights *weights, const char *directory) {
  const ModelConfig *config = weights->config;
  weights->codeword_bytes =
      (size_t)weights->book_count * (size_t)config->astra.codebook_size * (size_t)config_site_width(config) * sizeof(real);
  void *block = mmap(NULL, weights->codeword_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return status_set(STATUS_NO_MEMORY, "%s: no memory for %zu bytes of codebooks: %s", directory, weights->codeword_bytes,
                      strerror(errno));
  weights->codewords = block;
  Status status = checkpoint_load_codebooks(config, directory, weights->codewords);
  if (status == STATUS_NOT_FOUND)
    return status_set(STATUS_BAD_FILE, "%s: config.json says %d groups, but there are no codebooks in model.safetensors", directory,
                      config->astra.groups);
  return status;
}

static Status load_books(Weights *weights, const char *directory) {
  const ModelConfig *config = weights->config;
  int64_t width = config_site_width(config), entries = config->astra.codebook_size;
  weights->book_count = (int)config->blocks * config_sites(config);
  TRY(load_codewords(weights, directory));
  weights->books = calloc((size_t)weights->book_count, sizeof *weights->books);
  if (!weights->books) return status_set(STATUS_NO_MEMORY, "no memory for %d codebooks", weights->book_count);
  for (int i = 0; i < weights->book_count; i++) {
    TRY(codebook_init(&weights->books[i], config->astra.groups, entries, width, weights->codewords + i * entries * width));
    codebook_refresh(&weights->books[i]);
  }
  mprotect(weights->codewords, weights->codeword_bytes, PROT_READ);
  return STATUS_OK;
}

static double share_of(const uint16_t *frequencies, int64_t tables, int64_t entries) {
  double bits = 0;
  for (int64_t i = 0; i < tables; i++) bits += code_frequencies_entropy(frequencies + i * entries, entries);
  return bits / ((double)tables * pack_bits(entries));
}

/* A checkpoint without frequencies sends packed codes. */
static Status load_coding(Weights *weights, const char *directory) {
  const ModelConfig *config = weights->config;
  int64_t tables = (int64_t)weights->book_count * config->astra.groups, entries = config->astra.codebook_size;
  uint16_t *frequencies = malloc((size_t)(tables * entries) * sizeof *frequencies);
  if (!frequencies) return status_set(STATUS_NO_MEMORY, "no memory for the frequencies of %lld codes", (long long)(tables * entries));
  Status status = checkpoint_load_frequencies(config, directory, frequencies);
  if (status == STATUS_OK) status = rans_tables_new(&weights->coding, frequencies, tables, entries);
  if (status == STATUS_OK) {
    weights->frequencies = frequencies;
    weights->coded_share = share_of(frequencies, tables, entries);
  } else {
    free(frequencies);
  }
  return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

Status weights_load(Weights *weights, const char *directory) {
  *weights = (Weights){.coded_share = 1};
  Status status = load_model(weights, directory);
  if (status == STATUS_OK && weights->config->astra.groups > 0) status = load_books(weights, directory);
  if (status == STATUS_OK && weights->books != NULL) status = load_coding(weights, directory);
  if (status != STATUS_OK) weights_release(weights);
  return status;
}

Status weights_make_tables(Weights *weights, size_t memory) {
  if (!weights->books || memory == 0 || weights->keys) return STATUS_OK;
  const real **codewords = calloc((size_t)weights->book_count, sizeof *codewords);
  if (!codewords) return status_set(STATUS_NO_MEMORY, "no memory for tables of keys and values");
  for (int i = 0; i < weights->book_count; i++) codewords[i] = weights->books[i].codewords;
  const KeyTablesSetup setup = {.codewords = codewords,
                                .groups = weights->config->astra.groups,
                                .entries = weights->config->astra.codebook_size,
                                .memory = memory,
                                .measure = true};
  Status status = key_tables_build(&weights->keys, weights->model, &setup);
  free(codewords);
  return status == STATUS_UNSUPPORTED ? STATUS_OK : status;
}

void weights_release(Weights *weights) {
  key_tables_free(weights->keys);
  for (int i = 0; weights->books && i < weights->book_count; i++) codebook_release(&weights->books[i]);
  free(weights->books);
  free(weights->frequencies);
  rans_tables_free(weights->coding);
  if (weights->codewords) munmap(weights->codewords, weights->codeword_bytes);
  model_free(weights->model);
  if (weights->mapping) checkpoint_unmap(weights->mapping);
  *weights = (Weights){0};
}

void weights_loader_options(const Weights *weights, LoaderOptions *options) {
  const ModelConfig *config = weights->config;
  *options = (LoaderOptions){.image = (int)config->image,
                             .filter = config->resample == RESIZE_BICUBIC ? RESIZE_BICUBIC : RESIZE_BILINEAR,
                             .batch = 1,
                             .workers = 1};
  memcpy(options->mean, config->image_mean, sizeof options->mean);
  memcpy(options->std, config->image_std, sizeof options->std);
}

int64_t weights_pixels(const Weights *weights) { return weights->config->channels * weights->config->image * weights->config->image; }
