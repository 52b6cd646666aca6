/* Timed steps: see bench_step.h. */
#include "train/bench_step.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/clock.h"
#include "train/micro_step.h"
#include "train/session.h"
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

void bench_profile_watch(BenchProfile *profile, Tape *tape) { tape_profile(tape, profile ? add_part : NULL, profile); }
void bench_profile_restart(BenchProfile *profile) { profile->products_before = matmul_counted().seconds; }
void bench_profile_clear(BenchProfile *profile) { profile->parts = 0; }

/* ---- Steps ---- */

enum { STREAM_CODEWORDS = 32 };

static void draw_codewords(Session *session) {
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_CODEWORDS);
  int64_t count = session->emulation.blocks * session->emulation.sites * session->options.entries * config_site_width(session->config);
  for (int64_t i = 0; i < count; i++) session->emulation.codewords[i] = (real)rng_normal(&rng);
}

static Status start_codebooks(Session *session) {
  if (!session_astra(session)) return STATUS_OK;
  draw_codewords(session);
  return emulate_start_ema(&session->emulation, session->options.batch * session->tokens);
}

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
  Status status = start_codebooks(session);
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

/* ---------------------------------------------------------------- profile */

void bench_step_profile(BenchStep *bench) { bench->profiled = true; }

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

static Status place_tokens(Session *session, int64_t tokens, const TokenLayout **layout, Exchange **exchange) {
  *layout = &session->plain_layout;
  *exchange = NULL;
  if (!session_astra(session)) return session_lay_plain(session, tokens);
  int64_t counts[SESSION_DEVICES];
  int devices = session->config->astra.devices;
  layout_even_counts(tokens, devices, counts);
  TRY(layout_build(&session->layout, tokens, devices, counts, NULL, session->config->astra.class_token, -1));
  emulate_begin_step(&session->emulation, false);
  *layout = &session->layout;
  *exchange = &session->emulation.exchange;
  return STATUS_OK;
}

static Status forward_once(Session *session, const TaskBatch *batch) {
  const TokenLayout *layout;
  Exchange *exchange;
  TRY(place_tokens(session, batch->tokens, &layout, &exchange));
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
  bench_profile_watch(bench->profiled ? &bench->profile : NULL, session->tape);
  arena_watch(session->arena);
  matmul_reset_count();
  bench_profile_restart(&bench->profile);
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
  if (!keep) bench_profile_clear(&bench->profile);
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
