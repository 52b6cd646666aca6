/* Windows of a running text as a source of samples, and their perplexities: see task_windows.h. Training takes shuffled windows; the test
 * part is gone through in order, so that each token but the first is predicted once, in batches of windows of one length. */
#include "train/task_windows.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/text/text_loader.h"
#include "data/text/text_source.h"
#include "train/task_source_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_DRAWN = 33, DRAWN_WINDOWS = 1 << 20 };

/* The state of source_windows. */
typedef struct Language {
  TokenCache *cache[TASK_PARTS]; /* the training part's is made when it is wanted */
  char *about[TASK_PARTS];       /* one line for people */
  TextLoader *loader;            /* of the training part */
  TextWindows windows;           /* of the test part, */
  RollingText rolling;           /* of documents by themselves with PERPLEXITY_LM_EVAL, where the test part has no cache */
  int64_t next;                  /* of these windows */
  int32_t *ids, *labels;         /* [B, T] of a test batch */
  Rng rng;                       /* of drawn windows */
} Language;

static Status open_language(Session *session) {
  const TrainOptions *options = &session->options;
  session->source = calloc(1, sizeof(Language));
  if (session->source == NULL) return status_no_memory(NULL, "a text");
  TRY(task_source_refuse_image_options(options));
  if (options->eval_dataset != NULL && !text_source_knows(options->eval_dataset))
    return status_set(STATUS_BAD_USAGE, "--eval-dataset %s: text:PATH and text-lines:PATH are accepted", options->eval_dataset);
  if (!options->drawn) return task_source_open_tokenizer(session);
  session->data = (TaskData){.about = {"random tokens", "random tokens"}, .count = {DRAWN_WINDOWS, DRAWN_WINDOWS}};
  return STATUS_OK;
}

static Status configure_windows(Session *session, ModelConfig *config) {
  if (session->options.validation_part > 0)
    return status_set(STATUS_BAD_USAGE, "--validation-part is for images and labelled texts: a text has a validation part already, or name "
                                        "one with --eval-dataset");
  if (session->options.train_part > 0)
    return status_set(STATUS_BAD_USAGE, "--train-part is for images and labelled texts: name the text to learn from with --dataset");
  if (config->classes > 0)
    return status_set(STATUS_BAD_VALUE, "--model %s classifies texts: it has no head that predicts tokens", session->options.model);
  if (session->tokenizer != NULL) TRY(task_source_configure_tokens(session, config));
  return task_source_choose_context(session, config, &session->tokens);
}

static Status open_text(TextSource **source, const TrainOptions *options, TaskPart part) {
  if (part == TASK_TRAIN) return text_source_open(source, options->dataset, options->data_dir, TEXT_TRAIN);
  bool apart = options->eval_dataset != NULL, chosen = options->test_part != SESSION_PART_AUTO;
  TextPart wanted = chosen ? (TextPart)options->test_part : apart ? TEXT_WHOLE : TEXT_VALID;
  return text_source_open(source, apart ? options->eval_dataset : options->dataset, options->data_dir, wanted);
}

/* The tokens of a part, from its cache or into it. */
static Status open_tokens(Session *session, TaskPart part) {
  const TrainOptions *options = &session->options;
  Language *language = session->source;
  TextSource *source;
  TextEncoder encoder;
  TRY(open_text(&source, options, part));
  Status status = tokenizer_encoder(&encoder, session->tokenizer);
  if (status == STATUS_OK)
    status = token_cache_open(&language->cache[part], source, &encoder, &(TokenCacheOptions){.quiet = options->quiet});
  if (status == STATUS_OK) {
    const TokenCacheFacts *facts = token_cache_facts(language->cache[part]);
    char text[512];
    snprintf(text, sizeof text, "%s, %lld tokens", text_source_describe(source), (long long)facts->tokens);
    language->about[part] = strdup(text);
    session->data.about[part] = language->about[part];
    session->data.bytes += (size_t)facts->tokens * (size_t)facts->width;
    session->data.digest[part] = hash_signed(hash_add(HASH_BEGIN, facts->content, sizeof facts->content));
    if (language->about[part] == NULL) status = status_no_memory(NULL, "a data set's description");
  }
  text_source_close(source);
  return status;
}

