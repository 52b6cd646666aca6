/* Squared distance of two short vectors, summed in double: for distortions, where |x|^2 - 2 x.e + |e|^2 would cancel.
 * O(n) beside the O(n K) of the products that find the nearest codeword, so it needs no kernel of its own. */
#ifndef VQ_DISTANCE_H
#define VQ_DISTANCE_H
#include "autograd/real.h"
#include <stdint.h>

static inline double distance_squared(int64_t n, const real *a /* [n] */, const real *b /* [n] */) {
  double lane[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; j++) {
      double difference = (double)a[i + j] - (double)b[i + j];
      lane[j] += difference * difference;
    }
  for (; i < n; i++) {
    double difference = (double)a[i] - (double)b[i];
    lane[0] += difference * difference;
  }
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

#endif
