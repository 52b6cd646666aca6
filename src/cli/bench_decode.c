/* The command decode: decoding steps of several sequences at once (nn/decode_batch.h), with random weights and ids, beside those of one.
 * Every measurement is a step; batches of all sizes take turns, so that a machine that changes its speed does so for all of them. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "nn/decode_batch.h"
#include "nn/json_build.h"
#include "nn/model.h"
#include "train/session.h"
#include "vq/pack.h"
#include <stdlib.h>

static const BenchUsage USAGE = {"astra-bench decode --model NAME [--sequences N] [--length N] [--rows N] [options]",
                                 "Times decoding steps of 1, 2, 4... sequences of a language model at once, on random weights and tokens."};

enum { MAX_SEQUENCES = 256, MAX_BATCHES = 10, MAX_ROWS = 64 };

typedef struct DecodeCommand {
  int64_t sequences, length, codes, rows, repeats, warm_up;
  BenchModel model;
  BenchRun run;
} DecodeCommand;

typedef struct Batch {
  int sequences;
  double *seconds, *processor; /* [repeats] */
  double all_seconds, product_seconds, flops;
  BenchProfile profile;
} Batch;

typedef struct DecodeBench {
  const DecodeCommand *command;
  BenchInference inference;
  KvPages *pages;
  int32_t *ids;       /* [sequences, length + rows] */
  KvCodewords *words; /* with --codes, and their numbers */
  real *numbers;
  int32_t *codes; /* [G] of one token */
  int number[MAX_SEQUENCES];
  Batch batch[MAX_BATCHES];
  int batches;
  BenchPeak peak;
} DecodeBench;

static Status check_config(const DecodeCommand *c, const ModelConfig *config) {
  if (!config_is_decoder(config) || config->classes > 0)
    return status_set(STATUS_BAD_USAGE, "--model %s: decoding is for models that predict tokens", c->model.name);
  if (c->length + c->rows > config->context)
    return status_set(STATUS_BAD_USAGE, "--length %lld: with %lld rows more than the model's context of %lld", (long long)c->length,
                      (long long)c->rows, (long long)config->context);
  if (c->codes >= c->length)
    return status_set(STATUS_BAD_USAGE, "--codes %lld: fewer than the %lld tokens of --length", (long long)c->codes, (long long)c->length);
  return STATUS_OK;
}

static Status open_model(DecodeBench *b) {
  const DecodeCommand *c = b->command;
  ModelConfig config = {0};
  TRY(bench_model_config(&c->model, &config));
  Status status = check_config(c, &config);
  if (c->codes == 0) config.astra.groups = 0;
  if (c->codes > 0 && config.astra.groups == 0) config.astra.groups = 16;
  if (status == STATUS_OK) status = bench_model_open(&b->inference, &c->model, &config, c->run.seed);
  config_release(&config);
  return status == STATUS_OK ? bench_model_pack(&b->inference, &c->model) : status;
}

/* Random codewords, and codes of each sequence's first tokens. */
static Status add_codewords(DecodeBench *b, KvCacheSetup *cache) {
  const ModelConfig *config = model_config(b->inference.model);
  const int64_t width = config_site_width(config), count = config->astra.codebook_size * width;
  Rng rng;
  rng_init(&rng, (uint64_t)b->command->run.seed, 2);
  cache->sites = config_sites(config);
  cache->groups = config->astra.groups, cache->entries = config->astra.codebook_size;
  cache->token_bytes = pack_bytes_per_token(cache->groups, cache->entries);
  cache->unpack = pack_unpack;
  const int64_t sets = cache->blocks * cache->sites;
  cache->codewords = b->words = calloc((size_t)sets, sizeof *b->words);
  b->numbers = malloc((size_t)(sets * count) * sizeof *b->numbers);
  b->codes = malloc((size_t)cache->groups * sizeof *b->codes);
  if (!b->words || !b->numbers || !b->codes) return status_no_memory(NULL, "codewords");
  for (int64_t i = 0; i < sets * count; i++) b->numbers[i] = (real)rng_normal(&rng);
  for (int64_t i = 0; i < sets; i++) b->words[i] = (KvCodewords){.reals = b->numbers + i * count};
  return STATUS_OK;
}

static void fill_codes(DecodeBench *b, int sequence, Rng *rng) {
  const KvCacheSetup *cache = &kv_pages_setup(b->pages)->cache;
  int32_t *codes = b->codes;
  for (int64_t i = 0; i < cache->blocks * cache->sites * b->command->codes; i++) {
    const int64_t set = i / b->command->codes, token = i % b->command->codes;
    for (int64_t g = 0; g < cache->groups; g++) codes[g] = (int32_t)rng_below(rng, (uint64_t)cache->entries);
    pack_codes(codes, 1, cache->groups, cache->entries,
               kv_pages_codes(b->pages, sequence, (int)(set / cache->sites), (int)(set % cache->sites), token));
  }
}

