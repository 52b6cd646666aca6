/* Products with weights of 8 and 4 bits by AVX-512's dot products of bytes (VNNI): one instruction multiplies 64 unsigned by 64 signed
 * bytes and adds them by fours into 16 sums.
 *
 * Many rows: 12 rows by two panels, 24 sums in registers (block weights: 6 rows, for their float sums need as many). Each group of four
 * inputs costs two loads of weights and a broadcast a row for 24 instructions: near the processor's peak, with the rows in the first-level
 * and the panels in the second-level cache.
 * One row: bound by reading the weights. 16 outputs are read at a time and interleaved in registers, so that sums lie as in the other case
 * and are added in the same order. Measured, this is twice as fast as a vector of sums for each output, added across at the end. */
#include "autograd/kernels/lowbit_kernels.h"

#if !REAL_IS_DOUBLE && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* sums + the products of unsigned and signed bytes, by fours. Not the intrinsic: gcc 12 copies its sums around, at half the speed. */
INLINE __m512i add_products(__m512i sums, __m512i bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(signed_bytes));
  return sums;
}

/* ---- activations ---- */

INLINE __mmask16 first_16(int64_t left) { return (__mmask16)(left >= 16 ? 0xffffu : left <= 0 ? 0u : (1u << left) - 1); }

/* Magnitudes are compared by their bits: NaNs are the largest. */
static void quantise(int64_t n, const float *x, int8_t *a, float *scale, int32_t *sum) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i max = _mm512_setzero_si512(), next = max, total = max;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    next = _mm512_max_epu32(next, _mm512_and_si512(_mm512_loadu_si512(x + i + 16), magnitude));
  }
  for (; i < n; i += 16) max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_maskz_loadu_epi32(first_16(n - i), x + i), magnitude));
  max = _mm512_max_epu32(max, next);
  i = 0;
  const uint32_t bits = _mm512_reduce_max_epu32(max);
  float peak;
  memcpy(&peak, &bits, sizeof peak);
  const float inverse = lowbit_inverse_scale(peak, scale);
  *sum = 0;
  if (inverse == 0) {
    memset(a, 0, (size_t)n);
    return;
  }
  const __m512 factor = _mm512_set1_ps(inverse);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); /* packing goes by quarters */
  for (; i + 64 <= n; i += 64) {
    __m512i v[4];
    for (int e = 0; e < 4; e++) v[e] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i + 16 * e), factor));
    v[0] = _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
    total = add_products(total, _mm512_set1_epi8(1), v[0]);
    _mm512_storeu_si512(a + i, _mm512_permutexvar_epi32(order, v[0]));
  }
  for (; i < n; i += 16) {
    const __mmask16 mask = first_16(n - i);
    const __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), factor));
    total = _mm512_add_epi32(total, number);
    _mm_mask_storeu_epi8(a + i, mask, _mm512_cvtepi32_epi8(number));
  }
  *sum = _mm512_reduce_add_epi32(total);
}

/* ---- interleaving ---- */

/* Into the caches; addresses behind the matrix do no harm. */
INLINE void fetch(const uint8_t *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)from + i, _MM_HINT_T0);
}

