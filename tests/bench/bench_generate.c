/* Decoding by one node: milliseconds a token of the step itself (src/nn/block.c), with all keys and values in full and with three quarters
 * of the text as codes, beside the weights that a token reads. Random weights, no processes; best of several runs; not a test.
 *   bench_generate [PRESET...]      gpt2-mini and gpt2 unless given; the pool has all cores */
#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/threads.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "vq/pack.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 256, STEPS = 16, RUNS = 5, GROUPS = 16, ENTRIES = 1024, SETS_MAX = 64 };

typedef struct Bench {
  Model *model;
  const ModelConfig *config;
  real **codewords; /* [blocks * sites] -> [G, K, W / G] */
  Tape *tape;
  double weight_bytes;
} Bench;

static void need(bool holds) {
  if (holds) return;
  fprintf(stderr, "bench_generate: %s\n", status_message());
  exit(1);
}

/* Small numbers of no pattern: what they are does not change how long a product takes. */
static void fill(real *values, int64_t count) {
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (real)((double)(int32_t)state * 0x1p-31 * 0.05);
  }
}

static void open_bench(Bench *bench, const char *preset) {
  ModelConfig config = {0};
  need(config_preset(&config, preset, 0) == STATUS_OK);
  config.astra.groups = GROUPS;
  config.astra.codebook_size = ENTRIES;
  need(model_new(&bench->model, &config) == STATUS_OK);
  config_release(&config);
  bench->config = model_config(bench->model);
  ParamSet *params = model_params(bench->model);
  need(param_allocate(params, false) == STATUS_OK);
  bench->weight_bytes = 0;
  for (size_t i = 0; i < params->count; i++) {
    const Tensor *tensor = &params->list[i].tensor;
    fill(tensor->value, tensor_count(tensor));
    if (tensor->dims == 2 && !strstr(params->list[i].name, "wpe")) bench->weight_bytes += (double)tensor_count(tensor) * sizeof(real);
  }
  int sets = (int)bench->config->blocks * config_sites(bench->config);
  bench->codewords = calloc((size_t)sets, sizeof *bench->codewords);
  for (int i = 0; i < sets; i++) {
    int64_t count = ENTRIES * config_site_width(bench->config);
    need((bench->codewords[i] = malloc((size_t)count * sizeof(real))) != NULL);
    fill(bench->codewords[i], count);
  }
  Arena *arena = arena_new((size_t)1 << 32);
  need(arena && (bench->tape = tape_new(arena)));
  tape_record(bench->tape, false);
}

/* A text of TOKENS tokens, the first `remote` of them as codes. Nobody's, but as long to read as any. */
static void fill_cache(const Bench *bench, KvCache *cache, int64_t remote) {
  const ModelConfig *config = bench->config;
  int64_t width = config->kv_heads * (config->width / config->heads), rows = TOKENS - remote;
  real *values = malloc((size_t)(rows * width) * sizeof *values);
  need(values && kv_cache_start(cache, remote) == STATUS_OK);
  fill(values, rows * width);
  for (int block = 0; block < config->blocks; block++) {
    need(kv_cache_store(cache, block, rows, values, values, NULL, 0) == STATUS_OK);
    for (int site = 0; site < config_sites(config) && remote > 0; site++) {
      int32_t codes[GROUPS];
      for (int64_t t = 0; t < remote; t++) {
        for (int g = 0; g < GROUPS; g++) codes[g] = (int32_t)((t * 131 + g * 17 + block * 7 + site) % ENTRIES);
        pack_codes(codes, 1, GROUPS, ENTRIES, kv_cache_codes(cache, block, site, t));
      }
    }
  }
  kv_cache_advance(cache, rows);
  free(values);
}

static double token_seconds(const Bench *bench, KvCache *cache, int64_t remote) {
  double best = INFINITY;
  for (int run = 0; run < RUNS; run++) {
    fill_cache(bench, cache, remote);
    double begun = clock_now();
    for (int32_t step = 0; step < STEPS; step++) {
      tape_clear(bench->tape);
      need(model_decode_step(bench->model, bench->tape, cache, &step) != NULL);
    }
    best = fmin(best, (clock_now() - begun) / STEPS);
  }
  return best;
}

static const uint16_t *narrowed(const real *from, int64_t count, NarrowKind kind) {
  uint16_t *to = kind != NARROW_NONE ? malloc((size_t)count * sizeof *to) : NULL;
  need(to != NULL || kind == NARROW_NONE);
  for (int64_t i = 0; to && i < count; i++)
    to[i] = kind == NARROW_F16 ? narrow_half((float)from[i]) : safetensors_float_to_bfloat((float)from[i]);
  return to;
}

static void measure(const char *preset, NarrowKind kind) {
  Bench bench;
  KvCache cache;
  open_bench(&bench, preset);
  const ModelConfig *config = bench.config;
  static const char *const numbers[] = {[NARROW_NONE] = "f32", [NARROW_F16] = "f16", [NARROW_BF16] = "bf16"};
  KvCodewords codewords[SETS_MAX];
  for (int i = 0; i < config->blocks * config_sites(config); i++) {
    need(i < SETS_MAX);
    codewords[i] = (KvCodewords){bench.codewords[i], narrowed(bench.codewords[i], ENTRIES * config_site_width(config), kind), kind};
  }
  KvCacheSetup setup = {.blocks = config->blocks,
                        .width = config->kv_heads * (config->width / config->heads),
                        .max = TOKENS + STEPS,
                        .kind = kind,
                        .sites = config_sites(config),
                        .groups = GROUPS,
                        .entries = ENTRIES,
                        .token_bytes = pack_bytes_per_token(GROUPS, ENTRIES),
                        .codewords = codewords,
                        .unpack = pack_unpack};
  need(kv_cache_init(&cache, &setup) == STATUS_OK);
  for (int way = 0; way < 2; way++) {
    int64_t remote = way ? TOKENS * 3 / 4 : 0;
    double taken = token_seconds(&bench, &cache, remote);
    int64_t codes, in_full = kv_cache_bytes(&cache, &codes);
    printf("%-12s %-5s %6d %6d %10.3f %10.1f %8.1f %14lld\n", preset, numbers[kind], TOKENS - (int)remote, (int)remote, 1e3 * taken,
           1 / taken, 1e-9 * bench.weight_bytes / taken, (long long)(in_full + codes));
  }
  kv_cache_release(&cache);
  model_free(bench.model);
}

static void measure_kinds(const char *preset) {
  for (NarrowKind kind = NARROW_NONE; kind <= NARROW_BF16; kind++) measure(preset, kind);
}

int main(int argc, char **argv) {
  const char *const presets[] = {"gpt2-mini", "gpt2"};
  need(threads_start(0) == STATUS_OK);
  printf("%-12s %-5s %6s %6s %10s %10s %8s %14s\n", "model", "cache", "rows", "codes", "ms", "tokens/s", "GB/s", "cache bytes");
  for (int i = 1; i < argc; i++) measure_kinds(argv[i]);
  for (size_t i = 0; argc == 1 && i < sizeof presets / sizeof *presets; i++) measure_kinds(presets[i]);
  threads_stop();
  return 0;
}
