/* Pages of keys and values against a plain model: whatever joins, leaves, rejects drafts and is let go, each sequence reads the rows
 * and codes that belong to its own text and division; memory and promises hold; what can be shared is. */
#include "base/rng.h"
#include "nn/kv_pages.c" /* which pages are used, shared, and kept for others */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum {
  BLOCKS = 2,
  WIDTH = 6,
  HEADS = 2,
  PAGE = 4,
  MAX = 44,
  SEQUENCES = 5,
  PAGES = 30,
  SITES = 2,
  GROUPS = 2,
  CODES = 7 /* bytes of a token */
};

/* Each byte is a code. */
static Status unpack(const uint8_t *bytes, int64_t tokens, int64_t groups, int64_t entries, int32_t *codes) {
  (void)entries;
  for (int64_t i = 0; i < tokens; i++)
    for (int64_t g = 0; g < groups; g++) codes[i * groups + g] = bytes[i * CODES + g];
  return STATUS_OK;
}

static KvPagesSetup setup_of(bool codes, NarrowKind kind, int64_t pages) {
  static const KvCodewords words[BLOCKS * SITES];
  KvPagesSetup setup = {
      .cache = {.blocks = BLOCKS, .width = WIDTH, .max = MAX, .kind = kind}, .page = PAGE, .heads = HEADS, .sequences = SEQUENCES};
  if (codes) {
    setup.cache.sites = SITES, setup.cache.groups = GROUPS, setup.cache.entries = 256;
    setup.cache.token_bytes = CODES, setup.cache.codewords = words, setup.cache.unpack = unpack;
  }
  setup.bytes = pages * 2 * BLOCKS * PAGE * WIDTH * (int64_t)(kind == NARROW_NONE ? sizeof(real) : 2);
  return setup;
}

/* ---- the plain model: what a token's numbers are follows from the text up to it and the spans that have begun ---- */

typedef struct Text {
  bool active;
  int number; /* of the sequence */
  int32_t ids[MAX];
  int64_t count, room;
  KvSpans spans;
  bool lost;
} Text;

static int64_t remote_of(const Text *text) { return text->spans.count ? text->spans.begin[text->spans.count - 1] : 0; }

/* 0 to 255, which all kinds of numbers hold exactly. */
static unsigned value_of(const Text *text, int64_t token, int block, int side, int column) {
  uint64_t hash = (uint64_t)(block * 64 + side * 16 + column + 1);
  for (int64_t i = 0; i <= token; i++) {
    bool begins = false;
    for (int s = 0; s < text->spans.count; s++) begins |= text->spans.begin[s] == i;
    hash = (hash + (uint64_t)text->ids[i] * 2 + begins + 1) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 31;
  }
  return hash & 255;
}

static void fill_codes(KvPages *pages, const Text *text) {
  for (int block = 0; block < BLOCKS; block++)
    for (int site = 0; site < SITES; site++)
      for (int64_t token = 0; token < remote_of(text); token++)
        for (int g = 0; g < GROUPS; g++)
          kv_pages_codes(pages, text->number, block, site, token)[g] = (uint8_t)value_of(text, token, block, 4 + site, g);
}

/* Rows of tokens [first, count) as a step stores them, then keeps `kept`. */
static void store(KvPages *pages, const Text *text, int64_t first, int64_t count, int64_t kept) {
  real k[MAX * WIDTH], v[MAX * WIDTH];
  assert_int_equal(kv_pages_tokens(pages, text->number), first);
  assert_int_equal(kv_pages_extend(pages, text->number, count), STATUS_OK);
  for (int block = 0; block < BLOCKS; block++) {
    for (int64_t i = 0; i < count * WIDTH; i++) {
      k[i] = (real)value_of(text, first + i / WIDTH, block, 0, (int)(i % WIDTH));
      v[i] = (real)value_of(text, first + i / WIDTH, block, 1, (int)(i % WIDTH));
    }
    assert_int_equal(kv_pages_store(pages, text->number, block, count, k, v), STATUS_OK);
  }
  kv_pages_keep(pages, text->number, text->ids + first, kept);
}

