/* Inside the tokenizer only: what a tokenizer consists of, and the parsers that make one from the text of its files.
 *
 * A parser takes memory, so that it can be tested with any bytes; `path` is for messages. Of a failure (BAD_FILE, UNSUPPORTED, NO_MEMORY)
 * nothing remains and *tokenizer is NULL. */
#ifndef DATA_TOKENIZER_INTERNAL_H
#define DATA_TOKENIZER_INTERNAL_H
#include "base/gguf.h"
#include "data/tokenizer/bpe_split.h"
#include "data/tokenizer/bpe_vocab.h"
#include "data/tokenizer/tokenizer.h"
#include <jansson.h>

typedef struct TokenizerStates TokenizerStates;

/* split: NULL, or it outlives the states. */
Status tokenizer_states_new(TokenizerStates **states, const BpeSplit *split);
void tokenizer_states_free(TokenizerStates *states); /* accepts NULL; all states have been given back */

enum { TOKENIZER_DIGEST_TEXT = 65 /* 64 hexadecimal digits and a NUL */, TOKENIZER_SPLIT_MAX = 512 };
static const size_t tokenizer_file_max = (size_t)64 << 20; /* the largest published ones have 35 million bytes */

typedef enum TokenizerKind {
  TOKENIZER_MERGES, /* byte-level, merges in the order of a list */
  TOKENIZER_RANKS,  /* byte-level, what gives the lower id first */
  TOKENIZER_SCORES  /* characters with a fall-back to bytes, what gives the higher score first */
} TokenizerKind;

typedef struct TokenizerMerge {
  int32_t left, right;
} TokenizerMerge;

struct Tokenizer {
  TokenizerKind kind;
  BpePattern pattern; /* not of SCORES */
  bool whole;         /* a piece of text that is in the vocabulary is not merged but looked up */
  BpePieces pieces;
  BpePairs pairs;
  int32_t byte_ids[256];  /* the symbols that merging starts from */
  TokenizerMerge *merges; /* [merge_count], of MERGES; by rank */
  int64_t merge_count;
  size_t merge_room;
  float *scores;     /* [pieces.count], of SCORES */
  int32_t *specials; /* [special_count] ids whose piece is the text of a special token; longest text first, then by id */
  int32_t special_count;
  size_t special_room;
  bool special_starts[256]; /* bytes that a special token begins with */
  int32_t begin, end;
  char fingerprint[TOKENIZER_DIGEST_TEXT];
  BpeSplit *split; /* NULL: SCORES */
  TokenizerStates *states;
};

/* An empty one, begin and end -1. */
Status tokenizer_model_new(Tokenizer **tokenizer, TokenizerKind kind, int64_t pieces);

/* Puts a special token in. */
Status tokenizer_model_add_special(Tokenizer *tokenizer, int64_t id, const char *text, size_t size);

/* Puts a piece in that is written in GPT-2's alphabet. */
Status tokenizer_model_add_piece(Tokenizer *tokenizer, int64_t id, const char *text, size_t size);

/* Appends a merge: bytes [size] are the joined piece, of which the first left_size bytes are the left one. */
Status tokenizer_model_add_joined(Tokenizer *tokenizer, const char *bytes, size_t left_size, size_t size);

/* Appends a merge of two pieces that are written in GPT-2's alphabet. BAD_FILE: one of them, or what they join to, is not in the
 * vocabulary, or the pair was given before. */
Status tokenizer_model_add_merge(Tokenizer *tokenizer, const char *left, size_t left_size, const char *right, size_t right_size);

/* The last step of every parser: that all ids have a piece and (byte-level) all bytes an id; order of special tokens, begin and end by
 * their names, the expression, fingerprint. */
Status tokenizer_model_finish(Tokenizer *tokenizer);

/* Adds every pair of findable pieces that joins to a findable piece; its rank is ranks[id of that]. BAD_FILE: a piece is longer than
 * TOKENIZER_SPLIT_MAX bytes, which would take too long. */
Status tokenizer_model_add_splits(Tokenizer *tokenizer, const uint32_t *ranks);

/* Ends a parser: finishes the tokenizer; after a failure, also an earlier one, names the file in the message and closes it. */
Status tokenizer_model_parsed(Tokenizer **tokenizer, Status status, const char *path);

Status tokenizer_fingerprint_make(Tokenizer *tokenizer);

Status tokenizer_json_parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path);
/* vocab.json (or encoder.json) and merges.txt (or vocab.bpe). */
Status tokenizer_vocab_parse(Tokenizer **tokenizer, const char *vocab, size_t vocab_size, const char *vocab_path, const char *merges,
                             size_t merges_size, const char *merges_path);
Status tokenizer_ranks_parse(Tokenizer **tokenizer, const char *text, size_t size, const char *path);
Status tokenizer_scores_parse(Tokenizer **tokenizer, const char *data, size_t size, const char *path);

/* A piece of a scored vocabulary. `special`: never made of text, unless its text stands there and special tokens are meant (not of the
 * first 259 ids, whose meaning is fixed). */
typedef struct TokenizerScore {
  float score;
  const char *bytes; /* copied */
  size_t size;
  bool special;
} TokenizerScore;

/* All of a scored vocabulary but the last step, which is its caller's: ids 0 to 2 have no text, 3 to 258 are the bytes. */
Status tokenizer_scores_make(Tokenizer **tokenizer, const TokenizerScore *entries, int64_t count);

/* The metadata of a GGUF file. */
Status tokenizer_gguf_read(Tokenizer **tokenizer, const GgufFile *file);
Status tokenizer_gguf_open(Tokenizer **tokenizer, const char *path);
char *tokenizer_vocab_spell_merge(const Tokenizer *tokenizer, int64_t merge);

/* The writers; `path` is the file. */
Status tokenizer_json_write(const Tokenizer *tokenizer, const char *path);
Status tokenizer_vocab_write(const Tokenizer *tokenizer, const char *path);
Status tokenizer_vocab_write_merges(const Tokenizer *tokenizer, const char *path);
Status tokenizer_ranks_write(const Tokenizer *tokenizer, const char *path);
Status tokenizer_scores_write(const Tokenizer *tokenizer, const char *path);

#endif
