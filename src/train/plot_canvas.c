/* Coverage of a stroke is taken from the distance of a pixel's centre to the segment, which anti-aliases lines, dots and letters alike.
 * Costs the bounding box of each segment: some milliseconds for a chart. Leaves out what is drawn. */
#include "train/plot_canvas.h"
#include "base/files.h"
#include "train/plot_font.h"
#include <errno.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static const double LETTER_GAP = 2.6; /* between glyphs, in the font's grid */

Status plot_canvas_init(PlotCanvas *canvas, int width, int height) {
  const size_t pixels = (size_t)width * (size_t)height;
  *canvas = (PlotCanvas){.width = width, .height = height, .rgb = malloc(3 * pixels), .mask = calloc(pixels, 1)};
  if (!canvas->rgb || !canvas->mask) {
    plot_canvas_release(canvas);
    return status_set(STATUS_NO_MEMORY, "out of memory for a picture of %d x %d pixels", width, height);
  }
  memset(canvas->rgb, 255, 3 * pixels);
  plot_canvas_clip(canvas, NULL);
  return STATUS_OK;
}

void plot_canvas_release(PlotCanvas *canvas) {
  free(canvas->rgb);
  free(canvas->mask);
  memset(canvas, 0, sizeof *canvas);
}

static int larger(int a, int b) { return a > b ? a : b; }
static int smaller(int a, int b) { return a < b ? a : b; }

static PlotBox intersection(PlotBox a, PlotBox b) {
  return (PlotBox){larger(a.left, b.left), larger(a.top, b.top), smaller(a.right, b.right), smaller(a.bottom, b.bottom)};
}

void plot_canvas_clip(PlotCanvas *canvas, const PlotBox *box) {
  const PlotBox whole = {0, 0, canvas->width, canvas->height};
  canvas->clip = box ? intersection(*box, whole) : whole;
}

static uint8_t *pixel(const PlotCanvas *canvas, int x, int y) { return canvas->rgb + 3 * ((size_t)y * (size_t)canvas->width + (size_t)x); }

static uint8_t *coverage(const PlotCanvas *canvas, int x, int y) { return canvas->mask + (size_t)y * (size_t)canvas->width + (size_t)x; }

void plot_canvas_rectangle(PlotCanvas *canvas, PlotBox box, PlotColour colour) {
  box = intersection(box, canvas->clip);
  for (int y = box.top; y < box.bottom; y++)
    for (int x = box.left; x < box.right; x++) memcpy(pixel(canvas, x, y), (uint8_t[3]){colour.red, colour.green, colour.blue}, 3);
}

static void add_dirty(PlotCanvas *canvas, PlotBox box) {
  PlotBox *dirty = &canvas->dirty;
  if (dirty->left >= dirty->right) {
    *dirty = box;
    return;
  }
  *dirty = (PlotBox){smaller(dirty->left, box.left), smaller(dirty->top, box.top), larger(dirty->right, box.right),
                     larger(dirty->bottom, box.bottom)};
}

/* A pixel number that is safe to convert, for any finite place. */
static int near_canvas(double place) { return (int)fmin(fmax(place, -1e6), 1e6); }

void plot_canvas_stroke(PlotCanvas *canvas, double x0, double y0, double x1, double y1, double pen) {
  const double radius = pen / 2, reach = radius + 1, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
  PlotBox box = {near_canvas(floor(fmin(x0, x1) - reach)), near_canvas(floor(fmin(y0, y1) - reach)),
                 near_canvas(ceil(fmax(x0, x1) + reach)), near_canvas(ceil(fmax(y0, y1) + reach))};
  box = intersection(box, canvas->clip);
  if (box.left >= box.right || box.top >= box.bottom) return;
  for (int y = box.top; y < box.bottom; y++)
    for (int x = box.left; x < box.right; x++) {
      const double px = x + 0.5 - x0, py = y + 0.5 - y0;
      const double along = length2 > 0 ? fmin(fmax((px * dx + py * dy) / length2, 0), 1) : 0;
      const double covered = radius + 0.5 - hypot(px - along * dx, py - along * dy);
      if (covered <= 0) continue;
      const uint8_t value = (uint8_t)(255 * fmin(covered, 1) + 0.5);
      uint8_t *kept = coverage(canvas, x, y);
      if (value > *kept) *kept = value;
    }
  add_dirty(canvas, box);
}

static uint8_t blend(uint8_t below, uint8_t above, unsigned covered) {
  return (uint8_t)((below * (255 - covered) + above * covered + 127) / 255);
}

void plot_canvas_paint(PlotCanvas *canvas, PlotColour colour) {
  const PlotBox box = canvas->dirty;
  for (int y = box.top; y < box.bottom; y++)
    for (int x = box.left; x < box.right; x++) {
      uint8_t *covered = coverage(canvas, x, y), *rgb = pixel(canvas, x, y);
      if (*covered == 0) continue;
      rgb[0] = blend(rgb[0], colour.red, *covered);
      rgb[1] = blend(rgb[1], colour.green, *covered);
      rgb[2] = blend(rgb[2], colour.blue, *covered);
      *covered = 0;
    }
  canvas->dirty = (PlotBox){0, 0, 0, 0};
}

double plot_canvas_text_width(const char *text, double scale) {
  double width = 0;
  for (; *text; text++) width += plot_font_glyph(*text)[0] - '0' + (text[1] ? LETTER_GAP : 0);
  return width * scale;
}

static int hex_digit(char digit) { return digit >= 'a' ? digit - 'a' + 10 : digit - '0'; }

/* One glyph whose grid starts at (x, y): the baseline's point, as in plot_canvas_text. */
static void draw_glyph(PlotCanvas *canvas, double x, double y, const char *strokes, PlotText style) {
  double last_x = 0, last_y = 0;
  bool drawing = false;
  for (const char *at = strokes; *at; at++) {
    if (*at == ' ') {
      drawing = false;
      continue;
    }
    const double right = (*at - '0') * style.scale, down = (hex_digit(at[1]) - PLOT_FONT_CAP) * style.scale;
    const double to_x = style.upright ? x + down : x + right, to_y = style.upright ? y - right : y + down;
    plot_canvas_stroke(canvas, drawing ? last_x : to_x, drawing ? last_y : to_y, to_x, to_y, style.pen);
    last_x = to_x;
    last_y = to_y;
    drawing = true;
    at++;
  }
}

void plot_canvas_text(PlotCanvas *canvas, double x, double y, const char *text, PlotText style) {
  x = floor(x) + 0.5; /* stems on the centres of pixels: crisp */
  y = floor(y) + 0.5;
  double along = 0;
  for (; *text; text++) {
    const char *glyph = plot_font_glyph(*text);
    draw_glyph(canvas, style.upright ? x : x + along, style.upright ? y - along : y, glyph + 1, style);
    along += (glyph[0] - '0' + LETTER_GAP) * style.scale;
  }
  plot_canvas_paint(canvas, style.colour);
}

/* ---------------------------------------------------------------- file */

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

Status plot_canvas_save(const PlotCanvas *canvas, const char *path) {
  FileWriter writer;
  TRY(files_create(&writer, path));
  Status status = write_png(canvas, path, writer.stream);
  if (status == STATUS_OK) return files_commit(&writer);
  files_abort(&writer);
  return status;
}
