/* Limits of time are for a machine as it usually is: sanitizers, slow boards and emulated processors have TIME_SCALE times as long. */
#ifndef UNIT_TIME_SCALE_H
#define UNIT_TIME_SCALE_H
#include <stdlib.h>

static inline double time_scale(void) {
  const char *scale = getenv("TIME_SCALE");
  return scale ? atof(scale) : 1;
}

#endif
