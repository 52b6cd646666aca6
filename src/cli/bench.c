/* What the commands of astra-bench share, and astra-bench peak. */
#include "cli/bench.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_lowbit.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/order.h"
#include "base/status.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "nn/checkpoint.h"
#include "nn/config.h"
#include "nn/json_build.h"
#include "train/emulate.h"
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options and start ---- */

enum { DEFAULT_SEED = 42, CLASSES = 100 };

/* Returns how many. */
static size_t model_rows(BenchModel *model, Option *rows) {
  const Option table[] = {{OPTION_CHOICE, "precision", 0, &model->precision, .choices = "fp32|bf16|auto",
                           .help = "precision of products and activations; auto: bf16 where it is faster"},
                          {OPTION_CHOICE, "weights", 0, &model->weights, .choices = "fp32|int8|int4", .help = "data type of the matrices"},
                          {OPTION_FLAG, "profile", 0, &model->profile, .help = "report the time per kind of operation"}};
  memcpy(rows, table, sizeof table);
  return sizeof table / sizeof *table;
}

Status bench_run_parse(BenchRun *run, BenchModel *model, const Option *own, const BenchUsage *usage, int argc, char **argv, bool *helped) {
  *run = (BenchRun){.seed = DEFAULT_SEED};
  const Option shared[] = {
      {OPTION_INT, "seed", 's', &run->seed, "N", .min = 0, .max = INT32_MAX, .help = "seed of random weights and inputs"},
      {OPTION_INT, "threads", 't', &run->threads, "N", .min = 0, .max = THREADS_MAX, .help = "compute threads; 0: one per core"},
      {OPTION_TEXT, "backend", 0, &run->backend, "NAME", .help = CLI_BACKEND_HELP},
      {OPTION_FLAG, "json", 'j', &run->json, .help = "print one JSON object on stdout, nothing else"},
      {.kind = OPTION_GROUP}};
  Option options[CLI_OPTIONS_MAX];
  size_t count = 0;
  while (own[count].kind != OPTION_GROUP || own[count].help != NULL) count++;
  memcpy(options, own, count * sizeof *own);
  if (model != NULL) count += model_rows(model, options + count);
  memcpy(options + count, shared, sizeof shared);
  *helped = cli_helped(options, usage->line, usage->about, argc, argv);
  if (*helped) return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  if (model == NULL || model->name != NULL) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--model is missing: %s, or a checkpoint's directory", config_preset_names());
}

Status bench_run_start(const BenchRun *run) {
  TRY(cli_check_kernels(run->backend));
  TRY(threads_start((int)run->threads));
  matmul_reserve();
  return STATUS_OK;
}

/* ---- A model whose inference is timed ---- */

static const struct {
  const char *name;
  LowbitKind kind;
} WEIGHTS[] = {[BENCH_FP32] = {"fp32", LOWBIT_NONE}, [BENCH_INT8] = {"int8", LOWBIT_INT8}, [BENCH_INT4] = {"int4", LOWBIT_Q4_0}};

const char *bench_weights_name(const BenchModel *options) { return WEIGHTS[options->weights].name; }

Status bench_model_config(const BenchModel *options, ModelConfig *config) {
  if (checkpoint_is_path(options->name)) return config_load(config, options->name);
  TRY(config_preset(config, options->name, CLASSES));
  if (!config_is_decoder(config)) return STATUS_OK;
  config_release(config);
  return config_preset(config, options->name, 0);
}

Status bench_model_open(BenchInference *inference, const BenchModel *options, const ModelConfig *config, int64_t seed) {
  Rng rng;
  rng_init(&rng, (uint64_t)seed, 0);
  TRY(model_new(&inference->model, config));
  TRY(param_allocate(model_params(inference->model), false));
  model_initialise(inference->model, &rng);
  if (options->weights != BENCH_FP32) TRY(lowbit_weights_make(inference->model, WEIGHTS[options->weights].kind, &inference->lowbit));
  inference->arena = arena_new((size_t)1 << 36); /* of address space; pages come as they are touched */
  inference->tape = inference->arena ? tape_new(inference->arena) : NULL;
  if (inference->tape == NULL) return status_no_memory(NULL, "the model's activations");
  tape_record(inference->tape, false);
  return STATUS_OK;
}

