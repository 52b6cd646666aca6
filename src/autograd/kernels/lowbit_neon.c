/* Products with weights of 8 and 4 bits by arm64's dot products of signed bytes (sdot): one instruction multiplies 16 by 16 bytes and adds
 * them by fours into four sums. Its operands are both signed, so panels hold weights as they are: INT8 and Q8_0 without an offset, nibbles
 * of Q4_0 from 0 to 15.
 *
 * Many rows: four rows by a panel, 16 vectors of sums in registers; a panel's step of four inputs costs four loads for 16 instructions.
 * One row: four outputs at a time, added across in the order of their blocks, as in the other case. */
#include "autograd/kernels/lowbit_kernels.h"

#if !REAL_IS_DOUBLE && defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static float peak_of(int64_t n, const float *x) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t max = vdupq_n_u32(0);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude));
  return lowbit_peak(vmaxvq_u32(max), n - i, x + i);
}

static void quantise(int64_t n, const float *x, int8_t *a, float *scale, int32_t *sum) {
  const float inverse = lowbit_inverse_scale(peak_of(n, x), scale);
  *sum = 0;
  if (inverse == 0) {
    memset(a, 0, (size_t)n);
    return;
  }
  int32x4_t total = vdupq_n_s32(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
    const int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), inverse));
    total = vaddq_s32(total, vaddq_s32(low, high));
    vst1_s8(a + i, vmovn_s16(vcombine_s16(vmovn_s32(low), vmovn_s32(high))));
  }
  *sum = vaddvq_s32(total);
  for (; i < n; i++) {
    a[i] = (int8_t)vcvtns_s32_f32(x[i] * inverse);
    *sum += a[i];
  }
}

/* ---- pieces of rows ---- */

INLINE int64_t block_bytes(LowbitKind kind) { return kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block); }

INLINE const uint8_t *row_at(const uint8_t *numbers, int64_t row_bytes, int64_t output, int64_t outputs) {
  return numbers + (output < outputs ? output : outputs - 1) * row_bytes;
}

/* Inputs 16 half to 16 half + 15 of a block. */
INLINE int8x16_t half_block(LowbitKind kind, const uint8_t *block, int half) {
  if (kind == LOWBIT_Q8_0) return vld1q_s8((const int8_t *)block + offsetof(LowbitQ8Block, number) + 16 * half);
  const uint8x16_t pairs = vld1q_u8(block + offsetof(LowbitQ4Block, number));
  return vreinterpretq_s8_u8(half ? vshrq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15)));
}

INLINE int8x16_t int8_piece(const uint8_t *row, int64_t left) {
  uint8_t last[16] = {0};
  if (left >= 16) return vld1q_s8((const int8_t *)row);
  memcpy(last, row, (size_t)left);
  return vld1q_s8((const int8_t *)last);
}

/* What the sums have too much: q = u - 8 of nibbles alone. */
INLINE int32_t offset_of(int offset) { return offset == 8 ? 8 : 0; }

/* The scales of a block of four rows. */
INLINE float32x4_t four_scales(const uint8_t *const block[4]) {
  uint16_t half[4];
  for (int o = 0; o < 4; o++) memcpy(&half[o], block[o], sizeof half[o]);
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half)));
}

/* ---- interleaving ---- */

/* 16 bytes of each of four rows -> four bytes of each, at `to` and each step of a panel behind it. */
INLINE void interleave_4(const int8x16_t piece[4], uint8_t *to) {
  const uint32x4_t row[4] = {vreinterpretq_u32_s8(piece[0]), vreinterpretq_u32_s8(piece[1]), vreinterpretq_u32_s8(piece[2]),
                             vreinterpretq_u32_s8(piece[3])};
  const uint32x4_t low02 = vzip1q_u32(row[0], row[2]), low13 = vzip1q_u32(row[1], row[3]);
  const uint32x4_t high02 = vzip2q_u32(row[0], row[2]), high13 = vzip2q_u32(row[1], row[3]);
  vst1q_u8(to, vreinterpretq_u8_u32(vzip1q_u32(low02, low13)));
  vst1q_u8(to + 64, vreinterpretq_u8_u32(vzip2q_u32(low02, low13)));
  vst1q_u8(to + 128, vreinterpretq_u8_u32(vzip1q_u32(high02, high13)));
  vst1q_u8(to + 192, vreinterpretq_u8_u32(vzip2q_u32(high02, high13)));
}