static double number_at(const uint8_t *from, NarrowKind kind, int column) {
  if (kind == NARROW_NONE) return (double)((const real *)(const void *)from)[column];
  return (double)narrow_to_float(kind, ((const uint16_t *)(const void *)from)[column]);
}

static void check(const KvPages *pages, const Text *text) {
  const NarrowKind kind = kv_pages_setup(pages)->cache.kind;
  const int64_t head_width = WIDTH / HEADS;
  const int64_t remote = remote_of(text);
  int32_t codes[MAX * GROUPS];
  assert_int_equal(kv_pages_tokens(pages, text->number), text->count);
  assert_int_equal(kv_pages_room(pages, text->number), text->room - text->count);
  for (int block = 0; block < BLOCKS; block++) {
    const KvPagesBlock held = kv_pages_block(pages, text->number, block);
    assert_int_equal(held.remote, remote);
    assert_int_equal(held.rows, text->count - remote);
    assert_true((held.lost != NULL) == (text->lost && block == 1));
    for (int64_t r = 0; r < held.rows * WIDTH; r++) {
      const int column = (int)(r % WIDTH), at = (int)((column / head_width * PAGE + r / WIDTH % PAGE) * head_width + column % head_width);
      const uint8_t *page = held.page[r / WIDTH / PAGE];
      assert_int_equal((int)number_at(page + held.keys, kind, at), value_of(text, remote + r / WIDTH, block, 0, column));
      assert_int_equal((int)number_at(page + held.values, kind, at), value_of(text, remote + r / WIDTH, block, 1, column));
    }
    for (int site = 0; remote > 0 && site < SITES; site++) {
      assert_int_equal(kv_pages_unpack(pages, text->number, block, site, codes), STATUS_OK);
      for (int64_t i = 0; i < remote * GROUPS; i++)
        assert_int_equal(codes[i], value_of(text, i / GROUPS, block, 4 + site, (int)(i % GROUPS)));
    }
  }
}

/* ---- what the pages hold ---- */

/* How many tokens kv_pages_join would share, and their division. */
static int64_t find(const KvPages *p, const int32_t *ids, int64_t count, KvSpans *spans) {
  int head;
  const int64_t shared = find_prefix(p, ids, count, NULL, &head);
  *spans = head == NOBODY ? (KvSpans){.count = 0} : head_of(p, head)->spans;
  return shared;
}

static int64_t unused(const KvPages *p) { return p->pages - p->free_pages - p->used; }

static int64_t shared_pages(const KvPages *p) {
  int64_t shared = 0;
  for (int64_t i = 0; i < p->pages; i++) shared += p->node[i].users > 1;
  return shared;
}

/* ---- random lives ---- */

/* Texts of a few beginnings, so that they meet. */
static void draw_text(Rng *rng, Text *text, bool codes) {
  memset(text, 0, sizeof *text);
  text->count = 1 + (int64_t)rng_below(rng, MAX - 4);
  text->room = text->count + (int64_t)rng_below(rng, (uint64_t)(MAX - text->count + 1));
  const int32_t kind = (int32_t)rng_below(rng, 3);
  for (int64_t i = 0; i < text->count; i++) text->ids[i] = kind + (int32_t)(i / 7);
  if (rng_below(rng, 3) == 0) text->ids[rng_below(rng, (uint64_t)text->count)] = 9;
  if (!codes || text->count < 12 || rng_below(rng, 3) == 0) return;
  text->spans.count = 1 + (int)rng_below(rng, 2);
  for (int s = 0; s < text->spans.count; s++) text->spans.begin[s] = 3 + 6 * s + 2 * (int64_t)rng_below(rng, 2);
}

typedef struct World {
  KvPages *pages;
  Text text[SEQUENCES];
  bool codes;
  uint64_t shared, busy;
  int64_t evicted;
} World;

