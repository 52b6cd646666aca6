/* Inside the tokenizer only: what a tokenizer consists of and how it is put together (tokenizer_model.c), and the forms of files that
 * Llama's tokenizers come in (tokenizer_llama.c). */
#ifndef DATA_TOKENIZER_INTERNAL_H
#define DATA_TOKENIZER_INTERNAL_H
#include "base/gguf.h"
#include "data/tokenizer/tokenizer.h"
#include <jansson.h>
#include <string.h>

/* ---- The vocabulary ---- */

/* The two tables of a byte-pair vocabulary, and the alphabet that its files are written in: the bytes of each id and the id of given bytes
 * (BpePieces); which two neighbours may be merged, how early and into what (BpePairs). */

/* Every bit of the number moves every bit of the hash (the finalizer of splitmix64, as in base/rng.c). */
static inline uint64_t bpe_hash_number(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Eight bytes at a time: pieces are short, and a step for each byte would cost more than the look-up. */
static inline uint64_t bpe_hash_bytes(const char *bytes, size_t length) {
  uint64_t hash = length * 0x9e3779b97f4a7c15u, word = 0;
  for (; length >= 8; bytes += 8, length -= 8) {
    memcpy(&word, bytes, 8);
    hash = bpe_hash_number(hash ^ word);
  }
  word = 0;
  memcpy(&word, bytes, length);
  return bpe_hash_number(hash ^ word);
}

/* The smallest power of two that is at least twice `items`: tables stay at most half full. */
static inline size_t bpe_hash_room(size_t items) {
  size_t room = 16;
  while (room < 2 * items) room *= 2;
  return room;
}

typedef struct BpePieces {
  int32_t count; /* ids are 0 .. count - 1 */
  char *text;    /* bytes of all pieces, a NUL behind each */
  size_t used, room;
  size_t *starts;  /* [count] into text */
  uint32_t *sizes; /* [count] */
  bool *present;   /* [count] */
  int32_t *slots;  /* [mask + 1]: open addressing, linear probing; -1: free */
  size_t mask;
} BpePieces;

/* The bytes of an id (copied; any bytes, at least one). `findable`: bpe_pieces_find finds it; special tokens are not, so that plain text
 * never becomes one. BAD_FILE: id out of range or given twice, no bytes, or bytes that a findable piece has already. */
Status bpe_pieces_put(BpePieces *pieces, int64_t id, const char *bytes, size_t size, bool findable);

/* BAD_FILE: an id has no piece; the message names the first. */
Status bpe_pieces_check_whole(const BpePieces *pieces);

/* The id of exactly these bytes, or -1. */
int32_t bpe_pieces_find(const BpePieces *pieces, const char *bytes, size_t size);

/* The bytes of an id that is present; a NUL stands behind them. Valid until the next put. */
static inline const char *bpe_pieces_text(const BpePieces *pieces, int32_t id, size_t *size) {
  *size = pieces->sizes[id];
  return pieces->text + pieces->starts[id];
}

/* Bytes -> UTF-8 text of the alphabet, NUL-terminated; `text` has room for 2 size + 1. Returns its length. */
size_t bpe_alphabet_write(const char *bytes, size_t size, char *text);

/* The n-th byte of the alphabet in the order of its characters, which is the order of GPT-2's first 256 ids. */
unsigned char bpe_alphabet_byte(int n);

#define BPE_NO_RANK UINT32_MAX /* the pair cannot be merged */

typedef struct BpePair {
  uint64_t key;  /* left << 32 | right; all ones: free */
  uint32_t rank; /* lower merges earlier; below BPE_NO_RANK */
  int32_t id;    /* what the two become */
} BpePair;

/* Open addressing, linear probing, at most half full. */
typedef struct BpePairs {
  BpePair *slots; /* [mask + 1] */
  size_t mask, count;
} BpePairs;

/* Room for `expected` pairs; it grows. Release with bpe_pairs_release, also after a failure. */
Status bpe_pairs_init(BpePairs *pairs, size_t expected);
void bpe_pairs_release(BpePairs *pairs); /* accepts a zeroed one */

/* Adds a pair; *fresh is false, and nothing changes, when it is there already. */
Status bpe_pairs_add(BpePairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id, bool *fresh);

/* The pair, or NULL. Valid until the next add. */
const BpePair *bpe_pairs_find(const BpePairs *pairs, int32_t left, int32_t right);

/* ---- The expression ---- */

/* Cutting text into the pieces within which byte pairs are merged: the regular expressions of GPT-2 and Llama-3, through PCRE2.
 *
 * White space is Unicode's White_Space property, which is not quite PCRE2's \s (that has U+180E too), and the contractions of Llama-3 are
 * of either case in ASCII alone (PCRE2's caseless s would match the long s, U+017F).
 * Text need not be UTF-8: it is cut into stretches of valid UTF-8, each split as if it were the whole text, and runs of bytes that belong
 * to no character (also overlong forms, surrogates and numbers above U+10FFFF), each run being one piece. So pieces always join to the
 * text. */

typedef enum BpePattern { BPE_PATTERN_GPT2, BPE_PATTERN_LLAMA3 } BpePattern;

/* The expression as tokenizer.json has it. */
const char *bpe_split_published(BpePattern pattern);

/* A compiled expression. Threads may share it. */
typedef struct BpeSplit BpeSplit;
Status bpe_split_new(BpeSplit **split, BpePattern pattern);
void bpe_split_free(BpeSplit *split); /* accepts NULL */

/* A walk over one text after the other; one thread at a time, and the split outlives it. */
typedef struct BpeWalk BpeWalk;
Status bpe_split_walk(BpeWalk **walk, const BpeSplit *split);
void bpe_split_walk_free(BpeWalk *walk); /* accepts NULL */

/* Begins with a text, which stays the caller's. */
void bpe_split_start(BpeWalk *walk, const char *text, size_t size);

/* The next piece, of at least one byte; *size 0 at the end. */
Status bpe_split_next(BpeWalk *walk, const char **piece, size_t *size);

/* ---- A tokenizer ---- */

typedef struct TokenizerStates TokenizerStates; /* tokenizer.c */

enum { TOKENIZER_DIGEST_TEXT = 65 }; /* 64 hexadecimal digits and a NUL */

typedef enum TokenizerKind {
  TOKENIZER_MERGES, /* byte-level, merges in the order of a list */
  TOKENIZER_RANKS,  /* byte-level, what gives the lower id first */
  TOKENIZER_SCORES  /* characters with a fall-back to bytes, what gives the higher score first */
} TokenizerKind;

/* Of SCORES: the ids before the first byte are unknown, begin and end, which have names and no text; then come the bytes, then pieces. */
enum { TOKENIZER_BEGIN = 1, TOKENIZER_END, TOKENIZER_FIRST_BYTE, TOKENIZER_FIRST_PIECE = TOKENIZER_FIRST_BYTE + 256 };

typedef struct TokenizerMerge {
  int32_t left, right;
} TokenizerMerge;

typedef struct TokenizerSpecial {
  int32_t id;   /* its piece is the token's text */
  bool in_text; /* an added token that is not special: recognised also where special tokens are text */
} TokenizerSpecial;

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
  float *scores;              /* [pieces.count], of SCORES */
  TokenizerSpecial *specials; /* [special_count] longest text first, then by id: the fingerprint's order */
  TokenizerSpecial *by_text;  /* [special_count] the same by their bytes, then by id: the order in which they are searched */
  int32_t special_count, in_text_count;
  size_t special_room;
  int32_t special_from[257]; /* those whose text begins with byte b are by_text[special_from[b]] up to special_from[b + 1] */
  int32_t begin, end;
  char fingerprint[TOKENIZER_DIGEST_TEXT];
  BpeSplit *split; /* NULL: SCORES */
  TokenizerStates *states;
};

