/* A batch as a picture for people, so that what the model sees can be looked at. */
#include "data/loader.h"
#include <math.h>

enum { SHEET_MOST = 64, SHEET_COLUMNS = 8, SHEET_GAP = 2, SHEET_TILE = 96 };

static uint8_t to_level(float value, double mean, double std) {
  double level = (value * std + mean) * 255.0;
  return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : lround(level));
}

static void draw_tile(const float *pixels /* [3, image, image] */, const LoaderOptions *options, int zoom, int left, int top,
                      Image *sheet) {
  int side = options->image;
  for (int y = 0; y < side * zoom; y++) {
    uint8_t *to = sheet->rgb + ((size_t)(top + y) * sheet->width + left) * 3;
    for (int x = 0; x < side * zoom; x++) {
      size_t from = (size_t)(y / zoom) * side + x / zoom;
      for (int c = 0; c < 3; c++) *to++ = to_level(pixels[(size_t)c * side * side + from], options->mean[c], options->std[c]);
    }
  }
}

Status loader_sheet(const Batch *batch, const LoaderOptions *options, const char *path) {
  int count = batch->count < SHEET_MOST ? batch->count : SHEET_MOST, side = options->image;
  if (count < 1 || side < 1) return status_set(STATUS_BAD_VALUE, "%s: there is no picture to draw", path);
  int zoom = side < SHEET_TILE ? SHEET_TILE / side : 1, tile = side * zoom + SHEET_GAP;
  int columns = count < SHEET_COLUMNS ? count : SHEET_COLUMNS, rows = (count + SHEET_COLUMNS - 1) / SHEET_COLUMNS;
  Image sheet;
  TRY(image_new(&sheet, columns * tile + SHEET_GAP, rows * tile + SHEET_GAP));
  for (int i = 0; i < count; i++) {
    draw_tile(batch->pixels + (size_t)i * 3 * side * side, options, zoom, SHEET_GAP + i % SHEET_COLUMNS * tile,
              SHEET_GAP + i / SHEET_COLUMNS * tile, &sheet);
  }
  Status status = image_save_png(&sheet, path);
  image_release(&sheet);
  return status;
}
