/* Inside of src/data only: how one batch is filled (loader_fill.c), apart from the threads that do it (loader.c). */
#ifndef DATA_LOADER_FILL_H
#define DATA_LOADER_FILL_H
#include "data/augment.h"
#include "data/loader.h"
#include <pthread.h>

/* What all workers read and none writes. */
typedef struct LoaderPlan {
  Dataset *set;
  LoaderOptions options;
  PixelTable table;
  int64_t count, steps; /* records of the set, batches per epoch */
  Share share;          /* of each batch */
} LoaderPlan;

/* Broken pictures met so far, shared by the workers. */
typedef struct LoaderFaults {
  pthread_mutex_t mutex;
  uint8_t *known; /* [count] 1: was warned about */
  int64_t skipped;
} LoaderFaults;

/* One worker's own memory. */
typedef struct LoaderHand {
  int32_t *order; /* [count] the order of order_epoch */
  int64_t order_epoch;
  Image source, fitted;
  Image window, spare; /* of a policy's operations */
  ResizeScratch scratch;
} LoaderHand;

Status loader_fill_open(LoaderHand *hand, const LoaderPlan *plan);
void loader_fill_close(LoaderHand *hand);

/* Batch number `serial` = epoch * steps + step into batch, whose pixels and labels have room for options.batch pictures. */
Status loader_fill(LoaderHand *hand, const LoaderPlan *plan, LoaderFaults *faults, int64_t serial, Batch *batch);

/* `image` without random changes: out [3, side, side]. */
Status loader_fill_plain(LoaderHand *hand, const LoaderOptions *options, const PixelTable *table, const Image *image, float *out);

#endif
