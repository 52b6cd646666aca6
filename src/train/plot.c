/* Arranges panels in a picture and writes it as PNG. What a panel looks like is plot_panel.c. */
#include "train/plot.h"
#include "base/files.h"
#include "train/plot_panel.h"
#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>

enum { ACROSS = 3, TITLE = 44, PAD = 12, LEAST_SIDE = 200, MOST_SIDE = 4096, MOST_PANELS = 48 };

static void on_png_error(png_structp png, png_const_charp message) {
  status_set(STATUS_IO, "cannot write %s: %s", (const char *)png_get_error_ptr(png), errno ? strerror(errno) : message);
  longjmp(png_jmpbuf(png), 1);
}

static void on_png_warning(png_structp png, png_const_charp message) {
  (void)png;
  (void)message; /* nothing in an 8-bit RGB picture is worth one */
}

static Status write_png(const PlotCanvas *canvas, const char *path, FILE *stream) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, (png_voidp)path, on_png_error, on_png_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (!info) {
    png_destroy_write_struct(&png, NULL);
    return status_set(STATUS_NO_MEMORY, "%s: out of memory", path);
  }
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_write_struct(&png, &info);
    return STATUS_IO; /* with on_png_error's message */
  }
  errno = 0; /* what the library calls a write error has its cause there */
  png_init_io(png, stream);
  png_set_IHDR(png, info, (png_uint_32)canvas->width, (png_uint_32)canvas->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int y = 0; y < canvas->height; y++) png_write_row(png, canvas->rgb + 3 * (size_t)y * (size_t)canvas->width);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return STATUS_OK;
}

static Status save(const PlotCanvas *canvas, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  Status status = write_png(canvas, path, writer.stream);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}

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
  Status status = save(&canvas, path);
  plot_canvas_release(&canvas);
  return status;
}
