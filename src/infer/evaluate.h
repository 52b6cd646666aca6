/* The accuracy of a cluster over a data set, through the real processes. */
#ifndef INFER_EVALUATE_H
#define INFER_EVALUATE_H
#include "data/dataset.h"
#include "infer/cluster/leader.h"

typedef struct Evaluation {
  int64_t samples;
  int64_t correct1, correct5; /* among the best one, and the best five */
  int64_t skipped;            /* broken images, each replaced by another one */
  double seconds;
} Evaluation;

/* The first `samples` (0: all) images of the set in batches; the next batch is decoded and sent while the last one is computed.
 * A data set whose classes are not as many as the model's is BAD_VALUE. */
Status evaluate_run(Leader *leader, Dataset *set, int64_t samples, int64_t batch, bool quiet, Evaluation *evaluation);

#endif
