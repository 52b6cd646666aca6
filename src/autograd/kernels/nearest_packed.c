/* The search in 8 bits with AVX-512 VNNI: see nearest_packed.h for what is computed and why it is exact.
 *
 * Lanes are rows, as in vector_words.h, and four numbers of a row are one lane's 32 bits, so that one instruction does four multiply-adds
 * for each of 16 rows. Groups of up to NEAREST_MAX_WIDTH numbers keep only the best score of each 16 words (a chunk) and compare whole
 * chunks in float, lanes being words; in wider ones every score is kept, since a dot product in float costs more than storing one.
 *
 * Cost for each row: k d / 4 multiply-adds of bytes and k maxima in 16 lanes, then d multiply-adds for each chunk that may hold the
 * nearest: two or three with normal numbers. Measured against nearest_words on Zen 5, k = 1024: see docs/results/speed.md. */
#include "autograd/kernels/nearest_packed.h"
#include "autograd/kernels/kernels_tables.h"

#if !REAL_IS_DOUBLE && defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

enum {
  LANES = 16,
  CHUNK = LANES, /* words */
  /* Rows and words whose sums are in registers at a time; a tile of rows. That of wide rows stays in the first-level cache. */
  NARROW_VECTORS = 4,
  NARROW_WORDS = 4,
  WIDE_VECTORS = 2,
  WIDE_WORDS = 8,
  SUMS = NARROW_VECTORS * NARROW_WORDS,
  MIN_WIDTH = 5,         /* below, sums in float are as fast */
  MAX_WIDTH = 16384,     /* sums of products of bytes stay below 2^30 */
  MAX_NUMBERS = 1 << 23, /* k d */
  MAX_BYTE = 127,
  OFFSET = 128, /* makes a row's bytes unsigned */
};

struct NearestPack {
  int64_t k, d, chunks, quads;
  bool usable, finite;                         /* numbers in proportion, constants finite */
  float step;                                  /* s */
  float max_rest, max_packed;                  /* of |r| and of |s E|, over the words */
  float max_word, max_half_norm, max_constant; /* of |e|, |e|^2 / 2 and |c_e| */
  float mean_norm;                             /* |m| */
  const float *words, *half_norm;              /* the caller's */
  float *mean;                                 /* [d] */
  float *constant;                             /* [chunks, CHUNK] c_e */
  int32_t *sums;                               /* [chunks, CHUNK] sum of E */
  int32_t *bytes;                              /* [chunks, quads, CHUNK] four numbers E each */
  float *turned;                               /* [chunks, d, CHUNK] the words; of wide groups one chunk, working memory */
  float *turned_half_norm;                     /* [chunks, CHUNK], infinite beyond k */
};

static size_t whole(size_t bytes) { return (bytes + 63) / 64 * 64; }
static bool is_wide(int64_t d) { return d > NEAREST_MAX_WIDTH; }
static bool is_served(int64_t k, int64_t d) { return d >= MIN_WIDTH && d <= MAX_WIDTH && k >= 1 && k * d <= MAX_NUMBERS; }

/* ---- the pack's memory ---- */

/* Sets the struct and where its arrays are, behind it, when `pack` is there; returns the bytes of all. */
static size_t lay_out(NearestPack *pack, int64_t k, int64_t d) {
  const size_t chunks = (size_t)(k + CHUNK - 1) / CHUNK, quads = (size_t)(d + 3) / 4, words = chunks * CHUNK;
  const size_t sizes[] = {(size_t)d * 4, words * 4, words * 4, words * quads * 4, (is_wide(d) ? CHUNK : words) * (size_t)d * 4, words * 4};
  size_t at[7] = {whole(sizeof *pack)};
  for (int i = 0; i < 6; i++) at[i + 1] = at[i] + whole(sizes[i]);
  if (pack == NULL) return at[6];
  char *bytes = (char *)pack;
  *pack = (NearestPack){.k = k, .d = d, .chunks = (int64_t)chunks, .quads = (int64_t)quads};
  pack->mean = (float *)(void *)(bytes + at[0]);
  pack->constant = (float *)(void *)(bytes + at[1]);
  pack->sums = (int32_t *)(void *)(bytes + at[2]);
  pack->bytes = (int32_t *)(void *)(bytes + at[3]);
  pack->turned = (float *)(void *)(bytes + at[4]);
  pack->turned_half_norm = (float *)(void *)(bytes + at[5]);
  return at[6];
}

