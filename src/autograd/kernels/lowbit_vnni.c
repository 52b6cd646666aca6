/* Products with weights of 8 and 4 bits by AVX-512's dot products of bytes (VNNI): one instruction multiplies 64 unsigned by 64 signed
 * bytes and adds them by fours into 16 sums.
 *
 * Many rows: 12 rows by two panels, 24 sums in registers (block weights: 6 rows, for their float sums need as many). Each group of four
 * inputs costs two loads of weights and a broadcast a row for 24 instructions: near the processor's peak, with the rows in the first-level
 * and the panels in the second-level cache.
 * One row: bound by reading the weights. INT8 rows are read four at a time and summed across at the end. Blocks are read 16 outputs at a
 * time and interleaved in registers, so that sums lie as in the other case and are added in the same order; measured, this is no slower
 * than sums across one output's blocks. */
#include "autograd/kernels/lowbit_kernels.h"

#if !REAL_IS_DOUBLE && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { MAX_PANELS = 2 };

/* ---- activations ---- */

INLINE __mmask16 first_16(int64_t left) { return left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1); }

/* Magnitudes are compared by their bits, of which those of no number are the largest. */
static void quantise(int64_t n, const float *x, int8_t *a, float *scale, int32_t *sum) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512(), total = most;
  for (int64_t i = 0; i < n; i += 16)
    most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_maskz_loadu_epi32(first_16(n - i), x + i), magnitude));
  const uint32_t bits = _mm512_reduce_max_epu32(most);
  float peak;
  memcpy(&peak, &bits, sizeof peak);
  const float inverse = lowbit_inverse_scale(peak, scale);
  *sum = 0;
  if (inverse == 0) {
    memset(a, 0, (size_t)n);
    return;
  }
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = first_16(n - i);
    const __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_set1_ps(inverse)));
    total = _mm512_add_epi32(total, number);
    _mm512_mask_cvtepi32_storeu_epi8(a + i, mask, number);
  }
  *sum = _mm512_reduce_add_epi32(total);
}

/* ---- interleaving ---- */

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

INLINE void block_panel(LowbitKind kind, int64_t blocks, const uint8_t *const row[LOWBIT_PANEL], uint8_t *to, float *scale) {
  for (int64_t b = 0; b < blocks; b++) {
    __m512i v[8];
    interleave_block(kind, row, b, v);
    for (int i = 0; i < 8; i++) _mm512_storeu_si512(to + (b * 8 + i) * 64, v[i]);
    _mm512_storeu_ps(scale + b * LOWBIT_PANEL, scales_of_block(kind, row, b));
  }
}

static void int8_panel(int64_t inputs, const uint8_t *const row[LOWBIT_PANEL], uint8_t *to) {
  __m512i v[4];
  for (int64_t i = 0; i < inputs; i += 16, to += 4 * 64) {
    __m128i piece[LOWBIT_PANEL];
    const __mmask16 mask = first_16(inputs - i);
    for (int o = 0; o < LOWBIT_PANEL; o++) piece[o] = _mm_maskz_loadu_epi8(mask, row[o] + i);
    interleave(piece, v);
    for (int e = 0; e < 4; e++) _mm512_storeu_si512(to + e * 64, flip(v[e]));
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

/* ---- many rows ---- */

INLINE __m512i broadcast_4(const int8_t *a) {
  int32_t four;
  memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

/* sums[r][p] += four inputs at a time, from step `first` to `end` of the panels. R and P are constants where this is inlined. */
INLINE void multiply(const LowbitTile *t, int R, int P, int64_t r0, const uint8_t *panels, int64_t first, int64_t end,
                     __m512i sums[LOWBIT_TILE_ROWS][MAX_PANELS]) {
  const int8_t *a = t->x.a + r0 * t->x.stride;
  for (int64_t i = first; i < end; i++) {
    __m512i w[MAX_PANELS];
    for (int p = 0; p < P; p++) w[p] = _mm512_loadu_si512(panels + p * t->panel_bytes + i * 64);
    for (int r = 0; r < R; r++) {
      const __m512i four = broadcast_4(a + r * t->x.stride + i * 4);
      for (int p = 0; p < P; p++) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], w[p], four);
    }
  }
}

INLINE void store(const LowbitTile *t, int64_t row, int64_t column, __m512 value) {
  float *c = t->c + row * t->ldc + column;
  const __mmask16 mask = first_16(t->columns - column);
  if (t->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), value);
  _mm512_mask_storeu_ps(c, mask, value);
}