Status bench_model_pack(BenchInference *inference, const BenchModel *options) {
  const bool bf16 = options->precision == PRECISION_BF16 || (options->precision == PRECISION_AUTO && matmul_bf16_is_faster());
  tape_use_bf16(inference->tape, bf16);
  return model_pack_weights(inference->model, bf16);
}

void bench_model_close(BenchInference *inference) {
  tape_free(inference->tape);
  arena_free(inference->arena);
  model_free(inference->model);
  lowbit_weights_free(inference->lowbit);
}

/* ---- Times of repetitions ---- */

real *bench_random_numbers(int64_t count, Rng *rng) {
  real *numbers = malloc((size_t)count * sizeof *numbers);
  for (int64_t i = 0; numbers && i < count; i++) numbers[i] = (real)rng_normal(rng);
  return numbers;
}

BenchTiming bench_timing_of(double *seconds, int64_t count) {
  BenchTiming timing = {.median = order_median(seconds, (size_t)count)}; /* sorts */
  timing.min = seconds[0];
  timing.spread = timing.median > 0 ? (seconds[3 * (count - 1) / 4] - seconds[(count - 1) / 4]) / 2 / timing.median : 0;
  return timing;
}

void bench_timing_json(const BenchTiming *timing, json_t *object) {
  json_object_set_new(object, "milliseconds", json_real(1e3 * timing->median));
  json_object_set_new(object, "milliseconds_min", json_real(1e3 * timing->min));
  json_object_set_new(object, "spread_percent", json_real(100 * timing->spread));
}

/* ---- What the machine does at best ---- */

/* The best of some matrix products and of passes over memory. */

enum { MAX_NUMBERS = 1576 * 3072, RUNS = 2, MEMORY_RUNS = 2, LINE = 64 };

/* Read in whole and copied from one half to the other. Four times the last-level cache of a core complex of current servers: what stays in
 * the cache from one pass to the next does not count. sysconf's cache size is of no use here: virtual machines state that of the host. */
static const size_t MEMORY_BYTES = (size_t)128 << 20;

/* ASTRA_PEAK=quick: small products and little memory, for scripts whose subject is something else. */
static bool is_quick(void) {
  const char *how = getenv("ASTRA_PEAK");
  return how != NULL && strcmp(how, "quick") == 0;
}

static double raised(double best, double value) { return value > best ? value : best; }

/* ---------------------------------------------------------------- products */

/* A cube, and both products of the MLP of vit-base on 8 images. */
static const int64_t sizes[][3] = {{1024, 1024, 1024}, {1576, 3072, 768}, {1576, 768, 3072}}, small[3] = {192, 192, 192};

typedef struct Factors {
  PeakNumbers numbers;
  real *a, *b, *c; /* [MAX_NUMBERS] each */
  void *scratch;   /* of int8 */
} Factors;

/* Bits that stand for a number near 1 or -1 in float and, twice, in bf16; weights in int8 are all 3. */
static void fill(const Factors *f, int64_t count) {
  static const uint32_t bits[] = {0x3f80bf80, 0xbf803f80, 0xbf80bf80};
  for (int64_t i = 0; i < count; i++) {
    memcpy(&f->a[i], &bits[i % 3], sizeof bits[0]);
    memcpy(&f->b[i], &bits[(i + 1) % 3], sizeof bits[0]);
  }
  if (f->numbers == PEAK_INT8) memset(f->b, 3, (size_t)count);
}

typedef struct Call {
  const Factors *factors;
  int64_t m, n, k;
} Call;

/* Activations in float, rounded to int8 on the way. */
static MatmulLowbit lowbit_product(const Call *call, LowbitMatrix *weight) {
  const Factors *f = call->factors;
  const float *scales = f->b ? (const float *)f->b + MAX_NUMBERS / 2 : NULL; /* NULL: only the memory for it is asked for */
  *weight = (LowbitMatrix){LOWBIT_INT8, call->n, call->k, f->b, scales};
  return (MatmulLowbit){
      .weight = weight, .outputs = call->n, .inputs = call->k, .rows = call->m, .x = f->a, .ldx = call->k, .c = f->c, .ldc = call->n};
}