static Text *vacancy(World *w) {
  for (int i = 0; i < SEQUENCES; i++)
    if (!w->text[i].active) return &w->text[i];
  return NULL;
}

static void join(World *w, Rng *rng) {
  Text *text = vacancy(w), drawn;
  KvSpans any;
  int64_t shared;
  draw_text(rng, &drawn, w->codes);
  const bool free_choice = rng_below(rng, 4) == 0;
  const int64_t found = find(w->pages, drawn.ids, drawn.count, &any);
  const Status status =
      kv_pages_join(w->pages, drawn.ids, drawn.count, free_choice ? NULL : &drawn.spans, drawn.room, &drawn.number, &shared);
  w->busy += status == STATUS_BUSY;
  if (status == STATUS_BUSY) return;
  assert_int_equal(status, STATUS_OK);
  assert_non_null(text);
  assert_true(shared < drawn.count && shared <= found);
  if (free_choice) assert_int_equal(shared, found);
  if (free_choice) drawn.spans = shared > 0 ? any : (KvSpans){.count = 0};
  const int64_t remote = remote_of(&drawn), next = shared > remote ? shared : remote;
  if (shared == 0 && remote > 0) {
    fill_codes(w->pages, &drawn);
    uint8_t marks[MAX] = {1};
    drawn.lost = rng_below(rng, 8) == 0;
    if (drawn.lost) mark_lost(w->pages, drawn.number, 1, marks, remote);
  }
  drawn.active = true;
  *text = drawn;
  store(w->pages, text, next, text->count - next, text->count - next);
  w->shared += (uint64_t)shared;
}

/* A step with drafts, of which some are right. */
static void step(World *w, Rng *rng, Text *text) {
  int64_t count = 1 + (int64_t)rng_below(rng, 6), kept;
  if (count > text->room - text->count) count = text->room - text->count;
  if (count == 0) return;
  kept = 1 + (int64_t)rng_below(rng, (uint64_t)count);
  for (int64_t i = 0; i < count; i++) text->ids[text->count + i] = (int32_t)rng_below(rng, 2);
  const int64_t before = unused(w->pages);
  store(w->pages, text, text->count, count, kept);
  w->evicted += before - unused(w->pages); /* a step finds none of them */
  text->count += kept;
}

static void live(bool codes, NarrowKind kind, uint64_t seed) {
  World w = {.codes = codes};
  Rng rng;
  const KvPagesSetup setup = setup_of(codes, kind, PAGES);
  rng_init(&rng, seed, 0);
  assert_int_equal(kv_pages_new(&w.pages, &setup), STATUS_OK);
  for (int turn = 0; turn < 6000; turn++) {
    Text *text = &w.text[rng_below(&rng, SEQUENCES)];
    const uint64_t what = rng_below(&rng, 10);
    if (!text->active || what == 0) {
      join(&w, &rng);
    } else if (what < 3) {
      kv_pages_leave(w.pages, text->number);
      text->active = false;
    } else {
      step(&w, &rng, text);
    }
    const KvPages *p = w.pages;
    int surplus = 0; /* of sequences */
    for (int i = 0; i < SEQUENCES; i++) surplus += p->sequence[i].active - w.text[i].active;
    assert_int_equal(surplus, 0);
    for (int i = 0; i < SEQUENCES; i++)
      if (w.text[i].active && (turn % 8 == 0 || &w.text[i] == text)) check(w.pages, &w.text[i]);
    assert_true(held_bytes(p) <= setup.bytes && p->used * (int64_t)p->page_bytes + p->used_codes <= setup.bytes);
    assert_true(unused(p) >= 0 && p->used + unused(p) <= p->pages && shared_pages(p) <= p->used);
  }
  assert_true(w.shared > 1000 && w.busy > 100 && w.evicted > 100); /* all of it has happened */
  for (int i = 0; i < SEQUENCES; i++)
    if (w.text[i].active) kv_pages_leave(w.pages, w.text[i].number);
  assert_true(w.pages->used == 0 && w.pages->used_codes == 0);
  kv_pages_free(w.pages);
}

