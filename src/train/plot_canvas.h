/* An image to draw charts on: rectangles, anti-aliased strokes and text. Coordinates are pixels, y downwards; the centre of the first
 * pixel is (0.5, 0.5). Everything outside the image or the clip is cut off. */
#ifndef TRAIN_PLOT_CANVAS_H
#define TRAIN_PLOT_CANVAS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct PlotColour {
  uint8_t red, green, blue;
} PlotColour;

typedef struct PlotBox {
  int left, top, right, bottom; /* right and bottom are outside */
} PlotBox;

/* Strokes gather in a mask, which keeps the greatest coverage of each pixel, until plot_canvas_paint: so a line is not darker where its
 * parts overlap. */
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
void plot_canvas_clip(PlotCanvas *canvas, const PlotBox *box);       /* NULL: the whole image */

void plot_canvas_rectangle(PlotCanvas *canvas, PlotBox box, PlotColour colour);
/* A stroke with round ends, `pen` pixels wide, into the mask. */
void plot_canvas_stroke(PlotCanvas *canvas, double x0, double y0, double x1, double y1, double pen);
void plot_canvas_paint(PlotCanvas *canvas, PlotColour colour);

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
