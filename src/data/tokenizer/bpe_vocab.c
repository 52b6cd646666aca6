/* Tables of a byte-pair vocabulary: see bpe_vocab.h. Invariant of both: open addressing with linear probing, at most half full; of the
 * pieces, the slots hold exactly the findable ones. */
#include "data/tokenizer/bpe_vocab.h"
#include "base/array.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pieces ---- */

enum { PIECES_MAX = 1 << 24 };

Status bpe_pieces_init(BpePieces *pieces, int64_t count) {
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

void bpe_pieces_release(BpePieces *pieces) {
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

static Status check_put(const BpePieces *pieces, int64_t id, const char *bytes, size_t size) {
  char shown[BPE_PIECES_SHOWN];
  if (size == 0 || size > INT32_MAX) return status_set(STATUS_BAD_FILE, "id %lld has a piece of %zu bytes", (long long)id, size);
  bpe_pieces_show(bytes, size, shown);
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
    char shown[BPE_PIECES_SHOWN];
    return status_set(STATUS_BAD_FILE, "piece %s is given twice, as id %d and %lld", bpe_pieces_show(bytes, size, shown),
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

const char *bpe_pieces_show(const char *bytes, size_t size, char shown[BPE_PIECES_SHOWN]) {
  size_t at = 0;
  shown[at++] = '\'';
  for (size_t i = 0; i < size; i++) {
    if (at + 10 > BPE_PIECES_SHOWN) {
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

Status bpe_alphabet_read(const char *text, size_t size, char *bytes, size_t *count) {
  *count = 0;
  for (size_t at = 0, length; at < size; at += length) {
    int byte = read_character((const unsigned char *)text + at, size - at, &length);
    if (byte < 0) {
      char shown[BPE_PIECES_SHOWN];
      return status_set(STATUS_BAD_FILE, "piece %s has a character that stands for no byte", bpe_pieces_show(text, size, shown));
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
