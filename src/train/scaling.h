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
#ifndef TRAIN_SCALING_H
#define TRAIN_SCALING_H
#include "train/ranks.h"
#include "train/session.h"

typedef struct ScalingStep {
  double forward, backward, rest, optimizer; /* seconds; rest: codebooks, zeroing */
  int64_t buckets, total;                    /* total: numbers of all buckets */
  double *ready;                             /* [buckets] t_k */
  int64_t *numbers;                          /* [buckets] n_k */
  int64_t statistics;                        /* numbers of the codebooks' sums */
  int64_t units;                             /* images or tokens of a step */
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

void scaling_predict(const ScalingStep *step, const ScalingLink *link, int ranks, Wire wire, bool divided, ScalingResult *result);

/* The fastest of `steps` training steps of a session for training (of a rank's share, if it has one), after one that warms up: others were
 * disturbed. */
Status scaling_measure(Session *session, int64_t steps, ScalingStep *step);
void scaling_step_release(ScalingStep *step);

double scaling_addition(void); /* seconds to add up a number here, with all threads */

/* In a job of several ranks: what its link takes. Every rank has the same in the end. */
Status scaling_measure_link(ScalingLink *link);
/* Seconds of a step of the job, whose session is open for it (data_parallel_open): the fastest of `steps`, mean over ranks. */
Status scaling_measure_job(Session *session, int64_t steps, double *seconds);

#endif
