/* Charts from the bottom up: letters, the canvas, axes, panels, panels arranged in an image. */
#include "train/plot.h"
#include "base/status.h"
#include "data/image.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Font ---- */

/* The letters of charts as pen strokes, so that they scale to any size and stay smooth. One table, indexed by character: printable ASCII.
 * Round shapes are octagons: at the sizes of a chart the pen rounds them. */

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
static const char *glyph_of(char character) {
  const int code = (unsigned char)character;
  return glyphs[(code < FIRST || code > LAST ? '?' : code) - FIRST];
}

/* ---- Canvas ---- */

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

/* One pixel of the font's grid at scale 1: capitals are 9 pixels high. */
typedef struct PlotText {
  double scale, pen;
  PlotColour colour;
  bool upright; /* read from bottom to top */
} PlotText;

static const double LETTER_GAP = 2.6; /* between glyphs, in the font's grid */

static void canvas_release(PlotCanvas *canvas) {
  free(canvas->rgb);
  free(canvas->mask);
  memset(canvas, 0, sizeof *canvas);
}

/* White. */
static Status canvas_init(PlotCanvas *canvas, int width, int height) {
  const size_t pixels = (size_t)width * (size_t)height;
  *canvas = (PlotCanvas){.width = width, .height = height, .rgb = malloc(3 * pixels), .mask = calloc(pixels, 1)};
  if (!canvas->rgb || !canvas->mask) {
    canvas_release(canvas);
    return status_set(STATUS_NO_MEMORY, "out of memory for an image of %d x %d pixels", width, height);
  }
  memset(canvas->rgb, 255, 3 * pixels);
  canvas->clip = (PlotBox){0, 0, width, height};
  return STATUS_OK;
}

static int larger(int a, int b) { return a > b ? a : b; }
static int smaller(int a, int b) { return a < b ? a : b; }

static PlotBox intersection(PlotBox a, PlotBox b) {
  return (PlotBox){larger(a.left, b.left), larger(a.top, b.top), smaller(a.right, b.right), smaller(a.bottom, b.bottom)};
}

/* NULL: the whole image. */
static void clip(PlotCanvas *canvas, const PlotBox *box) {
  const PlotBox whole = {0, 0, canvas->width, canvas->height};
  canvas->clip = box ? intersection(*box, whole) : whole;
}

static uint8_t *pixel(const PlotCanvas *canvas, int x, int y) { return canvas->rgb + 3 * ((size_t)y * (size_t)canvas->width + (size_t)x); }

static uint8_t *coverage(const PlotCanvas *canvas, int x, int y) { return canvas->mask + (size_t)y * (size_t)canvas->width + (size_t)x; }

static void canvas_rectangle(PlotCanvas *canvas, PlotBox box, PlotColour colour) {
  box = intersection(box, canvas->clip);
  for (int y = box.top; y < box.bottom; y++)
    for (int x = box.left; x < box.right; x++) memcpy(pixel(canvas, x, y), (uint8_t[3]){colour.red, colour.green, colour.blue}, 3);
}

/* A pixel number that is safe to convert, for any finite place. */
static int near_canvas(double place) { return (int)fmin(fmax(place, -1e6), 1e6); }

/* A stroke with round ends, `pen` pixels wide, into the mask. Coverage is taken from the distance of a pixel's centre to the segment, which
 * anti-aliases lines, dots and letters alike. Costs the bounding box of each segment: some milliseconds for a chart. */
static void stroke(PlotCanvas *canvas, double x0, double y0, double x1, double y1, double pen) {
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
  PlotBox *dirty = &canvas->dirty;
  *dirty = dirty->left >= dirty->right ? box
                                       : (PlotBox){smaller(dirty->left, box.left), smaller(dirty->top, box.top),
                                                   larger(dirty->right, box.right), larger(dirty->bottom, box.bottom)};
}

static uint8_t blend(uint8_t below, uint8_t above, unsigned covered) {
  return (uint8_t)((below * (255 - covered) + above * covered + 127) / 255);
}

