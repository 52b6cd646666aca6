/* Timed steps: see bench_step.h. */
#include "train/bench_step.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/clock.h"
#include "base/threads.h"
#include "train/data_parallel.h"
#include "train/micro_step.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

/* ---- Steps ---- */

enum { STREAM_CODEWORDS = 32 };

enum { CLASSES = 100, LARGEST_DEFAULT_BATCH = 64 };

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
  const int sites = session->emulation.rates * session->emulation.blocks * session->emulation.sites;
  const int64_t count = sites * session->options.entries * config_site_width(session->config);
  for (int64_t i = 0; i < count; i++) session->emulation.codewords[i] = (real)rng_normal(&rng);
  Status status = emulate_start_ema(&session->emulation, session->options.batch * session->tokens);
  if (status != STATUS_OK) session_close(session);
  return status;
}

Status bench_step_open(BenchStep *bench, Session *session, bool plain, bool forward, int64_t max) {
  *bench = (BenchStep){.session = session, .plain = plain, .forward = forward, .max = max};
  bench->samples = calloc((size_t)max, sizeof *bench->samples);
  return bench->samples ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for samples");
}

void bench_step_close(BenchStep *bench) {
  free(bench->samples);
  *bench = (BenchStep){0};
}

/* ---------------------------------------------------------------- one step */

static Status train_once(Session *session, const TaskBatch *batch) {
  Tape *tape = session->tape;
  StepResult result;
  double norm;
  param_empty_grads(model_params(session->model));
  TRY(micro_step(session, batch, &result));
  param_fill_grads(model_params(session->model));
  const double begun = tape_clock(tape);
  TRY(optimizer_step(&session->optimizer, 1, 1, &norm));
  tape_note(tape, "optimizer", TAPE_AROUND, begun);
  session->step++;
  return STATUS_OK;
}

