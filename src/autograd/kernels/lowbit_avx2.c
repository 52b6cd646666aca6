/* Products with weights of 8 and 4 bits for AVX2, which multiplies bytes only with sums that saturate at 16 bits: here bytes are widened to
 * 16 bits and pairs of products summed in 32, exactly. Half as many products an instruction as bytes would give, twice as many as floats.
 */
#include "autograd/kernels/lowbit_kernels.h"

#if !REAL_IS_DOUBLE && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t sum_integers(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

static float peak_of(int64_t n, const float *x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i max = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(x + i)), magnitude));
  uint32_t lane[8], bits = 0;
  _mm256_storeu_si256((__m256i *)(void *)lane, max);
  for (int e = 0; e < 8; e++) bits = lane[e] > bits ? lane[e] : bits;
  return lowbit_peak(bits, n - i, x + i);
}

static void quantise(int64_t n, const float *x, int8_t *a, float *scale, int32_t *sum) {
  const float inverse = lowbit_inverse_scale(peak_of(n, x), scale);
  if (inverse == 0) {
    memset(a, 0, (size_t)n);
    *sum = 0;
    return;
  }
  __m256i total = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i number = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse)));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(number), _mm256_extracti128_si256(number, 1));
    total = _mm256_add_epi32(total, number);
    _mm_storel_epi64((__m128i *)(void *)(a + i), _mm_packs_epi16(words, words));
  }
  *sum = sum_integers(total);
  for (; i < n; i++) {
    a[i] = (int8_t)_mm_cvtss_si32(_mm_set_ss(x[i] * inverse));
    *sum += a[i];
  }
}

/* ---- interleaving ---- */

INLINE __m128i load_16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
INLINE void store_16(uint8_t *p, __m128i v) { _mm_storeu_si128((__m128i *)(void *)p, v); }

/* 16 bytes of each of four rows -> four bytes of each, at `to` and each step of a panel behind it. */
INLINE void interleave_4(const __m128i row[4], uint8_t *to) {
  const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]), low23 = _mm_unpacklo_epi32(row[2], row[3]);
  const __m128i high01 = _mm_unpackhi_epi32(row[0], row[1]), high23 = _mm_unpackhi_epi32(row[2], row[3]);
  store_16(to, _mm_unpacklo_epi64(low01, low23));
  store_16(to + 64, _mm_unpackhi_epi64(low01, low23));
  store_16(to + 128, _mm_unpacklo_epi64(high01, high23));
  store_16(to + 192, _mm_unpackhi_epi64(high01, high23));
}

/* Unsigned bytes 16 half to 16 half + 15 of block b. */
INLINE __m128i half_block(LowbitKind kind, const uint8_t *row, int64_t b, int half) {
  if (kind == LOWBIT_Q8_0)
    return _mm_xor_si128(load_16(row + b * (int64_t)sizeof(LowbitQ8Block) + (int64_t)offsetof(LowbitQ8Block, number) + 16 * half),
                         _mm_set1_epi8((char)0x80));
  const __m128i pairs = load_16(row + b * (int64_t)sizeof(LowbitQ4Block) + (int64_t)offsetof(LowbitQ4Block, number));
  return _mm_and_si128(half ? _mm_srli_epi16(pairs, 4) : pairs, _mm_set1_epi8(15));
}

INLINE float block_scale(LowbitKind kind, const uint8_t *row, int64_t b) {
  uint16_t half;
  memcpy(&half, row + b * (int64_t)(kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block)), sizeof half);
  return _cvtsh_ss(half);
}

INLINE void rows_of_panel(int64_t outputs, const uint8_t *numbers, int64_t row_bytes, const uint8_t *row[LOWBIT_PANEL]) {
  for (int64_t o = 0; o < LOWBIT_PANEL; o++) row[o] = numbers + (o < outputs ? o : outputs - 1) * row_bytes;
}