static void sequences_read_their_own_text(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    live(false, NARROW_NONE, seed);
    live(true, NARROW_NONE, seed);
    live(true, NARROW_BF16, seed);
  }
}

/* ---- what is shared ---- */

static Text numbered(int64_t count, int64_t room) {
  Text text = {.count = count, .room = room};
  for (int64_t i = 0; i < count; i++) text.ids[i] = (int32_t)(i * i % 11);
  return text;
}

static int64_t open_text(KvPages *pages, Text *text, const KvSpans *spans) {
  int64_t shared;
  assert_int_equal(kv_pages_join(pages, text->ids, text->count, spans, text->room, &text->number, &shared), STATUS_OK);
  const int64_t remote = remote_of(text), next = shared > remote ? shared : remote;
  if (shared == 0 && remote > 0) fill_codes(pages, text);
  store(pages, text, next, text->count - next, text->count - next);
  return shared;
}

static void whole_pages_of_a_beginning_are_shared(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(true, NARROW_NONE, PAGES);
  const KvSpans whole = {.count = 0};
  KvPages *pages;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text first = numbered(13, 20), same = first, longer = numbered(20, 20), other = first;
  assert_int_equal(open_text(pages, &first, &whole), 0);
  assert_int_equal(open_text(pages, &same, &whole), 12);
  assert_int_equal(shared_pages(pages), 3);
  assert_int_equal(open_text(pages, &longer, &whole), 12);
  other.ids[5] = 99;
  assert_int_equal(open_text(pages, &other, &whole), 4);
  kv_pages_leave(pages, first.number);
  kv_pages_leave(pages, same.number);
  kv_pages_leave(pages, longer.number);
  kv_pages_leave(pages, other.number);
  assert_int_equal(pages->used, 0);
  Text next_turn = numbered(30, 30); /* after all have left */
  assert_int_equal(open_text(pages, &next_turn, &whole), 20);
  check(pages, &next_turn);
  Text short_text = numbered(12, 12); /* its last token is computed */
  assert_int_equal(open_text(pages, &short_text, &whole), 8);
  kv_pages_free(pages);
}

static void codes_are_shared_under_the_same_division(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(true, NARROW_NONE, PAGES);
  const KvSpans whole = {.count = 0};
  KvPages *pages;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text first = numbered(17, 20), same = first, moved = first, undivided = first, longer = numbered(24, 24);
  first.spans = same.spans = (KvSpans){.count = 2, .begin = {5, 10}};
  moved.spans = (KvSpans){.count = 2, .begin = {4, 10}};
  assert_int_equal(open_text(pages, &first, &first.spans), 0);
  assert_int_equal(open_text(pages, &same, &same.spans), 14); /* 10 as codes and a page */
  assert_int_equal(open_text(pages, &moved, &moved.spans), 0);
  assert_int_equal(open_text(pages, &undivided, &whole), 0);
  kv_pages_leave(pages, undivided.number);
  kv_pages_leave(pages, moved.number);
  longer.spans = first.spans;
  longer.ids[17] = 77;
  KvSpans found;
  undivided.ids[16] = longer.ids[16];
  assert_int_equal(find(pages, longer.ids, longer.count, &found), 16); /* undivided, in four pages */
  assert_int_equal(found.count, 0);
  assert_int_equal(open_text(pages, &longer, &longer.spans), 14);
  check(pages, &longer);
  kv_pages_free(pages);
}

static void lost_tokens_are_not_shared(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(true, NARROW_NONE, PAGES);
  const uint8_t marks[MAX] = {0, 1};
  KvPages *pages;
  int64_t shared;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text first = numbered(17, 20), second = first;
  first.spans = second.spans = (KvSpans){.count = 1, .begin = {6}};
  assert_int_equal(kv_pages_join(pages, first.ids, first.count, &first.spans, first.room, &first.number, &shared), STATUS_OK);
  fill_codes(pages, &first);
  mark_lost(pages, first.number, 1, marks, 6);
  first.lost = true;
  store(pages, &first, 6, 11, 11);
  check(pages, &first);
  assert_int_equal(open_text(pages, &second, &second.spans), 0);
  check(pages, &second);
  kv_pages_free(pages);
}

