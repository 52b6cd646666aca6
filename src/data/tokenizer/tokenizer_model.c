/* What a byte-pair tokenizer consists of: the tables of its vocabulary, the alphabet of its files, the expression that cuts text into
 * pieces, and putting one together: see tokenizer_internal.h. Leaves out: encoding (tokenizer.c) and the formats of files. Invariants: open
 * addressing with linear probing, tables at most half full; of the pieces, the slots hold exactly the findable ones. Of a finished
 * tokenizer every id has a piece, every pair and byte_ids lead to ids of pieces, and a byte-level one can encode every byte. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/array.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <openssl/evp.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pieces ---- */

enum { PIECES_MAX = 1 << 24 };

/* Room for ids 0 .. count - 1, none of them present. Release with bpe_pieces_release, also after a failure. BAD_FILE: a count that is not
 * in 1 .. 2^24. */
static Status bpe_pieces_init(BpePieces *pieces, int64_t count) {
  *pieces = (BpePieces){0};
  if (count < 1 || count > PIECES_MAX)
    return status_set(STATUS_BAD_FILE, "a vocabulary of %lld pieces; 1 to %d are accepted", (long long)count, PIECES_MAX);
  size_t room = bpe_hash_room((size_t)count);
  pieces->starts = malloc((size_t)count * sizeof *pieces->starts);
  pieces->sizes = malloc((size_t)count * sizeof *pieces->sizes);
  pieces->present = calloc((size_t)count, sizeof *pieces->present);
  pieces->slots = malloc(room * sizeof *pieces->slots);
  if (!pieces->starts || !pieces->sizes || !pieces->present || !pieces->slots) return status_no_memory(NULL, "the vocabulary");
  for (size_t i = 0; i < room; i++) pieces->slots[i] = -1;
  pieces->mask = room - 1;
  pieces->count = (int32_t)count;
  return STATUS_OK;
}

static void bpe_pieces_release(BpePieces *pieces) {
  free(pieces->text);
  free(pieces->starts);
  free(pieces->sizes);
  free(pieces->present);
  free(pieces->slots);
  *pieces = (BpePieces){0};
}

static bool is_piece(const BpePieces *pieces, int32_t id, const char *bytes, size_t size) {
  return pieces->sizes[id] == size && memcmp(pieces->text + pieces->starts[id], bytes, size) == 0;
}

/* The slot where these bytes are, or the free one where they would be. */
static size_t find_slot(const BpePieces *pieces, const char *bytes, size_t size) {
  size_t slot = (size_t)bpe_hash_bytes(bytes, size) & pieces->mask;
  while (pieces->slots[slot] >= 0 && !is_piece(pieces, pieces->slots[slot], bytes, size)) slot = (slot + 1) & pieces->mask;
  return slot;
}

int32_t bpe_pieces_find(const BpePieces *pieces, const char *bytes, size_t size) { return pieces->slots[find_slot(pieces, bytes, size)]; }

/* A piece for messages: quoted, bytes that are not printable ASCII as \xNN, cut after a few dozen characters. */
enum { PIECE_SHOWN = 96 };
static const char *show_piece(const char *bytes, size_t size, char shown[PIECE_SHOWN]) {
  size_t at = 0;
  shown[at++] = '\'';
  for (size_t i = 0; i < size; i++) {
    if (at + 10 > PIECE_SHOWN) {
      at += (size_t)sprintf(shown + at, "...");
      break;
    }
    unsigned char byte = (unsigned char)bytes[i];
    if (byte >= 0x20 && byte < 0x7f)
      shown[at++] = (char)byte;
    else
      at += (size_t)sprintf(shown + at, "\\x%02x", byte);
  }
  shown[at] = '\'';
  shown[at + 1] = '\0';
  return shown;
}

