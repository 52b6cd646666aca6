/* Where the time of repeated work on a tape goes, by kind of operation and phase, and how much of each is matrix products. */
#ifndef TRAIN_BENCH_PROFILE_H
#define TRAIN_BENCH_PROFILE_H
#include "autograd/tape.h"

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
  int parts;
  double products_before; /* matmul_counted().seconds when the last operation ended */
} BenchProfile;

/* Every operation of the tape is added from here on, until the next call; NULL: none is. The profile must not be moved meanwhile. */
void bench_profile_watch(BenchProfile *profile, Tape *tape);

/* To be called whenever the count of products has been reset. */
void bench_profile_restart(BenchProfile *profile);

/* Forgets what was added, as it belongs to a warm-up. */
void bench_profile_clear(BenchProfile *profile);

#endif