/* Over the pool, or, as a threads_for body of a single item, on its thread alone. */
static void multiply(void *context, int64_t begin, int64_t end, int thread) {
  const Call *call = context;
  const Factors *f = call->factors;
  const int64_t m = call->m, n = call->n, k = call->k;
  LowbitMatrix weight;
  (void)begin, (void)end, (void)thread;
  if (f->numbers == PEAK_INT8) {
    const MatmulLowbit product = lowbit_product(call, &weight);
    matmul_lowbit(&product, f->scratch);
  } else if (f->numbers == PEAK_BF16) {
    const Numbers c = {.wide = f->c};
    matmul_bf16(false, true, m, n, k, (const uint16_t *)f->a, k, (const uint16_t *)f->b, k, NULL, false, c, n);
  } else {
    matmul(false, true, m, n, k, 1, f->a, k, f->b, k, 0, f->c, n);
  }
}

static double product_rate(const Factors *f, bool all, const int64_t *size) {
  Call call = {f, size[0], size[1], size[2]};
  double begun = clock_now();
  if (all)
    multiply(&call, 0, 1, 0);
  else
    threads_for(1, 1, multiply, &call);
  return 2.0 * (double)size[0] * (double)size[1] * (double)size[2] / (clock_now() - begun);
}

static void raise_products(const Factors *f, PeakRate *rate) {
  const bool quick = is_quick();
  const size_t count = quick ? 1 : sizeof sizes / sizeof *sizes;
  fill(f, quick ? 192 * 192 : MAX_NUMBERS);
  for (int run = 0; run < RUNS; run++)
    for (size_t s = 0; s < count; s++) {
      const int64_t *size = quick ? small : sizes[s];
      rate->one = raised(rate->one, product_rate(f, false, size));
      rate->all = raised(rate->all, threads_count() > 1 ? product_rate(f, true, size) : rate->one);
    }
}

static size_t scratch_bytes(void) {
  size_t max = 0;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    LowbitMatrix weight;
    MatmulLowbit product = lowbit_product(&(Call){&(Factors){.numbers = PEAK_INT8}, sizes[s][0], sizes[s][1], sizes[s][2]}, &weight);
    size_t bytes = matmul_lowbit_scratch(&product);
    max = bytes > max ? bytes : max;
  }
  return max;
}

Status bench_peak_measure(BenchPeak *peak) {
  const size_t numbers = (size_t)3 * MAX_NUMBERS * sizeof(real), scratch = scratch_bytes();
  Arena *arena = arena_new(numbers + scratch + 2 * (size_t)ARENA_ALIGN);
  real *block = arena ? arena_alloc(arena, numbers) : NULL;
  void *room = block ? arena_alloc(arena, scratch) : NULL;
  Factors f = {.scratch = room};
  if (room) f.a = block, f.b = block + MAX_NUMBERS, f.c = block + (size_t)2 * MAX_NUMBERS;
  for (f.numbers = 0; room && f.numbers < PEAK_NUMBERS; f.numbers++)
    if (f.numbers == PEAK_BF16 ? matmul_backend().bf16 : f.numbers == PEAK_F32 || strcmp(kernels()->name, "portable") != 0)
      raise_products(&f, &peak->products[f.numbers]);
  arena_free(arena);
  return room ? STATUS_OK : status_no_memory(NULL, "measuring matrix products");
}

/* ---------------------------------------------------------------- memory */

typedef struct Passage {
  const uint64_t *from;
  uint64_t *to; /* NULL: read alone */
  uint64_t seen[THREADS_MAX];
} Passage;

/* Items are cache lines. Two streams a thread were measured to be faster than one, four or eight. */
static void read_lines(void *context, int64_t begin, int64_t end, int thread) {
  Passage *p = context;
  uint64_t seen[8] = {0};
  const int64_t half = (end - begin) / 2;
  const uint64_t *first = p->from + 8 * begin, *second = first + 8 * half;
  for (int64_t at = 0; at < 8 * half; at += 8)
    for (int i = 0; i < 8; i++) seen[i] |= first[at + i] | second[at + i];
  for (int i = 0; i < 8; i++) p->seen[thread % THREADS_MAX] |= seen[i]; /* keeps the loads from being optimised away */
}

/* The same with the widest vectors that the processor has, where there are kernels with them. */
static void read_products(void *context, int64_t begin, int64_t end, int thread) {
  Passage *p = context;
  const int64_t half = (end - begin) / 2;
  const real *first = (const real *)(p->from + 8 * begin);
  const real sum = kernels()->dot(half * (int64_t)(LINE / sizeof(real)), first, first + half * (int64_t)(LINE / sizeof(real)));
  p->seen[thread % THREADS_MAX] |= sum != 0;
}