static size_t pack_bytes(int64_t k, int64_t d) { return is_served(k, d) ? lay_out(NULL, k, d) : 0; }

/* ---- 16 vectors as columns, and their bytes ---- */

static inline void transpose_16x16(__m512 v[LANES]) {
  __m512 w[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i += 2) {
    w[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i += 4) { /* v[i + c]: column c of each 4 x 4 */
    const __m512d a = _mm512_castps_pd(w[i]), b = _mm512_castps_pd(w[i + 2]), c = _mm512_castps_pd(w[i + 1]);
    const __m512d e = _mm512_castps_pd(w[i + 3]);
    v[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    v[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    v[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, e));
    v[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, e));
  }
#pragma GCC unroll 16
  for (int c = 0; c < 4; c++) {
    const __m512 low01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x44), high01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x44), high23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xee);
    w[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
    w[4 + c] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    w[8 + c] = _mm512_shuffle_f32x4(high01, high23, 0x88);
    w[12 + c] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) v[i] = w[i];
}

/* to[i][lane] = number i of vector `lane`, at x + lane ldx; lanes from `count` on are zero. */
static void turn(int64_t count, int64_t d, const float *x, int64_t ldx, float *to /* [d, LANES] */) {
  for (int64_t i = 0; i < d; i += LANES) {
    const int64_t left = d - i < LANES ? d - i : LANES;
    const __mmask16 mask = (__mmask16)((1u << left) - 1);
    __m512 block[LANES];
    if (count == LANES) {
#pragma GCC unroll 16
      for (int lane = 0; lane < LANES; lane++) block[lane] = _mm512_maskz_loadu_ps(mask, x + lane * ldx + i);
    } else
      for (int lane = 0; lane < LANES; lane++)
        block[lane] = lane < count ? _mm512_maskz_loadu_ps(mask, x + lane * ldx + i) : _mm512_setzero_ps();
    transpose_16x16(block);
    for (int64_t j = 0; j < left; j++) _mm512_storeu_ps(to + (i + j) * LANES, block[j]);
  }
}

typedef struct Rounded {
  __m512 rest_squares, packed_squares; /* |v - m - step V|^2 and |step V|^2 of each lane */
  __m512i sums;                        /* of V */
} Rounded;

/* V = (v - m) / step to the nearest for 16 turned vectors, as bytes plus `offset`: four numbers at to[quad][stride lanes]. */
static Rounded round_to_bytes(int64_t d, const float *turned, const float *mean, float step, int offset, int32_t *to, int64_t stride) {
  Rounded rounded = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_si512()};
  const __m512 steps = _mm512_set1_ps(step), inverse = _mm512_set1_ps(1 / step);
  for (int64_t i = 0; i < d; i += 4) {
    __m512i quad = _mm512_setzero_si512();
    for (int64_t j = i; j < i + 4 && j < d; j++) {
      const __m512 v = _mm512_sub_ps(_mm512_loadu_ps(turned + j * LANES), _mm512_set1_ps(mean[j]));
      __m512i byte = _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse));
      byte = _mm512_max_epi32(_mm512_min_epi32(byte, _mm512_set1_epi32(MAX_BYTE)), _mm512_set1_epi32(-MAX_BYTE));
      const __m512 packed = _mm512_mul_ps(_mm512_cvtepi32_ps(byte), steps), rest = _mm512_sub_ps(v, packed);
      rounded.rest_squares = _mm512_fmadd_ps(rest, rest, rounded.rest_squares);
      rounded.packed_squares = _mm512_fmadd_ps(packed, packed, rounded.packed_squares);
      rounded.sums = _mm512_add_epi32(rounded.sums, byte);
      const __m512i low = _mm512_and_si512(_mm512_add_epi32(byte, _mm512_set1_epi32(offset)), _mm512_set1_epi32(255));
      quad = _mm512_or_si512(quad, _mm512_sllv_epi32(low, _mm512_set1_epi32(8 * (int)(j - i))));
    }
    _mm512_storeu_si512(to + i / 4 * stride, quad);
  }
  return rounded;
}

