/* Lists of codewords on vectors: copies, distances, gradients towards them, sums into them. Words are often shorter than a vector, so a
 * word is one masked vector where it fits: a call for each would cost more than its work. */
#ifndef AUTOGRAD_VECTOR_WORDS_H
#define AUTOGRAD_VECTOR_WORDS_H

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