/* An empty one, begin and end -1. */
Status tokenizer_model_new(Tokenizer **tokenizer, TokenizerKind kind, int64_t pieces);

/* Puts a special token in, or with in_text an added one that is not special. */
Status tokenizer_model_add_special(Tokenizer *tokenizer, int64_t id, const char *text, size_t size, bool in_text);

/* The id of the special or other added token of this text, as add_special got it; -1: there is none. */
int32_t tokenizer_model_special(const Tokenizer *tokenizer, const char *text);

/* Puts a piece in that is written in GPT-2's alphabet. */
Status tokenizer_model_add_piece(Tokenizer *tokenizer, int64_t id, const char *text, size_t size);

/* Appends a merge: bytes [size] are the joined piece, of which the first left_size bytes are the left one. */
Status tokenizer_model_add_joined(Tokenizer *tokenizer, const char *bytes, size_t left_size, size_t size);

/* Appends a merge of two pieces that are written in GPT-2's alphabet. BAD_FILE: one of them, or what they join to, is not in the
 * vocabulary, or the pair was given before. UNSUPPORTED: one is there, but as an added token. */
Status tokenizer_model_add_merge(Tokenizer *tokenizer, const char *left, size_t left_size, const char *right, size_t right_size);

/* What begins and ends texts where a file says nothing else: the special tokens of the usual names, -1 for want of one; of a scored
 * vocabulary ids 1 and 2. */
void tokenizer_model_usual_ends(const Tokenizer *tokenizer, int32_t *begin, int32_t *end);

/* The last step but the expression's working memory and the fingerprint: that all ids have a piece and (byte-level) all bytes an id; order
 * of special tokens, the usual begin and end, the expression. */
Status tokenizer_model_finish(Tokenizer *tokenizer);

/* Of what decides which ids a text has, into tokenizer->fingerprint. */
Status tokenizer_model_fingerprint(Tokenizer *tokenizer);

void tokenizer_model_release(Tokenizer *tokenizer); /* all but the states; frees it */

/* Ends a parser: finishes the tokenizer; after a failure, also an earlier one, names the file (unless NULL) in the message and closes it.
 */
Status tokenizer_finish(Tokenizer **tokenizer, Status status, const char *path);

/* ---- Files ---- */

/* Parsers of Llama's forms (tokenizer_llama.c). They take memory, so that they can be tested with any bytes; `path` is for messages. Of a
 * failure (BAD_FILE, UNSUPPORTED, NO_MEMORY) nothing remains and *tokenizer is NULL. */
Status tokenizer_llama_ranks(Tokenizer **tokenizer, const char *text, size_t size, const char *path);
Status tokenizer_llama_scores(Tokenizer **tokenizer, const char *data, size_t size, const char *path);
Status tokenizer_llama_gguf(Tokenizer **tokenizer, const GgufFile *file); /* a GGUF file's metadata */

/* Writes JSON to a file and releases it; NULL is out of memory. flags: Jansson's of encoding. */
Status tokenizer_write_json(json_t *json, size_t flags, const char *path);

/* A file that a tokenizer is written to; lists end with a NULL name. */
typedef struct TokenizerOutput {
  const char *name; /* with %d for the number of pieces */
  Status (*write)(const Tokenizer *tokenizer, const char *path);
} TokenizerOutput;

extern const TokenizerOutput tokenizer_llama_ranks_files[], tokenizer_llama_scores_files[];

#endif
