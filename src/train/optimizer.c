/* One pass for the gradient's norm, one for the update of weights, moments and average; both over the same fixed chunks, shared out over
 * the pool. Between them Muon finds the directions of its matrices. The arithmetic of AdamW is kernels()->adamw and its narrow forms.
 * Invariant: a step that fails has changed nothing. */
#include "train/optimizer.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include "train/muon.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 16K numbers, with four arrays of which 256 KiB in float: small enough to share out evenly, large enough that a call costs nothing. */
enum { CHUNK = 16384, ALIGN = 64 };
_Static_assert(CHUNK % ADAMW_BLOCK == 0, "a block of 8-bit moments lies in one chunk");

enum { STREAM_ROUNDING = 255, STREAM_STEPS = 256 }; /* a stream of its own for each step, apart from those of few numbers */

Status optimizer_check(const OptimizerOptions *o) {
  if (!(o->rate >= 0 && isfinite(o->rate)))
    return status_set(STATUS_BAD_VALUE, "learning rate %g: a number from 0 upwards is accepted", o->rate);
  if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
    return status_set(STATUS_BAD_VALUE, "betas %g and %g: each from 0 to below 1 is accepted", o->beta1, o->beta2);
  if (!(o->eps > 0 && isfinite(o->eps))) return status_set(STATUS_BAD_VALUE, "epsilon %g: a positive number is accepted", o->eps);
  if (!(o->decay >= 0 && isfinite(o->decay)))
    return status_set(STATUS_BAD_VALUE, "weight decay %g: a number from 0 upwards is accepted", o->decay);
  if (!(o->clip >= 0 && isfinite(o->clip)))
    return status_set(STATUS_BAD_VALUE, "gradient clip %g: a number from 0 (none) upwards is accepted", o->clip);
  if (!(o->average >= 0 && o->average < 1))
    return status_set(STATUS_BAD_VALUE, "decay %g of the weights' average: from 0 (none) to below 1 is accepted", o->average);
  if (o->moments < 0 || o->moments >= OPTIMIZER_MOMENTS)
    return status_set(STATUS_BAD_VALUE, "moments of kind %d: those in 32, 16 and 8 bits are known", o->moments);
  if (o->kind != OPTIMIZER_ADAMW && o->kind != OPTIMIZER_MUON)
    return status_set(STATUS_BAD_VALUE, "optimizer of kind %d: AdamW and Muon are known", o->kind);
  if (o->kind == OPTIMIZER_MUON && o->moments != OPTIMIZER_32_BITS)
    return status_set(STATUS_BAD_USAGE, "--optimizer muon keeps its momentum in 32 bits: leave --optimizer-bits out");
  return STATUS_OK;
}

static void *zeroed_block(int64_t count, size_t size) {
  size_t bytes = ((size_t)count * size + ALIGN - 1) / ALIGN * ALIGN;
  void *block = aligned_alloc(ALIGN, bytes ? bytes : ALIGN);
  if (block) memset(block, 0, bytes);
  return block;
}

static int64_t scales_of(int64_t count) { return (count + ADAMW_BLOCK - 1) / ADAMW_BLOCK; }

/* Cuts every parameter into chunks; with chunk NULL only counts them. */
static int64_t cut(const ParamSet *params, OptimizerChunk *chunk, int64_t *scales) {
  int64_t chunks = 0;
  *scales = 0;
  for (size_t p = 0; p < params->count; p++) {
    const Tensor *tensor = &params->list[p].tensor;
    if (params->list[p].frozen) continue;
    int64_t first = tensor->value - params->values, count = tensor_count(tensor);
    for (int64_t done = 0; done < count; done += CHUNK, chunks++) {
      int64_t left = count - done;
      if (chunk) chunk[chunks] = (OptimizerChunk){p, first + done, left < CHUNK ? left : CHUNK, *scales + scales_of(done)};
    }
    *scales += scales_of(count);
  }
  return chunks;
}

double optimizer_moment_bytes(const ParamSet *params, const OptimizerOptions *options) {
  int64_t scales;
  cut(params, NULL, &scales);
  double bytes = (double)params->total * (double)optimizer_number_bytes((OptimizerMoments)options->moments);
  if (options->moments == OPTIMIZER_8_BITS) bytes += (double)scales * sizeof(float);
  return 2 * bytes + (options->kind == OPTIMIZER_MUON ? (double)muon_scratch_bytes(params) : 0);
}

