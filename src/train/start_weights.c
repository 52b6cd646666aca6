/* Where the first weights come from: see start_weights.h. */
#include "train/start_weights.h"
#include "base/gguf.h"
#include "data/data_paths.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_INIT = 1 };

static Status no_weights(const TrainOptions *options) {
  char where[1024];
  snprintf(where, sizeof where, "%s", status_message());
  return status_set(
      STATUS_NOT_FOUND,
      "no pretrained weights for %s (%s). Get them with `astra-data get %s`, name them with --init DIR or --init FILE, or train "
      "from scratch with --init random",
      options->model, where, options->model);
}

Status start_weights_find(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->init == NULL && !checkpoint_is_path(options->model)) {
    Status status = data_paths_find("checkpoints", options->model, options->data_dir, &session->origin);
    return status == STATUS_OK || session->use == SESSION_PLAN ? STATUS_OK : no_weights(options);
  }
  session->origin = strdup(options->init != NULL ? options->init : options->model);
  return session->origin ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

static bool starts_with(const Session *session, const char *how) { return session->origin != NULL && strcmp(session->origin, how) == 0; }
static bool from_scratch(const Session *session) { return starts_with(session, "random") || starts_with(session, "mimetic"); }

/* The ids that begin, pad and end a text; an end may be one of several. */
static void adopt_ids(ModelConfig *config, const ModelConfig *theirs) {
  if (theirs->vocabulary != config->vocabulary) return; /* they would be those of other tokens; loading says more */
  if (theirs->begin_id >= 0) config->begin_id = theirs->begin_id;
  if (theirs->pad_id >= 0) config->pad_id = theirs->pad_id;
  if (theirs->end_ids == 0) return;
  memcpy(config->end_id, theirs->end_id, sizeof config->end_id);
  config->end_ids = theirs->end_ids;
}

static void adopt(ModelConfig *config, const ModelConfig *theirs, bool normalisation) {
  config->heads = theirs->heads;
  config->kv_heads = theirs->kv_heads;
  config->activation = theirs->activation;
  config->norm_eps = theirs->norm_eps;
  config->tied = theirs->tied;
  config->rope = theirs->rope;
  adopt_ids(config, theirs);
  if (!normalisation) return;
  memcpy(config->image_mean, theirs->image_mean, sizeof config->image_mean);
  memcpy(config->image_std, theirs->image_std, sizeof config->image_std);
  config->resample = theirs->resample;
}

static Status adopt_from_gguf(const char *path, ModelConfig *config) {
  ModelConfig theirs;
  TRY(config_load(&theirs, path));
  if (theirs.kind == config->kind && theirs.width == config->width) adopt(config, &theirs, false);
  config_release(&theirs);
  return STATUS_OK;
}

/* A directory's configuration, where there is one and it is for such a model. */
static Status adopt_from(const char *folder, ModelConfig *config) {
  ModelConfig theirs;
  char *own = files_join(folder, "config.json"), *pictures = files_join(folder, "preprocessor_config.json");
  Status status = own != NULL && pictures != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && files_exists(own) && (status = config_load(&theirs, folder)) == STATUS_OK) {
    if (theirs.kind == config->kind && theirs.width == config->width) adopt(config, &theirs, files_exists(pictures));
    config_release(&theirs);
  }
  free(own);
  free(pictures);
  return status;
}

Status start_weights_adopt(const Session *session, ModelConfig *config) {
  if (session->origin == NULL || from_scratch(session)) return STATUS_OK;
  if (gguf_is_file(session->origin)) return adopt_from_gguf(session->origin, config);
  char *folder = files_folder(session->origin);
  Status status = folder != NULL ? adopt_from(folder, config) : status_set(STATUS_NO_MEMORY, "no memory");
  free(folder);
  return status;
}

/* What learns has memory of its own and is read; what is frozen stays in the file. */
static Status load_file(Session *session, Rng *rng) {
  TRY(checkpoint_load_params(session->model, session->origin, rng, &session->report));
  if (session->options.lora_rank == 0 || session->use != SESSION_TRAIN) return STATUS_OK;
  model_initialise_adapters(session->model, rng);
  return checkpoint_map_params(session->model, session->origin, &session->frozen);
}

Status start_weights_load(Session *session) {
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_INIT);
  if (!from_scratch(session)) return load_file(session, &rng);
  TRY(param_allocate_frozen(model_params(session->model)));
  model_initialise(session->model, &rng);
  return starts_with(session, "mimetic") ? model_initialise_mimetic(session->model, &rng) : STATUS_OK;
}
