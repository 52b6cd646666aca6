/* The best classes of a row of logits. */
#ifndef INFER_RANKING_H
#define INFER_RANKING_H
#include "autograd/real.h"
#include <stdint.h>

enum { RANKING_MAX = 100 };

/* The `count` largest of logits [classes], best first (ties to the lowest index), with their softmax probabilities (may be NULL).
 * count <= classes. */
void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability);

/* What a sample was found to be. */
typedef struct ClassTop {
  int count; /* classes below, best first */
  int32_t index[RANKING_MAX];
  double probability[RANKING_MAX];
  double seconds; /* of the request that it was part of */
} ClassTop;

#endif
