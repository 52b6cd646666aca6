/* Encoding, decoding and facts of a tokenizer. Leaves out: opening and saving (tokenizer_files.c), Llama's formats (tokenizer_llama.c),
 * what it consists of and putting it together (tokenizer_model.c). */
#include "data/tokenizer/tokenizer.h"
#include "base/array.h"
#include "base/status.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists of token ids ---- */

/* Room for `more` ids behind the present ones; NO_MEMORY leaves the list as it was. */
static Status token_list_reserve(TokenList *list, size_t more) {
  return ARRAY_RESERVE(list->ids, list->count, more, list->capacity, "token ids");
}

Status token_list_add(TokenList *list, int32_t id) {
  if (list->count == list->capacity) TRY(token_list_reserve(list, 1));
  list->ids[list->count++] = id;
  return STATUS_OK;
}

void token_list_release(TokenList *list) {
  free(list->ids);
  *list = (TokenList){0};
}

/* ---- Merging ---- */

/* Byte-pair merging of one piece of text: as long as two neighbours are in the table of pairs, the two of lowest rank, among equals the
 * leftmost, become one. O(n log n) in the number of symbols, with a heap over a linked list: a scan for the lowest rank after every merge
 * would be quadratic, minutes for 100 KB of one letter.
 * Invariant: for each symbol with a rank there is a heap entry of that rank and place; an entry whose rank is not the symbol's is stale. */

/* A symbol of the piece; those that remain form a list. */
typedef struct BpeSymbol {
  int32_t id;
  int32_t previous, next; /* places; -1: none */
  uint32_t rank;          /* of merging it with the next one; BPE_NO_RANK: not possible */
  int32_t merged;         /* the id that this gives */
} BpeSymbol;

/* Working memory, kept from piece to piece. One thread at a time. Zero it first. */
typedef struct BpeMerge {
  BpeSymbol *symbols; /* [room] */
  uint64_t *heap;     /* [3 room]: rank << 32 | place, a binary heap with the smallest first; entries that no longer hold are passed over */
  size_t room, waiting;
} BpeMerge;

/* Room for `count` symbols, whose id the caller then sets. BAD_VALUE: 2^31 or more. */
static Status bpe_merge_reserve(BpeMerge *merge, size_t count) {
  if (count <= merge->room) return STATUS_OK;
  if (count >= INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "a piece of text of %zu bytes; at most %d can be encoded", count, INT32_MAX - 1);
  size_t room = 64;
  while (room < count) room *= 2;
  BpeSymbol *symbols = realloc(merge->symbols, room * sizeof *symbols);
  if (symbols) merge->symbols = symbols;
  uint64_t *heap = symbols ? realloc(merge->heap, 3 * room * sizeof *heap) : NULL;
  if (!heap) return status_set(STATUS_NO_MEMORY, "no memory to encode a piece of text of %zu bytes", count);
  merge->heap = heap;
  merge->room = room;
  return STATUS_OK;
}

static void bpe_merge_release(BpeMerge *merge) {
  free(merge->symbols);
  free(merge->heap);
  *merge = (BpeMerge){0};
}

static void push(BpeMerge *merge, uint64_t entry) {
  size_t at = merge->waiting++;
  for (; at > 0 && merge->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) merge->heap[at] = merge->heap[(at - 1) / 2];
  merge->heap[at] = entry;
}

static uint64_t pop(BpeMerge *merge) {
  uint64_t first = merge->heap[0], last = merge->heap[--merge->waiting];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < merge->waiting; at = child) {
    if (child + 1 < merge->waiting && merge->heap[child + 1] < merge->heap[child]) child++;
    if (merge->heap[child] >= last) break;
    merge->heap[at] = merge->heap[child];
  }
  merge->heap[at] = last;
  return first;
}

