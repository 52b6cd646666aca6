/* curves.png: which columns of the metrics are drawn in which panel. Private to metrics.c. */
#ifndef TRAIN_CURVES_H
#define TRAIN_CURVES_H
#include "base/status.h"
#include <stddef.h>

/* names [count]; series [count][rows] over steps [rows], NAN where a row has no value. Atomic write of `path`. */
Status curves_draw(const char *path, const char *title, const char *const *names, size_t count, const double *steps,
                   const double *const *series, size_t rows);

#endif
