/* Merging with a heap over a linked list: see bpe_merge.h. A scan for the lowest rank after every merge would be quadratic: minutes for
 * 100 KB of one letter.
 * Invariant: for each symbol with a rank there is a heap entry of that rank and place; an entry whose rank is not the symbol's is stale. */
#include "data/tokenizer/bpe_merge.h"
#include <stdlib.h>

Status bpe_merge_reserve(BpeMerge *merge, size_t count) {
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

void bpe_merge_release(BpeMerge *merge) {
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

size_t bpe_merge_run(BpeMerge *merge, const BpePairs *pairs, size_t count, int32_t *ids) {
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
