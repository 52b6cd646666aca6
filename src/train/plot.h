/* Line charts as PNG, with axes, ticks, grid, legend and text: enough for curves.png and the reports. */
#ifndef TRAIN_PLOT_H
#define TRAIN_PLOT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct PlotSeries {
  const char *name;
  const double *x, *y; /* points whose y is NAN are left out */
  size_t count;
  bool points; /* mark the points as well as the line */
} PlotSeries;

typedef struct PlotPanel {
  const char *title, *x_label, *y_label;
  const PlotSeries *series;
  size_t count;
  bool log_x, log_y;
} PlotPanel;

/* Panels side by side (at most 3 to a row) in one picture of panel_width x panel_height each. Atomic write. */
Status plot_save(const char *path, const char *title, const PlotPanel *panels, size_t count, int panel_width, int panel_height);

#endif
