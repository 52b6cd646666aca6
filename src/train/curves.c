/* Sorts columns into panels by what their names contain. One table says it; quantities of different size get panels of their own, as one
 * would flatten the other. */
#include "train/curves.h"
#include "train/plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_WIDTH = 560, PANEL_HEIGHT = 380, MARKED = 40 /* points of a series up to which each is marked */ };

/* A column goes to the first row whose word its name contains. */
static const struct {
  const char *word, *title, *y_label;
} panels[] = {
    {"commitment", "Commitment loss", "squared distance"},
    {"loss", "Loss", "loss"},
    {"accuracy", "Accuracy", "accuracy"},
    {"codebook_perplexity", "Codebook perplexity", "perplexity"},
    {"perplexity", "Perplexity", "perplexity"},
    {"bits_per_byte", "Bits per byte", "bits"},
    {"matthews", "Matthews correlation", "correlation"},
    {"dead", "Dead codes", "share"},
    {"learning_rate", "Learning rate", "learning rate"},
};
enum { PANELS = sizeof panels / sizeof *panels };
static const int drawing_order[PANELS] = {1, 2, 4, 5, 6, 0, 3, 7, 8};

static int panel_of(const char *name) {
  for (int p = 0; p < PANELS; p++)
    if (strstr(name, panels[p].word)) return p;
  return -1;
}

static size_t count_finite(const double *values, size_t rows) {
  size_t finite = 0;
  for (size_t i = 0; i < rows; i++) finite += isfinite(values[i]) != 0;
  return finite;
}

Status curves_draw(const char *path, const char *title, const char *const *names, size_t count, const double *steps,
                   const double *const *series, size_t rows) {
  PlotSeries *lines = calloc(count + 1, sizeof *lines);
  if (!lines) return status_set(STATUS_NO_MEMORY, "%s: out of memory", path);
  PlotPanel drawn[PANELS] = {{.title = "", .x_label = "step", .y_label = ""}};
  size_t line = 0, used = 0;
  for (int p = 0; p < PANELS; p++) {
    const int kind = drawing_order[p];
    const size_t first = line;
    for (size_t c = 0; c < count; c++) {
      size_t finite = count_finite(series[c], rows);
      if (panel_of(names[c]) == kind && (finite > 0 || rows == 0)) /* what a run never has (a plain one no codebooks) is not drawn */
        lines[line++] = (PlotSeries){.name = names[c], .x = steps, .y = series[c], .count = rows, .points = finite <= MARKED};
    }
    if (line == first) continue;
    drawn[used++] = (PlotPanel){
        .title = panels[kind].title, .x_label = "step", .y_label = panels[kind].y_label, .series = lines + first, .count = line - first};
  }
  Status status = plot_save(path, title, drawn, used ? used : 1, PANEL_WIDTH, PANEL_HEIGHT);
  free(lines);
  return status;
}
