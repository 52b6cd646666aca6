/* The weights a run starts from: random ones, or those of a checkpoint. See session_internal.h. */
#include "base/files.h"
#include "base/gguf.h"
#include "base/log.h"
#include "data/data_paths.h"
#include "data/download.h"
#include "nn/checkpoint.h"
#include "nn/model.h"
#include "train/session_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_INIT = 1 };

Status start_weights_find(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->init == NULL && !checkpoint_is_path(options->model)) {
    Status status = data_paths_find("checkpoints", options->model, options->data_dir, &session->origin);
    if (status == STATUS_OK || session->use == SESSION_PLAN) return STATUS_OK;
    char where[1024];
    snprintf(where, sizeof where, "%s", status_message());
    if (download_find(options->model) == NULL)
      return status_set(STATUS_NOT_FOUND,
                        "no pretrained weights for %s (%s). Give a Hugging Face directory or a GGUF file with --model, name weights with "
                        "--init DIR or --init FILE, or train from scratch with --init random",
                        options->model, where);
    return status_set(
        STATUS_NOT_FOUND,
        "no pretrained weights for %s (%s). Get them with `astra-data get %s`, name them with --init DIR or --init FILE, or train "
        "from scratch with --init random",
        options->model, where, options->model);
  }
  if (options->init != NULL && !session_is_scratch(options->init) && !files_exists(options->init))
    return status_set(STATUS_NOT_FOUND,
                      "--init %s: there is no such directory or file, and no installed checkpoint of that name; random and mimetic train "
                      "from scratch",
                      options->init);
  session->origin = strdup(options->init != NULL ? options->init : options->model);
  return session->origin ? STATUS_OK : status_no_memory(NULL, "the name of the weights");
}

bool session_is_scratch(const char *from) { return from != NULL && (strcmp(from, "random") == 0 || strcmp(from, "mimetic") == 0); }

static void adopt(ModelConfig *config, const ModelConfig *theirs, bool normalisation) {
  config->heads = theirs->heads;
  config->kv_heads = theirs->kv_heads;
  config->activation = theirs->activation;
  config->norm_eps = theirs->norm_eps;
  config->tied = theirs->tied;
  config->rope = theirs->rope;
  if (theirs->vocabulary == config->vocabulary) { /* else ids would be those of other tokens; loading says more */
    if (theirs->begin_id >= 0) config->begin_id = theirs->begin_id;
    if (theirs->pad_id >= 0) config->pad_id = theirs->pad_id;
    if (theirs->end_ids > 0) memcpy(config->end_id, theirs->end_id, sizeof config->end_id);
    if (theirs->end_ids > 0) config->end_ids = theirs->end_ids;
  }
  if (!normalisation) return;
  memcpy(config->image_mean, theirs->image_mean, sizeof config->image_mean);
  memcpy(config->image_std, theirs->image_std, sizeof config->image_std);
  config->resample = theirs->resample;
}

/* Of as many classes, where both have names. */
static bool same_names(const ModelConfig *a, const ModelConfig *b) { return config_other_label(a, b->labels) < 0; }

/* Whether the classes have no names of their own, only those that stand for want of names. */
static bool has_generic_names(const ModelConfig *config) {
  char generic[32];
  for (int64_t i = 0; config->labels && i < config->classes; i++) {
    snprintf(generic, sizeof generic, "LABEL_%lld", (long long)i);
    if (strcmp(config->labels[i], generic) != 0) return false;
  }
  return true;
}

bool start_weights_other_classes(const ModelConfig *teacher, const ModelConfig *config) {
  return teacher->classes == config->classes && !same_names(teacher, config) && !has_generic_names(teacher) && !has_generic_names(config);
}

/* Whether a model's outputs mean the same: as many classes, of the same names where both have names, or the same vocabulary. */
static bool same_outputs(const ModelConfig *a, const ModelConfig *b) {
  return a->kind == b->kind && a->classes == b->classes && a->vocabulary == b->vocabulary && a->image == b->image && same_names(a, b);
}

