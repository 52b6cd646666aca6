/* The table of loops for weights of 8 and 4 bits that any compiler takes. */
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/narrow.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void quantise(int64_t n, const real *x, int8_t *a, float *scale, int32_t *sum) {
  const float inverse = lowbit_inverse_scale(lowbit_peak(0, n, x), scale);
  *sum = 0;
  for (int64_t i = 0; i < n; i++) {
    a[i] = inverse > 0 ? (int8_t)rintf((float)x[i] * inverse) : 0;
    *sum += a[i];
  }
}

/* Number i of a row with its offset: an unsigned byte. */
static uint8_t shifted(LowbitKind kind, const uint8_t *row, int64_t i) {
  const int64_t b = i / LOWBIT_BLOCK, place = i % LOWBIT_BLOCK;
  if (kind == LOWBIT_INT8) return row[i] ^ 0x80u;
  if (kind == LOWBIT_Q8_0) return (uint8_t)((const LowbitQ8Block *)(const void *)row)[b].number[place] ^ 0x80u;
  const uint8_t pair = ((const LowbitQ4Block *)(const void *)row)[b].number[place % (LOWBIT_BLOCK / 2)];
  return place < LOWBIT_BLOCK / 2 ? pair & 15u : (uint8_t)(pair >> 4);
}

static float block_scale(LowbitKind kind, const uint8_t *row, int64_t b) {
  return narrow_half_to_float(kind == LOWBIT_Q8_0 ? ((const LowbitQ8Block *)(const void *)row)[b].scale
                                                  : ((const LowbitQ4Block *)(const void *)row)[b].scale);
}

static void panel(LowbitKind kind, int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *to, float *scale) {
  for (int64_t o = 0; o < LOWBIT_PANEL; o++) {
    const uint8_t *row = numbers + (o < outputs ? o : outputs - 1) * row_bytes;
    for (int64_t i = 0; i < inputs; i++) to[(i / 4 * LOWBIT_PANEL + o) * 4 + i % 4] = shifted(kind, row, i);
    for (int64_t b = 0; kind != LOWBIT_INT8 && b < lowbit_groups(kind, inputs); b++)
      scale[b * LOWBIT_PANEL + o] = block_scale(kind, row, b);
  }
}

/* A group's sum: `count` inputs of all outputs of a panel. */
static void panel_sums(const uint8_t *panel_of, const int8_t *a, int64_t first, int64_t count, int32_t start, int32_t sums[LOWBIT_PANEL]) {
  for (int o = 0; o < LOWBIT_PANEL; o++) sums[o] = start;
  for (int64_t i = first; i < first + count; i++)
    for (int o = 0; o < LOWBIT_PANEL; o++) sums[o] += panel_of[(i / 4 * LOWBIT_PANEL + o) * 4 + i % 4] * a[i];
}

static void tile_panel(const LowbitTile *t, int64_t p, int64_t r) {
  const int64_t left = t->columns - p * LOWBIT_PANEL, columns = left < LOWBIT_PANEL ? left : LOWBIT_PANEL, groups = t->x.groups;
  const float *scale = t->scale + p * LOWBIT_PANEL * groups;
  real *c = t->c + r * t->ldc + p * LOWBIT_PANEL, value[LOWBIT_PANEL] = {0};
  for (int64_t g = 0; g < groups; g++) {
    const int64_t first = g * LOWBIT_BLOCK, rest = t->inputs - first;
    const int64_t count = t->blocks && rest > LOWBIT_BLOCK ? LOWBIT_BLOCK : rest;
    int32_t sums[LOWBIT_PANEL];
    panel_sums(t->panels + p * t->panel_bytes, t->x.a + r * t->x.stride, first, count, -t->offset * t->x.sum[r * groups + g], sums);
    for (int64_t o = 0; o < columns; o++) value[o] += (real)sums[o] * (real)(t->x.scale[r * groups + g] * scale[g * LOWBIT_PANEL + o]);
  }
  for (int64_t o = 0; o < columns; o++) c[o] = (t->add ? c[o] : 0) + value[o];
}

static void tile(const LowbitTile *t) {
  for (int64_t p = 0; p * LOWBIT_PANEL < t->columns; p++)
    for (int64_t r = 0; r < t->rows; r++) tile_panel(t, p, r);
}

static int32_t group_dot(LowbitKind kind, const uint8_t *row, const int8_t *a, int64_t first, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = first; i < first + count; i++) sum += shifted(kind, row, i) * a[i];
  return sum;
}

static void dots(const LowbitDots *d) {
  for (int64_t o = 0; o < d->outputs; o++) {
    const uint8_t *row = d->numbers + o * d->row_bytes;
    real value = 0;
    for (int64_t g = 0; g < d->x.groups; g++) {
      const int64_t first = g * LOWBIT_BLOCK, rest = d->inputs - first;
      const int64_t count = d->kind != LOWBIT_INT8 && rest > LOWBIT_BLOCK ? LOWBIT_BLOCK : rest;
      const int32_t sum = group_dot(d->kind, row, d->x.a, first, count) - lowbit_offset(d->kind) * d->x.sum[g];
      value += (real)sum * (real)(d->x.scale[g] * (d->kind == LOWBIT_INT8 ? d->scale[o] : block_scale(d->kind, row, g)));
    }
    d->y[o] = (d->add ? d->y[o] : 0) + value;
  }
}

static void scale_sums(int64_t n, const int32_t *sums, const int32_t *less, const float *scale, float x_scale, bool add, real *c) {
  for (int64_t o = 0; o < n; o++) c[o] = (add ? c[o] : 0) + (real)(sums[o] - less[o]) * (real)(x_scale * scale[o]);
}

static const LowbitKernels portable_table = {"portable", quantise, panel, tile, dots, scale_sums};

const LowbitKernels *lowbit_portable(void) { return &portable_table; }
