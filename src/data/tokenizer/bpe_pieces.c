/* Vocabularies: see bpe_pieces.h. Invariant: slots hold exactly the findable pieces, and the table is at most half full. */
#include "data/tokenizer/bpe_pieces.h"
#include "data/tokenizer/bpe_hash.h"
#include <stdio.h>
#include <stdlib.h>

enum { PIECES_MOST = 1 << 24 };

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "no memory for the vocabulary"); }

Status bpe_pieces_init(BpePieces *pieces, int64_t count) {
  *pieces = (BpePieces){0};
  if (count < 1 || count > PIECES_MOST)
    return status_set(STATUS_BAD_FILE, "a vocabulary of %lld pieces; 1 to %d are accepted", (long long)count, PIECES_MOST);
  size_t room = bpe_hash_room((size_t)count);
  pieces->starts = malloc((size_t)count * sizeof *pieces->starts);
  pieces->sizes = malloc((size_t)count * sizeof *pieces->sizes);
  pieces->present = calloc((size_t)count, sizeof *pieces->present);
  pieces->slots = malloc(room * sizeof *pieces->slots);
  if (!pieces->starts || !pieces->sizes || !pieces->present || !pieces->slots) return no_memory();
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

static Status grow_text(BpePieces *pieces, size_t more) {
  if (more <= pieces->room - pieces->used) return STATUS_OK;
  size_t room = pieces->room ? 2 * pieces->room : 4096;
  while (room - pieces->used < more) room *= 2;
  char *text = realloc(pieces->text, room);
  if (!text) return no_memory();
  pieces->text = text;
  pieces->room = room;
  return STATUS_OK;
}

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
  TRY(grow_text(pieces, size + 1));
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
