/* Training: see bpe_train.h. Counting is in bpe_words.c, the pairs in bpe_counts.c; here is what becomes of the best pair.
 * Two merges can make the same bytes (a, bc and ab, c): then both lead to one piece, and the vocabulary grows by one, not two. */
#include "data/tokenizer/bpe_train.h"
#include "base/progress.h"
#include "data/text/text_reader.h"
#include "data/tokenizer/bpe_alphabet.h"
#include "data/tokenizer/bpe_counts.h"
#include "data/tokenizer/tokenizer_model.h"
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };
static const size_t file_most = (size_t)16 << 30; /* a file is read whole */
static const char end_of_text[] = "<|endoftext|>";

struct BpeTrain {
  BpeSplit *split;
  BpeWalk *walk;
  BpeWords words;
};

Status bpe_train_new(BpeTrain **train) {
  *train = calloc(1, sizeof **train);
  if (!*train) return status_set(STATUS_NO_MEMORY, "no memory to train a tokenizer");
  Status status = bpe_split_new(&(*train)->split, BPE_PATTERN_GPT2);
  if (status == STATUS_OK) status = bpe_split_walk(&(*train)->walk, (*train)->split);
  if (status == STATUS_OK) return STATUS_OK;
  bpe_train_free(*train);
  *train = NULL;
  return status;
}

void bpe_train_free(BpeTrain *train) {
  if (!train) return;
  bpe_split_walk_free(train->walk);
  bpe_split_free(train->split);
  bpe_words_release(&train->words);
  free(train);
}

Status bpe_train_add(BpeTrain *train, const char *text, size_t size) {
  const char *piece;
  size_t length;
  bpe_split_start(train->walk, text, size);
  for (;;) {
    TRY(bpe_split_next(train->walk, &piece, &length));
    if (length == 0) return STATUS_OK;
    TRY(bpe_words_add(&train->words, piece, length));
  }
}

Status bpe_train_add_file(BpeTrain *train, const char *path, int64_t *bytes) {
  char *text;
  size_t size;
  TRY(text_reader_all(path, file_most, &text, &size));
  Status status = bpe_train_add(train, text, size);
  free(text);
  *bytes += (int64_t)size;
  return status;
}

int64_t bpe_train_words(const BpeTrain *train) { return (int64_t)train->words.count; }

static Status put_bytes(Tokenizer *tokenizer) {
  for (int id = 0; id < BYTES; id++) {
    unsigned char byte = bpe_alphabet_byte(id);
    tokenizer->byte_ids[byte] = id;
    TRY(bpe_pieces_put(&tokenizer->pieces, id, (const char *)&byte, 1, true));
  }
  return STATUS_OK;
}

/* Puts the joined piece in, if it is new, as *next, which grows then; its id. */
static Status name_pair(Tokenizer *tokenizer, const BpeBest *best, int32_t *next, int32_t *id) {
  BpePieces *pieces = &tokenizer->pieces;
  const BpePair *known = bpe_pairs_find(&tokenizer->pairs, best->left, best->right);
  if (known) { /* merged before; a later merge has made the pair anew */
    *id = known->id;
    return STATUS_OK;
  }
  size_t left, right;
  const char *first = bpe_pieces_text(pieces, best->left, &left), *second = bpe_pieces_text(pieces, best->right, &right);
  char *bytes = malloc(left + right);
  if (!bytes) return status_set(STATUS_NO_MEMORY, "no memory for a piece");
  memcpy(bytes, first, left);
  memcpy(bytes + left, second, right);
  *id = bpe_pieces_find(pieces, bytes, left + right);
  Status status = *id < 0 ? bpe_pieces_put(pieces, *next, bytes, left + right, true) : STATUS_OK;
  if (status == STATUS_OK && *id < 0) *id = (*next)++;
  if (status == STATUS_OK) status = tokenizer_model_add_joined(tokenizer, bytes, left, left + right);
  free(bytes);
  return status;
}

static Status merge_pairs(Tokenizer *tokenizer, BpeCounts *counts, Progress *progress) {
  int32_t last = tokenizer->pieces.count - 1, next = BYTES;
  while (next < last) {
    BpeBest best;
    bool found;
    int32_t id = -1;
    TRY(bpe_counts_best(counts, &best, &found));
    if (!found || best.count < 2)
      return status_set(STATUS_BAD_VALUE, "the text has too few repeated pairs for %d pieces; it allows %d, or give more text",
                        (int)last + 1, (int)next + 1);
    TRY(name_pair(tokenizer, &best, &next, &id));
    TRY(bpe_counts_merge(counts, &best, id));
    progress_update(progress, next - BYTES, NULL);
  }
  return STATUS_OK;
}

static Status run(BpeTrain *train, int64_t pieces, Progress *progress, Tokenizer **tokenizer) {
  BpeCounts *counts = NULL;
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_MERGES, pieces));
  TRY(put_bytes(*tokenizer));
  Status status = bpe_counts_new(&counts, &train->words, (*tokenizer)->byte_ids);
  if (status == STATUS_OK) status = merge_pairs(*tokenizer, counts, progress);
  bpe_counts_free(counts);
  TRY(status);
  TRY(tokenizer_model_add_special(*tokenizer, pieces - 1, end_of_text, strlen(end_of_text)));
  return tokenizer_model_finish(*tokenizer);
}

Status bpe_train_run(BpeTrain *train, int64_t pieces, bool quiet, Tokenizer **tokenizer) {
  *tokenizer = NULL;
  if (pieces < BPE_TRAIN_LEAST || pieces > BPE_TRAIN_MOST)
    return status_set(STATUS_BAD_VALUE, "a vocabulary of %lld pieces; %d to %d are accepted", (long long)pieces, BPE_TRAIN_LEAST,
                      BPE_TRAIN_MOST);
  Progress progress;
  progress_start(&progress, "merging", pieces - BPE_TRAIN_LEAST, quiet);
  Status status = run(train, pieces, &progress, tokenizer);
  progress_finish(&progress, status == STATUS_OK ? pieces - BPE_TRAIN_LEAST : 0, status == STATUS_OK ? NULL : "stopped");
  if (status == STATUS_OK) return STATUS_OK;
  tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return status;
}
