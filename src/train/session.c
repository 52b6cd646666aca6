/* Opening and closing what a training run works on: see session.h. */
#include "train/session.h"
#include "autograd/kernels/matmul.h"
#include "base/log.h"
#include "data/data_paths.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_INIT = 1, STREAM_MAP, STREAM_REVIVE, STREAM_MIXUP };
static const size_t ARENA_BYTES = (size_t)1 << 40; /* address space, not memory */

void session_defaults(TrainOptions *options) {
  *options = (TrainOptions){.dataset = "cifar100",
                            .epochs = 32,
                            .batch = 64,
                            .accumulate = 1,
                            .warmup = 100,
                            .augment = true,
                            .entries = 1024,
                            .devices = {4, 4},
                            .noise = 1,
                            .commitment_weight = 0.0005,
                            .concentration = 4,
                            .codebook_decay = 0.99,
                            .dead_below = 0.01,
                            .kmeans_iterations = 20,
                            .kmeans_restarts = 1,
                            .eval_every = 1,
                            .log_every = 20,
                            .checkpoint_every = 1000,
                            .dtype = SAFE_F32,
                            .seed = 42,
                            .workers = 1};
  options->optimizer = (OptimizerOptions){.rate = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
}

bool session_astra(const Session *session) { return session->config->astra.groups > 0; }

int64_t session_epoch_steps(const Session *session) {
  int64_t steps = loader_steps(session->train_loader) / session->options.accumulate;
  return steps > 0 ? steps : 1;
}

Tensor *session_pixels(Tape *tape, const Batch *batch, const ModelConfig *config) {
  int64_t shape[] = {batch->count, config->channels, config->image, config->image};
#if REAL_IS_DOUBLE
  Tensor *pixels = tape_tensor(tape, 4, shape);
  for (int64_t i = 0; pixels != NULL && i < tensor_count(pixels); i++) pixels->value[i] = batch->pixels[i];
  return pixels;
#else
  return tape_constant(tape, 4, shape, batch->pixels);
#endif
}

/* ---------------------------------------------------------------- configuration */

/* --model is a preset's name, or a checkpoint's directory, whose configuration and weights are then taken. */
static Status base_config(ModelConfig *config, const TrainOptions *options, int64_t classes) {
  if (files_is_dir(options->model)) return config_load(config, options->model);
  return config_preset(config, options->model, classes);
}

/* What config_check would refuse as well, but in the words of the command line. */
static Status check_sizes(const ModelConfig *config, const TrainOptions *options) {
  long long width = (long long)config_site_width(config), image = (long long)config->image, patch = (long long)config->patch;
  if (image % patch != 0)
    return status_set(STATUS_BAD_USAGE, "--image-size %lld: patches of %lldx%lld do not divide it; a multiple of %lld is accepted", image,
                      patch, patch, patch);
  if (options->groups > 0 && width % options->groups != 0)
    return status_set(STATUS_BAD_USAGE, "--groups %lld does not divide the model's width %lld", (long long)options->groups, width);
  if (options->devices[1] > config_tokens(config) || options->devices[1] > SESSION_DEVICES)
    return status_set(STATUS_BAD_USAGE, "--devices %lld: a picture of %lldx%lld has %lld tokens, and at most %d devices are accepted",
                      (long long)options->devices[1], image, image, (long long)config_tokens(config), SESSION_DEVICES);
  return STATUS_OK;
}

static Status read_config(ModelConfig *config, const TrainOptions *options, const Dataset *data) {
  TRY(base_config(config, options, dataset_classes(data)));
  if (config_is_decoder(config))
    return status_set(STATUS_UNSUPPORTED, "--model %s: a language model does not learn from pictures", options->model);
  if (options->image_size > 0) config->image = options->image_size;
  TRY(config_set_labels(config, dataset_labels(data), dataset_classes(data)));
  if (strcmp(options->model, "vit-cifar") == 0) dataset_mean_std(data, config->image_mean, config->image_std);
  config->astra.groups = (int)options->groups;
  config->astra.codebook_size = (int)options->entries;
  config->astra.devices_least = (int)options->devices[0];
  config->astra.devices = (int)options->devices[1];
  config->astra.class_token = (ClassToken)options->class_token;
  config->astra.commitment_weight = options->commitment_weight;
  config->astra.noise = options->noise;
  TRY(check_sizes(config, options));
  return config_check(config);
}

/* --counts: as many positive numbers as devices, which sum to the tokens. */
static Status read_counts(Session *session) {
  const TrainOptions *options = &session->options;
  const char *at = options->counts;
  int64_t devices = options->devices[1], tokens = config_tokens(session->config), sum = 0;
  for (int64_t d = 0; d < devices; d++) {
    char *end;
    int64_t count = session->fixed_counts[d] = strtoll(at, &end, 10);
    if (end == at || count < 1 || *end != (d + 1 < devices ? ',' : '\0'))
      return status_set(STATUS_BAD_USAGE, "--counts %s: %lld positive numbers with commas between are accepted", options->counts,
                        (long long)devices);
    sum += count <= tokens ? count : tokens + 1; /* no sum of at most SESSION_DEVICES of these overflows */
    at = end + 1;
  }
  if (sum == tokens) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--counts %s: they do not sum to the %lld tokens that a picture has", options->counts,
                    (long long)tokens);
}