/* ---- packing ---- */

static float *chunk_turned(const NearestPack *pack, int64_t chunk) {
  return pack->turned + (is_wide(pack->d) ? 0 : chunk * pack->d * CHUNK);
}

static int64_t words_of(const NearestPack *pack, int64_t chunk) {
  return pack->k - chunk * CHUNK < CHUNK ? pack->k - chunk * CHUNK : CHUNK;
}

static __mmask16 lanes_of(int64_t count) { return (__mmask16)((1u << (count < LANES ? count : LANES)) - 1); }

/* m, as near as float sums come: any point would do. */
static void find_mean(NearestPack *pack) {
  double squares = 0;
  memset(pack->mean, 0, (size_t)pack->d * sizeof *pack->mean);
  for (int64_t i = 0; is_wide(pack->d) && i < pack->d; i += LANES) {
    const __mmask16 mask = lanes_of(pack->d - i);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t w = 0; w < pack->k; w++) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, pack->words + w * pack->d + i));
    _mm512_mask_storeu_ps(pack->mean + i, mask, sum);
  }
  for (int64_t i = 0; !is_wide(pack->d) && i < pack->d; i++) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t chunk = 0; chunk < pack->chunks; chunk++) sum = _mm512_add_ps(sum, _mm512_loadu_ps(chunk_turned(pack, chunk) + i * CHUNK));
    pack->mean[i] = _mm512_reduce_add_ps(sum);
  }
  for (int64_t i = 0; i < pack->d; i++) {
    pack->mean[i] /= (float)pack->k;
    squares += (double)pack->mean[i] * (double)pack->mean[i];
  }
  pack->mean_norm = (float)sqrt(squares);
}

/* The largest |e - m| of a number; one that is not finite is noticed by find_constants. */
static float find_reach(const NearestPack *pack) {
  __m512 reach = _mm512_setzero_ps();
  for (int64_t i = 0; is_wide(pack->d) && i < pack->d; i += LANES) {
    const __mmask16 mask = lanes_of(pack->d - i);
    const __m512 mean = _mm512_maskz_loadu_ps(mask, pack->mean + i);
    for (int64_t w = 0; w < pack->k; w++)
      reach = _mm512_max_ps(reach, _mm512_abs_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, pack->words + w * pack->d + i), mean)));
  }
  for (int64_t chunk = 0; !is_wide(pack->d) && chunk < pack->chunks; chunk++) {
    const __mmask16 mask = lanes_of(words_of(pack, chunk));
    for (int64_t i = 0; i < pack->d; i++) {
      const __m512 e = _mm512_loadu_ps(chunk_turned(pack, chunk) + i * CHUNK);
      reach = _mm512_mask_max_ps(reach, mask, reach, _mm512_abs_ps(_mm512_sub_ps(e, _mm512_set1_ps(pack->mean[i]))));
    }
  }
  return _mm512_reduce_max_ps(reach);
}

static float larger(float a, float b) { return a > b ? a : b; }

static float longest(float max, __m512 squares) { return larger(max, sqrtf(_mm512_reduce_max_ps(squares))); }

/* c_e = m.e - |e|^2 / 2 - |m|^2 / 2, in double because large numbers cancel. */
static void find_constants(NearestPack *pack, int64_t chunk, const float *turned) {
  __m512d dot[2], mean_squares = _mm512_setzero_pd();
  __m512 squares = _mm512_setzero_ps();
  dot[0] = dot[1] = _mm512_setzero_pd();
  for (int64_t i = 0; i < pack->d; i++) {
    const __m512 e = _mm512_loadu_ps(turned + i * CHUNK);
    const __m512d m = _mm512_set1_pd((double)pack->mean[i]);
    dot[0] = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(e)), m, dot[0]);
    dot[1] = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)), m, dot[1]);
    mean_squares = _mm512_fmadd_pd(m, m, mean_squares);
    squares = _mm512_fmadd_ps(e, e, squares);
  }
  pack->max_word = longest(pack->max_word, squares);
  for (int half = 0; half < 2; half++) {
    const __m512d norms = _mm512_cvtps_pd(_mm256_loadu_ps(pack->turned_half_norm + chunk * CHUNK + half * 8));
    const __m512d sum = _mm512_sub_pd(_mm512_sub_pd(dot[half], norms), _mm512_mul_pd(mean_squares, _mm512_set1_pd(0.5)));
    _mm256_storeu_ps(pack->constant + chunk * CHUNK + half * 8, _mm512_cvtpd_ps(sum));
  }
}

