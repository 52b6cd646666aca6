/* Nearest codewords on vectors: the product of rows and codewords and the search for each row's best in one, so that no score is ever
 * stored. Lanes are rows: a block of rows is turned to [d, rows] once (d numbers a row against k d products), codewords are read as they
 * lie, each number spread over the lanes, and the best of each lane is kept without a search across lanes.
 *
 * Cost: k d fused multiply-adds and k (compare, max, select) for each vector of rows. BLAS and a scan of its scores take 1.2
 * (d = 48), 1.7 (24) or 3.7 times (6) as long on AVX-512; for wider groups the scan no longer counts and BLAS serves. A row's scores are
 * summed in the same order wherever the row stands, so codes do not depend on how rows are cut into blocks. */
#ifndef AUTOGRAD_VECTOR_NEAREST_H
#define AUTOGRAD_VECTOR_NEAREST_H
#include "autograd/kernels/vector_math.h"

enum { NEAREST_WORDS = 4, NEAREST_VECTORS = VECTOR_WIDTH == 16 ? 4 : 2 }; /* of a block: as many sums as fit into the registers */

/* Rows [first, first + rows) of x as columns: to[i][row]; lanes beyond `rows` are zero. */
static inline void nearest_turn(int64_t rows, int64_t lanes, int64_t d, const float *x, int64_t ldx, float *to) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < d; i++) to[i * lanes + r] = x[r * ldx + i];
  for (int64_t r = rows; r < lanes; r++)
    for (int64_t i = 0; i < d; i++) to[i * lanes + r] = 0;
}

/* The scores x.e - |e|^2 / 2 of `words` codewords from e on, against `vectors` vectors of rows: the largest is the nearest. A constant
 * count of each keeps all sums in registers. */
static inline __attribute__((always_inline)) void nearest_score(int vectors, int words, int64_t d, const float *turned, const float *e,
                                                                const float *half_norm, Vector score[NEAREST_WORDS][NEAREST_VECTORS]) {
#pragma GCC unroll 4
  for (int w = 0; w < words; w++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) score[w][v] = v_set(-half_norm[w]);
  for (int64_t i = 0; i < d; i++) {
    Vector x[NEAREST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) x[v] = v_load(turned + (i * vectors + v) * VECTOR_WIDTH, VECTOR_WIDTH);
#pragma GCC unroll 4
    for (int w = 0; w < words; w++) {
      const Vector number = v_set(e[w * d + i]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) score[w][v] = v_fma(x[v], number, score[w][v]);
    }
  }
}

typedef struct NearestBest {
  Vector score[NEAREST_VECTORS];
  Integers word[NEAREST_VECTORS];
} NearestBest;

/* Words are met in order and only a better one takes the place: the lowest among equals stays. */
static inline __attribute__((always_inline)) void nearest_keep(int vectors, int words, int64_t first,
                                                               Vector score[NEAREST_WORDS][NEAREST_VECTORS], NearestBest *best) {
#pragma GCC unroll 4
  for (int w = 0; w < words; w++) {
    const Integers word = (Integers){0} + (int32_t)(first + w);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const Mask more = v_less(best->score[v], score[w][v]);
      best->score[v] = v_max(score[w][v], best->score[v]);
      best->word[v] = v_select_integers(more, word, best->word[v]);
    }
  }
}

static inline __attribute__((always_inline)) void nearest_block(int vectors, int64_t k, int64_t d, const float *turned, const float *words,
                                                                const float *half_norm, int32_t *found /* [vectors WIDTH] */) {
  NearestBest best;
  Vector score[NEAREST_WORDS][NEAREST_VECTORS];
  for (int v = 0; v < vectors; v++) {
    best.score[v] = v_set(-INFINITY);
    best.word[v] = (Integers){0};
  }
  int64_t j = 0;
  for (; j + NEAREST_WORDS <= k; j += NEAREST_WORDS) {
    nearest_score(vectors, NEAREST_WORDS, d, turned, words + j * d, half_norm + j, score);
    nearest_keep(vectors, NEAREST_WORDS, j, score, &best);
  }
  for (; j < k; j++) {
    nearest_score(vectors, 1, d, turned, words + j * d, half_norm + j, score);
    nearest_keep(vectors, 1, j, score, &best);
  }
  for (int v = 0; v < vectors; v++) memcpy(found + v * VECTOR_WIDTH, &best.word[v], sizeof best.word[v]);
}