INLINE void whole_rows(const LowbitTile *t, int R, int P, int64_t r0, int64_t p0) {
  __m512i sums[LOWBIT_TILE_ROWS][MAX_PANELS];
  for (int r = 0; r < R; r++)
    for (int p = 0; p < P; p++) sums[r][p] = _mm512_set1_epi32(-t->offset * t->x.sum[r0 + r]);
  multiply(t, R, P, r0, t->panels + p0 * t->panel_bytes, 0, (t->inputs + 3) / 4, sums);
  for (int p = 0; p < P; p++) {
    const int64_t column = (p0 + p) * LOWBIT_PANEL;
    const __m512 scale = _mm512_maskz_loadu_ps(first_16(t->columns - column), t->scale + column);
    for (int r = 0; r < R; r++) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(t->x.scale[r0 + r]));
      store(t, r0 + r, column, _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][p]), both));
    }
  }
}

INLINE void block_rows(const LowbitTile *t, int R, int P, int64_t r0, int64_t p0) {
  const int64_t groups = t->x.groups;
  __m512 value[LOWBIT_TILE_ROWS][MAX_PANELS];
  for (int r = 0; r < R; r++)
    for (int p = 0; p < P; p++) value[r][p] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; g++) {
    __m512i sums[LOWBIT_TILE_ROWS][MAX_PANELS];
    for (int r = 0; r < R; r++)
      for (int p = 0; p < P; p++) sums[r][p] = _mm512_set1_epi32(-t->offset * t->x.sum[(r0 + r) * groups + g]);
    multiply(t, R, P, r0, t->panels + p0 * t->panel_bytes, g * 8, g * 8 + 8, sums);
    for (int p = 0; p < P; p++) {
      const __m512 scale = _mm512_loadu_ps(t->scale + ((p0 + p) * groups + g) * LOWBIT_PANEL);
      for (int r = 0; r < R; r++) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(t->x.scale[(r0 + r) * groups + g]));
        value[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), both, value[r][p]);
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int p = 0; p < P; p++) store(t, r0 + r, (p0 + p) * LOWBIT_PANEL, value[r][p]);
}

/* All rows against P panels from p0 on, in runs of a constant number. */
INLINE void panels_whole(const LowbitTile *t, int P, int64_t p0) {
  int64_t r = 0;
  if (t->rows == 12) {
    whole_rows(t, 12, P, 0, p0);
    return;
  }
  for (; r + 6 <= t->rows; r += 6) whole_rows(t, 6, P, r, p0);
  for (; r + 3 <= t->rows; r += 3) whole_rows(t, 3, P, r, p0);
  for (; r < t->rows; r++) whole_rows(t, 1, P, r, p0);
}

INLINE void panels_blocks(const LowbitTile *t, int P, int64_t p0) {
  int64_t r = 0;
  for (; r + 6 <= t->rows; r += 6) block_rows(t, 6, P, r, p0);
  for (; r + 3 <= t->rows; r += 3) block_rows(t, 3, P, r, p0);
  for (; r < t->rows; r++) block_rows(t, 1, P, r, p0);
}

static void tile(const LowbitTile *t) {
  const int64_t panels = (t->columns + LOWBIT_PANEL - 1) / LOWBIT_PANEL;
  int64_t p = 0;
  for (; p + 2 <= panels; p += 2) {
    if (t->blocks)
      panels_blocks(t, 2, p);
    else
      panels_whole(t, 2, p);
  }
  for (; p < panels; p++) {
    if (t->blocks)
      panels_blocks(t, 1, p);
    else
      panels_whole(t, 1, p);
  }
}

