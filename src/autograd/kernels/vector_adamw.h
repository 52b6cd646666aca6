/* AdamW on vectors, with moments in floats, in bfloat16 and in bytes. Narrow ones go through a block of floats in the first cache: widened,
 * updated, rounded. The same draws as the portable code, from v_philox. */
#ifndef AUTOGRAD_VECTOR_ADAMW_H
#define AUTOGRAD_VECTOR_ADAMW_H
#include "autograd/kernels/vector_math.h"

static void vector_adamw(int64_t n, float *w, const float *grad, float *m, float *v, const AdamwStep *step) {
  const Vector keep1 = v_set(step->b1), keep2 = v_set(step->b2), inverse1 = v_set(1 / step->c1), inverse2 = v_set(1 / step->c2);
  const float new1 = 1 - step->b1, new2 = 1 - step->b2;
  EACH_VECTOR(n, {
    const Vector g = v_load(grad + i, left) * step->scale;
    const Vector first = v_fma(keep1, v_load(m + i, left), g * new1);
    const Vector second = v_fma(keep2, v_load(v + i, left), g * g * new2);
    const Vector weight = v_load(w + i, left);
    v_store(m + i, first, left);
    v_store(v + i, second, left);
    v_store(w + i, weight - (first * inverse1 / (v_sqrt(second * inverse2) + step->eps) + weight * step->decay) * step->rate, left);
  });
}

/* 16 random bits for each number of a block, the lower half of a word first. */
static inline void draw_halves(uint64_t seed, uint64_t counter, uint16_t half[ADAMW_BLOCK]) {
  for (int i = 0; i < ADAMW_BLOCK; i += 2 * PHILOX_WORDS * VECTOR_WIDTH, counter += VECTOR_WIDTH) {
    Words word[PHILOX_WORDS];
    Vector block[PHILOX_WORDS];
    v_philox(seed, counter, word);
    for (int r = 0; r < PHILOX_WORDS; r++) block[r] = (Vector)word[r];
    v_transpose_4x4(block);
    memcpy(half + i, block, sizeof block);
  }
}

static inline Words halves_of(const uint16_t *half, int64_t left) { return (Words)v_load_bfloat(half, left) >> 16; }

static void vector_adamw_bf16(int64_t n, float *w, const float *grad, uint16_t *m, uint16_t *v, const AdamwStep *step, uint64_t counter) {
  for (int64_t at = 0; at < n; at += ADAMW_BLOCK, counter += ADAMW_BLOCK / ADAMW_DRAWS) {
    const int64_t count = n - at < ADAMW_BLOCK ? n - at : ADAMW_BLOCK;
    float first[ADAMW_BLOCK], second[ADAMW_BLOCK];
    uint16_t draw[ADAMW_BLOCK];
    EACH_VECTOR(count, {
      v_store(first + i, v_load_bfloat(m + at + i, left), left);
      v_store(second + i, v_load_bfloat(v + at + i, left), left);
    });
    vector_adamw(count, w + at, grad + at, first, second, step);
    draw_halves(step->seed, counter, draw);
    EACH_VECTOR(count, {
      const Words either = (Words)v_load(second + i, left) + halves_of(draw + i, left);
      v_store_bfloat(m + at + i, v_load(first + i, left), left);
      v_store_bfloat(v + at + i, (Vector)(either & 0xffff0000u), left);
    });
  }
}

/* A scale below this counts as 0, so that its inverse is a number. */
#define MIN_SCALE 1e-30f

static inline float block_scale(const float x[ADAMW_BLOCK]) {
  Vector max = v_set(0);
  for (int i = 0; i < ADAMW_BLOCK; i += VECTOR_WIDTH) max = v_max(max, v_absolute(v_load(x + i, VECTOR_WIDTH)));
  const float scale = v_reduce_max(max);
  return scale < MIN_SCALE ? 0 : scale;
}