/* 16 bytes of each of 16 rows -> four vectors, each with four bytes of every row, row by row. */
INLINE void interleave(const __m128i row[LOWBIT_PANEL], __m512i v[4]) {
  __m512i z[4];
  for (int e = 0; e < 4; e++) {
    z[e] = _mm512_castsi128_si512(row[e]);
    z[e] = _mm512_inserti32x4(z[e], row[4 + e], 1);
    z[e] = _mm512_inserti32x4(z[e], row[8 + e], 2);
    z[e] = _mm512_inserti32x4(z[e], row[12 + e], 3);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), low23 = _mm512_unpacklo_epi32(z[2], z[3]);
  const __m512i high01 = _mm512_unpackhi_epi32(z[0], z[1]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
  v[0] = _mm512_unpacklo_epi64(low01, low23);
  v[1] = _mm512_unpackhi_epi64(low01, low23);
  v[2] = _mm512_unpacklo_epi64(high01, high23);
  v[3] = _mm512_unpackhi_epi64(high01, high23);
}

INLINE void interleave_at(const uint8_t *const row[LOWBIT_PANEL], int64_t at, __m512i v[4]) {
  __m128i piece[LOWBIT_PANEL];
  for (int o = 0; o < LOWBIT_PANEL; o++) piece[o] = _mm_loadu_si128((const __m128i *)(const void *)(row[o] + at));
  interleave(piece, v);
}

/* The last bytes of rows, fewer than 16. */
INLINE void interleave_rest(const uint8_t *const row[LOWBIT_PANEL], int64_t at, int64_t left, __m512i v[4]) {
  __m128i piece[LOWBIT_PANEL];
  for (int o = 0; o < LOWBIT_PANEL; o++) piece[o] = _mm_maskz_loadu_epi8(first_16(left), row[o] + at);
  interleave(piece, v);
}

INLINE __m512i flip(__m512i v) { return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80)); }

/* Block b of 16 rows: eight vectors of unsigned bytes. */
INLINE void interleave_block(LowbitKind kind, const uint8_t *const row[LOWBIT_PANEL], int64_t b, __m512i v[8]) {
  if (kind == LOWBIT_Q8_0) {
    const int64_t at = b * (int64_t)sizeof(LowbitQ8Block) + (int64_t)offsetof(LowbitQ8Block, number);
    interleave_at(row, at, v);
    interleave_at(row, at + 16, v + 4);
    for (int i = 0; i < 8; i++) v[i] = flip(v[i]);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(15);
  interleave_at(row, b * (int64_t)sizeof(LowbitQ4Block) + (int64_t)offsetof(LowbitQ4Block, number), v);
  for (int i = 0; i < 4; i++) {
    v[4 + i] = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), nibble);
    v[i] = _mm512_and_si512(v[i], nibble);
  }
}

INLINE __m512 scales_of_block(LowbitKind kind, const uint8_t *const row[LOWBIT_PANEL], int64_t b) {
  const int64_t at = b * (int64_t)(kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block));
  uint16_t half[LOWBIT_PANEL];
  for (int o = 0; o < LOWBIT_PANEL; o++) memcpy(&half[o], row[o] + at, sizeof half[o]);
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half));
}

INLINE void rows_of_panel(int64_t outputs, const uint8_t *numbers, int64_t row_bytes, const uint8_t *row[LOWBIT_PANEL]) {
  for (int64_t o = 0; o < LOWBIT_PANEL; o++) row[o] = numbers + (o < outputs ? o : outputs - 1) * row_bytes;
}

INLINE void block_panel(LowbitKind kind, int64_t blocks, const uint8_t *const row[LOWBIT_PANEL], const uint8_t *next, uint8_t *to,
                        float *scale) {
  const int64_t bytes = LOWBIT_PANEL * (int64_t)(kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block));
  for (int64_t b = 0; b < blocks; b++) {
    __m512i v[8];
    fetch(next + b * bytes, bytes);
    interleave_block(kind, row, b, v);
    for (int i = 0; i < 8; i++) _mm512_storeu_si512(to + (b * 8 + i) * 64, v[i]);
    _mm512_storeu_ps(scale + b * LOWBIT_PANEL, scales_of_block(kind, row, b));
  }
}

static void int8_panel(int64_t inputs, const uint8_t *const row[LOWBIT_PANEL], const uint8_t *next, uint8_t *to) {
  for (int64_t i = 0; i < inputs; i += 16, to += 4 * 64) {
    __m512i v[4];
    fetch(next + i * LOWBIT_PANEL, 16 * LOWBIT_PANEL);
    if (i + 16 <= inputs)
      interleave_at(row, i, v);
    else
      interleave_rest(row, i, inputs - i, v);
    for (int e = 0; e < 4; e++) _mm512_storeu_si512(to + e * 64, flip(v[e]));
  }
}

