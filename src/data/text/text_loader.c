/* Batches of text for training: windows of a corpus with their order and offset, labelled texts. Leaves out: threads (copying a batch takes
 * microseconds), evaluation (text_perplexity.c).
 * Invariant: `order` is that of order_epoch, drawn anew from (seed, epoch) and nothing before it. */
#include "data/text/text_loader.h"
#include "base/rng.h"
#include "base/share.h"
#include "data/text/text_encoder.h"
#include "data/text/text_labels.h"
#include "data/text/token_cache.h"
#include <stdlib.h>
#include <string.h>

/* ---- Windows of a corpus ---- */

/* Keep the loader's stream apart from those of other users of the same seed. */
static const uint64_t window_key = 0x77696e646f777321;

enum { MAX_BATCH = 1 << 20, MAX_CONTEXT = 1 << 24 };

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
  if (options->context < 1 || options->context > MAX_CONTEXT)
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; 1 to %d are possible", (long long)options->context, MAX_CONTEXT);
  if (options->batch < 1 || options->batch > MAX_BATCH)
    return status_set(STATUS_BAD_VALUE, "a batch of %d texts; 1 to %d are possible", options->batch, MAX_BATCH);
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

/* ---- Labelled texts ---- */

/* The tokens of all texts one behind the other, and batches out of them. Leaves out: rows and classes (text_labels.c).
 * Invariant: text i is tokens [begin[i], begin[i + 1]), at least one and at most `context` of them. */

/* Keep the stream apart from those of other users of the same seed. */
static const uint64_t batch_key = 0x6c6162656c732121;

enum { BATCHES_MAX_BATCH = 1 << 20 };

struct TextBatches {
  TextBatchesOptions options;
  TokenList tokens;
  size_t *begin;   /* [count + 1] */
  int32_t *labels; /* [count] */
  Share share;
  int64_t count, steps, width, cut;
  int64_t epoch, step; /* of the next batch */
  int32_t *order;      /* [count] */
  int32_t *first;      /* [steps] where the texts of each batch begin in the order; they end where another begins, or after B */
  int32_t *spare;      /* [count] */
  int32_t *places;     /* [width + 2] of lengths, while sorting */
  int64_t order_epoch; /* -1: none yet */
  LabelBatch batch;    /* its arrays are owned */
};

void text_batches_free(TextBatches *batches) {
  if (!batches) return;
  token_list_release(&batches->tokens);
  free(batches->begin);
  free(batches->labels);
  free(batches->order);
  free(batches->first);
  free(batches->spare);
  free(batches->places);
  free(batches->batch.ids);
  free(batches->batch.lengths);
  free(batches->batch.labels);
  free(batches);
}

static Status encode_text(TextBatches *batches, const LabelledText *set, const TextEncoder *encoder, int64_t index) {
  TokenList *tokens = &batches->tokens;
  size_t first = batches->begin[index] = tokens->count;
  const char *text = text_labels_text(set, index, &batches->labels[index]);
  bool cut;
  Status status = text_encoder_sample(encoder, text, text_labels_pair(set, index), batches->options.context, tokens, &cut);
  if (status != STATUS_OK) return status_wrap(status, "text %lld, \"%.40s\"", (long long)index + 1, text);
  batches->cut += cut;
  if ((int64_t)(tokens->count - first) > batches->width) batches->width = (int64_t)(tokens->count - first);
  return STATUS_OK;
}

static Status encode_all(TextBatches *batches, const LabelledText *set, const TextEncoder *encoder) {
  size_t count = (size_t)batches->count;
  batches->begin = malloc((count + 1) * sizeof *batches->begin);
  batches->labels = malloc(count * sizeof *batches->labels);
  batches->order = malloc(count * sizeof *batches->order);
  if (!batches->begin || !batches->labels || !batches->order) return status_no_memory(NULL, "the tokens of labelled texts");
  for (int64_t i = 0; i < batches->count; i++) TRY(encode_text(batches, set, encoder, i));
  batches->begin[count] = batches->tokens.count;
  return STATUS_OK;
}