static inline Vector fourth_power(Vector x) { return x * x * (x * x); }

static inline void bytes_to_moments(const uint8_t *m, const uint8_t *v, float m_scale, float v_scale, float *first, float *second) {
  for (int i = 0; i < ADAMW_BLOCK; i += VECTOR_WIDTH) {
    const Vector root = (v_load_bytes(m + i) - 128) * (1 / 127.0f);
    const Words sign = (Words)root & 0x80000000u;
    v_store(first + i, (Vector)((Words)(fourth_power(root) * m_scale) | sign), VECTOR_WIDTH);
    v_store(second + i, fourth_power(v_load_bytes(v + i) * (1 / 255.0f)) * v_scale, VECTOR_WIDTH);
  }
}

static inline void first_to_bytes(const float *first, float inverse, uint8_t *m) {
  for (int i = 0; i < ADAMW_BLOCK; i += VECTOR_WIDTH) {
    const Vector share = v_load(first + i, VECTOR_WIDTH) * inverse;
    const Words root = (Words)v_round(v_sqrt(v_sqrt(v_absolute(share))) * 127);
    v_store_bytes(m + i, (Vector)(root | ((Words)share & 0x80000000u)) + 128);
  }
}

/* The root is between two codes; the upper one is taken with the probability that keeps the mean. */
static inline void second_to_bytes(const float *second, float inverse, const uint16_t *draw, uint8_t *v) {
  const Vector none = v_set(0), one = v_set(1);
  for (int i = 0; i < ADAMW_BLOCK; i += VECTOR_WIDTH) {
    const Vector share = v_load(second + i, VECTOR_WIDTH) * inverse;
    const Vector root = v_sqrt(v_sqrt(share)) * 255;
    const Vector below = v_round(root - 0.5f);
    const Vector low = fourth_power(below);
    const Vector chance = (v_to_float((Integers)halves_of(draw + i, VECTOR_WIDTH)) + 0.5f) * 0x1p-16f;
    const Mask up = v_less(chance * (fourth_power(below + 1) - low), fourth_power(root) - low);
    const Vector code = v_max(below + v_select(up, one, none), v_select(v_less(none, share), one, none));
    v_store_bytes(v + i, v_min(code, v_set(255)));
  }
}

/* A last block that is not full is laid out in one that is, with zeros behind. */
static void vector_adamw_bytes(int64_t n, float *w, const float *grad, uint8_t *m, uint8_t *v, float *m_scale, float *v_scale,
                               const AdamwStep *step, uint64_t counter) {
  for (int64_t at = 0; at < n; at += ADAMW_BLOCK, counter += ADAMW_BLOCK / ADAMW_DRAWS, m_scale++, v_scale++) {
    const size_t count = n - at < ADAMW_BLOCK ? (size_t)(n - at) : ADAMW_BLOCK;
    float first[ADAMW_BLOCK], second[ADAMW_BLOCK];
    uint8_t codes[2][ADAMW_BLOCK] = {{0}};
    uint16_t draw[ADAMW_BLOCK];
    memcpy(codes[0], m + at, count);
    memcpy(codes[1], v + at, count);
    bytes_to_moments(codes[0], codes[1], *m_scale, *v_scale, first, second);
    memset(first + count, 0, (ADAMW_BLOCK - count) * sizeof *first);
    memset(second + count, 0, (ADAMW_BLOCK - count) * sizeof *second);
    vector_adamw((int64_t)count, w + at, grad + at, first, second, step);
    draw_halves(step->seed, counter, draw);
    *m_scale = block_scale(first);
    *v_scale = block_scale(second);
    first_to_bytes(first, *m_scale > 0 ? 1 / *m_scale : 0, codes[0]);
    second_to_bytes(second, *v_scale > 0 ? 1 / *v_scale : 0, draw, codes[1]);
    memcpy(m + at, codes[0], count);
    memcpy(v + at, codes[1], count);
  }
}

#endif
