/* Putting a tokenizer together: see tokenizer_internal.h. Invariant of a finished one: every id has a piece, every pair and byte_ids lead
 * to ids of pieces, and a byte-level one can encode every byte. */
#include "base/array.h"
#include "data/tokenizer/bpe_vocab.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool add_specials(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = add_number(context, (uint32_t)tokenizer->special_count);
  for (int32_t i = 0; i < tokenizer->special_count && ok; i++) ok = add_number(context, (uint32_t)tokenizer->specials[i]);
  return ok;
}

Status tokenizer_fingerprint_make(Tokenizer *tokenizer) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  bool ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) && EVP_DigestUpdate(context, version, sizeof version) &&
            add_facts(context, tokenizer) && add_pieces(context, &tokenizer->pieces) && add_merges(context, tokenizer) &&
            add_scores(context, tokenizer) && add_specials(context, tokenizer) && EVP_DigestFinal_ex(context, digest, &size) &&
            size == (TOKENIZER_DIGEST_TEXT - 1) / 2;
  EVP_MD_CTX_free(context);
  if (!ok) return status_set(STATUS_UNSUPPORTED, "computing a tokenizer's SHA-256 failed (no memory, or OpenSSL lacks it)");
  for (unsigned i = 0; i < size; i++) sprintf(tokenizer->fingerprint + 2 * i, "%02x", digest[i]);
  return STATUS_OK;
}

/* ---- Putting together ---- */