static Status check_put(const BpePieces *pieces, int64_t id, const char *bytes, size_t size) {
  char shown[PIECE_SHOWN];
  if (size == 0 || size > INT32_MAX) return status_set(STATUS_BAD_FILE, "id %lld has a piece of %zu bytes", (long long)id, size);
  show_piece(bytes, size, shown);
  if (id < 0 || id >= pieces->count)
    return status_set(STATUS_BAD_FILE, "piece %s has id %lld; with %d pieces ids are 0 to %d", shown, (long long)id, (int)pieces->count,
                      (int)pieces->count - 1);
  if (pieces->present[id]) return status_set(STATUS_BAD_FILE, "id %lld is given twice, the second time to %s", (long long)id, shown);
  return STATUS_OK;
}

Status bpe_pieces_put(BpePieces *pieces, int64_t id, const char *bytes, size_t size, bool findable) {
  TRY(check_put(pieces, id, bytes, size));
  size_t slot = find_slot(pieces, bytes, size);
  if (findable && pieces->slots[slot] >= 0) {
    char shown[PIECE_SHOWN];
    return status_set(STATUS_BAD_FILE, "piece %s is given twice, as id %d and %lld", show_piece(bytes, size, shown),
                      (int)pieces->slots[slot], (long long)id);
  }
  TRY(ARRAY_RESERVE(pieces->text, pieces->used, size + 1, pieces->room, "the vocabulary"));
  memcpy(pieces->text + pieces->used, bytes, size);
  pieces->text[pieces->used + size] = '\0';
  pieces->starts[id] = pieces->used;
  pieces->sizes[id] = (uint32_t)size;
  pieces->present[id] = true;
  pieces->used += size + 1;
  if (findable) pieces->slots[slot] = (int32_t)id;
  return STATUS_OK;
}

Status bpe_pieces_check_whole(const BpePieces *pieces) {
  for (int32_t id = 0; id < pieces->count; id++) {
    if (!pieces->present[id])
      return status_set(STATUS_BAD_FILE, "no piece has id %d; with %d pieces ids are 0 to %d, each once", (int)id, (int)pieces->count,
                        (int)pieces->count - 1);
  }
  return STATUS_OK;
}

/* ---- GPT-2's alphabet ---- */

/* All characters that stand for bytes lie below U+0144, so that UTF-8 takes one or two bytes. */

enum { FIRST_STAND_IN = 256, PLAIN_BYTES = 188 };