static void turn_chunk(NearestPack *pack, int64_t chunk) {
  turn(words_of(pack, chunk), pack->d, pack->words + chunk * CHUNK * pack->d, pack->d, chunk_turned(pack, chunk));
}

/* Words that pad a chunk have bytes of zero, so that their scores are what they start with: the least number there is. */
static void clear_padding(NearestPack *pack, int64_t chunk, __mmask16 words) {
  int32_t *bytes = pack->bytes + chunk * pack->quads * CHUNK;
  for (int64_t quad = 0; words != lanes_of(CHUNK) && quad < pack->quads; quad++)
    _mm512_storeu_si512(bytes + quad * CHUNK, _mm512_maskz_loadu_epi32(words, bytes + quad * CHUNK));
}

static void pack_chunk(NearestPack *pack, int64_t chunk) {
  const int64_t first = chunk * CHUNK;
  const __mmask16 mask = lanes_of(words_of(pack, chunk));
  float *turned = chunk_turned(pack, chunk);
  if (is_wide(pack->d)) turn_chunk(pack, chunk);
  find_constants(pack, chunk, turned);
  const Rounded rounded = round_to_bytes(pack->d, turned, pack->mean, pack->step, 0, pack->bytes + chunk * pack->quads * CHUNK, CHUNK);
  const __m512 constants = _mm512_abs_ps(_mm512_maskz_loadu_ps(mask, pack->constant + first));
  const __m512 norms = _mm512_abs_ps(_mm512_maskz_loadu_ps(mask, pack->half_norm + first));
  pack->max_constant = larger(pack->max_constant, _mm512_reduce_max_ps(constants));
  pack->max_half_norm = larger(pack->max_half_norm, _mm512_reduce_max_ps(norms));
  pack->max_rest = longest(pack->max_rest, _mm512_maskz_mov_ps(mask, rounded.rest_squares));
  pack->max_packed = longest(pack->max_packed, _mm512_maskz_mov_ps(mask, rounded.packed_squares));
  _mm512_storeu_si512(pack->sums + first, _mm512_maskz_mov_epi32(mask, rounded.sums));
  clear_padding(pack, chunk, mask);
  pack->finite = pack->finite && _mm512_mask_cmp_ps_mask(mask, constants, _mm512_set1_ps(1e30f), _CMP_NLT_UQ) == 0;
}

static void pack_words(int64_t k, int64_t d, const float *words, const float *half_norm, NearestPack *pack) {
  lay_out(pack, k, d);
  pack->words = words;
  pack->half_norm = half_norm;
  for (int64_t w = 0; w < pack->chunks * CHUNK; w++) pack->turned_half_norm[w] = w < k ? half_norm[w] : INFINITY;
  for (int64_t chunk = 0; !is_wide(d) && chunk < pack->chunks; chunk++) turn_chunk(pack, chunk);
  find_mean(pack);
  const float reach = find_reach(pack);
  pack->step = reach > 0 ? reach / MAX_BYTE : 1;
  pack->finite = pack->step > 1e-15f;
  for (int64_t chunk = 0; chunk < pack->chunks; chunk++) pack_chunk(pack, chunk);
  pack->usable = pack->finite && pack->step < 1e15f && pack->mean_norm < 1e15f && pack->max_word < 1e15f;
}

/* ---- a tile of rows in bytes ---- */

