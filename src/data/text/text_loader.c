/* Windows, their order and their offset. Leaves out: threads (copying a batch takes microseconds), evaluation (text_windows.c).
 * Invariant: `order` is that of order_epoch, drawn anew from (seed, epoch) and nothing before it. */
#include "data/text/text_loader.h"
#include "base/rng.h"
#include <stdlib.h>
#include <string.h>

/* Keep the loader's stream apart from those of other users of the same seed. */
static const uint64_t window_key = 0x77696e646f777321;

enum { MOST_BATCH = 1 << 20, MOST_CONTEXT = 1 << 24 };

struct TextLoader {
  const TokenCache *cache;
  TextLoaderOptions options;
  Share share;
  int64_t windows, steps;
  int64_t epoch, step; /* of the next batch */
  int32_t *order;      /* [windows] */
  int64_t order_epoch; /* -1: none yet */
  int64_t offset;      /* of order_epoch */
  int32_t *window;     /* [T + 1] */
  int32_t *ids, *labels;
};

static Status check(const TokenCache *cache, const TextLoaderOptions *options) {
  int64_t tokens = token_cache_facts(cache)->tokens;
  if (options->context < 1 || options->context > MOST_CONTEXT)
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; 1 to %d are possible", (long long)options->context, MOST_CONTEXT);
  if (options->batch < 1 || options->batch > MOST_BATCH)
    return status_set(STATUS_BAD_VALUE, "a batch of %d texts; 1 to %d are possible", options->batch, MOST_BATCH);
  if (tokens <= options->context)
    return status_set(STATUS_BAD_VALUE,
                      "the text has %lld tokens; with a context of %lld at least %lld are needed: shorten the context or give more text",
                      (long long)tokens, (long long)options->context, (long long)options->context + 1);
  return STATUS_OK;
}

/* One more window than the labels fill when shuffled: room for the offset. */
static int64_t count_windows(int64_t tokens, const TextLoaderOptions *options) {
  return (tokens - 1 + options->context - 1) / options->context + options->shuffle;
}

static Status size_epoch(TextLoader *loader) {
  const TextLoaderOptions *options = &loader->options;
  loader->windows = count_windows(token_cache_facts(loader->cache)->tokens, options);
  loader->steps = options->drop_last ? loader->windows / options->batch : (loader->windows + options->batch - 1) / options->batch;
  if (loader->windows > INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "%lld windows of text; at most %d are possible: lengthen the context", (long long)loader->windows,
                      INT32_MAX);
  if (loader->steps == 0)
    return status_set(STATUS_BAD_VALUE, "the text has %lld windows, fewer than a batch of %d; make the batch smaller",
                      (long long)loader->windows, options->batch);
  return STATUS_OK;
}

static Status allocate(TextLoader *loader) {
  size_t context = (size_t)loader->options.context, batch = (size_t)loader->options.batch;
  loader->order = malloc((size_t)loader->windows * sizeof *loader->order);
  loader->window = malloc((context + 1) * sizeof *loader->window);
  loader->ids = malloc(batch * context * sizeof *loader->ids);
  loader->labels = malloc(batch * context * sizeof *loader->labels);
  if (loader->order && loader->window && loader->ids && loader->labels) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for batches of %zu x %zu tokens", batch, context);
}

Status text_loader_new(TextLoader **loader, const TokenCache *cache, const TextLoaderOptions *options) {
  *loader = NULL;
  TRY(check(cache, options));
  TextLoader *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_set(STATUS_NO_MEMORY, "no memory for a text loader");
  *fresh = (TextLoader){.cache = cache, .options = *options, .order_epoch = -1};
  Status status = size_epoch(fresh);
  if (status == STATUS_OK) status = allocate(fresh);
  if (status == STATUS_OK)
    *loader = fresh;
  else
    text_loader_free(fresh);
  return status;
}

void text_loader_free(TextLoader *loader) {
  if (!loader) return;
  free(loader->order);
  free(loader->window);
  free(loader->ids);
  free(loader->labels);
  free(loader);
}

int64_t text_loader_steps(const TextLoader *loader) { return loader->steps; }

int64_t text_loader_windows(const TextLoader *loader) { return loader->windows; }

void text_loader_share(TextLoader *loader, Share share) { loader->share = share; }

Status text_loader_seek(TextLoader *loader, int64_t epoch, int64_t step) {
  if (epoch < 0 || step < 0 || step > loader->steps)
    return status_set(STATUS_BAD_VALUE,
                      "epoch %lld, step %lld of the text; steps 0 to %lld are there: was it another text, context or batch?",
                      (long long)epoch, (long long)step, (long long)loader->steps);
  loader->epoch = epoch + (step == loader->steps);
  loader->step = step == loader->steps ? 0 : step;
  return STATUS_OK;
}

static void set_order(TextLoader *loader) {
  if (loader->order_epoch == loader->epoch) return;
  for (int64_t i = 0; i < loader->windows; i++) loader->order[i] = (int32_t)i;
  loader->order_epoch = loader->epoch;
  if (!loader->options.shuffle) return;
  Rng rng;
  rng_init(&rng, loader->options.seed ^ window_key, (uint64_t)loader->epoch);
  loader->offset = (int64_t)rng_below(&rng, (uint64_t)loader->options.context);
  rng_shuffle(&rng, loader->order, loader->windows);
}

static int64_t window_start(const TextLoader *loader, int64_t window) {
  int64_t last = token_cache_facts(loader->cache)->tokens - 1 - loader->options.context;
  int64_t start = window * loader->options.context - loader->offset;
  return start < 0 ? 0 : start > last ? last : start;
}

void text_loader_next(TextLoader *loader, TextBatch *batch) {
  const TextLoaderOptions *options = &loader->options;
  size_t context = (size_t)options->context;
  int64_t begin = loader->step * options->batch, left = loader->windows - begin;
  int64_t whole = left < options->batch ? left : options->batch, first = share_begin(whole, loader->share);
  set_order(loader);
  begin += first;
  *batch = (TextBatch){.ids = loader->ids,
                       .labels = loader->labels,
                       .count = (int)(share_end(whole, loader->share) - first),
                       .first = (int)first,
                       .whole = (int)whole,
                       .epoch = loader->epoch,
                       .step = loader->step,
                       .last = loader->step == loader->steps - 1};
  for (int i = 0; i < batch->count; i++) {
    token_cache_copy(loader->cache, window_start(loader, loader->order[begin + i]), options->context + 1, loader->window);
    memcpy(batch->ids + (size_t)i * context, loader->window, context * sizeof *batch->ids);
    memcpy(batch->labels + (size_t)i * context, loader->window + 1, context * sizeof *batch->labels);
  }
  loader->epoch += batch->last;
  loader->step = batch->last ? 0 : loader->step + 1;
}
