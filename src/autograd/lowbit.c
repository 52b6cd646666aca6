/* The layouts of weights of 8 and 4 bits: see lowbit.h. */
#include "autograd/lowbit.h"
#include "autograd/narrow.h"

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

static void widen_int8(const int8_t *number, float scale, int64_t count, real *value) {
  for (int64_t i = 0; i < count; i++) value[i] = (real)(scale * (float)number[i]);
}

void lowbit_widen(const LowbitMatrix *matrix, int64_t output, int64_t first, int64_t count, real *value) {
  const uint8_t *row = (const uint8_t *)matrix->numbers + (size_t)output * lowbit_row_bytes(matrix->kind, matrix->inputs);
  if (matrix->kind == LOWBIT_INT8) {
    widen_int8((const int8_t *)row + first, matrix->scale[output], count, value);
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