typedef struct Tile {
  const NearestPack *pack;
  const float *x; /* [rows, d] */
  int64_t ldx, rows, vectors;
  int32_t *bytes;                         /* [quads, vectors, LANES] */
  float *turned;                          /* [vectors, d, LANES] */
  int32_t *start;                         /* [chunks, CHUNK] what sums begin with */
  int32_t *scores;                        /* [chunks or words, vectors, LANES] */
  int32_t *list;                          /* of candidates: row in the lowest 4 bits, chunk or word above */
  int32_t window[NARROW_VECTORS * LANES]; /* how far below the best a score may be */
} Tile;

static int64_t vectors_of(int64_t d) { return is_wide(d) ? WIDE_VECTORS : NARROW_VECTORS; }

/* Cuts `memory` for a tile when it is there; returns the bytes. */
static size_t lay_out_tile(Tile *tile, int64_t k, int64_t d, void *memory) {
  const size_t chunks = (size_t)(k + CHUNK - 1) / CHUNK, quads = (size_t)(d + 3) / 4, lanes = (size_t)vectors_of(d) * LANES;
  const size_t scores = is_wide(d) ? chunks * CHUNK : chunks;
  const size_t sizes[] = {quads * lanes * 4, (size_t)d * lanes * 4, chunks * CHUNK * 4, scores * lanes * 4, (scores + 1) * LANES * 4};
  size_t at[6] = {0};
  for (int i = 0; i < 5; i++) at[i + 1] = at[i] + whole(sizes[i]);
  if (tile == NULL) return at[5];
  char *bytes = memory;
  tile->bytes = (int32_t *)(void *)(bytes + at[0]);
  tile->turned = (float *)(void *)(bytes + at[1]);
  tile->start = (int32_t *)(void *)(bytes + at[2]);
  tile->scores = (int32_t *)(void *)(bytes + at[3]);
  tile->list = (int32_t *)(void *)(bytes + at[4]);
  return at[5];
}

static size_t search_bytes(int64_t k, int64_t d) { return is_served(k, d) ? lay_out_tile(NULL, k, d, NULL) : 0; }

static int64_t rows_of(const Tile *tile, int64_t vector) {
  const int64_t left = tile->rows - vector * LANES;
  return left < 0 ? 0 : left < LANES ? left : LANES;
}

/* Turns the rows; squares[v]: |x - m|^2 of its rows. Returns the largest |x - m| of a number. */
static float turn_rows(const Tile *tile, __m512 squares[NARROW_VECTORS]) {
  const int64_t d = tile->pack->d;
  __m512 max = _mm512_setzero_ps();
  for (int64_t v = 0; v < tile->vectors; v++) {
    float *turned = tile->turned + v * d * LANES;
    const __mmask16 mask = lanes_of(rows_of(tile, v));
    turn(rows_of(tile, v), d, tile->x + v * LANES * tile->ldx, tile->ldx, turned);
    squares[v] = _mm512_setzero_ps();
    for (int64_t i = 0; i < d; i++) {
      const __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(turned + i * LANES), _mm512_set1_ps(tile->pack->mean[i]));
      squares[v] = _mm512_fmadd_ps(difference, difference, squares[v]);
      max = _mm512_mask_max_ps(max, mask, max, _mm512_abs_ps(difference));
    }
  }
  return _mm512_reduce_max_ps(max);
}

/* Twice the bound of the error of a score, in units of step times the rows' step: that of the bytes, the roundings of sums in float (of the
 * exact scores, of c_e, of differences with the mean: d + 8 of them at most in a row), and one for each score's own rounding to a whole
 * number. The factor covers the roundings of the bound itself. */
static __m512 window_of(const NearestPack *pack, __m512 squares, __m512 rest_squares, float unit) {
  const __m512 length = _mm512_sqrt_ps(squares), rest = _mm512_sqrt_ps(rest_squares);
  const float epsilon = 0x1p-23f * (float)(pack->d + 8);
  __m512 bound = _mm512_mul_ps(length, _mm512_set1_ps(pack->max_rest + epsilon * pack->max_word));
  bound = _mm512_fmadd_ps(rest, _mm512_set1_ps(pack->max_packed), bound);
  bound = _mm512_add_ps(bound, _mm512_set1_ps(epsilon * (pack->mean_norm * pack->max_word + pack->max_half_norm + pack->max_constant)));
  return _mm512_fmadd_ps(bound, _mm512_set1_ps(2.002f / unit), _mm512_set1_ps(4));
}

