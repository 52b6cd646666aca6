/* The sources of samples: see task.h. First images; then the tokenizer of a run on texts, windows of a running text with their
 * perplexities, and labelled texts. Training on a running text takes shuffled windows; its test part is gone through in order, so that each
 * token but the first is predicted once, in batches of windows of one length. A batch of labelled texts is as wide as its longest; what is
 * shorter is padded on the right, where a causal model does not look. Training batches hold texts of similar lengths, those of the test
 * part texts of one length alone, so that the emulated devices share out each text as they would if it came alone. */
#include "train/task_source.h"
#include "base/gguf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "data/data_paths.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/text/text_loader.h"
#include "data/tokenizer/tokenizer_config.h"
#include "train/ranks.h"
#include "train/session.h"
#include "train/task.h"
#include <stdlib.h>
#include <string.h>

/* The name of an option that was given and means something for a running text alone ("stride"); NULL: none. */
static const char *option_of_windows(const TrainOptions *options) {
  if (options->perplexity != 0) return "perplexity";
  if (options->stride > 0) return "stride";
  if (options->test_part != SESSION_PART_AUTO) return "eval-part";
  return options->eval_dataset != NULL ? "eval-dataset" : NULL;
}

/* T of a batch of texts, the longest of which, in all ranks that share it, has `longest` tokens. A plan is for the longest of all; and each
 * device needs a token. */
static int64_t width_for(const Session *session, int64_t longest) {
  const int64_t width = session->options.groups > 0 ? session->options.devices[1] : 1;
  if (tape_planning(session->tape)) return session->tokens;
  return longest > width ? longest : width;
}

/* Of the training part: batches of one size in training; all samples, each once, where K-means and counts look at them. */
static bool drops_last(const Session *session, int64_t samples) {
  return session->use != SESSION_LOOK && samples >= session->options.batch;
}

/* ---- Images and their classes ---- */

typedef struct Images {
  Dataset *set[TASK_PARTS];
  LoaderOptions loading[TASK_PARTS];
  Loader *loader[TASK_PARTS];
} Images;

/* Names the options; train_share_choose refuses the same shares without knowing where they come from. */
static Status check_parts(const TrainOptions *options) {
  if (options->train_part == 0 || options->train_part > options->validation_part) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE,
                    "--train-part %lld: --validation-part %lld leaves nothing of it to learn from; more than that is accepted",
                    (long long)options->train_part, (long long)options->validation_part);
}

