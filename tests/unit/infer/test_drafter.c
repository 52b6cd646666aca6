/* What a drafter keeps of its drafts when ids are confirmed: those that were right, and nothing behind the first wrong one; its drafts are
 * then those of a drafter that is told the whole text at once. And that there is none without memory. */
#include "base/arena.h"
#include "nn/kv_pages.h"
#include "sample_fixture.h"
#include "sample_text.h"

/* Of what a drafter asks for, this comes before the first that it does not get; -1: it gets all. */
static int granted = -1;
static bool lacks(void) { return granted >= 0 && granted-- == 0; }
static void *scripted_calloc(size_t count, size_t size) { return lacks() ? NULL : calloc(count, size); }
static Arena *scripted_arena(size_t bytes) { return lacks() ? NULL : arena_new(bytes); }
static Tape *scripted_tape(Arena *arena) { return lacks() ? NULL : tape_new(arena); }
static Status scripted_pages(KvPages **pages, const KvPagesSetup *setup) {
  *pages = NULL;
  return lacks() ? status_set(STATUS_NO_MEMORY, "no memory for pages") : kv_pages_new(pages, setup);
}
#define calloc       scripted_calloc
#define arena_new    scripted_arena
#define tape_new     scripted_tape
#define kv_pages_new scripted_pages
#include "infer/drafter.c"
#undef calloc

enum { CONTEXT = 48, WANTED = 3, AHEAD = 2 * WANTED + 1 };

typedef struct Fixture {
  SampleFixture base;
  NodeSetup setup;
  int32_t ids[CONTEXT];
} Fixture;

