/* The confusion matrix: see confusion.h. */
#include "train/confusion.h"
#include "base/files.h"
#include "train/plot_canvas.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status confusion_init(Confusion *confusion, int64_t classes) {
  *confusion = (Confusion){0};
  if (classes < 2 || classes > CONFUSION_CLASSES) return STATUS_OK;
  confusion->counts = calloc((size_t)(classes * classes), sizeof *confusion->counts);
  if (confusion->counts == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a matrix of %lld classes", (long long)classes);
  confusion->classes = classes;
  return STATUS_OK;
}

void confusion_release(Confusion *confusion) {
  free(confusion->counts);
  *confusion = (Confusion){0};
}

void confusion_clear(Confusion *confusion) {
  if (confusion->classes > 0) memset(confusion->counts, 0, (size_t)(confusion->classes * confusion->classes) * sizeof *confusion->counts);
}

void confusion_add(Confusion *confusion, int64_t label, int64_t answer) {
  if (label < 0 || label >= confusion->classes || answer < 0 || answer >= confusion->classes) return;
  confusion->counts[label * confusion->classes + answer]++;
}

/* ---------------------------------------------------------------- CSV */

static void write_name(FILE *stream, const char *name) {
  if (strpbrk(name, ",\"\r\n") == NULL) {
    fputs(name, stream);
    return;
  }
  fputc('"', stream);
  for (; *name; name++) {
    if (*name == '"') fputc('"', stream);
    fputc(*name, stream);
  }
  fputc('"', stream);
}

static Status save_csv(const Confusion *confusion, char *const *names, const char *path) {
  FileWriter writer;
  int64_t classes = confusion->classes;
  TRY(files_create(&writer, path));
  fputs("label", writer.stream);
  for (int64_t j = 0; j < classes; j++) {
    fputc(',', writer.stream);
    write_name(writer.stream, names[j]);
  }
  for (int64_t i = 0; i < classes; i++) {
    fputc('\n', writer.stream);
    write_name(writer.stream, names[i]);
    for (int64_t j = 0; j < classes; j++) fprintf(writer.stream, ",%u", (unsigned)confusion->counts[i * classes + j]);
  }
  fputc('\n', writer.stream);
  return files_commit(&writer);
}

/* ---------------------------------------------------------------- image */

enum { NAMED_MAX = 40, NAME_MAX = 18, NAMED_CELL = 30, IMAGE = 720, EDGE = 14, TITLE = 34 };
static const PlotColour INK = {40, 40, 40}, PAPER = {255, 255, 255};

typedef struct Sheet {
  const Confusion *confusion;
  char *const *names;
  PlotCanvas canvas;
  int cell, left, top; /* pixels: of a cell, of the first one */
  bool named;
} Sheet;

/* From white to a dark blue. */
static PlotColour shade(double share) {
  return (PlotColour){(uint8_t)lround(255 - 224 * share), (uint8_t)lround(255 - 176 * share), (uint8_t)lround(255 - 99 * share)};
}

static void short_name(const char *name, char text[NAME_MAX + 1]) {
  snprintf(text, NAME_MAX + 1, "%s", name);
  if (strlen(name) > NAME_MAX) strcpy(text + NAME_MAX - 2, "..");
}

static void draw_cell(Sheet *sheet, int64_t label, int64_t answer, uint32_t all) {
  uint32_t count = sheet->confusion->counts[label * sheet->confusion->classes + answer];
  double share = all > 0 ? (double)count / all : 0;
  int x = sheet->left + (int)answer * sheet->cell, y = sheet->top + (int)label * sheet->cell, gap = sheet->cell > 4 ? 1 : 0;
  char text[16];
  plot_canvas_rectangle(&sheet->canvas, (PlotBox){x, y, x + sheet->cell - gap, y + sheet->cell - gap}, shade(share));
  if (!sheet->named || count == 0) return;
  snprintf(text, sizeof text, "%u", (unsigned)count);
  double scale = strlen(text) > 3 ? 0.7 : 0.95;
  plot_canvas_text(&sheet->canvas, x + (sheet->cell - plot_canvas_text_width(text, scale)) / 2, y + sheet->cell / 2.0 + 4, text,
                   (PlotText){scale, 1.1, share > 0.5 ? PAPER : INK, false});
}

static void draw_names(Sheet *sheet) {
  char text[NAME_MAX + 1];
  for (int64_t i = 0; sheet->named && i < sheet->confusion->classes; i++) {
    int at = (int)i * sheet->cell + sheet->cell / 2 + 4;
    short_name(sheet->names[i], text);
    double width = plot_canvas_text_width(text, 0.9);
    plot_canvas_text(&sheet->canvas, sheet->left - 8 - width, sheet->top + at, text, (PlotText){0.9, 1.1, INK, false});
    plot_canvas_text(&sheet->canvas, sheet->left + at, sheet->top - 8, text, (PlotText){0.9, 1.1, INK, true});
  }
}

static void draw(Sheet *sheet) {
  int64_t classes = sheet->confusion->classes;
  int side = (int)classes * sheet->cell;
  PlotBox frame = {sheet->left - 1, sheet->top - 1, sheet->left + side + 1, sheet->top + side + 1};
  plot_canvas_rectangle(&sheet->canvas, frame, (PlotColour){200, 200, 200});
  plot_canvas_rectangle(&sheet->canvas, (PlotBox){sheet->left, sheet->top, sheet->left + side, sheet->top + side},
                        (PlotColour){225, 225, 225});
  for (int64_t label = 0; label < classes; label++) {
    uint32_t all = 0;
    for (int64_t answer = 0; answer < classes; answer++) all += sheet->confusion->counts[label * classes + answer];
    for (int64_t answer = 0; answer < classes; answer++) draw_cell(sheet, label, answer, all);
  }
  draw_names(sheet);
  plot_canvas_text(&sheet->canvas, EDGE, 24, "rows: label, columns: answer; darker: a larger share of the label",
                   (PlotText){0.95, 1.2, INK, false});
}

static Status save_image(const Confusion *confusion, char *const *names, const char *path) {
  Sheet sheet = {.confusion = confusion, .names = names, .named = confusion->classes <= NAMED_MAX};
  char text[NAME_MAX + 1];
  double widest = 0;
  for (int64_t i = 0; sheet.named && i < confusion->classes; i++) {
    short_name(names[i], text);
    widest = fmax(widest, plot_canvas_text_width(text, 0.9));
  }
  sheet.cell = sheet.named ? NAMED_CELL : (int)(IMAGE / confusion->classes > 1 ? IMAGE / confusion->classes : 1);
  sheet.left = EDGE + (int)widest + 8;
  sheet.top = TITLE + EDGE + (int)widest + 8;
  int side = (int)confusion->classes * sheet.cell;
  double title = plot_canvas_text_width("rows: label, columns: answer; darker: a larger share of the label", 0.95);
  int width = sheet.left + side + EDGE, min = (int)title + 2 * EDGE;
  TRY(plot_canvas_init(&sheet.canvas, width > min ? width : min, sheet.top + side + EDGE));
  draw(&sheet);
  Status status = plot_canvas_save(&sheet.canvas, path);
  plot_canvas_release(&sheet.canvas);
  return status;
}

Status confusion_save(const Confusion *confusion, char *const *names, const char *directory) {
  if (confusion->classes == 0) return STATUS_OK;
  char *csv = files_join(directory, "confusion.csv"), *png = files_join(directory, "confusion.png");
  Status status = csv != NULL && png != NULL ? save_csv(confusion, names, csv) : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK) status = save_image(confusion, names, png);
  free(csv);
  free(png);
  return status;
}
