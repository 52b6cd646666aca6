/* Loads a checkpoint for inference; nn/checkpoint.c reads the files. */
#include "infer/weights.h"
#include "autograd/kernels/matmul.h"
#include "autograd/narrow.h"
#include "base/memory.h"
#include "vq/pack.h"
#include "vq/rans.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const Weights *guarded; /* weights_guard */

static Status load_model(Weights *weights, const char *directory, WeightsType type) {
  static const NarrowKind kinds[] = {[WEIGHTS_FLOAT32] = NARROW_NONE, [WEIGHTS_FLOAT16] = NARROW_F16, [WEIGHTS_BFLOAT16] = NARROW_BF16};
  ModelConfig config = {0};
  TRY(config_load(&config, directory));
  Status status = model_new(&weights->model, &config);
  config_release(&config);
  if (status != STATUS_OK) return status_wrap(status, "%s", directory);
  weights->config = model_config(weights->model);
  TRY(checkpoint_map_params(weights->model, directory, &weights->mapping));
  const ParamSet *params = model_params(weights->model);
  NarrowKind matrices = NARROW_NONE; /* of the checkpoint */
  for (size_t i = 0; i < params->count && matrices == NARROW_NONE; i++) matrices = params->list[i].tensor.narrow_kind;
  if (matrices == NARROW_NONE && lowbit_weights_of(weights->model) != LOWBIT_NONE) matrices = NARROW_F16;
  weights->cache_kind = type == WEIGHTS_AUTO ? matrices : kinds[type];
  return STATUS_OK;
}

/* One shared mapping for all codewords: forked nodes read the same pages, and a stray write is a fault instead of a wrong answer. In 16
 * bits it shrinks to half (the numbers move to its beginning), if they hold every number exactly: a rounded codebook would choose other
 * codes than the one that the model was trained with. */
static Status load_codewords(Weights *weights, const char *directory, NarrowKind *kind) {
  const ModelConfig *config = weights->config;
  int64_t count = (int64_t)config_rates(config) * weights->book_count * config->astra.codebook_size * config_site_width(config);
  size_t bytes = (size_t)count * sizeof(real);
  real *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return status_set(STATUS_NO_MEMORY, "%s: no memory for %zu bytes of codebooks: %s", directory, bytes, strerror(errno));
  weights->codewords = block;
  weights->codeword_bytes = bytes;
  Status status = checkpoint_load_codebooks(config, directory, block);
  if (status == STATUS_NOT_FOUND)
    return status_set(STATUS_BAD_FILE, "%s: config.json says %d groups, but there are no codebooks in model.safetensors", directory,
                      config->astra.groups);
  TRY(status);
  uint16_t *narrow = *kind != NARROW_NONE ? malloc((size_t)count * sizeof *narrow) : NULL;
  if (*kind != NARROW_NONE && !narrow) return status_no_memory(directory, "codebooks in 16 bits");
  for (int64_t i = 0; *kind != NARROW_NONE && i < count; i++) {
    narrow[i] = *kind == NARROW_F16 ? narrow_half((float)block[i]) : narrow_bfloat((float)block[i]);
    if ((real)narrow_to_float(*kind, narrow[i]) != block[i]) *kind = NARROW_NONE;
  }
  if (*kind != NARROW_NONE) {
    weights->codeword_bytes = (size_t)count * sizeof *narrow;
    memcpy(block, narrow, weights->codeword_bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), kept = (weights->codeword_bytes + page - 1) / page * page;
    if (kept < bytes) munmap((uint8_t *)block + kept, bytes - kept);
  }
  free(narrow);
  return STATUS_OK;
}

static Status load_books(Weights *weights, const char *directory) {
  const ModelConfig *config = weights->config;
  int64_t width = config_site_width(config), entries = config->astra.codebook_size;
  NarrowKind kind = weights->cache_kind;
  weights->book_count = (int)config_codebooks(config);
  TRY(load_codewords(weights, directory, &kind));
  for (int rate = 0; rate < config_rates(config); rate++) {
    const int groups = config_rate_groups(config, rate);
    Codebook *books = weights->rate[rate].books = calloc((size_t)weights->book_count, sizeof *books);
    weights->rate[rate].coded_share = 1;
    if (!books) return status_set(STATUS_NO_MEMORY, "no memory for %d codebooks", weights->book_count);
    for (int i = 0; i < weights->book_count; i++) {
      const int64_t at = ((int64_t)rate * weights->book_count + i) * entries * width;
      if (kind != NARROW_NONE) {
        TRY(codebook_init_narrow(&books[i], groups, entries, width, kind, (const uint16_t *)weights->codewords + at));
      } else {
        TRY(codebook_init(&books[i], groups, entries, width, (real *)weights->codewords + at));
        codebook_refresh(&books[i]);
      }
    }
  }
  mprotect(weights->codewords, weights->codeword_bytes, PROT_READ);
  return STATUS_OK;
}