/* The bytes of a tile's rows, what its sums begin with, and the windows. False: not to be searched in bytes. */
static bool round_rows(Tile *tile) {
  const NearestPack *pack = tile->pack;
  __m512 squares[NARROW_VECTORS];
  const float reach = turn_rows(tile, squares);
  /* Rows much smaller than the words get no finer step than keeps c_e / unit a number of 32 bits. */
  const float step = larger(reach / MAX_BYTE, pack->step / 8), unit = step * pack->step;
  if (!(pack->usable && step < 1e15f && pack->max_constant / unit < 0x1p30f)) return false;
  for (int64_t v = 0; v < tile->vectors; v++) {
    const __mmask16 mask = lanes_of(rows_of(tile, v));
    const Rounded rounded = round_to_bytes(pack->d, tile->turned + v * pack->d * LANES, pack->mean, step, OFFSET, tile->bytes + v * LANES,
                                           tile->vectors * LANES);
    const __m512 window = window_of(pack, squares[v], rounded.rest_squares, unit);
    if (_mm512_mask_cmp_ps_mask(mask, window, _mm512_set1_ps(0x1p29f), _CMP_NLT_UQ)) return false; /* nor where it is not a number */
    _mm512_storeu_si512(tile->window + v * LANES, _mm512_cvtps_epi32(window));
  }
  for (int64_t w = 0; w < pack->chunks * CHUNK; w += CHUNK) {
    const __m512 constant = _mm512_mul_ps(_mm512_loadu_ps(pack->constant + w), _mm512_set1_ps(1 / unit));
    const __m512i offset = _mm512_slli_epi32(_mm512_loadu_si512(pack->sums + w), 7); /* OFFSET times */
    _mm512_storeu_si512(tile->start + w, _mm512_sub_epi32(_mm512_cvtps_epi32(constant), offset));
  }
  for (int64_t w = pack->k; w < pack->chunks * CHUNK; w++) tile->start[w] = INT32_MIN;
  return true;
}

/* ---- scores ---- */

/* sums[w vectors + v] = the scores of `words` words from number `word` of a chunk on, for `vectors` vectors of rows: constants, so that all
 * sums are kept in registers. */