/* Looks the symbol and its successor up. */
static void consider(BpeMerge *merge, const BpePairs *pairs, int32_t place) {
  BpeSymbol *symbol = &merge->symbols[place];
  const BpePair *pair = symbol->next < 0 ? NULL : bpe_pairs_find(pairs, symbol->id, merge->symbols[symbol->next].id);
  symbol->rank = pair ? pair->rank : BPE_NO_RANK;
  if (!pair) return;
  symbol->merged = pair->id;
  push(merge, (uint64_t)pair->rank << 32 | (uint32_t)place);
}

static void join(BpeMerge *merge, const BpePairs *pairs, int32_t place) {
  BpeSymbol *symbol = &merge->symbols[place], *gone = &merge->symbols[symbol->next];
  symbol->id = symbol->merged;
  symbol->next = gone->next;
  if (symbol->next >= 0) merge->symbols[symbol->next].previous = place;
  gone->rank = BPE_NO_RANK;
  consider(merge, pairs, place);
  if (symbol->previous >= 0) consider(merge, pairs, symbol->previous);
}

/* Merges the first `count` (at least one) symbols; writes what remains to ids [count], in order, and returns how many. */
static size_t bpe_merge_run(BpeMerge *merge, const BpePairs *pairs, size_t count, int32_t *ids) {
  int32_t last = (int32_t)count - 1;
  merge->waiting = 0;
  for (int32_t i = 0; i <= last; i++) {
    merge->symbols[i].previous = i - 1;
    merge->symbols[i].next = i < last ? i + 1 : -1;
  }
  for (int32_t i = 0; i <= last; i++) consider(merge, pairs, i);
  while (merge->waiting > 0) {
    uint64_t entry = pop(merge);
    int32_t place = (int32_t)(uint32_t)entry;
    if (merge->symbols[place].rank == (uint32_t)(entry >> 32)) join(merge, pairs, place);
  }
  size_t kept = 0;
  for (int32_t i = 0; i >= 0; i = merge->symbols[i].next) ids[kept++] = merge->symbols[i].id;
  return kept;
}

/* ---- Cache of encoded pieces ---- */

/* What frequent pieces of text were encoded to. A fixed number of places, one for each hash: a newer piece takes the place of an older.
 * Nothing is allocated for a piece. One thread at a time. 65,536 places of a cache line each: on 14 MB of English text 93% of the pieces
 * are found, with 16,384 places 87%, with 4,096 78%. The memory is touched as it fills, so that short texts cost little. */

enum { BPE_CACHE_BYTES = 22, BPE_CACHE_IDS = 10 }; /* longer pieces, or pieces of more tokens, are not kept */

typedef struct BpeCached {
  uint8_t size, count; /* size 0: free */
  char bytes[BPE_CACHE_BYTES];
  int32_t ids[BPE_CACHE_IDS];
} BpeCached;

enum { CACHE_PLACES = 1 << 16 };

typedef struct BpeCache {
  BpeCached places[CACHE_PLACES];
} BpeCache;

/* The place for these bytes, or NULL when they are not kept. *found: it holds them. To fill it: bpe_cache_keep. */
static BpeCached *bpe_cache_place(BpeCache *cache, const char *bytes, size_t size, bool *found) {
  *found = false;
  if (size > BPE_CACHE_BYTES) return NULL;
  BpeCached *place = &cache->places[bpe_hash_bytes(bytes, size) % CACHE_PLACES];
  *found = place->size == size && memcmp(place->bytes, bytes, size) == 0;
  return place;
}

static void bpe_cache_keep(BpeCached *place, const char *bytes, size_t size, const int32_t *ids, size_t count) {
  if (count > BPE_CACHE_IDS) return;
  place->size = (uint8_t)size;
  place->count = (uint8_t)count;
  memcpy(place->bytes, bytes, size);
  memcpy(place->ids, ids, count * sizeof *ids);
}

/* ---- Working memory ---- */

/* A call takes a state of its own and gives it back, so that any number of threads can encode at once and what one call has cached serves
 * the next. A list of states that are not in use, behind a lock that is held for a moment only. There are never more states than calls at
 * once. */

typedef struct TokenizerState {
  BpeWalk *walk; /* NULL without a split */
  BpeMerge merge;
  BpeCache *cache;
  struct TokenizerState *next; /* of those not in use */
} TokenizerState;

