/* Images and their classes as a source of samples (task.h). */
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "train/ranks.h"
#include "train/task_source_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Images {
  Dataset *set[TASK_PARTS];
  LoaderOptions loading[TASK_PARTS];
  Loader *loader[TASK_PARTS];
} Images;

static Status open_images(Session *session) {
  const TrainOptions *options = &session->options;
  Images *images = session->source = calloc(1, sizeof *images);
  if (images == NULL) return status_no_memory(NULL, "images");
  const char *wrong = options->tokenizer ? "tokenizer" : options->context ? "context" : task_source_option_of_windows(options);
  if (wrong != NULL) return status_set(STATUS_BAD_USAGE, "--%s is for texts; the data set %s holds images", wrong, options->dataset);
  const char *name = options->dataset, *directory = options->data_dir;
  const TrainShare learnt = {options->train_part, options->validation_part}, held_out = {.of = options->validation_part};
  TRY(task_source_check_parts(options));
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
  learning->drop_last = task_source_drops_last(session, dataset_count(images->set[TASK_TRAIN]));
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

/* Draws the first batch as it will be learnt; where that cannot be written, the plan stands without it. */
static Status draw_images(Session *session, bool json, char **shown) {
  Batch batch;
  Images *images = session->source;
  (void)json;
  *shown = NULL;
  if (session->options.out == NULL) return STATUS_OK;
  *shown = files_join(session->options.out, "first_batch.png");
  if (*shown == NULL) return status_no_memory(NULL, "a path");
  TRY(loader_seek(images->loader[TASK_TRAIN], 0, 0));
  TRY(loader_next(images->loader[TASK_TRAIN], &batch));
  Status status = files_make_dirs(session->options.out);
  if (status == STATUS_OK) status = loader_sheet(&batch, &images->loading[TASK_TRAIN], *shown);
  if (status == STATUS_OK || status == STATUS_NO_MEMORY) return status;
  log_warning("the first batch is not drawn: %s", status_message());
  free(*shown);
  *shown = NULL;
  return STATUS_OK;
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

const TaskSource source_images = {.name = {.units = "images", .samples = "images", .sample = "image", .test = "test"},
                                  .defaults = {.batch = 64, .epochs = 32, .min_steps = 400},
                                  .open = open_images,
                                  .configure = configure_images,
                                  .start = start_images,
                                  .close = close_images,
                                  .seek = seek_images,
                                  .next = next_images,
                                  .show = draw_images,
                                  .finish = warn_of_skipped};