static inline __attribute__((always_inline)) void score_block(int words, int vectors, int64_t quads, const Tile *tile, int64_t chunk,
                                                              int64_t word, __m512i sums[SUMS]) {
  const int32_t *start = tile->start + chunk * CHUNK + word, *e = tile->pack->bytes + chunk * quads * CHUNK + word, *x = tile->bytes;
#pragma GCC unroll 8
  for (int w = 0; w < words; w++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[w * vectors + v] = _mm512_set1_epi32(start[w]);
#pragma GCC unroll 3
  for (int64_t quad = 0; quad < quads; quad++, e += CHUNK, x += vectors * LANES) {
    __m512i rows[NARROW_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) rows[v] = _mm512_loadu_si512(x + v * LANES);
#pragma GCC unroll 8
    for (int w = 0; w < words; w++) {
      const __m512i numbers = _mm512_set1_epi32(e[w]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sums[w * vectors + v] = _mm512_dpbusd_epi32(sums[w * vectors + v], rows[v], numbers);
    }
  }
}

/* scores[chunk] = the best of its words; best[v] of all. */
static inline __attribute__((always_inline)) void score_chunks_of(const Tile *tile, int64_t quads, __m512i best[NARROW_VECTORS]) {
  for (int v = 0; v < NARROW_VECTORS; v++) best[v] = _mm512_set1_epi32(INT32_MIN);
  for (int64_t chunk = 0; chunk < tile->pack->chunks; chunk++) {
    __m512i max[NARROW_VECTORS], sums[SUMS];
    for (int64_t word = 0; word < CHUNK; word += NARROW_WORDS) {
      score_block(NARROW_WORDS, NARROW_VECTORS, quads, tile, chunk, word, sums);
#pragma GCC unroll 4
      for (int v = 0; v < NARROW_VECTORS; v++) {
        const __m512i low = _mm512_max_epi32(sums[v], sums[NARROW_VECTORS + v]);
        const __m512i high = _mm512_max_epi32(sums[2 * NARROW_VECTORS + v], sums[3 * NARROW_VECTORS + v]);
        max[v] = word == 0 ? _mm512_max_epi32(low, high) : _mm512_max_epi32(_mm512_max_epi32(low, high), max[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < NARROW_VECTORS; v++) {
      _mm512_storeu_si512(tile->scores + (chunk * NARROW_VECTORS + v) * LANES, max[v]);
      best[v] = _mm512_max_epi32(best[v], max[v]);
    }
  }
}

/* Few numbers are unrolled: their sums begin and end so often that loops would count. */
static void score_chunks(const Tile *tile, __m512i best[NARROW_VECTORS]) {
  switch (tile->pack->quads) {
  case 1:
    score_chunks_of(tile, 1, best);
    break;
  case 2:
    score_chunks_of(tile, 2, best);
    break;
  case 3:
    score_chunks_of(tile, 3, best);
    break;
  default:
    score_chunks_of(tile, tile->pack->quads, best);
  }
}

/* scores[word], and best[v] of all. */
static void score_words(const Tile *tile, __m512i best[WIDE_VECTORS]) {
  for (int v = 0; v < WIDE_VECTORS; v++) best[v] = _mm512_set1_epi32(INT32_MIN);
  for (int64_t chunk = 0; chunk < tile->pack->chunks; chunk++)
    for (int64_t word = 0; word < CHUNK; word += WIDE_WORDS) {
      __m512i sums[SUMS];
      score_block(WIDE_WORDS, WIDE_VECTORS, tile->pack->quads, tile, chunk, word, sums);
#pragma GCC unroll 8
      for (int w = 0; w < WIDE_WORDS; w++)
#pragma GCC unroll 2
        for (int v = 0; v < WIDE_VECTORS; v++) {
          const __m512i sum = sums[w * WIDE_VECTORS + v];
          _mm512_storeu_si512(tile->scores + ((chunk * CHUNK + word + w) * WIDE_VECTORS + v) * LANES, sum);
          best[v] = _mm512_max_epi32(best[v], sum);
        }
    }
}

/* ---- candidates, compared in float ---- */

/* Lists which of `count` chunks or words may hold the nearest for the rows of one vector, in ascending order: those whose scores are not
 * below `min`. */
static int64_t list_candidates(const Tile *tile, int64_t vector, int64_t count, __m512i min) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 rows = lanes_of(rows_of(tile, vector));
  const int32_t *scores = tile->scores + vector * LANES;
  int32_t *to = tile->list;
  for (int64_t i = 0; i < count; i++, scores += tile->vectors * LANES) {
    const __mmask16 mask = _mm512_mask_cmp_epi32_mask(rows, _mm512_loadu_si512(scores), min, _MM_CMPINT_NLT);
    const __m512i entries = _mm512_or_si512(lanes, _mm512_set1_epi32((int32_t)i * LANES));
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(mask, entries));
    to += __builtin_popcount(mask);
  }
  return to - tile->list;
}

/* Everything is a candidate. */
static void open_windows(const Tile *tile, int64_t count, __m512i min[NARROW_VECTORS]) {
  for (int v = 0; v < NARROW_VECTORS; v++) min[v] = _mm512_set1_epi32(INT32_MIN);
  memset(tile->scores, 0, (size_t)(count * tile->vectors * LANES) * sizeof *tile->scores);
}

/* The sums of nearest_words, in its order; lanes are the words of a chunk. Each lane keeps its first best, then the lowest index of the
 * best lanes is the answer. */
static void compare_chunks(const Tile *tile, int64_t vector, int64_t count, int32_t *codes, int64_t stride) {
  const NearestPack *pack = tile->pack;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const int64_t d = pack->d;
  __m512 best[LANES];
  __m512i word[LANES];
  for (int64_t r = 0; r < LANES; r++) best[r] = _mm512_set1_ps(-INFINITY), word[r] = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = tile->list[i] % LANES, chunk = tile->list[i] / LANES;
    const float *x = tile->x + (vector * LANES + row) * tile->ldx, *e = pack->turned + chunk * d * CHUNK;
    __m512 score = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_loadu_ps(pack->turned_half_norm + chunk * CHUNK));
#pragma GCC unroll 4
    for (int64_t j = 0; j < d; j++) score = _mm512_fmadd_ps(_mm512_set1_ps(x[j]), _mm512_loadu_ps(e + j * CHUNK), score);
    const __mmask16 more = _mm512_cmp_ps_mask(best[row], score, _CMP_LT_OQ);
    best[row] = _mm512_mask_mov_ps(best[row], more, score);
    word[row] = _mm512_mask_or_epi32(word[row], more, lanes, _mm512_set1_epi32((int32_t)chunk * CHUNK));
  }
  for (int64_t r = 0; r < rows_of(tile, vector); r++) {
    const __mmask16 equal = _mm512_cmp_ps_mask(best[r], _mm512_set1_ps(_mm512_reduce_max_ps(best[r])), _CMP_EQ_OQ);
    codes[(vector * LANES + r) * stride] = _mm512_mask_reduce_min_epi32(equal, word[r]);
  }
}

static float dot(int64_t d, const float *x, const float *y) {
  __m512 sum[4];
  for (int i = 0; i < 4; i++) sum[i] = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 4 * LANES <= d; i += 4 * LANES)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum[j] = _mm512_fmadd_ps(_mm512_loadu_ps(x + i + j * LANES), _mm512_loadu_ps(y + i + j * LANES), sum[j]);
  for (; i < d; i += LANES) {
    const __mmask16 mask = (__mmask16)(d - i < LANES ? (1u << (d - i)) - 1 : 0xffff);
    sum[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i), sum[0]);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
}

