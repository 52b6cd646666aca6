/* The command forward: inference of the plain model with random weights and random input, in this process. A vision transformer is given
 * images or, with --length, that many rows in place of their embedding; a language model token ids, whose keys and values a cache keeps,
 * and from which it decodes. ASTRA's forward pass is step --forward's. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "nn/json_build.h"
#include "nn/kv_cache.h"
#include "nn/lowbit_weights.h"
#include "nn/model.h"
#include "train/session.h"
#include <stdlib.h>
#include <string.h>

static const BenchUsage USAGE = {
    "astra-bench forward --model NAME [--length N] [--decode N] [options]",
    "Times the plain model's forward pass on random input and weights: encoders, and prefill and decoding of decoders."};

enum { MAX_LENGTH = 1 << 20 };
typedef enum Output { OUTPUT_ANSWER, OUTPUT_ALL } Output;
typedef enum Phase { PHASE_FORWARD, PHASE_DECODE, PHASES } Phase;

typedef struct ForwardCommand {
  int64_t length, batch, decode, repeats, warm_up;
  int output; /* Output */
  BenchModel model;
  BenchRun run;
} ForwardCommand;

/* What one phase came to. */
typedef struct Measured {
  double *seconds; /* [repeats] of a pass, or of one decoded token on average */
  int64_t count;
  double flops, product_seconds, all_seconds; /* of all kept passes or tokens together */
  int64_t units;                              /* passes or tokens */
  BenchProfile profile;
} Measured;

typedef struct Forward {
  const ForwardCommand *command;
  BenchInference inference;
  const ModelConfig *config;
  bool decoder, cached;
  int64_t tokens; /* rows of a sample that go through the blocks */
  TokenLayout layout;
  Tensor given; /* pixels [B, 3, H, W] or rows [B, S, D] of a vision transformer */
  int32_t *ids; /* [B, T + decoded] of a language model */
  KvCache cache;
  Measured phase[PHASES];
  PeakNumbers numbers; /* of the products with weights */
  double weight_bytes; /* that a decoded token reads */
  BenchPeak peak;
  double resident;
} Forward;

/* ---------------------------------------------------------------- opening */

static Status open_model(Forward *f) {
  ModelConfig config = {0};
  TRY(bench_model_config(&f->command->model, &config));
  config.astra.groups = 0;
  const Status status = bench_model_open(&f->inference, &f->command->model, &config, f->command->run.seed);
  config_release(&config);
  TRY(status);
  f->config = model_config(f->inference.model);
  f->decoder = config_is_decoder(f->config);
  return STATUS_OK;
}

static Status check_lengths(const Forward *f) {
  const ForwardCommand *c = f->command;
  if (c->decode > 0 && (!f->decoder || f->config->classes > 0))
    return status_set(STATUS_BAD_USAGE, "--decode is for models that predict tokens, and %s does not", c->model.name);
  if (f->decoder && f->tokens < 1)
    return status_set(STATUS_BAD_USAGE, "--decode %lld leaves nothing of the model's context of %lld for the prompt; choose fewer",
                      (long long)c->decode, (long long)f->config->context);
  if (c->decode > 0 && c->batch > 1) return status_set(STATUS_BAD_USAGE, "--decode goes with --batch 1");
  if (f->decoder && f->tokens + c->decode > f->config->context)
    return status_set(STATUS_BAD_USAGE,
                      "%lld tokens and %lld decoded ones are more than the model's context of %lld; choose a smaller "
                      "--length or --decode",
                      (long long)f->tokens, (long long)c->decode, (long long)f->config->context);
  return STATUS_OK;
}

/* Of a vision transformer one row is the class token's. */
static Status open_input(Forward *f) {
  const ModelConfig *config = f->config;
  const ForwardCommand *c = f->command;
  Rng rng;
  rng_init(&rng, (uint64_t)c->run.seed, 1);
  int64_t patches = config->patch > 0 ? (config->image / config->patch) * (config->image / config->patch) : 0;
  f->tokens = c->length > 0 ? c->length : f->decoder ? config->context - c->decode : patches + 1;
  TRY(check_lengths(f));
  if (f->decoder) {
    TRY(layout_build_plain(&f->layout, f->tokens, CLASS_NONE));
    int64_t count = c->batch * (f->tokens + c->decode);
    if ((f->ids = malloc((size_t)count * sizeof *f->ids)) == NULL) return status_no_memory(NULL, "the model's input");
    for (int64_t i = 0; i < count; i++) f->ids[i] = (int32_t)rng_below(&rng, (uint64_t)config->vocabulary);
    return STATUS_OK;
  }
  if (f->tokens < 2) return status_set(STATUS_BAD_USAGE, "--length %lld: a class token and a patch are the least", (long long)f->tokens);
  TRY(layout_build_plain(&f->layout, f->tokens - 1, CLASS_DISTRIBUTED));
  f->given = c->length > 0 ? (Tensor){.dims = 3, .shape = {c->batch, f->tokens, config->width}}
                           : (Tensor){.dims = 4, .shape = {c->batch, config->channels, config->image, config->image}};
  f->given.value = bench_random_numbers(tensor_count(&f->given), &rng);
  return f->given.value ? STATUS_OK : status_no_memory(NULL, "the model's input");
}

