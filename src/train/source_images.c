/* Images and their classes: see task.h. */
#include "base/log.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "train/session.h"
#include "train/source_texts.h"
#include "train/task.h"
#include <stdlib.h>
#include <string.h>

typedef struct Images {
  Dataset *set[TASK_PARTS];
  LoaderOptions loading[TASK_PARTS];
  Loader *loader[TASK_PARTS];
} Images;

static Status open_sets(Session *session) {
  const TrainOptions *options = &session->options;
  Images *images = session->source = calloc(1, sizeof *images);
  if (images == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  const char *wrong = options->tokenizer ? "tokenizer" : options->context ? "context" : source_windows_option(options);
  if (wrong != NULL) return status_set(STATUS_BAD_USAGE, "--%s is for texts; --dataset %s holds images", wrong, options->dataset);
  const char *name = options->dataset, *directory = options->data_dir;
  int64_t held_out = options->validation_part;
  TRY(dataset_open_held_out(&images->set[TASK_TRAIN], name, directory, false, held_out));
  TRY(held_out > 0 ? dataset_open_held_out(&images->set[TASK_TEST], name, directory, true, held_out)
                   : dataset_open(&images->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = dataset_classes(images->set[TASK_TRAIN]);
  for (int part = 0; part < TASK_PARTS; part++) {
    session->data.about[part] = dataset_describe(images->set[part]);
    session->data.count[part] = dataset_count(images->set[part]);
  }
  return STATUS_OK;
}

static Status configure(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const Dataset *set = ((Images *)session->source)->set[TASK_TRAIN];
  if (options->image_size > 0) config->image = options->image_size;
  TRY(config_set_labels(config, dataset_labels(set), dataset_classes(set)));
  if (strcmp(options->model, "vit-cifar") == 0) dataset_mean_std(set, config->image_mean, config->image_std);
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
  Images *images = session->source;
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
  for (int part = 0; part < TASK_PARTS; part++) {
    TRY(loader_new(&images->loader[part], images->set[part], &images->loading[part]));
    session->data.bytes += loader_facts(images->loader[part]).bytes + dataset_mapped(images->set[part]);
  }
  session->data.steps = loader_facts(images->loader[TASK_TRAIN]).steps;
  return STATUS_OK;
}

static void close_sets(Session *session) {
  Images *images = session->source;
  for (int part = 0; images != NULL && part < TASK_PARTS; part++) {
    loader_free(images->loader[part]);
    dataset_close(images->set[part]);
  }
  free(images);
}

static Status seek(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  Loader *loader = ((Images *)session->source)->loader[part];
  loader_share(loader, session->share);
  return loader_seek(loader, epoch, step);
}

static Status next(Session *session, TaskPart part, TaskBatch *batch) {
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
static Status draw(Session *session, bool json, char **shown) {
  Batch batch;
  Images *images = session->source;
  (void)json;
  *shown = files_join(session->options.out, "first_batch.png");
  if (*shown == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
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
    log_warning("%lld broken images of the training part and %lld of the %s part were skipped", train, test, session_test_name(session));
}

const TaskSource source_images = {.name = {"images", "images", "image", "test"},
                                  .defaults = {.batch = 64, .epochs = 32, .min_steps = 400},
                                  .open = open_sets,
                                  .configure = configure,
                                  .start = start,
                                  .close = close_sets,
                                  .seek = seek,
                                  .next = next,
                                  .show = draw,
                                  .finish = warn_of_skipped};