static void copy_lines(void *context, int64_t begin, int64_t end, int thread) {
  Passage *p = context;
  (void)thread;
  memcpy(p->to + 8 * begin, p->from + 8 * begin, (size_t)(end - begin) * LINE);
}

static double pass_rate(bool all, ThreadsBody *body, Passage *passage, size_t bytes, double moved) {
  int64_t lines = (int64_t)(bytes / LINE);
  double begun = clock_now();
  if (all)
    threads_for(lines, 1024, body, passage);
  else
    body(passage, 0, lines, 0);
  return moved / (clock_now() - begun);
}

Status bench_peak_memory(BenchPeak *peak) {
  const size_t bytes = is_quick() ? MEMORY_BYTES / 32 : MEMORY_BYTES;
  Arena *arena = arena_new(bytes + ARENA_ALIGN);
  uint64_t *block = arena ? arena_alloc(arena, bytes) : NULL;
  if (block == NULL) {
    arena_free(arena);
    return status_no_memory(NULL, "measuring its rate");
  }
  memset(block, 0, bytes); /* touched, and all numbers that products can be made of */
  Passage passage = {.from = block, .to = block + bytes / 2 / sizeof *block};
  const double moved = (double)bytes;
  for (int run = 0; run < MEMORY_RUNS; run++) {
    for (int all = 0; all < (threads_count() > 1 ? 2 : 1); all++) {
      double *read = all ? &peak->read.all : &peak->read.one, *copy = all ? &peak->copy.all : &peak->copy.one;
      *read = raised(*read, pass_rate(all, read_lines, &passage, bytes, moved));
      *read = raised(*read, pass_rate(all, read_products, &passage, bytes, moved));
      *copy = raised(*copy, pass_rate(all, copy_lines, &passage, bytes / 2, moved));
    }
  }
  arena_free(arena);
  peak->read.all = raised(peak->read.all, peak->read.one);
  peak->copy.all = raised(peak->copy.all, peak->copy.one);
  memory_peak_reset();
  return STATUS_OK;
}

/* ---------------------------------------------------------------- what is printed */

double bench_peak_products(const BenchPeak *peak, PeakNumbers numbers) {
  if (peak->products[numbers].one <= 0) numbers = PEAK_F32;
  return fmax(peak->products[numbers].one, peak->products[numbers].all);
}

const char *bench_peak_numbers_name(PeakNumbers numbers) {
  static const char *const names[PEAK_NUMBERS] = {[PEAK_F32] = "fp32", [PEAK_BF16] = "bf16", [PEAK_INT8] = "int8"};
  return names[numbers];
}

void bench_peak_print(const BenchPeak *peak) {
  char names[KERNELS_TEXT];
  matmul_describe(names, sizeof names);
  printf("machine: %d thread%s, %s; products at best", threads_count(), text_plural(threads_count()), names);
  for (int i = 0; i < PEAK_NUMBERS; i++) {
    const PeakRate *rate = &peak->products[i];
    if (rate->one > 0)
      printf("%s %s %.1f GFLOP/s on one thread, %.1f on all", i ? ";" : "", bench_peak_numbers_name((PeakNumbers)i), rate->one / 1e9,
             rate->all / 1e9);
  }
  printf("\nmemory:  read %.1f GB/s on one thread, %.1f on all; copy %.1f and %.1f (read and written bytes)\n", peak->read.one / 1e9,
         peak->read.all / 1e9, peak->copy.one / 1e9, peak->copy.all / 1e9);
}

static void put(json_t *object, const char *name, double value) { json_object_set_new(object, name, json_real(value / 1e9)); }

