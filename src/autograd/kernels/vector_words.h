/* Codewords on vectors: the nearest ones, and lists of them. */
#ifndef AUTOGRAD_VECTOR_WORDS_H
#define AUTOGRAD_VECTOR_WORDS_H
#include "autograd/kernels/vector_math.h"

/* ---- nearest ---- */

/* Nearest codewords on vectors: the product of rows and codewords and the search for each row's best in one, so that no score is ever
 * stored. Lanes are rows: a block of rows is turned to [d, rows] once (d numbers a row against k d products), codewords are read as they
 * lie, each number spread over the lanes, and the best of each lane is kept without a search across lanes.
 *
 * Cost: k d fused multiply-adds and k (compare, max, select) for each vector of rows. BLAS and a scan of its scores take 1.2
 * (d = 48), 1.7 (24) or 3.7 times (6) as long on AVX-512; for wider groups the scan no longer counts and BLAS serves. A row's scores are
 * summed in the same order wherever the row stands, so codes do not depend on how rows are cut into blocks. */
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

/* ---- lists ---- */

/* Lists of codewords on vectors: copies, distances, gradients towards them, sums into them. Words are often shorter than a vector, so a
 * word is one masked vector where it fits: a call for each would cost more than its work. */
/* Runs the body for each vector of each word: `at` is where it begins in the words, `place` in the vectors `step` apart, `left` its
 * numbers. */
#define EACH_WORD(list, step, ...)                                                                                                         \
  for (int64_t item = 0; item < (list)->count; item++) {                                                                                   \
    const int64_t word = item * (list)->word_step + (list)->codes[item * (list)->code_step] * (list)->d;                                   \
    if ((list)->n <= VECTOR_WIDTH) {                                                                                                       \
      const int64_t at = word, place = item * (step), left = (list)->n;                                                                    \
      __VA_ARGS__                                                                                                                          \
    } else {                                                                                                                               \
      for (int64_t i = 0; i < (list)->n; i += VECTOR_WIDTH) {                                                                              \
        const int64_t left = (list)->n - i < VECTOR_WIDTH ? (list)->n - i : VECTOR_WIDTH, at = word + i, place = item * (step) + i;        \
        __VA_ARGS__                                                                                                                        \
      }                                                                                                                                    \
    }                                                                                                                                      \
  }

/* Short words that lie one behind the other, as the groups of a row do. */
static inline bool words_are_a_row(const WordList *list, int64_t step) { return list->n < VECTOR_WIDTH && step == list->n; }

/* Each is stored as a whole vector, whose rest the following words overwrite, as long as no more than `room` numbers are written. */
static inline void words_copy_row(const WordList *list, float *out, int64_t room) {
  const int64_t n = list->n;
  for (int64_t item = 0; item < list->count; item++) {
    const Vector word = v_load(list->words + item * list->word_step + list->codes[item * list->code_step] * list->d, n);
    if (item * n + VECTOR_WIDTH <= room)
      v_store(out + item * n, word, VECTOR_WIDTH);
    else
      v_store_short(out + item * n, word, n);
  }
}

static void vector_words_copy(const WordList *list, float *out, int64_t step) {
  if (words_are_a_row(list, step))
    words_copy_row(list, out, list->count * list->n);
  else
    EACH_WORD(list, step, v_store(out + place, v_load(list->words + at, left), left);)
}

/* A row is copied together first and then worked on in whole vectors: fewer operations, and no vector is read while one that overlaps it is
 * still being written. */
enum { WORDS_ROW = 512, WORDS_ROOM = WORDS_ROW + VECTOR_WIDTH };

/* How many words, from `item` on, make a row of at most WORDS_ROW numbers, which goes to `row`. */
static inline int64_t words_row(const WordList *list, int64_t item, float row[WORDS_ROOM]) {
  const int64_t count = list->count - item < WORDS_ROW / list->n ? list->count - item : WORDS_ROW / list->n;
  WordList part = *list;
  part.count = count;
  part.words += item * list->word_step;
  part.codes += item * list->code_step;
  words_copy_row(&part, row, WORDS_ROOM);
  return count;
}

static inline void add_squares(Vector x, Vector y, Doubles *low, Doubles *high) {
  const Doubles low_difference = v_low(x) - v_low(y), high_difference = v_high(x) - v_high(y);
  *low += low_difference * low_difference;
  *high += high_difference * high_difference;
}

