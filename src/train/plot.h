/* Line and bar charts as PNG, with axes, ticks, grid, legend and text: enough for curves.png and the reports. */
#ifndef TRAIN_PLOT_H
#define TRAIN_PLOT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum PlotStyle {
  PLOT_LINE,
  PLOT_DASHED,
  PLOT_BAR,    /* from 0; the bars of several series stand side by side at each x */
  PLOT_ON_BAR, /* the rest of the bar of the series before, up to y: paler, in its colour */
  PLOT_MARK    /* a stroke across the last bar */
} PlotStyle;

typedef struct PlotSeries {
  const char *name;    /* NULL: not in the legend */
  const double *x, *y; /* points whose y is NAN are left out */
  size_t count;
  bool points; /* mark the points as well as the line */
  PlotStyle style;
  bool like_last; /* the colour of the series before */
} PlotSeries;

typedef struct PlotPanel {
  const char *title, *x_label, *y_label;
  const PlotSeries *series;
  size_t count;
  bool log_x, log_y;
  bool from_zero; /* the y axis begins at 0, as it does with bars; not with log_y */
} PlotPanel;

/* Panels side by side (at most 3 to a row) in one image of panel_width x panel_height each. Atomic write. */
Status plot_save(const char *path, const char *title, const PlotPanel *panels, size_t count, int panel_width, int panel_height);

/* counts [classes of the label, classes of the answer], classes above 0: a cell for each pair, the darker the larger its share of the
 * label's samples, rows being labels; up to 40 classes with names [classes] and counts, of more the cells alone. Atomic write. */
Status plot_matrix(const char *path, const uint32_t *counts, int64_t classes, char *const *names);

#endif