static Status open_cache(Forward *f) {
  const ModelConfig *config = f->config;
  f->cached = f->decoder && f->command->batch == 1;
  if (!f->cached) return STATUS_OK;
  /* Keys and values as astra-infer keeps them beside such weights. */
  KvCacheSetup setup = {.blocks = config->blocks,
                        .width = config_kv_width(config),
                        .max = f->tokens + f->command->decode,
                        .kind = f->command->model.weights == BENCH_FP32 ? NARROW_NONE : NARROW_F16};
  return kv_cache_init(&f->cache, &setup);
}

/* Matrices but for tables of which a row is read. */
static double bytes_read(const Forward *f) {
  const ParamSet *params = model_params(f->inference.model);
  double bytes = 0;
  for (size_t i = 0; i < params->count; i++) {
    const Param *param = &params->list[i];
    bool table = strstr(param->name, "wpe") != NULL ||
                 (!f->config->tied && param->tensor.shape[0] == f->config->vocabulary && strstr(param->name, "lm_head") == NULL);
    if (param->tensor.dims != 2 || table) continue;
    const bool narrow = param->tensor.shadow || (param->tensor.packed && param->tensor.packed->bf16);
    bytes += narrow ? (double)tensor_count(&param->tensor) * sizeof(uint16_t) : (double)lowbit_weights_bytes(&param->tensor);
  }
  return bytes;
}

static Status open_forward(Forward *f) {
  f->numbers = f->command->model.weights == BENCH_FP32 ? PEAK_F32 : PEAK_INT8;
  TRY(open_model(f));
  TRY(open_input(f));
  TRY(open_cache(f));
  for (int p = 0; p < PHASES; p++)
    if ((f->phase[p].seconds = calloc((size_t)f->command->repeats, sizeof(double))) == NULL)
      return status_no_memory(NULL, "the model's input");
  TRY(bench_model_pack(&f->inference, &f->command->model));
  if (f->numbers == PEAK_F32 && tape_uses_bf16(f->inference.tape)) f->numbers = PEAK_BF16;
  f->weight_bytes = f->decoder ? bytes_read(f) : 0;
  return STATUS_OK;
}

static void close_forward(Forward *f) {
  for (int p = 0; p < PHASES; p++) free(f->phase[p].seconds);
  kv_cache_release(&f->cache);
  free(f->given.value);
  free(f->ids);
  layout_release(&f->layout);
  bench_model_close(&f->inference);
}

/* ---------------------------------------------------------------- measuring */

static Status pass(Forward *f) {
  ModelInput input = {.ids = f->ids, .batch = f->command->batch, .cache = f->cached ? &f->cache : NULL};
  ModelRows rows = f->command->output == OUTPUT_ALL ? MODEL_ROWS_ALL : f->decoder ? MODEL_ROWS_LAST : MODEL_ROWS_CLASS;
  if (f->cached) TRY(kv_cache_start(&f->cache, 0));
  if (!f->decoder) *(f->given.dims == 3 ? &input.rows : &input.pixels) = &f->given;
  Tensor *encoded = model_encode(f->inference.model, f->inference.tape, &input, &f->layout, NULL, rows);
  if (f->decoder && f->config->classes == 0)
    model_logits(f->inference.model, f->inference.tape, encoded);
  else if (f->command->output == OUTPUT_ANSWER)
    model_classify(f->inference.model, f->inference.tape, encoded);
  return tape_status(f->inference.tape);
}

static Status decode(Forward *f) {
  for (int64_t i = 0; i < f->command->decode; i++) {
    tape_clear(f->inference.tape);
    model_decode_step(f->inference.model, f->inference.tape, &f->cache, f->ids + f->tokens + i);
    TRY(tape_status(f->inference.tape));
  }
  return STATUS_OK;
}

