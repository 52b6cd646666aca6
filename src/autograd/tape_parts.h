/* The inside of a Tape, private to tape.c and tape_segment.c. */
#ifndef AUTOGRAD_TAPE_PARTS_H
#define AUTOGRAD_TAPE_PARTS_H
#include "autograd/tape.h"

typedef struct TapeRecord TapeRecord;
struct TapeRecord {
  const OpKind *op;
  void *data;
  Tensor *output;
  TapeRecord *before;
};

/* A gradient array that no tensor uses any more. */
typedef struct TapeFreeGrad TapeFreeGrad;
struct TapeFreeGrad {
  void *data;
  size_t bytes;
  TapeFreeGrad *next;
};

/* What is remembered of a pass; a segment has one of its own. */
typedef struct TapeRun {
  Arena *arena;
  TapeRecord *last;
  TapeFreeGrad *free_grads, *spare_nodes;
  bool recording;
} TapeRun;

struct Tape {
  TapeRun run;
  size_t floor;
  bool planning, bf16, narrow;
  Status status;
  TapeProfiler *profiler;
  void *profiler_context;
  const TapeWatcher *watcher;
  Arena *inner;   /* of segments; NULL: nothing is computed twice */
  TapeRun *outer; /* while a segment runs: what it interrupts */
  bool again;     /* it runs for the second time */
};

void tape_remember(Tape *tape, const OpKind *op, void *data, Tensor *output); /* as the last record */
void tape_run_records(Tape *tape);                                            /* backward, from the last record to the first */

#endif