struct TokenizerStates {
  pthread_mutex_t lock;
  TokenizerState *idle;
  const BpeSplit *split;
};

/* split: NULL, or it outlives the states. */
static Status tokenizer_states_new(TokenizerStates **states, const BpeSplit *split) {
  *states = calloc(1, sizeof **states);
  if (!*states) return status_no_memory(NULL, "a tokenizer");
  pthread_mutex_init(&(*states)->lock, NULL);
  (*states)->split = split;
  return STATUS_OK;
}

static void state_free(TokenizerState *state) {
  bpe_split_walk_free(state->walk);
  bpe_merge_release(&state->merge);
  free(state->cache);
  free(state);
}

/* Accepts NULL; all states have been given back. */
static void tokenizer_states_free(TokenizerStates *states) {
  if (!states) return;
  while (states->idle) {
    TokenizerState *state = states->idle;
    states->idle = state->next;
    state_free(state);
  }
  pthread_mutex_destroy(&states->lock);
  free(states);
}

static Status state_new(TokenizerState **state, const BpeSplit *split) {
  TokenizerState *fresh = calloc(1, sizeof *fresh);
  if (fresh) fresh->cache = calloc(1, sizeof *fresh->cache);
  if (!fresh || !fresh->cache) {
    free(fresh);
    return status_no_memory(NULL, "encoding text");
  }
  Status status = split ? bpe_split_walk(&fresh->walk, split) : STATUS_OK;
  if (status == STATUS_OK)
    *state = fresh;
  else
    state_free(fresh);
  return status;
}

static Status tokenizer_states_take(TokenizerStates *states, TokenizerState **state) {
  pthread_mutex_lock(&states->lock);
  *state = states->idle;
  if (*state) states->idle = (*state)->next;
  pthread_mutex_unlock(&states->lock);
  return *state ? STATUS_OK : state_new(state, states->split);
}

/* Idle states stay until the end: what one long piece of text took is not kept with them. */
static void tokenizer_states_give(TokenizerStates *states, TokenizerState *state) {
  enum { KEPT_SYMBOLS = 1 << 16 /* 2.9 MB */ };
  if (state->merge.room > KEPT_SYMBOLS) bpe_merge_release(&state->merge);
  pthread_mutex_lock(&states->lock);
  state->next = states->idle;
  states->idle = state;
  pthread_mutex_unlock(&states->lock);
}

/* ---- Beginning and end of a tokenizer ---- */

void tokenizer_close(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  tokenizer_states_free(tokenizer->states);
  tokenizer_model_release(tokenizer);
}

Status tokenizer_finish(Tokenizer **tokenizer, Status status, const char *path) {
  if (status == STATUS_OK) status = tokenizer_model_finish(*tokenizer);
  if (status == STATUS_OK) status = tokenizer_states_new(&(*tokenizer)->states, (*tokenizer)->split);
  if (status == STATUS_OK) status = tokenizer_model_fingerprint(*tokenizer);
  if (status == STATUS_OK) return STATUS_OK;
  tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return path ? status_wrap(status, "%s", path) : status;
}

/* ---- Decoding ---- */

int64_t tokenizer_count(const Tokenizer *tokenizer) { return tokenizer->pieces.count; }

bool tokenizer_fits(const Tokenizer *tokenizer, int64_t rows) {
  enum { PADDING_MAX = 256 };
  return rows >= tokenizer_count(tokenizer) && rows - tokenizer_count(tokenizer) < PADDING_MAX;
}

int32_t tokenizer_begin(const Tokenizer *tokenizer) { return tokenizer->begin; }

int32_t tokenizer_end(const Tokenizer *tokenizer) { return tokenizer->end; }

const char *tokenizer_fingerprint(const Tokenizer *tokenizer) { return tokenizer->fingerprint; }

