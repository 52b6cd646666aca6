/* The next token of a text: see task.h. Training takes shuffled windows; the test part goes through windows in order, so that each token
 * but the first is predicted once. */
#include "train/task_language.h"
#include "base/gguf.h"
#include "base/printable.h"
#include "data/data_paths.h"
#include "data/text/text_loader.h"
#include "data/text/text_perplexity.h"
#include "data/tokenizer/tokenizer.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The tokenizer of a run ---- */

enum { PADDING_MAX = 256 }; /* rows by which a token table may be longer than the vocabulary, to fill a multiple of a power of two */

/* Whether the directory has one; *tokenizer stays NULL where it has none. */
static Status try_directory(const char *directory, Tokenizer **tokenizer) {
  if (directory == NULL || !checkpoint_is_path(directory)) return STATUS_OK;
  Status status = tokenizer_open(tokenizer, directory);
  return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Beside weights: in their directory, in that of their file, or within it. */
static Status try_beside(const char *weights, Tokenizer **tokenizer) {
  if (weights == NULL || !files_exists(weights)) return STATUS_OK; /* such as "random" */
  if (gguf_is_file(weights)) return try_directory(weights, tokenizer);
  char *folder = files_folder(weights);
  Status status = folder != NULL ? try_directory(folder, tokenizer) : status_set(STATUS_NO_MEMORY, "no memory");
  free(folder);
  return status;
}

static Status try_installed(const TrainOptions *options, Tokenizer **tokenizer) {
  char *found = NULL;
  if (checkpoint_is_path(options->model)) return STATUS_OK;
  if (data_paths_find("checkpoints", options->model, options->data_dir, &found) != STATUS_OK) return STATUS_OK;
  Status status = try_directory(found, tokenizer);
  free(found);
  return status;
}

Status task_tokenizer_open(const Session *session, Tokenizer **tokenizer) {
  const TrainOptions *options = &session->options;
  *tokenizer = NULL;
  if (options->tokenizer != NULL) {
    Status status = tokenizer_open(tokenizer, options->tokenizer);
    return status == STATUS_OK ? status : status_wrap(status, "--tokenizer %s", options->tokenizer);
  }
  TRY(try_beside(options->init, tokenizer));
  if (*tokenizer == NULL) TRY(try_directory(options->model, tokenizer));
  if (*tokenizer == NULL) TRY(try_installed(options, tokenizer));
  if (*tokenizer != NULL) return STATUS_OK;
  return status_set(
      STATUS_NOT_FOUND,
      "there is no tokenizer beside %s: name one with --tokenizer DIR or FILE, get one with `astra-data get gpt2`, or make one "
      "with `astra-data tokenizer`",
      options->init != NULL && files_exists(options->init) ? options->init : options->model);
}

/* ---------------------------------------------------------------- the model's side */

static bool from_scratch(const TrainOptions *options) {
  return !checkpoint_is_path(options->model) && options->init != NULL && strcmp(options->init, "random") == 0;
}

Status task_tokenizer_configure(const Session *session, const Tokenizer *tokenizer, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  int64_t count = tokenizer_count(tokenizer);
  int32_t begin = tokenizer_begin(tokenizer), end = tokenizer_end(tokenizer);
  if (from_scratch(options)) {
    config->vocabulary = count;
    config->begin_id = -1;
    config->end_ids = 0;
  }
  if (count > config->vocabulary || config->vocabulary - count >= PADDING_MAX)
    return status_set(STATUS_BAD_VALUE,
                      "the tokenizer%s%s has %lld tokens, but the model %s has a vocabulary of %lld: they do not belong together; give the "
                      "model's own with --tokenizer, or train from scratch with --init random",
                      options->tokenizer ? " " : "", options->tokenizer ? options->tokenizer : "", (long long)count, options->model,
                      (long long)config->vocabulary);
  if (config->begin_id < 0) config->begin_id = begin;
  if (config->end_ids > 0) return STATUS_OK;
  config->end_ids = end >= 0;
  config->end_id[0] = end;
  return STATUS_OK;
}

Status task_tokenizer_context(const Session *session, ModelConfig *config, int64_t *context) {
  const TrainOptions *options = &session->options;
  *context = options->context > 0 ? options->context : config->context;
  if (from_scratch(options)) config->context = *context; /* positions that no window reaches would stay as they were drawn */
  if (*context <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--context %lld: the model %s takes at most %lld tokens", (long long)*context, options->model,
                    (long long)config->context);
}

Status task_tokenizer_refuse_images(const TrainOptions *options) {
  const struct {
    bool given;
    const char *name;
  } list[] = {{options->image_size > 0, "image-size"},
              {options->mixup > 0, "mixup"},
              {options->crop_min > 0, "crop-least"},
              {options->patch_drop > 0, "patch-drop"},
              {options->class_token == CLASS_SINGLE, "class-token"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i].given)
      return status_set(STATUS_BAD_USAGE, "--%s is for images; --model %s learns from texts", list[i].name, options->model);
  return STATUS_OK;
}

/* ---- The task ---- */

enum { STREAM_DRAWN = 33, DRAWN_WINDOWS = 1 << 20 };

typedef struct Language {
  Tokenizer *tokenizer;
  TokenCache *cache[TASK_PARTS]; /* the training part's is made when it is wanted */
  char *about[TASK_PARTS];
  TextLoader *loader;    /* of the training part */
  TextWindows windows;   /* of the test part, */
  RollingText rolling;   /* of documents by themselves with PERPLEXITY_LM_EVAL, where the test part has no cache */
  int64_t next;          /* of these windows */
  int32_t *ids, *labels; /* [B, T] of a test batch */
  Rng rng;               /* of drawn windows */
} Language;

static Language *own(const Session *session) { return session->data; }

/* ---------------------------------------------------------------- opening */

static Status check_eval_dataset(const TrainOptions *options) {
  if (options->eval_dataset == NULL || text_source_knows(options->eval_dataset)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--eval-dataset %s: text:PATH and text-lines:PATH are accepted", options->eval_dataset);
}

static Status open_tokenizer(Session *session) {
  Language *language = session->data = calloc(1, sizeof *language);
  if (language == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  TRY(task_tokenizer_refuse_images(&session->options));
  TRY(check_eval_dataset(&session->options));
  return session->options.drawn ? STATUS_OK : task_tokenizer_open(session, &language->tokenizer);
}

static Status configure(Session *session, ModelConfig *config) {
  if (session->options.validation_part > 0)
    return status_set(STATUS_BAD_USAGE, "--validation-part is for images and labelled texts: a text has a validation part already, or name "
                                        "one with --eval-dataset");
  if (config->classes > 0)
    return status_set(STATUS_BAD_VALUE, "--model %s classifies texts: it has no head that predicts tokens", session->options.model);
  if (own(session)->tokenizer != NULL) TRY(task_tokenizer_configure(session, own(session)->tokenizer, config));
  return task_tokenizer_context(session, config, &session->tokens);
}

static Status open_source(TextSource **source, const TrainOptions *options, TaskPart part) {
  if (part == TASK_TRAIN) return text_source_open(source, options->dataset, options->data_dir, TEXT_TRAIN);
  bool apart = options->eval_dataset != NULL, chosen = options->test_part != SESSION_PART_AUTO;
  TextPart wanted = chosen ? (TextPart)options->test_part : apart ? TEXT_WHOLE : TEXT_VALID;
  return text_source_open(source, apart ? options->eval_dataset : options->dataset, options->data_dir, wanted);
}

static Status open_part(Session *session, TaskPart part) {
  const TrainOptions *options = &session->options;
  Language *language = own(session);
  TextSource *source;
  TextEncoder encoder;
  TRY(open_source(&source, options, part));
  Status status = tokenizer_encoder(&encoder, language->tokenizer);
  if (status == STATUS_OK)
    status = token_cache_open(&language->cache[part], source, &encoder, &(TokenCacheOptions){.quiet = options->quiet});
  if (status == STATUS_OK) {
    char text[512];
    snprintf(text, sizeof text, "%s, %lld tokens", text_source_describe(source),
             (long long)token_cache_facts(language->cache[part])->tokens);
    language->about[part] = strdup(text);
    if (language->about[part] == NULL) status = status_set(STATUS_NO_MEMORY, "no memory");
  }
  text_source_close(source);
  return status;
}

static Status open_training(Session *session) {
  const TrainOptions *options = &session->options;
  Language *language = own(session);
  TRY(open_part(session, TASK_TRAIN));
  TextLoaderOptions loading = {
      .context = session->tokens, .batch = (int)options->batch, .shuffle = true, .drop_last = true, .seed = (uint64_t)options->seed};
  Status status = text_loader_windows(&language->loader, language->cache[TASK_TRAIN], &loading);
  return status == STATUS_OK ? status : status_wrap(status, "--dataset %s, %s", options->dataset, language->about[TASK_TRAIN]);
}

static Status open_rolling(Session *session) {
  Language *language = own(session);
  TextSource *source;
  char text[512];
  if (session->options.stride > 0)
    return status_set(STATUS_BAD_USAGE, "--stride cannot be combined with --perplexity lm-eval, whose windows follow from --context");
  TRY(open_source(&source, &session->options, TASK_TEST));
  Status status = rolling_text_read(&language->rolling, source, language->tokenizer, session->tokens);
  snprintf(text, sizeof text, "%s, %lld pages, %lld tokens", text_source_describe(source), (long long)language->rolling.documents,
           (long long)language->rolling.tokens);
  text_source_close(source);
  TRY(status);
  text_windows_roll(&language->windows, &language->rolling);
  language->about[TASK_TEST] = strdup(text);
  return language->about[TASK_TEST] ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

static Status open_test(Session *session) {
  const TrainOptions *options = &session->options;
  Language *language = own(session);
  if (options->perplexity == PERPLEXITY_LM_EVAL) return open_rolling(session);
  int64_t stride = options->stride > 0 ? options->stride : session->tokens;
  TRY(open_part(session, TASK_TEST));
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

static Status start(Session *session) {
  Language *language = own(session);
  size_t numbers = (size_t)(session->options.batch * session->tokens);
  language->ids = malloc(numbers * sizeof *language->ids);
  language->labels = malloc(numbers * sizeof *language->labels);
  if (language->ids == NULL || language->labels == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a batch of text");
  rng_init(&language->rng, (uint64_t)session->options.seed, STREAM_DRAWN);
  if (session->options.drawn) return STATUS_OK;
  TRY(open_test(session));
  return session->use == SESSION_EVALUATE ? STATUS_OK : open_training(session);
}

static void close_texts(Session *session) {
  Language *language = own(session);
  if (language == NULL) return;
  text_loader_free(language->loader);
  for (int part = 0; part < TASK_PARTS; part++) {
    token_cache_close(language->cache[part]);
    free(language->about[part]);
  }
  rolling_text_release(&language->rolling);
  tokenizer_close(language->tokenizer);
  free(language->ids);
  free(language->labels);
  free(language);
}

/* ---------------------------------------------------------------- batches */

static const char *describe(const Session *session, TaskPart part) {
  const Language *language = own(session);
  if (session->options.drawn) return "random tokens";
  return language->about[part] ? language->about[part] : language->about[TASK_TEST];
}

static int64_t count(const Session *session, TaskPart part) {
  if (session->options.drawn) return DRAWN_WINDOWS;
  const Language *language = own(session);
  if (part == TASK_TRAIN) return language->loader ? text_loader_facts(language->loader)->samples : 0;
  return language->windows.count;
}

static int64_t steps(const Session *session) {
  return session->options.drawn ? DRAWN_WINDOWS / session->options.batch : text_loader_facts(own(session)->loader)->steps;
}

static Status seek(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  if (session->options.drawn) return STATUS_OK;
  if (part == TASK_TRAIN) text_loader_share(own(session)->loader, session->share);
  if (part == TASK_TRAIN) return text_loader_seek(own(session)->loader, epoch, step);
  own(session)->next = step * session->options.batch;
  return STATUS_OK;
}

static void next_learnt(Session *session, TaskBatch *batch) {
  TextBatch windows;
  text_loader_next(own(session)->loader, &windows);
  *batch =
      (TaskBatch){.count = windows.count, .first = windows.first, .whole = windows.whole, .ids = windows.ids, .labels = windows.labels};
}

static void next_tested(Session *session, TaskBatch *batch) {
  Language *language = own(session);
  int64_t tokens = session->tokens;
  if (language->next >= language->windows.count) language->next = 0;
  int64_t left = language->windows.count - language->next, whole = left < session->options.batch ? left : session->options.batch;
  int64_t first = share_begin(whole, session->share), end = share_end(whole, session->share);
  *batch =
      (TaskBatch){.count = (int)(end - first), .first = (int)first, .whole = (int)whole, .ids = language->ids, .labels = language->labels};
  for (int64_t i = first; i < end; i++)
    text_windows_fill(&language->windows, language->next + i, language->ids + (i - first) * tokens,
                      language->labels + (i - first) * tokens);
  language->next += whole;
}

static void next_drawn(Session *session, TaskBatch *batch) {
  Language *language = own(session);
  int64_t rows = session->options.batch * session->tokens;
  for (int64_t row = 0; row < rows; row++) language->ids[row] = (int32_t)rng_below(&language->rng, (uint64_t)session->config->vocabulary);
  for (int64_t row = 0; row < rows; row++) language->labels[row] = language->ids[(row + 1) % rows];
  *batch = (TaskBatch){
      .count = (int)session->options.batch, .whole = (int)session->options.batch, .ids = language->ids, .labels = language->labels};
}

static Status next(Session *session, TaskPart part, TaskBatch *batch) {
  (session->options.drawn ? next_drawn : part == TASK_TRAIN ? next_learnt : next_tested)(session, batch);
  batch->tokens = session->tokens;
  batch->units = batch->count * session->tokens;
  return STATUS_OK;
}

static size_t bytes(const Session *session) {
  size_t sum = 4 * (size_t)(session->options.batch * session->tokens) * sizeof(int32_t); /* ids and labels, of both parts */
  for (int part = 0; part < TASK_PARTS; part++) {
    const TokenCache *cache = own(session)->cache[part];
    if (cache != NULL) sum += (size_t)token_cache_facts(cache)->tokens * (size_t)token_cache_facts(cache)->width;
  }
  return sum + own(session)->rolling.ids.count * sizeof(int32_t);
}

/* ---------------------------------------------------------------- the model */

/* Bytes of text behind the label of a row, to say how many bits a byte takes; drawn tokens stand for none. */
static size_t label_bytes(const Language *language, const TaskBatch *batch, int64_t row) {
  return language->tokenizer != NULL ? tokenizer_text_bytes(language->tokenizer, batch->ids[row], batch->labels[row]) : 0;
}

/* Sums over the labels that count. While training, the mean that the loss is tells enough. */
static void fill_score(const Language *language, const TaskBatch *batch, int64_t tokens, const real *row_loss, double mean,
                       TaskScore *score) {
  int64_t rows = batch->count * tokens;
  score->samples = batch->count;
  for (int64_t row = 0; row < rows; row++) {
    if (batch->labels[row] < 0) continue;
    score->items++;
    score->bytes += (int64_t)label_bytes(language, batch, row);
    if (row_loss != NULL) score->loss += (double)row_loss[row];
  }
  if (row_loss == NULL) score->loss = mean * (double)score->items;
}

static Tensor *loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  Tape *tape = session->tape;
  bool learning = tape_recording(tape);
  int64_t rows = batch->count * session->tokens;
  ModelInput input = task_input(tape, batch, session->config);
  VocabLoss options = {.labels = batch->labels,
                       .smoothing = learning ? session->options.smoothing : 0,
                       .correct = &score->correct,
                       .row_loss = learning ? NULL : tape_alloc(tape, (size_t)rows * sizeof(real))};
  Tensor *encoded = model_encode(session->model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
  Tensor *value = model_token_loss(session->model, tape, encoded, &options);
  if (value != NULL && !tape_planning(tape))
    fill_score(own(session), batch, session->tokens, options.row_loss, (double)value->value[0], score);
  return value;
}

static Tensor *answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, Tensor **kept) {
  ModelInput input = task_input(tape, batch, model_config(model));
  Tensor *encoded = model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
  *kept = model_token_loss(model, tape, encoded, &(VocabLoss){.labels = batch->labels});
  return *kept == NULL ? NULL : model_logits(model, tape, op_gather_rows(tape, encoded, layout->last_row, 1));
}

/* ---------------------------------------------------------------- reports */

static const char *const measures[] = {"perplexity", "bits_per_byte", NULL};

static void measure(const TaskScore *score, double values[TASK_MEASURES]) {
  values[0] = exp(task_mean_loss(score));
  values[1] = score->bytes > 0 ? score->loss / log(2) / (double)score->bytes : 0;
}

static void tell(const TaskScore *score, char text[TASK_TEXT]) {
  double values[TASK_MEASURES];
  measure(score, values);
  snprintf(text, TASK_TEXT, "perplexity %.2f a token (%.3f bits a byte)", values[0], values[1]);
}

enum { SHOWN = 400 /* bytes of text */ };

/* The beginning of the first batch, as it will be learnt. */
static Status show(Session *session, bool json, char **shown) {
  TaskBatch batch;
  char *text;
  size_t size;
  *shown = NULL;
  if (json || session->options.drawn) return STATUS_OK;
  TRY(seek(session, TASK_TRAIN, 0, 0));
  TRY(next(session, TASK_TRAIN, &batch));
  TRY(tokenizer_decode(own(session)->tokenizer, batch.ids, (size_t)session->tokens, &text, &size));
  char *excerpt = printable_excerpt(text, size, SHOWN);
  free(text);
  if (excerpt == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the first window");
  printf("first window: \"%s\"\n", excerpt);
  free(excerpt);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- what others ask */

const char *task_language_option(const TrainOptions *options) {
  if (options->perplexity != 0) return "perplexity";
  if (options->stride > 0) return "stride";
  if (options->test_part != SESSION_PART_AUTO) return "eval-part";
  return options->eval_dataset != NULL ? "eval-dataset" : NULL;
}

const TokenCacheFacts *task_language_facts(const Session *session) { return token_cache_facts(own(session)->cache[TASK_TEST]); }

const TextWindows *task_language_windows(const Session *session) { return &own(session)->windows; }

static Status save(const Session *session, const char *directory) { return tokenizer_save(own(session)->tokenizer, directory); }
static Status check_save(const Session *session, const char *directory) { return tokenizer_save_check(own(session)->tokenizer, directory); }

const Task task_language = {.unit = "tokens",
                            .sample = "windows",
                            .one = "window",
                            .test = "valid",
                            .measures = measures,
                            .decoder = true,
                            .batch = 8,
                            .epochs = 1,
                            .min_steps = 200,
                            .lower_is_better = true,
                            .open = open_tokenizer,
                            .configure = configure,
                            .start = start,
                            .close = close_texts,
                            .describe = describe,
                            .count = count,
                            .steps = steps,
                            .seek = seek,
                            .next = next,
                            .loss = loss,
                            .answer = answer,
                            .measure = measure,
                            .tell = tell,
                            .show = show,
                            .save = save,
                            .check_save = check_save,
                            .bytes = bytes};