static void compare_words(const Tile *tile, int64_t vector, int64_t count, int32_t *codes, int64_t stride) {
  const NearestPack *pack = tile->pack;
  float best[LANES];
  for (int64_t r = 0; r < LANES; r++) best[r] = -INFINITY;
  for (int64_t r = 0; r < rows_of(tile, vector); r++) codes[(vector * LANES + r) * stride] = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = tile->list[i] % LANES, at = vector * LANES + row, word = tile->list[i] / LANES;
    const float score = dot(pack->d, tile->x + at * tile->ldx, pack->words + word * pack->d) - pack->half_norm[word];
    if (!(best[row] < score)) continue;
    best[row] = score;
    codes[at * stride] = (int32_t)word;
  }
}

/* ---- the search ---- */

static void search(const NearestPack *pack, int64_t rows, const float *x, int64_t ldx, int32_t *codes, int64_t stride, void *memory) {
  const bool wide = is_wide(pack->d);
  const int64_t count = wide ? pack->k : pack->chunks;
  Tile tile = {.pack = pack, .ldx = ldx, .vectors = vectors_of(pack->d)};
  lay_out_tile(&tile, pack->k, pack->d, memory);
  for (int64_t first = 0; first < rows; first += tile.vectors * LANES) {
    __m512i best[NARROW_VECTORS];
    tile.x = x + first * ldx;
    tile.rows = rows - first < tile.vectors * LANES ? rows - first : tile.vectors * LANES;
    if (round_rows(&tile)) {
      (wide ? score_words : score_chunks)(&tile, best);
      for (int64_t v = 0; v < tile.vectors; v++) best[v] = _mm512_sub_epi32(best[v], _mm512_loadu_si512(tile.window + v * LANES));
    } else {
      open_windows(&tile, count, best);
    }
    for (int64_t v = 0; v < tile.vectors && rows_of(&tile, v) > 0; v++) {
      const int64_t candidates = list_candidates(&tile, v, count, best[v]);
      (wide ? compare_words : compare_chunks)(&tile, v, candidates, codes + first * stride, stride);
    }
  }
}

const NearestPacked *nearest_packed_vnni(void) {
  static const NearestPacked table = {pack_bytes, search_bytes, pack_words, search};
  return &table;
}
#else
const NearestPacked *nearest_packed_vnni(void) { return NULL; }
#endif
