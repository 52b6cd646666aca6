/* The pool, its sequences, and what others can find of them: see kv_pages.h.
 *
 *   nodes    pages 0 ... P - 1, heads P ... P + H - 1: each has a number of users, and is free, used, or unused but findable
 *   unused   a list from the least recently used node to the most
 *   findable full pages under (what stands before them, their ids); what stands before is a page, a head, or nothing
 *
 * A sequence that uses a page uses all before it, and leaves from its last page to its head. Hence in the list every page is older than
 * what stands before it, and letting go of the oldest node never leaves one behind whose beginning is gone. */
#include "nn/kv_pages.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NOBODY = -1, HUGE_PAGE = 2 << 20 };

typedef struct Node {
  int users, older, newer; /* neighbours in the list of unused ones */
  bool findable;
} Node;

typedef struct Page {
  int before, next; /* the node before it, or NOBODY; the next page of its bucket */
  int head;         /* the node of the head at the beginning, or NOBODY */
  uint64_t hash;
} Page;

typedef struct Head {
  KvSpans spans;
  int64_t remote;
} Head;

typedef struct Sequence {
  bool active;
  bool shares;                        /* its next full page can be found by others */
  int head;                           /* node, or NOBODY */
  int before;                         /* the last findable node of its beginning */
  int64_t remote, rows, room, listed; /* listed: pages */
  int64_t marks;                      /* first tokens of which some are marked as lost */
  int64_t promised;                   /* pages that it may still take */
  int *page;                          /* [pages of the longest] */
  const uint8_t **base;               /* likewise: where they begin */
  int32_t *tail;                      /* [page] ids of the page that is being filled */
} Sequence;

struct KvPages {
  KvPagesSetup setup;
  int64_t pages, list_max; /* P; pages of the longest sequence */
  int heads;               /* H */
  size_t row_bytes, page_bytes, token_code_bytes;
  uint8_t *rows;          /* [P][page_bytes] */
  int32_t *ids;           /* [P][page] */
  Node *node;             /* [P + H + 1], the last one is the list's end */
  Page *page;             /* [P] */
  Head *head;             /* [H] */
  uint8_t *codes;         /* [H][blocks * sites][max, token_bytes] */
  uint8_t *lost;          /* [H or, without codes, sequences][blocks][max] */
  bool *any_lost;         /* likewise [blocks] */
  int32_t *head_ids;      /* [H][max] */
  KvCodewords *codewords; /* [blocks * sites] */
  int *free_page, *free_head;
  int64_t free_pages, free_heads;
  int *bucket; /* [buckets] a page or NOBODY */
  uint64_t buckets;
  Sequence *sequence;
  int64_t used, promised;         /* pages with users; pages that sequences may still take */
  int64_t used_codes, code_bytes; /* of heads with users; of all */
};

/* ---- memory */

const KvPagesSetup *kv_pages_setup(const KvPages *pages) { return &pages->setup; }