static bool is_plain(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

/* How many of the bytes below this one are not plain: the number of its stand-in. */
static int stand_in(int byte) {
  if (byte <= 33) return byte;
  if (byte >= 127 && byte <= 161) return byte - 127 + 33;
  return 67; /* 173, the soft hyphen */
}

static int of_stand_in(int number) { return number < 33 ? number : number < 67 ? number - 33 + 127 : 173; }

unsigned char bpe_alphabet_byte(int n) {
  if (n >= PLAIN_BYTES) return (unsigned char)of_stand_in(n - PLAIN_BYTES);
  return (unsigned char)(n < 94 ? n + 33 : n < 106 ? n - 94 + 161 : n - 106 + 174);
}

size_t bpe_alphabet_write(const char *bytes, size_t size, char *text) {
  size_t length = 0;
  for (size_t i = 0; i < size; i++) {
    int byte = (unsigned char)bytes[i], character = is_plain(byte) ? byte : FIRST_STAND_IN + stand_in(byte);
    if (character >= 0x80) text[length++] = (char)(0xc0 | character >> 6);
    text[length++] = (char)(character < 0x80 ? character : 0x80 | (character & 0x3f));
  }
  text[length] = '\0';
  return length;
}

/* The byte that the character at text stands for, or -1; *length is that of the character. */
static int read_character(const unsigned char *text, size_t size, size_t *length) {
  *length = 1;
  if (text[0] < 0x80) return is_plain(text[0]) ? text[0] : -1;
  if (size < 2 || text[0] < 0xc2 || text[0] > 0xc5 || (text[1] & 0xc0) != 0x80) return -1;
  *length = 2;
  int character = (text[0] & 0x1f) << 6 | (text[1] & 0x3f);
  if (character < FIRST_STAND_IN) return is_plain(character) ? character : -1;
  return character < FIRST_STAND_IN + 256 - PLAIN_BYTES ? of_stand_in(character - FIRST_STAND_IN) : -1;
}

/* Text of the alphabet -> bytes, of which there are at most as many as in the text; in place is allowed. BAD_FILE: a character that is not
 * in the alphabet. */
static Status bpe_alphabet_read(const char *text, size_t size, char *bytes, size_t *count) {
  *count = 0;
  for (size_t at = 0, length; at < size; at += length) {
    int byte = read_character((const unsigned char *)text + at, size - at, &length);
    if (byte < 0) {
      char shown[PIECE_SHOWN];
      return status_set(STATUS_BAD_FILE, "piece %s has a character that stands for no byte", show_piece(text, size, shown));
    }
    bytes[(*count)++] = (char)byte;
  }
  return STATUS_OK;
}

/* ---- Pairs ---- */

static const uint64_t free_key = UINT64_MAX; /* ids are not negative */

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static Status make_slots(BpePairs *pairs, size_t room) {
  BpePair *slots = room <= SIZE_MAX / sizeof *slots ? malloc(room * sizeof *slots) : NULL;
  if (!slots) return status_set(STATUS_NO_MEMORY, "no memory for a table of %zu merges", room / 2);
  for (size_t i = 0; i < room; i++) slots[i].key = free_key;
  pairs->slots = slots;
  pairs->mask = room - 1;
  return STATUS_OK;
}

Status bpe_pairs_init(BpePairs *pairs, size_t expected) {
  *pairs = (BpePairs){0};
  return make_slots(pairs, bpe_hash_room(expected));
}

void bpe_pairs_release(BpePairs *pairs) {
  free(pairs->slots);
  *pairs = (BpePairs){0};
}

/* The slot of the key, or the free one where it would be. */
static BpePair *pairs_find_slot(const BpePairs *pairs, uint64_t key) {
  size_t slot = (size_t)bpe_hash_number(key) & pairs->mask;
  while (pairs->slots[slot].key != key && pairs->slots[slot].key != free_key) slot = (slot + 1) & pairs->mask;
  return &pairs->slots[slot];
}

static Status grow(BpePairs *pairs) {
  BpePairs old = *pairs;
  TRY(make_slots(pairs, 2 * (old.mask + 1)));
  for (size_t i = 0; i <= old.mask; i++) {
    if (old.slots[i].key != free_key) *pairs_find_slot(pairs, old.slots[i].key) = old.slots[i];
  }
  free(old.slots);
  return STATUS_OK;
}

Status bpe_pairs_add(BpePairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id, bool *fresh) {
  uint64_t key = pair_key(left, right);
  BpePair *slot = pairs_find_slot(pairs, key);
  *fresh = slot->key == free_key;
  if (!*fresh) return STATUS_OK;
  if (2 * (pairs->count + 1) > pairs->mask + 1) {
    TRY(grow(pairs));
    slot = pairs_find_slot(pairs, key);
  }
  *slot = (BpePair){key, rank, id};
  pairs->count++;
  return STATUS_OK;
}

const BpePair *bpe_pairs_find(const BpePairs *pairs, int32_t left, int32_t right) {
  const BpePair *slot = pairs_find_slot(pairs, pair_key(left, right));
  return slot->key == free_key ? NULL : slot;
}

/* ---- The expression ---- */

/* PCRE2 sees valid UTF-8 only and need not check it; every character begins a match, so that matches are anchored and follow one another.
 * No expression backtracks over more than one run of white space. */

/* White_Space of Unicode, to stand in a bracket expression. */
#define SPACE "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

typedef struct Expression {
  const char *published, *own;
} Expression;

static const Expression expressions[] = {
    [BPE_PATTERN_GPT2] = {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                          "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"},
    [BPE_PATTERN_LLAMA3] = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                            "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACE
                            "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"},
};

const char *bpe_split_published(BpePattern pattern) { return expressions[pattern].published; }

struct BpeSplit {
  pcre2_code *code;
};

struct BpeWalk {
  const BpeSplit *split;
  pcre2_match_data *match;
  pcre2_match_context *limits;
  const char *text;
  size_t size, at;
  size_t valid; /* text[at .. valid) is UTF-8; at == valid: what follows is to be looked at */
};

