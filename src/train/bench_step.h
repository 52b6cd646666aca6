/* How long a step takes: real training steps (or forward passes) on drawn images or random tokens and with random weights, timed one by
 * one, so that two models can be measured in turns; and how a step scales over ranks. Leaves out: printing, and how fast the machine could
 * be (src/cli). */
#ifndef TRAIN_BENCH_STEP_H
#define TRAIN_BENCH_STEP_H
#include "autograd/tape.h"
#include "train/ranks.h"
#include "train/session.h"

/* Where the time of repeated work on a tape goes, by kind of operation and phase, and how much of each is matrix products. */

/* The time of one kind of operation in one phase, over all repetitions. */
typedef struct BenchPart {
  const char *name;
  TapePhase phase;
  double seconds, product_seconds; /* in all; inside matrix products */
  int64_t calls;
} BenchPart;

enum { BENCH_PARTS = 64 };

typedef struct BenchProfile {
  BenchPart part[BENCH_PARTS]; /* [parts] */
  int parts;                   /* set to 0 to forget what was added, as it belongs to a warm-up */
  double products_before;      /* matmul_counted().seconds when the last operation ended */
} BenchProfile;

/* Every operation of the tape is added from here on, until the next call; NULL: none is. To be called after the count of
 * products was reset. The profile must not be moved meanwhile. */
void bench_profile_watch(BenchProfile *profile, Tape *tape);

typedef struct BenchSample {
  double seconds, processor_seconds; /* by the clock; of all threads together, which a busy machine disturbs less */
  double product_seconds, flops;     /* of matrix products */
  double faults;                     /* pages that were touched for the first time */
  int64_t units;                     /* images, tokens */
} BenchSample;

typedef struct BenchStep {
  Session *session;   /* not its own: two that take turns share weights, gradients and arena */
  bool plain;         /* the plain model's steps, whatever the session's model has */
  size_t activations; /* bytes: most of the arena that a step took */
  bool forward;       /* the forward pass alone, with nothing recorded */
  BenchSample *samples;
  int64_t count, max;
  bool profiled;        /* the caller's to set */
  BenchProfile profile; /* of the kept steps, where it is profiled */
} BenchStep;

/* Random tokens for train->model; or images of the size that it takes, so that no time goes into resizing them, and whose `name`, kept by
 * the caller, is the data set's. Weights are random. */
enum { BENCH_NAME = 96 };
Status bench_session_samples(TrainOptions *train, char name[BENCH_NAME]);

/* A session for steps, or forward passes alone: random weights; codebooks of random normal numbers, which is how activations after a
 * LayerNorm lie. The options name a synthetic data set or say `drawn`. Close it with session_close, after the benches; nothing is open
 * after a failure. */
Status bench_session_open(Session *session, const TrainOptions *options, bool forward);

/* Room for `max` samples of steps of that session, which outlives the bench. The bench must not be moved while it is in use. */
Status bench_step_open(BenchStep *bench, Session *session, bool plain, bool forward, int64_t max);
void bench_step_close(BenchStep *bench); /* fine on a zeroed one */

/* One step; kept as a sample or, as it touches memory for the first time, not. */
Status bench_step_run(BenchStep *bench, bool keep);

typedef struct BenchSummary {
  double median, min, mean;              /* seconds a step */
  double spread;                         /* half the range of the middle half of the steps, as a part of the median */
  double processor, faults;              /* of a step, on average: seconds of all threads together, page faults */
  double product_share;                  /* of the time, inside matrix products */
  double flops, flops_per_second;        /* of the products: a step's, and while inside them */
  double units_per_second;               /* images, tokens: at the median */
  double activations, weights, training; /* bytes: arena, weights, gradients and moments */
} BenchSummary;
void bench_step_summary(BenchStep *bench, BenchSummary *summary); /* sorts the samples by time */

/* ---- scaling over ranks */

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
