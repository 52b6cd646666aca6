/* What a run leaves to look at: metrics.csv (one row per interval and per evaluation), a TensorBoard event file, curves.png; and which
 * class an evaluation took for which, as confusion.csv and confusion.png. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Metrics Metrics;

/* columns: names, fixed for the run (e.g. "loss", "task_loss", ...). On resume (resume_step >= 0) metrics.csv is kept up to that step and
 * appended to; again: the evaluation of resume_step, a row without the first column, is made once more, and not kept. */
Status metrics_open(Metrics **metrics, const char *directory, const char *const *columns, size_t count, int64_t resume_step, bool again);
/* One row: values[i] NAN means empty. Flushed at once to CSV and event file; where the disk is full a warning is given once, the row is
 * kept and written when there is room. */
Status metrics_row(Metrics *metrics, int64_t step, double seconds, const double *values);
/* Draws DIRECTORY/curves.png from all rows so far: loss panel(s) and accuracy panel with axes, ticks, legend, title. Atomic. A
 * full disk is a warning, and no failure: the next call draws all of it. */
Status metrics_draw(Metrics *metrics, const char *title);
void metrics_close(Metrics *metrics);

enum { METRICS_CLASSES = 1000 }; /* of more classes there is no matrix: an image could not show them */

/* Zeroed counts [C of the label, C of the answer], owned by the caller; NULL for more than METRICS_CLASSES or fewer than 2. */
Status metrics_confusion_new(uint32_t **counts, int64_t classes);

/* DIRECTORY/confusion.csv: a header "label,NAME,NAME..." of answers, then a row for each label; names in quotes where they hold what CSV
 * obeys. DIRECTORY/confusion.png: a cell for each pair, the darker the larger its share of the label's samples, rows being labels; up to 40
 * classes with names and counts, of more the cells alone. Atomic. names [C]. Nothing is written where counts are NULL. */
Status metrics_confusion_save(const uint32_t *counts, int64_t classes, char *const *names, const char *directory);

#endif
