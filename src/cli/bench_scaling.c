/* The command scaling: how fast training would be on R ranks over a given link, from a measured step of one rank.
 * Under mpirun the ranks are there: their link and their steps are measured, and stand beside what the model says of them. */
#include "autograd/kernels/kernels.h"
#include "autograd/tape.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/train_options.h"
#include "nn/json_build.h"
#include "train/data_parallel.h"
#include "train/micro_step.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The model ---- */

/* How a training step scales over ranks: the step of one rank is measured, the exchange between R ranks is computed (ranks.h says what
 * is exchanged). Buckets k = 0, 1, ... of n_k numbers of w bytes are final t_k seconds after the backward pass began, and the link, of
 * latency a and of B bytes a second in each direction, carries one after another:
 *
 *   x_k = (R - 1) / R n_k w / B              each rank sends, and receives, its share of a bucket once in each of s stages
 *   e_k = max(t_k, e_(k-1)) + s x_k          when the last byte of bucket k has left the link; e_(-1): codebook sums, ready at 0
 *   c_k = e_k + s a                          when bucket k is added up everywhere
 *
 *   T(R) = forward + max(backward + d N, max c_k) + rest + optimizer + 2 a           s = 2: scatter and gather
 *   T(R) = forward + max(backward + d N, max c_k) + rest + optimizer / R + 3 a + (R - 1) / R 4 N / B      s = 1: divided optimizer states
 *
 * d: seconds to add a number up, N = sum n_k; 2 a: the step's loss is added up. Where the link is the memory of one machine, its copies
 * take the processors' time: nothing overlaps, and T(R) has backward + d N + c in place of the maximum, with t_k = 0 in c. */

typedef struct ScalingStep {
  double forward, backward, rest, optimizer; /* seconds; rest: codebooks, zeroing */
  int64_t buckets, total;                    /* total: numbers of all buckets */
  double *ready;                             /* [buckets] t_k */
  int64_t *numbers;                          /* [buckets] n_k */
  int64_t statistics;                        /* numbers of the codebooks' sums */
  int64_t units;                             /* images or tokens of a step */
  const char *unit_name;                     /* of these */
} ScalingStep;

typedef struct ScalingLink {
  double latency, bandwidth; /* seconds; bytes a second in each direction of a rank */
  double addition;           /* seconds to add up a number */
  bool memory;               /* of one machine */
} ScalingLink;

typedef struct ScalingResult {
  double step;    /* T(R) */
  double traffic; /* bytes that each rank sends in a step */
  double alone;   /* seconds that the link is busy with them */
  double exposed; /* of the step, beyond the computing of one rank */
} ScalingResult;

static void scaling_predict(const ScalingStep *step, const ScalingLink *link, int ranks, Wire wire, bool divided, ScalingResult *result) {
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

/* ---- A step of one rank ---- */

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
  return emulate_sites(emulation) * (site->book.entries * (site->book.groups + site->book.width) + residual_sums_count(&site->navq));
}

/* The fastest of `steps` training steps of a session for training (of a rank's share, if it has one), after one that warms up: others were
 * disturbed. */
static Status scaling_measure(Session *session, int64_t steps, ScalingStep *step) {
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
  Status status = room ? measure_steps(session, steps, &watch, reduce, step) : status_no_memory(NULL, "measurements");
  tape_watch(session->tape, NULL);
  all_reduce_free(reduce);
  free(watch.last);
  free(watch.touched);
  step->unit_name = session->task->source->texts ? "tokens" : session->task->source->name.units;
  if (session->task->source->texts) step->units *= session->tokens;
  return status;
}

static void scaling_step_release(ScalingStep *step) {
  free(step->ready);
  free(step->numbers);
  *step = (ScalingStep){0};
}

/* ---- Additions and links ---- */

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