/* units: passes or tokens that `work` does. */
static Status time_phase(Forward *f, Phase which, Status (*work)(Forward *), int64_t units, bool keep) {
  Measured *phase = &f->phase[which];
  tape_clear(f->inference.tape);
  matmul_reset_count();
  if (f->command->model.profile) bench_profile_watch(&phase->profile, f->inference.tape);
  double begun = clock_now();
  TRY(work(f));
  double taken = clock_now() - begun;
  if (!keep) {
    phase->profile.parts = 0;
    return STATUS_OK;
  }
  MatmulCount products = matmul_counted();
  phase->seconds[phase->count++] = taken / (double)units;
  phase->all_seconds += taken;
  phase->product_seconds += products.seconds;
  phase->flops += products.flops;
  phase->units += units;
  return STATUS_OK;
}

static Status measure(Forward *f) {
  TRY(bench_peak_memory(&f->peak));
  TRY(bench_peak_measure(&f->peak));
  TRY(open_forward(f));
  memory_peak_reset();
  for (int64_t i = 0; i < f->command->warm_up + f->command->repeats; i++) {
    bool keep = i >= f->command->warm_up;
    TRY(time_phase(f, PHASE_FORWARD, pass, 1, keep));
    if (f->command->decode > 0) TRY(time_phase(f, PHASE_DECODE, decode, f->command->decode, keep));
  }
  f->resident = memory_peak();
  TRY(bench_peak_memory(&f->peak));
  return bench_peak_measure(&f->peak);
}

/* ---------------------------------------------------------------- what is printed */

typedef struct Figures {
  BenchTiming timing;
  double tokens_per_second, gflop, gflop_per_second, product_percent, peak_percent;
  double read, read_percent; /* bytes/s of weights while decoding, and of the memory's rate */
} Figures;

static Figures figures_of(const Forward *f, Phase which) {
  const Measured *phase = &f->phase[which];
  Figures figures = {.timing = bench_timing_of(phase->seconds, phase->count)};
  double units = (double)phase->units, tokens = which == PHASE_DECODE ? 1 : (double)(f->tokens * f->command->batch);
  figures.tokens_per_second = tokens / figures.timing.median;
  figures.gflop = phase->flops / units / 1e9;
  figures.gflop_per_second = phase->product_seconds > 0 ? phase->flops / phase->product_seconds / 1e9 : 0;
  figures.product_percent = 100 * phase->product_seconds / phase->all_seconds;
  figures.peak_percent = 1e11 * figures.gflop_per_second / bench_peak_products(&f->peak, f->numbers);
  figures.read = which == PHASE_DECODE ? f->weight_bytes / figures.timing.median : 0;
  figures.read_percent = 100 * figures.read / f->peak.read.all;
  return figures;
}

static int64_t parameters(const Forward *f) { return param_count_numbers(model_params(f->inference.model)); }

static const char *phase_name(const Forward *f, Phase which) {
  return which == PHASE_DECODE ? "decode" : f->cached ? "prefill" : "forward";
}

static void print_row(const char *name, double forward, double decode, bool decodes) {
  printf("  %-30s %12.1f", name, forward);
  if (decodes) printf(" %12.2f", decode);
  putchar('\n');
}

static Status print_text(Forward *f) {
  bool decodes = f->command->decode > 0;
  Figures a = figures_of(f, PHASE_FORWARD), b = decodes ? figures_of(f, PHASE_DECODE) : (Figures){.read = 0};
  bench_peak_print(&f->peak);
  printf("model:   %s, %lld token%s, batch %lld, %.2f M parameters, weights in %s, products in %s\n", printable(f->command->model.name),
         (long long)f->tokens, text_plural(f->tokens), (long long)f->command->batch, (double)parameters(f) / 1e6,
         bench_weights_name(&f->command->model), bench_peak_numbers_name(f->numbers));
  printf("%-32s %12s %12s\n", "forward pass", phase_name(f, PHASE_FORWARD), decodes ? "decode" : "");
  print_row("milliseconds, median", 1e3 * a.timing.median, 1e3 * b.timing.median, decodes);
  print_row("milliseconds, min", 1e3 * a.timing.min, 1e3 * b.timing.min, decodes);
  print_row("  middle half of runs, +-%", 100 * a.timing.spread, 100 * b.timing.spread, decodes);
  print_row("tokens per second", a.tokens_per_second, b.tokens_per_second, decodes);
  print_row("time inside matrix products, %", a.product_percent, b.product_percent, decodes);
  print_row("GFLOP of matrix products", a.gflop, b.gflop, decodes);
  print_row("GFLOP/s inside them", a.gflop_per_second, b.gflop_per_second, decodes);
  print_row("  of the machine's best, %", a.peak_percent, b.peak_percent, decodes);
  if (decodes) print_row("GB/s of weights that are read", 0, b.read / 1e9, true);
  if (decodes) print_row("  of the memory's rate, %", 0, b.read_percent, true);
  print_row("MiB of weights", (double)lowbit_weights_all_bytes(f->inference.model) / 1048576, 0, false);
  print_row("peak resident MiB", f->resident / 1048576, 0, false);
  for (int p = 0; p < (decodes ? PHASES : 1) && f->command->model.profile; p++)
    profile_table_print(&f->phase[p].profile, phase_name(f, (Phase)p), f->phase[p].units,
                        f->phase[p].all_seconds / (double)f->phase[p].units, (p == PHASE_DECODE ? b : a).peak_percent / 100);
  return STATUS_OK;
}