static Status pcre_error(const char *what, int code) {
  PCRE2_UCHAR text[128];
  if (code == PCRE2_ERROR_NOMEMORY) return status_no_memory(NULL, "splitting text");
  pcre2_get_error_message(code, text, sizeof text);
  return status_set(STATUS_UNSUPPORTED, "%s: PCRE2 says: %s", what, (const char *)text);
}

Status bpe_split_new(BpeSplit **split, BpePattern pattern) {
  *split = calloc(1, sizeof **split);
  if (!*split) return status_no_memory(NULL, "splitting text");
  int error;
  PCRE2_SIZE offset;
  (*split)->code =
      pcre2_compile((PCRE2_SPTR)expressions[pattern].own, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, NULL);
  if (!(*split)->code) return pcre_error("the expression that splits text cannot be compiled", error);
  (void)pcre2_jit_compile((*split)->code, PCRE2_JIT_COMPLETE); /* where the machine has none, pcre2_match interprets */
  return STATUS_OK;
}

void bpe_split_free(BpeSplit *split) {
  if (!split) return;
  pcre2_code_free(split->code);
  free(split);
}

Status bpe_split_walk(BpeWalk **walk, const BpeSplit *split) {
  *walk = calloc(1, sizeof **walk);
  if (*walk) (*walk)->match = pcre2_match_data_create(1, NULL), (*walk)->limits = pcre2_match_context_create(NULL);
  if (!*walk || !(*walk)->match || !(*walk)->limits) return status_no_memory(NULL, "splitting text");
  pcre2_set_match_limit((*walk)->limits, UINT32_MAX); /* a run of blanks takes a step for each, and the expressions none that grow faster */
  (*walk)->split = split;
  return STATUS_OK;
}

void bpe_split_walk_free(BpeWalk *walk) {
  if (!walk) return;
  pcre2_match_data_free(walk->match);
  pcre2_match_context_free(walk->limits);
  free(walk);
}

void bpe_split_start(BpeWalk *walk, const char *text, size_t size) {
  walk->text = text;
  walk->size = size;
  walk->at = walk->valid = 0;
}

/* The end of the stretch of whole characters (`valid`) or of bytes in none (not `valid`) that begins at `at`. */
static size_t stretch_end(const BpeWalk *walk, bool valid) {
  size_t at = walk->at;
  for (size_t length; at < walk->size; at += valid ? length : 1) {
    length = utf8_size(walk->text + at, walk->size - at);
    if ((length > 0) != valid) break;
  }
  return at;
}

/* Where the walk is. Compiled code is used where the expression is anchored already, not the match; a long run of blanks may need more
 * stack than it has. */
static int match_here(const BpeWalk *walk) {
  const PCRE2_SPTR text = (PCRE2_SPTR)walk->text;
  const int code = pcre2_match(walk->split->code, text, walk->valid, walk->at, PCRE2_NO_UTF_CHECK, walk->match, walk->limits);
  if (code != PCRE2_ERROR_JIT_STACKLIMIT) return code;
  return pcre2_match(walk->split->code, text, walk->valid, walk->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, walk->match, walk->limits);
}

Status bpe_split_next(BpeWalk *walk, const char **piece, size_t *size) {
  *piece = walk->text + walk->at;
  *size = 0;
  if (walk->at == walk->size) return STATUS_OK;
  if (walk->at == walk->valid) walk->valid = stretch_end(walk, true);
  size_t end = walk->valid;
  if (walk->at == end) {
    end = walk->valid = stretch_end(walk, false);
  } else {
    const int code = match_here(walk);
    if (code < 0) return pcre_error("splitting a text failed", code);
    end = pcre2_get_ovector_pointer(walk->match)[1];
  }
  *size = end - walk->at;
  walk->at = end;
  return STATUS_OK;
}

/* ---- Putting together ---- */