INLINE void block_panel(LowbitKind kind, int64_t outputs, int64_t blocks, const uint8_t *numbers, int64_t row_bytes, uint8_t *to,
                        float *scale) {
  for (int o = 0; o < LOWBIT_PANEL; o += 4)
    for (int64_t b = 0; b < blocks; b++) {
      const uint8_t *block[4];
      for (int e = 0; e < 4; e++) block[e] = row_at(numbers, row_bytes, o + e, outputs) + b * block_bytes(kind);
      vst1q_f32(scale + b * LOWBIT_PANEL + o, four_scales(block));
      for (int half = 0; half < 2; half++) {
        int8x16_t piece[4];
        for (int e = 0; e < 4; e++) piece[e] = half_block(kind, block[e], half);
        interleave_4(piece, to + (b * 8 + half * 4) * 64 + o * 4);
      }
    }
}

static void int8_panel(int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *to) {
  for (int o = 0; o < LOWBIT_PANEL; o += 4)
    for (int64_t i = 0; i < inputs; i += 16) {
      int8x16_t piece[4];
      for (int e = 0; e < 4; e++) piece[e] = int8_piece(row_at(numbers, row_bytes, o + e, outputs) + i, inputs - i);
      interleave_4(piece, to + i * LOWBIT_PANEL + o * 4);
    }
}

static void panel(LowbitKind kind, int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *to, float *scale) {
  if (kind == LOWBIT_INT8)
    int8_panel(outputs, inputs, numbers, row_bytes, to);
  else if (kind == LOWBIT_Q8_0)
    block_panel(LOWBIT_Q8_0, outputs, lowbit_groups(kind, inputs), numbers, row_bytes, to, scale);
  else
    block_panel(LOWBIT_Q4_0, outputs, lowbit_groups(kind, inputs), numbers, row_bytes, to, scale);
}

/* ---- many rows ---- */

enum { QUARTERS = 4 /* of a panel: four outputs each */ };

/* Adds inputs [16 first, 16 end) of R rows by a panel. */
INLINE void multiply(int R, const LowbitTile *t, int64_t r0, const uint8_t *w, int64_t first, int64_t end, int32x4_t sums[4][QUARTERS]) {
  for (int64_t i = first; i < end; i++) {
    int8x16_t a[4];
    for (int r = 0; r < R; r++) a[r] = vld1q_s8(t->x.a + (r0 + r) * t->x.stride + 16 * i);
#define ADD_STEP(step)                                                                                                                     \
  for (int q = 0; q < QUARTERS; q++) {                                                                                                     \
    const int8x16_t four = vld1q_s8((const int8_t *)w + (4 * i + (step)) * 64 + 16 * q);                                                   \
    for (int r = 0; r < R; r++) sums[r][q] = vdotq_laneq_s32(sums[r][q], four, a[r], step);                                                \
  }
    ADD_STEP(0)
    ADD_STEP(1)
    ADD_STEP(2)
    ADD_STEP(3)
#undef ADD_STEP
  }
}

INLINE void store(const LowbitTile *t, int64_t row, int64_t column, const float32x4_t value[QUARTERS]) {
  float *c = t->c + row * t->ldc + column, result[LOWBIT_PANEL];
  const int64_t columns = t->columns - column < LOWBIT_PANEL ? t->columns - column : LOWBIT_PANEL;
  for (int q = 0; q < QUARTERS; q++) vst1q_f32(result + 4 * q, value[q]);
  for (int64_t o = 0; o < columns; o++) c[o] = t->add ? c[o] + result[o] : result[o];
}