/* For a head whose classes have the data set's names in another order: session->head_rows, and no other_names. */
static Status match_head(Session *session, const ModelConfig *theirs, const ModelConfig *config) {
  bool matched = false;
  int32_t *rows = malloc((size_t)config->classes * sizeof *rows);
  if (rows == NULL) return status_no_memory(NULL, "the names of classes");
  Status status = config_match_labels(theirs, config->labels, rows, &matched);
  if (status == STATUS_OK && matched) {
    session->head_rows = rows;
    session->other_names = false;
    return STATUS_OK;
  }
  free(rows);
  return status;
}

Status start_weights_adopt(Session *session, ModelConfig *config) {
  ModelConfig theirs;
  const char *path = session->origin;
  if (path == NULL || session_is_scratch(session->origin)) return STATUS_OK;
  const bool gguf = gguf_is_file(path);
  char *folder = gguf ? strdup(path) : files_folder(path);
  char *own = folder ? files_join(folder, "config.json") : NULL, *images = folder ? files_join(folder, "preprocessor_config.json") : NULL;
  Status status = own != NULL && images != NULL ? STATUS_OK : status_no_memory(NULL, "a path");
  if (status == STATUS_OK && (gguf || files_exists(own)) && (status = config_load(&theirs, folder)) == STATUS_OK) {
    if (theirs.kind == config->kind && theirs.width == config->width) adopt(config, &theirs, !gguf && files_exists(images));
    session->own_teacher = same_outputs(&theirs, config);
    session->origin_quantised = theirs.astra.groups > 0;
    if (session->options.exchange_blocks < 0 && session->options.groups > 0)
      config->astra.exchange_blocks = session->origin_quantised && theirs.blocks == config->blocks ? theirs.astra.exchange_blocks : 0;
    session->origin_classes = theirs.classes;
    session->origin_image = theirs.image;
    session->other_names = theirs.classes == config->classes && !same_names(&theirs, config);
    session->teacher.other_names = start_weights_other_classes(&theirs, config);
    if (session->other_names && session->use == SESSION_LOOK) /* K-means keeps the head, so it keeps the names of its classes */
      status = config_set_labels(config, theirs.labels, theirs.classes);
    else if (session->other_names)
      status = match_head(session, &theirs, config);
    config_release(&theirs);
  }
  const bool told = own != NULL && images != NULL && files_exists(own) && files_exists(images);
  if (status == STATUS_OK && !told && !session->options.resumed && checkpoint_is_path(session->options.model))
    config_warn_no_preprocessor(config, session->options.model);
  free(folder);
  free(own);
  free(images);
  return status;
}

/* The head's rows as the data set numbers its classes. */
static Status order_head(Session *session) {
  const ParamSet *set = model_params(session->model);
  for (size_t i = 0; i < set->count; i++) {
    const Tensor *tensor = &set->list[i].tensor;
    if (!set->list[i].optional) continue;
    const size_t bytes = (size_t)tensor_count(tensor) * sizeof(real), row = bytes / (size_t)session->classes;
    char *rows = (char *)tensor->value, *before = malloc(bytes);
    if (before == NULL) return status_no_memory(NULL, "the head");
    memcpy(before, rows, bytes);
    for (int64_t to = 0; to < session->classes; to++) memcpy(rows + (size_t)to * row, before + (size_t)session->head_rows[to] * row, row);
    free(before);
  }
  if (!session->options.quiet)
    log_info("the classes of %s are in another order than those of --dataset %s: the rows of its head are matched by name", session->origin,
             session->options.dataset);
  return STATUS_OK;
}

Status start_weights_load(Session *session) {
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_INIT);
  if (!session_is_scratch(session->origin)) { /* what learns has memory of its own and is read; what is frozen stays in the file */
    TRY(checkpoint_load_params(session->model, session->origin, &rng, &session->report));
    if (session->head_rows != NULL && !session->report.new_head) TRY(order_head(session));
    if (session->options.lora_rank == 0 || session->use != SESSION_TRAIN) return STATUS_OK;
    model_initialise_adapters(session->model, &rng);
    return checkpoint_map_params(session->model, session->origin, &session->frozen);
  }
  TRY(param_allocate_frozen(model_params(session->model)));
  model_initialise(session->model, &rng);
  return strcmp(session->origin, "mimetic") == 0 ? model_initialise_mimetic(session->model, &rng) : STATUS_OK;
}