/* As above where the others' rows are in full: the marks alone keep others from them, also behind pages that are shared. */
static void nor_are_rows_behind_lost_ones(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(false, NARROW_NONE, PAGES);
  const KvSpans whole = {.count = 0};
  const uint8_t marks[6] = {0, 0, 1, 0, 1, 0};
  KvPages *pages;
  KvSpans spans;
  int64_t shared;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text first = numbered(17, 20), begins = numbered(8, 8), second = first;
  assert_int_equal(open_text(pages, &begins, &whole), 0);
  assert_int_equal(kv_pages_join(pages, first.ids, first.count, &whole, first.room, &first.number, &shared), STATUS_OK);
  assert_int_equal(shared, 8);
  mark_lost(pages, first.number, 1, marks, 6);
  first.lost = true;
  store(pages, &first, 8, 9, 9);
  check(pages, &first);
  assert_int_equal(find(pages, second.ids, second.count, &spans), 8);
  assert_int_equal(open_text(pages, &second, &whole), 8);
  check(pages, &second);
  kv_pages_free(pages);
}

/* Two that compute the same text at the same time: what is found later was computed by one of them from the first token on. */
static void equal_pages_are_not_joined(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(false, NARROW_NONE, PAGES);
  const KvSpans whole = {.count = 0};
  KvPages *pages;
  KvSpans spans;
  int64_t shared;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text first = numbered(8, MAX), second = numbered(16, MAX);
  assert_int_equal(kv_pages_join(pages, first.ids, 8, &whole, MAX, &first.number, &shared), STATUS_OK);
  assert_int_equal(kv_pages_join(pages, second.ids, 16, &whole, MAX, &second.number, &shared), STATUS_OK);
  store(pages, &first, 0, 8, 8);
  store(pages, &second, 0, 16, 16);
  assert_int_equal(find(pages, second.ids, 16, &spans), 8);
  kv_pages_leave(pages, second.number);
  assert_int_equal(pages->used + unused(pages), 2); /* its pages are free */
  kv_pages_free(pages);
}

/* What was used last is there longest. */
static void the_least_recently_used_goes_first(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(false, NARROW_NONE, 11); /* those of the longest text, and no more */
  KvPages *pages;
  KvSpans spans;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text a = numbered(17, 17), b = a, c = a, again;
  b.ids[0] = 50, c.ids[0] = 51;
  const KvSpans whole = {.count = 0};
  open_text(pages, &a, &whole), kv_pages_leave(pages, a.number);
  open_text(pages, &b, &whole), kv_pages_leave(pages, b.number);
  again = a;
  assert_int_equal(open_text(pages, &again, &whole), 16);
  kv_pages_leave(pages, again.number);
  open_text(pages, &c, &whole), kv_pages_leave(pages, c.number); /* 15 pages are wanted, 11 are there */
  assert_int_equal(find(pages, a.ids, a.count, &spans), 16);
  assert_true(find(pages, b.ids, b.count, &spans) < 16);
  assert_int_equal(find(pages, c.ids, c.count, &spans), 16);
  kv_pages_free(pages);
}

/* There are twice as many heads as sequences: the next one takes the place of the oldest, whose pages nobody could find again, and of no
 * other, however much memory there is. */