static bool allocate(KvPages *p) {
  const KvCacheSetup *cache = &p->setup.cache;
  const size_t max = (size_t)cache->max, count = (size_t)p->pages, heads = (size_t)p->heads, sequences = (size_t)p->setup.sequences;
  const size_t list = (size_t)p->list_max, page = (size_t)p->setup.page;
  const size_t bytes = (count * p->page_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  p->rows = aligned_alloc(HUGE_PAGE, bytes);
  p->ids = malloc(count * page * sizeof *p->ids);
  p->node = calloc(count + heads + 1, sizeof *p->node);
  p->page = calloc(count, sizeof *p->page);
  p->free_page = malloc(count * sizeof *p->free_page);
  for (p->buckets = 64; p->buckets < 2 * count;) p->buckets *= 2;
  p->bucket = malloc(p->buckets * sizeof *p->bucket);
  p->sequence = calloc(sequences, sizeof *p->sequence);
  if (!p->rows || !p->ids || !p->node || !p->page || !p->free_page || !p->bucket || !p->sequence) return false;
  /* Every step reads all rows, of each head a piece of 4 or 8 KiB: in small pages each piece is elsewhere for the processor. */
  (void)madvise(p->rows, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < sequences; i++) {
    Sequence *s = &p->sequence[i];
    s->page = malloc(list * sizeof *s->page);
    s->base = malloc(list * sizeof *s->base);
    s->tail = malloc(page * sizeof *s->tail);
    if (!s->page || !s->base || !s->tail) return false;
  }
  const size_t marked = (heads > 0 ? heads : sequences) * (size_t)cache->blocks;
  p->lost = malloc(marked * max);
  p->any_lost = calloc(marked, sizeof *p->any_lost);
  if (heads == 0) return p->lost && p->any_lost;
  p->head = calloc(heads, sizeof *p->head);
  p->free_head = malloc(heads * sizeof *p->free_head);
  p->codes = malloc(heads * max * p->token_code_bytes);
  p->head_ids = malloc(heads * max * sizeof *p->head_ids);
  p->codewords = malloc((size_t)(cache->blocks * cache->sites) * sizeof *p->codewords);
  return p->codewords && p->head && p->free_head && p->codes && p->lost && p->any_lost && p->head_ids;
}

static int64_t longest_pages(const KvPagesSetup *setup) { return (setup->cache.max + setup->page - 1) / setup->page; }

static size_t page_bytes(const KvPagesSetup *setup) {
  const KvCacheSetup *cache = &setup->cache;
  return 2 * (size_t)(cache->blocks * setup->page * cache->width) * narrow_kind_bytes(cache->kind);
}

int64_t kv_pages_bytes(const KvPagesSetup *setup) {
  const KvCacheSetup *cache = &setup->cache;
  const int64_t codes = cache->max * cache->blocks * cache->sites * (int64_t)cache->token_bytes;
  return setup->sequences * (longest_pages(setup) * (int64_t)page_bytes(setup) + codes);
}

Status kv_pages_new(KvPages **out, const KvPagesSetup *setup) {
  const KvCacheSetup *cache = &setup->cache;
  KvPages *p = calloc(1, sizeof *p);
  *out = NULL;
  if (!p) return status_no_memory(NULL, "keys and values");
  p->setup = *setup;
  p->row_bytes = (size_t)cache->width * narrow_kind_bytes(cache->kind);
  p->page_bytes = page_bytes(setup);
  p->token_code_bytes = (size_t)(cache->blocks * cache->sites) * cache->token_bytes;
  p->list_max = longest_pages(setup);
  p->pages = setup->bytes / (int64_t)p->page_bytes;
  p->heads = cache->sites > 0 ? 2 * setup->sequences : 0; /* as many unused ones as used ones */
  if (p->pages < p->list_max) {
    const double needed = (double)p->list_max * (double)p->page_bytes / 1e6, given = (double)setup->bytes / 1e6;
    free(p);
    return status_set(STATUS_BAD_VALUE, "%.1f MB for keys and values: a sequence of %lld tokens takes %.1f MB", given,
                      (long long)cache->max, needed);
  }
  if (!allocate(p)) {
    kv_pages_free(p);
    return status_set(STATUS_NO_MEMORY, "no memory for %.1f MB of keys and values", (double)setup->bytes / 1e6);
  }
  for (int64_t i = p->pages; i-- > 0;) p->free_page[p->free_pages++] = (int)i; /* the lowest first: touched memory is used again */
  for (int64_t i = p->heads; i-- > 0;) p->free_head[p->free_heads++] = (int)(p->pages + i);
  for (uint64_t i = 0; i < p->buckets; i++) p->bucket[i] = NOBODY;
  for (int64_t i = 0; i < cache->blocks * cache->sites; i++) p->codewords[i] = cache->codewords[i];
  p->setup.cache.codewords = p->codewords;
  const int end = (int)(p->pages + p->heads);
  p->node[end].older = p->node[end].newer = end;
  *out = p;
  return STATUS_OK;
}

void kv_pages_free(KvPages *p) {
  if (!p) return;
  for (int i = 0; p->sequence && i < p->setup.sequences; i++) {
    free(p->sequence[i].page);
    free(p->sequence[i].base);
    free(p->sequence[i].tail);
  }
  free(p->sequence);
  free(p->rows);
  free(p->ids);
  free(p->node);
  free(p->page);
  free(p->head);
  free(p->codes);
  free(p->lost);
  free(p->any_lost);
  free(p->head_ids);
  free(p->codewords);
  free(p->free_page);
  free(p->free_head);
  free(p->bucket);
  free(p);
}

/* ---- nodes */

static bool is_head(const KvPages *p, int node) { return node >= p->pages; }
static Head *head_of(const KvPages *p, int node) { return &p->head[node - p->pages]; }
static int32_t *ids_of_head(const KvPages *p, int node) { return p->head_ids + (node - p->pages) * p->setup.cache.max; }
static int64_t bytes_of_head(const KvPages *p, int node) { return head_of(p, node)->remote * (int64_t)p->token_code_bytes; }
/* Whose marks these are: a head's, or a sequence's where there are no heads. */
static int64_t marks_of(const KvPages *p, const Sequence *s) { return s->head != NOBODY ? s->head - p->pages : s - p->sequence; }
static bool has_marks(const KvPages *p, const Sequence *s) { return s->head != NOBODY || p->heads == 0; }
static bool *any_lost_of(const KvPages *p, int64_t marks) { return p->any_lost + marks * p->setup.cache.blocks; }
static uint8_t *lost_of(const KvPages *p, int64_t marks, int block) {
  return p->lost + (marks * p->setup.cache.blocks + block) * p->setup.cache.max;
}

static void take_from_list(KvPages *p, int node) {
  Node *n = &p->node[node];
  p->node[n->older].newer = n->newer;
  p->node[n->newer].older = n->older;
}

static void use(KvPages *p, int node) {
  if (p->node[node].users++ > 0) return;
  if (p->node[node].findable) take_from_list(p, node);
  if (is_head(p, node))
    p->used_codes += bytes_of_head(p, node);
  else
    p->used++;
}

static void make_free(KvPages *p, int node) {
  p->node[node].findable = false;
  if (is_head(p, node)) {
    p->code_bytes -= bytes_of_head(p, node);
    p->free_head[p->free_heads++] = node;
  } else {
    p->free_page[p->free_pages++] = node;
  }
}

static void leave_node(KvPages *p, int node) {
  const int end = (int)(p->pages + p->heads);
  if (--p->node[node].users > 0) return;
  if (is_head(p, node))
    p->used_codes -= bytes_of_head(p, node);
  else
    p->used--;
  if (!p->node[node].findable) {
    make_free(p, node);
    return;
  }
  p->node[node].newer = end;
  p->node[node].older = p->node[end].older;
  p->node[p->node[end].older].newer = node;
  p->node[end].older = node;
}

/* An unused node is let go. */
static void evict(KvPages *p, int node) {
  take_from_list(p, node);
  if (!is_head(p, node)) {
    int *at = &p->bucket[p->page[node].hash & (p->buckets - 1)];
    while (*at != node) at = &p->page[*at].next;
    *at = p->page[node].next;
  }
  make_free(p, node);
}

static int64_t held_bytes(const KvPages *p) { return (p->pages - p->free_pages) * (int64_t)p->page_bytes + p->code_bytes; }

/* A promise has made sure that enough of what is held is unused. */
static void make_room(KvPages *p, int64_t bytes) {
  const int end = (int)(p->pages + p->heads);
  while (held_bytes(p) + bytes > p->setup.bytes && p->node[end].newer != end) evict(p, p->node[end].newer);
}

static int new_page(KvPages *p) {
  make_room(p, (int64_t)p->page_bytes);
  const int node = p->free_page[--p->free_pages];
  use(p, node);
  return node;
}

/* The place of the least recently used one goes where there is none: with all that stands behind it. */
static int new_head(KvPages *p, const KvSpans *spans, const int32_t *ids) {
  const int end = (int)(p->pages + p->heads);
  int oldest = p->node[end].newer;
  while (p->free_heads == 0 && !is_head(p, oldest)) oldest = p->node[oldest].newer;
  for (int node = p->node[end].newer, next; p->free_heads == 0 && node != oldest; node = next) {
    next = p->node[node].newer;
    if (p->page[node].head == oldest) evict(p, node);
  }
  if (p->free_heads == 0) evict(p, oldest);
  const int64_t remote = spans->begin[spans->count - 1];
  make_room(p, remote * (int64_t)p->token_code_bytes);
  const int node = p->free_head[--p->free_heads];
  *head_of(p, node) = (Head){*spans, remote};
  memcpy(ids_of_head(p, node), ids, (size_t)remote * sizeof *ids);
  memset(any_lost_of(p, node - p->pages), 0, (size_t)p->setup.cache.blocks * sizeof *p->any_lost);
  p->code_bytes += bytes_of_head(p, node);
  use(p, node);
  return node;
}

/* ---- finding */

static uint64_t hash_of(int before, const int32_t *ids, int64_t count) {
  uint64_t hash = (uint64_t)(uint32_t)before;
  for (int64_t i = 0; i < count; i++) {
    hash = (hash ^ (uint32_t)ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

static int find_page(const KvPages *p, int before, const int32_t *ids) {
  const int64_t count = p->setup.page;
  const uint64_t hash = hash_of(before, ids, count);
  int at = p->bucket[hash & (p->buckets - 1)];
  while (at != NOBODY &&
         (p->page[at].hash != hash || p->page[at].before != before || memcmp(p->ids + at * count, ids, (size_t)count * sizeof *ids) != 0))
    at = p->page[at].next;
  return at;
}

static bool same_spans(const KvSpans *a, const KvSpans *b) {
  return a->count == b->count && memcmp(a->begin, b->begin, (size_t)a->count * sizeof *a->begin) == 0;
}

/* The tokens that full pages behind `before` have of ids [count], of which the last one is computed in any case. */
static int64_t follow(const KvPages *p, int before, const int32_t *ids, int64_t at, int64_t count) {
  int page;
  while (at + p->setup.page < count && (page = find_page(p, before, ids + at)) != NOBODY) before = page, at += p->setup.page;
  return at;
}

/* The longest prefix that can be shared, and its head; spans NULL: whatever the division. */
static int64_t find_prefix(const KvPages *p, const int32_t *ids, int64_t count, const KvSpans *spans, int *head) {
  int64_t best = 0;
  *head = NOBODY;
  if (!spans || spans->count == 0) best = follow(p, NOBODY, ids, 0, count);
  for (int node = (int)p->pages; node < p->pages + p->heads; node++) {
    const Head *h = head_of(p, node);
    if (!p->node[node].findable || h->remote >= count || h->remote == 0 || (spans && !same_spans(spans, &h->spans))) continue;
    if (memcmp(ids_of_head(p, node), ids, (size_t)h->remote * sizeof *ids) != 0) continue;
    const int64_t found = follow(p, node, ids, h->remote, count);
    if (found > best) best = found, *head = node;
  }
  return best;
}

/* ---- joining and leaving */

static Status check_text(const KvPages *p, int64_t count, const KvSpans *spans, int64_t room) {
  int64_t before = 0;
  bool sound =
      count >= 1 && room >= count && room <= p->setup.cache.max && (!spans || (spans->count >= 0 && spans->count <= KV_PAGES_SPANS));
  for (int i = 0; sound && spans && i < spans->count; i++) {
    sound = spans->begin[i] > before && spans->begin[i] < count && (p->heads > 0 || spans->in_full);
    before = spans->begin[i];
  }
  if (sound) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "a text of %lld tokens, %lld at most, does not fit into pages for %lld%s", (long long)count,
                    (long long)room, (long long)p->setup.cache.max, p->heads ? "" : " in full");
}

/* `more` pages, and bytes of codes, beside what is used and promised. */
static bool fits(const KvPages *p, int64_t more, int64_t codes) {
  const int64_t count = p->used + p->promised + more;
  return count * (int64_t)p->page_bytes + p->used_codes + codes <= p->setup.bytes;
}

static int vacant(const KvPages *p) {
  int number = 0;
  while (number < p->setup.sequences && p->sequence[number].active) number++;
  return number < p->setup.sequences ? number : NOBODY;
}

static Status busy(void) { return status_set(STATUS_BUSY, "no room for the keys and values of another sequence until one ends"); }

static void append_page(KvPages *p, Sequence *s, int node) {
  s->base[s->listed] = p->rows + (size_t)node * p->page_bytes;
  s->page[s->listed++] = node;
}

static int64_t pages_for(const KvPages *p, int64_t rows) { return (rows + p->setup.page - 1) / p->setup.page; }

/* An empty one behind a head, which is used already. */
static Sequence *begin_sequence(KvPages *p, int number, int head, int64_t remote, int64_t room) {
  Sequence *s = &p->sequence[number];
  *s = (Sequence){.active = true,
                  .shares = true,
                  .head = head,
                  .before = head,
                  .remote = remote,
                  .room = room,
                  .page = s->page,
                  .base = s->base,
                  .tail = s->tail};
  if (p->heads == 0) memset(any_lost_of(p, number), 0, (size_t)p->setup.cache.blocks * sizeof *p->any_lost);
  return s;
}

static void promise(KvPages *p, Sequence *s) {
  s->promised = pages_for(p, s->room - s->remote) - s->listed;
  p->promised += s->promised;
}

Status kv_pages_join(KvPages *p, const int32_t *ids, int64_t count, const KvSpans *spans, int64_t room, int *sequence, int64_t *shared) {
  TRY(check_text(p, count, spans, room));
  const int number = vacant(p);
  int head;
  const bool alone = spans && spans->in_full;
  head = NOBODY;
  *shared = alone ? 0 : find_prefix(p, ids, count, spans, &head);
  const bool found = head != NOBODY, makes_head = !found && !alone && spans && spans->count > 0;
  const int64_t remote = found ? head_of(p, head)->remote : makes_head ? spans->begin[spans->count - 1] : 0;
  int64_t more = pages_for(p, room - remote), codes = makes_head ? remote * (int64_t)p->token_code_bytes : 0;
  if (found && p->node[head].users == 0) codes = bytes_of_head(p, head);
  int before = head;
  for (int64_t at = remote; at < *shared; at += p->setup.page) {
    before = find_page(p, before, ids + at);
    more -= p->node[before].users > 0; /* it counts already */
  }
  if (number == NOBODY || !fits(p, more, codes)) return busy();
  if (found) use(p, head);
  Sequence *s = begin_sequence(p, number, head, remote, room);
  s->shares = !alone;
  for (int64_t at = remote; at < *shared; at += p->setup.page) {
    s->before = find_page(p, s->before, ids + at);
    use(p, s->before);
    append_page(p, s, s->before);
    s->rows += p->setup.page;
  }
  promise(p, s);
  if (makes_head) s->head = s->before = new_head(p, spans, ids);
  *sequence = number;
  return STATUS_OK;
}

void kv_pages_leave(KvPages *p, int sequence) {
  Sequence *s = &p->sequence[sequence];
  for (int64_t i = s->listed; i-- > 0;) leave_node(p, s->page[i]);
  if (s->head != NOBODY) leave_node(p, s->head);
  p->promised -= s->promised;
  s->active = false;
}

/* ---- filling */

static uint8_t *codes_of(const KvPages *p, int head, int block, int site) {
  const KvCacheSetup *cache = &p->setup.cache;
  const int64_t place = ((head - p->pages) * cache->blocks + block) * cache->sites + site;
  return p->codes + (size_t)(place * cache->max) * cache->token_bytes;
}

uint8_t *kv_pages_codes(KvPages *p, int sequence, int block, int site, int64_t position) {
  return codes_of(p, p->sequence[sequence].head, block, site) + (size_t)position * p->setup.cache.token_bytes;
}

/* Of the sequence's first tokens those that were lost: lost [count], 1: lost. With codes count is `remote`, and the head was not found. */
static void mark_lost(KvPages *p, int sequence, int block, const uint8_t *lost, int64_t count) {
  Sequence *s = &p->sequence[sequence];
  memcpy(lost_of(p, marks_of(p, s), block), lost, (size_t)count);
  any_lost_of(p, marks_of(p, s))[block] = true;
  s->marks = count;
  s->shares = false; /* what is computed without those tokens is of no use to others */
}

/* Where the keys (side 0) or values (1) of a block's row and kv head are. */
static uint8_t *place_of(const KvPages *p, const Sequence *s, int block, int side, int64_t row, int64_t head) {
  const int64_t page = p->setup.page, heads = p->setup.heads;
  const int64_t place = ((2 * block + side) * heads + head) * page + row % page; /* in head widths */
  return p->rows + (size_t)s->page[row / page] * p->page_bytes + (size_t)place * (p->row_bytes / (size_t)heads);
}

Status kv_pages_extend(KvPages *p, int sequence, int64_t count) {
  Sequence *s = &p->sequence[sequence];
  if (count > kv_pages_room(p, sequence))
    return status_set(STATUS_BAD_VALUE, "%lld tokens after %lld: the sequence has room for %lld in all", (long long)count,
                      (long long)(s->remote + s->rows), (long long)s->room);
  while (s->listed < pages_for(p, s->rows + count)) {
    s->promised--, p->promised--;
    append_page(p, s, new_page(p));
  }
  return STATUS_OK;
}

Status kv_pages_store(KvPages *p, int sequence, int block, int64_t count, const real *k, const real *v) {
  const Sequence *s = &p->sequence[sequence];
  const int64_t heads = p->setup.heads, width = p->setup.cache.width / heads;
  for (int64_t i = 0; i < count * heads; i++) {
    TRY(kv_cache_write(p->setup.cache.kind, width, k + i * width, place_of(p, s, block, 0, s->rows + i / heads, i % heads)));
    TRY(kv_cache_write(p->setup.cache.kind, width, v + i * width, place_of(p, s, block, 1, s->rows + i / heads, i % heads)));
  }
  return STATUS_OK;
}

Status kv_pages_take(KvPages *p, int sequence, const KvCache *cache, const int32_t *ids) {
  const KvCacheSetup *setup = &p->setup.cache;
  Sequence *s = &p->sequence[sequence];
  const int64_t there = s->rows;
  const bool begins = there == 0 && (s->head == NOBODY || !p->node[s->head].findable); /* a found head may have no page behind it */
  if (cache->remote != s->remote || there >= cache->rows)
    return status_set(STATUS_BAD_VALUE, "a cache with %lld tokens as codes is not for a sequence with %lld, and %lld tokens in full",
                      (long long)cache->remote, (long long)s->remote, (long long)s->rows);
  TRY(kv_pages_extend(p, sequence, cache->rows - there));
  for (int block = 0; block < setup->blocks; block++) {
    const KvCacheBlock held = kv_cache_block(cache, block);
    for (int site = 0; s->remote > 0 && begins && site < setup->sites; site++)
      memcpy(codes_of(p, s->head, block, site), kv_cache_codes((KvCache *)(uintptr_t)cache, block, site, 0),
             (size_t)s->remote * setup->token_bytes);
    if (held.lost && begins) mark_lost(p, sequence, block, held.lost, held.marks);
    if (held.lost) s->shares = false; /* also where the marks are those of others, who lost nothing */
    for (int64_t i = there * p->setup.heads; i < cache->rows * p->setup.heads; i++) {
      const size_t bytes = p->row_bytes / (size_t)p->setup.heads, from = (size_t)i * bytes;
      memcpy(place_of(p, s, block, 0, i / p->setup.heads, i % p->setup.heads), (const uint8_t *)held.keys + from, bytes);
      memcpy(place_of(p, s, block, 1, i / p->setup.heads, i % p->setup.heads), (const uint8_t *)held.values + from, bytes);
    }
  }
  kv_pages_keep(p, sequence, ids + s->remote + there, cache->rows - there);
  return STATUS_OK;
}

/* The head of a sequence that has its first rows, and has lost nothing, can be found from now on, unless it is there already. */
static void show_head(KvPages *p, Sequence *s) {
  const Head *own = head_of(p, s->head);
  for (int node = (int)p->pages; s->shares && node < p->pages + p->heads; node++)
    s->shares = !(p->node[node].findable && same_spans(&head_of(p, node)->spans, &own->spans) &&
                  memcmp(ids_of_head(p, node), ids_of_head(p, s->head), (size_t)own->remote * sizeof(int32_t)) == 0);
  p->node[s->head].findable = s->shares;
}

static void show_page(KvPages *p, Sequence *s, int node) {
  const int64_t count = p->setup.page;
  s->shares = s->shares && find_page(p, s->before, s->tail) == NOBODY;
  if (!s->shares) return;
  const uint64_t hash = hash_of(s->before, s->tail, count);
  int *bucket = &p->bucket[hash & (p->buckets - 1)];
  p->page[node] = (Page){.before = s->before, .next = *bucket, .head = s->head, .hash = hash};
  memcpy(p->ids + node * count, s->tail, (size_t)count * sizeof *s->tail);
  p->node[node].findable = true;
  *bucket = s->before = node;
}

void kv_pages_keep(KvPages *p, int sequence, const int32_t *ids, int64_t count) {
  Sequence *s = &p->sequence[sequence];
  if (s->head != NOBODY && s->shares && count > 0 && !p->node[s->head].findable) show_head(p, s);
  for (int64_t i = 0; i < count; i++) {
    s->tail[s->rows++ % p->setup.page] = ids[i];
    if (s->rows % p->setup.page == 0) show_page(p, s, s->page[s->rows / p->setup.page - 1]);
  }
}

/* Its pages stay listed, and are written over. */
void kv_pages_truncate(KvPages *p, int sequence, int64_t tokens) {
  Sequence *s = &p->sequence[sequence];
  if (s->rows > tokens - s->remote) s->rows = tokens - s->remote;
}

/* ---- reading */

KvPagesBlock kv_pages_block(const KvPages *p, int sequence, int block) {
  const Sequence *s = &p->sequence[sequence];
  const size_t side = (size_t)p->setup.page * p->row_bytes;
  const bool lost = has_marks(p, s) && any_lost_of(p, marks_of(p, s))[block];
  return (KvPagesBlock){.page = s->base,
                        .keys = 2 * (size_t)block * side,
                        .values = (2 * (size_t)block + 1) * side,
                        .remote = s->remote,
                        .rows = s->rows,
                        .lost = lost ? lost_of(p, marks_of(p, s), block) : NULL,
                        .marks = s->remote > 0 ? s->remote : s->marks};
}

Status kv_pages_unpack(const KvPages *p, int sequence, int block, int site, int32_t *codes) {
  const KvCacheSetup *cache = &p->setup.cache;
  const Sequence *s = &p->sequence[sequence];
  return cache->unpack(codes_of(p, s->head, block, site), s->remote, cache->groups, cache->entries, codes);
}

int64_t kv_pages_tokens(const KvPages *p, int sequence) { return p->sequence[sequence].remote + p->sequence[sequence].rows; }
int64_t kv_pages_room(const KvPages *p, int sequence) { return p->sequence[sequence].room - kv_pages_tokens(p, sequence); }
