/* Batches of text for training: windows of a corpus with their order and offset, labelled texts. Leaves out: threads (copying a batch takes
 * microseconds), rows and classes (text_labels.c), evaluation (text_perplexity.c).
 * Invariant: `order` is that of order_epoch, drawn anew from (seed, epoch) and nothing before it. Labelled text i is tokens
 * [begin[i], begin[i + 1]), at least one and at most `context` of them. */
#include "data/text/text_loader.h"
#include "base/rng.h"
#include "base/share.h"
#include "base/text.h"
#include "data/text/text_labels.h"
#include "data/text/token_cache.h"
#include <stdlib.h>
#include <string.h>

/* ---- Tokens of a text to classify ---- */

static Status add_text(const TextEncoder *encoder, const char *text, TokenList *out, size_t *count) {
  size_t before = out->count;
  TRY(encoder->encode(encoder->context, text, strlen(text), out));
  *count = out->count - before;
  return STATUS_OK;
}

Status text_loader_sample(const TextEncoder *encoder, const char *text, const char *pair, int64_t context, TokenList *out, bool *cut) {
  size_t from = out->count, max = (size_t)context, begin = encoder->begin >= 0, first, separator = 0, second = 0;
  if (begin) TRY(token_list_add(out, encoder->begin));
  TRY(add_text(encoder, text, out, &first));
  if (pair && encoder->separator >= 0) {
    TRY(token_list_add(out, encoder->separator));
    separator = 1;
  } else if (pair) {
    TRY(add_text(encoder, "\n", out, &separator));
  }
  if (pair) TRY(add_text(encoder, pair, out, &second));
  if (out->count == from) return status_set(STATUS_BAD_VALUE, "it has no tokens");
  for (size_t i = from; i < out->count; i++)
    if (out->ids[i] < 0 || out->ids[i] >= encoder->vocabulary)
      return status_set(STATUS_BAD_VALUE, "the tokenizer gave id %d; its vocabulary has 0 to %lld", (int)out->ids[i],
                        (long long)encoder->vocabulary - 1);
  *cut = out->count - from > max;
  if (*cut && pair && max >= begin + separator + 2) { /* tokens are taken from the end of the longer text until both fit */
    size_t room = max - begin - separator, max_first = second < room / 2 ? room - second : room - room / 2;
    size_t keep_first = first < max_first ? first : max_first, keep_second = room - keep_first, at = out->count - second - separator;
    memmove(out->ids + at - first + keep_first, out->ids + at, (separator + keep_second) * sizeof *out->ids);
    out->count = at - first + keep_first + separator + keep_second;
  }
  if (out->count - from > max) out->count = from + max;
  return STATUS_OK;
}

/* ---- Windows and texts, one course of batches ---- */

/* Keep the loader's streams apart from those of other users of the same seed. */
static const uint64_t window_key = 0x77696e646f777321, text_key = 0x6c6162656c732121;

enum { MAX_BATCH = 1 << 20, MAX_CONTEXT = 1 << 24 };

struct TextLoader {
  TextLoaderOptions options;
  TextLoaderFacts facts;
  Share share;
  int64_t epoch, step; /* of the next batch */
  int32_t *order;      /* [samples] */
  int64_t order_epoch; /* -1: none yet */
  TextBatch batch;     /* its arrays are owned */

  const TokenCache *cache; /* of windows; NULL: labelled texts */
  int64_t offset;          /* of order_epoch */
  int32_t *window;         /* [T + 1] */

  TokenList tokens; /* of all texts, one behind the other */
  size_t *begin;    /* [samples + 1] */
  int32_t *labels;  /* [samples] */
  int32_t *first;   /* [steps] where the texts of each batch begin in the order; they end where another begins, or after B */
  int32_t *spare;   /* [samples] */
  int32_t *places;  /* [width + 2] of lengths, while sorting */
};

void text_loader_free(TextLoader *loader) {
  if (!loader) return;
  token_list_release(&loader->tokens);
  free(loader->order);
  free(loader->window);
  free(loader->begin);
  free(loader->labels);
  free(loader->first);
  free(loader->spare);
  free(loader->places);
  free(loader->batch.ids);
  free(loader->batch.lengths);
  free(loader->batch.labels);
  free(loader);
}

const TextLoaderFacts *text_loader_facts(const TextLoader *loader) { return &loader->facts; }

void text_loader_share(TextLoader *loader, Share share) { loader->share = share; }

Status text_loader_seek(TextLoader *loader, int64_t epoch, int64_t step) {
  if (epoch < 0 || step < 0 || step > loader->facts.steps)
    return status_set(STATUS_BAD_VALUE, "epoch %lld, step %lld of the %s; steps 0 to %lld are there: was it another %s batch?",
                      (long long)epoch, (long long)step, loader->cache ? "text" : "texts", (long long)loader->facts.steps,
                      loader->cache ? "text, context or" : "set or");
  loader->epoch = epoch + (step == loader->facts.steps);
  loader->step = step == loader->facts.steps ? 0 : step;
  return STATUS_OK;
}