static double vector_words_distance(const WordList *list, const float *x, int64_t step) {
  Doubles low = {0}, high = {0};
  float row[WORDS_ROOM];
  if (words_are_a_row(list, step)) {
    for (int64_t item = 0, count; item < list->count; item += count) {
      count = words_row(list, item, row);
      EACH_VECTOR(count * list->n, add_squares(v_load(x + item * list->n + i, left), v_load(row + i, left), &low, &high););
    }
  } else {
    EACH_WORD(list, step, add_squares(v_load(x + place, left), v_load(list->words + at, left), &low, &high);)
  }
  double sum = 0;
  low += high;
  for (int lane = 0; lane < VECTOR_WIDTH / 2; lane++) sum += low[lane];
  return sum;
}

static inline void pull(Vector factor, const float *x, const float *word, float *y, int64_t left) {
  v_store(y, v_fma(factor, v_load(x, left) - v_load(word, left), v_load(y, left)), left);
}

static void vector_words_pull(const WordList *list, float factor, const float *x, int64_t step, float *y) {
  const Vector factors = v_set(factor);
  float row[WORDS_ROOM];
  if (words_are_a_row(list, step)) {
    for (int64_t item = 0, count; item < list->count; item += count) {
      const int64_t first = item * list->n;
      count = words_row(list, item, row);
      EACH_VECTOR(count * list->n, pull(factors, x + first + i, row + i, y + first + i, left););
    }
  } else {
    EACH_WORD(list, step, pull(factors, x + place, list->words + at, y + place, left);)
  }
}

static void vector_words_add(const WordList *list, float gain, const float *x, int64_t step, float *sums) {
  const Vector gains = v_set(gain);
  EACH_WORD(list, step, v_store(sums + at, v_fma(gains, v_load(x + place, left), v_load(sums + at, left)), left);)
}

static inline void sum_doubles(Vector x, double *sums, int64_t left) {
  enum { HALF = VECTOR_WIDTH / 2 };
  Doubles sum[2];
  if (left == VECTOR_WIDTH) {
    memcpy(sum, sums, sizeof sum);
    sum[0] += v_low(x), sum[1] += v_high(x);
    memcpy(sums, sum, sizeof sum);
    return;
  }
  sum[0] = v_low(x), sum[1] = v_high(x);
  for (int64_t i = 0; i < left; i++) sums[i] += sum[i / HALF][i % HALF];
}

static void vector_words_sum(const WordList *list, const float *x, int64_t step, double *sums) {
  EACH_WORD(list, step, sum_doubles(v_load(x + place, left), sums + at, left);)
}

#undef EACH_WORD

/* Lanes are the numbers that come out: columns are read as they lie, each number that goes in is spread over the lanes. */
static inline __attribute__((always_inline)) void triangle(int vectors, int64_t d, Vector scale, const float *mean, const float *columns,
                                                           const float *x, float *out) {
  enum { MAX = TRIANGLE_MAX_WIDTH / VECTOR_WIDTH };
  Vector sum[MAX];
  const int64_t last = d - (vectors - 1) * VECTOR_WIDTH; /* numbers of the last vector */
  for (int v = 0; v < vectors; v++) sum[v] = v_load(mean + v * VECTOR_WIDTH, v == vectors - 1 ? last : VECTOR_WIDTH);
  for (int64_t j = 0; j < d; j++) {
    const Vector number = v_set(x[j]);
    for (int v = 0; v < vectors; v++)
      sum[v] = v_fma(v_load(columns + j * d + v * VECTOR_WIDTH, v == vectors - 1 ? last : VECTOR_WIDTH), number, sum[v]);
  }
  for (int v = 0; v < vectors; v++) v_store(out + v * VECTOR_WIDTH, scale * sum[v], v == vectors - 1 ? last : VECTOR_WIDTH);
}

static void vector_triangles(int64_t groups, int64_t d, float scale, const float *mean, const float *columns, const float *x, float *out) {
  const Vector factor = v_set(scale);
  for (int64_t g = 0; g < groups; g++, mean += d, columns += d * d, x += d, out += d) {
    if (d <= VECTOR_WIDTH)
      triangle(1, d, factor, mean, columns, x, out);
    else if (d <= 2 * VECTOR_WIDTH)
      triangle(2, d, factor, mean, columns, x, out);
    else
      triangle((int)((d + VECTOR_WIDTH - 1) / VECTOR_WIDTH), d, factor, mean, columns, x, out);
  }
}

#endif
