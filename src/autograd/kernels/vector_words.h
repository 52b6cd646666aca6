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

static void vector_words_copy(const WordList *list, float *out, int64_t step) {
  EACH_WORD(list, step, v_store(out + place, v_load(list->words + at, left), left);)
}

static double vector_words_distance(const WordList *list, const float *x, int64_t step) {
  Doubles low = {0}, high = {0};
  EACH_WORD(list, step, {
    const Vector number = v_load(x + place, left), other = v_load(list->words + at, left);
    const Doubles low_difference = v_low(number) - v_low(other), high_difference = v_high(number) - v_high(other);
    low += low_difference * low_difference;
    high += high_difference * high_difference;
  })
  double sum = 0;
  low += high;
  for (int lane = 0; lane < VECTOR_WIDTH / 2; lane++) sum += low[lane];
  return sum;
}

static void vector_words_pull(const WordList *list, float factor, const float *x, int64_t step, float *y) {
  const Vector factors = v_set(factor);
  EACH_WORD(list, step, {
    const Vector difference = v_load(x + place, left) - v_load(list->words + at, left);
    v_store(y + place, v_fma(factors, difference, v_load(y + place, left)), left);
  })
}

static void vector_words_add(const WordList *list, float gain, const float *x, int64_t step, float *sums) {
  const Vector gains = v_set(gain);
  EACH_WORD(list, step, v_store(sums + at, v_fma(gains, v_load(x + place, left), v_load(sums + at, left)), left);)
}

#undef EACH_WORD
#endif