static void panel(LowbitKind kind, int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *to, float *scale) {
  const uint8_t *row[LOWBIT_PANEL], *next = numbers + LOWBIT_PANEL * row_bytes; /* on its way while this panel is interleaved */
  rows_of_panel(outputs, numbers, row_bytes, row);
  if (kind == LOWBIT_INT8)
    int8_panel(inputs, row, next, to);
  else if (kind == LOWBIT_Q8_0)
    block_panel(LOWBIT_Q8_0, lowbit_groups(kind, inputs), row, next, to, scale);
  else
    block_panel(LOWBIT_Q4_0, lowbit_groups(kind, inputs), row, next, to, scale);
}

/* ---- many rows ---- */

INLINE __m512i broadcast_4(const int8_t *a) {
  int32_t four;
  memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

INLINE void store(const LowbitTile *t, int64_t row, int64_t column, __m512 value) {
  float *c = t->c + row * t->ldc + column;
  const __mmask16 mask = first_16(t->columns - column);
  if (t->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), value);
  _mm512_mask_storeu_ps(c, mask, value);
}

/* Rows r0 to r0 + R by two panels, with every sum in a variable of its own: compilers keep arrays of vectors in memory, at a third of the
 * speed. Rows are reached from every third one's address, which spares registers. */
#define EACH_1(DO)  DO(0)
#define EACH_3(DO)  EACH_1(DO) DO(1) DO(2)
#define EACH_6(DO)  EACH_3(DO) DO(3) DO(4) DO(5)
#define EACH_12(DO) EACH_6(DO) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

#define START_SUMS(r) __m512i low##r = _mm512_set1_epi32(-t->offset * sum[(r)*groups]), high##r = low##r;
#define ADD_FOUR(r)                                                                                                                        \
  four = broadcast_4(a[(r) / 3] + (r) % 3 * stride);                                                                                       \
  low##r = add_products(low##r, w0, four);                                                                                                 \
  high##r = add_products(high##r, w1, four);
/* steps of four inputs, from both panels and all rows */
#define ADD_STEPS(R, steps)                                                                                                                \
  for (int64_t left = (steps); left > 0; left--) {                                                                                         \
    const __m512i w0 = _mm512_loadu_si512(panels), w1 = _mm512_loadu_si512(panels + t->panel_bytes);                                       \
    __m512i four;                                                                                                                          \
    EACH_##R(ADD_FOUR);                                                                                                                    \
    panels += 64, a[0] += 4, a[1] += 4, a[2] += 4, a[3] += 4;                                                                              \
  }
#define SET_OUT(R)                                                                                                                         \
  const int64_t stride = t->x.stride, groups = t->x.groups, column = p0 * LOWBIT_PANEL;                                                    \
  const int8_t *first = t->x.a + r0 * stride, *a[4] = {first, first + 3 * stride, first + 6 * stride, first + 9 * stride};                 \
  const uint8_t *panels = t->panels + p0 * t->panel_bytes;                                                                                 \
  const float *scale = t->x.scale + r0 * groups;                                                                                           \
  const int32_t *sum = t->x.sum + r0 * groups

