/* The table of merges: see bpe_pairs.h. */
#include "data/tokenizer/bpe_pairs.h"
#include "data/tokenizer/bpe_hash.h"
#include <stdlib.h>

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
static BpePair *find_slot(const BpePairs *pairs, uint64_t key) {
  size_t slot = (size_t)bpe_hash_number(key) & pairs->mask;
  while (pairs->slots[slot].key != key && pairs->slots[slot].key != free_key) slot = (slot + 1) & pairs->mask;
  return &pairs->slots[slot];
}

static Status grow(BpePairs *pairs) {
  BpePairs old = *pairs;
  TRY(make_slots(pairs, 2 * (old.mask + 1)));
  for (size_t i = 0; i <= old.mask; i++) {
    if (old.slots[i].key != free_key) *find_slot(pairs, old.slots[i].key) = old.slots[i];
  }
  free(old.slots);
  return STATUS_OK;
}

Status bpe_pairs_add(BpePairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id, bool *fresh) {
  uint64_t key = pair_key(left, right);
  BpePair *slot = find_slot(pairs, key);
  *fresh = slot->key == free_key;
  if (!*fresh) return STATUS_OK;
  if (2 * (pairs->count + 1) > pairs->mask + 1) {
    TRY(grow(pairs));
    slot = find_slot(pairs, key);
  }
  *slot = (BpePair){key, rank, id};
  pairs->count++;
  return STATUS_OK;
}

const BpePair *bpe_pairs_find(const BpePairs *pairs, int32_t left, int32_t right) {
  const BpePair *slot = find_slot(pairs, pair_key(left, right));
  return slot->key == free_key ? NULL : slot;
}
