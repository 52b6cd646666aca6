/* How long another process may be silent. Whoever waits looks at least every PATIENCE_SLICE seconds: a longer gap between two looks is time
 * in which the one who waits did not run itself (Ctrl-Z, a busy machine), and counts as nobody's silence. */
#ifndef INFER_PATIENCE_H
#define INFER_PATIENCE_H
#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_SLICE 0.25

typedef struct Patience {
  double most;          /* seconds */
  double heard, looked; /* when something moved last, and when that was last looked at; clock_now */
  uint64_t moved;       /* bytes by then */
} Patience;

void patience_start(Patience *patience, double most, uint64_t moved, double now);

/* The longest that the next wait may take. */
double patience_slice(const Patience *patience);

/* After each wait: whether nothing has moved for too long. moved: bytes so far, both ways. */
bool patience_ends(Patience *patience, uint64_t moved, double now);

#endif