/* Every sequence with its prompt; keys and values as astra-infer keeps them beside such weights. */
static Status open_sequences(DecodeBench *b) {
  const DecodeCommand *c = b->command;
  const ModelConfig *config = model_config(b->inference.model);
  const int64_t tokens = c->length + c->rows;
  KvPagesSetup setup = {.cache = {.blocks = config->blocks,
                                  .width = config_kv_width(config),
                                  .max = tokens,
                                  .kind = c->model.weights != BENCH_FP32 ? NARROW_F16 : NARROW_NONE},
                        .page = KV_PAGES_TOKENS,
                        .heads = config->kv_heads,
                        .sequences = (int)c->sequences};
  if (c->codes > 0) TRY(add_codewords(b, &setup.cache));
  setup.bytes = kv_pages_bytes(&setup);
  TRY(kv_pages_new(&b->pages, &setup));
  if ((b->ids = malloc((size_t)(c->sequences * tokens) * sizeof *b->ids)) == NULL) return status_no_memory(NULL, "token ids");
  Rng rng;
  rng_init(&rng, (uint64_t)c->run.seed, 1);
  for (int64_t i = 0; i < c->sequences * tokens; i++) b->ids[i] = (int32_t)rng_below(&rng, (uint64_t)config->vocabulary);
  for (int64_t s = 0; s < c->sequences; s++) {
    int64_t shared;
    const int32_t *ids = b->ids + s * tokens;
    const KvSpans spans = {.count = c->codes > 0, .begin = {c->codes}};
    TRY(kv_pages_join(b->pages, ids, c->length, &spans, tokens, &b->number[s], &shared));
    if (c->codes > 0) fill_codes(b, b->number[s], &rng);
    for (int64_t at = c->codes, n; at < c->length; at += n) {
      n = c->length - at < MAX_ROWS ? c->length - at : MAX_ROWS;
      tape_clear(b->inference.tape);
      decode_batch(b->inference.model, b->inference.tape, b->pages, &(DecodeRows){.sequence = b->number[s], .ids = ids + at, .count = n},
                   1);
      TRY(tape_status(b->inference.tape));
      kv_pages_keep(b->pages, b->number[s], ids + at, n);
    }
  }
  return STATUS_OK;
}

static Status open_batches(DecodeBench *b) {
  const DecodeCommand *c = b->command;
  for (int64_t n = 1;; n *= 2) {
    Batch *batch = &b->batch[b->batches++];
    batch->sequences = (int)(n < c->sequences ? n : c->sequences);
    batch->seconds = calloc((size_t)c->repeats, sizeof(double));
    batch->processor = calloc((size_t)c->repeats, sizeof(double));
    if (!batch->seconds || !batch->processor) return status_no_memory(NULL, "times");
    if (n >= c->sequences) return STATUS_OK;
  }
}

/* Nothing is kept, so that all steps are alike. */
static Status step(DecodeBench *b, const Batch *batch) {
  const DecodeCommand *c = b->command;
  DecodeRows rows[MAX_SEQUENCES];
  for (int s = 0; s < batch->sequences; s++)
    rows[s] = (DecodeRows){b->number[s], b->ids + s * (c->length + c->rows) + c->length, c->rows, c->rows};
  tape_clear(b->inference.tape);
  decode_batch(b->inference.model, b->inference.tape, b->pages, rows, batch->sequences);
  return tape_status(b->inference.tape);
}

static Status measure(DecodeBench *b) {
  const DecodeCommand *c = b->command;
  TRY(bench_peak_memory(&b->peak));
  TRY(bench_peak_measure(&b->peak));
  TRY(open_model(b));
  TRY(open_sequences(b));
  TRY(open_batches(b));
  for (int64_t i = -c->warm_up; i < c->repeats; i++)
    for (Batch *batch = b->batch; batch < b->batch + b->batches; batch++) {
      matmul_reset_count();
      if (c->model.profile && i >= 0) bench_profile_watch(&batch->profile, b->inference.tape);
      const double begun = clock_now(), spent = clock_spent();
      TRY(step(b, batch));
      if (i < 0) continue;
      batch->seconds[i] = clock_now() - begun;
      batch->processor[i] = clock_spent() - spent;
      batch->all_seconds += batch->seconds[i];
      batch->product_seconds += matmul_counted().seconds;
      batch->flops += matmul_counted().flops;
    }
  return STATUS_OK;
}

/* ---- what is printed */

typedef struct Figures {
  BenchTiming timing, processor;
  double rate, ratio, processor_ratio; /* tokens a second; times that of one sequence, by time and by processor time */
} Figures;

static Figures figures_of(const DecodeBench *b, int i) {
  const Batch *batch = &b->batch[i], *one = &b->batch[0];
  const int64_t repeats = b->command->repeats;
  const double tokens = (double)(batch->sequences * b->command->rows), first = (double)b->command->rows;
  Figures f = {.timing = bench_timing_of(batch->seconds, repeats), .processor = bench_timing_of(batch->processor, repeats)};
  f.rate = tokens / f.timing.median;
  f.ratio = f.rate / (first / bench_timing_of(one->seconds, repeats).median);
  f.processor_ratio = tokens / f.processor.median / (first / bench_timing_of(one->processor, repeats).median);
  return f;
}