INLINE void block_panel(LowbitKind kind, int64_t blocks, const uint8_t *const row[LOWBIT_PANEL], uint8_t *to, float *scale) {
  for (int64_t b = 0; b < blocks; b++) {
    for (int o = 0; o < LOWBIT_PANEL; o++) scale[b * LOWBIT_PANEL + o] = block_scale(kind, row[o], b);
    for (int half = 0; half < 2; half++)
      for (int o = 0; o < LOWBIT_PANEL; o += 4) {
        __m128i piece[4];
        for (int e = 0; e < 4; e++) piece[e] = half_block(kind, row[o + e], b, half);
        interleave_4(piece, to + (b * 8 + half * 4) * 64 + o * 4);
      }
  }
}

static void int8_panel(int64_t inputs, const uint8_t *const row[LOWBIT_PANEL], uint8_t *to) {
  for (int64_t i = 0; i < inputs; i += 16, to += 4 * 64)
    for (int o = 0; o < LOWBIT_PANEL; o += 4) {
      __m128i piece[4];
      for (int e = 0; e < 4; e++) {
        uint8_t last[16] = {0};
        if (inputs - i < 16) memcpy(last, row[o + e] + i, (size_t)(inputs - i));
        piece[e] = _mm_xor_si128(load_16(inputs - i < 16 ? last : row[o + e] + i), _mm_set1_epi8((char)0x80));
      }
      interleave_4(piece, to + o * 4);
    }
}

static void panel(LowbitKind kind, int64_t outputs, int64_t inputs, const uint8_t *numbers, int64_t row_bytes, uint8_t *to, float *scale) {
  const uint8_t *row[LOWBIT_PANEL];
  rows_of_panel(outputs, numbers, row_bytes, row);
  if (kind == LOWBIT_INT8)
    int8_panel(inputs, row, to);
  else if (kind == LOWBIT_Q8_0)
    block_panel(LOWBIT_Q8_0, lowbit_groups(kind, inputs), row, to, scale);
  else
    block_panel(LOWBIT_Q4_0, lowbit_groups(kind, inputs), row, to, scale);
}

/* ---- many rows: two at a time ---- */

enum { QUARTERS = 4 /* of a panel: four outputs, two sums each */ };

INLINE __m256i four_words(const int8_t *a) {
  int32_t four;
  memcpy(&four, a, sizeof four);
  return _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
}

INLINE void multiply(const LowbitTile *t, int R, int64_t r0, const uint8_t *w, int64_t first, int64_t end, __m256i sums[2][QUARTERS]) {
  for (int r = 0; r < R; r++)
    for (int q = 0; q < QUARTERS; q++) sums[r][q] = _mm256_setzero_si256();
  for (int64_t i = first; i < end; i++) {
    __m256i a[2];
    for (int r = 0; r < R; r++) a[r] = four_words(t->x.a + (r0 + r) * t->x.stride + i * 4);
    for (int q = 0; q < QUARTERS; q++) {
      const __m256i words = _mm256_cvtepu8_epi16(load_16(w + i * 64 + q * 16));
      for (int r = 0; r < R; r++) sums[r][q] = _mm256_add_epi32(sums[r][q], _mm256_madd_epi16(words, a[r]));
    }
  }
}

/* The sums of eight outputs, as floats, less the offset's part. */
INLINE __m256 eight(const __m256i sums[QUARTERS], int half, int32_t less) {
  const __m256i added = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[2 * half], sums[2 * half + 1]), 0xd8);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(added, _mm256_set1_epi32(less)));
}

