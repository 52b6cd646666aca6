/* Neighbours and their counts: see bpe_counts.h.
 *
 *   symbols   t h e | t h e n | ...        one after the other; those of a word form a list, of which merging takes symbols out
 *   pairs     (t, h): count, places 0, 3, ...
 *   heap      (count, left, right), the best first
 *
 * Invariant: count is the sum over the pair's present occurrences of their words' counts; places hold all of them and perhaps others, which
 * are passed over; for each pair with a count the heap has an entry that is at least as good. */
#include "data/tokenizer/bpe_counts.h"
#include "data/tokenizer/bpe_pairs.h"
#include <stdlib.h>

typedef struct Symbol {
  int32_t id;             /* -1: merged into the one before */
  int32_t previous, next; /* places in the same word; -1: none */
  uint32_t word;
} Symbol;

typedef struct Pair {
  int32_t left, right;
  int64_t count;
  int32_t *places; /* where the left symbol stands */
  size_t used, room;
  bool gained; /* during the merge under way */
} Pair;

struct BpeCounts {
  Symbol *symbols;
  int64_t *word_counts;
  BpePairs index; /* (left, right) -> rank: number of the pair */
  Pair *pairs;
  size_t pair_count, pair_room;
  BpeBest *heap;
  size_t waiting, heap_room;
  uint32_t *gained; /* pairs that the merge under way has made more frequent */
  size_t gained_count, gained_room;
};

static Status no_memory(void) { return status_set(STATUS_NO_MEMORY, "no memory to count pairs"); }

/* Room for one more element. */
static Status grow(void **list, size_t count, size_t *room, size_t element) {
  if (count < *room) return STATUS_OK;
  size_t more = *room ? 2 * *room : 8;
  void *grown = realloc(*list, more * element);
  if (!grown) return no_memory();
  *list = grown;
  *room = more;
  return STATUS_OK;
}

#define GROW(list, count, room) grow((void **)&(list), count, &(room), sizeof *(list))

/* ---- Heap ---- */