#define STORE_WHOLE(r)                                                                                                                     \
  both = _mm512_set1_ps(scale[r]);                                                                                                         \
  store(t, r0 + (r), column, _mm512_mul_ps(_mm512_cvtepi32_ps(low##r), _mm512_mul_ps(scale0, both)));                                      \
  store(t, r0 + (r), column + LOWBIT_PANEL, _mm512_mul_ps(_mm512_cvtepi32_ps(high##r), _mm512_mul_ps(scale1, both)));
#define WHOLE_ROWS(R)                                                                                                                      \
  static void whole_rows_##R(const LowbitTile *t, int64_t r0, int64_t p0) {                                                                \
    SET_OUT(R);                                                                                                                            \
    EACH_##R(START_SUMS);                                                                                                                  \
    ADD_STEPS(R, (t->inputs + 3) / 4);                                                                                                     \
    const int64_t left_columns = t->columns - column;                                                                                      \
    const __m512 scale0 = _mm512_maskz_loadu_ps(first_16(left_columns), t->scale + column);                                                \
    const __m512 scale1 = _mm512_maskz_loadu_ps(first_16(left_columns - LOWBIT_PANEL), t->scale + column + LOWBIT_PANEL);                  \
    __m512 both;                                                                                                                           \
    EACH_##R(STORE_WHOLE);                                                                                                                 \
  }
WHOLE_ROWS(12)
WHOLE_ROWS(6)
WHOLE_ROWS(3)
WHOLE_ROWS(1)

#define START_VALUES(r) __m512 value0_##r = _mm512_setzero_ps(), value1_##r = value0_##r;
#define ADD_BLOCK(r)                                                                                                                       \
  both = _mm512_set1_ps(scale[(r)*groups]);                                                                                                \
  value0_##r = _mm512_fmadd_ps(_mm512_cvtepi32_ps(low##r), _mm512_mul_ps(scale0, both), value0_##r);                                       \
  value1_##r = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high##r), _mm512_mul_ps(scale1, both), value1_##r);
#define STORE_BLOCKS(r)                                                                                                                    \
  store(t, r0 + (r), column, value0_##r);                                                                                                  \
  store(t, r0 + (r), column + LOWBIT_PANEL, value1_##r);
#define BLOCK_ROWS(R)                                                                                                                      \
  static void block_rows_##R(const LowbitTile *t, int64_t r0, int64_t p0) {                                                                \
    SET_OUT(R);                                                                                                                            \
    const float *weight_scale = t->scale + column * groups;                                                                                \
    EACH_##R(START_VALUES);                                                                                                                \
    for (int64_t g = 0; g < groups; g++, scale++, sum++, weight_scale += LOWBIT_PANEL) {                                                   \
      const __m512 scale0 = _mm512_loadu_ps(weight_scale), scale1 = _mm512_loadu_ps(weight_scale + groups * LOWBIT_PANEL);                 \
      __m512 both;                                                                                                                         \
      EACH_##R(START_SUMS);                                                                                                                \
      ADD_STEPS(R, LOWBIT_BLOCK / 4);                                                                                                      \
      EACH_##R(ADD_BLOCK);                                                                                                                 \
    }                                                                                                                                      \
    EACH_##R(STORE_BLOCKS);                                                                                                                \
  }
BLOCK_ROWS(6)
BLOCK_ROWS(3)
BLOCK_ROWS(1)

static void whole_tile(const LowbitTile *t, int64_t p) {
  int64_t r = 0;
  for (; r + 12 <= t->rows; r += 12) whole_rows_12(t, r, p);
  for (; r + 6 <= t->rows; r += 6) whole_rows_6(t, r, p);
  for (; r + 3 <= t->rows; r += 3) whole_rows_3(t, r, p);
  for (; r < t->rows; r++) whole_rows_1(t, r, p);
}

static void block_tile(const LowbitTile *t, int64_t p) {
  int64_t r = 0;
  for (; r + 6 <= t->rows; r += 6) block_rows_6(t, r, p);
  for (; r + 3 <= t->rows; r += 3) block_rows_3(t, r, p);
  for (; r < t->rows; r++) block_rows_1(t, r, p);
}

/* A pair of panels takes thousands of cycles: its share of the bytes ahead finds the queue of cache misses free. */
static void tile(const LowbitTile *t) {
  const int64_t pairs = (t->columns + 2 * LOWBIT_PANEL - 1) / (2 * LOWBIT_PANEL);
  for (int64_t p = 0; p * LOWBIT_PANEL < t->columns; p += 2) {
    for (int64_t i = t->ahead_bytes * (p / 2) / pairs / 64; i < t->ahead_bytes * (p / 2 + 1) / pairs / 64; i++)
      _mm_prefetch((const char *)t->ahead + 64 * i, _MM_HINT_T1);
    if (t->blocks)
      block_tile(t, p);
    else
      whole_tile(t, p);
  }
}

/* ---- one row ---- */

/* Four bytes of each of 16 outputs in each of four vectors, times 16 inputs. */
INLINE void add_16(const __m512i v[4], const int8_t *a, __m512i *even, __m512i *odd) {
  *even = add_products(*even, v[0], broadcast_4(a));
  *odd = add_products(*odd, v[1], broadcast_4(a + 4));
  *even = add_products(*even, v[2], broadcast_4(a + 8));
  *odd = add_products(*odd, v[3], broadcast_4(a + 12));
}

INLINE void store_dots(const LowbitDots *d, int64_t o, __m512 value) {
  const __mmask16 mask = first_16(d->outputs - o);
  if (d->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, d->y + o), value);
  _mm512_mask_storeu_ps(d->y + o, mask, value);
}

static void int8_dots(const LowbitDots *d, int64_t o) {
  const int64_t outputs = d->outputs - o;
  const uint8_t *row[LOWBIT_PANEL], *next = d->numbers + (o + LOWBIT_PANEL) * d->row_bytes;
  __m512i v[4], even = _mm512_set1_epi32(-128 * d->x.sum[0]), odd = _mm512_setzero_si512();
  int64_t i = 0;
  rows_of_panel(outputs, d->numbers + o * d->row_bytes, d->row_bytes, row);
  for (; i + 16 <= d->inputs; i += 16) {
    if (outputs > LOWBIT_PANEL) fetch(next + i * LOWBIT_PANEL, 16 * LOWBIT_PANEL);
    interleave_at(row, i, v);
    for (int e = 0; e < 4; e++) v[e] = flip(v[e]);
    add_16(v, d->x.a + i, &even, &odd);
  }
  if (i < d->inputs) {
    interleave_rest(row, i, d->inputs - i, v);
    for (int e = 0; e < 4; e++) v[e] = flip(v[e]);
    add_16(v, d->x.a + i, &even, &odd);
  }
  const __m512 scale = _mm512_maskz_loadu_ps(first_16(outputs), d->scale + o), both = _mm512_mul_ps(scale, _mm512_set1_ps(d->x.scale[0]));
  store_dots(d, o, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), both));
}

INLINE __m512i four_bytes_at(const uint8_t *const row[LOWBIT_PANEL], int64_t at) {
  __m128i part[4];
  for (int e = 0; e < 4; e++) {
    int32_t four[4];
    for (int o = 0; o < 4; o++) memcpy(&four[o], row[4 * e + o] + at, sizeof four[o]);
    part[e] = _mm_setr_epi32(four[0], four[1], four[2], four[3]);
  }
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(part[1], part[0])), _mm256_set_m128i(part[3], part[2]), 1);
}

INLINE __m512 scales_of_dwords(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

/* The nibbles of one half in the dwords of a Q4_0 block and the first half of the one behind it: the first two bytes of `head` are the
 * scale, the last two of `tail` the next one. a: of these 16 inputs. */
INLINE __m512i add_split_16(__m512i sums, const __m512i v[4], __m512i tail, int shift, const int8_t *a) {
  const __m512i nibble = _mm512_set1_epi8(15);
  uint32_t first;
  memcpy(&first, a, sizeof first);
  __m512i other = add_products(_mm512_setzero_si512(), _mm512_and_si512(_mm512_srli_epi32(v[0], shift), _mm512_set1_epi32(0x0f0f0000)),
                               _mm512_set1_epi32((int32_t)(first << 16)));
  for (int e = 1; e < 4; e++) {
    __m512i *to = e % 2 ? &sums : &other;
    *to = add_products(*to, _mm512_and_si512(_mm512_srli_epi32(v[e], shift), nibble), broadcast_4(a + 4 * e - 2));
  }
  sums = add_products(sums, _mm512_and_si512(_mm512_srli_epi32(tail, shift), _mm512_set1_epi32(0x00000f0f)), broadcast_4(a + 14));
  return _mm512_add_epi32(sums, other);
}

/* Blocks g and g + 1 of Q4_0, 36 bytes in each row: 16, 4 and 16 are loaded, so that the scales come with the numbers. */
INLINE __m512 add_q4_pair(const LowbitDots *d, const uint8_t *const row[LOWBIT_PANEL], int64_t g, __m512 value) {
  const int64_t at = g * (int64_t)sizeof(LowbitQ4Block);
  const int8_t *a = d->x.a + g * LOWBIT_BLOCK;
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i v[8], even = _mm512_set1_epi32(-8 * d->x.sum[g]), odd = _mm512_setzero_si512();
  interleave_at(row, at, v);
  const __m512i tail = four_bytes_at(row, at + 16);
  even = add_split_16(even, v, tail, 0, a);
  even = add_split_16(even, v, tail, 4, a + 16);
  value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(even), _mm512_mul_ps(scales_of_dwords(v[0]), _mm512_set1_ps(d->x.scale[g])), value);
  interleave_at(row, at + 20, v);
  for (int i = 0; i < 4; i++) {
    v[4 + i] = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), nibble);
    v[i] = _mm512_and_si512(v[i], nibble);
  }
  even = _mm512_set1_epi32(-8 * d->x.sum[g + 1]);
  add_16(v, a + 32, &even, &odd);
  add_16(v + 4, a + 48, &even, &odd);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
                         _mm512_mul_ps(scales_of_dwords(_mm512_srli_epi32(tail, 16)), _mm512_set1_ps(d->x.scale[g + 1])), value);
}