static void a_head_goes_with_its_pages(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(true, NARROW_NONE, 3 * PAGES);
  KvPages *pages;
  Text text[2 * SEQUENCES + 1];
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  for (int i = 0; i <= 2 * SEQUENCES; i++) {
    text[i] = numbered(17, 17);
    text[i].ids[0] = 100 + i;
    text[i].spans = (KvSpans){.count = 1, .begin = {5}};
    assert_int_equal(open_text(pages, &text[i], &text[i].spans), 0);
    kv_pages_leave(pages, text[i].number);
  }
  for (int i = 0; i <= 2 * SEQUENCES; i++) {
    KvSpans spans;
    assert_int_equal(find(pages, text[i].ids, text[i].count, &spans), i == 0 ? 0 : 13); /* 5 as codes and two pages */
  }
  assert_int_equal(pages->used + unused(pages), 2 * SEQUENCES * 3);
  kv_pages_free(pages);
}

/* What a prompt leaves in a cache; with `lost` the third token's codes have not arrived. */
static void fill_cache(KvCache *cache, const Text *text, bool lost) {
  static const uint8_t marks[MAX] = {0, 0, 1};
  const int64_t remote = remote_of(text), rows = text->count - remote;
  assert_int_equal(kv_cache_start(cache, remote), STATUS_OK);
  for (int block = 0; block < BLOCKS; block++) {
    real k[MAX * WIDTH], v[MAX * WIDTH];
    for (int64_t i = 0; i < rows * WIDTH; i++) {
      k[i] = (real)value_of(text, remote + i / WIDTH, block, 0, (int)(i % WIDTH));
      v[i] = (real)value_of(text, remote + i / WIDTH, block, 1, (int)(i % WIDTH));
    }
    assert_int_equal(kv_cache_store(cache, block, rows, k, v, lost && block == 1 ? marks : NULL, remote), STATUS_OK);
    for (int site = 0; site < SITES; site++)
      for (int64_t i = 0; i < remote * GROUPS; i++)
        kv_cache_codes(cache, block, site, i / GROUPS)[i % GROUPS] =
            lost && i / GROUPS == 2 ? 0 : (uint8_t)value_of(text, i / GROUPS, block, 4 + site, (int)(i % GROUPS));
  }
  kv_cache_advance(cache, rows);
}

/* A sequence for the text, whose prompt has been computed into the cache -> tokens that it shares. */
static int64_t take(KvPages *pages, KvCache *cache, Text *text, bool lost) {
  int64_t shared;
  fill_cache(cache, text, lost);
  assert_int_equal(kv_pages_join(pages, text->ids, text->count, &text->spans, text->room, &text->number, &shared), STATUS_OK);
  assert_int_equal(kv_pages_take(pages, text->number, cache, text->ids), STATUS_OK);
  return shared;
}

static void a_prompt_is_taken_from_a_cache(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(true, NARROW_F16, PAGES);
  KvPages *pages;
  KvCache cache;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  assert_int_equal(kv_cache_init(&cache, &setup.cache), STATUS_OK);
  assert_ptr_equal(cache.setup.codewords, cache.codewords); /* and not the array that was copied, which may be gone */
  Text text = numbered(21, 30);
  text.spans = (KvSpans){.count = 1, .begin = {6}};
  assert_int_equal(take(pages, &cache, &text, true), 0);
  const KvPagesBlock held = kv_pages_block(pages, text.number, 1);
  assert_true(held.lost != NULL && held.lost[2] == 1);
  assert_int_equal(kv_pages_take(pages, text.number, &cache, text.ids), STATUS_BAD_VALUE);
  kv_pages_leave(pages, text.number);
  assert_int_equal(take(pages, &cache, &text, false), 0); /* nor was what had lost tokens found */
  check(pages, &text);
  kv_cache_release(&cache);
  kv_pages_free(pages);
}

/* A prompt shares the codes of another one, and `shared` tokens in all, and loses some of its own copy in transit: what others have is as
 * before, and what was computed without the lost tokens is found by nobody. */