static Status forward_once(Session *session, const TaskBatch *batch) {
  const TokenLayout *layout = &session->plain_layout;
  Exchange *exchange = NULL;
  if (session_astra(session)) {
    int64_t counts[SESSION_DEVICES];
    int devices = session->config->astra.devices;
    layout_even_counts(batch->tokens, devices, counts);
    TRY(layout_build(&session->layout, batch->tokens, devices, counts, NULL, session->config->astra.class_token, -1));
    emulate_begin_step(&session->emulation, false);
    layout = &session->layout;
    exchange = &session->emulation.exchange;
  } else {
    TRY(task_lay_plain(session, batch->tokens));
  }
  TaskScore score = {0};
  tape_record(session->tape, false);
  session->task->head->loss(session, batch, layout, exchange, &score);
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

/* What the process has used so far. */
static BenchSample usage_now(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return (BenchSample){0};
  struct timeval user = usage.ru_utime, system = usage.ru_stime;
  return (BenchSample){.processor_seconds = (double)(user.tv_sec + system.tv_sec) + 1e-6 * (double)(user.tv_usec + system.tv_usec),
                       .faults = (double)usage.ru_minflt};
}

Status bench_step_run(BenchStep *bench, bool keep) {
  Session *session = bench->session;
  TaskBatch batch;
  BenchSample before = usage_now();
  size_t floor = arena_mark(session->arena);
  session->plain = bench->plain;
  arena_watch(session->arena);
  matmul_reset_count();
  bench_profile_watch(bench->profiled ? &bench->profile : NULL, session->tape);
  double begun = clock_now(), waited = tape_clock(session->tape);
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  tape_note(session->tape, "wait for data", TAPE_AROUND, waited);
  TRY(bench->forward ? forward_once(session, &batch) : train_once(session, &batch));
  MatmulCount products = matmul_counted();
  BenchSample sample = usage_now();
  session->plain = false;
  if (arena_watched(session->arena) - floor > bench->activations) bench->activations = arena_watched(session->arena) - floor;
  sample.seconds = clock_now() - begun;
  sample.processor_seconds -= before.processor_seconds;
  sample.faults -= before.faults;
  sample.product_seconds = products.seconds;
  sample.flops = products.flops;
  sample.units = batch.units;
  if (keep && bench->count < bench->max) bench->samples[bench->count++] = sample;
  if (!keep) bench->profile.parts = 0;
  return STATUS_OK;
}

/* ---------------------------------------------------------------- summary */

static int by_seconds(const void *a, const void *b) {
  double x = ((const BenchSample *)a)->seconds, y = ((const BenchSample *)b)->seconds;
  return (x > y) - (x < y);
}

void bench_step_summary(BenchStep *bench, BenchSummary *summary) {
  BenchSample sum = {0};
  int64_t count = bench->count;
  qsort(bench->samples, (size_t)count, sizeof *bench->samples, by_seconds);
  for (int64_t i = 0; i < count; i++) {
    sum.seconds += bench->samples[i].seconds;
    sum.product_seconds += bench->samples[i].product_seconds;
    sum.flops += bench->samples[i].flops;
    sum.processor_seconds += bench->samples[i].processor_seconds;
    sum.faults += bench->samples[i].faults;
  }
  double block = (double)model_params(bench->session->model)->total * sizeof(real);
  *summary = (BenchSummary){.activations = (double)bench->activations, .weights = block, .training = bench->forward ? 0 : 3 * block};
  if (count == 0) return;
  summary->median = (bench->samples[(count - 1) / 2].seconds + bench->samples[count / 2].seconds) / 2;
  summary->min = bench->samples[0].seconds;
  summary->mean = sum.seconds / (double)count;
  summary->spread = (bench->samples[3 * (count - 1) / 4].seconds - bench->samples[(count - 1) / 4].seconds) / 2 / summary->median;
  summary->product_share = sum.product_seconds / sum.seconds;
  summary->flops = sum.flops / (double)count;
  summary->processor = sum.processor_seconds / (double)count;
  summary->faults = sum.faults / (double)count;
  summary->flops_per_second = sum.product_seconds > 0 ? sum.flops / sum.product_seconds : 0;
  summary->units_per_second = (double)bench->samples[0].units / summary->median; /* all batches are alike */
}

/* ---- Scaling over ranks: the model ---- */

void scaling_predict(const ScalingStep *step, const ScalingLink *link, int ranks, Wire wire, bool divided, ScalingResult *result) {
  double part = (double)(ranks - 1) / ranks, stages = divided ? 1 : 2, numbers = (double)step->total;
  double bytes = wire == WIRE_BF16 ? 2 : 4, statistics = 2 * part * 4 * (double)step->statistics;
  double compute = step->forward + step->backward + step->rest + step->optimizer / (divided ? ranks : 1);
  double gathered = divided ? part * 4 * numbers : 0;
  *result = (ScalingResult){.step = compute};
  if (ranks == 1) return;
  double end = statistics / link->bandwidth, back = step->backward + link->addition * (numbers + (double)step->statistics);
  double last = step->statistics > 0 ? end + 2 * link->latency : 0;
  for (int64_t k = 0; k < step->buckets; k++) {
    end = fmax(link->memory ? 0 : step->ready[k], end) + stages * part * bytes * (double)step->numbers[k] / link->bandwidth;
    last = end + stages * link->latency;
  }
  back = link->memory ? back + last : fmax(back, last);
  result->traffic = statistics + stages * part * bytes * numbers + gathered;
  result->alone = result->traffic / link->bandwidth;
  result->step += back - step->backward + 2 * link->latency + (divided ? link->latency + gathered / link->bandwidth : 0);
  result->exposed = result->step - compute;
}

/* ---- Scaling: a step of one rank ---- */

typedef struct Watch {
  const Session *session;
  double began, ended; /* of the backward pass under way; began 0: not yet */
  double *last;        /* [params] when each one's gradient was written the last time */
  size_t *touched;     /* [params] */
  size_t touched_count;
} Watch;

static void asked(void *context, const Tensor *input) {
  Watch *watch = context;
  const ParamSet *params = model_params(watch->session->model);
  uintptr_t at = (uintptr_t)input, list = (uintptr_t)params->list;
  size_t index = (size_t)(at - list) / sizeof(Param);
  if (watch->began == 0) watch->began = clock_now();
  if (at < list || index >= params->count) return;
  if (watch->touched_count < params->count) watch->touched[watch->touched_count++] = index;
}

static void ran(void *context) {
  Watch *watch = context;
  watch->ended = clock_now();
  for (size_t i = 0; i < watch->touched_count; i++) watch->last[watch->touched[i]] = watch->ended;
  watch->touched_count = 0;
}

/* When all that lies in a bucket is final; buckets leave in their order. */
static void note_ready(const Watch *watch, const AllReduce *reduce, ScalingStep *step) {
  const ParamSet *params = model_params(watch->session->model);
  double before = 0;
  for (int64_t bucket = 0; bucket < step->buckets; bucket++) {
    int64_t begin, end;
    all_reduce_bucket(reduce, bucket, &begin, &end);
    for (size_t i = 0; i < params->count; i++) {
      if (params->list[i].frozen) continue;
      int64_t first = params->list[i].tensor.value - params->values, last = first + tensor_count(&params->list[i].tensor);
      if (first < end && last > begin) before = fmax(before, watch->last[i] - watch->began);
    }
    step->ready[bucket] = before;
    step->numbers[bucket] = end - begin;
  }
}

static Status run_step(Session *session, Watch *watch, double times[4]) {
  TaskBatch batch;
  StepResult result;
  double norm;
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  watch->began = watch->ended = 0;
  times[0] = clock_now();
  param_zero_grads(model_params(session->model));
  times[1] = clock_now();
  TRY(micro_step(session, &batch, &result));
  times[2] = clock_now();
  TRY(data_parallel_step(session, 1e-3, 1, &norm)); /* which learns next to nothing: random data has nothing to teach */
  times[3] = clock_now();
  session->step++;
  return STATUS_OK;
}

static Status measure_steps(Session *session, int64_t steps, Watch *watch, const AllReduce *reduce, ScalingStep *step) {
  double times[4], fastest = INFINITY;
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  for (int64_t i = -1; i < steps; i++) { /* the first touches memory */
    TRY(run_step(session, watch, times));
    if (i < 0 || times[3] - times[0] >= fastest) continue;
    fastest = times[3] - times[0];
    step->forward = watch->began - times[1];
    step->backward = watch->ended - watch->began;
    step->rest = times[1] - times[0] + times[2] - watch->ended;
    step->optimizer = times[3] - times[2];
    note_ready(watch, reduce, step);
  }
  return STATUS_OK;
}

static int64_t statistics_of(const Session *session) {
  const Emulation *emulation = &session->emulation;
  if (!session_astra(session)) return 0;
  const EmulateSite *site = &emulation->site[0];
  int64_t part = site->book.width / site->book.groups, spread = site->navq.kind == NOISE_FULL ? part : 1;
  return emulation->blocks * emulation->sites *
         (site->book.entries * (site->book.groups + site->book.width) + site->book.width * (1 + spread));
}

Status scaling_measure(Session *session, int64_t steps, ScalingStep *step) {
  const ParamSet *params = model_params(session->model);
  AllReduce *reduce = NULL;
  *step = (ScalingStep){.total = params->total, .statistics = statistics_of(session), .units = session->options.batch};
  TRY(all_reduce_new(&reduce, params->grads, params->total, &(AllReduceOptions){.tag = 0}));
  step->buckets = all_reduce_buckets(reduce);
  step->ready = calloc((size_t)step->buckets, sizeof *step->ready);
  step->numbers = calloc((size_t)step->buckets, sizeof *step->numbers);
  Watch watch = {
      .session = session, .last = calloc(params->count, sizeof *watch.last), .touched = calloc(params->count, sizeof *watch.touched)};
  bool room = step->ready && step->numbers && watch.last && watch.touched;
  tape_watch(session->tape, &(TapeWatcher){asked, ran, &watch});
  Status status = room ? measure_steps(session, steps, &watch, reduce, step) : status_set(STATUS_NO_MEMORY, "no memory for measurements");
  tape_watch(session->tape, NULL);
  all_reduce_free(reduce);
  free(watch.last);
  free(watch.touched);
  if (session->task->source->texts) step->units *= session->tokens;
  return status;
}

void scaling_step_release(ScalingStep *step) {
  free(step->ready);
  free(step->numbers);
  *step = (ScalingStep){0};
}

/* ---- Scaling: additions and links ---- */

enum { NUMBERS = 1 << 22, REPEATS = 4, PINGS = 200 };

typedef struct AddJob {
  const real *from;
  real *to;
} AddJob;

static void add_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const AddJob *job = context;
  kernels()->add(end - begin, job->from + begin, job->to + begin);
}

