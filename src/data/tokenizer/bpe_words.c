/* A table of words: see bpe_words.h. Invariant: at most half of the slots are taken. */
#include "data/tokenizer/bpe_words.h"
#include "data/tokenizer/bpe_hash.h"
#include <stdbool.h>
#include <stdlib.h>

static const size_t text_most = INT32_MAX; /* places in it are 32-bit numbers later on */

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "no memory to count the pieces of the text"); }

/* The slot where these bytes are, or the free one where they would be. */
static uint32_t *find_slot(const BpeWords *words, const char *bytes, size_t size) {
  for (size_t slot = (size_t)bpe_hash_bytes(bytes, size) & words->mask;; slot = (slot + 1) & words->mask) {
    if (words->slots[slot] == 0) return &words->slots[slot];
    const BpeWord *word = &words->list[words->slots[slot] - 1];
    if (word->size == size && memcmp(words->text + word->start, bytes, size) == 0) return &words->slots[slot];
  }
}

static Status grow_slots(BpeWords *words) {
  if (words->slots && 2 * (words->count + 1) <= words->mask + 1) return STATUS_OK;
  size_t room = bpe_hash_room(2 * (words->count + 1));
  uint32_t *slots = calloc(room, sizeof *slots);
  if (!slots) return no_memory();
  free(words->slots);
  words->slots = slots;
  words->mask = room - 1;
  for (size_t i = 0; i < words->count; i++) {
    const BpeWord *word = &words->list[i];
    *find_slot(words, words->text + word->start, word->size) = (uint32_t)i + 1;
  }
  return STATUS_OK;
}

static Status grow_text(BpeWords *words, size_t more) {
  if (more > text_most - words->used)
    return status_set(STATUS_BAD_VALUE, "more than %zu bytes of distinct words; train on less text", text_most);
  if (more <= words->text_room - words->used) return STATUS_OK;
  size_t room = words->text_room ? 2 * words->text_room : (size_t)1 << 16;
  while (room - words->used < more) room *= 2;
  char *text = realloc(words->text, room);
  if (!text) return no_memory();
  words->text = text;
  words->text_room = room;
  return STATUS_OK;
}

static Status grow_list(BpeWords *words) {
  if (words->count < words->list_room) return STATUS_OK;
  size_t room = words->list_room ? 2 * words->list_room : 4096;
  BpeWord *list = realloc(words->list, room * sizeof *list);
  if (!list) return no_memory();
  words->list = list;
  words->list_room = room;
  return STATUS_OK;
}

Status bpe_words_add(BpeWords *words, const char *bytes, size_t size) {
  TRY(grow_slots(words));
  uint32_t *slot = find_slot(words, bytes, size);
  if (*slot > 0) {
    words->list[*slot - 1].count++;
    return STATUS_OK;
  }
  TRY(grow_text(words, size));
  TRY(grow_list(words));
  memcpy(words->text + words->used, bytes, size);
  words->list[words->count] = (BpeWord){words->used, (uint32_t)size, 1};
  words->used += size;
  *slot = (uint32_t)++words->count;
  return STATUS_OK;
}

void bpe_words_release(BpeWords *words) {
  free(words->list);
  free(words->text);
  free(words->slots);
  *words = (BpeWords){0};
}
