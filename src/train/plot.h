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

/* ---- The canvas that charts are drawn on */

/* An image to draw charts on: rectangles, anti-aliased strokes and text. Coordinates are pixels, y downwards; the centre of the first
 * pixel is (0.5, 0.5). Everything outside the image or the clip is cut off. */

typedef struct PlotColour {
  uint8_t red, green, blue;
} PlotColour;

typedef struct PlotBox {
  int left, top, right, bottom; /* right and bottom are outside */
} PlotBox;

/* Strokes gather in a mask, which keeps the greatest coverage of each pixel, until it is painted: so a line is not darker where its parts
 * overlap. */
typedef struct PlotCanvas {
  int width, height;
  uint8_t *rgb;  /* [height, width, 3] */
  uint8_t *mask; /* [height, width] */
  PlotBox clip;
  PlotBox dirty; /* what the mask holds */
} PlotCanvas;

Status plot_canvas_init(PlotCanvas *canvas, int width, int height); /* white */
void plot_canvas_release(PlotCanvas *canvas);
Status plot_canvas_save(const PlotCanvas *canvas, const char *path); /* as PNG; atomic */

void plot_canvas_rectangle(PlotCanvas *canvas, PlotBox box, PlotColour colour);

/* One pixel of the font's grid at scale 1: capitals are 9 pixels high. */
typedef struct PlotText {
  double scale, pen;
  PlotColour colour;
  bool upright; /* read from bottom to top */
} PlotText;

double plot_canvas_text_width(const char *text, double scale);
/* Starts at (x, y), y being the baseline (x when upright). */
void plot_canvas_text(PlotCanvas *canvas, double x, double y, const char *text, PlotText style);

#endif