static Status check_map(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->groups > 0 && options->patch_drop > 0)
    return status_set(STATUS_BAD_USAGE, "--patch-drop is for training a plain model (--groups 0)");
  session->map = (DeviceMapOptions){.devices_least = (int)options->devices[0],
                                    .devices_most = (int)options->devices[1],
                                    .counts = (MapCounts)options->map,
                                    .fixed = session->fixed_counts,
                                    .concentration = options->concentration,
                                    .permute = true};
  if (options->map != COUNTS_FIXED)
    return options->counts == NULL ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--counts is for --map fixed");
  if (options->counts == NULL) return status_set(STATUS_BAD_USAGE, "--map fixed needs --counts, e.g. --counts 16,16,16,16");
  if (options->devices[0] != options->devices[1])
    return status_set(STATUS_BAD_USAGE, "--map fixed needs one number of --devices, not a range");
  return read_counts(session);
}

/* ---------------------------------------------------------------- weights */

static Status no_weights(const TrainOptions *options) {
  char where[1024];
  snprintf(where, sizeof where, "%s", status_message());
  return status_set(
      STATUS_NOT_FOUND,
      "no pretrained weights for %s (%s). Get them with `astra-data get %s`, name them with --init DIR or --init FILE, or train "
      "from scratch with --init random",
      options->model, where, options->model);
}

/* Sets session->origin: a path, "random" or "mimetic". */
static Status find_weights(Session *session) {
  const TrainOptions *options = &session->options;
  if (options->init == NULL && !files_is_dir(options->model))
    return data_paths_find("checkpoints", options->model, options->data_dir, &session->origin) == STATUS_OK ? STATUS_OK
                                                                                                            : no_weights(options);
  session->origin = strdup(options->init != NULL ? options->init : options->model);
  return session->origin ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
}

static bool starts_with(const Session *session, const char *how) { return strcmp(session->origin, how) == 0; }
static bool from_scratch(const Session *session) { return starts_with(session, "random") || starts_with(session, "mimetic"); }

static void adopt(ModelConfig *config, const ModelConfig *theirs, bool normalisation) {
  config->heads = theirs->heads;
  config->kv_heads = theirs->kv_heads;
  config->activation = theirs->activation;
  config->norm_eps = theirs->norm_eps;
  if (!normalisation) return;
  memcpy(config->image_mean, theirs->image_mean, sizeof config->image_mean);
  memcpy(config->image_std, theirs->image_std, sizeof config->image_std);
  config->resample = theirs->resample;
}

/* What the shapes of weights do not show is taken from the config.json and the preprocessor_config.json beside them, where these are: a
 * preset of the same name may differ. */
static Status adopt_config(const Session *session, ModelConfig *config) {
  ModelConfig theirs;
  if (from_scratch(session)) return STATUS_OK;
  char *own = files_join(session->origin, "config.json"), *pictures = files_join(session->origin, "preprocessor_config.json");
  Status status = own != NULL && pictures != NULL ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory");
  if (status == STATUS_OK && files_exists(own) && (status = config_load(&theirs, session->origin)) == STATUS_OK) {
    if (theirs.kind == config->kind && theirs.width == config->width) adopt(config, &theirs, files_exists(pictures));
    config_release(&theirs);
  }
  free(own);
  free(pictures);
  return status;
}