/* ---- one row ---- */

enum { DOT_ROWS = 4 };

INLINE __mmask64 first_64(int64_t left) { return left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1; }

/* R outputs of INT8; the vector `a` is padded with zeros. */
INLINE void int8_dots(const LowbitDots *d, int R, int64_t o) {
  const uint8_t *w = d->numbers + o * d->row_bytes;
  __m512i sums[DOT_ROWS];
  for (int r = 0; r < R; r++) sums[r] = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 64 <= d->inputs; i += 64) {
    const __m512i a = _mm512_loadu_si512(d->x.a + i);
    for (int r = 0; r < R; r++) sums[r] = _mm512_dpbusd_epi32(sums[r], flip(_mm512_loadu_si512(w + r * d->row_bytes + i)), a);
  }
  if (i < d->inputs) {
    const __m512i a = _mm512_loadu_si512(d->x.a + i);
    for (int r = 0; r < R; r++)
      sums[r] = _mm512_dpbusd_epi32(sums[r], flip(_mm512_maskz_loadu_epi8(first_64(d->inputs - i), w + r * d->row_bytes + i)), a);
  }
  for (int r = 0; r < R; r++) {
    const float sum = (float)(_mm512_reduce_add_epi32(sums[r]) - 128 * d->x.sum[0]), value = sum * (d->x.scale[0] * d->scale[o + r]);
    d->y[o + r] = d->add ? d->y[o + r] + value : value;
  }
}

/* A panel of block weights, in registers; meanwhile the next panel is on its way from memory. */
INLINE void block_dots(LowbitKind kind, const LowbitDots *d, int64_t o) {
  const int64_t outputs = d->outputs - o, ahead = LOWBIT_PANEL * d->row_bytes;
  const int64_t bytes = LOWBIT_PANEL * (int64_t)(kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block));
  const uint8_t *row[LOWBIT_PANEL], *next = d->numbers + o * d->row_bytes + ahead;
  __m512 value = _mm512_setzero_ps();
  rows_of_panel(outputs, d->numbers + o * d->row_bytes, d->row_bytes, row);
  for (int64_t g = 0; g < d->x.groups; g++) {
    __m512i v[8], even = _mm512_set1_epi32(-lowbit_offset(kind) * d->x.sum[g]), odd = _mm512_setzero_si512();
    if (outputs > LOWBIT_PANEL)
      for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)next + g * bytes + i, _MM_HINT_T0);
    interleave_block(kind, row, g, v);
    for (int i = 0; i < 8; i += 2) {
      even = _mm512_dpbusd_epi32(even, v[i], broadcast_4(d->x.a + g * LOWBIT_BLOCK + i * 4));
      odd = _mm512_dpbusd_epi32(odd, v[i + 1], broadcast_4(d->x.a + g * LOWBIT_BLOCK + i * 4 + 4));
    }
    const __m512 both = _mm512_mul_ps(scales_of_block(kind, row, g), _mm512_set1_ps(d->x.scale[g]));
    value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), both, value);
  }
  const __mmask16 mask = first_16(outputs);
  if (d->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, d->y + o), value);
  _mm512_mask_storeu_ps(d->y + o, mask, value);
}

static void dots(const LowbitDots *d) {
  int64_t o = 0;
  if (d->kind == LOWBIT_Q4_0)
    for (; o < d->outputs; o += LOWBIT_PANEL) block_dots(LOWBIT_Q4_0, d, o);
  else if (d->kind == LOWBIT_Q8_0)
    for (; o < d->outputs; o += LOWBIT_PANEL) block_dots(LOWBIT_Q8_0, d, o);
  for (; o + DOT_ROWS <= d->outputs; o += DOT_ROWS) int8_dots(d, DOT_ROWS, o);
  for (; o < d->outputs; o++) int8_dots(d, 1, o);
}

static const LowbitKernels vnni_table = {"vnni", quantise, panel, tile, dots};

const LowbitKernels *lowbit_vnni(void) { return &vnni_table; }
#else
const LowbitKernels *lowbit_vnni(void) { return NULL; }
#endif
