/* See drafter.h. */
#include "infer/drafter.h"
#include "base/arena.h"
#include "nn/decode_batch.h"
#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 /* ids of a text that are computed at a time: meanwhile a request waits */ };

struct Drafter {
  Model *model;
  KvPages *pages;
  int place; /* in the pages, of the one text */
  Arena *arena;
  Tape *tape;
  int64_t vocabulary, max; /* of a text */
  int32_t *text;           /* [max] confirmed ids, and drafts behind them */
  int64_t confirmed, count;
  int64_t taken; /* drafts of these confirmed ids, so far */
  uint32_t sequence;
  int wanted;
  bool failed; /* with this text */
};

/* One text, which nothing is shared with. */
static Status make_pages(Drafter *d, const NodeSetup *setup) {
  const ModelConfig *config = setup->weights->config;
  const NarrowKind kind = setup->weights->drafts->cache_kind;
  KvPagesSetup pages = {.cache = {.blocks = config->blocks, .width = config_kv_width(config), .max = d->max, .kind = kind},
                        .heads = config->kv_heads,
                        .page = KV_PAGES_TOKENS,
                        .sequences = 1};
  pages.bytes = kv_pages_bytes(&pages);
  int64_t shared;
  TRY(kv_pages_new(&d->pages, &pages));
  return kv_pages_join(d->pages, &(int32_t){0}, 1, &(KvSpans){.in_full = true}, d->max, &d->place, &shared);
}

Status drafter_new(Drafter **out, const NodeSetup *setup) {
  Drafter *d = *out = calloc(1, sizeof *d);
  if (!d) return status_no_memory(NULL, "drafting");
  *d = (Drafter){
      .model = setup->weights->drafts->model, .vocabulary = setup->weights->config->vocabulary, .max = setup->tokens_max, .failed = true};
  const bool memory =
      (d->text = calloc((size_t)d->max, sizeof *d->text)) && (d->arena = arena_new((size_t)1 << 34)) && (d->tape = tape_new(d->arena));
  Status status = memory ? make_pages(d, setup) : status_no_memory(NULL, "drafting");
  if (status == STATUS_OK) {
    tape_record(d->tape, false);
    return STATUS_OK;
  }
  drafter_free(d);
  *out = NULL;
  return status;
}

void drafter_free(Drafter *d) {
  if (!d) return;
  kv_pages_free(d->pages);
  tape_free(d->tape);
  arena_free(d->arena);
  free(d->text);
  free(d);
}

Status drafter_tell(Drafter *d, uint32_t sequence, int64_t base, const int32_t *ids, int64_t count, uint32_t wanted) {
  const int64_t expected = sequence == d->sequence ? d->confirmed : 0;
  const bool begins = base == 0;
  if ((!begins && base != expected) || count < 1 || base + count > d->max || wanted < 1 || wanted > SPECULATION_MAX)
    return status_set(STATUS_BAD_VALUE,
                      "sent %lld tokens from token %lld on of a text to draft for, and wants %u; from %lld on were expected",
                      (long long)count, (long long)base, wanted, (long long)expected);
  int64_t same = 0; /* of ids, as they were drafted, or as another text had them */
  while (same < count && base + same < d->count && d->text[base + same] == ids[same]) same++;
  if (same < count || begins) {
    memcpy(d->text + base, ids, (size_t)count * sizeof *ids);
    d->count = base + count;
    kv_pages_truncate(d->pages, d->place, base + same < d->count ? base + same : d->count - 1);
  }
  d->failed &= !begins;
  d->sequence = sequence;
  d->confirmed = base + count;
  d->taken = 0;
  d->wanted = (int)wanted;
  return STATUS_OK;
}

/* Drafts go on to where those behind the next check will be. */
bool drafter_works(const Drafter *d) {
  return d && !d->failed && d->confirmed > 0 && d->count < d->max && d->count - d->confirmed < 2 * d->wanted + 1;
}

void drafter_step(Drafter *d) {
  if (!drafter_works(d)) return; /* what it was told last has come in between */
  const int64_t there = kv_pages_tokens(d->pages, d->place), left = d->count - there;
  const DecodeRows rows = {
      .sequence = d->place, .ids = d->text + there, .count = left < PIECE ? left : PIECE, .logits = left <= PIECE ? 1 : 0};
  tape_clear(d->tape);
  const Tensor *out = decode_batch(d->model, d->tape, d->pages, &rows, 1);
  d->failed = !out;
  if (!out) return;
  kv_pages_keep(d->pages, d->place, rows.ids, rows.count);
  if (rows.logits == 0) return;
  int32_t best = 0;
  for (int64_t i = 1; i < d->vocabulary; i++) best = out->value[i] > out->value[best] ? (int32_t)i : best;
  d->text[d->count++] = best;
}

bool drafter_ready(const Drafter *d) {
  if (!d || d->failed) return false;
  const int64_t count = d->count - d->confirmed;
  return count > d->taken && (count >= d->wanted || d->count == d->max);
}

int drafter_take(Drafter *d, uint32_t *sequence, int64_t *base, int32_t drafts[SPECULATION_CHAIN]) {
  d->taken = d->count - d->confirmed;
  memcpy(drafts, d->text + d->confirmed, (size_t)d->taken * sizeof *drafts);
  *sequence = d->sequence;
  *base = d->confirmed;
  return (int)d->taken;
}
