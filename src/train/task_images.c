/* Images and their classes: see task.h. */
#include "train/task_images.h"
#include "autograd/kernels/kernels.h"
#include "base/log.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "train/session.h"
#include "train/task_language.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Mixup and CutMix ---- */

typedef struct Blend {
  const real *from;
  real *to, share;
  int64_t count, size; /* images, numbers in one */
} Blend;

static void blend_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Blend *blend = context;
  for (int64_t i = begin; i < end; i++) {
    real *to = blend->to + i * blend->size;
    memset(to, 0, (size_t)blend->size * sizeof *to);
    kernels()->axpy(blend->size, blend->share, blend->from + i * blend->size, to);
    kernels()->axpy(blend->size, 1 - blend->share, blend->from + (blend->count - 1 - i) * blend->size, to);
  }
}

/* The box [left, right) x [top, bottom) of each channel comes from the other image. */
typedef struct Paste {
  const real *from;
  real *to;
  int64_t count, channels, height, width;
  int64_t left, right, top, bottom;
} Paste;

static void paste_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Paste *paste = context;
  int64_t plane = paste->height * paste->width, size = paste->channels * plane;
  size_t bytes = (size_t)(paste->right - paste->left) * sizeof *paste->to;
  for (int64_t i = begin; i < end; i++) {
    real *to = paste->to + i * size;
    const real *other = paste->from + (paste->count - 1 - i) * size;
    memcpy(to, paste->from + i * size, (size_t)size * sizeof *to);
    for (int64_t row = 0; row < paste->channels * paste->height; row++) {
      int64_t at = row * paste->width + paste->left, y = row % paste->height;
      if (y >= paste->top && y < paste->bottom) memcpy(to + at, other + at, bytes);
    }
  }
}

static int64_t within(int64_t value, int64_t max) { return value < 0 ? 0 : value > max ? max : value; }

/* A box of (1 - share) of the image about a uniform centre, cut off at the borders; returns the share that is left of the own image. */
static double draw_box(Rng *rng, double share, Paste *paste) {
  double side = sqrt(1 - share);
  int64_t w = (int64_t)(side * (double)paste->width), h = (int64_t)(side * (double)paste->height);
  int64_t x = (int64_t)rng_below(rng, (uint64_t)paste->width) - w / 2, y = (int64_t)rng_below(rng, (uint64_t)paste->height) - h / 2;
  paste->left = within(x, paste->width), paste->right = within(x + w, paste->width);
  paste->top = within(y, paste->height), paste->bottom = within(y + h, paste->height);
  double pasted = (double)((paste->right - paste->left) * (paste->bottom - paste->top));
  return 1 - pasted / (double)(paste->width * paste->height);
}