/* A panel of block weights, in registers; meanwhile the next panel is on its way from memory. */
INLINE void block_dots(LowbitKind kind, const LowbitDots *d, int64_t o) {
  const int64_t outputs = d->outputs - o;
  const int64_t bytes = LOWBIT_PANEL * (int64_t)(kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block));
  const uint8_t *row[LOWBIT_PANEL], *next = d->numbers + (o + LOWBIT_PANEL) * d->row_bytes;
  __m512 value = _mm512_setzero_ps();
  rows_of_panel(outputs, d->numbers + o * d->row_bytes, d->row_bytes, row);
  int64_t g = 0;
  for (; kind == LOWBIT_Q4_0 && g + 2 <= d->x.groups; g += 2) {
    if (outputs > LOWBIT_PANEL) fetch(next + g * bytes, 2 * bytes);
    value = add_q4_pair(d, row, g, value);
  }
  for (; g < d->x.groups; g++) {
    __m512i v[8], even = _mm512_set1_epi32(-lowbit_offset(kind) * d->x.sum[g]), odd = _mm512_setzero_si512();
    if (outputs > LOWBIT_PANEL) fetch(next + g * bytes, bytes);
    interleave_block(kind, row, g, v);
    add_16(v, d->x.a + g * LOWBIT_BLOCK, &even, &odd);
    add_16(v + 4, d->x.a + g * LOWBIT_BLOCK + 16, &even, &odd);
    const __m512 both = _mm512_mul_ps(scales_of_block(kind, row, g), _mm512_set1_ps(d->x.scale[g]));
    value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), both, value);
  }
  store_dots(d, o, value);
}

LOWBIT_DOTS(LOWBIT_PANEL)

static void scale_sums(int64_t n, const int32_t *sums, const int32_t *less, const float *scale, float x_scale, bool add, float *c) {
  for (int64_t o = 0; o < n; o += LOWBIT_PANEL) {
    const __mmask16 mask = first_16(n - o);
    const __m512i sum = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(mask, sums + o), _mm512_maskz_loadu_epi32(mask, less + o));
    const __m512 both = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, scale + o), _mm512_set1_ps(x_scale));
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), both);
    if (add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + o), value);
    _mm512_mask_storeu_ps(c + o, mask, value);
  }
}

static const LowbitKernels vnni_table = {"vnni", quantise, panel, tile, dots, scale_sums};

const LowbitKernels *lowbit_vnni(void) { return &vnni_table; }
#else
const LowbitKernels *lowbit_vnni(void) { return NULL; }
#endif