static void in_file_order(TextLoader *loader) {
  for (int64_t i = 0; i < loader->facts.samples; i++) loader->order[i] = (int32_t)i;
}

static size_t length_of(const TextLoader *loader, int32_t text) { return loader->begin[text + 1] - loader->begin[text]; }

int64_t text_loader_tokens(const TextLoader *loader, int64_t max) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < loader->facts.samples; i++) {
    const int64_t length = (int64_t)length_of(loader, (int32_t)i);
    tokens += length < max ? length : max;
  }
  return tokens;
}

/* Where a batch that begins at `at` ends. */
static int64_t end_of_batch(const TextLoader *loader, int64_t at) {
  int64_t samples = loader->facts.samples, end = at + loader->options.batch < samples ? at + loader->options.batch : samples;
  if (!loader->options.one_length) return end;
  int64_t same = at + 1;
  while (same < end && length_of(loader, loader->order[same]) == length_of(loader, loader->order[at])) same++;
  return same;
}

/* ---- Windows of a corpus ---- */

static Status check_windows(const TokenCache *cache, const TextLoaderOptions *options) {
  int64_t tokens = token_cache_facts(cache)->tokens;
  if (options->context < 1 || options->context > MAX_CONTEXT)
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; 1 to %d are possible", (long long)options->context, MAX_CONTEXT);
  if (options->batch < 1 || options->batch > MAX_BATCH)
    return status_set(STATUS_BAD_VALUE, "a batch of %d texts; 1 to %d are possible", options->batch, MAX_BATCH);
  if (tokens <= options->context)
    return status_set(STATUS_BAD_VALUE,
                      "the text has %lld token%s; with a context of %lld at least %lld are needed: shorten the context or give more text",
                      (long long)tokens, text_plural(tokens), (long long)options->context, (long long)options->context + 1);
  return STATUS_OK;
}

/* One more window than the labels fill when shuffled: room for the offset. */
int64_t text_loader_count_windows(const TokenCache *cache, int64_t context, bool shuffle) {
  const int64_t labels = token_cache_facts(cache)->tokens - 1;
  return (labels + context - 1) / context + shuffle;
}

static Status size_epoch(TextLoader *loader) {
  const TextLoaderOptions *options = &loader->options;
  int64_t windows = text_loader_count_windows(loader->cache, options->context, options->shuffle);
  int64_t steps = options->drop_last ? windows / options->batch : (windows + options->batch - 1) / options->batch;
  loader->facts = (TextLoaderFacts){.samples = windows, .steps = steps, .width = options->context};
  if (windows > INT32_MAX)
    return status_set(STATUS_BAD_VALUE, "%lld windows of text; at most %d are possible: lengthen the context", (long long)windows,
                      INT32_MAX);
  if (steps == 0)
    return status_set(STATUS_BAD_VALUE, "the text has %lld windows, fewer than a batch of %d; make the batch smaller", (long long)windows,
                      options->batch);
  return STATUS_OK;
}

static Status allocate_windows(TextLoader *loader) {
  size_t context = (size_t)loader->options.context, batch = (size_t)loader->options.batch;
  loader->order = malloc((size_t)loader->facts.samples * sizeof *loader->order);
  loader->window = malloc((context + 1) * sizeof *loader->window);
  loader->batch.ids = malloc(batch * context * sizeof *loader->batch.ids);
  loader->batch.labels = malloc(batch * context * sizeof *loader->batch.labels);
  if (loader->order && loader->window && loader->batch.ids && loader->batch.labels) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "no memory for batches of %zu x %zu tokens", batch, context);
}

Status text_loader_windows(TextLoader **loader, const TokenCache *cache, const TextLoaderOptions *options) {
  *loader = NULL;
  TRY(check_windows(cache, options));
  TextLoader *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "a text loader");
  *fresh = (TextLoader){.cache = cache, .options = *options, .order_epoch = -1};
  fresh->options.one_length = false;
  Status status = size_epoch(fresh);
  if (status == STATUS_OK) status = allocate_windows(fresh);
  if (status == STATUS_OK)
    *loader = fresh;
  else
    text_loader_free(fresh);
  return status;
}

static void order_windows(TextLoader *loader) {
  in_file_order(loader);
  if (!loader->options.shuffle) return;
  Rng rng;
  rng_init(&rng, loader->options.seed ^ window_key, (uint64_t)loader->epoch);
  loader->offset = (int64_t)rng_below(&rng, (uint64_t)loader->options.context);
  rng_shuffle(&rng, loader->order, loader->facts.samples);
}

