/* The processes of a training job (`mpirun -n 4 astra-train ...`): which one this is, what all of them agree on, and sums over
 * all of them. All of MPI that training uses is behind this header. One job for a process, as MPI has it; a process by
 * itself is the only rank of its own, for which everything here is a matter of course and MPI is never started.
 *
 * All calls come from the thread that joined. Where nothing else is said, every rank makes the same calls in the same order. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H
#include "autograd/real.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts MPI in a process that a launcher started as one of several, before any thread is started: ranks of one machine that may run on the
 * same cores divide these among them. UNSUPPORTED, saying what to install, in a program that was built without MPI. */
Status ranks_join(void);
void ranks_leave(void);                                    /* in all ranks, at the end */
void ranks_abort(int exit_code) __attribute__((noreturn)); /* ends the other ranks as well, whatever they do */

int ranks_self(void);         /* 0 to ranks_count() - 1; 0 writes files and speaks */
int ranks_count(void);        /* 1 for a process by itself */
const char *ranks_host(void); /* the name of this rank's machine; "" for a process by itself */
int ranks_machines(void);     /* how many different machines the ranks run on; 1 for a process by itself */
int ranks_here(void);         /* how many ranks run on this rank's machine, itself included */
/* Whether this rank speaks for the job when it is told to end: rank 0, or the next one if that is gone, as a process that was lost is when
 * its launcher ends the others. Async-signal-safe. */
bool ranks_speaks(void);

/* ---- agreeing: what one rank alone finds is known to all before any goes on */

/* The status of the lowest rank that failed, with its message, which names the rank unless it is 0; or OK. */
Status ranks_agree(Status status);
Status ranks_follow(Status status); /* rank 0's */
/* To be called with a failure that every rank has come to by itself. */
Status ranks_common(Status status);
/* Whether a failure came out of none of these three: the other ranks do not know of it and wait, so that the caller has to abort. */
bool ranks_alone(Status status);

/* ---- numbers and bytes; all of these wait */

void ranks_sum(double *numbers, int count);                 /* over ranks, in their order: the same bits in each. A few numbers */
void ranks_count_all(int64_t *numbers, int64_t count);      /* sums of integers */
void ranks_spread(int from, void *bytes, size_t count);     /* from that rank to all */
void ranks_gather(const void *own, void *all, size_t each); /* all [ranks][each] */

/* ---- sums of a long block of numbers over all ranks, bucket by bucket, while other work goes on
 *
 *   block   | bucket B-1 |  ...  | bucket 1 | bucket 0 |        each of a million numbers (4 MiB); bucket 0 lies at the end, where the
 *                                                               gradients are final first
 *   bucket  | slice of rank 0 | slice of rank 1 | ... |         each rank adds up its slice:
 *
 *     1. scatter  every rank sends each other rank that rank's slice
 *     2. sum      the slice's owner adds the ranks' numbers in the order of the ranks, in fp32
 *     3. gather   every owner sends its sums to all others
 *
 * Each rank sends and receives 2 (R - 1) / R of the block, as with a ring, in two messages' time in place of 2 (R - 1). Since the order of
 * the additions is that of the ranks, whoever is first, the same number of ranks gives the same bits, and one owner's sums are everybody's.
 * On a wire of bf16 a rank's numbers are rounded before they are sent, and the sums once more; the additions are in fp32.
 *
 * Without step 3 (scatter_only) each rank has the sums of its slices alone: ZeRO-1 (Rajbhandari et al., 2020), which gathers the weights
 * that follow from them instead (all_reduce_gather). */

typedef enum Wire { WIRE_FP32, WIRE_BF16 } Wire;

typedef struct AllReduceOptions {
  Wire wire;
  bool scatter_only;
  int tag;             /* two blocks that are under way at once have tags 2^16 or more apart */
  const int64_t *cuts; /* [cut_count] rising, from 0: slices begin at one of these; NULL: anywhere */
  int64_t cut_count;
} AllReduceOptions;

typedef struct AllReduce AllReduce;

/* numbers [total] stay the caller's and must outlive it. */
Status all_reduce_new(AllReduce **reduce, real *numbers, int64_t total, const AllReduceOptions *options);
void all_reduce_free(AllReduce *reduce); /* between rounds; accepts NULL */

int64_t all_reduce_buckets(const AllReduce *reduce);
void all_reduce_bucket(const AllReduce *reduce, int64_t bucket, int64_t *begin, int64_t *end); /* where it lies in the block */
bool all_reduce_owns(const AllReduce *reduce, int64_t at); /* whether number `at` is in a slice of this rank */

/* A round: every bucket is said to be ready once, when its numbers will not change any more. Buckets leave in their order: one that is
 * ready waits for those before it. From then on they are the reduction's until all_reduce_finish. */
void all_reduce_ready(AllReduce *reduce, int64_t bucket);
void all_reduce_poll(AllReduce *reduce);
void all_reduce_finish(AllReduce *reduce); /* waits; all buckets must be ready. The block then holds the sums (of own slices) */

/* values [total] of `size` bytes each, laid out like the block: each rank's slices to all, or to rank 0 alone. */
void all_reduce_gather(AllReduce *reduce, void *values, size_t size, bool to_first);
/* Gives the memory of such values in other ranks' slices back, where it fills pages: they are zero from then on, or what a rank writes. */
void all_reduce_forget(const AllReduce *reduce, void *values, size_t size);

#endif
