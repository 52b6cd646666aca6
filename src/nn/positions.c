/* Bicubic interpolation of position embeddings. Sums run in double; done once per load, so it is written for reading. */
#include "nn/positions.h"
#include "autograd/real.h"
#include "base/status.h"
#include "nn/config.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rotary embeddings ---- */

/* Angles are computed in double: in float they are off by 1e-3 at position 8192.
 * On one thread, since models are made before processes are forked, when no pool may run yet. */

static const double TURN = 6.283185307179586477;

static double slowed(const RopeConfig *rope, double frequency) {
  double wavelength = TURN / frequency, original = (double)rope->original;
  if (wavelength < original / rope->high_factor) return frequency;
  if (wavelength > original / rope->low_factor) return frequency / rope->factor;
  double share = (original / wavelength - rope->low_factor) / (rope->high_factor - rope->low_factor);
  return (1 - share) * frequency / rope->factor + share * frequency;
}

void rope_table_frequencies(const RopeConfig *rope, int64_t head_width, double *frequency) {
  for (int64_t i = 0; i < head_width / 2; i++) {
    frequency[i] = pow(rope->theta, -2.0 * (double)i / (double)head_width);
    if (rope->llama3) frequency[i] = slowed(rope, frequency[i]);
  }
}

static void fill(RopeTable *table, const double *frequency, int64_t half) {
  for (int64_t at = 0; at < table->count * half; at++) {
    double angle = (double)(at / half) * frequency[at % half];
    table->cosine[at] = (real)cos(angle);
    table->sine[at] = (real)sin(angle);
  }
}

Status rope_table_init(RopeTable *table, const ModelConfig *config) {
  int64_t head_width = config->width / config->heads, half = head_width / 2, numbers = config->context * half;
  double *frequency = malloc((size_t)half * sizeof *frequency);
  *table = (RopeTable){malloc(2 * (size_t)numbers * sizeof(real)), NULL, config->context};
  if (!frequency || !table->cosine) {
    free(frequency);
    rope_table_release(table);
    return status_set(STATUS_NO_MEMORY, "no memory for the table of %lld rotary positions", (long long)config->context);
  }
  table->sine = table->cosine + numbers;
  rope_table_frequencies(&config->rope, head_width, frequency);
  fill(table, frequency, half);
  free(frequency);
  return STATUS_OK;
}

void rope_table_release(RopeTable *table) {
  free(table->cosine);
  *table = (RopeTable){0};
}

/* ---- Learnt embeddings of another grid ---- */

enum { TAPS = 4 };

typedef struct Taps {
  int64_t place[TAPS]; /* rows or columns of the source, clamped to its borders */
  double weight[TAPS];
} Taps;

int64_t positions_side(int64_t rows) {
  if (rows < 2 || rows > (int64_t)1 << 40) return 0;
  int64_t side = (int64_t)llround(sqrt((double)(rows - 1)));
  return side * side == rows - 1 ? side : 0;
}

/* Keys' cubic kernel with a = -0.75 at distance x. */
static double cubic(double x) {
  const double a = -0.75;
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static Taps taps_at(int64_t index, int64_t from_side, int64_t to_side) {
  double centre = ((double)index + 0.5) * (double)from_side / (double)to_side - 0.5;
  double first = floor(centre) - 1;
  Taps taps;
  for (int i = 0; i < TAPS; i++) {
    int64_t place = (int64_t)first + i;
    taps.place[i] = place < 0 ? 0 : place >= from_side ? from_side - 1 : place;
    taps.weight[i] = cubic(centre - (first + i));
  }
  return taps;
}

static void blend(const real *grid, int64_t from_side, const Taps *y, const Taps *x, real *out, int64_t width) {
  for (int64_t k = 0; k < width; k++) {
    double sum = 0;
    for (int i = 0; i < TAPS; i++)
      for (int j = 0; j < TAPS; j++) sum += y->weight[i] * x->weight[j] * (double)grid[(y->place[i] * from_side + x->place[j]) * width + k];
    out[k] = (real)sum;
  }
}

void positions_resize(const real *from, int64_t from_side, real *to, int64_t to_side, int64_t width) {
  memcpy(to, from, (size_t)width * sizeof *to);
  const real *grid = from + width;
  for (int64_t row = 0; row < to_side; row++) {
    Taps y = taps_at(row, from_side, to_side);
    for (int64_t column = 0; column < to_side; column++) {
      Taps x = taps_at(column, from_side, to_side);
      blend(grid, from_side, &y, &x, to + (1 + row * to_side + column) * width, width);
    }
  }
}