static json_t *phase_json(const Forward *f, Phase which) {
  Figures figures = figures_of(f, which);
  json_t *object = json_object();
  if (object == NULL) return NULL;
  bench_timing_json(&figures.timing, object);
  const struct {
    const char *name;
    double value;
  } rest[] = {{"tokens_per_second", figures.tokens_per_second},
              {"gflop", figures.gflop},
              {"gflop_per_second", figures.gflop_per_second},
              {"product_percent", figures.product_percent},
              {"peak_percent", figures.peak_percent},
              {"read_gb_per_second", figures.read / 1e9},
              {"read_percent", figures.read_percent}};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) json_object_set_new(object, rest[i].name, json_real(rest[i].value));
  if (f->command->model.profile)
    json_object_set_new(object, "profile", profile_table_json(&f->phase[which].profile, f->phase[which].units));
  return object;
}

static Status print_json(const Forward *f) {
  const ForwardCommand *c = f->command;
  json_t *object =
      json_pack("{s:o, s:I, s:I, s:s, s:s, s:s, s:I, s:f, s:f}", "model", json_build_string(c->model.name), "tokens", (json_int_t)f->tokens,
                "batch", (json_int_t)c->batch, "output", c->output == OUTPUT_ALL ? "all" : "answer", "weights",
                bench_weights_name(&c->model), "precision", bench_peak_numbers_name(f->numbers), "parameters", (json_int_t)parameters(f),
                "weight_mib", (double)lowbit_weights_all_bytes(f->inference.model) / 1048576, "resident_mib", f->resident / 1048576);
  if (object) bench_peak_json(&f->peak, object);
  json_build_put(&object, phase_name(f, PHASE_FORWARD), phase_json(f, PHASE_FORWARD));
  if (c->decode > 0) json_build_put(&object, "decode", phase_json(f, PHASE_DECODE));
  return json_build_print(object);
}

/* ---------------------------------------------------------------- the command */

static Status run_forward(int argc, char **argv) {
  ForwardCommand c = {.batch = 1, .repeats = 5, .warm_up = 1};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_TEXT, "model", 'm', &c.model.name, "NAME",
       .help = "preset (vit-base, gpt2, llama-mini...), installed checkpoint, checkpoint directory or GGUF file"},
      {OPTION_INT, "length", 0, &c.length, "N", .min = 0, .max = MAX_LENGTH,
       .help = "tokens per sample, an image's class token included; 0: the model's"},
      {OPTION_INT, "batch", 'b', &c.batch, "N", .min = 1, .max = 65536, .help = "samples per pass"},
      {OPTION_INT, "decode", 0, &c.decode, "N", .min = 0, .max = MAX_LENGTH, .help = "tokens to decode after each pass; 0: none"},
      {OPTION_CHOICE, "output", 0, &c.output, .choices = "answer|all",
       .help = "one answer for each sample, or every row of the last block with its logits"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c.repeats, "N", .min = 1, .max = BENCH_REPEATS_MAX, .help = "measured passes"},
      {OPTION_INT, "warm-up", 0, &c.warm_up, "N", .min = 0, .max = BENCH_REPEATS_MAX, .help = "unmeasured passes before them"},
      {.kind = OPTION_GROUP}};
  bool helped;
  TRY(bench_run_parse(&c.run, &c.model, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(bench_run_start(&c.run));
  Forward forward = {.command = &c};
  Status status = measure(&forward);
  if (status == STATUS_OK) status = c.run.json ? print_json(&forward) : print_text(&forward);
  close_forward(&forward);
  threads_stop();
  return status;
}

const CliCommand bench_forward_command = {"forward", "time the forward pass of a plain model, and decoding", run_forward};