static Status load_weights(Session *session) {
  ParamSet *params = model_params(session->model);
  Rng rng;
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_INIT);
  if (!from_scratch(session)) return checkpoint_load_params(session->model, session->origin, &rng, &session->report);
  param_initialise(params, &rng);
  if (starts_with(session, "mimetic")) model_initialise_mimetic(session->model, &rng);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- open and close */

static Status open_data(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  TRY(dataset_open(&session->train, options->dataset, options->data_dir, DATASET_TRAIN));
  TRY(dataset_open(&session->test, options->dataset, options->data_dir, DATASET_TEST));
  return read_config(config, options, session->train);
}

static Status open_loaders(Session *session, bool train) {
  const TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  LoaderOptions loading = {.image = (int)config->image,
                           .filter = (ResizeFilter)config->resample,
                           .batch = (int)options->batch,
                           .workers = (int)options->workers,
                           .seed = (uint64_t)options->seed};
  memcpy(loading.mean, config->image_mean, sizeof loading.mean);
  memcpy(loading.std, config->image_std, sizeof loading.std);
  session->test_loading = session->train_loading = loading;
  session->train_loading.shuffle = true;
  session->train_loading.augment = train && options->augment;
  session->train_loading.crop_least = options->crop_least;
  session->train_loading.drop_last = dataset_count(session->train) >= options->batch;
  TRY(loader_new(&session->train_loader, session->train, &session->train_loading));
  return loader_new(&session->test_loader, session->test, &session->test_loading);
}

static Status open_work(Session *session, bool train) {
  const TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  int64_t tokens = config_tokens(config);
  matmul_reserve();
  session->order = malloc((size_t)tokens * sizeof *session->order);
  session->arena = arena_new(ARENA_BYTES);
  session->tape = session->arena ? tape_new(session->arena) : NULL;
  if (session->order == NULL || session->tape == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the training arena");
  TRY(layout_build_plain(&session->plain_layout, tokens, CLASS_DISTRIBUTED));
  rng_init(&session->map_rng, (uint64_t)options->seed, STREAM_MAP);
  rng_init(&session->revive_rng, (uint64_t)options->seed, STREAM_REVIVE);
  rng_init(&session->mixup_rng, (uint64_t)options->seed, STREAM_MIXUP);
  if (config->astra.groups > 0) {
    EmulateOptions emulate = {.noise = options->noise,
                              .covariance = (NoiseCovariance)options->covariance,
                              .gradient = (QuantiseGradient)options->gradient,
                              .ema = {.decay = options->codebook_decay, .smoothing = 1e-5, .dead_below = options->dead_below},
                              .seed = (uint64_t)options->seed};
    TRY(emulate_init(&session->emulation, config, &emulate));
  }
  return train ? optimizer_init(&session->optimizer, model_params(session->model), &options->optimizer) : STATUS_OK;
}

static Status open_all(Session *session, bool train, ModelConfig *config) {
  TRY(open_data(session, config));
  TRY(find_weights(session));
  TRY(adopt_config(session, config));
  TRY(model_new(&session->model, config));
  session->config = model_config(session->model);
  TRY(check_map(session));
  TRY(param_allocate(model_params(session->model), train));
  TRY(load_weights(session));
  TRY(open_loaders(session, train));
  TRY(open_work(session, train));
  const TrainOptions *options = &session->options;
  session->total_steps = options->max_steps > 0 ? options->max_steps : options->epochs * session_epoch_steps(session);
  return STATUS_OK;
}

Status session_open(Session *session, const TrainOptions *options, bool train) {
  *session = (Session){.options = *options};
  ModelConfig config = {0};
  Status status = open_all(session, train, &config);
  config_release(&config);
  if (status != STATUS_OK) session_close(session);
  return status;
}

void session_close(Session *session) {
  loader_free(session->train_loader);
  loader_free(session->test_loader);
  dataset_close(session->train);
  dataset_close(session->test);
  optimizer_release(&session->optimizer);
  emulate_release(&session->emulation);
  tape_free(session->tape);
  arena_free(session->arena);
  model_free(session->model);
  layout_release(&session->layout);
  layout_release(&session->plain_layout);
  free(session->order);
  free(session->origin);
  *session = (Session){0};
}