void tokenizer_model_release(Tokenizer *tokenizer) {
  bpe_split_free(tokenizer->split);
  bpe_pieces_release(&tokenizer->pieces);
  bpe_pairs_release(&tokenizer->pairs);
  free(tokenizer->merges);
  free(tokenizer->scores);
  free(tokenizer->specials);
  free(tokenizer->by_text);
  free(tokenizer);
}

Status tokenizer_model_new(Tokenizer **tokenizer, TokenizerKind kind, int64_t pieces) {
  *tokenizer = calloc(1, sizeof **tokenizer);
  if (!*tokenizer) return status_no_memory(NULL, "a tokenizer");
  (*tokenizer)->kind = kind;
  (*tokenizer)->begin = (*tokenizer)->end = -1;
  TRY(bpe_pieces_init(&(*tokenizer)->pieces, pieces));
  return bpe_pairs_init(&(*tokenizer)->pairs, (size_t)pieces);
}

Status tokenizer_model_add_special(Tokenizer *tokenizer, int64_t id, const char *text, size_t size, bool in_text) {
  TRY(ARRAY_RESERVE(tokenizer->specials, tokenizer->special_count, 1, tokenizer->special_room, "special tokens"));
  TRY(bpe_pieces_put(&tokenizer->pieces, id, text, size, false));
  tokenizer->specials[tokenizer->special_count++] = (TokenizerSpecial){(int32_t)id, in_text};
  tokenizer->in_text_count += in_text;
  return STATUS_OK;
}

int32_t tokenizer_model_special(const Tokenizer *tokenizer, const char *text) {
  for (int32_t i = 0; i < tokenizer->special_count; i++) {
    size_t size;
    const char *piece = bpe_pieces_text(&tokenizer->pieces, tokenizer->specials[i].id, &size);
    if (size == strlen(text) && memcmp(piece, text, size) == 0) return tokenizer->specials[i].id;
  }
  return -1;
}

Status tokenizer_model_add_piece(Tokenizer *tokenizer, int64_t id, const char *text, size_t size) {
  size_t count = 0;
  char *bytes = malloc(size + 1);
  Status status = bytes ? bpe_alphabet_read(text, size, bytes, &count) : status_no_memory(NULL, "a tokenizer");
  if (status == STATUS_OK) status = bpe_pieces_put(&tokenizer->pieces, id, bytes, count, true);
  free(bytes);
  return status;
}

/* Whether a file calls the piece an added token, by its spelling in GPT-2's alphabet: then it is no ordinary one. */
static bool is_added(const Tokenizer *tokenizer, const char *bytes, size_t size) {
  char *spelled = malloc(2 * size + 1);
  if (spelled) bpe_alphabet_write(bytes, size, spelled);
  const bool found = spelled && tokenizer_model_special(tokenizer, spelled) >= 0;
  free(spelled);
  return found;
}

static Status unknown_piece(const Tokenizer *tokenizer, const char *bytes, size_t size, const char *what) {
  char shown[PIECE_SHOWN];
  show_piece(bytes, size, shown);
  if (is_added(tokenizer, bytes, size))
    return status_set(STATUS_UNSUPPORTED, "%s %s, which is an added token; a piece that is both is not supported", what, shown);
  return status_set(STATUS_BAD_FILE, "%s %s, which is not in the vocabulary", what, shown);
}

Status tokenizer_model_add_joined(Tokenizer *tokenizer, const char *bytes, size_t left_size, size_t size) {
  const BpePieces *pieces = &tokenizer->pieces;
  int32_t left = bpe_pieces_find(pieces, bytes, left_size), right = bpe_pieces_find(pieces, bytes + left_size, size - left_size);
  int32_t joined = bpe_pieces_find(pieces, bytes, size);
  if (left < 0) return unknown_piece(tokenizer, bytes, left_size, "a merge names the piece");
  if (right < 0) return unknown_piece(tokenizer, bytes + left_size, size - left_size, "a merge names the piece");
  if (joined < 0) return unknown_piece(tokenizer, bytes, size, "a merge makes the piece");
  bool fresh;
  TRY(bpe_pairs_add(&tokenizer->pairs, left, right, (uint32_t)tokenizer->merge_count, joined, &fresh));
  if (fresh) {
    TRY(ARRAY_RESERVE(tokenizer->merges, tokenizer->merge_count, 1, tokenizer->merge_room, "merges"));
    tokenizer->merges[tokenizer->merge_count++] = (TokenizerMerge){left, right};
    return STATUS_OK;
  }
  char shown[PIECE_SHOWN];
  return status_set(STATUS_BAD_FILE, "the merge that makes %s is given twice", show_piece(bytes, size, shown));
}