static void print_text(DecodeBench *b) {
  const DecodeCommand *c = b->command;
  bench_peak_print(&b->peak);
  printf("model:   %s, %lld token%s before, %lld as codes, %lld row%s of each sequence, weights in %s, products in %s\n",
         printable(c->model.name), (long long)c->length, text_plural(c->length), (long long)c->codes, (long long)c->rows,
         text_plural(c->rows), bench_weights_name(&c->model), tape_uses_bf16(b->inference.tape) ? "bf16" : "fp32");
  printf("%9s %12s %12s %9s %14s %12s %17s\n", "sequences", "ms, median", "ms, min", "+-%", "tokens/s", "times one", "of this thread");
  for (int i = 0; i < b->batches; i++) {
    const Figures f = figures_of(b, i);
    printf("%9d %12.2f %12.2f %9.1f %14.1f %12.2f %17.2f\n", b->batch[i].sequences, 1e3 * f.timing.median, 1e3 * f.timing.min,
           100 * f.timing.spread, f.rate, f.ratio, f.processor_ratio);
  }
  for (int i = 0; c->model.profile && i < b->batches; i++) {
    Batch *batch = &b->batch[i];
    char title[32];
    snprintf(title, sizeof title, "%d sequence%s", batch->sequences, text_plural(batch->sequences));
    const double rate = batch->product_seconds > 0 ? batch->flops / batch->product_seconds : 0;
    profile_table_print(&batch->profile, title, c->repeats, batch->all_seconds / (double)c->repeats,
                        rate / bench_peak_products(&b->peak, tape_uses_bf16(b->inference.tape) ? PEAK_BF16 : PEAK_F32));
  }
}

static Status print_json(const DecodeBench *b) {
  const DecodeCommand *c = b->command;
  json_t *object = json_pack("{s:o, s:I, s:I, s:I, s:s, s:s}", "model", json_build_string(c->model.name), "length", (json_int_t)c->length,
                             "codes", (json_int_t)c->codes, "rows", (json_int_t)c->rows, "weights", bench_weights_name(&c->model),
                             "precision", tape_uses_bf16(b->inference.tape) ? "bf16" : "fp32");
  json_t *list = json_array();
  for (int i = 0; i < b->batches; i++) {
    const Figures f = figures_of(b, i);
    json_t *row = json_pack("{s:i, s:f, s:f, s:f}", "sequences", b->batch[i].sequences, "tokens_per_second", f.rate, "ratio", f.ratio,
                            "processor_ratio", f.processor_ratio);
    if (row) bench_timing_json(&f.timing, row);
    json_array_append_new(list, row);
  }
  if (object) bench_peak_json(&b->peak, object);
  json_build_put(&object, "batches", list);
  return json_build_print(object);
}

static Status run_decode(int argc, char **argv) {
  DecodeCommand c = {.sequences = 16, .length = 128, .rows = 1, .repeats = 10, .warm_up = 1};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_TEXT, "model", 'm', &c.model.name, "NAME",
       .help = "preset (gpt2, llama-mini...), installed checkpoint, checkpoint directory or GGUF file"},
      {OPTION_INT, "sequences", 0, &c.sequences, "N", .min = 1, .max = MAX_SEQUENCES, .help = "maximum number of sequences per step"},
      {OPTION_INT, "length", 0, &c.length, "N", .min = 1, .max = 1 << 20, .help = "tokens before the step"},
      {OPTION_INT, "codes", 0, &c.codes, "N", .min = 0, .max = 1 << 20,
       .help = "how many of the preceding tokens are cached as another device's codes"},
      {OPTION_INT, "rows", 0, &c.rows, "N", .min = 1, .max = MAX_ROWS, .help = "tokens of each sequence in a step, drafts included"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c.repeats, "N", .min = 1, .max = BENCH_REPEATS_MAX, .help = "measured steps of each number of sequences"},
      {OPTION_INT, "warm-up", 0, &c.warm_up, "N", .min = 0, .max = BENCH_REPEATS_MAX, .help = "unmeasured steps before them"},
      {.kind = OPTION_GROUP}};
  bool helped;
  TRY(bench_run_parse(&c.run, &c.model, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(bench_run_start(&c.run));
  DecodeBench bench = {.command = &c};
  Status status = measure(&bench);
  if (status == STATUS_OK) {
    if (!c.run.json) print_text(&bench);
    if (c.run.json) status = print_json(&bench);
  }
  for (int i = 0; i < bench.batches; i++) free(bench.batch[i].seconds), free(bench.batch[i].processor);
  free(bench.ids);
  free(bench.words);
  free(bench.numbers);
  free(bench.codes);
  kv_pages_free(bench.pages);
  bench_model_close(&bench.inference);
  threads_stop();
  return status;
}

const CliCommand bench_decode_command = {"decode", "time decoding steps of several sequences at once", run_decode};
