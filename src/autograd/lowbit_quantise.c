/* Rounding of weights: see lowbit_quantise.h. */
#include "autograd/lowbit_quantise.h"
#include "autograd/narrow.h"
#include <math.h>
#include <string.h>

enum { MIN_Q4 = -8, MAX_Q4 = 7 };

/* To the nearest half, magnitudes above the largest one to that. */
static uint16_t half_of(float x) {
  const uint16_t sign = x < 0 ? 0x8000 : 0;
  const float magnitude = fminf(fabsf(x), 65504);
  int exponent;
  const float fraction = frexpf(magnitude, &exponent); /* [0.5, 1) 2^exponent */
  if (magnitude < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(magnitude * 0x1p24f));
  const long bits = lrintf(fraction * 2048); /* 1024 to 2048: a carry goes into the exponent */
  return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + bits));
}

static float largest(int64_t n, const float *x) {
  float most = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(most)) most = x[i];
  return most;
}

static void round_8(int64_t n, const float *x, float scale, int8_t *q) {
  for (int64_t i = 0; i < n; i++) q[i] = scale > 0 ? (int8_t)fmaxf(-127, fminf(127, rintf(x[i] / scale))) : 0;
}

static void quantise_q8(int64_t n, const float *x, LowbitQ8Block *block) {
  block->scale = half_of(fabsf(largest(n, x)) / 127);
  memset(block->number, 0, sizeof block->number);
  round_8(n, x, narrow_half_to_float(block->scale), block->number);
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

static float best_scale_4(const float x[LOWBIT_BLOCK]) {
  enum { STEPS = 13 };
  const float most = largest(LOWBIT_BLOCK, x);
  float best = 0, best_explained = 0;
  for (int step = 0; most != 0 && step < 2 * STEPS + 1; step++) {
    const float levels = step <= STEPS ? -6.7f - 0.2f * (float)step : 5.9f + 0.2f * (float)(step - STEPS);
    float explained;
    const float scale = refine(x, levels / most, &explained);
    if (explained > best_explained) best = scale, best_explained = explained;
  }
  return best;
}

static void quantise_q4(int64_t n, const float *from, LowbitQ4Block *block) {
  float x[LOWBIT_BLOCK] = {0};
  memcpy(x, from, (size_t)n * sizeof *x);
  block->scale = half_of(best_scale_4(x));
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
    if (kind == LOWBIT_Q8_0)
      quantise_q8(count, x + at, (LowbitQ8Block *)numbers + b);
    else
      quantise_q4(count, x + at, (LowbitQ4Block *)numbers + b);
  }
}
