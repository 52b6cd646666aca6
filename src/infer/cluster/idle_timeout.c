/* See idle_timeout.h. */
#include "infer/cluster/idle_timeout.h"
#include <math.h>

static const double gap = 1; /* by which a look may come late before it means anything */

void idle_timeout_start(IdleTimeout *idle_timeout, double max, uint64_t moved, double now) {
  *idle_timeout = (IdleTimeout){.max = max, .heard = now, .looked = now, .moved = moved};
}

double idle_timeout_slice(const IdleTimeout *idle_timeout) { return fmin(IDLE_TIMEOUT_SLICE, idle_timeout->max); }

bool idle_timeout_ends(IdleTimeout *idle_timeout, uint64_t moved, double now) {
  double late = now - idle_timeout->looked - idle_timeout_slice(idle_timeout);
  if (late > gap) idle_timeout->heard += late;
  if (moved != idle_timeout->moved) idle_timeout->heard = now;
  idle_timeout->moved = moved;
  idle_timeout->looked = now;
  return now - idle_timeout->heard > idle_timeout->max;
}