/* Codewords are borrowed from the others. */
static Status constrain_books(const Weights *weights, WeightsRate *rate) {
  rate->constrained = calloc((size_t)weights->book_count, sizeof *rate->constrained);
  if (!rate->constrained) return status_set(STATUS_NO_MEMORY, "no memory for %d codebooks", weights->book_count);
  for (int i = 0; i < weights->book_count; i++) {
    const Codebook *book = &rate->books[i];
    Codebook *constrained = &rate->constrained[i];
    TRY(book->narrow ? codebook_init_narrow(constrained, book->groups, book->entries, book->width, book->kind, book->narrow)
                     : codebook_init(constrained, book->groups, book->entries, book->width, book->codewords));
    codebook_constrain(constrained, rate->frequencies + i * book->groups * book->entries, (double)weights->entropy_weight);
  }
  return STATUS_OK;
}

/* A checkpoint without frequencies sends packed codes. */
static Status load_coding(Weights *weights, const char *directory) {
  const ModelConfig *config = weights->config;
  const int64_t entries = config->astra.codebook_size, numbers = checkpoint_frequencies(config);
  uint16_t *frequencies = malloc((size_t)numbers * sizeof *frequencies);
  if (!frequencies) return status_set(STATUS_NO_MEMORY, "no memory for the frequencies of %lld codes", (long long)numbers);
  Status status = checkpoint_load_frequencies(config, directory, frequencies, &weights->entropy_weight);
  if (status != STATUS_OK) {
    free(frequencies);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
  }
  weights->frequencies = frequencies;
  for (int r = 0; r < config_rates(config); r++) {
    WeightsRate *rate = &weights->rate[r];
    const int64_t tables = (int64_t)weights->book_count * config_rate_groups(config, r);
    double bits = 0;
    TRY(rans_tables_new(&rate->coding, frequencies, tables, entries));
    for (int64_t i = 0; i < tables; i++) bits += code_frequencies_bits(NULL, frequencies + i * entries, entries);
    rate->frequencies = frequencies;
    rate->coded_share = bits / ((double)tables * pack_bits(entries));
    if (weights->entropy_weight > 0) TRY(constrain_books(weights, rate));
    frequencies += tables * entries;
  }
  return STATUS_OK;
}

static void take_rate(Weights *weights) {
  const WeightsRate *rate = &weights->rate[config_rate(weights->config)];
  weights->books = rate->books;
  weights->constrained = rate->constrained;
  weights->coding = rate->coding;
  weights->coded_share = rate->coded_share;
  weights->keys = rate->keys;
}

Status weights_use_rate(Weights *weights, int groups) {
  TRY(model_use_rate(weights->model, groups));
  take_rate(weights);
  return STATUS_OK;
}

Status weights_load(Weights *weights, const char *directory) { return weights_load_as(weights, directory, WEIGHTS_AUTO); }

Status weights_load_as(Weights *weights, const char *directory, WeightsType type) {
  *weights = (Weights){.coded_share = 1};
  Status status = load_model(weights, directory, type);
  if (status == STATUS_OK && weights->config->astra.groups > 0) status = load_books(weights, directory);
  if (status == STATUS_OK && weights->rate[0].books != NULL) status = load_coding(weights, directory);
  if (status == STATUS_OK && weights->rate[0].books != NULL) take_rate(weights);
  if (status != STATUS_OK) weights_release(weights);
  return status;
}

Status weights_quantise(Weights *weights, WeightsBits bits) {
  if (bits == WEIGHTS_AS_THEY_ARE) return STATUS_OK;
  return lowbit_weights_make(weights->model, bits == WEIGHTS_INT8 ? LOWBIT_INT8 : LOWBIT_Q4_0, &weights->lowbit);
}

Status weights_make_drafts(Weights *weights, const char *directory) {
  const LowbitKind kind = lowbit_weights_of(weights->model);
  if (kind != LOWBIT_NONE && kind != LOWBIT_INT8)
    return status_set(STATUS_BAD_USAGE, "a copy to draft with: the matrices have few bits already, and a copy with 4 would be no faster");
  if (!(weights->drafts = calloc(1, sizeof *weights->drafts))) return status_no_memory(NULL, "a copy to draft with");
  Status status = weights_load(weights->drafts, directory);
  if (status == STATUS_OK) status = weights_quantise(weights->drafts, WEIGHTS_INT4);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "a copy to draft with");
}

