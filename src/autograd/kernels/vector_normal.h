/* Normal numbers on vectors: Philox4x32-10 on one counter a lane, Box and Muller on the words. The same bits as philox.h. */
#ifndef AUTOGRAD_VECTOR_NORMAL_H
#define AUTOGRAD_VECTOR_NORMAL_H
#include "autograd/kernels/philox.h"

/* Lane 4 l + k runs counter WIDTH/4 k + l, so that transposing 4 x 4 numbers within 128-bit lanes puts them in order. */
static inline void v_philox(uint64_t key, uint64_t counter, Words word[PHILOX_WORDS]) {
  uint32_t offset[VECTOR_WIDTH];
  for (uint32_t lane = 0; lane < VECTOR_WIDTH; lane++) offset[lane] = VECTOR_WIDTH / 4 * (lane % 4) + lane / 4;
  Words w0, w1, w2 = {0}, w3 = {0};
  memcpy(&w0, offset, sizeof w0);
  w0 += (uint32_t)counter;
  w1 = (uint32_t)(counter >> 32) - (Words)(w0 < (uint32_t)counter); /* the carry: a true comparison is -1 */
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    Words high0, low0, high2, low2;
    v_multiply_wide(w0, PHILOX_MULTIPLIER_0, &high0, &low0);
    v_multiply_wide(w2, PHILOX_MULTIPLIER_2, &high2, &low2);
    w0 = high2 ^ w1 ^ key0;
    w1 = low2;
    w2 = high0 ^ w3 ^ key1;
    w3 = low0;
    key0 += PHILOX_KEY_STEP_0;
    key1 += PHILOX_KEY_STEP_1;
  }
  word[0] = w0, word[1] = w1, word[2] = w2, word[3] = w3;
}

/* A radius from the first word (31 bits, never 0), an angle from the second. */
static inline void v_box_muller(const Words word[2], Vector x[2]) {
  const Vector u = (v_to_float((Integers)(word[0] >> 1)) + 0.5f) * 0x1p-31f;
  const Vector radius = v_sqrt(v_max(v_set(0.0f), v_log(u) * -2.0f));
  Vector sine, cosine;
  v_sin_cos(word[1], &sine, &cosine);
  x[0] = radius * cosine;
  x[1] = radius * sine;
}

static void vector_normal(int64_t n, uint64_t seed, uint64_t counter, float *x) {
  for (int64_t i = 0; i < n; i += PHILOX_WORDS * VECTOR_WIDTH, counter += VECTOR_WIDTH) {
    Words word[PHILOX_WORDS];
    Vector block[PHILOX_WORDS];
    v_philox(seed, counter, word);
    v_box_muller(word, block);
    v_box_muller(word + 2, block + 2);
    v_transpose_4x4(block);
    for (int r = 0; r < PHILOX_WORDS; r++) {
      const int64_t at = i + r * VECTOR_WIDTH, left = n - at;
      if (left > 0) v_store(x + at, block[r], left < VECTOR_WIDTH ? left : VECTOR_WIDTH);
    }
  }
}

#endif
