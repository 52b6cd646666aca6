/* Training: the distinct pieces of the text with their counts, the counts of neighbours in them, and what becomes of the best pair.
 * Two merges can make the same bytes (a, bc and ab, c): then both lead to one piece, and the vocabulary grows by one, not two. */
#include "base/array.h"
#include "base/progress.h"
#include "base/status.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Distinct pieces of text ---- */

/* How often each distinct piece of text occurs. Invariant: at most half of the slots are taken. */

typedef struct BpeWord {
  size_t start; /* into text */
  uint32_t size;
  int64_t count;
} BpeWord;

typedef struct BpeWords {
  BpeWord *list; /* [count], in order of first occurrence */
  size_t count, list_room;
  char *text;
  size_t used, text_room;
  uint32_t *slots; /* [mask + 1]: open addressing; number of the word plus one; 0: free */
  size_t mask;
} BpeWords;

static const size_t max_text = INT32_MAX; /* places in it are 32-bit numbers later on */

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
  if (!slots) return status_no_memory(NULL, "counting the pieces of the text");
  free(words->slots);
  words->slots = slots;
  words->mask = room - 1;
  for (size_t i = 0; i < words->count; i++) {
    const BpeWord *word = &words->list[i];
    *find_slot(words, words->text + word->start, word->size) = (uint32_t)i + 1;
  }
  return STATUS_OK;
}

/* Zero it first. A piece of [size >= 1] bytes occurred once more. BAD_VALUE: more distinct text than can be numbered. */
static Status bpe_words_add(BpeWords *words, const char *bytes, size_t size) {
  TRY(grow_slots(words));
  uint32_t *slot = find_slot(words, bytes, size);
  if (*slot > 0) {
    words->list[*slot - 1].count++;
    return STATUS_OK;
  }
  if (size > max_text - words->used)
    return status_set(STATUS_BAD_VALUE, "more than %zu bytes of distinct words; train on less text", max_text);
  TRY(ARRAY_RESERVE(words->text, words->used, size, words->text_room, "distinct pieces of the text"));
  TRY(ARRAY_RESERVE(words->list, words->count, 1, words->list_room, "distinct pieces of the text"));
  memcpy(words->text + words->used, bytes, size);
  words->list[words->count] = (BpeWord){words->used, (uint32_t)size, 1};
  words->used += size;
  *slot = (uint32_t)++words->count;
  return STATUS_OK;
}

static void bpe_words_release(BpeWords *words) {
  free(words->list);
  free(words->text);
  free(words->slots);
  *words = (BpeWords){0};
}

/* ---- Counts of neighbours ---- */

/* How often each two symbols are neighbours, kept up to date while pairs are merged. A merge costs what its own occurrences cost, whatever
 * the size of the text.
 *
 *   symbols   t h e | t h e n | ...        one after the other; those of a word form a list, of which merging takes symbols out
 *   pairs     (t, h): count, places 0, 3, ...
 *   heap      (count, left, right), the best first
 *
 * Invariant: count is the sum over the pair's present occurrences of their words' counts; places hold all of them and perhaps others, which
 * are passed over; for each pair with a count the heap has an entry that is at least as good. */

typedef struct BpeCounts BpeCounts;

/* The most frequent pair, among equals that of the lowest left symbol, then of the lowest right one; false when there is none. */
typedef struct BpeBest {
  int32_t left, right;
  int64_t count;
  uint32_t pair; /* for bpe_counts_merge */
} BpeBest;

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

