/* Arranges panels in a picture. What a panel looks like is plot_panel.c. */
#include "train/plot.h"
#include "train/plot_panel.h"

enum { ACROSS = 3, TITLE = 44, PAD = 12, LEAST_SIDE = 200, MOST_SIDE = 4096, MOST_PANELS = 48 };

static void draw(PlotCanvas *canvas, const char *title, const PlotPanel *panels, size_t count, int panel_width, int panel_height) {
  const PlotText style = {1.5, 2.1, PLOT_PANEL_INK, false};
  char fitted[256];
  plot_panel_fit_text(fitted, sizeof fitted, title, style.scale, canvas->width - 2 * (PAD + 16));
  plot_canvas_text(canvas, PAD + 16, 32, fitted, style);
  for (size_t i = 0; i < count; i++) {
    const int left = PAD + (int)(i % ACROSS) * panel_width, top = TITLE + (int)(i / ACROSS) * panel_height;
    plot_panel_draw(canvas, &panels[i], (PlotBox){left, top, left + panel_width, top + panel_height});
  }
}

Status plot_save(const char *path, const char *title, const PlotPanel *panels, size_t count, int panel_width, int panel_height) {
  if (count < 1 || count > MOST_PANELS)
    return status_set(STATUS_BAD_VALUE, "%s: 1 to %d panels are accepted, not %zu", path, MOST_PANELS, count);
  if (panel_width < LEAST_SIDE || panel_width > MOST_SIDE || panel_height < LEAST_SIDE || panel_height > MOST_SIDE)
    return status_set(STATUS_BAD_VALUE, "%s: panels of %d to %d pixels a side are accepted, not %d x %d", path, LEAST_SIDE, MOST_SIDE,
                      panel_width, panel_height);
  const int across = count < ACROSS ? (int)count : ACROSS, down = ((int)count + ACROSS - 1) / ACROSS;
  PlotCanvas canvas;
  TRY(plot_canvas_init(&canvas, 2 * PAD + across * panel_width, TITLE + PAD + down * panel_height));
  draw(&canvas, title, panels, count, panel_width, panel_height);
  Status status = plot_canvas_save(&canvas, path);
  plot_canvas_release(&canvas);
  return status;
}
