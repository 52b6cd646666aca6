/* See patience.h. */
#include "infer/cluster/patience.h"
#include <math.h>

static const double gap = 1; /* by which a look may come late before it means anything */

void patience_start(Patience *patience, double most, uint64_t moved, double now) {
  *patience = (Patience){.most = most, .heard = now, .looked = now, .moved = moved};
}

double patience_slice(const Patience *patience) { return fmin(PATIENCE_SLICE, patience->most); }

bool patience_ends(Patience *patience, uint64_t moved, double now) {
  double late = now - patience->looked - patience_slice(patience);
  if (late > gap) patience->heard += late;
  if (moved != patience->moved) patience->heard = now;
  patience->moved = moved;
  patience->looked = now;
  return now - patience->heard > patience->most;
}