static void open_fixture(Fixture *f, const char *preset) {
  ModelConfig config = {0};
  *f = (Fixture){.setup = {.tokens_max = CONTEXT}};
  assert_int_equal(sample_config(&config, preset, 4, 50, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  sample_ids(&f->base.sample.config, 5, CONTEXT, f->ids);
  if (weights_make_drafts(&f->base.weights, f->base.directory) != STATUS_OK) fail_msg("%s", status_message());
  f->setup.weights = &f->base.weights;
}

static Drafter *open_drafter(const Fixture *f) {
  Drafter *d;
  if (drafter_new(&d, &f->setup) != STATUS_OK) fail_msg("%s", status_message());
  assert_false(drafter_works(d) || drafter_ready(d));
  return d;
}

static void tell(Drafter *d, uint32_t sequence, int64_t base, const int32_t *ids, int64_t count) {
  if (drafter_tell(d, sequence, base, ids, count, WANTED) != STATUS_OK) fail_msg("%s", status_message());
}

/* Until it has as many as it makes -> their number. */
static int run(Drafter *d, uint32_t expected, int64_t base, int32_t drafts[SPECULATION_CHAIN]) {
  uint32_t sequence;
  int64_t at;
  while (drafter_works(d)) drafter_step(d);
  assert_true(drafter_ready(d));
  const int count = drafter_take(d, &sequence, &at, drafts);
  assert_int_equal(sequence, expected);
  assert_int_equal(at, base);
  assert_false(drafter_ready(d)); /* they are taken */
  return count;
}

/* Those of a drafter that knows no other text. */
static void compare_fresh(const Fixture *f, const int32_t *text, int64_t count, const int32_t *drafts) {
  int32_t expected[SPECULATION_CHAIN];
  Drafter *d = open_drafter(f);
  tell(d, 1, 0, text, count);
  assert_int_equal(run(d, 1, count, expected), AHEAD);
  assert_memory_equal(drafts, expected, AHEAD * sizeof *drafts);
  drafter_free(d);
}

static void what_was_wrong_is_forgotten(void **state) {
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  (void)state;
  for (int p = 0; p < 2; p++) {
    Fixture f;
    int32_t drafts[SPECULATION_CHAIN], before[SPECULATION_CHAIN], text[CONTEXT];
    open_fixture(&f, presets[p]);
    Drafter *d = open_drafter(&f);
    memcpy(text, f.ids, sizeof text);
    tell(d, 7, 0, text, 10);
    assert_int_equal(run(d, 7, 10, drafts), AHEAD);
    compare_fresh(&f, text, 10, drafts);
    for (int right = 0; right <= 2; right++) { /* so many were, then another id */
      const int64_t at = 10 + 3 * right;
      for (int i = 0; i < right; i++) text[at + i] = drafts[i];
      text[at + right] = (drafts[right] + 1) % 512;
      for (int64_t i = at + right + 1; i < at + 3; i++) text[i] = f.ids[i];
      tell(d, 7, at, text + at, 3);
      assert_false(drafter_ready(d));
      assert_int_equal(run(d, 7, at + 3, drafts), AHEAD);
      compare_fresh(&f, text, at + 3, drafts);
    }
    memcpy(text + 19, drafts, 4 * sizeof *text); /* all were right */
    memcpy(before, drafts, sizeof before);
    tell(d, 7, 19, text + 19, 4);
    assert_true(drafter_ready(d)); /* the others are what is wanted */
    assert_int_equal(run(d, 7, 23, drafts), AHEAD);
    assert_memory_equal(drafts, before + 4, (AHEAD - 4) * sizeof *drafts);
    compare_fresh(&f, text, 23, drafts);
    text[4] = (text[4] + 1) % 512; /* another text that begins alike; the same one from its beginning */
    tell(d, 8, 0, text, 15);
    run(d, 8, 15, drafts);
    compare_fresh(&f, text, 15, drafts);
    tell(d, 8, 0, text, 12);
    run(d, 8, 12, drafts);
    compare_fresh(&f, text, 12, drafts);
    drafter_free(d);
    sample_fixture_close(&f.base);
  }
}

static void what_does_not_follow_is_refused(void **state) {
  Fixture f;
  int32_t drafts[SPECULATION_CHAIN];
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  Drafter *d = open_drafter(&f);
  assert_int_equal(drafter_tell(d, 7, 1, f.ids, 3, WANTED), STATUS_BAD_VALUE); /* nothing was told before */
  tell(d, 7, 0, f.ids, 10);
  assert_int_equal(drafter_tell(d, 7, 9, f.ids, 3, WANTED), STATUS_BAD_VALUE); /* a stale base */
  assert_int_equal(drafter_tell(d, 7, 11, f.ids, 3, WANTED), STATUS_BAD_VALUE);
  assert_int_equal(drafter_tell(d, 8, 10, f.ids, 3, WANTED), STATUS_BAD_VALUE); /* of another text */
  assert_int_equal(drafter_tell(d, 7, 10, f.ids, CONTEXT - 9, WANTED), STATUS_BAD_VALUE);
  assert_int_equal(drafter_tell(d, 7, 10, f.ids, 0, WANTED), STATUS_BAD_VALUE);
  assert_int_equal(drafter_tell(d, 7, 10, f.ids, 3, 0), STATUS_BAD_VALUE);
  assert_int_equal(drafter_tell(d, 7, 10, f.ids, 3, SPECULATION_MAX + 1), STATUS_BAD_VALUE);
  assert_int_equal(run(d, 7, 10, drafts), AHEAD); /* none of this has changed anything */
  compare_fresh(&f, f.ids, 10, drafts);
  tell(d, 7, 10, f.ids + 10, CONTEXT - 12); /* there is room for two more */
  assert_int_equal(run(d, 7, CONTEXT - 2, drafts), 2);
  tell(d, 7, CONTEXT - 2, f.ids, 2);
  drafter_step(d); /* the text is full */
  assert_false(drafter_works(d) || drafter_ready(d));
  drafter_free(d);
  sample_fixture_close(&f.base);
}

static void without_memory_there_is_none(void **state) {
  static const char *const lacking[] = {"no memory for drafting", "no memory for drafting", "no memory for drafting",
                                        "no memory for drafting", "no memory for pages"};
  Fixture f;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  for (int i = 0; i < 5; i++) {
    Drafter *d = (Drafter *)&f;
    granted = i;
    assert_int_equal(drafter_new(&d, &f.setup), STATUS_NO_MEMORY);
    assert_int_equal(granted, -1); /* it has not gone on */
    assert_null(d);
    assert_string_equal(status_message(), lacking[i]);
  }
  drafter_free(open_drafter(&f)); /* nothing else is asked for */
  sample_fixture_close(&f.base);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_wrong_is_forgotten), cmocka_unit_test(what_does_not_follow_is_refused),
                                     cmocka_unit_test(without_memory_there_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