/* Seconds to add up a number here, with all threads. */
static double scaling_addition(void) {
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

/* In a job of several ranks: what its link takes. Every rank has the same in the end. */
static Status scaling_measure_link(ScalingLink *link) {
  real *numbers = calloc(NUMBERS, sizeof *numbers);
  AllReduce *large = NULL, *small = NULL;
  double part = (double)(ranks_count() - 1) / ranks_count();
  *link = (ScalingLink){.addition = scaling_addition(), .memory = ranks_machines() == 1};
  ranks_sum(&link->addition, 1);
  link->addition /= ranks_count();
  Status status = numbers ? STATUS_OK : status_no_memory(NULL, "measurements");
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

/* Seconds of a step of the job, whose session is open for it (data_parallel_open): the fastest of `steps`, mean over ranks. */
static Status scaling_measure_job(Session *session, int64_t steps, double *seconds) {
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

/* ---- The command ---- */

static const char USAGE[] = "astra-bench scaling --model NAME [--batch N] [--ranks LIST] [--link RATE,LATENCY] [options]";
static const char ABOUT[] = "Predicts training on several machines from a measured step of one. Under mpirun measures the job as well.";

enum { OPTIONS_MAX = 32, ROWS_MAX = 32, RANKS_MAX = 4096, STEPS_MAX = 1000 };

typedef struct ScalingCommand {
  TrainCommand shared;
  const char *ranks, *link;
  int64_t steps;
  bool strong;
  int list[ROWS_MAX], count; /* of --ranks */
  ScalingLink network;
} ScalingCommand;

typedef struct Row {
  int ranks;
  int64_t batch; /* of a rank */
  ScalingResult predicted;
  double units, efficiency; /* a second, of all ranks; against one rank that had as much of this work */
  const char *unit_name;
} Row;

static void scaling_options(ScalingCommand *command, Option options[OPTIONS_MAX]) {
  static const char *const what[] = {"model", "image-size", "context", "wire", "shard-optimizer", NULL};
  static const char *const astra[] = {"groups", "codebook-size", "devices", "site", "noise", "noise-covariance", "vq-gradient", NULL};
  static const char *const run[] = {"precision", "backend", "seed", "threads", "json", NULL};
  const Option batch = {OPTION_INT, "batch",  'b',          &command->shared.train.batch,
                        "N",        .min = 1, .max = 65536, .help = "samples per batch of a rank; with --strong of all ranks together"};
  const Option own[] = {
      {OPTION_TEXT, "ranks", 0, &command->ranks, "LIST", .help = "numbers of ranks to predict: 1,2,4,8,16,32,64"},
      {OPTION_TEXT, "link", 0, &command->link, "RATE,TIME", .help = "rate of each rank's link and its one-way delay: 1gbit,0.1ms"},
      {OPTION_FLAG, "strong", 0, &command->strong, .help = "strong scaling: --batch is the total over all ranks"},
      {OPTION_INT, "steps", 0, &command->steps, "N", .min = 1, .max = STEPS_MAX, .help = "measured steps; the fastest counts"},
  };
  Option table[TRAIN_OPTIONS_MAX], *to = options;
  *command = (ScalingCommand){.ranks = "1,2,4,8,16,32,64", .link = "1gbit,0.1ms", .steps = 5};
  train_options_table(&command->shared, table);
  command->shared.train.batch = 8;
  *to++ = (Option){OPTION_GROUP, .help = "What to run"};
  to += train_options_select(table, what, to);
  *to++ = batch;
  *to++ = (Option){OPTION_GROUP, .help = "ASTRA"};
  to += train_options_select(table, astra, to);
  *to++ = (Option){OPTION_GROUP, .help = "Ranks"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *to++ = own[i];
  to += train_options_select(table, run, to);
  *to = (Option){.kind = OPTION_GROUP};
}

static Status parse_link(ScalingCommand *command) {
  char rate[64];
  const char *comma = strchr(command->link, ',');
  size_t length = comma ? (size_t)(comma - command->link) : 0;
  if (length == 0 || length >= sizeof rate)
    return status_set(STATUS_BAD_USAGE, "--link \"%s\": a rate and a time are accepted, as in 1gbit,0.1ms", command->link);
  memcpy(rate, command->link, length);
  rate[length] = '\0';
  double bits;
  TRY(options_unit(OPTION_RATE, "--link", rate, &bits));
  command->network.bandwidth = bits / 8;
  return options_unit(OPTION_TIME, "--link", comma + 1, &command->network.latency);
}

static Status parse(ScalingCommand *command, Option *options, int argc, char **argv) {
  TRY(cli_parse(options, argc, argv));
  TRY(train_options_need_model(&command->shared.train, NULL));
  TRY(cli_parse_numbers("ranks", command->ranks, RANKS_MAX, command->list, ROWS_MAX, &command->count));
  const int64_t batch = command->shared.train.batch;
  int fitting = 0; /* every rank needs a sample */
  for (int i = 0; i < command->count; i++)
    if (!command->strong || command->list[i] <= batch) command->list[fitting++] = command->list[i];
  if (fitting < command->count && options_given(options, "ranks"))
    return status_set(STATUS_BAD_USAGE, "--ranks %s: with --strong every rank needs one of the %lld samples of --batch", command->ranks,
                      (long long)batch);
  command->count = fitting;
  command->shared.train.dead_below = 0; /* random codewords are dead by chance: reviving them is not what a step is about */
  return parse_link(command);
}

/* ---------------------------------------------------------------- predictions */

static Status measure_one(const ScalingCommand *command, int64_t batch, ScalingStep *step) {
  char name[BENCH_NAME];
  Session session;
  TrainOptions train = command->shared.train;
  train.batch = batch;
  TRY(bench_session_samples(&train, name));
  TRY(bench_session_open(&session, &train, false));
  Status status = scaling_measure(&session, command->steps, step);
  session_close(&session);
  return status;
}

static void fill_row(const ScalingCommand *command, int ranks, const ScalingStep *step, const ScalingStep *first, Row *row) {
  const TrainOptions *train = &command->shared.train;
  ScalingResult alone;
  scaling_predict(step, &command->network, ranks, (Wire)train->wire, train->shard_optimizer, &row->predicted);
  scaling_predict(first, &command->network, 1, (Wire)train->wire, false, &alone);
  row->ranks = ranks;
  row->units = (command->strong ? (double)first->units : (double)step->units * ranks) / row->predicted.step;
  row->unit_name = step->unit_name;
  row->efficiency = row->units / ranks / ((double)first->units / alone.step);
}

static Status predict_all(const ScalingCommand *command, Row *rows) {
  ScalingStep first = {0}, own = {0};
  int64_t batch = command->shared.train.batch;
  Status status = measure_one(command, batch, &first);
  for (int i = 0; status == STATUS_OK && i < command->count; i++) {
    int ranks = command->list[i];
    rows[i].batch = command->strong ? (batch + ranks - 1) / ranks : batch; /* the largest share decides */
    bool again = rows[i].batch != batch;
    if (again) status = measure_one(command, rows[i].batch, &own);
    if (status == STATUS_OK) fill_row(command, ranks, again ? &own : &first, &first, &rows[i]);
    scaling_step_release(&own);
  }
  scaling_step_release(&first);
  return status;
}

static Status print_rows(const ScalingCommand *command, const Row *rows) {
  printf("link %s, %s on the wire%s, batch %lld %s\n", command->link, command->shared.train.wire == WIRE_BF16 ? "bf16" : "fp32",
         command->shared.train.shard_optimizer ? ", divided optimizer states" : "", (long long)command->shared.train.batch,
         command->strong ? "of all ranks" : "per rank");
  char speed[16];
  snprintf(speed, sizeof speed, "%s/s", rows[0].unit_name);
  printf("%6s %8s %12s %12s %12s %12s %12s %11s\n", "ranks", "batch", "ms per step", "ms exposed", "ms of link", "MiB sent", speed,
         "efficiency");
  for (int i = 0; i < command->count; i++)
    printf("%6d %8lld %12.1f %12.1f %12.1f %12.1f %12.1f %10.1f%%\n", rows[i].ranks, (long long)rows[i].batch, 1e3 * rows[i].predicted.step,
           1e3 * rows[i].predicted.exposed, 1e3 * rows[i].predicted.alone, rows[i].predicted.traffic / 1048576, rows[i].units,
           100 * rows[i].efficiency);
  return STATUS_OK;
}

static Status print_json(const ScalingCommand *command, const Row *rows) {
  json_t *object = json_pack("{s:f, s:f, s:b, s:b}", "bytes_per_second", command->network.bandwidth, "latency_seconds",
                             command->network.latency, "strong", command->strong, "divided", command->shared.train.shard_optimizer),
         *list = json_array();
  for (int i = 0; list != NULL && i < command->count; i++)
    json_array_append_new(list, json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks", rows[i].ranks, "batch",
                                          (json_int_t)rows[i].batch, "seconds", rows[i].predicted.step, "exposed_seconds",
                                          rows[i].predicted.exposed, "link_seconds", rows[i].predicted.alone, "bytes",
                                          rows[i].predicted.traffic, "units_per_second", rows[i].units, "efficiency", rows[i].efficiency));
  json_build_put(&object, "rows", list);
  return json_build_print(object);
}

static Status predict(ScalingCommand *command) {
  Row rows[ROWS_MAX] = {0};
  command->network.addition = scaling_addition();
  TRY(predict_all(command, rows));
  return command->shared.json ? print_json(command, rows) : print_rows(command, rows);
}

/* ---------------------------------------------------------------- a job */

static Status print_job(const ScalingCommand *command, const ScalingLink *link, const ScalingResult *result, double computed,
                        double seconds) {
  if (ranks_self() > 0) return STATUS_OK;
  if (command->shared.json) {
    json_t *object = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks", ranks_count(), "bytes_per_second", link->bandwidth,
                               "latency_seconds", link->latency, "computed_seconds", computed, "predicted_seconds", result->step,
                               "measured_seconds", seconds, "bytes", result->traffic);
    return json_build_print(object);
  }
  printf("%d ranks on %d machine%s, %d thread%s each: link of %.2f GB/s and %.1f us%s\n", ranks_count(), ranks_machines(),
         text_plural(ranks_machines()), threads_count(), text_plural(threads_count()), link->bandwidth / 1e9, 1e6 * link->latency,
         link->memory ? ", whose copies take the processors' time" : "");
  printf("a step of batch %lld per rank: %.1f ms of computing, %.1f ms predicted, %.1f ms measured (%+.1f%%); %.1f MiB sent\n",
         (long long)command->shared.train.batch / ranks_count(), 1e3 * computed, 1e3 * result->step, 1e3 * seconds,
         100 * (seconds / result->step - 1), result->traffic / 1048576);
  return STATUS_OK;
}

static Status measure_job(ScalingCommand *command, Session *session) {
  ScalingLink link;
  ScalingStep step;
  ScalingResult result, alone = {0};
  double seconds;
  const TrainOptions *train = &command->shared.train;
  session->share = (Share){ranks_self(), ranks_count()};
  TRY(scaling_measure_link(&link));
  Status status = scaling_measure(session, command->steps, &step);
  if (status == STATUS_OK) {
    scaling_predict(&step, &link, ranks_count(), (Wire)train->wire, train->shard_optimizer, &result);
    scaling_predict(&step, &link, 1, (Wire)train->wire, false, &alone);
  }
  scaling_step_release(&step);
  status = ranks_agree(status);
  if (status == STATUS_OK) status = data_parallel_check(session);
  if (status == STATUS_OK) status = ranks_agree(data_parallel_open(session));
  if (status == STATUS_OK) status = plan_check(session); /* counts uses of parameters */
  if (status == STATUS_OK) status = scaling_measure_job(session, command->steps, &seconds);
  data_parallel_close(session);
  return status == STATUS_OK ? print_job(command, &link, &result, alone.step, seconds) : status;
}

static Status run_job(ScalingCommand *command) {
  char name[BENCH_NAME];
  Session session;
  TrainOptions *train = &command->shared.train;
  if (!command->strong) train->batch *= ranks_count();
  TRY(bench_session_samples(train, name));
  if (train->drawn) return ranks_common(status_set(STATUS_BAD_USAGE, "--model %s: a job is measured with models of images", train->model));
  TRY(ranks_agree(bench_session_open(&session, train, false)));
  Status status = measure_job(command, &session);
  session_close(&session);
  return status;
}

static Status run(ScalingCommand *command, Option *options, int argc, char **argv) {
  TRY(ranks_agree(parse(command, options, argc, argv)));
  TRY(cli_check_kernels(command->shared.backend));
  TRY(threads_start((int)command->shared.train.threads));
  Status status = ranks_count() > 1 ? run_job(command) : predict(command);
  threads_stop();
  return status;
}

static Status run_scaling(int argc, char **argv) {
  ScalingCommand command;
  Option options[OPTIONS_MAX];
  scaling_options(&command, options);
  if (cli_helped(options, USAGE, ABOUT, argc, argv)) return STATUS_OK;
  TRY(ranks_join());
  log_errors_only(ranks_self() > 0);
  return train_options_end_rank(run(&command, options, argc, argv));
}

const CliCommand bench_scaling_command = {"scaling", "predict training on 1 to 64 ranks from a step of one; under mpirun, measure as well",
                                          run_scaling};