static void fill_window(TextLoader *loader, int row, int32_t window) {
  size_t context = (size_t)loader->options.context;
  int64_t last = token_cache_facts(loader->cache)->tokens - 1 - loader->options.context;
  int64_t start = window * loader->options.context - loader->offset;
  token_cache_copy(loader->cache, start < 0 ? 0 : start > last ? last : start, loader->options.context + 1, loader->window);
  memcpy(loader->batch.ids + (size_t)row * context, loader->window, context * sizeof *loader->window);
  memcpy(loader->batch.labels + (size_t)row * context, loader->window + 1, context * sizeof *loader->window);
}

/* ---- Labelled texts ---- */

static int by_number(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Text `index` of the set as number `at` of the loader's. */
static Status encode_text(TextLoader *loader, const LabelledText *set, const TextEncoder *encoder, int64_t at, int64_t index) {
  TokenList *tokens = &loader->tokens;
  size_t first = loader->begin[at] = tokens->count;
  const char *text = text_labels_text(set, index, &loader->labels[at]);
  bool cut;
  Status status = text_loader_sample(encoder, text, text_labels_pair(set, index), loader->options.context, tokens, &cut);
  if (status != STATUS_OK) return status_wrap(status, "text %lld, \"%.40s\"", (long long)index + 1, text);
  loader->facts.cut += cut;
  if ((int64_t)(tokens->count - first) > loader->facts.width) loader->facts.width = (int64_t)(tokens->count - first);
  return STATUS_OK;
}

void text_loader_choose(const LabelledText *set, int64_t count, int32_t *chosen) {
  const int64_t all = text_labels_count(set);
  Rng rng;
  for (int64_t i = 0; i < all; i++) chosen[i] = (int32_t)i;
  if (count == all || !text_labels_are_grouped(set)) return;
  rng_init(&rng, text_key, 0);
  rng_shuffle(&rng, chosen, all);
  qsort(chosen, (size_t)count, sizeof *chosen, by_number);
}

static Status encode_all(TextLoader *loader, const LabelledText *set, const TextEncoder *encoder) {
  size_t count = (size_t)loader->facts.samples;
  int32_t *chosen = malloc((size_t)text_labels_count(set) * sizeof *chosen);
  loader->begin = malloc((count + 1) * sizeof *loader->begin);
  loader->labels = malloc(count * sizeof *loader->labels);
  loader->order = malloc(count * sizeof *loader->order);
  Status status =
      loader->begin && loader->labels && loader->order && chosen ? STATUS_OK : status_no_memory(NULL, "the tokens of labelled texts");
  if (status == STATUS_OK) text_loader_choose(set, loader->facts.samples, chosen);
  for (size_t i = 0; i < count && status == STATUS_OK; i++) status = encode_text(loader, set, encoder, (int64_t)i, chosen[i]);
  if (status == STATUS_OK) loader->begin[count] = loader->tokens.count;
  free(chosen);
  return status;
}

/* Order [begin, end) by length, equal ones as they stand. */
static void sort_by_length(TextLoader *loader, int64_t begin, int64_t end) {
  int32_t *order = loader->order, *places = loader->places;
  memset(places, 0, ((size_t)loader->facts.width + 2) * sizeof *places);
  for (int64_t i = begin; i < end; i++) places[length_of(loader, order[i]) + 1]++;
  for (int64_t length = 0; length < loader->facts.width; length++) places[length + 1] += places[length];
  for (int64_t i = begin; i < end; i++) loader->spare[places[length_of(loader, order[i])]++] = order[i];
  memcpy(order + begin, loader->spare, (size_t)(end - begin) * sizeof *order);
}

/* How many batches there are, and room for them and for what says where each begins. */
static Status divide(TextLoader *loader) {
  const TextLoaderOptions *options = &loader->options;
  TextLoaderFacts *facts = &loader->facts;
  TextBatch *batch = &loader->batch;
  size_t rows = (size_t)options->batch, width = (size_t)facts->width;
  loader->spare = malloc((size_t)facts->samples * sizeof *loader->spare);
  loader->places = malloc((width + 2) * sizeof *loader->places);
  if (!loader->spare || !loader->places) return status_no_memory(NULL, "the tokens of labelled texts");
  in_file_order(loader);
  if (options->one_length) sort_by_length(loader, 0, facts->samples);
  for (int64_t at = 0; at < facts->samples; at = end_of_batch(loader, at)) facts->steps++;
  if (options->drop_last && facts->samples % options->batch != 0) facts->steps--;
  loader->first = malloc((size_t)facts->steps * sizeof *loader->first);
  batch->ids = rows <= SIZE_MAX / sizeof *batch->ids / width ? malloc(rows * width * sizeof *batch->ids) : NULL;
  batch->lengths = malloc(rows * sizeof *batch->lengths);
  batch->labels = malloc(rows * sizeof *batch->labels);
  return loader->first && batch->ids && batch->lengths && batch->labels ? STATUS_OK
                                                                        : status_no_memory(NULL, "the tokens of labelled texts");
}

static Status check_texts(const TextLoader *loader) {
  const TextLoaderOptions *options = &loader->options;
  if (options->context < 1)
    return status_set(STATUS_BAD_VALUE, "a context of %lld tokens; at least 1 is needed", (long long)options->context);
  if (options->batch < 1 || options->batch > MAX_BATCH)
    return status_set(STATUS_BAD_VALUE, "a batch of %d texts; 1 to %d are possible", options->batch, MAX_BATCH);
  if (options->pool < 0 || (options->one_length && (options->shuffle || options->drop_last)))
    return status_set(STATUS_BAD_VALUE, "texts of one length come in order, all of them, and pools have 0 or more batches");
  if (options->drop_last && loader->facts.samples < options->batch)
    return status_set(STATUS_BAD_VALUE, "the set has %lld texts, fewer than a batch of %d; make the batch smaller",
                      (long long)loader->facts.samples, options->batch);
  return STATUS_OK;
}

Status text_loader_labelled(TextLoader **loader, const LabelledText *set, const TextEncoder *encoder, const TextLoaderOptions *options) {
  *loader = NULL;
  TextLoader *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "the tokens of labelled texts");
  *fresh = (TextLoader){.options = *options, .facts = {.samples = text_labels_count(set)}, .order_epoch = -1};
  if (options->max > 0 && options->max < fresh->facts.samples) fresh->facts.samples = options->max;
  Status status = check_texts(fresh);
  if (status == STATUS_OK) status = encode_all(fresh, set, encoder);
  if (status == STATUS_OK) status = divide(fresh);
  if (status == STATUS_OK)
    *loader = fresh;
  else
    text_loader_free(fresh);
  return status;
}