const char *tokenizer_piece(const Tokenizer *tokenizer, int32_t id, size_t *bytes) {
  *bytes = 0;
  if (id < 0 || id >= tokenizer->pieces.count) return NULL;
  if (tokenizer->kind == TOKENIZER_SCORES && id < TOKENIZER_FIRST_BYTE) return "";
  return bpe_pieces_text(&tokenizer->pieces, id, bytes);
}

/* Of a scored vocabulary: what stands behind it begins a text of its own, with a space in front. Such a piece is none that merging makes,
 * as little as a byte is. */
static bool is_special(const Tokenizer *tokenizer, int32_t id, const char *piece, size_t size) {
  if (id < TOKENIZER_FIRST_PIECE) return id < TOKENIZER_FIRST_BYTE;
  return bpe_pieces_find(&tokenizer->pieces, piece, size) != id;
}

static bool divides(const Tokenizer *tokenizer, int32_t id) { return id < 0 || id == tokenizer->begin || id == tokenizer->end; }

size_t tokenizer_text_bytes(const Tokenizer *tokenizer, int32_t before, int32_t id) {
  size_t bytes;
  const char *piece = tokenizer_piece(tokenizer, id, &bytes);
  if (!piece || divides(tokenizer, id)) return 0;
  if (tokenizer->kind != TOKENIZER_SCORES || is_special(tokenizer, id, piece, bytes)) return bytes;
  size_t size;
  const char *last = tokenizer_piece(tokenizer, before, &size);
  bool first = divides(tokenizer, before) || (last && is_special(tokenizer, before, last, size));
  return bytes - (first && bytes > 0 && *piece == ' ');
}

static Status measure(const Tokenizer *tokenizer, const int32_t *ids, size_t count, size_t *bytes) {
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    size_t size;
    if (!tokenizer_piece(tokenizer, ids[i], &size))
      return status_set(STATUS_BAD_VALUE, "token %zu of %zu has id %d; the tokenizer's ids are 0 to %d", i + 1, count, (int)ids[i],
                        (int)tokenizer->pieces.count - 1);
    if (size > SIZE_MAX / 2 - *bytes) return status_set(STATUS_BAD_VALUE, "%zu tokens have more text than fits in memory", count);
    *bytes += size;
  }
  return STATUS_OK;
}

Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count, char **text, size_t *bytes) {
  *text = NULL;
  size_t total;
  Status status = measure(tokenizer, ids, count, &total);
  *bytes = 0;
  TRY(status);
  char *buffer = malloc(total + 1);
  if (!buffer) return status_set(STATUS_NO_MEMORY, "no memory for a text of %zu bytes", total);
  bool first = tokenizer->kind == TOKENIZER_SCORES;
  for (size_t i = 0, size; i < count; i++, *bytes += size) {
    const char *piece = tokenizer_piece(tokenizer, ids[i], &size);
    bool special = tokenizer->kind == TOKENIZER_SCORES && is_special(tokenizer, ids[i], piece, size);
    if (first && !special && *piece == ' ') piece++, size--; /* the space that encoding put there */
    first = special;
    memcpy(buffer + *bytes, piece, size);
  }
  buffer[*bytes] = '\0';
  *text = buffer;
  return STATUS_OK;
}

/* ---- Encoding ---- */

/* Text to ids. Byte-level: the expression cuts the text into pieces; a piece that was seen lately comes from the cache, others begin as one
 * symbol a byte and are merged. Scored: the whole text, or what stands between two special tokens, with a space in front, begins as one
 * symbol a character (or a byte where the vocabulary lacks the character) and is merged at once.
 * Nothing is allocated for a piece. On English text nine pieces in ten come from the cache, and the expression takes about half of the
 * time. */

/* A piece that the cache does not have. */
static Status merge_piece(const Tokenizer *tokenizer, BpeMerge *merge, const char *bytes, size_t size, TokenList *out) {
  TRY(bpe_merge_reserve(merge, size));
  TRY(token_list_reserve(out, size));
  for (size_t i = 0; i < size; i++) merge->symbols[i].id = tokenizer->byte_ids[(unsigned char)bytes[i]];
  out->count += bpe_merge_run(merge, &tokenizer->pairs, size, out->ids + out->count);
  return STATUS_OK;
}

