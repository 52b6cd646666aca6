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

static float block_number(const LowbitMatrix *matrix, const void *row, int64_t i) {
  const int64_t b = i / LOWBIT_BLOCK, place = i % LOWBIT_BLOCK;
  if (matrix->kind == LOWBIT_Q8_0) {
    const LowbitQ8Block *block = (const LowbitQ8Block *)row + b;
    return narrow_half_to_float(block->scale) * (float)block->number[place];
  }
  const LowbitQ4Block *block = (const LowbitQ4Block *)row + b;
  const int half = LOWBIT_BLOCK / 2, pair = block->number[place % half];
  return narrow_half_to_float(block->scale) * (float)((place < half ? pair & 15 : pair >> 4) - 8);
}

void lowbit_widen(const LowbitMatrix *matrix, int64_t output, int64_t first, int64_t count, real *value) {
  const int8_t *row = (const int8_t *)matrix->numbers + (size_t)output * lowbit_row_bytes(matrix->kind, matrix->inputs);
  for (int64_t i = 0; i < count; i++)
    value[i] = (real)(matrix->kind == LOWBIT_INT8 ? matrix->scale[output] * (float)row[first + i] : block_number(matrix, row, first + i));
}