static Status open_training(Session *session) {
  const TrainOptions *options = &session->options;
  Language *language = session->source;
  TRY(open_tokens(session, TASK_TRAIN));
  session->data.count[TASK_TRAIN] = text_loader_count_windows(language->cache[TASK_TRAIN], session->tokens, true);
  session_choose_batch(session);
  TextLoaderOptions loading = {.context = session->tokens,
                               .batch = (int)options->batch,
                               .shuffle = true,
                               .drop_last = session->use != SESSION_LOOK,
                               .seed = (uint64_t)options->seed};
  Status status = text_loader_windows(&language->loader, language->cache[TASK_TRAIN], &loading);
  if (status != STATUS_OK) return status_wrap(status, "--dataset %s, %s", options->dataset, language->about[TASK_TRAIN]);
  session->data.steps = text_loader_facts(language->loader)->steps;
  return STATUS_OK;
}

static Status open_rolling(Session *session) {
  Language *language = session->source;
  TextSource *source;
  char text[512];
  if (session->options.stride > 0)
    return status_set(STATUS_BAD_USAGE, "--stride cannot be combined with --perplexity lm-eval, whose windows follow from --context");
  TRY(open_text(&source, &session->options, TASK_TEST));
  Status status = rolling_text_read(&language->rolling, source, session->tokenizer, session->tokens);
  snprintf(text, sizeof text, "%s, %lld page%s, %lld tokens", text_source_describe(source), (long long)language->rolling.documents,
           text_plural(language->rolling.documents), (long long)language->rolling.tokens);
  text_source_close(source);
  TRY(status);
  text_windows_roll(&language->windows, &language->rolling);
  session->data.about[TASK_TEST] = language->about[TASK_TEST] = strdup(text);
  session->data.bytes += language->rolling.ids.count * sizeof(int32_t);
  return language->about[TASK_TEST] ? STATUS_OK : status_no_memory(NULL, "a data set's description");
}

static Status open_test(Session *session) {
  const TrainOptions *options = &session->options;
  Language *language = session->source;
  if (options->perplexity == PERPLEXITY_LM_EVAL) return open_rolling(session);
  int64_t stride = options->stride > 0 ? options->stride : session->tokens;
  TRY(open_tokens(session, TASK_TEST));
  int64_t tokens = token_cache_facts(language->cache[TASK_TEST])->tokens;
  if (tokens <= session->tokens)
    return status_set(STATUS_BAD_VALUE,
                      "%s: a window of --context %lld and the token behind it do not fit; shorten the context or give more text",
                      language->about[TASK_TEST], (long long)session->tokens);
  if (stride > session->tokens)
    return status_set(STATUS_BAD_USAGE, "--stride %lld is longer than the context of %lld tokens: some tokens would not be seen",
                      (long long)stride, (long long)session->tokens);
  return text_windows_init(&language->windows, language->cache[TASK_TEST], session->tokens, stride);
}

/* Data, and with it the batch. */
static Status open_windows(Session *session) {
  const Language *language = session->source;
  if (session->options.drawn) {
    session->data.steps = DRAWN_WINDOWS / session->options.batch;
    return STATUS_OK;
  }
  TRY(open_test(session));
  session->data.count[TASK_TEST] = language->windows.count;
  if (session->use != SESSION_EVALUATE) return open_training(session);
  session->data.about[TASK_TRAIN] = session->data.about[TASK_TEST];
  return STATUS_OK;
}

static Status start_windows(Session *session) {
  Language *language = session->source;
  TRY(open_windows(session));
  size_t numbers = (size_t)(session->options.batch * session->tokens);
  language->ids = malloc(numbers * sizeof *language->ids);
  language->labels = malloc(numbers * sizeof *language->labels);
  if (language->ids == NULL || language->labels == NULL) return status_no_memory(NULL, "a batch of text");
  session->data.bytes += 4 * numbers * sizeof(int32_t); /* ids and labels, of both parts */
  rng_init(&language->rng, (uint64_t)session->options.seed, STREAM_DRAWN);
  return STATUS_OK;
}

static void close_language(Session *session) {
  Language *language = session->source;
  if (language == NULL) return;
  text_loader_free(language->loader);
  for (int part = 0; part < TASK_PARTS; part++) {
    token_cache_close(language->cache[part]);
    free(language->about[part]);
  }
  rolling_text_release(&language->rolling);
  free(language->ids);
  free(language->labels);
  free(language);
}

static Status seek_windows(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  Language *language = session->source;
  if (session->options.drawn) return STATUS_OK;
  if (part == TASK_TRAIN) text_loader_share(language->loader, session->share);
  if (part == TASK_TRAIN) return text_loader_seek(language->loader, epoch, step);
  language->next = step * session->options.batch;
  return STATUS_OK;
}