Status tokenizer_model_add_merge(Tokenizer *tokenizer, const char *left, size_t left_size, const char *right, size_t right_size) {
  if (left_size == 0 || right_size == 0) return status_set(STATUS_BAD_FILE, "a merge with an empty side");
  size_t first = 0, second = 0;
  char *bytes = malloc(left_size + right_size);
  Status status = bytes ? bpe_alphabet_read(left, left_size, bytes, &first) : status_no_memory(NULL, "a tokenizer");
  if (status == STATUS_OK) status = bpe_alphabet_read(right, right_size, bytes + first, &second);
  if (status == STATUS_OK) status = tokenizer_model_add_joined(tokenizer, bytes, first, first + second);
  free(bytes);
  return status;
}

static Status find_bytes(Tokenizer *tokenizer) {
  for (int byte = 0; byte < 256; byte++) {
    char text = (char)byte;
    tokenizer->byte_ids[byte] = bpe_pieces_find(&tokenizer->pieces, &text, 1);
    if (tokenizer->byte_ids[byte] >= 0) continue;
    if (is_added(tokenizer, &text, 1)) return unknown_piece(tokenizer, &text, 1, "any text needs the piece");
    return status_set(STATUS_BAD_FILE, "no piece for the byte 0x%02x alone; all 256 are needed, so that any text can be encoded", byte);
  }
  return STATUS_OK;
}

typedef struct SpecialKey {
  const char *text;
  size_t size;
  TokenizerSpecial special;
} SpecialKey;

static int by_id(const SpecialKey *left, const SpecialKey *right) {
  return left->special.id < right->special.id ? -1 : left->special.id > right->special.id;
}

static int longest_first(const void *a, const void *b) {
  const SpecialKey *left = a, *right = b;
  if (left->size != right->size) return left->size > right->size ? -1 : 1;
  return by_id(left, right);
}

static int by_bytes(const void *a, const void *b) {
  const SpecialKey *left = a, *right = b;
  const int order = memcmp(left->text, right->text, left->size < right->size ? left->size : right->size);
  if (order != 0) return order;
  if (left->size != right->size) return left->size < right->size ? -1 : 1;
  return by_id(left, right);
}

static Status sort_specials(Tokenizer *tokenizer) {
  size_t count = (size_t)tokenizer->special_count;
  SpecialKey *keys = malloc((count + 1) * sizeof *keys);
  tokenizer->by_text = malloc((count + 1) * sizeof *tokenizer->by_text);
  if (!keys || !tokenizer->by_text) return free(keys), status_no_memory(NULL, "a tokenizer");
  for (size_t i = 0; i < count; i++) {
    keys[i].special = tokenizer->specials[i];
    keys[i].text = bpe_pieces_text(&tokenizer->pieces, keys[i].special.id, &keys[i].size);
  }
  qsort(keys, count, sizeof *keys, longest_first);
  for (size_t i = 0; i < count; i++) tokenizer->specials[i] = keys[i].special;
  qsort(keys, count, sizeof *keys, by_bytes);
  for (size_t i = 0; i < count; i++) {
    tokenizer->by_text[i] = keys[i].special;
    tokenizer->special_from[(unsigned char)*keys[i].text + 1]++;
  }
  for (int byte = 0; byte < 256; byte++) tokenizer->special_from[byte + 1] += tokenizer->special_from[byte];
  free(keys);
  return STATUS_OK;
}

