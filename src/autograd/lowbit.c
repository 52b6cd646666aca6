/* The layouts of weights of 8 and 4 bits: see lowbit.h. */
#include "autograd/lowbit.h"
#include "autograd/narrow.h"
#include "autograd/real.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int64_t blocks_of(int64_t inputs) { return (inputs + LOWBIT_BLOCK - 1) / LOWBIT_BLOCK; }

size_t lowbit_row_bytes(LowbitKind kind, int64_t inputs) {
  switch (kind) {
  case LOWBIT_INT8:
    return (size_t)inputs;
  case LOWBIT_Q8_0:
    return (size_t)blocks_of(inputs) * sizeof(LowbitQ8Block);
  case LOWBIT_Q4_0:
    return (size_t)blocks_of(inputs) * sizeof(LowbitQ4Block);
  case LOWBIT_NONE:
    break;
  }
  return 0;
}

static void widen_q8(const LowbitQ8Block *block, int64_t first, int64_t count, real *value) {
  const float scale = narrow_half_to_float(block->scale);
  for (int64_t i = 0; i < count; i++) value[i] = (real)(scale * (float)block->number[first + i]);
}

static void widen_q4(const LowbitQ4Block *block, int64_t first, int64_t count, real *value) {
  const float scale = narrow_half_to_float(block->scale);
  const int64_t half = LOWBIT_BLOCK / 2;
  for (int64_t i = 0; i < count; i++) {
    const int64_t place = first + i;
    const int number = place < half ? block->number[place] & 15 : block->number[place - half] >> 4;
    value[i] = (real)(scale * (float)(number - 8));
  }
}

void lowbit_widen(const LowbitMatrix *matrix, int64_t output, int64_t first, int64_t count, real *value) {
  const uint8_t *row = (const uint8_t *)matrix->numbers + (size_t)output * lowbit_row_bytes(matrix->kind, matrix->inputs);
  if (matrix->kind == LOWBIT_INT8) {
    const int8_t *number = (const int8_t *)row + first;
    const float scale = matrix->scale[output];
    for (int64_t i = 0; i < count; i++) value[i] = (real)(scale * (float)number[i]);
    return;
  }
  for (int64_t done = 0, n; done < count; done += n) { /* block by block */
    const int64_t b = (first + done) / LOWBIT_BLOCK, place = (first + done) % LOWBIT_BLOCK;
    n = LOWBIT_BLOCK - place < count - done ? LOWBIT_BLOCK - place : count - done;
    if (matrix->kind == LOWBIT_Q8_0)
      widen_q8((const LowbitQ8Block *)(const void *)row + b, place, n, value + done);
    else
      widen_q4((const LowbitQ4Block *)(const void *)row + b, place, n, value + done);
  }
}

/* ---- Quantisation ---- */

enum { MIN_Q4 = -8, MAX_Q4 = 7, LARGEST_HALF = 65504 };

/* A scale is finite, whatever it scales. */
static uint16_t half_of(float x) { return narrow_half(fminf(fmaxf(x, -LARGEST_HALF), LARGEST_HALF)); }

static float largest(int64_t n, const float *x) {
  float max = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(max)) max = x[i];
  return max;
}

static void round_8(int64_t n, const float *x, float scale, int8_t *q) {
  for (int64_t i = 0; i < n; i++) q[i] = scale > 0 ? (int8_t)fmaxf(-127, fminf(127, rintf(x[i] / scale))) : 0;
}

static float round_4(float x, float inverse) { return fmaxf(MIN_Q4, fminf(MAX_Q4, rintf(x * inverse))); }

/* The best scale for the numbers that this one gives, and how much of sum x^2 it explains: the error is the rest. */
static float refine(const float x[LOWBIT_BLOCK], float inverse, float *explained) {
  float products = 0, squares = 0;
  for (int i = 0; i < LOWBIT_BLOCK; i++) {
    const float q = round_4(x[i], inverse);
    products += x[i] * q;
    squares += q * q;
  }
  *explained = squares > 0 ? products * products / squares : 0;
  return squares > 0 ? products / squares : 0;
}

static void quantise_q4(int64_t n, const float *from, LowbitQ4Block *block) {
  enum { STEPS = 13 };
  float x[LOWBIT_BLOCK] = {0}, best = 0, best_explained = 0;
  memcpy(x, from, (size_t)n * sizeof *x);
  const float max = largest(LOWBIT_BLOCK, x);
  for (int step = 0; max != 0 && step < 2 * STEPS + 1; step++) {
    const float levels = step <= STEPS ? -6.7f - 0.2f * (float)step : 5.9f + 0.2f * (float)(step - STEPS);
    float explained;
    const float refined = refine(x, levels / max, &explained);
    if (explained > best_explained) best = refined, best_explained = explained;
  }
  block->scale = half_of(best);
  const float scale = narrow_half_to_float(block->scale), inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < LOWBIT_BLOCK / 2; i++) {
    const int low = (int)round_4(x[i], inverse) - MIN_Q4, high = (int)round_4(x[LOWBIT_BLOCK / 2 + i], inverse) - MIN_Q4;
    block->number[i] = (uint8_t)(low | high << 4);
  }
}

void lowbit_quantise(LowbitKind kind, int64_t n, const float *x, void *numbers, float *scale) {
  if (kind == LOWBIT_INT8) {
    *scale = fabsf(largest(n, x)) / 127;
    round_8(n, x, *scale, numbers);
    return;
  }
  for (int64_t at = 0, b = 0; at < n; at += LOWBIT_BLOCK, b++) {
    const int64_t count = n - at < LOWBIT_BLOCK ? n - at : LOWBIT_BLOCK;
    LowbitQ8Block *block = (LowbitQ8Block *)numbers + b;
    if (kind == LOWBIT_Q4_0) {
      quantise_q4(count, x + at, (LowbitQ4Block *)numbers + b);
      continue;
    }
    const float max = fabsf(largest(count, x + at));
    block->scale = lowbit_q8_scale(half_of(max / 127), max);
    memset(block->number, 0, sizeof block->number);
    round_8(count, x + at, narrow_half_to_float(block->scale), block->number);
  }
}