static Status encode_piece(const Tokenizer *tokenizer, TokenizerState *state, const char *bytes, size_t size, TokenList *out) {
  bool found;
  BpeCached *place = bpe_cache_place(state->cache, bytes, size, &found);
  if (found) {
    TRY(token_list_reserve(out, place->count));
    memcpy(out->ids + out->count, place->ids, place->count * sizeof *place->ids);
    out->count += place->count;
    return STATUS_OK;
  }
  size_t before = out->count;
  int32_t whole = tokenizer->whole ? bpe_pieces_find(&tokenizer->pieces, bytes, size) : -1;
  TRY(whole >= 0 ? token_list_add(out, whole) : merge_piece(tokenizer, &state->merge, bytes, size, out));
  if (place) bpe_cache_keep(place, bytes, size, out->ids + before, out->count - before);
  return STATUS_OK;
}

static Status encode_bytes(const Tokenizer *tokenizer, TokenizerState *state, const char *text, size_t bytes, TokenList *out) {
  const char *piece;
  size_t size;
  bpe_split_start(state->walk, text, bytes);
  for (;;) {
    TRY(bpe_split_next(state->walk, &piece, &size));
    if (size == 0) return STATUS_OK;
    TRY(encode_piece(tokenizer, state, piece, size, out));
  }
}

/* The symbols that the character at text starts as; returns its bytes. */
static size_t start_character(const Tokenizer *tokenizer, BpeMerge *merge, const char *text, size_t left, size_t *count) {
  size_t size = utf8_size(text, left);
  int32_t id = size ? bpe_pieces_find(&tokenizer->pieces, text, size) : -1;
  if (id >= 0) {
    merge->symbols[(*count)++].id = id;
    return size;
  }
  if (size == 0) size = 1;
  for (size_t i = 0; i < size; i++) merge->symbols[(*count)++].id = tokenizer->byte_ids[(unsigned char)text[i]];
  return size;
}

static Status encode_scored(const Tokenizer *tokenizer, TokenizerState *state, const char *text, size_t bytes, TokenList *out) {
  if (bytes == 0) return STATUS_OK;
  TRY(bpe_merge_reserve(&state->merge, bytes + 1));
  TRY(token_list_reserve(out, bytes + 1));
  size_t count = 0;
  start_character(tokenizer, &state->merge, " ", 1, &count);
  for (size_t at = 0; at < bytes;) at += start_character(tokenizer, &state->merge, text + at, bytes - at, &count);
  out->count += bpe_merge_run(&state->merge, &tokenizer->pairs, count, out->ids + out->count);
  return STATUS_OK;
}

/* The first of by_text[low] to by_text[high], all of which are longer than `at` bytes and the same up to there, whose next byte is at least
 * this. */
