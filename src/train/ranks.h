/* The processes of a training job (`mpirun -n 4 astra-train ...`): which one this is, what all of them agree on, and bytes from each to
 * each. All of MPI that training uses is behind this header. One job for a process, as MPI has it; a process by itself is the only rank of
 * its own, for which everything here is a matter of course and MPI is never started.
 *
 * All calls come from the thread that joined. Where nothing else is said, every rank makes the same calls in the same order. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H
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
int ranks_machines(void);

/* Of `count` items in order, rank's part begins here; that of rank ranks_count() would begin at `count`. Parts differ by one item at most,
 * and rank 0 has one if there are any. */
int64_t ranks_begin(int64_t count, int rank);

/* ---- agreeing: what one rank alone finds is known to all before any goes on */

/* The status of the lowest rank that failed, with its message, which names the rank unless it is 0; or OK. */
Status ranks_agree(Status status);
Status ranks_follow(Status status); /* rank 0's */
/* To be called with a failure that every rank has come to by itself. */
Status ranks_common(Status status);
/* Whether a failure came out of none of these three: the other ranks do not know of it and wait, so that the caller has to abort. */
bool ranks_alone(Status status);

/* Whether this rank should speak for the job when it is told to end: rank 0, or the next one if that is gone. Async-signal-safe. */
bool ranks_speaks(void);

/* ---- numbers and bytes; all of these wait */

void ranks_sum(double *numbers, int count);                 /* over ranks, in their order: the same bits in each. A few numbers */
void ranks_count_all(int64_t *numbers, int64_t count);      /* sums of integers */
void ranks_spread(int from, void *bytes, size_t count);     /* from that rank to all */
void ranks_gather(const void *own, void *all, size_t each); /* all [ranks][each] */

/* ---- bytes from each to each, beside other work */

typedef struct RanksPiece {
  void *data;
  size_t bytes;
} RanksPiece;

typedef struct RanksExchange RanksExchange;
RanksExchange *ranks_exchange_new(void);           /* NULL: no memory */
void ranks_exchange_free(RanksExchange *exchange); /* nothing is under way; accepts NULL */

/* Sends out[d] to rank d and receives in[d] from it, for every other rank; empty pieces are left out, on both sides. The memory stays as it
 * is until the exchange is done. Exchanges of one tag (0 to 2^20) follow each other in the same order on all ranks; those of different tags
 * in any. */
void ranks_exchange_begin(RanksExchange *exchange, int tag, const RanksPiece *out, const RanksPiece *in);
bool ranks_exchange_done(RanksExchange *exchange); /* moves all exchanges on; true without one under way */

/* What waits in a loop of its own calls this when nothing has moved: the more often, the longer it sleeps. turns: how often already. */
void ranks_idle(int turns);

#endif