void bench_peak_json(const BenchPeak *peak, json_t *object) {
  json_object_set_new(object, "threads", json_integer(threads_count()));
  json_object_set_new(object, "kernels", json_string(kernels()->name));
  json_object_set_new(object, "backend", json_string(matmul_backend().name));
  json_object_set_new(object, "blas", json_string(matmul_core()));
  put(object, "peak_gflops_one_thread", peak->products[PEAK_F32].one);
  put(object, "peak_gflops", peak->products[PEAK_F32].all);
  if (peak->products[PEAK_BF16].one > 0) {
    put(object, "peak_bf16_gflops_one_thread", peak->products[PEAK_BF16].one);
    put(object, "peak_bf16_gflops", peak->products[PEAK_BF16].all);
  }
  if (peak->products[PEAK_INT8].one > 0) {
    put(object, "peak_int8_gflops_one_thread", peak->products[PEAK_INT8].one);
    put(object, "peak_int8_gflops", peak->products[PEAK_INT8].all);
  }
  put(object, "memory_read_one_thread", peak->read.one);
  put(object, "memory_read", peak->read.all);
  put(object, "memory_copy_one_thread", peak->copy.one);
  put(object, "memory_copy", peak->copy.all);
}

/* ---- astra-bench peak ---- */

/* The command peak: the figures at the head of every other benchmark, for each number of threads. */

static const BenchUsage USAGE = {"astra-bench peak [--threads N] [--json]",
                                 "Peak rates of matrix products and of memory, with 1, 2, 4... threads of the pool."};

enum { MAX_ROWS = 16 };

typedef struct MachineRow {
  int threads;
  BenchPeak peak;
} MachineRow;

static Status measure(int threads, MachineRow *row) {
  TRY(threads_start(threads));
  *row = (MachineRow){.threads = threads};
  TRY(bench_peak_memory(&row->peak));
  TRY(bench_peak_measure(&row->peak));
  return bench_peak_measure(&row->peak);
}

static Status print_text(const MachineRow *row, int rows) {
  bench_peak_print(&row[rows - 1].peak);
  printf("\n%8s", "threads");
  for (int i = 0; i < PEAK_NUMBERS; i++)
    if (row[0].peak.products[i].one > 0) printf("%8s GFLOP/s", bench_peak_numbers_name((PeakNumbers)i));
  printf("%12s%12s\n", "read GB/s", "copy GB/s");
  for (int r = 0; r < rows; r++) {
    const BenchPeak *peak = &row[r].peak;
    printf("%8d", row[r].threads);
    for (int i = 0; i < PEAK_NUMBERS; i++)
      if (row[0].peak.products[i].one > 0) printf("%16.1f", peak->products[i].all / 1e9);
    printf("%12.1f%12.1f\n", peak->read.all / 1e9, peak->copy.all / 1e9);
  }
  return STATUS_OK;
}

static Status print_json(const MachineRow *row, int rows) {
  json_t *object = json_object(), *list = json_array();
  if (object) bench_peak_json(&row[rows - 1].peak, object);
  for (int r = 0; r < rows; r++) {
    const BenchPeak *peak = &row[r].peak;
    json_t *one = json_pack("{s:i, s:f, s:f}", "threads", row[r].threads, "read", peak->read.all / 1e9, "copy", peak->copy.all / 1e9);
    for (int i = 0; one && i < PEAK_NUMBERS; i++)
      if (peak->products[i].one > 0)
        json_object_set_new(one, bench_peak_numbers_name((PeakNumbers)i), json_real(peak->products[i].all / 1e9));
    json_build_append(&list, one);
  }
  json_build_put(&object, "rates", list);
  return json_build_print(object);
}