static void order_texts(TextLoader *loader) {
  Rng rng;
  rng_init(&rng, loader->options.seed ^ text_key, (uint64_t)loader->epoch);
  in_file_order(loader);
  if (loader->options.one_length) sort_by_length(loader, 0, loader->facts.samples);
  if (loader->options.shuffle) rng_shuffle(&rng, loader->order, loader->facts.samples);
  for (int64_t step = 0, at = 0; step < loader->facts.steps; step++, at = end_of_batch(loader, at)) loader->first[step] = (int32_t)at;
  if (!loader->options.shuffle || loader->options.pool <= 0) return;
  /* Texts of a pool by their length, then the batches, which a pool would else begin with its short ones, in any order. What fills no batch
   * stays random and the last. */
  int64_t whole = loader->facts.samples / loader->options.batch, texts = whole * loader->options.batch;
  int64_t pool = (int64_t)loader->options.pool * loader->options.batch;
  for (int64_t begin = 0; begin < texts; begin += pool) sort_by_length(loader, begin, begin + pool < texts ? begin + pool : texts);
  rng_shuffle(&rng, loader->first, whole);
}

static void fill_text(TextLoader *loader, int row, int32_t text) {
  size_t width = (size_t)loader->facts.width, length = length_of(loader, text);
  int32_t *ids = loader->batch.ids + (size_t)row * width;
  memcpy(ids, loader->tokens.ids + loader->begin[text], length * sizeof *ids);
  memset(ids + length, 0, (width - length) * sizeof *ids);
  loader->batch.lengths[row] = (int32_t)length;
  loader->batch.labels[row] = loader->labels[text];
}

/* ---- The next batch ---- */

void text_loader_next(TextLoader *loader, TextBatch *batch) {
  bool windows = loader->cache != NULL;
  if (loader->order_epoch != loader->epoch) (windows ? order_windows : order_texts)(loader);
  loader->order_epoch = loader->epoch;
  int64_t begin = windows ? loader->step * loader->options.batch : loader->first[loader->step];
  int64_t whole = end_of_batch(loader, begin) - begin, first = share_begin(whole, loader->share),
          longest = windows ? loader->facts.width : 0;
  for (int64_t i = begin; !windows && i < begin + whole; i++) {
    int64_t length = (int64_t)length_of(loader, loader->order[i]);
    if (length > longest) longest = length;
  }
  *batch = loader->batch;
  batch->whole = (int)whole;
  batch->first = (int)first;
  batch->count = (int)(share_end(whole, loader->share) - first);
  batch->longest = longest;
  batch->epoch = loader->epoch;
  batch->step = loader->step;
  batch->last = loader->step == loader->facts.steps - 1;
  for (int i = 0; i < batch->count; i++) (windows ? fill_window : fill_text)(loader, i, loader->order[begin + first + i]);
  loader->epoch += batch->last;
  loader->step = batch->last ? 0 : loader->step + 1;
}