void tokenizer_model_usual_ends(const Tokenizer *tokenizer, int32_t *begin, int32_t *end) {
  *begin = TOKENIZER_BEGIN;
  *end = TOKENIZER_END;
  if (tokenizer->kind == TOKENIZER_SCORES) return;
  *begin = tokenizer_model_special(tokenizer, "<|begin_of_text|>");
  *end = tokenizer_model_special(tokenizer, "<|end_of_text|>");
  if (*end < 0) *end = tokenizer_model_special(tokenizer, "<|endoftext|>");
}

Status tokenizer_model_finish(Tokenizer *tokenizer) {
  TRY(bpe_pieces_check_whole(&tokenizer->pieces));
  TRY(sort_specials(tokenizer));
  tokenizer_model_usual_ends(tokenizer, &tokenizer->begin, &tokenizer->end);
  if (tokenizer->kind == TOKENIZER_SCORES) return STATUS_OK;
  TRY(find_bytes(tokenizer));
  return bpe_split_new(&tokenizer->split, tokenizer->pattern);
}

/* ---- Fingerprint ---- */

/* The identity of a tokenizer: SHA-256 over everything that decides which ids a text has, numbers as 32 bits little-endian. What the files
 * leave open (order of keys, spelling of escapes) has no part in it. */

static const char version[] = "tokenizer 1";

static bool add_number(EVP_MD_CTX *context, uint32_t number) {
  uint8_t bytes[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16), (uint8_t)(number >> 24)};
  return EVP_DigestUpdate(context, bytes, sizeof bytes);
}

static bool add_facts(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  return add_number(context, tokenizer->kind) && add_number(context, tokenizer->pattern) && add_number(context, tokenizer->whole) &&
         add_number(context, (uint32_t)tokenizer->begin) && add_number(context, (uint32_t)tokenizer->end);
}

static bool add_pieces(EVP_MD_CTX *context, const BpePieces *pieces) {
  bool ok = add_number(context, (uint32_t)pieces->count);
  for (int32_t id = 0; id < pieces->count && ok; id++) {
    size_t size;
    const char *bytes = bpe_pieces_text(pieces, id, &size);
    ok = add_number(context, (uint32_t)size) && EVP_DigestUpdate(context, bytes, size);
  }
  return ok;
}

static bool add_merges(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = add_number(context, (uint32_t)tokenizer->merge_count);
  for (int64_t i = 0; i < tokenizer->merge_count && ok; i++)
    ok = add_number(context, (uint32_t)tokenizer->merges[i].left) && add_number(context, (uint32_t)tokenizer->merges[i].right);
  return ok;
}

static bool add_scores(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = true;
  for (int32_t i = 0; tokenizer->scores && i < tokenizer->pieces.count && ok; i++) {
    uint32_t bits;
    memcpy(&bits, &tokenizer->scores[i], sizeof bits);
    ok = add_number(context, bits);
  }
  return ok;
}

/* A tokenizer without added tokens that are not special is what it was before these were told apart: what is stored of it stays valid. */
static bool add_specials(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = add_number(context, (uint32_t)tokenizer->special_count);
  for (int32_t i = 0; i < tokenizer->special_count && ok; i++) ok = add_number(context, (uint32_t)tokenizer->specials[i].id);
  for (int32_t i = 0; i < tokenizer->special_count && tokenizer->in_text_count > 0 && ok; i++)
    ok = add_number(context, tokenizer->specials[i].in_text);
  return ok;
}

Status tokenizer_model_fingerprint(Tokenizer *tokenizer) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  bool ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) && EVP_DigestUpdate(context, version, sizeof version) &&
            add_facts(context, tokenizer) && add_pieces(context, &tokenizer->pieces) && add_merges(context, tokenizer) &&
            add_scores(context, tokenizer) && add_specials(context, tokenizer) && EVP_DigestFinal_ex(context, digest, &size) &&
            size == (TOKENIZER_DIGEST_TEXT - 1) / 2;
  EVP_MD_CTX_free(context);
  if (!ok) return status_set(STATUS_UNSUPPORTED, "computing a tokenizer's SHA-256 failed (no memory, or OpenSSL lacks it)");
  text_hex(digest, size, tokenizer->fingerprint);
  return STATUS_OK;
}
