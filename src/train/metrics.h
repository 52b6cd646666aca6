/* What a run leaves to look at: metrics.csv (one row per interval and per evaluation), a TensorBoard event file, curves.png. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Metrics Metrics;

/* columns: names, fixed for the run (e.g. "loss", "task_loss", ...). On resume (resume_step >= 0) metrics.csv is kept up to that step and
 * appended to. */
Status metrics_open(Metrics **metrics, const char *directory, const char *const *columns, size_t count, int64_t resume_step);
/* One row: values[i] NAN means empty. Flushed at once to CSV and event file; where the disk is full a warning is given once, the row is
 * kept and written when there is room. */
Status metrics_row(Metrics *metrics, int64_t step, double seconds, const double *values);
/* Draws DIRECTORY/curves.png from all rows so far: loss panel(s) and accuracy panel with axes, ticks, legend, title. Atomic. A
 * full disk is a warning, and no failure: the next call draws all of it. */
Status metrics_draw(Metrics *metrics, const char *title);
void metrics_close(Metrics *metrics);

#endif