INLINE void rows_of_tile(int R, const LowbitTile *t, int64_t r0, int64_t p) {
  const int64_t groups = t->x.groups, column = p * LOWBIT_PANEL, left = t->columns - column;
  const uint8_t *w = t->panels + p * t->panel_bytes;
  float last[LOWBIT_PANEL] = {0};
  float32x4_t value[4][QUARTERS];
  if (!t->blocks) memcpy(last, t->scale + column, (size_t)(left < LOWBIT_PANEL ? left : LOWBIT_PANEL) * sizeof *last);
  for (int r = 0; r < R; r++)
    for (int q = 0; q < QUARTERS; q++) value[r][q] = vdupq_n_f32(0);
  for (int64_t g = 0; g < groups; g++) {
    const float *scale = t->blocks ? t->scale + (p * groups + g) * LOWBIT_PANEL : last;
    int32x4_t sums[4][QUARTERS];
    for (int r = 0; r < R; r++)
      for (int q = 0; q < QUARTERS; q++) sums[r][q] = vdupq_n_s32(-offset_of(t->offset) * t->x.sum[(r0 + r) * groups + g]);
    multiply(R, t, r0, w, 2 * g, t->blocks ? 2 * g + 2 : (t->inputs + 15) / 16, sums);
    for (int r = 0; r < R; r++)
      for (int q = 0; q < QUARTERS; q++) {
        const float32x4_t both = vmulq_n_f32(vld1q_f32(scale + 4 * q), t->x.scale[(r0 + r) * groups + g]);
        value[r][q] = vfmaq_f32(value[r][q], vcvtq_f32_s32(sums[r][q]), both);
      }
  }
  for (int r = 0; r < R; r++) store(t, r0 + r, column, value[r]);
}

static void tile(const LowbitTile *t) {
  for (int64_t p = 0; p * LOWBIT_PANEL < t->columns; p++) {
    int64_t r = 0;
    for (; r + 4 <= t->rows; r += 4) rows_of_tile(4, t, r, p);
    for (; r < t->rows; r++) rows_of_tile(1, t, r, p);
  }
}

/* ---- one row, four outputs at a time ---- */

INLINE int32x4_t add_across(const int32x4_t sums[4]) { return vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])); }

INLINE void store_dots(const LowbitDots *d, int64_t o, float32x4_t value) {
  float result[4];
  vst1q_f32(result, value);
  for (int e = 0; e < 4 && o + e < d->outputs; e++) d->y[o + e] = d->add ? d->y[o + e] + result[e] : result[e];
}

static void int8_dots(const LowbitDots *d, int64_t o) {
  int32x4_t sums[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  float scale[4] = {0};
  for (int64_t i = 0; i < d->inputs; i += 16) {
    const int8x16_t a = vld1q_s8(d->x.a + i);
    for (int e = 0; e < 4; e++)
      sums[e] = vdotq_s32(sums[e], int8_piece(row_at(d->numbers, d->row_bytes, o + e, d->outputs) + i, d->inputs - i), a);
  }
  for (int e = 0; e < 4 && o + e < d->outputs; e++) scale[e] = d->scale[o + e];
  store_dots(d, o, vmulq_f32(vcvtq_f32_s32(add_across(sums)), vmulq_n_f32(vld1q_f32(scale), d->x.scale[0])));
}

INLINE void block_dots(LowbitKind kind, const LowbitDots *d, int64_t o) {
  float32x4_t value = vdupq_n_f32(0);
  const uint8_t *block[4];
  for (int e = 0; e < 4; e++) block[e] = row_at(d->numbers, d->row_bytes, o + e, d->outputs);
  for (int64_t g = 0; g < d->x.groups; g++) {
    const int8x16_t low = vld1q_s8(d->x.a + g * LOWBIT_BLOCK), high = vld1q_s8(d->x.a + g * LOWBIT_BLOCK + 16);
    int32x4_t sums[4];
    for (int e = 0; e < 4; e++)
      sums[e] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), half_block(kind, block[e], 0), low), half_block(kind, block[e], 1), high);
    const int32x4_t less = vdupq_n_s32(offset_of(lowbit_offset(kind)) * d->x.sum[g]);
    const float32x4_t both = vmulq_n_f32(four_scales(block), d->x.scale[g]);
    value = vfmaq_f32(value, vcvtq_f32_s32(vsubq_s32(add_across(sums), less)), both);
    for (int e = 0; e < 4; e++) block[e] += block_bytes(kind);
  }
  store_dots(d, o, value);
}

LOWBIT_DOTS(4)

static const LowbitKernels neon_table = {"neon", quantise, panel, tile, dots, NULL};

const LowbitKernels *lowbit_neon(void) { return &neon_table; }
#else
const LowbitKernels *lowbit_neon(void) { return NULL; }
#endif