static bool new_moment(const Optimizer *optimizer, OptimizerMoment *moment) {
  OptimizerMoments kind = (OptimizerMoments)optimizer->options.moments;
  moment->numbers = zeroed_block(optimizer->params->total, optimizer_number_bytes(kind));
  if (kind == OPTIMIZER_8_BITS) moment->scales = zeroed_block(optimizer->scales, sizeof *moment->scales);
  return moment->numbers && (moment->scales || kind != OPTIMIZER_8_BITS);
}

void optimizer_start_average(Optimizer *optimizer) {
  const ParamSet *params = optimizer->params;
  if (optimizer->average) memcpy(optimizer->average, params->values, (size_t)params->total * sizeof(real));
}

Status optimizer_init(Optimizer *optimizer, ParamSet *params, const OptimizerOptions *options) {
  *optimizer = (Optimizer){.params = params, .options = *options};
  TRY(optimizer_check(options));
  if (!params->values || !params->grads)
    return status_set(STATUS_BAD_VALUE, "the parameters were opened for inference: training needs their own values and gradients");
  optimizer->chunks = cut(params, NULL, &optimizer->scales);
  optimizer->chunk = calloc((size_t)optimizer->chunks + 1, sizeof *optimizer->chunk);
  optimizer->partial = calloc((size_t)optimizer->chunks + 1, sizeof *optimizer->partial);
  if (options->average > 0) optimizer->average = zeroed_block(params->total, sizeof *optimizer->average);
  if (options->kind == OPTIMIZER_MUON) optimizer->scratch = zeroed_block(1, muon_scratch_bytes(params));
  if (!new_moment(optimizer, &optimizer->first) || !new_moment(optimizer, &optimizer->second) || !optimizer->chunk || !optimizer->partial ||
      (!optimizer->average && options->average != 0) || (!optimizer->scratch && options->kind == OPTIMIZER_MUON)) {
    optimizer_release(optimizer);
    return status_set(STATUS_NO_MEMORY, "out of memory for the optimizer's state of %lld numbers", (long long)params->total);
  }
  cut(params, optimizer->chunk, &optimizer->scales);
  optimizer_start_average(optimizer);
  return STATUS_OK;
}

void optimizer_release(Optimizer *optimizer) {
  free(optimizer->first.numbers);
  free(optimizer->first.scales);
  free(optimizer->second.numbers);
  free(optimizer->second.scales);
  free(optimizer->average);
  free(optimizer->scratch);
  free(optimizer->chunk);
  free(optimizer->partial);
  memset(optimizer, 0, sizeof *optimizer);
}

static void sum_chunks(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Optimizer *optimizer = context;
  for (int64_t i = begin; i < end; i++)
    optimizer->partial[i] = optimizer->own && !optimizer->own[i]
                                ? 0
                                : kernels()->sum_squares(optimizer->chunk[i].count, optimizer->params->grads + optimizer->chunk[i].offset);
}

static Status gradient_norm(const Optimizer *optimizer, double scale, double *norm) {
  threads_for(optimizer->chunks, 1, sum_chunks, (void *)optimizer);
  if (optimizer->own) optimizer->sum(optimizer->partial, optimizer->chunks);
  double sum = 0;
  for (int64_t i = 0; i < optimizer->chunks; i++) {
    sum += optimizer->partial[i];
    if (!isfinite(sum * scale * scale))
      return status_set(STATUS_NUMERIC,
                        "the gradient of %s is not a finite number: try a lower learning rate or a stronger gradient clip, and look at the "
                        "data of this step",
                        optimizer->params->list[optimizer->chunk[i].param].name);
  }
  *norm = fabs(scale) * sqrt(sum);
  return STATUS_OK;
}

typedef struct Update {
  const Optimizer *optimizer;
  AdamwStep step;
  real decay, keep;
} Update;

/* w -= rate (direction + decay w) */
static void follow_direction(int64_t count, real *restrict w, const real *restrict direction, const AdamwStep *step) {
  for (int64_t i = 0; i < count; i++) w[i] -= step->rate * (direction[i] + step->decay * w[i]);
}