static int32_t first_special(const Tokenizer *tokenizer, int32_t low, int32_t high, size_t at, int byte) {
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    size_t size;
    if ((unsigned char)bpe_pieces_text(&tokenizer->pieces, tokenizer->by_text[middle].id, &size)[at] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The special token at text, or -1; the longest where several would do. `special`: not only those that are recognised in any text. Each
 * byte of the text narrows the range of those that begin so: comparing all takes seconds for megabytes of their first byte. */
static int32_t special_at(const Tokenizer *tokenizer, const char *text, size_t left, bool special, size_t *size) {
  const int start = (unsigned char)*text;
  int32_t low = tokenizer->special_from[start], high = tokenizer->special_from[start + 1], found = -1;
  *size = 0;
  for (size_t at = 1; low < high; at++) {
    for (; low < high && tokenizer->pieces.sizes[tokenizer->by_text[low].id] == at; low++) {
      const TokenizerSpecial *one = &tokenizer->by_text[low];
      if (*size < at && (special || one->in_text)) found = one->id, *size = at;
    }
    if (at == left) break;
    const int byte = (unsigned char)text[at];
    low = first_special(tokenizer, low, high, at, byte);
    high = first_special(tokenizer, low, high, at, byte + 1);
  }
  return found;
}

static Status encode_text(const Tokenizer *tokenizer, TokenizerState *state, const char *text, size_t bytes, TokenList *out) {
  if (tokenizer->kind == TOKENIZER_SCORES) return encode_scored(tokenizer, state, text, bytes, out);
  return encode_bytes(tokenizer, state, text, bytes, out);
}

/* What stands between special tokens is encoded as texts of their own. */
static Status encode_between(const Tokenizer *tokenizer, TokenizerState *state, const char *text, size_t bytes, bool special,
                             TokenList *out) {
  size_t begun = 0, size;
  for (size_t at = 0; at < bytes; at += size ? size : 1) {
    int32_t id = special_at(tokenizer, text + at, bytes - at, special, &size);
    if (id < 0) continue;
    TRY(encode_text(tokenizer, state, text + begun, at - begun, out));
    TRY(token_list_add(out, id));
    begun = at + size;
  }
  return encode_text(tokenizer, state, text + begun, bytes - begun, out);
}

Status tokenizer_encode(Tokenizer *tokenizer, const char *text, size_t bytes, bool special, TokenList *out) {
  TokenizerState *state;
  size_t before = out->count;
  TRY(tokenizer_states_take(tokenizer->states, &state));
  const int32_t apart = special ? tokenizer->special_count : tokenizer->in_text_count;
  Status status = apart > 0 ? encode_between(tokenizer, state, text, bytes, special, out) : encode_text(tokenizer, state, text, bytes, out);
  tokenizer_states_give(tokenizer->states, state);
  if (status != STATUS_OK) out->count = before;
  return status;
}

/* ---- What corpora need of a tokenizer ---- */

static Status encode_plain(void *context, const char *text, size_t bytes, TokenList *out) {
  return tokenizer_encode(context, text, bytes, false, out);
}

/* Tokenizers that put something before a text, as sentencepiece does with a space, give other tokens for two halves. */
static Status try_cut(Tokenizer *tokenizer, TokenList *whole, TokenList *halves, bool *same) {
  static const char first[] = "The history of the town,", second[] = " which lies in the north, begins in 1206.";
  char both[sizeof first + sizeof second];
  memcpy(both, first, sizeof first - 1);
  memcpy(both + sizeof first - 1, second, sizeof second);
  TRY(tokenizer_encode(tokenizer, both, strlen(both), false, whole));
  TRY(tokenizer_encode(tokenizer, first, strlen(first), false, halves));
  TRY(tokenizer_encode(tokenizer, second, strlen(second), false, halves));
  *same = whole->count == halves->count && (whole->count == 0 || memcmp(whole->ids, halves->ids, whole->count * sizeof *whole->ids) == 0);
  return STATUS_OK;
}

/* Corpora are cut before spaces: within such a token, perhaps. */
static bool has_token_with_space(const Tokenizer *tokenizer) {
  for (int32_t i = 0; i < tokenizer->special_count; i++) {
    size_t size;
    const char *piece = bpe_pieces_text(&tokenizer->pieces, tokenizer->specials[i].id, &size);
    if (tokenizer->specials[i].in_text && memchr(piece, ' ', size)) return true;
  }
  return false;
}

Status tokenizer_encoder(TextEncoder *encoder, Tokenizer *tokenizer) {
  int32_t begin = tokenizer_begin(tokenizer), end = tokenizer_end(tokenizer);
  *encoder = (TextEncoder){.encode = encode_plain,
                           .context = tokenizer,
                           .vocabulary = tokenizer_count(tokenizer),
                           .begin = begin == end ? -1 : begin,
                           .separator = end,
                           .fingerprint = tokenizer_fingerprint(tokenizer)};
  TokenList whole = {0}, halves = {0};
  Status status = try_cut(tokenizer, &whole, &halves, &encoder->cuttable);
  if (has_token_with_space(tokenizer)) encoder->cuttable = false;
  token_list_release(&whole);
  token_list_release(&halves);
  return status;
}