static void next_learnt(Session *session, TaskBatch *batch) {
  TextBatch windows;
  text_loader_next(((Language *)session->source)->loader, &windows);
  *batch = (TaskBatch){.count = windows.count,
                       .first = windows.first,
                       .whole = windows.whole,
                       .tokens = session->tokens,
                       .ids = windows.ids,
                       .labels = windows.labels};
}

static void next_tested(Session *session, TaskBatch *batch) {
  Language *language = session->source;
  const TextWindows *windows = &language->windows;
  if (language->next >= windows->count) language->next = 0;
  const int64_t whole = text_windows_alike(windows, language->next, session->options.batch);
  const int64_t tokens = task_source_width(session, text_windows_rows(windows, language->next));
  const int64_t first = share_begin(whole, session->share), end = share_end(whole, session->share);
  *batch = (TaskBatch){.count = (int)(end - first),
                       .first = (int)first,
                       .whole = (int)whole,
                       .tokens = tokens,
                       .ids = language->ids,
                       .labels = language->labels};
  for (int64_t i = first; i < end; i++)
    text_windows_fill(windows, language->next + i, tokens, language->ids + (i - first) * tokens, language->labels + (i - first) * tokens);
  language->next += whole;
}

static void next_drawn(Session *session, TaskBatch *batch) {
  Language *language = session->source;
  int64_t rows = session->options.batch * session->tokens;
  for (int64_t row = 0; row < rows; row++) language->ids[row] = (int32_t)rng_below(&language->rng, (uint64_t)session->config->vocabulary);
  for (int64_t row = 0; row < rows; row++) language->labels[row] = language->ids[(row + 1) % rows];
  *batch = (TaskBatch){.count = (int)session->options.batch,
                       .whole = (int)session->options.batch,
                       .tokens = session->tokens,
                       .ids = language->ids,
                       .labels = language->labels};
}

static Status next_windows(Session *session, TaskPart part, TaskBatch *batch) {
  (session->options.drawn ? next_drawn : part == TASK_TRAIN ? next_learnt : next_tested)(session, batch);
  batch->units = batch->count * batch->tokens;
  return STATUS_OK;
}

/* The test part's last window may be short, and so may be the pages of PERPLEXITY_LM_EVAL. */
static int64_t rows_of_windows(const Session *session, TaskPart part, int64_t max) {
  const TextWindows *windows = &((const Language *)session->source)->windows;
  int64_t rows = 0;
  if (part == TASK_TRAIN || session->options.drawn) return session->data.count[part] * (session->tokens < max ? session->tokens : max);
  for (int64_t i = 0; i < windows->count; i++) {
    const int64_t of = text_windows_rows(windows, i);
    rows += of < max ? of : max;
  }
  return rows;
}

enum { SHOWN_OF_WINDOW = 400 /* bytes */ };

/* The beginning of the first batch, as it will be learnt. */
static Status show_window(Session *session, bool json, char **shown) {
  TaskBatch batch;
  char *text;
  size_t size;
  *shown = NULL;
  if (json || session->options.drawn) return STATUS_OK;
  TRY(seek_windows(session, TASK_TRAIN, 0, 0));
  TRY(next_windows(session, TASK_TRAIN, &batch));
  TRY(tokenizer_decode(session->tokenizer, batch.ids, (size_t)session->tokens, &text, &size));
  Status status = task_source_show_excerpt("first window", text, size, SHOWN_OF_WINDOW);
  free(text);
  return status;
}

Status task_windows_perplexity_check(const Session *session) {
  PerplexityUnit unit = (PerplexityUnit)session->options.perplexity;
  int64_t samples = session->options.eval_samples;
  if (unit == PERPLEXITY_AUTO || samples <= 0) return STATUS_OK;
  return perplexity_check_whole(unit, &((const Language *)session->source)->windows, samples, "--eval-samples");
}

Status task_windows_perplexity(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result) {
  const TextWindows *windows = &((const Language *)session->source)->windows;
  TRY(perplexity_check_whole(unit, windows, score->samples, "--eval-samples"));
  *result = perplexity_of(unit, windows, score->loss, score->items, score->bytes);
  return STATUS_OK;
}

const TaskSource source_windows = {.name = {.units = "tokens", .samples = "windows", .sample = "window", .test = "valid"},
                                   .defaults = {.batch = 8, .epochs = 1, .min_steps = 200},
                                   .texts = true,
                                   .open = open_language,
                                   .configure = configure_windows,
                                   .start = start_windows,
                                   .close = close_language,
                                   .seek = seek_windows,
                                   .next = next_windows,
                                   .rows = rows_of_windows,
                                   .show = show_window};