static void update_chunk(const Optimizer *optimizer, const OptimizerChunk *chunk, const AdamwStep *step) {
  const ParamSet *params = optimizer->params;
  const Kernels *table = kernels();
  const OptimizerMoment *m = &optimizer->first, *v = &optimizer->second;
  const int64_t at = chunk->offset, count = chunk->count;
  real *w = params->values + at;
  const real *grad = params->grads + at;
  if (optimizer->options.kind == OPTIMIZER_MUON && muon_moves(&params->list[chunk->param])) {
    follow_direction(count, w, (real *)v->numbers + at, step);
    return;
  }
  const uint64_t counter = (uint64_t)at / ADAMW_DRAWS; /* parameters start on cache lines: no two numbers share a draw */
  switch ((OptimizerMoments)optimizer->options.moments) {
  case OPTIMIZER_16_BITS:
    table->adamw_bf16(count, w, grad, (uint16_t *)m->numbers + at, (uint16_t *)v->numbers + at, step, counter);
    break;
  case OPTIMIZER_8_BITS:
    table->adamw_bytes(count, w, grad, (uint8_t *)m->numbers + at, (uint8_t *)v->numbers + at, m->scales + chunk->scale,
                       v->scales + chunk->scale, step, counter);
    break;
  default:
    table->adamw(count, w, grad, (real *)m->numbers + at, (real *)v->numbers + at, step);
  }
}

static void update_chunks(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Update *u = context;
  const Optimizer *optimizer = u->optimizer;
  const ParamSet *params = optimizer->params;
  for (int64_t i = begin; i < end; i++) {
    const OptimizerChunk *chunk = &optimizer->chunk[i];
    if (optimizer->own && !optimizer->own[i]) continue;
    const real *w = params->values + chunk->offset;
    AdamwStep step = u->step;
    step.decay = params->list[chunk->param].decay ? u->decay : 0;
    update_chunk(optimizer, chunk, &step);
    const Tensor *tensor = &params->list[chunk->param].tensor;
    if (tensor->shadow) kernels()->narrow(chunk->count, w, tensor->shadow + (w - tensor->value));
    if (!optimizer->average) continue;
    real *restrict average = optimizer->average + chunk->offset; /* here the new weights are still in the cache */
    for (int64_t j = 0; j < chunk->count; j++) average[j] += (1 - u->keep) * (w[j] - average[j]);
  }
}

static void find_directions(const Optimizer *optimizer, real scale) {
  const ParamSet *params = optimizer->params;
  for (size_t p = 0; p < params->count; p++) {
    const Param *param = &params->list[p];
    if (!muon_moves(param)) continue;
    const int64_t at = param->tensor.value - params->values;
    muon_direction(param, scale, (real *)optimizer->first.numbers + at, (real *)optimizer->second.numbers + at, optimizer->scratch);
  }
}

Status optimizer_step(Optimizer *optimizer, double factor, double scale, double *norm) {
  const OptimizerOptions *o = &optimizer->options;
  TRY(gradient_norm(optimizer, scale, norm));
  if (o->clip > 0 && *norm > o->clip) scale *= o->clip / *norm;
  int64_t step = ++optimizer->steps;
  Rng rounding;
  rng_init(&rounding, (uint64_t)o->seed, STREAM_ROUNDING + STREAM_STEPS * (uint64_t)step);
  /* The weight that the average keeps of its past: options.average, but no more than (1 + steps) / (10 + steps), so that the average of a
   * short run is not the starting point. */
  double keep = fmin(o->average, (1.0 + (double)step) / (10.0 + (double)step));
  Update update = {.optimizer = optimizer,
                   .step = {.scale = (real)scale,
                            .rate = (real)(o->rate * factor),
                            .b1 = (real)o->beta1,
                            .b2 = (real)o->beta2,
                            .c1 = (real)(1 - pow(o->beta1, (double)step)),
                            .c2 = (real)(1 - pow(o->beta2, (double)step)),
                            .eps = (real)o->eps,
                            .seed = rng_next(&rounding)},
                   .decay = (real)o->decay,
                   .keep = (real)keep};
  if (o->kind == OPTIMIZER_MUON) find_directions(optimizer, (real)scale);
  threads_for(optimizer->chunks, 1, update_chunks, &update);
  return STATUS_OK;
}

double optimizer_schedule(int64_t step, int64_t warmup, int64_t total, double floor) {
  if (step < warmup) return (double)step / (double)warmup;
  if (step >= total) return floor;
  double part = (double)(step - warmup) / (double)(total - warmup);
  return floor + (1 - floor) * 0.5 * (1 + cos(acos(-1) * part));
}