double scaling_addition(void) {
  real *numbers = calloc(2 * (size_t)NUMBERS, sizeof *numbers);
  double best = INFINITY;
  for (int i = 0; numbers != NULL && i < REPEATS; i++) {
    double begun = clock_now();
    threads_for(NUMBERS, 4096, add_body, &(AddJob){numbers, numbers + NUMBERS});
    best = fmin(best, clock_now() - begun);
  }
  free(numbers);
  return isfinite(best) ? best / NUMBERS : 0;
}

static double sum_once(AllReduce *reduce) {
  double ready = 0;
  ranks_sum(&ready, 1); /* all begin together */
  double begun = clock_now();
  for (int64_t bucket = 0; bucket < all_reduce_buckets(reduce); bucket++) all_reduce_ready(reduce, bucket);
  all_reduce_finish(reduce);
  return clock_now() - begun;
}

static double best_of(AllReduce *reduce, int repeats) {
  double best = INFINITY;
  for (int i = 0; i < repeats; i++) best = fmin(best, sum_once(reduce));
  ranks_sum(&best, 1);
  return best / ranks_count();
}

Status scaling_measure_link(ScalingLink *link) {
  real *numbers = calloc(NUMBERS, sizeof *numbers);
  AllReduce *large = NULL, *small = NULL;
  double part = (double)(ranks_count() - 1) / ranks_count();
  *link = (ScalingLink){.addition = scaling_addition(), .memory = ranks_machines() == 1};
  ranks_sum(&link->addition, 1);
  link->addition /= ranks_count();
  Status status = numbers ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for measurements");
  if (status == STATUS_OK) status = all_reduce_new(&large, numbers, NUMBERS, &(AllReduceOptions){.tag = 0});
  if (status == STATUS_OK) status = all_reduce_new(&small, numbers, 16 * ranks_count(), &(AllReduceOptions){.tag = 1 << 16});
  if (status == STATUS_OK) {
    link->latency = best_of(small, PINGS) / 2;
    double transfer = best_of(large, REPEATS) - NUMBERS * link->addition;
    link->bandwidth = 2 * part * sizeof(real) * NUMBERS / fmax(transfer, 1e-9);
  }
  all_reduce_free(large);
  all_reduce_free(small);
  free(numbers);
  return status;
}

Status scaling_measure_job(Session *session, int64_t steps, double *seconds) {
  Watch watch = {0};
  double times[4];
  *seconds = INFINITY;
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  for (int64_t i = -1; i < steps; i++) {
    TRY(run_step(session, &watch, times));
    double mean = (times[3] - times[0]) / ranks_count();
    ranks_sum(&mean, 1);
    if (i >= 0) *seconds = fmin(*seconds, mean);
  }
  return STATUS_OK;
}