void tokenizer_close(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  tokenizer_states_free(tokenizer->states);
  bpe_split_free(tokenizer->split);
  bpe_pieces_release(&tokenizer->pieces);
  bpe_pairs_release(&tokenizer->pairs);
  free(tokenizer->merges);
  free(tokenizer->scores);
  free(tokenizer->specials);
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

Status tokenizer_model_add_special(Tokenizer *tokenizer, int64_t id, const char *text, size_t size) {
  TRY(ARRAY_RESERVE(tokenizer->specials, tokenizer->special_count, 1, tokenizer->special_room, "special tokens"));
  TRY(bpe_pieces_put(&tokenizer->pieces, id, text, size, false));
  tokenizer->specials[tokenizer->special_count++] = (int32_t)id;
  return STATUS_OK;
}

Status tokenizer_model_add_piece(Tokenizer *tokenizer, int64_t id, const char *text, size_t size) {
  size_t count = 0;
  char *bytes = malloc(size + 1);
  Status status = bytes ? bpe_alphabet_read(text, size, bytes, &count) : status_no_memory(NULL, "a tokenizer");
  if (status == STATUS_OK) status = bpe_pieces_put(&tokenizer->pieces, id, bytes, count, true);
  free(bytes);
  return status;
}

static Status unknown_piece(const char *bytes, size_t size, const char *what) {
  char shown[BPE_PIECES_SHOWN];
  return status_set(STATUS_BAD_FILE, "%s %s, which is not in the vocabulary", what, bpe_pieces_show(bytes, size, shown));
}

Status tokenizer_model_add_joined(Tokenizer *tokenizer, const char *bytes, size_t left_size, size_t size) {
  const BpePieces *pieces = &tokenizer->pieces;
  int32_t left = bpe_pieces_find(pieces, bytes, left_size), right = bpe_pieces_find(pieces, bytes + left_size, size - left_size);
  int32_t joined = bpe_pieces_find(pieces, bytes, size);
  if (left < 0) return unknown_piece(bytes, left_size, "a merge names the piece");
  if (right < 0) return unknown_piece(bytes + left_size, size - left_size, "a merge names the piece");
  if (joined < 0) return unknown_piece(bytes, size, "a merge makes the piece");
  bool fresh;
  TRY(bpe_pairs_add(&tokenizer->pairs, left, right, (uint32_t)tokenizer->merge_count, joined, &fresh));
  if (fresh) {
    TRY(ARRAY_RESERVE(tokenizer->merges, tokenizer->merge_count, 1, tokenizer->merge_room, "merges"));
    tokenizer->merges[tokenizer->merge_count++] = (TokenizerMerge){left, right};
    return STATUS_OK;
  }
  char shown[BPE_PIECES_SHOWN];
  return status_set(STATUS_BAD_FILE, "the merge that makes %s is given twice", bpe_pieces_show(bytes, size, shown));
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

static Status add_splits_of(Tokenizer *tokenizer, int32_t id, uint32_t rank) {
  size_t size;
  const BpePieces *pieces = &tokenizer->pieces;
  const char *bytes = bpe_pieces_text(pieces, id, &size);
  if (bpe_pieces_find(pieces, bytes, size) != id) return STATUS_OK;
  if (size > TOKENIZER_SPLIT_MAX)
    return status_set(STATUS_BAD_FILE, "id %d has a piece of %zu bytes; at most %d are accepted", (int)id, size, TOKENIZER_SPLIT_MAX);
  for (size_t cut = 1; cut < size; cut++) {
    int32_t left = bpe_pieces_find(pieces, bytes, cut);
    int32_t right = left < 0 ? -1 : bpe_pieces_find(pieces, bytes + cut, size - cut);
    bool fresh;
    if (right >= 0) TRY(bpe_pairs_add(&tokenizer->pairs, left, right, rank, id, &fresh));
  }
  return STATUS_OK;
}

Status tokenizer_model_add_splits(Tokenizer *tokenizer, const uint32_t *ranks) {
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) {
    if (tokenizer->pieces.present[id]) TRY(add_splits_of(tokenizer, id, ranks[id]));
  }
  return STATUS_OK;
}

static Status find_bytes(Tokenizer *tokenizer) {
  for (int byte = 0; byte < 256; byte++) {
    char text = (char)byte;
    tokenizer->byte_ids[byte] = bpe_pieces_find(&tokenizer->pieces, &text, 1);
    if (tokenizer->byte_ids[byte] < 0)
      return status_set(STATUS_BAD_FILE, "no piece for the byte 0x%02x alone; all 256 are needed, so that any text can be encoded", byte);
  }
  return STATUS_OK;
}

typedef struct SpecialKey {
  uint32_t size;
  int32_t id;
} SpecialKey;

static int longest_first(const void *a, const void *b) {
  const SpecialKey *left = a, *right = b;
  if (left->size != right->size) return left->size > right->size ? -1 : 1;
  return left->id < right->id ? -1 : left->id > right->id;
}

static Status sort_specials(Tokenizer *tokenizer) {
  size_t count = (size_t)tokenizer->special_count;
  SpecialKey *keys = malloc((count + 1) * sizeof *keys);
  if (!keys) return status_no_memory(NULL, "a tokenizer");
  for (size_t i = 0; i < count; i++) keys[i] = (SpecialKey){tokenizer->pieces.sizes[tokenizer->specials[i]], tokenizer->specials[i]};
  qsort(keys, count, sizeof *keys, longest_first);
  for (size_t i = 0; i < count; i++) {
    size_t size;
    tokenizer->specials[i] = keys[i].id;
    tokenizer->special_starts[(unsigned char)*bpe_pieces_text(&tokenizer->pieces, keys[i].id, &size)] = true;
  }
  free(keys);
  return STATUS_OK;
}

static int32_t find_special(const Tokenizer *tokenizer, const char *text) {
  for (int32_t i = 0; i < tokenizer->special_count; i++) {
    size_t size;
    const char *piece = bpe_pieces_text(&tokenizer->pieces, tokenizer->specials[i], &size);
    if (size == strlen(text) && memcmp(piece, text, size) == 0) return tokenizer->specials[i];
  }
  return -1;
}

static Status finish_bytes(Tokenizer *tokenizer) {
  TRY(find_bytes(tokenizer));
  tokenizer->begin = find_special(tokenizer, "<|begin_of_text|>");
  tokenizer->end = find_special(tokenizer, "<|end_of_text|>");
  if (tokenizer->end < 0) tokenizer->end = find_special(tokenizer, "<|endoftext|>");
  return bpe_split_new(&tokenizer->split, tokenizer->pattern);
}

Status tokenizer_model_finish(Tokenizer *tokenizer) {
  TRY(bpe_pieces_check_whole(&tokenizer->pieces));
  TRY(sort_specials(tokenizer));
  if (tokenizer->kind != TOKENIZER_SCORES) TRY(finish_bytes(tokenizer));
  TRY(tokenizer_states_new(&tokenizer->states, tokenizer->split));
  return tokenizer_fingerprint_make(tokenizer);
}

Status tokenizer_model_parsed(Tokenizer **tokenizer, Status status, const char *path) {
  if (status == STATUS_OK) status = tokenizer_model_finish(*tokenizer);
  if (status == STATUS_OK) return STATUS_OK;
  tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  return status_wrap(status, "%s", path);
}
