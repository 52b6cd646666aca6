/* Coverage of a stroke is taken from the distance of a pixel's centre to the segment, which anti-aliases lines, dots and letters alike.
 * Costs the bounding box of each segment: some milliseconds for a chart. Leaves out what is drawn. */
#include "train/plot_canvas.h"
#include "base/files.h"
#include "base/status.h"
#include <errno.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Font ---- */

/* The letters of charts as pen strokes, so that they scale to any size and stay smooth. */
/* One table, indexed by character: printable ASCII. Round shapes are octagons: at the sizes of a chart the pen rounds them. */

/* Vertical places of the grid that glyphs are drawn on; y grows downwards. */
enum { PLOT_FONT_CAP = 9 /* height of capitals and digits: y 0 is their top, y 9 the baseline, y 12 the lowest descender */ };

enum { FIRST = 32, LAST = 126 };

static const char *const glyphs[LAST - FIRST + 1] = {
    [' ' - FIRST] = "3",
    ['!' - FIRST] = "00006 09",
    ['"' - FIRST] = "20002 2022",
    ['#' - FIRST] = "52019 4039 0353 0656",
    ['$' - FIRST] = "4423111020314354647381807 2029",
    ['%' - FIRST] = "7102031322313020110 6019 566677786959484756",
    ['&' - FIRST] = "6691311203041420608193965",
    ['\'' - FIRST] = "00002",
    ['(' - FIRST] = "22003072a",
    [')' - FIRST] = "20023270a",
    ['*' - FIRST] = "42125 0244 4204",
    ['+' - FIRST] = "42428 0646",
    [',' - FIRST] = "118190b",
    ['-' - FIRST] = "30535",
    ['.' - FIRST] = "009",
    ['/' - FIRST] = "44009",
    ['0' - FIRST] = "5203052573929070220",
    ['1' - FIRST] = "5123039",
    ['2' - FIRST] = "502203052530959",
    ['3' - FIRST] = "501104051534424 445558491908",
    ['4' - FIRST] = "549400656",
    ['5' - FIRST] = "5500004345657391908",
    ['6' - FIRST] = "54020020729395756342406",
    ['7' - FIRST] = "5005029",
    ['8' - FIRST] = "5104051534414030110 1405081949585544",
    ['9' - FIRST] = "51939575230200203253553",
    [':' - FIRST] = "004 09",
    [';' - FIRST] = "114 18190b",
    ['<' - FIRST] = "4420548",
    ['=' - FIRST] = "40444 0747",
    ['>' - FIRST] = "4024508",
    ['?' - FIRST] = "401103041432526 29",
    ['@' - FIRST] = "75929070220507276675653 5443332426374756",
    ['A' - FIRST] = "6093069 1656",
    ['B' - FIRST] = "509004051534404 4455584909",
    ['C' - FIRST] = "66240200207294967",
    ['D' - FIRST] = "600406267490900",
    ['E' - FIRST] = "550000959 0444",
    ['F' - FIRST] = "5500009 0444",
    ['G' - FIRST] = "662402002072949676545",
    ['H' - FIRST] = "60009 6069 0464",
    ['I' - FIRST] = "00009",
    ['J' - FIRST] = "44048391908",
    ['K' - FIRST] = "50009 5005 2359",
    ['L' - FIRST] = "5000959",
    ['M' - FIRST] = "60900356069",
    ['N' - FIRST] = "609006960",
    ['O' - FIRST] = "6204062674929070220",
    ['P' - FIRST] = "509004051544505",
    ['Q' - FIRST] = "6204062674929070220 4769",
    ['R' - FIRST] = "509004051544505 3559",
    ['S' - FIRST] = "5514010010314445558491908",
    ['T' - FIRST] = "60060 3039",
    ['U' - FIRST] = "6000729496760",
    ['V' - FIRST] = "6003960",
    ['W' - FIRST] = "80029416980",
    ['X' - FIRST] = "60069 6009",
    ['Y' - FIRST] = "6003460 3439",
    ['Z' - FIRST] = "600600969",
    ['[' - FIRST] = "220000a2a",
    ['\\' - FIRST] = "40049",
    [']' - FIRST] = "200202a0a",
    ['^' - FIRST] = "4032043",
    ['_' - FIRST] = "50a5a",
    ['`' - FIRST] = "10012",
    ['a' - FIRST] = "55359 5533230507293957",
    ['b' - FIRST] = "50009 0523335557392907",
    ['c' - FIRST] = "44433230507293948",
    ['d' - FIRST] = "55059 5533230507293957",
    ['e' - FIRST] = "506565533230507294958",
    ['f' - FIRST] = "330201119 0333",
    ['g' - FIRST] = "5535b4c1c0b 5533230507293957",
    ['h' - FIRST] = "50009 0523335559",
    ['i' - FIRST] = "00309 00",
    ['j' - FIRST] = "2232b1c0c 20",
    ['k' - FIRST] = "40009 4307 2549",
    ['l' - FIRST] = "00009",
    ['m' - FIRST] = "80309 0523334449 4563738489",
    ['n' - FIRST] = "50309 0523335559",
    ['o' - FIRST] = "5233355573929070523",
    ['p' - FIRST] = "5030c 0523335557392907",
    ['q' - FIRST] = "5535c 5533230507293957",
    ['r' - FIRST] = "30309 052333",
    ['s' - FIRST] = "4443313040516364748391908",
    ['t' - FIRST] = "311182939 0333",
    ['u' - FIRST] = "50307293957 5359",
    ['v' - FIRST] = "4032943",
    ['w' - FIRST] = "80329436983",
    ['x' - FIRST] = "40349 4309",
    ['y' - FIRST] = "40329 431c0c",
    ['z' - FIRST] = "403430949",
    ['{' - FIRST] = "3302011140516192a3a",
    ['|' - FIRST] = "0000a",
    ['}' - FIRST] = "3001021243526291a0a",
    ['~' - FIRST] = "5061525364655",
};

/* The first character is the glyph's width (a digit); then strokes, separated by blanks, each a list of points: x (a digit) and y (a
 * hexadecimal digit). A stroke of one point is a dot. Characters outside printable ASCII look like '?'. */
static const char *plot_font_glyph(char character) {
  const int code = (unsigned char)character;
  return glyphs[(code < FIRST || code > LAST ? '?' : code) - FIRST];
}

/* ---- Canvas ---- */

static const double LETTER_GAP = 2.6; /* between glyphs, in the font's grid */

Status plot_canvas_init(PlotCanvas *canvas, int width, int height) {
  const size_t pixels = (size_t)width * (size_t)height;
  *canvas = (PlotCanvas){.width = width, .height = height, .rgb = malloc(3 * pixels), .mask = calloc(pixels, 1)};
  if (!canvas->rgb || !canvas->mask) {
    plot_canvas_release(canvas);
    return status_set(STATUS_NO_MEMORY, "out of memory for an image of %d x %d pixels", width, height);
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
  (void)message; /* nothing in an 8-bit RGB image is worth one */
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
