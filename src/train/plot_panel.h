/* Draws one panel of a picture. Private to plot.c. */
#ifndef TRAIN_PLOT_PANEL_H
#define TRAIN_PLOT_PANEL_H
#include "train/plot.h"
#include "train/plot_canvas.h"

static const PlotColour PLOT_PANEL_INK = {38, 43, 51};

void plot_panel_draw(PlotCanvas *canvas, const PlotPanel *panel, PlotBox box);
/* Copies text to `fitted`, cut with "..." where it is wider than `width` pixels; returns fitted. */
const char *plot_panel_fit_text(char *fitted, size_t size, const char *text, double scale, double width);

#endif
