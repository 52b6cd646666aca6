/* Adam and AdamW over a whole ParamSet, gradient clipping, learning-rate schedule, moving average of the weights. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H
#include "autograd/param.h"

typedef struct OptimizerOptions {
  double rate, beta1, beta2, eps, decay; /* decay is decoupled and only for parameters with `decay` */
  double clip;                           /* largest global L2 norm of the gradient; 0: none */
  double average;                        /* of the weights' moving average; 0: none */
} OptimizerOptions;

typedef struct Optimizer {
  ParamSet *params;
  OptimizerOptions options;
  real *first, *second; /* moments, laid out like params->values */
  real *average;        /* EMA weights, likewise; NULL when off */
  int64_t steps;
} Optimizer;

Status optimizer_init(Optimizer *optimizer, ParamSet *params, const OptimizerOptions *options);
void optimizer_release(Optimizer *optimizer);

/* One step with rate = options.rate * factor on gradients scaled by `scale` (1 / accumulated batches). Returns the gradient's norm before
 * clipping (after scaling) in *norm; NUMERIC, with the weights untouched and the first bad parameter named, when it is not finite. */
Status optimizer_step(Optimizer *optimizer, double factor, double scale, double *norm);

/* Linear warm-up from 0 over `warmup` steps, then cosine to `floor` (a part of 1) at `total`. step counts from 0. */
double optimizer_schedule(int64_t step, int64_t warmup, int64_t total, double floor);

#endif