Status weights_use_precision(Weights *weights, WeightsPrecision precision) {
  weights->bf16 = precision == WEIGHTS_BF16 || (precision == WEIGHTS_FASTER && matmul_bf16_is_faster());
  return weights->bf16 ? model_pack_weights(weights->model, true) : STATUS_OK;
}

Status weights_pack(Weights *weights, bool where_roomy) {
  const double bytes = (double)param_count_numbers(model_params(weights->model)) * sizeof(real);
  if (weights->bf16 || weights->packed || (where_roomy && bytes >= memory_available() / 4)) return STATUS_OK;
  weights->packed = true;
  return model_pack_weights(weights->model, false);
}

static Status make_tables(const Weights *weights, WeightsRate *rate, size_t memory) {
  if (rate->keys) return STATUS_OK;
  const Codebook *first = &rate->books[0];
  const int64_t numbers = first->entries * first->width;
  real *made = first->narrow ? malloc((size_t)(weights->book_count * numbers) * sizeof *made) : NULL; /* reals of codewords in 16 bits */
  const real **codewords = calloc((size_t)weights->book_count, sizeof *codewords);
  Status status = STATUS_OK;
  if (!codewords || (first->narrow && !made)) status = status_no_memory(NULL, "tables of keys and values");
  for (int i = 0; status == STATUS_OK && i < weights->book_count; i++) {
    codewords[i] = made ? made + i * numbers : rate->books[i].codewords;
    if (made) codebook_words(&rate->books[i], 0, first->groups * first->entries, made + i * numbers);
  }
  const KvTablesSetup setup = {
      .codewords = codewords, .groups = first->groups, .entries = first->entries, .memory = memory, .measure = true};
  if (status == STATUS_OK) status = kv_tables_build(&rate->keys, weights->model, &setup);
  free(made);
  free(codewords);
  return status == STATUS_UNSUPPORTED ? STATUS_OK : status;
}

Status weights_make_tables(Weights *weights, size_t memory) {
  const int rates = config_rates(weights->config), used = config_rate(weights->config);
  if (!weights->books || memory == 0) return STATUS_OK;
  if (rates == 1) weights->rate[0].keys = weights->keys;
  for (int rate = 0; rate < rates; rate++)
    if (!weights->one_rate || rate == used)
      TRY(make_tables(weights, &weights->rate[rate], weights->one_rate ? memory : memory / (size_t)rates));
  take_rate(weights);
  return STATUS_OK;
}

void weights_release(Weights *weights) {
  if (weights->drafts) weights_release(weights->drafts);
  free(weights->drafts);
  if (weights->rate[1].books == NULL) weights->rate[0].keys = weights->keys; /* of one rate they may have been replaced */
  for (int r = 0; r < CONFIG_RATES; r++) {
    const WeightsRate *rate = &weights->rate[r];
    kv_tables_free(rate->keys);
    for (int i = 0; rate->books && i < weights->book_count; i++) codebook_release(&rate->books[i]);
    for (int i = 0; rate->constrained && i < weights->book_count; i++) codebook_release(&rate->constrained[i]);
    free(rate->books);
    free(rate->constrained);
    rans_tables_free(rate->coding);
  }
  free(weights->frequencies);
  if (weights->codewords) munmap(weights->codewords, weights->codeword_bytes);
  model_free(weights->model);
  lowbit_weights_free(weights->lowbit);
  if (weights->mapping) checkpoint_unmap(weights->mapping);
  if (guarded == weights) guarded = NULL;
  *weights = (Weights){0};
}

/* ---- files that change under the weights */

Status weights_unchanged(const Weights *weights) { return weights->mapping ? checkpoint_unchanged(weights->mapping) : STATUS_OK; }

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* nothing else can be done */
}

/* Calls nothing but what a handler may. */
static void on_bus_error(int number, siginfo_t *info, void *context) {
  const char *path = guarded && guarded->mapping ? checkpoint_file_at(guarded->mapping, info->si_addr) : NULL;
  (void)context;
  if (path) {
    say(program_invocation_short_name);
    say(": error: ");
    say(path);
    say(" was cut while it was in use: start again with a whole file (a new one is to be written beside it and renamed)\n");
    _exit(1);
  }
  signal(number, SIG_DFL); /* something else: the same instruction ends the process */
}

void weights_guard(const Weights *weights) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
  guarded = weights;
  sigaction(SIGBUS, &action, NULL);
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

int64_t weights_outputs(const Weights *weights) {
  return weights->config->classes > 0 ? weights->config->classes : weights->config->vocabulary;
}

int64_t weights_pixels(const Weights *weights) { return weights->config->channels * weights->config->image * weights->config->image; }