static void vector_nearest_words(int64_t rows, int64_t k, int64_t d, const float *x, int64_t ldx, const float *words,
                                 const float *half_norm, int32_t *codes, int64_t stride) {
  enum { LANES = NEAREST_VECTORS * VECTOR_WIDTH };
  float turned[LANES * NEAREST_MAX_WIDTH];
  int32_t found[LANES];
  for (int64_t row = 0; row < rows;) {
    const bool whole = rows - row > LANES - VECTOR_WIDTH;
    const int64_t lanes = whole ? LANES : VECTOR_WIDTH, left = rows - row < lanes ? rows - row : lanes;
    nearest_turn(left, lanes, d, x + row * ldx, ldx, turned);
    if (whole)
      nearest_block(NEAREST_VECTORS, k, d, turned, words, half_norm, found);
    else
      nearest_block(1, k, d, turned, words, half_norm, found);
    for (int64_t r = 0; r < left; r++) codes[(row + r) * stride] = found[r];
    row += left;
  }
}

/* ---- distances to a few points ---- */

/* Squared distances of `vectors` vectors of samples (columns `n` apart) to `points` points, and their minima with `distances`. */
static inline __attribute__((always_inline)) void nearer_block(int vectors, int points, int64_t n, int64_t d, const float *columns,
                                                               const float *point, const float *distances, float *nearer, int64_t stride,
                                                               double *sums) {
  Vector found[NEAREST_WORDS][NEAREST_VECTORS];
#pragma GCC unroll 4
  for (int p = 0; p < points; p++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) found[p][v] = v_set(0);
  for (int64_t j = 0; j < d; j++) {
    Vector x[NEAREST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) x[v] = v_load(columns + j * n + v * VECTOR_WIDTH, VECTOR_WIDTH);
#pragma GCC unroll 4
    for (int p = 0; p < points; p++) {
      const Vector number = v_set(point[p * d + j]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        const Vector difference = x[v] - number;
        found[p][v] = v_fma(difference, difference, found[p][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < points; p++) {
    Doubles sum = {0};
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const Vector min = v_min(found[p][v], v_load(distances + v * VECTOR_WIDTH, VECTOR_WIDTH));
      v_store(nearer + p * stride + v * VECTOR_WIDTH, min, VECTOR_WIDTH);
      sum += v_low(min) + v_high(min);
    }
    for (int lane = 0; lane < VECTOR_WIDTH / 2; lane++) sums[p] += sum[lane];
  }
}

/* Cost: d (subtract, multiply-add) for each vector of samples and point. Several points at once read each sample once; the groups of four
 * have their sums in registers. */
static void vector_nearer(int64_t n, int64_t d, const float *columns, int64_t count, const float *points, const float *distances,
                          float *nearer, int64_t stride, double *sums) {
  enum { LANES = NEAREST_VECTORS * VECTOR_WIDTH };
  _Static_assert(NEARER_LANES % LANES == 0, "a multiple of whole blocks");
  for (int64_t c = 0; c < count; c++) sums[c] = 0;
  for (int64_t i = 0; i < n; i += LANES) {
    int64_t c = 0;
    for (; c + NEAREST_WORDS <= count; c += NEAREST_WORDS)
      nearer_block(NEAREST_VECTORS, NEAREST_WORDS, n, d, columns + i, points + c * d, distances + i, nearer + c * stride + i, stride,
                   sums + c);
    for (; c < count; c++)
      nearer_block(NEAREST_VECTORS, 1, n, d, columns + i, points + c * d, distances + i, nearer + c * stride + i, stride, sums + c);
  }
}

#endif
