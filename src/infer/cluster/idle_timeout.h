/* How long another process may be silent. Whoever waits looks at least every IDLE_TIMEOUT_SLICE seconds: a longer gap between two looks is
 * time in which the one who waits did not run itself (Ctrl-Z, a busy machine), and counts as nobody's silence. */
#ifndef INFER_IDLE_TIMEOUT_H
#define INFER_IDLE_TIMEOUT_H
#include <stdbool.h>
#include <stdint.h>

#define IDLE_TIMEOUT_SLICE 0.25

typedef struct IdleTimeout {
  double max;           /* seconds */
  double heard, looked; /* when something moved last, and when that was last looked at; clock_now */
  uint64_t moved;       /* bytes by then */
} IdleTimeout;

void idle_timeout_start(IdleTimeout *idle_timeout, double max, uint64_t moved, double now);

/* The longest that the next wait may take. */
double idle_timeout_slice(const IdleTimeout *idle_timeout);

/* After each wait: whether nothing has moved for too long. moved: bytes so far, both ways. */
bool idle_timeout_ends(IdleTimeout *idle_timeout, uint64_t moved, double now);

#endif
