/* Measured steps and computed exchanges: see scaling.h. */
#include "train/scaling.h"
#include "autograd/kernels/kernels.h"
#include "base/clock.h"
#include "base/threads.h"
#include "train/data_parallel.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the model */

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

/* ---------------------------------------------------------------- a step of one rank */

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

/* ---------------------------------------------------------------- additions and links */

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