INLINE void rows_of_tile(const LowbitTile *t, int R, int64_t r0, int64_t p) {
  const int64_t groups = t->x.groups, column = p * LOWBIT_PANEL, left = t->columns - column;
  const uint8_t *w = t->panels + p * t->panel_bytes;
  float last[LOWBIT_PANEL] = {0};
  if (!t->blocks) memcpy(last, t->scale + column, (size_t)(left < LOWBIT_PANEL ? left : LOWBIT_PANEL) * sizeof *last);
  __m256 value[2][2] = {{_mm256_setzero_ps(), _mm256_setzero_ps()}, {_mm256_setzero_ps(), _mm256_setzero_ps()}};
  for (int64_t g = 0; g < groups; g++) {
    __m256i sums[2][QUARTERS];
    multiply(t, R, r0, w, g * 8, t->blocks ? g * 8 + 8 : (t->inputs + 3) / 4, sums);
    const float *scale = t->blocks ? t->scale + (p * groups + g) * LOWBIT_PANEL : last;
    for (int r = 0; r < R; r++)
      for (int h = 0; h < 2; h++) {
        const __m256 both = _mm256_mul_ps(_mm256_loadu_ps(scale + 8 * h), _mm256_set1_ps(t->x.scale[(r0 + r) * groups + g]));
        value[r][h] = _mm256_fmadd_ps(eight(sums[r], h, t->offset * t->x.sum[(r0 + r) * groups + g]), both, value[r][h]);
      }
  }
  for (int r = 0; r < R; r++) {
    float *c = t->c + (r0 + r) * t->ldc + column, result[LOWBIT_PANEL];
    _mm256_storeu_ps(result, value[r][0]);
    _mm256_storeu_ps(result + 8, value[r][1]);
    for (int64_t o = 0; o < LOWBIT_PANEL && o < left; o++) c[o] = t->add ? c[o] + result[o] : result[o];
  }
}

static void tile(const LowbitTile *t) {
  for (int64_t p = 0; p * LOWBIT_PANEL < t->columns; p++) {
    int64_t r = 0;
    for (; r + 2 <= t->rows; r += 2) rows_of_tile(t, 2, r, p);
    for (; r < t->rows; r++) rows_of_tile(t, 1, r, p);
  }
}

/* ---- one row ---- */

/* 16 unsigned bytes times 16 signed ones. */
INLINE __m256i dot_16(__m128i w, const int8_t *a) {
  return _mm256_madd_epi16(_mm256_cvtepu8_epi16(w), _mm256_cvtepi8_epi16(load_16((const uint8_t *)a)));
}

static int32_t int8_dot(const LowbitDots *d, const uint8_t *w) {
  const __m128i sign = _mm_set1_epi8((char)0x80);
  __m256i even = _mm256_setzero_si256(), odd = even;
  int64_t i = 0;
  for (; i + 32 <= d->inputs; i += 32) {
    even = _mm256_add_epi32(even, dot_16(_mm_xor_si128(load_16(w + i), sign), d->x.a + i));
    odd = _mm256_add_epi32(odd, dot_16(_mm_xor_si128(load_16(w + i + 16), sign), d->x.a + i + 16));
  }
  int32_t rest = 0;
  for (; i < d->inputs; i++) rest += (w[i] ^ 0x80) * d->x.a[i];
  return sum_integers(_mm256_add_epi32(even, odd)) + rest;
}

INLINE void block_dots(LowbitKind kind, const LowbitDots *d, int64_t o) {
  const uint8_t *row = d->numbers + o * d->row_bytes;
  __m128 value = _mm_setzero_ps();
  for (int64_t g = 0; g < d->x.groups; g++) {
    const int8_t *a = d->x.a + g * LOWBIT_BLOCK;
    const int32_t sum = sum_integers(_mm256_add_epi32(dot_16(half_block(kind, row, g, 0), a), dot_16(half_block(kind, row, g, 1), a + 16)));
    const float both = block_scale(kind, row, g) * d->x.scale[g];
    value = _mm_fmadd_ss(_mm_set_ss((float)(sum - lowbit_offset(kind) * d->x.sum[g])), _mm_set_ss(both), value);
  }
  d->y[o] = d->add ? d->y[o] + _mm_cvtss_f32(value) : _mm_cvtss_f32(value);
}

static void int8_dots(const LowbitDots *d, int64_t o) {
  const float value = (float)(int8_dot(d, d->numbers + o * d->row_bytes) - 128 * d->x.sum[0]) * (d->x.scale[0] * d->scale[o]);
  d->y[o] = d->add ? d->y[o] + value : value;
}

LOWBIT_DOTS(1)

static const LowbitKernels avx2_table = {"avx2", quantise, panel, tile, dots, NULL};

const LowbitKernels *lowbit_avx2(void) { return &avx2_table; }
#else
const LowbitKernels *lowbit_avx2(void) { return NULL; }
#endif