static Status open_images(Session *session) {
  const TrainOptions *options = &session->options;
  Images *images = session->source = calloc(1, sizeof *images);
  if (images == NULL) return status_no_memory(NULL, "images");
  const char *wrong = options->tokenizer ? "tokenizer" : options->context ? "context" : option_of_windows(options);
  if (wrong != NULL) return status_set(STATUS_BAD_USAGE, "--%s is for texts; --dataset %s holds images", wrong, options->dataset);
  const char *name = options->dataset, *directory = options->data_dir;
  const TrainShare learnt = {options->train_part, options->validation_part}, held_out = {.of = options->validation_part};
  TRY(check_parts(options));
  TRY(dataset_open_share(&images->set[TASK_TRAIN], name, directory, learnt));
  TRY(held_out.of > 0 ? dataset_open_share(&images->set[TASK_TEST], name, directory, held_out)
                      : dataset_open(&images->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = dataset_classes(images->set[TASK_TRAIN]);
  for (int part = 0; part < TASK_PARTS; part++) {
    session->data.about[part] = dataset_describe(images->set[part]);
    session->data.count[part] = dataset_count(images->set[part]);
  }
  return STATUS_OK;
}

static Status configure_images(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const Dataset *set = ((Images *)session->source)->set[TASK_TRAIN];
  if (options->image_size > 0) config->image = options->image_size;
  TRY(config_set_labels(config, dataset_labels(set), dataset_classes(set)));
  if (strcmp(options->model, "vit-cifar") == 0) dataset_mean_std(set, config->image_mean, config->image_std);
  config->astra.class_token = (ClassToken)options->class_token;
  config->astra.class_bias = session_class_bias(options);
  TRY(config_check_exchange(options->exchange_blocks, config->blocks));
  if (options->exchange_blocks >= 0)
    config->astra.exchange_blocks = options->exchange_blocks < config->blocks ? options->exchange_blocks : 0;
  if (options->groups == 0) config->astra.exchange_blocks = 0;
  if (config->image % config->patch != 0)
    return status_set(STATUS_BAD_USAGE, "--image-size %lld: patches of %lldx%lld do not divide it; a multiple of %lld is accepted",
                      (long long)config->image, (long long)config->patch, (long long)config->patch, (long long)config->patch);
  session->tokens = config_tokens(config);
  return STATUS_OK;
}

/* Images are mixed within a rank's share of a batch (task.c): where that is one image it has no other, and nothing would be mixed. A run
 * that goes on was accepted when it was begun. */
static Status check_mixing(const Session *session) {
  const TrainOptions *options = &session->options;
  const long long batch = (long long)session_batch(session), ranks = ranks_count();
  const bool mixup = options->mixup > 0, mixes = mixup || options->cutmix > 0;
  if (!mixes || options->resumed || batch >= 2 * ranks) return STATUS_OK;
  char more[64] = "";
  if (options->batch < 2 * ranks) snprintf(more, sizeof more, "--batch %lld or more, or ", 2 * ranks);
  return status_set(STATUS_BAD_USAGE, "--%s %g mixes pairs of images of %s, and %s %lld image%s: give %s--mixup 0 --cutmix 0",
                    mixup ? "mixup" : "cutmix", mixup ? options->mixup : options->cutmix,
                    ranks > 1 ? "each rank's share of a batch" : "a batch", *more ? "a batch has" : "there are only", batch,
                    text_plural(batch), more);
}

/* The first --eval-samples of a folder are those of its first classes: it is gone through in another order, which is the same for every
 * seed, so that figures can be compared. */
static void scatter_tested(const TrainOptions *options, Images *images) {
  LoaderOptions *tested = &images->loading[TASK_TEST];
  const Dataset *set = images->set[TASK_TEST];
  tested->shuffle = options->eval_samples > 0 && options->eval_samples < dataset_count(set) && dataset_is_grouped(set);
  if (tested->shuffle) tested->seed = 0;
}

static Status start_images(Session *session) {
  const TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  Images *images = session->source;
  LoaderOptions loading = {.image = (int)config->image,
                           .filter = (ResizeFilter)config->resample,
                           .batch = (int)options->batch,
                           .workers = (int)options->workers,
                           .seed = (uint64_t)options->seed};
  memcpy(loading.mean, config->image_mean, sizeof loading.mean);
  memcpy(loading.std, config->image_std, sizeof loading.std);
  images->loading[TASK_TEST] = images->loading[TASK_TRAIN] = loading;
  scatter_tested(options, images);
  LoaderOptions *learning = &images->loading[TASK_TRAIN];
  learning->shuffle = true;
  if (session->use == SESSION_TRAIN || session->use == SESSION_PLAN) { /* whose first batch is shown */
    Status status = augment_policy_parse(&learning->augment, options->augment);
    if (status != STATUS_OK) return status_set(STATUS_BAD_USAGE, "--augment %s", status_message());
    if (options->crop_min > 0 && learning->augment.kind == AUGMENT_NONE)
      return status_set(STATUS_BAD_USAGE, "--crop-min is for --augment: with --augment none images are not cropped");
    learning->erase = options->erase;
    TRY(check_mixing(session));
  }
  learning->crop_min = options->crop_min;
  images->loading[TASK_TEST].mark_broken = session->use != SESSION_LOOK; /* K-means takes any image for another */
  learning->drop_last = drops_last(session, dataset_count(images->set[TASK_TRAIN]));
  for (int part = 0; part < TASK_PARTS; part++) {
    TRY(loader_new(&images->loader[part], images->set[part], &images->loading[part]));
    session->data.bytes += loader_facts(images->loader[part]).bytes + dataset_mapped(images->set[part]);
    if (session->use == SESSION_TRAIN) session->data.digest[part] = hash_signed(dataset_digest(images->set[part]));
  }
  session->data.steps = loader_facts(images->loader[TASK_TRAIN]).steps;
  return STATUS_OK;
}

static void close_images(Session *session) {
  Images *images = session->source;
  for (int part = 0; images != NULL && part < TASK_PARTS; part++) {
    loader_free(images->loader[part]);
    dataset_close(images->set[part]);
  }
  free(images);
}

static Status seek_images(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  Loader *loader = ((Images *)session->source)->loader[part];
  loader_share(loader, session->share);
  return loader_seek(loader, epoch, step);
}

static Status next_images(Session *session, TaskPart part, TaskBatch *batch) {
  Batch images;
  TRY(loader_next(((Images *)session->source)->loader[part], &images));
  *batch = (TaskBatch){.count = images.count,
                       .first = images.first,
                       .whole = images.whole,
                       .tokens = session->tokens,
                       .units = images.count,
                       .pixels = images.pixels,
                       .labels = images.labels};
  return STATUS_OK;
}

/* Draws the first batch as it will be learnt. */
static Status draw_images(Session *session, bool json, char **shown) {
  Batch batch;
  Images *images = session->source;
  (void)json;
  *shown = files_join(session->options.out, "first_batch.png");
  if (*shown == NULL) return status_no_memory(NULL, "a path");
  TRY(files_make_dirs(session->options.out));
  TRY(loader_seek(images->loader[TASK_TRAIN], 0, 0));
  TRY(loader_next(images->loader[TASK_TRAIN], &batch));
  return loader_sheet(&batch, &images->loading[TASK_TRAIN], *shown);
}

/* Each broken image was named when it was met. */
static void warn_of_skipped(const Session *session) {
  const Images *images = session->source;
  long long train = (long long)loader_facts(images->loader[TASK_TRAIN]).skipped,
            test = (long long)loader_facts(images->loader[TASK_TEST]).skipped;
  if (train + test > 0)
    log_warning("%lld broken image%s of the training part and %lld of the %s part were skipped", train, text_plural(train), test,
                session_test_name(session));
}

const TaskSource source_images = {{"images", "images", "image", "test"},
                                  {.batch = 64, .epochs = 32, .min_steps = 400},
                                  false,
                                  open_images,
                                  configure_images,
                                  start_images,
                                  close_images,
                                  seek_images,
                                  next_images,
                                  NULL,
                                  draw_images,
                                  warn_of_skipped};

/* ---- The tokenizer of a run ---- */

enum { PADDING_MAX = 256 }; /* rows by which a token table may be longer than the vocabulary, to fill a multiple of a power of two */

/* The tokenizer at a path, and of a GGUF file what a chat needs: read now, so that a template that cannot be kept is refused before the
 * work. */
static Status open_at(Session *session, const char *path) {
  TRY(tokenizer_open(&session->tokenizer, path));
  session->tokenizer_place = strdup(path);
  if (session->tokenizer_place == NULL) return status_no_memory(NULL, "a path");
  return gguf_is_file(path) ? tokenizer_config_of_gguf(&session->chat, path) : STATUS_OK;
}

/* Whether the directory has one; session->tokenizer stays NULL where it has none. */
static Status try_directory(Session *session, const char *directory) {
  if (directory == NULL || !checkpoint_is_path(directory)) return STATUS_OK;
  Status status = open_at(session, directory);
  return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Beside weights: in their directory, in that of their file, or within it. */
static Status try_beside(Session *session, const char *weights) {
  if (weights == NULL || !files_exists(weights)) return STATUS_OK; /* such as "random" */
  if (gguf_is_file(weights)) return try_directory(session, weights);
  char *folder = files_folder(weights);
  Status status = folder != NULL ? try_directory(session, folder) : status_no_memory(NULL, "a path");
  free(folder);
  return status;
}

/* That of an installed checkpoint; session->tokenizer stays NULL where none has this name. */
static Status try_installed(Session *session, const char *name) {
  char *found = NULL;
  if (checkpoint_is_path(name) || data_paths_find("checkpoints", name, session->options.data_dir, &found) != STATUS_OK) return STATUS_OK;
  Status status = try_directory(session, found);
  free(found);
  return status;
}

/* --tokenizer: a path, or the name of an installed checkpoint. */
static Status open_named(Session *session, const char *name) {
  char *found = NULL;
  if (files_exists(name) || data_paths_find("checkpoints", name, session->options.data_dir, &found) != STATUS_OK)
    return open_at(session, name);
  Status status = open_at(session, found);
  free(found);
  return status;
}

/* --tokenizer; or else the files in --init or --model where these are directories; or else those of an installed checkpoint of the model's
 * name. NOT_FOUND says where it was looked for. */
static Status open_tokenizer(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->tokenizer != NULL) {
    Status status = open_named(session, options->tokenizer);
    return status == STATUS_OK ? status : status_wrap(status, "--tokenizer %s", options->tokenizer);
  }
  TRY(try_beside(session, options->init));
  if (session->tokenizer == NULL) TRY(try_directory(session, options->model));
  if (session->tokenizer == NULL) TRY(try_installed(session, options->model));
  if (session->tokenizer != NULL) return STATUS_OK;
  return status_set(
      STATUS_NOT_FOUND,
      "there is no tokenizer beside %s: name one with --tokenizer DIR or FILE, get one with `astra-data get gpt2`, or make one "
      "with `astra-data tokenizer`",
      options->init != NULL && files_exists(options->init) ? options->init : options->model);
}

static bool from_scratch(const TrainOptions *options) { return !checkpoint_is_path(options->model) && session_is_scratch(options->init); }

/* Into a configuration: a model that starts from scratch under a preset's name takes the tokenizer's vocabulary; any other one has to have
 * it, padded perhaps (BAD_VALUE names both). Ids of begin and end are set where the configuration has none. */
static Status configure_tokens(const Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const Tokenizer *tokenizer = session->tokenizer;
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

/* The context of a run: --context, or the model's. A model that starts from scratch is made for that context, which of any other one has to
 * be within the model's (BAD_USAGE). */
static Status choose_context(const Session *session, ModelConfig *config, int64_t *context) {
  const TrainOptions *options = &session->options;
  *context = options->context > 0 ? options->context : config->context;
  if (from_scratch(options)) config->context = *context; /* positions that no window reaches would stay as they were drawn */
  if (*context <= config->context) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--context %lld: the model %s takes at most %lld tokens", (long long)*context, options->model,
                    (long long)config->context);
}

/* BAD_USAGE where an option is given that only images have. */
static Status refuse_image_options(const TrainOptions *options) {
  const struct {
    bool given;
    const char *name;
  } list[] = {{options->image_size > 0, "image-size"},
              {options->mixup > 0, "mixup"},
              {options->cutmix > 0, "cutmix"},
              {strcmp(options->augment, "crop") != 0 && strcmp(options->augment, "none") != 0 && !options->resumed, "augment"},
              {options->erase > 0, "random-erasing"},
              {options->crop_min > 0, "crop-min"},
              {options->patch_drop > 0, "patch-drop"},
              {options->class_token == CLASS_SINGLE, "class-token"},
              {options->exchange_blocks > 0, "exchange-blocks"},
              {session_class_bias(options) != 0, "class-bias"},
              {options->class_mean_power > 0, "class-mean-power"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i].given)
      return status_set(STATUS_BAD_USAGE, "--%s is for images; --model %s learns from texts", list[i].name, options->model);
  return STATUS_OK;
}

/* ---- Windows of a running text ---- */

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
  TRY(refuse_image_options(options));
  if (options->eval_dataset != NULL && !text_source_knows(options->eval_dataset))
    return status_set(STATUS_BAD_USAGE, "--eval-dataset %s: text:PATH and text-lines:PATH are accepted", options->eval_dataset);
  if (!options->drawn) return open_tokenizer(session);
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
  if (session->tokenizer != NULL) TRY(configure_tokens(session, config));
  return choose_context(session, config, &session->tokens);
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
  const int64_t tokens = width_for(session, text_windows_rows(windows, language->next));
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

static Status show_excerpt(const char *what, const char *text, size_t size, size_t max) {
  char *excerpt = printable_excerpt(text, size, max);
  if (excerpt == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the %s", what);
  printf("%s: \"%s\"\n", what, excerpt);
  free(excerpt);
  return STATUS_OK;
}

enum { SHOWN_OF_WINDOW = 400, SHOWN_OF_TEXT = 200 }; /* bytes */

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
  Status status = show_excerpt("first window", text, size, SHOWN_OF_WINDOW);
  free(text);
  return status;
}

Status task_source_perplexity_check(const Session *session) {
  PerplexityUnit unit = (PerplexityUnit)session->options.perplexity;
  int64_t samples = session->options.eval_samples;
  if (unit == PERPLEXITY_AUTO || samples <= 0) return STATUS_OK;
  return perplexity_check_whole(unit, &((const Language *)session->source)->windows, samples, "--eval-samples");
}

Status task_source_perplexity(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result) {
  const TextWindows *windows = &((const Language *)session->source)->windows;
  TRY(perplexity_check_whole(unit, windows, score->samples, "--eval-samples"));
  *result = (Perplexity){.nats = score->loss, .units = perplexity_units(unit, windows, score->items, score->bytes)};
  result->value = perplexity_value(result->nats, result->units);
  if (windows->rolling) result->page_bytes = windows->rolling->bytes;
  return STATUS_OK;
}

const TaskSource source_windows = {{"tokens", "windows", "window", "valid"},
                                   {.batch = 8, .epochs = 1, .min_steps = 200},
                                   true,
                                   open_language,
                                   configure_windows,
                                   start_windows,
                                   close_language,
                                   seek_windows,
                                   next_windows,
                                   rows_of_windows,
                                   show_window,
                                   NULL};

/* ---- Labelled texts ---- */

enum { POOL = 16 }; /* batches of training texts that are sorted by length among each other */

/* The state of source_labels. */
typedef struct Texts {
  LabelledText *set[TASK_PARTS];
  TextLoader *loader[TASK_PARTS];
  int32_t *ids[TASK_PARTS]; /* [B, T] */
} Texts;

static Status open_labels(Session *session) {
  const TrainOptions *options = &session->options;
  Texts *texts = session->source = calloc(1, sizeof *texts);
  if (texts == NULL) return status_no_memory(NULL, "labelled texts");
  TRY(refuse_image_options(options));
  const char *wrong = option_of_windows(options), *name = options->dataset, *directory = options->data_dir;
  if (wrong != NULL) return status_set(STATUS_BAD_USAGE, "--%s is for text:PATH; --dataset %s holds texts to classify", wrong, name);
  TRY(open_tokenizer(session));
  const TrainShare learnt = {options->train_part, options->validation_part}, held_out = {.of = options->validation_part};
  TRY(check_parts(options));
  TRY(text_labels_open_share(&texts->set[TASK_TRAIN], name, directory, learnt));
  TRY(held_out.of > 0 ? text_labels_open_share(&texts->set[TASK_TEST], name, directory, held_out)
                      : text_labels_open(&texts->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = text_labels_classes(texts->set[TASK_TRAIN]);
  for (int part = 0; part < TASK_PARTS; part++) {
    session->data.about[part] = text_labels_describe(texts->set[part]);
    session->data.count[part] = text_labels_count(texts->set[part]);
  }
  return STATUS_OK;
}

static Status open_batches(Session *session, int64_t context, TaskPart part) {
  const TrainOptions *options = &session->options;
  Texts *texts = session->source;
  bool learning = part == TASK_TRAIN;
  TextEncoder encoder;
  TextLoaderOptions batching = {.context = context,
                                .batch = (int)options->batch,
                                .shuffle = learning,
                                .pool = learning ? POOL : 0,
                                .one_length = !learning,
                                .max = learning ? 0 : options->eval_samples,
                                .drop_last = learning && drops_last(session, text_labels_count(texts->set[part])),
                                .seed = (uint64_t)options->seed};
  TRY(tokenizer_encoder(&encoder, session->tokenizer));
  TRY(text_loader_labelled(&texts->loader[part], texts->set[part], &encoder, &batching));
  const TextLoaderFacts *facts = text_loader_facts(texts->loader[part]);
  if (facts->cut > 0)
    log_warning("%lld of %lld text%s %s longer than the context of %lld tokens; %s cut off", (long long)facts->cut,
                (long long)text_labels_count(texts->set[part]), text_plural(text_labels_count(texts->set[part])),
                facts->cut == 1 ? "is" : "are", (long long)context, facts->cut == 1 ? "its end is" : "their ends are");
  if (facts->width > session->tokens) session->tokens = facts->width;
  session->data.count[part] = facts->samples;
  if (learning) session->data.steps = facts->steps;
  return STATUS_OK;
}

static Status configure_labels(Session *session, ModelConfig *config) {
  const LabelledText *set = ((Texts *)session->source)->set[TASK_TRAIN];
  int64_t context;
  TRY(configure_tokens(session, config));
  TRY(config_set_labels(config, text_labels_names(set), session->classes));
  TRY(choose_context(session, config, &context));
  for (int part = 0; part < TASK_PARTS; part++) TRY(open_batches(session, context, (TaskPart)part));
  return STATUS_OK;
}

static Status start_labels(Session *session) {
  Texts *texts = session->source;
  size_t numbers = (size_t)(session->options.batch * session->tokens);
  for (int part = 0; part < TASK_PARTS; part++) {
    if ((texts->ids[part] = malloc(numbers * sizeof(int32_t))) == NULL) return status_no_memory(NULL, "a batch of texts");
    if (session->use == SESSION_TRAIN) session->data.digest[part] = hash_signed(text_labels_digest(texts->set[part]));
  }
  session->data.bytes = 4 * numbers * sizeof(int32_t); /* given and padded, of both parts */
  return STATUS_OK;
}

static void close_labels(Session *session) {
  Texts *texts = session->source;
  if (texts == NULL) return;
  for (int part = 0; part < TASK_PARTS; part++) {
    text_loader_free(texts->loader[part]);
    text_labels_close(texts->set[part]);
    free(texts->ids[part]);
  }
  free(texts);
}

static Status seek_labels(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  TextLoader *loader = ((Texts *)session->source)->loader[part];
  text_loader_share(loader, session->share);
  return text_loader_seek(loader, epoch, step);
}

/* Behind its end a text begins again. No answer depends on what is there, but the codebooks learn from all rows of a batch, padding
 * included: these are to be rows of texts, not of one and the same token. */
static void repeat_text(int32_t *ids, int64_t length, int64_t width) {
  for (int64_t t = length; t < width; t++) ids[t] = ids[t - length];
}

static Status next_labels(Session *session, TaskPart part, TaskBatch *batch) {
  Texts *texts = session->source;
  TextBatch given;
  text_loader_next(texts->loader[part], &given);
  int64_t from = text_loader_facts(texts->loader[part])->width, to = width_for(session, given.longest), both = from < to ? from : to;
  int32_t *ids = texts->ids[part];
  for (int i = 0; i < given.count; i++) {
    memcpy(ids + i * to, given.ids + i * from, (size_t)both * sizeof *ids);
    repeat_text(ids + i * to, given.lengths[i], to);
  }
  *batch = (TaskBatch){.count = given.count,
                       .first = given.first,
                       .whole = given.whole,
                       .tokens = to,
                       .units = given.count,
                       .ids = ids,
                       .lengths = given.lengths,
                       .labels = given.labels};
  return STATUS_OK;
}

static int64_t rows_of_labels(const Session *session, TaskPart part, int64_t max) {
  return text_loader_tokens(((const Texts *)session->source)->loader[part], max);
}

static Status show_text(Session *session, bool json, char **shown) {
  int32_t label;
  const LabelledText *set = ((Texts *)session->source)->set[TASK_TRAIN];
  const char *text = text_labels_text(set, 0, &label), *pair = text_labels_pair(set, 0);
  *shown = NULL;
  if (json) return STATUS_OK;
  TRY(show_excerpt("first text", text, strlen(text), SHOWN_OF_TEXT));
  if (pair != NULL) TRY(show_excerpt("  and its pair", pair, strlen(pair), SHOWN_OF_TEXT));
  printf("  is %s; %lld tokens hold the longest\n", printable(text_labels_names(set)[label]), (long long)session->tokens);
  return STATUS_OK;
}

const TaskSource source_labels = {{"texts", "texts", "text", "test"},
                                  {.batch = 16, .epochs = 3, .min_steps = 300},
                                  true,
                                  open_labels,
                                  configure_labels,
                                  start_labels,
                                  close_labels,
                                  seek_labels,
                                  next_labels,
                                  rows_of_labels,
                                  show_text,
                                  NULL};
