/* Adam, AdamW and Muon over a whole ParamSet, gradient clipping, learning-rate schedule, moving average of the weights.
 * Results do not depend on the number of threads, but for Muon's (muon.h): the gradient's norm is summed over fixed chunks in a fixed
 * order. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H
#include "autograd/param.h"

typedef struct OptimizerOptions {
  double rate, beta1, beta2, eps, decay; /* decay is decoupled and only for parameters with `decay` */
  double clip;                           /* largest global L2 norm of the gradient; 0: none */
  double average;                        /* of the weights' moving average; 0: none */
  int moments;                           /* OptimizerMoments */
  int64_t seed;                          /* of the draws with which narrow moments are rounded */
  int kind;                              /* OptimizerKind */
} OptimizerOptions;

/* OPTIMIZER_MUON moves the hidden matrices as muon.h says and all else as AdamW. It needs 32-bit moments and a step that is not shared out.
 */
typedef enum OptimizerKind { OPTIMIZER_ADAMW, OPTIMIZER_MUON } OptimizerKind;

/* How moments are kept: 8, 4 or about 2 bytes for both of a number (kernels.h: adamw, adamw_bf16, adamw_bytes). */
typedef enum OptimizerMoments { OPTIMIZER_32_BITS, OPTIMIZER_16_BITS, OPTIMIZER_8_BITS, OPTIMIZER_MOMENTS } OptimizerMoments;

/* A run of numbers of one parameter: the unit of work and of summation. */
typedef struct OptimizerChunk {
  size_t param;
  int64_t offset, count; /* in the blocks of the set */
  int64_t scale;         /* its first one, of moments in 8 bits */
} OptimizerChunk;

/* One moment of all numbers, laid out like params->values. */
typedef struct OptimizerMoment {
  void *numbers; /* [params->total]: real, bfloat16 in uint16_t, or codes in uint8_t */
  float *scales; /* [scales] of codes: one for each 256 numbers of a parameter; NULL otherwise */
} OptimizerMoment;

typedef struct Optimizer {
  ParamSet *params;
  OptimizerOptions options;
  OptimizerMoment first, second; /* of a matrix that Muon moves: its momentum, and the direction of the last step */
  real *scratch;                 /* of Muon; NULL otherwise */
  real *average;                 /* EMA weights, laid out like params->values; NULL when off */
  int64_t steps;
  OptimizerChunk *chunk; /* [chunks], private */
  double *partial;       /* [chunks], sums of squares, private */
  int64_t chunks, scales;
  /* Of several processes that share the step out, or NULL: which chunks are this one's, whose moments and weights alone move; and what adds
   * up numbers over all of them. The gradients of its chunks are whole. */
  const uint8_t *own; /* [chunks] */
  void (*sum)(double *numbers, int64_t count);
} Optimizer;

/* Of a moment, as it is kept. */
static inline size_t optimizer_number_bytes(OptimizerMoments moments) {
  return moments == OPTIMIZER_32_BITS ? sizeof(real) : moments == OPTIMIZER_16_BITS ? sizeof(uint16_t) : sizeof(uint8_t);
}

/* Bytes of both moments of such a set, which has its addresses, and of Muon's scratch. */
double optimizer_moment_bytes(const ParamSet *params, const OptimizerOptions *options);

/* What optimizer_init refuses of options: BAD_VALUE for numbers that are not finite, negative or otherwise out of range, BAD_USAGE for
 * options of the command line that contradict each other. */
Status optimizer_check(const OptimizerOptions *options);

/* The set is allocated with gradients and outlives the optimizer; its weights are set already, as the average starts from them. On
 * resume fill first, second, average and steps afterwards. Errors as of optimizer_check. */
Status optimizer_init(Optimizer *optimizer, ParamSet *params, const OptimizerOptions *options);
void optimizer_release(Optimizer *optimizer);

/* The average starts from the weights as they are now: for what sets some of them after optimizer_init and before the first step. Does
 * nothing where there is no average, nor on a zeroed optimizer. */
void optimizer_start_average(Optimizer *optimizer);

/* One step with rate = options.rate * factor on gradients scaled by `scale` (1 / accumulated batches). Returns the gradient's norm before
 * clipping (after scaling) in *norm; NUMERIC, with the weights untouched and the first bad parameter named, when it is not finite.
 * Gradients are left as they are. */
Status optimizer_step(Optimizer *optimizer, double factor, double scale, double *norm);

/* Linear warm-up from 0 over `warmup` steps, then cosine to `floor` (a part of 1) at `total`. step counts from 0. */
double optimizer_schedule(int64_t step, int64_t warmup, int64_t total, double floor);

#endif