#define GROW(list, count, room) ARRAY_RESERVE(list, count, 1, room, "counts of pairs")

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
static Status bpe_counts_best(BpeCounts *counts, BpeBest *best, bool *found) {
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

/* From the words, each byte of which starts as the symbol byte_ids[byte]. The words are not needed afterwards. */
static Status bpe_counts_new(BpeCounts **counts, const BpeWords *words, const int32_t byte_ids[256]) {
  *counts = calloc(1, sizeof **counts);
  if (!*counts) return status_no_memory(NULL, "counting pairs");
  TRY(bpe_pairs_init(&(*counts)->index, 1 << 16));
  (*counts)->symbols = malloc((words->used + 1) * sizeof *(*counts)->symbols);
  (*counts)->word_counts = malloc((words->count + 1) * sizeof *(*counts)->word_counts);
  if (!(*counts)->symbols || !(*counts)->word_counts) return status_no_memory(NULL, "counting pairs");
  return lay_out(*counts, words, byte_ids);
}

/* Accepts NULL. */
static void bpe_counts_free(BpeCounts *counts) {
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

/* Makes every occurrence of the best pair, from left to right in each word, the symbol `id`. */
static Status bpe_counts_merge(BpeCounts *counts, const BpeBest *best, int32_t id) {
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

/* ---- Training ---- */

enum { BYTES = 256 };
static const size_t file_max = (size_t)16 << 30; /* a file is read whole */
static const char end_of_text[] = "<|endoftext|>";

/* Counts the pieces of a text [size]. */
static Status count_text(BpeWords *words, BpeWalk *walk, const char *text, size_t size) {
  const char *piece;
  size_t length;
  bpe_split_start(walk, text, size);
  for (;;) {
    TRY(bpe_split_next(walk, &piece, &length));
    if (length == 0) return STATUS_OK;
    TRY(bpe_words_add(words, piece, length));
  }
}

static Status count_files(BpeWords *words, BpeWalk *walk, const char *const *files, int count, TokenizerTraining *training) {
  Progress progress;
  progress_start(&progress, "counting", count, training->quiet);
  for (int i = 0; i < count; i++) {
    char *text;
    size_t size;
    progress_update(&progress, i, files[i]);
    TRY(text_source_read_file(files[i], file_max, &text, &size));
    Status status = count_text(words, walk, text, size);
    free(text);
    TRY(status);
    training->bytes += (int64_t)size;
  }
  progress_finish(&progress, count, NULL);
  training->words = (int64_t)words->count;
  return STATUS_OK;
}

static Status read_files(BpeWords *words, const char *const *files, int count, TokenizerTraining *training) {
  BpeSplit *split;
  BpeWalk *walk = NULL;
  Status status = bpe_split_new(&split, BPE_PATTERN_GPT2);
  if (status == STATUS_OK) status = bpe_split_walk(&walk, split);
  if (status == STATUS_OK) status = count_files(words, walk, files, count, training);
  bpe_split_walk_free(walk);
  bpe_split_free(split);
  return status;
}

static Status put_bytes(Tokenizer *tokenizer) {
  for (int id = 0; id < BYTES; id++) {
    unsigned char byte = bpe_alphabet_byte(id);
    tokenizer->byte_ids[byte] = id;
    TRY(bpe_pieces_put(&tokenizer->pieces, id, (const char *)&byte, 1, true));
  }
  return STATUS_OK;
}

/* Puts the joined piece in, if it is new, as *next, which grows then; its id. */
static Status name_pair(Tokenizer *tokenizer, const BpeBest *best, int32_t *next, int32_t *id) {
  BpePieces *pieces = &tokenizer->pieces;
  const BpePair *known = bpe_pairs_find(&tokenizer->pairs, best->left, best->right);
  if (known) { /* merged before; a later merge has made the pair anew */
    *id = known->id;
    return STATUS_OK;
  }
  size_t left, right;
  const char *first = bpe_pieces_text(pieces, best->left, &left), *second = bpe_pieces_text(pieces, best->right, &right);
  char *bytes = malloc(left + right);
  if (!bytes) return status_no_memory(NULL, "a piece");
  memcpy(bytes, first, left);
  memcpy(bytes + left, second, right);
  *id = bpe_pieces_find(pieces, bytes, left + right);
  Status status = *id < 0 ? bpe_pieces_put(pieces, *next, bytes, left + right, true) : STATUS_OK;
  if (status == STATUS_OK && *id < 0) *id = (*next)++;
  if (status == STATUS_OK) status = tokenizer_model_add_joined(tokenizer, bytes, left, left + right);
  free(bytes);
  return status;
}

static Status merge_pairs(Tokenizer *tokenizer, BpeCounts *counts, Progress *progress) {
  int32_t last = tokenizer->pieces.count - 1, next = BYTES;
  while (next < last) {
    BpeBest best;
    bool found;
    int32_t id = -1;
    TRY(bpe_counts_best(counts, &best, &found));
    if (!found || best.count < 2)
      return status_set(STATUS_BAD_VALUE, "the text has too few repeated pairs for %d pieces; it allows %d, or give more text",
                        (int)last + 1, (int)next + 1);
    TRY(name_pair(tokenizer, &best, &next, &id));
    TRY(bpe_counts_merge(counts, &best, id));
    progress_update(progress, next - BYTES, NULL);
  }
  return STATUS_OK;
}

static Status build(const BpeWords *words, int64_t pieces, Progress *progress, Tokenizer **tokenizer) {
  BpeCounts *counts = NULL;
  TRY(tokenizer_model_new(tokenizer, TOKENIZER_MERGES, pieces));
  TRY(put_bytes(*tokenizer));
  Status status = bpe_counts_new(&counts, words, (*tokenizer)->byte_ids);
  if (status == STATUS_OK) status = merge_pairs(*tokenizer, counts, progress);
  bpe_counts_free(counts);
  TRY(status);
  return tokenizer_model_add_special(*tokenizer, pieces - 1, end_of_text, strlen(end_of_text), false);
}

Status tokenizer_train(Tokenizer **tokenizer, const char *const *files, int count, int64_t pieces, TokenizerTraining *training) {
  BpeWords words = {0};
  Progress progress;
  *tokenizer = NULL;
  if (pieces < TOKENIZER_TRAIN_MIN || pieces > TOKENIZER_TRAIN_MAX)
    return status_set(STATUS_BAD_VALUE, "a vocabulary of %lld pieces; %d to %d are accepted", (long long)pieces, TOKENIZER_TRAIN_MIN,
                      TOKENIZER_TRAIN_MAX);
  training->bytes = training->words = 0;
  Status status = read_files(&words, files, count, training);
  if (status == STATUS_OK) {
    progress_start(&progress, "merging", pieces - TOKENIZER_TRAIN_MIN, training->quiet);
    status = tokenizer_finish(tokenizer, build(&words, pieces, &progress, tokenizer), NULL);
    if (status == STATUS_BAD_VALUE)
      status = count == 1 ? status_wrap(status, "%s", files[0]) : status_wrap(status, "%s and %d more", files[0], count - 1);
    progress_finish(&progress, status == STATUS_OK ? pieces - TOKENIZER_TRAIN_MIN : 0, status == STATUS_OK ? NULL : "stopped");
  }
  bpe_words_release(&words);
  return status;
}
