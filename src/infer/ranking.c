/* Top k by insertion: k is small and the row is read once. */
#include "infer/ranking.h"
#include <math.h>

void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability) {
  int held = 0;
  for (int64_t c = 0; c < classes; c++) {
    int place = held < count ? held++ : count;
    while (place > 0 && logits[index[place - 1]] < logits[c]) {
      if (place < count) index[place] = index[place - 1];
      place--;
    }
    if (place < count) index[place] = (int32_t)c;
  }
  if (!probability || count < 1) return;
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[index[0]]);
  for (int i = 0; i < count; i++) probability[i] = exp((double)logits[index[i]] - (double)logits[index[0]]) / sum;
}
