/* See gguf_blocks.h. A few operations a number, once per load: written for reading, the inner loops run over 32 or 16 neighbours. */
#include "nn/gguf_blocks.h"
#include "autograd/narrow.h"
#include "nn/safetensors.h"
#include <math.h>
#include <string.h>

static float half_at(const uint8_t *bytes) {
  uint16_t half;
  memcpy(&half, bytes, sizeof half);
  return narrow_half_to_float(half);
}

/* Scale and minimum of 32 numbers, of 6 bits each: the last four pairs are spread over all twelve bytes. */
static void scale_of_q4(const uint8_t *b, int j, int *scale, int *minimum) {
  *scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
  *minimum = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | (b[j] >> 6) << 4;
}

static void widen_q4(const uint8_t *block, float *value) {
  const float d = half_at(block), least = half_at(block + 2);
  const uint8_t *scales = block + 4, *numbers = block + 16;
  for (int j = 0; j < GGUF_BLOCK / 32; j++) {
    int scale, minimum;
    scale_of_q4(scales, j, &scale, &minimum);
    const float step = d * (float)scale, offset = least * (float)minimum;
    const uint8_t *pairs = numbers + 32 * (j / 2);
    for (int i = 0; i < 32; i++) value[32 * j + i] = step * (float)(pairs[i] >> 4 * (j % 2) & 15) - offset;
  }
}

static void widen_q6(const uint8_t *block, float *value) {
  const uint8_t *low = block, *high = block + 128;
  const int8_t *scales = (const int8_t *)block + 192;
  const float d = half_at(block + 208);
  for (int j = 0; j < GGUF_BLOCK / 16; j++) {
    const int half = j / 8, first = 16 * (j % 8); /* of 16 numbers in a half of 128 */
    const uint8_t *nibbles = low + 64 * half + first % 64, *pairs = high + 32 * half + first % 32;
    const int low_shift = first < 64 ? 0 : 4, high_shift = 2 * (first / 32);
    const float step = d * (float)scales[j];
    for (int i = 0; i < 16; i++) {
      const int q = (nibbles[i] >> low_shift & 15) | (pairs[i] >> high_shift & 3) << 4;
      value[16 * j + i] = step * (float)(q - 32);
    }
  }
}

void gguf_block_widen(uint32_t type, const uint8_t *block, float *value) {
  if (type == GGUF_DATA_Q4_K)
    widen_q4(block, value);
  else
    widen_q6(block, value);
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Magnitudes are compared as whole numbers, which orders infinities and NaNs above all others, and rounded by an addition: every load of a
 * file runs through here for billions of numbers, and such loops become vector instructions. */
void gguf_block_to_q8(const float *value, int64_t count, LowbitQ8Block *out) {
  const float rounding = 0x1.8p23f; /* a float of this size has its last bit at 1 */
  for (; count > 0; count -= LOWBIT_BLOCK, value += LOWBIT_BLOCK, out++) {
    uint32_t bits = 0;
    for (int i = 0; i < LOWBIT_BLOCK; i++) {
      const uint32_t magnitude = bits_of(value[i]) & 0x7fffffffu;
      bits = magnitude > bits ? magnitude : bits;
    }
    const float largest = narrow_float_of_bits(bits);
    out->scale = safetensors_float_to_half(largest / 127);
    if (127.49f * narrow_half_to_float(out->scale) < largest) out->scale++; /* a small one was rounded down by much */
    const float scale = narrow_half_to_float(out->scale), per = isfinite(scale) && scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < LOWBIT_BLOCK; i++) out->number[i] = (int8_t)(uint8_t)bits_of(value[i] * per + rounding);
  }
}