static double draw_share(Rng *rng, double alpha) {
  double a = rng_gamma(rng, alpha), b = rng_gamma(rng, alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

Tensor *mixup_apply(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target) {
  const TrainOptions *options = &session->options;
  Rng *rng = &session->mixup_rng;
  bool paste = options->cutmix > 0 && (options->mixup == 0 || rng_next(rng) >> 63);
  double share = draw_share(rng, paste ? options->cutmix : options->mixup);
  if (pixels == NULL) return NULL;
  Tensor *mixed = tape_tensor(tape, pixels->dims, pixels->shape);
  int32_t *other = tape_alloc(tape, (size_t)batch->count * sizeof *other);
  real *mix = tape_alloc(tape, (size_t)batch->count * sizeof *mix);
  if (mixed == NULL || other == NULL || mix == NULL) return NULL;
  if (paste) {
    Paste job = {pixels->value, mixed->value, batch->count, pixels->shape[1], pixels->shape[2], pixels->shape[3], 0, 0, 0, 0};
    share = draw_box(rng, share, &job);
    tape_for(tape, batch->count, 1, paste_body, &job);
  } else {
    Blend job = {pixels->value, mixed->value, (real)share, batch->count, tensor_count(pixels) / batch->count};
    tape_for(tape, batch->count, 1, blend_body, &job);
  }
  for (int i = 0; i < batch->count; i++) {
    other[i] = batch->labels[batch->count - 1 - i];
    mix[i] = (real)share;
  }
  target->other = other;
  target->mix = mix;
  return mixed;
}

/* ---- The task ---- */

typedef struct Images {
  Dataset *set[TASK_PARTS];
  LoaderOptions loading[TASK_PARTS];
  Loader *loader[TASK_PARTS];
} Images;

static Images *own(const Session *session) { return session->data; }

/* ---------------------------------------------------------------- opening */

static Status refuse_text_options(const TrainOptions *options) {
  const char *wrong = options->tokenizer ? "tokenizer" : options->context ? "context" : task_language_option(options);
  if (wrong == NULL) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s is for texts; --dataset %s holds images", wrong, options->dataset);
}

static Status open_sets(Session *session) {
  const TrainOptions *options = &session->options;
  Images *images = session->data = calloc(1, sizeof *images);
  if (images == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  TRY(refuse_text_options(options));
  const char *name = options->dataset, *directory = options->data_dir;
  int64_t held_out = options->validation_part;
  TRY(dataset_open_held_out(&images->set[TASK_TRAIN], name, directory, false, held_out));
  TRY(held_out > 0 ? dataset_open_held_out(&images->set[TASK_TEST], name, directory, true, held_out)
                   : dataset_open(&images->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = dataset_classes(images->set[TASK_TRAIN]);
  return STATUS_OK;
}

static Status configure(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const Dataset *data = own(session)->set[TASK_TRAIN];
  if (options->image_size > 0) config->image = options->image_size;
  TRY(config_set_labels(config, dataset_labels(data), dataset_classes(data)));
  if (strcmp(options->model, "vit-cifar") == 0) dataset_mean_std(data, config->image_mean, config->image_std);
  config->astra.class_token = (ClassToken)options->class_token;
  if (config->image % config->patch != 0)
    return status_set(STATUS_BAD_USAGE, "--image-size %lld: patches of %lldx%lld do not divide it; a multiple of %lld is accepted",
                      (long long)config->image, (long long)config->patch, (long long)config->patch, (long long)config->patch);
  session->tokens = config_tokens(config);
  return STATUS_OK;
}

static Status start(Session *session) {
  const TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  Images *images = own(session);
  LoaderOptions loading = {.image = (int)config->image,
                           .filter = (ResizeFilter)config->resample,
                           .batch = (int)options->batch,
                           .workers = (int)options->workers,
                           .seed = (uint64_t)options->seed};
  memcpy(loading.mean, config->image_mean, sizeof loading.mean);
  memcpy(loading.std, config->image_std, sizeof loading.std);
  images->loading[TASK_TEST] = images->loading[TASK_TRAIN] = loading;
  LoaderOptions *learning = &images->loading[TASK_TRAIN];
  learning->shuffle = true;
  if (session->use == SESSION_TRAIN || session->use == SESSION_PLAN) { /* whose first batch is shown */
    Status status = augment_policy_parse(&learning->augment, options->augment);
    if (status != STATUS_OK) return status_set(STATUS_BAD_USAGE, "--augment %s", status_message());
    learning->erase = options->erase;
  }
  learning->crop_min = options->crop_min;
  learning->drop_last = dataset_count(images->set[TASK_TRAIN]) >= options->batch;
  for (int part = 0; part < TASK_PARTS; part++) TRY(loader_new(&images->loader[part], images->set[part], &images->loading[part]));
  return STATUS_OK;
}

static void close_sets(Session *session) {
  Images *images = own(session);
  for (int part = 0; images != NULL && part < TASK_PARTS; part++) {
    loader_free(images->loader[part]);
    dataset_close(images->set[part]);
  }
  free(images);
}

/* ---------------------------------------------------------------- batches */

static const char *describe(const Session *session, TaskPart part) { return dataset_describe(own(session)->set[part]); }
static int64_t count(const Session *session, TaskPart part) { return dataset_count(own(session)->set[part]); }
static int64_t steps(const Session *session) { return loader_steps(own(session)->loader[TASK_TRAIN]); }

static Status seek(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  loader_share(own(session)->loader[part], session->share);
  return loader_seek(own(session)->loader[part], epoch, step);
}

static Status next(Session *session, TaskPart part, TaskBatch *batch) {
  Batch images;
  TRY(loader_next(own(session)->loader[part], &images));
  *batch = (TaskBatch){.count = images.count,
                       .first = images.first,
                       .whole = images.whole,
                       .tokens = session->tokens,
                       .units = images.count,
                       .pixels = images.pixels,
                       .labels = images.labels};
  return STATUS_OK;
}

static size_t bytes(const Session *session) {
  const Images *images = own(session);
  size_t sum = 0;
  for (int part = 0; part < TASK_PARTS; part++) sum += loader_bytes(images->loader[part]) + dataset_mapped(images->set[part]);
  return sum;
}

/* Each was named when it was met. */
static void count_broken(const Session *session) {
  const Images *images = own(session);
  long long train = (long long)loader_skipped(images->loader[TASK_TRAIN]), test = (long long)loader_skipped(images->loader[TASK_TEST]);
  if (train + test > 0)
    log_warning("%lld broken images of the training part and %lld of the %s part were skipped", train, test, session_test_name(session));
}

/* ---------------------------------------------------------------- the model */

static Tensor *loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  Tape *tape = session->tape;
  CrossEntropy target = {0};
  ModelInput input = task_input(tape, batch, session->config);
  if (tape_recording(tape) && (session->options.mixup > 0 || session->options.cutmix > 0))
    input.pixels = mixup_apply(session, tape, batch, input.pixels, &target);
  Tensor *encoded = model_encode(session->model, tape, &input, layout, exchange, MODEL_ROWS_CLASS);
  return task_class_loss(session, batch, model_classify(session->model, tape, encoded), &target, score);
}

static Tensor *answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, Tensor **kept) {
  ModelInput input = task_input(tape, batch, model_config(model));
  *kept = NULL;
  return model_classify(model, tape, model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_CLASS));
}

/* ---------------------------------------------------------------- reports */

static const char *const measures[] = {"accuracy", NULL};

static void measure(const TaskScore *score, double values[TASK_MEASURES]) { values[0] = task_accuracy(score); }

static void tell(const TaskScore *score, char text[TASK_TEXT]) { snprintf(text, TASK_TEXT, "accuracy %.2f%%", 100 * task_accuracy(score)); }

static Status draw(Session *session, bool json, char **shown) {
  Batch batch;
  Images *images = own(session);
  (void)json;
  *shown = files_join(session->options.out, "first_batch.png");
  if (*shown == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  TRY(files_make_dirs(session->options.out));
  TRY(loader_seek(images->loader[TASK_TRAIN], 0, 0));
  TRY(loader_next(images->loader[TASK_TRAIN], &batch));
  return loader_sheet(&batch, &images->loading[TASK_TRAIN], *shown);
}

const Task task_images = {.unit = "images",
                          .sample = "images",
                          .one = "image",
                          .test = "test",
                          .measures = measures,
                          .batch = 64,
                          .epochs = 32,
                          .min_steps = 400,
                          .open = open_sets,
                          .configure = configure,
                          .start = start,
                          .close = close_sets,
                          .describe = describe,
                          .count = count,
                          .steps = steps,
                          .seek = seek,
                          .next = next,
                          .loss = loss,
                          .answer = answer,
                          .measure = measure,
                          .tell = tell,
                          .show = draw,
                          .bytes = bytes,
                          .finish = count_broken};