static Status allocate_batch(TextBatches *batches) {
  size_t rows = (size_t)batches->options.batch, width = (size_t)batches->width;
  LabelBatch *batch = &batches->batch;
  batch->ids = rows <= SIZE_MAX / sizeof *batch->ids / width ? malloc(rows * width * sizeof *batch->ids) : NULL;
  batch->lengths = malloc(rows * sizeof *batch->lengths);
  batch->labels = malloc(rows * sizeof *batch->labels);
  return batch->ids && batch->lengths && batch->labels ? STATUS_OK : status_no_memory(NULL, "the tokens of labelled texts");
}

static size_t length_of(const TextBatches *batches, int32_t text) { return batches->begin[text + 1] - batches->begin[text]; }

/* Order [begin, end) by length, equal ones as they stand. */
static void sort_by_length(TextBatches *batches, int64_t begin, int64_t end) {
  int32_t *order = batches->order, *places = batches->places;
  memset(places, 0, ((size_t)batches->width + 2) * sizeof *places);
  for (int64_t i = begin; i < end; i++) places[length_of(batches, order[i]) + 1]++;
  for (int64_t length = 0; length < batches->width; length++) places[length + 1] += places[length];
  for (int64_t i = begin; i < end; i++) batches->spare[places[length_of(batches, order[i])]++] = order[i];
  memcpy(order + begin, batches->spare, (size_t)(end - begin) * sizeof *order);
}

/* Where a batch that begins at `at` ends. */
static int64_t end_of_batch(const TextBatches *batches, int64_t at) {
  int64_t end = at + batches->options.batch < batches->count ? at + batches->options.batch : batches->count;
  if (!batches->options.one_length) return end;
  int64_t same = at + 1;
  while (same < end && length_of(batches, batches->order[same]) == length_of(batches, batches->order[at])) same++;
  return same;
}

static void in_file_order(TextBatches *batches) {
  for (int64_t i = 0; i < batches->count; i++) batches->order[i] = (int32_t)i;
}

/* How many batches there are, and room for what says where each begins. */
static Status divide(TextBatches *batches) {
  const TextBatchesOptions *options = &batches->options;
  batches->spare = malloc((size_t)batches->count * sizeof *batches->spare);
  batches->places = malloc(((size_t)batches->width + 2) * sizeof *batches->places);
  if (!batches->spare || !batches->places) return status_no_memory(NULL, "the tokens of labelled texts");
  in_file_order(batches);
  if (options->one_length) sort_by_length(batches, 0, batches->count);
  for (int64_t at = 0; at < batches->count; at = end_of_batch(batches, at)) batches->steps++;
  if (options->drop_last && batches->count % options->batch != 0) batches->steps--;
  batches->first = malloc((size_t)batches->steps * sizeof *batches->first);
  return batches->first ? STATUS_OK : status_no_memory(NULL, "the tokens of labelled texts");
}

static Status batches_check(const TextBatches *batches) {
  const TextBatchesOptions *options = &batches->options;
  if (options->context < 1)
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; at least 1 is needed", (long long)options->context);
  if (options->batch < 1 || options->batch > BATCHES_MAX_BATCH)
    return status_set(STATUS_BAD_VALUE, "a batch of %d texts; 1 to %d are possible", options->batch, BATCHES_MAX_BATCH);
  if (options->pool < 0 || (options->one_length && (options->shuffle || options->drop_last)))
    return status_set(STATUS_BAD_VALUE, "texts of one length come in order, all of them, and pools have 0 or more batches");
  if (options->drop_last && batches->count < options->batch)
    return status_set(STATUS_BAD_VALUE, "the set has %lld texts, fewer than a batch of %d; make the batch smaller",
                      (long long)batches->count, options->batch);
  return STATUS_OK;
}

Status text_batches_new(TextBatches **batches, const LabelledText *set, const TextEncoder *encoder, const TextBatchesOptions *options) {
  *batches = NULL;
  TextBatches *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "the tokens of labelled texts");
  *fresh = (TextBatches){.options = *options, .count = text_labels_count(set), .order_epoch = -1};
  if (options->max > 0 && options->max < fresh->count) fresh->count = options->max;
  Status status = batches_check(fresh);
  if (status == STATUS_OK) status = encode_all(fresh, set, encoder);
  if (status == STATUS_OK) status = divide(fresh);
  if (status == STATUS_OK) status = allocate_batch(fresh);
  if (status == STATUS_OK)
    *batches = fresh;
  else
    text_batches_free(fresh);
  return status;
}