static void losses_reach_no_other_sequence(int64_t count, int64_t shared) {
  const KvPagesSetup setup = setup_of(true, NARROW_NONE, PAGES);
  KvPages *pages;
  KvCache cache;
  KvSpans spans;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  assert_int_equal(kv_cache_init(&cache, &setup.cache), STATUS_OK);
  Text first = numbered(count, MAX), second, third;
  first.spans = (KvSpans){.count = 1, .begin = {6}};
  assert_int_equal(take(pages, &cache, &first, false), 0);
  second = first;
  for (int64_t i = shared; i < MAX; i++) second.ids[i] = 100; /* what it does not share */
  third = second;
  assert_int_equal(take(pages, &cache, &second, true), shared);
  check(pages, &first);
  check(pages, &second); /* which goes on with the codes that are there */
  store(pages, &second, count, 9, 9);
  assert_int_equal(find(pages, second.ids, count + 9, &spans), shared);
  kv_pages_leave(pages, second.number);
  assert_int_equal(take(pages, &cache, &third, false), shared);
  check(pages, &third);
  kv_cache_release(&cache);
  kv_pages_free(pages);
}

static void losses_behind_shared_codes(void **state) {
  (void)state;
  losses_reach_no_other_sequence(9, 6); /* the codes alone */
  losses_reach_no_other_sequence(21, 14);
}

/* Without codes the rows of other devices are among those in full: their marks go with the sequence. */
static void marks_of_rows_in_full(void **state) {
  (void)state;
  const KvPagesSetup setup = setup_of(false, NARROW_NONE, PAGES);
  const uint8_t marks[6] = {0, 0, 1, 0, 1, 0};
  KvPages *pages;
  KvCache cache;
  int64_t shared;
  real rows[15 * WIDTH] = {0};
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  assert_int_equal(kv_cache_init(&cache, &setup.cache), STATUS_OK);
  Text text = numbered(15, 30);
  text.spans = (KvSpans){.count = 1, .begin = {6}, .in_full = true};
  assert_int_equal(kv_cache_start(&cache, 0), STATUS_OK);
  for (int block = 0; block < BLOCKS; block++)
    assert_int_equal(kv_cache_store(&cache, block, 15, rows, rows, block == 1 ? marks : NULL, 6), STATUS_OK);
  kv_cache_advance(&cache, 15);
  for (int turn = 0; turn < 2; turn++) { /* the second one is not found by the first one's pages */
    assert_int_equal(kv_pages_join(pages, text.ids, text.count, &text.spans, text.room, &text.number, &shared), STATUS_OK);
    assert_int_equal(shared, 0);
    assert_int_equal(kv_pages_take(pages, text.number, &cache, text.ids), STATUS_OK);
    for (int block = 0; block < BLOCKS; block++) {
      const KvPagesBlock held = kv_pages_block(pages, text.number, block);
      assert_true((held.lost != NULL) == (block == 1));
      if (block != 1) continue;
      assert_true(held.remote == 0 && held.marks == 6);
      assert_memory_equal(held.lost, marks, sizeof marks);
    }
    kv_pages_leave(pages, text.number);
  }
  Text plain = numbered(15, 30); /* in the place of one that had marks */
  assert_int_equal(open_text(pages, &plain, &plain.spans), 0);
  check(pages, &plain);
  kv_cache_release(&cache);
  kv_pages_free(pages);
}