/* What the mask holds, in that colour. */
static void paint(PlotCanvas *canvas, PlotColour colour) {
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

static double canvas_text_width(const char *text, double scale) {
  double width = 0;
  for (; *text; text++) width += glyph_of(*text)[0] - '0' + (text[1] ? LETTER_GAP : 0);
  return width * scale;
}

/* One glyph whose grid starts at (x, y): the baseline's point, as in canvas_text. */
static void draw_glyph(PlotCanvas *canvas, double x, double y, const char *strokes, PlotText style) {
  double last_x = 0, last_y = 0;
  bool drawing = false;
  for (const char *at = strokes; *at; at++) {
    if (*at == ' ') {
      drawing = false;
      continue;
    }
    const int hexadecimal = at[1] >= 'a' ? at[1] - 'a' + 10 : at[1] - '0';
    const double right = (*at - '0') * style.scale, down = (hexadecimal - PLOT_FONT_CAP) * style.scale;
    const double to_x = style.upright ? x + down : x + right, to_y = style.upright ? y - right : y + down;
    stroke(canvas, drawing ? last_x : to_x, drawing ? last_y : to_y, to_x, to_y, style.pen);
    last_x = to_x;
    last_y = to_y;
    drawing = true;
    at++;
  }
}

/* Starts at (x, y), y being the baseline (x when upright). */
static void canvas_text(PlotCanvas *canvas, double x, double y, const char *text, PlotText style) {
  x = floor(x) + 0.5; /* stems on the centres of pixels: crisp */
  y = floor(y) + 0.5;
  double along = 0;
  for (; *text; text++) {
    const char *glyph = glyph_of(*text);
    draw_glyph(canvas, style.upright ? x : x + along, style.upright ? y - along : y, glyph + 1, style);
    along += (glyph[0] - '0' + LETTER_GAP) * style.scale;
  }
  paint(canvas, style.colour);
}

/* As PNG; atomic. */
static Status canvas_save(const PlotCanvas *canvas, const char *path) {
  return image_save_png(&(Image){canvas->width, canvas->height, canvas->rgb}, path);
}

/* ---- Axes ---- */

/* An axis: its range, ticks at round numbers, and their labels. Invariant: low < high, and their difference is far above the rounding of
 * either, whatever the data. */

enum { PLOT_AXIS_TICKS = 24, PLOT_AXIS_LABEL = 32 };

typedef struct PlotAxis {
  double low, high; /* of the values; on a log axis of their decimal logarithms */
  bool log;
  int count;
  double tick[PLOT_AXIS_TICKS];
  char label[PLOT_AXIS_TICKS][PLOT_AXIS_LABEL];
} PlotAxis;

static const double MARGIN = 0.04; /* of the range, beyond the data on either side */

static double magnitude(double number) { return pow(10, floor(log10(number) + 1e-9)); }

/* The smallest of 1, 2, 5 times a power of ten that is not below `min`. */
static double round_up(double min) {
  const double power = magnitude(min);
  for (int i = 0; i < 3; i++)
    if ((double[]){1, 2, 5}[i] * power >= min * (1 - 1e-9)) return (double[]){1, 2, 5}[i] * power;
  return 10 * power;
}

/* `max` is the largest size on the axis and `step` the distance of ticks: they decide on the unit and the decimals for all. */
static void print_label(char *label, double value, double max, double step) {
  if (value == 0) {
    strcpy(label, "0");
    return;
  }
  if (max >= 1e10 || max < 1e-3) {
    const int digits = (int)fmin(fmax(floor(log10(max) + 1e-9) - floor(log10(step) + 1e-9), 0), 6);
    snprintf(label, PLOT_AXIS_LABEL, "%.*e", digits, value);
    char *digit = strchr(label, 'e'); /* "2.0e-05" -> "2.0e-5" */
    if (!digit) return;
    digit += digit[1] == '+' ? 1 : 2;
    const char *kept = digit + (*digit == '+');
    while (*kept == '0' && kept[1]) kept++;
    memmove(digit, kept, strlen(kept) + 1);
    return;
  }
  const bool mega = step >= 1e6 || (max >= 2e6 && step >= 1e4), kilo = step >= 1e4 || (max >= 2e4 && step >= 10);
  const double unit = mega ? 1e6 : kilo ? 1e3 : 1;
  const int decimals = (int)fmin(fmax(-floor(log10(step / unit) + 1e-9), 0), 9);
  snprintf(label, PLOT_AXIS_LABEL, "%.*f%s", decimals, value / unit, mega ? "M" : kilo ? "k" : "");
}

static void add_tick(PlotAxis *axis, double value, double max, double step) {
  if (axis->count == PLOT_AXIS_TICKS) return;
  axis->tick[axis->count] = value;
  print_label(axis->label[axis->count++], value, max, step);
}

static void linear_ticks(PlotAxis *axis, double low, double high, int wanted, double min_step) {
  const double step = fmax(round_up((high - low) / wanted), min_step), first = ceil(low / step), max = fmax(fabs(low), fabs(high));
  axis->count = 0;
  for (int i = 0; i < PLOT_AXIS_TICKS && (first + i) * step <= high; i++) add_tick(axis, (first + i) * step, max, step);
}

/* Decades, every second or third ... when they are many; with 2 and 5 between them when they are few. */
static void log_ticks(PlotAxis *axis, int wanted) {
  const double decades = axis->high - axis->low, stride = ceil(decades / wanted);
  axis->count = 0;
  for (double power = floor(axis->low / stride) * stride; power <= axis->high; power += stride)
    for (int i = 0; i < (decades * 3 <= wanted + 1 ? 3 : 1); i++) {
      const double value = (double[]){1, 2, 5}[i] * pow(10, power);
      if (log10(value) >= axis->low && log10(value) <= axis->high) add_tick(axis, value, value, magnitude(value));
    }
  if (axis->count < 2) linear_ticks(axis, pow(10, axis->low), pow(10, axis->high), wanted, 0);
}

static double clamp(double value) { return fmin(fmax(value, -1e300), 1e300); }

/* A range a little wider than [min, max] with about `wanted` ticks, at 1, 2 or 5 times a power of ten; any finite numbers, positive
 * ones for log. min_step: ticks are no nearer to each other, but for log (1 where there are only whole numbers; 0: any). */
static void plot_axis_fit(PlotAxis *axis, double min, double max, bool log, int wanted, double min_step) {
  memset(axis, 0, sizeof *axis);
  axis->log = log;
  min = log ? log10(min) : clamp(min);
  max = log ? log10(max) : clamp(max);
  const double size = fmax(fabs(min), fabs(max));
  double margin = MARGIN * (max - min);
  if (max - min <= 1e-9 * size || max == min) margin = log ? 0.5 : size > 0 ? 0.1 * size : 1; /* one value: amid the axis */
  axis->low = min - margin;
  axis->high = max + margin;
  if (log)
    log_ticks(axis, wanted);
  else
    linear_ticks(axis, axis->low, axis->high, wanted, min_step);
}

/* 0 at the low end, 1 at the high end. */
static double plot_axis_place(const PlotAxis *axis, double value) {
  return ((axis->log ? log10(value) : clamp(value)) - axis->low) / (axis->high - axis->low);
}

/* ---- Panels ---- */

/* A panel from top to bottom: title, legend (as many lines as it needs, so that it never covers data), the frame with grid and curves,
 * tick labels, the x label; the y label stands upright at the left. Leaves out the choice of ticks and the pixels. */

static const PlotColour PANEL_INK = {38, 43, 51};

static const PlotColour grid = {228, 231, 236}, frame = {168, 174, 184};

/* The first eight are told apart by people with any colour vision, in this order on white (Okabe and Ito's, darkened where pale); ten
 * because a latency figure has ten strategies. */
static const PlotColour palette[] = {{0, 98, 178},  {213, 94, 0},  {0, 138, 100},   {190, 90, 150}, {60, 160, 220},
                                     {196, 140, 0}, {90, 70, 170}, {110, 110, 110}, {150, 32, 60},  {122, 148, 20}};
enum { COLOURS = sizeof palette / sizeof *palette };

static const PlotText small_text = {1, 1.15, {96, 103, 114}, false};
static const double bars_share = 0.8; /* of the room between two x, all bars together */
enum { PAD = 16, TITLE = 34, LEGEND_LINE = 19, SWATCH = 20, SWATCH_GAP = 7, ENTRY_GAP = 20, TICK_GAP = 8, NAME = 128 };

typedef struct Chart {
  PlotCanvas *canvas;
  const PlotPanel *panel;
  PlotBox area; /* within the frame */
  PlotAxis x, y;
  double bar_width; /* pixels */
} Chart;

/* ---- series */

static bool is_bar(const PlotSeries *series) { return series->style >= PLOT_BAR; }

/* Bars that stand side by side, up to series `until`. */
static int bars_before(const PlotPanel *panel, size_t until) {
  int bars = 0;
  for (size_t s = 0; s < until; s++) bars += panel->series[s].style == PLOT_BAR;
  return bars;
}

/* The next of the palette, or that of the series before; paler for what stands on a bar. */
static PlotColour colour_of(const PlotPanel *panel, size_t s) {
  size_t own = 0;
  if (panel->series[s].style == PLOT_MARK) return PANEL_INK;
  for (size_t i = 1; i <= s; i++) own += !panel->series[i].like_last && panel->series[i].style < PLOT_ON_BAR;
  PlotColour colour = palette[own % COLOURS];
  if (panel->series[s].style != PLOT_ON_BAR) return colour;
  return (PlotColour){(uint8_t)(255 - (255 - colour.red) * 2 / 5), (uint8_t)(255 - (255 - colour.green) * 2 / 5),
                      (uint8_t)(255 - (255 - colour.blue) * 2 / 5)};
}

/* Copies text to `fitted`, cut with "..." where it is wider than `width` pixels; returns fitted. */
static const char *fit_text(char *fitted, size_t size, const char *text, double scale, double width) {
  snprintf(fitted, size, "%s", text ? text : "");
  size_t length = strlen(fitted);
  while (length > 3 && canvas_text_width(fitted, scale) > width) memcpy(fitted + --length - 3, "...", 4);
  return fitted;
}

static bool is_drawn(const PlotPanel *panel, const PlotSeries *series, size_t i) {
  const double x = series->x[i], y = series->y[i];
  return isfinite(x) && isfinite(y) && (!panel->log_x || x > 0) && (!panel->log_y || y > 0);
}

/* Smallest and largest of each coordinate over all that is drawn; false when nothing is. */
static bool data_range(const PlotPanel *panel, double x[2], double y[2]) {
  x[0] = y[0] = INFINITY;
  x[1] = y[1] = -INFINITY;
  for (size_t s = 0; s < panel->count; s++)
    for (size_t i = 0; i < panel->series[s].count; i++) {
      const PlotSeries *series = &panel->series[s];
      if (!is_drawn(panel, series, i)) continue;
      x[0] = fmin(x[0], series->x[i]);
      x[1] = fmax(x[1], series->x[i]);
      y[0] = fmin(y[0], series->y[i]);
      y[1] = fmax(y[1], series->y[i]);
    }
  return x[0] <= x[1];
}

/* The least distance of two x of bars on the axis; a third of it all where there is one x alone. */
static double min_gap(const PlotPanel *panel, const PlotAxis *axis) {
  double gap = 1.0 / 3;
  for (size_t s = 0; s < panel->count; s++)
    for (size_t i = 1; is_bar(&panel->series[s]) && i < panel->series[s].count; i++) {
      double apart = fabs(plot_axis_place(axis, panel->series[s].x[i]) - plot_axis_place(axis, panel->series[s].x[i - 1]));
      if (apart > 0) gap = fmin(gap, apart);
    }
  return gap;
}

/* On a log axis that has few x (sizes, rates) they are the ticks themselves: powers of two, say, are no round numbers. */
static void tick_values(PlotAxis *axis, const PlotPanel *panel, int wanted) {
  double value[PLOT_AXIS_TICKS];
  int count = 0;
  for (size_t s = 0; s < panel->count; s++)
    for (size_t i = 0; i < panel->series[s].count; i++) {
      if (!is_drawn(panel, &panel->series[s], i)) continue;
      int at = 0;
      while (at < count && value[at] < panel->series[s].x[i]) at++;
      if (at < count && value[at] == panel->series[s].x[i]) continue;
      if (count == wanted || count == PLOT_AXIS_TICKS || panel->series[s].x[i] >= 1e6 || panel->series[s].x[i] < 1e-3) return;
      memmove(value + at + 1, value + at, (size_t)(count++ - at) * sizeof *value);
      value[at] = panel->series[s].x[i];
    }
  if (count < 2) return;
  axis->count = count;
  for (int i = 0; i < count; i++) {
    axis->tick[i] = value[i];
    snprintf(axis->label[i], PLOT_AXIS_LABEL, "%.6g", value[i]);
  }
}

/* Of what is counted (steps, devices) there is no half. Bars of the first and last x need room. */
static void fit_x(Chart *chart, double x[2]) {
  const PlotPanel *panel = chart->panel;
  const int x_ticks = (chart->area.right - chart->area.left) / 80 + 1;
  bool counted = true;
  for (size_t s = 0; s < panel->count; s++)
    for (size_t i = 0; i < panel->series[s].count; i++) counted = counted && panel->series[s].x[i] == floor(panel->series[s].x[i]);
  const double min_step = counted ? 1 : 0;
  plot_axis_fit(&chart->x, x[0], x[1], panel->log_x, x_ticks, min_step);
  if (bars_before(panel, panel->count) > 0) {
    const double gap = min_gap(panel, &chart->x) * (chart->x.high - chart->x.low) / 2;
    x[0] = panel->log_x ? x[0] / pow(10, gap) : x[0] - gap;
    x[1] = panel->log_x ? x[1] * pow(10, gap) : x[1] + gap;
    plot_axis_fit(&chart->x, x[0], x[1], panel->log_x, x_ticks, min_step);
    chart->bar_width = bars_share * min_gap(panel, &chart->x) * (chart->area.right - chart->area.left) / bars_before(panel, panel->count);
  }
  if (panel->log_x) tick_values(&chart->x, panel, x_ticks);
}

/* ---- legend */

/* A sample of a series between (x, y) and SWATCH pixels to the right. */
static void draw_swatch(PlotCanvas *canvas, const PlotSeries *series, PlotColour colour, int x, int y) {
  const bool filled = series->style == PLOT_BAR || series->style == PLOT_ON_BAR;
  if (filled) {
    canvas_rectangle(canvas, (PlotBox){x + 2, y - 5, x + SWATCH - 2, y + 5}, colour);
    return;
  }
  if (series->style == PLOT_DASHED) {
    stroke(canvas, x + 1, y, x + SWATCH * 0.35, y, 2.4);
    stroke(canvas, x + SWATCH * 0.65, y, x + SWATCH - 1, y, 2.4);
  } else
    stroke(canvas, x + 1, y, x + SWATCH - 1, y, 2.4);
  paint(canvas, colour);
}

/* Lays the legend out line by line from (left, top); draws it unless `canvas` is NULL. Returns the number of lines. */
static int legend(PlotCanvas *canvas, const PlotPanel *panel, int left, int right, int top) {
  int lines = 1, x = left;
  for (size_t s = 0; s < panel->count; s++) {
    char name[NAME];
    if (!panel->series[s].name) continue;
    fit_text(name, sizeof name, panel->series[s].name, small_text.scale, right - left - SWATCH - SWATCH_GAP);
    const int width = SWATCH + SWATCH_GAP + (int)ceil(canvas_text_width(name, small_text.scale));
    if (x > left && x + width > right) {
      x = left;
      lines++;
    }
    if (canvas) {
      const int baseline = top + (lines - 1) * LEGEND_LINE + 9;
      draw_swatch(canvas, &panel->series[s], colour_of(panel, s), x, baseline - 4);
      canvas_text(canvas, x + SWATCH + SWATCH_GAP, baseline, name, small_text);
    }
    x += width + ENTRY_GAP;
  }
  return panel->count ? lines : 0;
}

static double place_x(const Chart *chart, double value) {
  return chart->area.left + plot_axis_place(&chart->x, value) * (chart->area.right - chart->area.left);
}

static double place_y(const Chart *chart, double value) {
  return chart->area.bottom - plot_axis_place(&chart->y, value) * (chart->area.bottom - chart->area.top);
}

static void draw_x_ticks(const Chart *chart) {
  const PlotBox *area = &chart->area;
  double free_from = -1e9; /* labels that would touch the last one are left out */
  for (int i = 0; i < chart->x.count; i++) {
    const double x = place_x(chart, chart->x.tick[i]), width = canvas_text_width(chart->x.label[i], small_text.scale);
    const int pixel = (int)x;
    canvas_rectangle(chart->canvas, (PlotBox){pixel, area->top, pixel + 1, area->bottom}, grid);
    if (x - width / 2 < free_from) continue;
    canvas_text(chart->canvas, x - width / 2, area->bottom + TICK_GAP + 9, chart->x.label[i], small_text);
    free_from = x + width / 2 + 12;
  }
}

static void draw_y_ticks(const Chart *chart) {
  const PlotBox *area = &chart->area;
  double free_to = 1e9;
  for (int i = 0; i < chart->y.count; i++) {
    const double y = place_y(chart, chart->y.tick[i]), width = canvas_text_width(chart->y.label[i], small_text.scale);
    const int pixel = (int)y;
    canvas_rectangle(chart->canvas, (PlotBox){area->left, pixel, area->right, pixel + 1}, grid);
    if (y > free_to) continue;
    canvas_text(chart->canvas, area->left - TICK_GAP - width, y + 4.5, chart->y.label[i], small_text);
    free_to = y - 15;
  }
}

/* Dashes of 6 pixels, 5 apart. */
static void draw_dashed(PlotCanvas *canvas, double x0, double y0, double x1, double y1) {
  const double length = hypot(x1 - x0, y1 - y0);
  for (double at = 0; at < length; at += 11) {
    const double from = at / length, to = fmin(at + 6, length) / length;
    stroke(canvas, x0 + from * (x1 - x0), y0 + from * (y1 - y0), x0 + to * (x1 - x0), y0 + to * (y1 - y0), 1.8);
  }
}

/* What a bar that goes on begins at: the bar of the same x before it. */
static double foot_of(const PlotSeries *series, size_t i) {
  if (series->style != PLOT_ON_BAR) return 0;
  for (size_t j = 0; j < series[-1].count; j++)
    if (series[-1].x[j] == series->x[i]) return series[-1].y[j];
  return 0;
}

static void draw_bars(const Chart *chart, size_t s, PlotColour colour) {
  const PlotSeries *series = &chart->panel->series[s];
  const double middle = (bars_before(chart->panel, chart->panel->count) - 1) / 2.0, width = chart->bar_width;
  const int place = bars_before(chart->panel, s + 1) - 1;
  for (size_t i = 0; i < series->count; i++) {
    if (!is_drawn(chart->panel, series, i)) continue;
    const double left = place_x(chart, series->x[i]) + (place - middle - 0.5) * width, top = place_y(chart, series->y[i]);
    if (series->style == PLOT_MARK) {
      stroke(chart->canvas, left, top, left + width, top, 2.6);
      paint(chart->canvas, colour);
      continue;
    }
    const PlotBox box = {(int)(left + 1), (int)top, (int)(left + width), (int)place_y(chart, foot_of(series, i))};
    if (box.bottom > box.top) canvas_rectangle(chart->canvas, box, colour);
  }
}

static void draw_line(const Chart *chart, const PlotSeries *series, PlotColour colour) {
  double last_x = 0, last_y = 0;
  size_t drawn = 0;
  for (size_t i = 0; i < series->count; i++) {
    if (!is_drawn(chart->panel, series, i)) continue;
    const double x = place_x(chart, series->x[i]), y = place_y(chart, series->y[i]);
    if (drawn > 0 && series->style == PLOT_DASHED) draw_dashed(chart->canvas, last_x, last_y, x, y);
    if (drawn > 0 && series->style == PLOT_LINE) stroke(chart->canvas, last_x, last_y, x, y, 1.8);
    drawn++;
    if (series->points) stroke(chart->canvas, x, y, x, y, 5.5);
    last_x = x;
    last_y = y;
  }
  if (drawn == 1) stroke(chart->canvas, last_x, last_y, last_x, last_y, 6.5); /* one point makes no line */
  paint(chart->canvas, colour);
}

static void draw_centred(PlotCanvas *canvas, double x, double y, const char *text, PlotText style, double width) {
  char fitted[NAME];
  fit_text(fitted, sizeof fitted, text, style.scale, width);
  const double half = canvas_text_width(fitted, style.scale) / 2;
  canvas_text(canvas, style.upright ? x : x - half, style.upright ? y + half : y, fitted, style);
}

static void draw_titles(const Chart *chart, PlotBox box) {
  const PlotBox *area = &chart->area;
  char title[NAME];
  const PlotText title_text = {1.2, 1.75, PANEL_INK, false};
  PlotText upright = small_text;
  upright.upright = true;
  fit_text(title, sizeof title, chart->panel->title, title_text.scale, box.right - box.left - 2 * PAD);
  canvas_text(chart->canvas, box.left + PAD, box.top + 22, title, title_text);
  draw_centred(chart->canvas, (area->left + area->right) / 2.0, box.bottom - 10, chart->panel->x_label, small_text,
               area->right - area->left);
  draw_centred(chart->canvas, box.left + PAD + 9, (area->top + area->bottom) / 2.0, chart->panel->y_label, upright,
               area->bottom - area->top);
}

static void draw_data(Chart *chart) {
  draw_x_ticks(chart);
  draw_y_ticks(chart);
  const PlotBox around = {chart->area.left - 4, chart->area.top - 4, chart->area.right + 4, chart->area.bottom + 4};
  clip(chart->canvas, &around);
  /* The first line is the important one: on top, and lines before bars. Marks come after the bars that they lie on. */
  for (size_t s = 0; s < chart->panel->count; s++)
    if (is_bar(&chart->panel->series[s])) draw_bars(chart, s, colour_of(chart->panel, s));
  for (size_t s = chart->panel->count; s-- > 0;)
    if (!is_bar(&chart->panel->series[s])) draw_line(chart, &chart->panel->series[s], colour_of(chart->panel, s));
  clip(chart->canvas, NULL);
}

static void draw_panel(PlotCanvas *canvas, const PlotPanel *panel, PlotBox box) {
  Chart chart = {.canvas = canvas, .panel = panel};
  double x[2], y[2];
  const bool data = data_range(panel, x, y);
  const int legend_top = box.top + TITLE + 2, legend_lines = legend(NULL, panel, box.left + PAD, box.right - PAD, legend_top);
  PlotBox *area = &chart.area;
  *area = (PlotBox){box.left + PAD + 9 + 14, legend_top + legend_lines * LEGEND_LINE + 6, box.right - PAD - 8, box.bottom - 48};
  if (area->bottom < area->top + 20) area->bottom = area->top + 20;
  if (data) {
    const bool zero = !panel->log_y && (panel->from_zero || bars_before(panel, panel->count) > 0);
    if (zero) y[0] = fmin(y[0], 0), y[1] = fmax(y[1], 0);
    plot_axis_fit(&chart.y, y[0], y[1], panel->log_y, (area->bottom - area->top) / 44 + 1, 0);
    if (zero && y[0] == 0 && y[1] > 0) chart.y.low = 0;
    double widest = 0;
    for (int i = 0; i < chart.y.count; i++) widest = fmax(widest, canvas_text_width(chart.y.label[i], small_text.scale));
    area->left += (int)ceil(widest) + TICK_GAP;
    fit_x(&chart, x);
    draw_data(&chart);
  } else {
    draw_centred(canvas, (area->left + area->right) / 2.0, (area->top + area->bottom) / 2.0, "no data yet", small_text, 200);
  }
  canvas_rectangle(canvas, (PlotBox){area->left - 1, area->top, area->left, area->bottom + 1}, frame);
  canvas_rectangle(canvas, (PlotBox){area->left - 1, area->bottom, area->right, area->bottom + 1}, frame);
  draw_titles(&chart, box);
  legend(canvas, panel, box.left + PAD, box.right - PAD, legend_top);
}

/* ---- Files ---- */

enum { ACROSS = 3, PLOT_TITLE = 44, PLOT_PAD = 12, MIN_SIDE = 200, MAX_SIDE = 4096, MAX_PANELS = 48 };

Status plot_save(const char *path, const char *title, const PlotPanel *panels, size_t count, int panel_width, int panel_height) {
  if (count < 1 || count > MAX_PANELS)
    return status_set(STATUS_BAD_VALUE, "%s: 1 to %d panels are accepted, not %zu", path, MAX_PANELS, count);
  if (panel_width < MIN_SIDE || panel_width > MAX_SIDE || panel_height < MIN_SIDE || panel_height > MAX_SIDE)
    return status_set(STATUS_BAD_VALUE, "%s: panels of %d to %d pixels per side are accepted, not %d x %d", path, MIN_SIDE, MAX_SIDE,
                      panel_width, panel_height);
  const int across = count < ACROSS ? (int)count : ACROSS, down = ((int)count + ACROSS - 1) / ACROSS;
  PlotCanvas canvas;
  TRY(canvas_init(&canvas, 2 * PLOT_PAD + across * panel_width, PLOT_TITLE + PLOT_PAD + down * panel_height));
  const PlotText style = {1.5, 2.1, PANEL_INK, false};
  char fitted[256];
  fit_text(fitted, sizeof fitted, title, style.scale, canvas.width - 2 * (PLOT_PAD + 16));
  canvas_text(&canvas, PLOT_PAD + 16, 32, fitted, style);
  for (size_t i = 0; i < count; i++) {
    const int left = PLOT_PAD + (int)(i % ACROSS) * panel_width, top = PLOT_TITLE + (int)(i / ACROSS) * panel_height;
    draw_panel(&canvas, &panels[i], (PlotBox){left, top, left + panel_width, top + panel_height});
  }
  Status status = canvas_save(&canvas, path);
  canvas_release(&canvas);
  return status;
}

/* ---- Matrices ---- */

enum { NAMED_MAX = 40, CLASS_NAME = 18, NAMED_CELL = 30, SHEET = 720, EDGE = 14 };
static const PlotColour INK = {40, 40, 40}, PAPER = {255, 255, 255};

typedef struct Sheet {
  const uint32_t *counts; /* [classes of the label, classes of the answer] */
  int64_t classes;
  char *const *names;
  PlotCanvas canvas;
  int cell, left, top; /* pixels: of a cell, of the first one */
  bool named;
} Sheet;

static void short_name(const char *name, char text[CLASS_NAME + 1]) {
  snprintf(text, CLASS_NAME + 1, "%s", name);
  if (strlen(name) > CLASS_NAME) strcpy(text + CLASS_NAME - 2, "..");
}

static void draw_cell(Sheet *sheet, int64_t label, int64_t answer, uint32_t all) {
  uint32_t count = sheet->counts[label * sheet->classes + answer];
  double share = all > 0 ? (double)count / all : 0;
  int x = sheet->left + (int)answer * sheet->cell, y = sheet->top + (int)label * sheet->cell, gap = sheet->cell > 4 ? 1 : 0;
  char text[16];
  const PlotColour shade = {/* from white to a dark blue */
                            (uint8_t)lround(255 - 224 * share), (uint8_t)lround(255 - 176 * share), (uint8_t)lround(255 - 99 * share)};
  canvas_rectangle(&sheet->canvas, (PlotBox){x, y, x + sheet->cell - gap, y + sheet->cell - gap}, shade);
  if (!sheet->named || count == 0) return;
  snprintf(text, sizeof text, "%u", (unsigned)count);
  double scale = strlen(text) > 3 ? 0.7 : 0.95;
  canvas_text(&sheet->canvas, x + (sheet->cell - canvas_text_width(text, scale)) / 2, y + sheet->cell / 2.0 + 4, text,
              (PlotText){scale, 1.1, share > 0.5 ? PAPER : INK, false});
}

Status plot_matrix(const char *path, const uint32_t *counts, int64_t classes, char *const *names) {
  static const char caption[] = "rows: label, columns: answer; darker: a larger share of the label";
  Sheet sheet = {.counts = counts, .classes = classes, .names = names, .named = classes <= NAMED_MAX};
  char text[CLASS_NAME + 1];
  double widest = 0;
  for (int64_t i = 0; sheet.named && i < classes; i++) {
    short_name(names[i], text);
    widest = fmax(widest, canvas_text_width(text, 0.9));
  }
  sheet.cell = sheet.named ? NAMED_CELL : (int)(SHEET / classes > 1 ? SHEET / classes : 1);
  sheet.left = EDGE + (int)widest + 8;
  sheet.top = TITLE + EDGE + (int)widest + 8;
  const int side = (int)classes * sheet.cell, right = sheet.left + side, bottom = sheet.top + side;
  const int width = right + EDGE, min = (int)canvas_text_width(caption, 0.95) + 2 * EDGE;
  TRY(canvas_init(&sheet.canvas, width > min ? width : min, bottom + EDGE));
  canvas_rectangle(&sheet.canvas, (PlotBox){sheet.left - 1, sheet.top - 1, right + 1, bottom + 1}, (PlotColour){200, 200, 200});
  canvas_rectangle(&sheet.canvas, (PlotBox){sheet.left, sheet.top, right, bottom}, (PlotColour){225, 225, 225});
  for (int64_t label = 0; label < classes; label++) {
    uint32_t all = 0;
    for (int64_t answer = 0; answer < classes; answer++) all += counts[label * classes + answer];
    for (int64_t answer = 0; answer < classes; answer++) draw_cell(&sheet, label, answer, all);
  }
  for (int64_t i = 0; sheet.named && i < classes; i++) {
    const int at = (int)i * sheet.cell + sheet.cell / 2 + 4;
    short_name(sheet.names[i], text);
    canvas_text(&sheet.canvas, sheet.left - 8 - canvas_text_width(text, 0.9), sheet.top + at, text, (PlotText){0.9, 1.1, INK, false});
    canvas_text(&sheet.canvas, sheet.left + at, sheet.top - 8, text, (PlotText){0.9, 1.1, INK, true});
  }
  canvas_text(&sheet.canvas, EDGE, 24, caption, (PlotText){0.95, 1.2, INK, false});
  Status status = canvas_save(&sheet.canvas, path);
  canvas_release(&sheet.canvas);
  return status;
}
