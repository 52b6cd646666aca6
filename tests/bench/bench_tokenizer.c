/* MB/s of the tokenizers on English text, one thread: the first pass over a text (an empty cache) and the median of later ones, splitting
 * alone, decoding; milliseconds for a piece of 100 KB and for reading the files; seconds to train a vocabulary of 4096. Not a test; wanted
 * are 5 MB/s. The text is enwiki/valid.txt of $ASTRA_SHARED/data or ../shared/data, or the file in $ASTRA_BENCH_TEXT. */
#include "base/clock.h"
#include "base/files.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer_files.c" /* its parser of bytes in memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 9, LONG = 100000 };
static const size_t max = (size_t)1 << 30;

static void check(Status status) {
  if (status == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(1);
}

static int ascending(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

static char *load(const char *path, size_t *size) {
  char *text;
  check(text_source_read_file(path, max, &text, size));
  return text;
}

static double encode(Tokenizer *tokenizer, const char *text, size_t size, TokenList *list) {
  double started = clock_now();
  list->count = 0;
  check(tokenizer_encode(tokenizer, text, size, false, list));
  return clock_now() - started;
}

static double decode(const Tokenizer *tokenizer, const TokenList *list) {
  char *text;
  size_t bytes;
  double started = clock_now();
  check(tokenizer_decode(tokenizer, list->ids, list->count, &text, &bytes));
  free(text);
  return clock_now() - started;
}

static double split(BpePattern pattern, const char *text, size_t size) {
  BpeSplit *expression;
  BpeWalk *walk;
  check(bpe_split_new(&expression, pattern));
  check(bpe_split_walk(&walk, expression));
  double started = clock_now();
  bpe_split_start(walk, text, size);
  for (size_t length = 1; length > 0;) {
    const char *piece;
    check(bpe_split_next(walk, &piece, &length));
  }
  double seconds = clock_now() - started;
  bpe_split_walk_free(walk);
  bpe_split_free(expression);
  return seconds;
}

static void measure(Tokenizer *tokenizer, const char *name, const char *text, size_t size) {
  TokenList list = {0};
  double seconds[RUNS], mb = (double)size * 1e-6, first = encode(tokenizer, text, size, &list);
  for (int i = 0; i < RUNS; i++) seconds[i] = encode(tokenizer, text, size, &list);
  qsort(seconds, RUNS, sizeof *seconds, ascending);
  char *run = malloc(LONG);
  if (!run) check(status_set(STATUS_NO_MEMORY, "no memory"));
  printf("  %-8s first %6.1f MB/s  later %6.1f MB/s  %.3f bytes a token  splitting alone %6.1f MB/s  decoding %6.1f MB/s", name, mb / first,
         mb / seconds[RUNS / 2], (double)size / (double)list.count, mb / split(tokenizer->pattern, text, size),
         mb / decode(tokenizer, &list));
  memset(run, 'e', LONG);
  printf("  100 KB of one letter %5.1f ms\n", 1e3 * encode(tokenizer, run, LONG, &list));
  free(run);
  token_list_release(&list);
}

static Tokenizer *open_gpt2(void) {
  size_t vocab_size, merges_size;
  Tokenizer *tokenizer;
  char *vocab = load("tests/golden/tokenizers/gpt2/encoder.json.gz", &vocab_size);
  char *merges = load("tests/golden/tokenizers/gpt2/vocab.bpe.gz", &merges_size);
  double started = clock_now();
  check(parse_pair(&tokenizer, vocab, vocab_size, "encoder.json", merges, merges_size, "vocab.bpe"));
  printf("  gpt2     read in %.0f ms\n", 1e3 * (clock_now() - started));
  free(vocab);
  free(merges);
  return tokenizer;
}

static Tokenizer *open_llama3(void) {
  size_t size;
  Tokenizer *tokenizer;
  char *text = load("tests/golden/tokenizers/llama3/tokenizer.model.gz", &size);
  double started = clock_now();
  check(tokenizer_llama_ranks(&tokenizer, text, size, "tokenizer.model"));
  printf("  llama3   read in %.0f ms\n", 1e3 * (clock_now() - started));
  free(text);
  return tokenizer;
}

static Tokenizer *train(const char *path) {
  TokenizerTraining training = {.quiet = true};
  Tokenizer *tokenizer;
  double started = clock_now();
  check(tokenizer_train(&tokenizer, &path, 1, 4096, &training));
  printf("  trained  4096 pieces on %.1f MB in %.2f s, reading included\n", (double)training.bytes * 1e-6, clock_now() - started);
  return tokenizer;
}

int main(void) {
  const char *given = getenv("ASTRA_BENCH_TEXT"), *shared = getenv("ASTRA_SHARED");
  char path[512];
  size_t size;
  snprintf(path, sizeof path, "%s%s", given ? given : shared ? shared : "../shared", given ? "" : "/data/enwiki/valid.txt");
  if (!files_exists(path)) {
    printf("skipped: %s is not there; ASTRA_BENCH_TEXT names another text, ASTRA_SHARED the folder with the real data\n", path);
    return 0;
  }
  char *text = load(path, &size);
  Tokenizer *tokenizers[] = {open_gpt2(), open_llama3(), train(path)};
  static const char *const names[] = {"gpt2", "llama3", "trained"};
  for (int i = 0; i < 3; i++) measure(tokenizers[i], names[i], text, size);
  for (int i = 0; i < 3; i++) tokenizer_close(tokenizers[i]);
  free(text);
  return 0;
}