/* As many of the longest sequences as there may be find a place at the same time, and no page is more than they take. */
static void bytes_of_a_setup_are_those_of_its_sequences(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    const bool codes = variant % 2;
    KvPagesSetup setup = setup_of(codes, variant < 2 ? NARROW_NONE : NARROW_BF16, 1);
    KvPages *pages;
    setup.bytes = kv_pages_bytes(&setup);
    assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
    if (!codes) assert_int_equal(pages->pages, setup.sequences * pages->list_max);
    for (int i = 0; i < setup.sequences; i++) {
      Text text = numbered(9, MAX);
      text.ids[0] = 100 + i;
      assert_int_equal(open_text(pages, &text, &(KvSpans){.count = 0}), 0);
    }
    kv_pages_free(pages);
  }
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  KvPagesSetup setup = setup_of(false, NARROW_NONE, 10);
  const KvSpans whole = {.count = 0}, divided = {.count = 1, .begin = {3}};
  KvPages *pages;
  int64_t shared;
  int number;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_BAD_VALUE);
  setup = setup_of(false, NARROW_NONE, 12);
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  Text text = numbered(9, MAX), small = numbered(3, 4), last = numbered(3, 4);
  last.ids[0] = small.ids[0] = 60;
  assert_int_equal(kv_pages_join(pages, text.ids, 9, &divided, 20, &number, &shared), STATUS_BAD_VALUE); /* without codes */
  assert_int_equal(kv_pages_join(pages, text.ids, 9, &whole, MAX + 1, &number, &shared), STATUS_BAD_VALUE);
  assert_int_equal(kv_pages_join(pages, text.ids, 9, &whole, 8, &number, &shared), STATUS_BAD_VALUE);
  open_text(pages, &text, &whole);
  open_text(pages, &small, &whole); /* the last page, promised from the first on */
  assert_int_equal(kv_pages_join(pages, last.ids, 3, &whole, 4, &number, &shared), STATUS_BUSY);
  assert_int_equal(kv_pages_extend(pages, small.number, 2), STATUS_BAD_VALUE);
  for (int64_t i = 9; i < MAX; i++) { /* the promise holds */
    text.count = i + 1;
    store(pages, &text, i, 1, 1);
  }
  check(pages, &text);
  kv_pages_leave(pages, small.number);
  assert_int_equal(open_text(pages, &last, &whole), 0);
  kv_pages_free(pages);
  kv_pages_free(NULL);
}

/* Drafts that were kept and are taken back: what follows is written over their rows, and read. */
static void what_nobody_shares_is_truncated(void **state) {
  const KvPagesSetup setup = setup_of(false, NARROW_NONE, PAGES);
  KvPages *pages;
  Text text = {.room = MAX, .spans = {.in_full = true}};
  int64_t shared;
  (void)state;
  assert_int_equal(kv_pages_new(&pages, &setup), STATUS_OK);
  assert_int_equal(kv_pages_join(pages, text.ids, 1, &text.spans, MAX, &text.number, &shared), STATUS_OK);
  for (int round = 0; round < 8; round++) {
    const int64_t kept = round * 9 % 14 < text.count ? round * 9 % 14 : text.count;
    kv_pages_truncate(pages, text.number, kept);
    text.count = kept;
    check(pages, &text);
    kv_pages_truncate(pages, text.number, MAX); /* nothing comes back */
    for (int64_t i = kept; i < 14; i++) text.ids[i] = round + (int32_t)i;
    store(pages, &text, kept, 14 - kept, 14 - kept);
    text.count = 14;
    check(pages, &text);
  }
  assert_int_equal(pages->used, (14 + PAGE - 1) / PAGE);
  KvSpans spans;
  assert_int_equal(find(pages, text.ids, 14, &spans), 0);
  kv_pages_leave(pages, text.number);
  assert_int_equal(pages->used, 0);
  kv_pages_free(pages);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sequences_read_their_own_text),
                                     cmocka_unit_test(whole_pages_of_a_beginning_are_shared),
                                     cmocka_unit_test(codes_are_shared_under_the_same_division),
                                     cmocka_unit_test(lost_tokens_are_not_shared),
                                     cmocka_unit_test(nor_are_rows_behind_lost_ones),
                                     cmocka_unit_test(marks_of_rows_in_full),
                                     cmocka_unit_test(equal_pages_are_not_joined),
                                     cmocka_unit_test(the_least_recently_used_goes_first),
                                     cmocka_unit_test(a_head_goes_with_its_pages),
                                     cmocka_unit_test(a_prompt_is_taken_from_a_cache),
                                     cmocka_unit_test(losses_behind_shared_codes),
                                     cmocka_unit_test(what_nobody_shares_is_truncated),
                                     cmocka_unit_test(bytes_of_a_setup_are_those_of_its_sequences),
                                     cmocka_unit_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