static Status run_machine(int argc, char **argv) {
  const Option own[] = {{OPTION_GROUP, .help = "Measuring"}, {.kind = OPTION_GROUP}};
  BenchRun run;
  bool helped;
  TRY(bench_run_parse(&run, NULL, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(bench_run_start(&run));
  MachineRow row[MAX_ROWS];
  int rows = 0, all = threads_count();
  Status status = STATUS_OK;
  for (int threads = 1; threads < all && status == STATUS_OK; threads *= 2) status = measure(threads, &row[rows++]);
  if (status == STATUS_OK) status = measure(all, &row[rows++]);
  if (status == STATUS_OK) status = run.json ? print_json(row, rows) : print_text(row, rows);
  threads_stop();
  return status;
}

const CliCommand bench_peak_command = {"peak", "measure peak rates of this machine: matrix products and memory, per thread count",
                                       run_machine};

/* ---- Sessions of drawn samples ---- */

enum { STREAM_CODEWORDS = 32 };

enum { LARGEST_DEFAULT_BATCH = 64 };

Status bench_session_samples(TrainOptions *train, char name[BENCH_NAME]) {
  ModelConfig config;
  TRY(checkpoint_is_path(train->model) ? config_load(&config, train->model) : config_preset(&config, train->model, CLASSES));
  train->drawn = config_is_decoder(&config);
  long long side = train->image_size > 0 ? train->image_size : config.image;
  config_release(&config);
  long long batch = train->batch > 0 ? train->batch : LARGEST_DEFAULT_BATCH; /* 0: the session chooses */
  snprintf(name, BENCH_NAME, "synthetic:%lldx%lld:%d:%lld", side, side, CLASSES, 4 * batch);
  if (!train->drawn) train->dataset = name;
  train->init = "random";
  train->augment = "none";
  return STATUS_OK;
}

Status bench_session_open(Session *session, const TrainOptions *options, bool forward) {
  TRY(session_open(session, options, forward ? SESSION_LOOK : SESSION_TRAIN));
  if (!session_astra(session)) return STATUS_OK;
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_CODEWORDS);
  const int sites = emulate_all_sites(&session->emulation);
  const int64_t count = sites * session->options.entries * config_site_width(session->config);
  for (int64_t i = 0; i < count; i++) session->emulation.codewords[i] = (real)rng_normal(&rng);
  Status status = emulate_start_ema(&session->emulation, session->options.batch * session->tokens);
  if (status != STATUS_OK) session_close(session);
  return status;
}

/* ---- Profiles ---- */

static void add_part(void *context, const char *name, TapePhase phase, double seconds) {
  BenchProfile *profile = context;
  BenchPart *part = profile->part, *end = part + profile->parts;
  while (part < end && (part->phase != phase || strcmp(part->name, name) != 0)) part++;
  if (part == end && profile->parts == BENCH_PARTS) return;
  if (part == end) *part = (BenchPart){.name = name, .phase = phase}, profile->parts++;
  double products = matmul_counted().seconds;
  part->seconds += seconds;
  part->product_seconds += products - profile->products_before;
  part->calls++;
  profile->products_before = products;
}

void bench_profile_watch(BenchProfile *profile, Tape *tape) {
  if (profile != NULL) profile->products_before = matmul_counted().seconds;
  tape_profile(tape, profile ? add_part : NULL, profile);
}

static const char *const phase_names[] = {[TAPE_FORWARD] = "forward", [TAPE_BACKWARD] = "backward", [TAPE_AROUND] = "around"};

static int by_time(const void *a, const void *b) {
  double x = ((const BenchPart *)a)->seconds, y = ((const BenchPart *)b)->seconds;
  return (x < y) - (x > y);
}

static void print_sum(const char *name, double all, double products, double step) {
  printf("  %-34s %10.2f %10.2f %10.2f %8.1f\n", name, all, products, all - products, 100 * (all - products) / step);
}

void profile_table_print(BenchProfile *profile, const char *title, int64_t repetitions, double step, double peak_part) {
  double each = 1e3 / (double)repetitions, all = 0, products = 0;
  step *= 1e3;
  qsort(profile->part, (size_t)profile->parts, sizeof *profile->part, by_time);
  printf("\n%-36s%11s %10s %10s %8s %8s\n", title, "ms per step", "products", "the rest", "% rest", "calls");
  for (const BenchPart *part = profile->part; part < profile->part + profile->parts; part++) {
    double whole = each * part->seconds, inside = each * part->product_seconds;
    printf("  %-24s %-9s %10.2f %10.2f %10.2f %8.1f %8.0f\n", part->name, phase_names[part->phase], whole, inside, whole - inside,
           100 * (whole - inside) / step, (double)part->calls / (double)repetitions);
    all += whole;
    products += inside;
  }
  print_sum("between operations", step - all, 0, step);
  print_sum("mean step", step, products, step);
  printf("  inside products %.1f%% of a step, at %.1f%% of the best rate; outside %.1f%%\n", 100 * products / step, 100 * peak_part,
         100 - 100 * products / step);
}

json_t *profile_table_json(const BenchProfile *profile, int64_t repetitions) {
  json_t *list = json_array();
  double count = (double)repetitions;
  for (const BenchPart *part = profile->part; part < profile->part + profile->parts; part++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", part->name, "phase", phase_names[part->phase],
                                          "milliseconds", 1e3 * part->seconds / count, "product_milliseconds",
                                          1e3 * part->product_seconds / count, "calls", (double)part->calls / count));
  return list;
}