static bool better(const BpeBest *a, const BpeBest *b) {
  if (a->count != b->count) return a->count > b->count;
  return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static Status push(BpeCounts *counts, uint32_t number) {
  const Pair *pair = &counts->pairs[number];
  BpeBest entry = {pair->left, pair->right, pair->count, number};
  TRY(GROW(counts->heap, counts->waiting, counts->heap_room));
  BpeBest *heap = counts->heap;
  size_t at = counts->waiting++;
  for (; at > 0 && better(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = entry;
  return STATUS_OK;
}

static BpeBest pop(BpeCounts *counts) {
  BpeBest *heap = counts->heap, first = heap[0], last = heap[--counts->waiting];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < counts->waiting; at = child) {
    if (child + 1 < counts->waiting && better(&heap[child + 1], &heap[child])) child++;
    if (!better(&heap[child], &last)) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  return first;
}

/* An entry that promises more than the pair has now is put back for what it has. */
Status bpe_counts_best(BpeCounts *counts, BpeBest *best, bool *found) {
  while (counts->waiting > 0) {
    *best = pop(counts);
    int64_t now = counts->pairs[best->pair].count;
    *found = best->count == now && now > 0;
    if (*found) return STATUS_OK;
    if (now > 0 && now < best->count) TRY(push(counts, best->pair));
  }
  *found = false;
  return STATUS_OK;
}

/* ---- Counts ---- */

static Status find_pair(BpeCounts *counts, int32_t left, int32_t right, uint32_t *number) {
  bool fresh;
  const BpePair *known = bpe_pairs_find(&counts->index, left, right);
  *number = known ? known->rank : (uint32_t)counts->pair_count;
  if (known) return STATUS_OK;
  if (counts->pair_count == BPE_NO_RANK)
    return status_set(STATUS_BAD_VALUE, "more kinds of pairs than can be numbered; train on less text");
  TRY(GROW(counts->pairs, counts->pair_count, counts->pair_room));
  TRY(bpe_pairs_add(&counts->index, left, right, *number, -1, &fresh));
  counts->pairs[counts->pair_count++] = (Pair){.left = left, .right = right};
  return STATUS_OK;
}

/* The symbol at `place` and its successor have become neighbours. */
static Status gain(BpeCounts *counts, int32_t place) {
  const Symbol *symbol = &counts->symbols[place];
  uint32_t number;
  TRY(find_pair(counts, symbol->id, counts->symbols[symbol->next].id, &number));
  Pair *pair = &counts->pairs[number];
  TRY(GROW(pair->places, pair->used, pair->room));
  pair->places[pair->used++] = place;
  pair->count += counts->word_counts[symbol->word];
  if (pair->gained) return STATUS_OK;
  pair->gained = true;
  TRY(GROW(counts->gained, counts->gained_count, counts->gained_room));
  counts->gained[counts->gained_count++] = number;
  return STATUS_OK;
}

/* They are neighbours no longer. */
static void lose(BpeCounts *counts, int32_t place) {
  const Symbol *symbol = &counts->symbols[place];
  const BpePair *known = bpe_pairs_find(&counts->index, symbol->id, counts->symbols[symbol->next].id);
  counts->pairs[known->rank].count -= counts->word_counts[symbol->word];
}

static Status queue_gained(BpeCounts *counts) {
  for (size_t i = 0; i < counts->gained_count; i++) {
    counts->pairs[counts->gained[i]].gained = false;
    TRY(push(counts, counts->gained[i]));
  }
  counts->gained_count = 0;
  return STATUS_OK;
}

/* ---- Start ---- */

static Status lay_out(BpeCounts *counts, const BpeWords *words, const int32_t byte_ids[256]) {
  for (size_t i = 0; i < words->count; i++) {
    const BpeWord *word = &words->list[i];
    int32_t first = (int32_t)word->start, last = first + (int32_t)word->size - 1;
    counts->word_counts[i] = word->count;
    for (int32_t place = first; place <= last; place++)
      counts->symbols[place] =
          (Symbol){byte_ids[(unsigned char)words->text[place]], place > first ? place - 1 : -1, place < last ? place + 1 : -1, (uint32_t)i};
    for (int32_t place = first; place < last; place++) TRY(gain(counts, place));
  }
  return queue_gained(counts);
}

Status bpe_counts_new(BpeCounts **counts, const BpeWords *words, const int32_t byte_ids[256]) {
  *counts = calloc(1, sizeof **counts);
  if (!*counts) return no_memory();
  TRY(bpe_pairs_init(&(*counts)->index, 1 << 16));
  (*counts)->symbols = malloc((words->used + 1) * sizeof *(*counts)->symbols);
  (*counts)->word_counts = malloc((words->count + 1) * sizeof *(*counts)->word_counts);
  if (!(*counts)->symbols || !(*counts)->word_counts) return no_memory();
  return lay_out(*counts, words, byte_ids);
}

void bpe_counts_free(BpeCounts *counts) {
  if (!counts) return;
  for (size_t i = 0; i < counts->pair_count; i++) free(counts->pairs[i].places);
  bpe_pairs_release(&counts->index);
  free(counts->symbols);
  free(counts->word_counts);
  free(counts->pairs);
  free(counts->heap);
  free(counts->gained);
  free(counts);
}

/* ---- Merging ---- */

static Status join(BpeCounts *counts, int32_t place, int32_t id) {
  Symbol *symbol = &counts->symbols[place], *gone = &counts->symbols[symbol->next];
  if (symbol->previous >= 0) lose(counts, symbol->previous);
  lose(counts, place);
  if (gone->next >= 0) lose(counts, symbol->next);
  symbol->id = id;
  symbol->next = gone->next;
  gone->id = -1;
  if (symbol->next >= 0) counts->symbols[symbol->next].previous = place;
  if (symbol->previous >= 0) TRY(gain(counts, symbol->previous));
  return symbol->next >= 0 ? gain(counts, place) : STATUS_OK;
}

static int ascending(const void *a, const void *b) {
  int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
  return left < right ? -1 : left > right;
}

static bool stands_at(const BpeCounts *counts, const BpeBest *best, int32_t place) {
  const Symbol *symbol = &counts->symbols[place];
  return symbol->id == best->left && symbol->next >= 0 && counts->symbols[symbol->next].id == best->right;
}

Status bpe_counts_merge(BpeCounts *counts, const BpeBest *best, int32_t id) {
  Pair *pair = &counts->pairs[best->pair];
  int32_t *places = pair->places; /* taken from the pair: merging moves the pairs about */
  size_t used = pair->used;
  pair->places = NULL;
  pair->used = pair->room = 0;
  qsort(places, used, sizeof *places, ascending);
  Status status = STATUS_OK;
  for (size_t i = 0; i < used && status == STATUS_OK; i++) {
    if (stands_at(counts, best, places[i])) status = join(counts, places[i], id);
  }
  free(places);
  return status == STATUS_OK ? queue_gained(counts) : status;
}