int64_t text_batches_count(const TextBatches *batches) { return batches->count; }
int64_t text_batches_steps(const TextBatches *batches) { return batches->steps; }
int64_t text_batches_width(const TextBatches *batches) { return batches->width; }
int64_t text_batches_cut(const TextBatches *batches) { return batches->cut; }

void text_batches_share(TextBatches *batches, Share share) { batches->share = share; }

Status text_batches_seek(TextBatches *batches, int64_t epoch, int64_t step) {
  if (epoch < 0 || step < 0 || step > batches->steps)
    return status_set(STATUS_BAD_VALUE, "epoch %lld, step %lld of the texts; steps 0 to %lld are there: was it another set or batch?",
                      (long long)epoch, (long long)step, (long long)batches->steps);
  batches->epoch = epoch + (step == batches->steps);
  batches->step = step == batches->steps ? 0 : step;
  return STATUS_OK;
}

static void find_batches(TextBatches *batches) {
  int64_t at = 0;
  for (int64_t step = 0; step < batches->steps; step++, at = end_of_batch(batches, at)) batches->first[step] = (int32_t)at;
}

/* Texts of a pool by their length, then the batches, which a pool would else begin with its short ones, in any order. What fills no batch
 * stays random and the last. */
static void set_pools(TextBatches *batches, Rng *rng) {
  int64_t whole = batches->count / batches->options.batch, texts = whole * batches->options.batch;
  int64_t pool = (int64_t)batches->options.pool * batches->options.batch;
  for (int64_t begin = 0; begin < texts; begin += pool) sort_by_length(batches, begin, begin + pool < texts ? begin + pool : texts);
  rng_shuffle(rng, batches->first, whole);
}

static void batches_set_order(TextBatches *batches) {
  if (batches->order_epoch == batches->epoch) return;
  Rng rng;
  rng_init(&rng, batches->options.seed ^ batch_key, (uint64_t)batches->epoch);
  batches->order_epoch = batches->epoch;
  in_file_order(batches);
  if (batches->options.one_length) sort_by_length(batches, 0, batches->count);
  if (batches->options.shuffle) rng_shuffle(&rng, batches->order, batches->count);
  find_batches(batches);
  if (batches->options.shuffle && batches->options.pool > 0) set_pools(batches, &rng);
}

static void fill_row(const TextBatches *batches, const LabelBatch *batch, int row, int32_t text) {
  size_t width = (size_t)batches->width, length = batches->begin[text + 1] - batches->begin[text];
  int32_t *ids = batch->ids + (size_t)row * width;
  memcpy(ids, batches->tokens.ids + batches->begin[text], length * sizeof *ids);
  memset(ids + length, 0, (width - length) * sizeof *ids);
  batch->lengths[row] = (int32_t)length;
  batch->labels[row] = batches->labels[text];
}

void text_batches_next(TextBatches *batches, LabelBatch *batch) {
  batches_set_order(batches);
  int64_t begin = batches->first[batches->step], whole = end_of_batch(batches, begin) - begin, first = share_begin(whole, batches->share);
  *batch = batches->batch;
  batch->whole = (int)whole;
  batch->first = (int)first;
  batch->count = (int)(share_end(whole, batches->share) - first);
  batch->longest = 0;
  for (int64_t i = begin; i < begin + whole; i++) {
    int64_t length = (int64_t)length_of(batches, batches->order[i]);
    if (length > batch->longest) batch->longest = length;
  }
  begin += first;
  batch->epoch = batches->epoch;
  batch->step = batches->step;
  batch->last = batches->step == batches->steps - 1;
  for (int i = 0; i < batch->count; i++) fill_row(batches, batch, i, batches->order[begin + i]);
  batches->epoch += batch->last;
  batches->step = batch->last ? 0 : batches->step + 1;
}
