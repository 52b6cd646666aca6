/* Norms and duplicates of codewords: see codebook_facts.h. */
#include "cli/codebook_facts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A codeword to be sorted; the width travels with it because qsort's comparison has no context. */
typedef struct Word {
  const real *numbers;
  int64_t width;
} Word;

static int by_numbers(const void *a, const void *b) {
  const Word *x = a, *y = b;
  for (int64_t i = 0; i < x->width; i++)
    if (x->numbers[i] != y->numbers[i]) return x->numbers[i] < y->numbers[i] ? -1 : 1;
  return 0;
}

static int64_t duplicates_of(Word *words, int64_t count) {
  int64_t found = 0;
  qsort(words, (size_t)count, sizeof *words, by_numbers);
  for (int64_t i = 1; i < count; i++) found += by_numbers(&words[i - 1], &words[i]) == 0;
  return found;
}

static double norm_of(const Word *word) {
  double square = 0;
  for (int64_t i = 0; i < word->width; i++) square += (double)word->numbers[i] * (double)word->numbers[i];
  return sqrt(square);
}

Status codebook_facts(const real *codewords, int64_t groups, int64_t entries, int64_t width, CodebookFacts *facts) {
  *facts = (CodebookFacts){.norm_least = INFINITY};
  Word *words = calloc((size_t)entries, sizeof *words);
  if (words == NULL) return status_set(STATUS_NO_MEMORY, "no memory to sort %lld codewords", (long long)entries);
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t i = 0; i < entries; i++) {
      words[i] = (Word){codewords + (g * entries + i) * width, width};
      double norm = norm_of(&words[i]);
      facts->norm_mean += norm / (double)(groups * entries);
      if (norm < facts->norm_least) facts->norm_least = norm;
      if (norm > facts->norm_most) facts->norm_most = norm;
    }
    facts->duplicates += duplicates_of(words, entries);
  }
  free(words);
  return STATUS_OK;
}
