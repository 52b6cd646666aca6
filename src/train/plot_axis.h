/* An axis: its range, ticks at round numbers, and their labels. */
#ifndef TRAIN_PLOT_AXIS_H
#define TRAIN_PLOT_AXIS_H
#include <stdbool.h>

enum { PLOT_AXIS_TICKS = 24, PLOT_AXIS_LABEL = 32 };

typedef struct PlotAxis {
  double low, high; /* of the values; on a log axis of their decimal logarithms */
  bool log;
  int count;
  double tick[PLOT_AXIS_TICKS];
  char label[PLOT_AXIS_TICKS][PLOT_AXIS_LABEL];
} PlotAxis;

/* A range a little wider than [least, most] with about `wanted` ticks, at 1, 2 or 5 times a power of ten; any finite numbers, positive
 * ones for log. least_step: ticks are no nearer to each other, but for log (1 where there are only whole numbers; 0: any). */
void plot_axis_fit(PlotAxis *axis, double least, double most, bool log, int wanted, double least_step);
/* 0 at the low end, 1 at the high end. */
double plot_axis_place(const PlotAxis *axis, double value);

#endif
