/* Opening and closing what a training run works on: see session.h. */
#include "train/session.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape_segment.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include "train/map_options.h"
#include "train/run_defaults.h"
#include "train/start_weights.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_MAP = 2, STREAM_REVIVE, STREAM_MIXUP }; /* 1 is that of the first weights */
static const size_t ARENA_BYTES = (size_t)1 << 40;    /* address space, not memory */

void session_defaults(TrainOptions *options) {
  *options = (TrainOptions){.test_part = SESSION_PART_AUTO,
                            .accumulate = 1,
                            .warmup = SESSION_AUTO,
                            .augment = "crop",
                            .entries = 1024,
                            .devices = {4, 4},
                            .map = SESSION_MAP_AUTO,
                            .site = SESSION_SITE_AUTO,
                            .noise = 1,
                            .commitment_weight = 0.0005,
                            .concentration = 4,
                            .codebook_decay = 0.99,
                            .dead_below = 0.01,
                            .kmeans_iterations = 20,
                            .kmeans_restarts = 1,
                            .log_every = 20,
                            .lora_targets = "all",
                            .checkpoint_every = 1000,
                            .dtype = SAFE_F32,
                            .seed = 42,
                            .workers = 1};
  options->optimizer = (OptimizerOptions){.rate = SESSION_AUTO, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
}

const char *session_test_name(const Session *session) { return session->options.validation_part > 0 ? "valid" : session->task->test; }

bool session_astra(const Session *session) { return session->config->astra.groups > 0 && !session->plain; }

int64_t session_epoch_steps(const Session *session) {
  int64_t steps = session->task->steps(session) / session->options.accumulate;
  return steps > 0 ? steps : 1;
}

Status session_lay_plain(Session *session, int64_t tokens) {
  if (session->plain_layout.tokens == tokens) return STATUS_OK;
  return layout_build_plain(&session->plain_layout, tokens, session->task->decoder ? CLASS_NONE : CLASS_DISTRIBUTED);
}

/* ---------------------------------------------------------------- configuration */

/* --model is a preset's name, or a checkpoint's directory, whose configuration and weights are then taken. */
static Status base_config(ModelConfig *config, const TrainOptions *options, int64_t classes) {
  if (checkpoint_is_path(options->model)) return config_load(config, options->model);
  return config_preset(config, options->model, classes);
}

static Status is_decoder(const TrainOptions *options, bool *decoder) {
  ModelConfig config;
  TRY(base_config(&config, options, 1));
  *decoder = config_is_decoder(&config);
  config_release(&config);
  return STATUS_OK;
}

/* The data set says what is taught; what the options leave open follows from that. */
static Status choose_task(Session *session) {
  TrainOptions *options = &session->options;
  bool decoder;
  TRY(is_decoder(options, &decoder));
  if (options->dataset == NULL && decoder && session->use == SESSION_PLAN) options->drawn = true;
  if (options->dataset == NULL && decoder && !options->drawn)
    return status_set(STATUS_BAD_USAGE,
                      "--dataset is missing: text:PATH, cola:DIR, sst2:DIR, agnews:DIR, tsv:FILE or csv:FILE:text=COLUMN");
  if (options->dataset == NULL && !options->drawn) options->dataset = "cifar100";
  bool known = options->drawn || text_source_knows(options->dataset) || text_labels_knows(options->dataset);
  if (!known && !dataset_knows(options->dataset)) return dataset_unknown(options->dataset, options->data_dir);
  session->task = options->drawn ? &task_language : task_find(options->dataset);
  if (session->task->decoder != decoder) {
    char hint[DATASET_HINT];
    return status_set(STATUS_BAD_USAGE, "--model %s learns from %s; --dataset %s holds %s.%s", options->model,
                      decoder ? "texts" : "pictures", options->dataset, decoder ? "pictures" : "texts",
                      dataset_hint(options->dataset, options->data_dir, hint));
  }
  if (options->map == SESSION_MAP_AUTO) options->map = decoder ? COUNTS_DIRICHLET : COUNTS_EVEN;
  return STATUS_OK;
}

/* Weights that come from somewhere have a number of blocks already. */
static Status choose_blocks(ModelConfig *config, const TrainOptions *options) {
  if (options->blocks == 0) return STATUS_OK;
  if (options->init == NULL || (strcmp(options->init, "random") != 0 && strcmp(options->init, "mimetic") != 0))
    return status_set(STATUS_BAD_USAGE, "--blocks %lld is for models trained from scratch, with --init random or --init mimetic",
                      (long long)options->blocks);
  config->blocks = options->blocks;
  return STATUS_OK;
}

/* What config_check would refuse as well, but in the words of the command line. */
static Status check_sizes(const Session *session, const ModelConfig *config) {
  const TrainOptions *options = &session->options;
  long long width = (long long)config_site_width(config);
  if (options->groups > 0 && width % options->groups != 0)
    return status_set(STATUS_BAD_USAGE, "--groups %lld does not divide the %s width %lld", (long long)options->groups,
                      config->astra.site == SITE_KV ? "key and value" : "model's", width);
  if (options->groups > 0 && (options->devices[1] > session->tokens || options->devices[1] > SESSION_DEVICES))
    return status_set(STATUS_BAD_USAGE, "--devices %lld: a sample has %lld tokens, and at most %d devices are accepted",
                      (long long)options->devices[1], (long long)session->tokens, SESSION_DEVICES);
  return STATUS_OK;
}

static Status read_config(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  TRY(base_config(config, options, session->classes));
  TRY(choose_blocks(config, options));
  TRY(session->task->configure(session, config));
  config->astra.groups = (int)options->groups;
  config->astra.codebook_size = (int)options->entries;
  config->astra.devices_least = (int)options->devices[0];
  config->astra.devices = (int)options->devices[1];
  config->astra.commitment_weight = options->commitment_weight;
  config->astra.noise = options->noise;
  if (options->site != SESSION_SITE_AUTO) config->astra.site = (Site)options->site;
  TRY(check_sizes(session, config));
  TRY(map_options_layout(session, config));
  if (options->groups == 0 && (options->token_loss != NULL || options->eval_token_loss > 0))
    return status_set(STATUS_BAD_USAGE,
                      "--token-loss and --eval-token-loss are of tokens between devices: a plain model (--groups 0) has none");
  return config_check(config);
}

/* ---------------------------------------------------------------- open and close */

static Status open_block_arena(Session *session) {
  session->block_arena = arena_new(ARENA_BYTES);
  if (session->block_arena == NULL)
    return status_set(STATUS_NO_MEMORY, "no address space for the values of a block (--recompute, --memory)");
  if (session->use == SESSION_PLAN) arena_small_pages(session->block_arena);
  return STATUS_OK;
}

void session_recompute(Session *session, int64_t blocks) {
  session->recomputed = (int)(blocks < session->config->blocks ? blocks : session->config->blocks);
  model_recompute(session->model, session->recomputed);
  tape_segment_use(session->tape, session->recomputed > 0 ? session->block_arena : NULL);
}

/* Weights are in memory by now; who changes them later refreshes their shadows. */
static Status use_precision(Session *session) {
  TrainOptions *options = &session->options;
  if (options->precision == PRECISION_AUTO) options->precision = matmul_bf16_is_faster() ? PRECISION_BF16 : PRECISION_FP32;
  if (options->precision == PRECISION_FP32) return STATUS_OK;
  tape_use_bf16(session->tape, true);
  return param_make_shadows(model_params(session->model));
}

static Status open_work(Session *session) {
  const TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  matmul_reserve();
  session->order = malloc((size_t)session->tokens * sizeof *session->order);
  session->arena = arena_new(ARENA_BYTES);
  session->tape = session->arena ? tape_new(session->arena) : NULL;
  if (session->order == NULL || session->tape == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the training arena");
  if (session->use == SESSION_PLAN) arena_small_pages(session->arena);
  TRY(use_precision(session));
  if (options->recompute > 0 || options->memory > 0) TRY(open_block_arena(session));
  session_recompute(session, options->recompute);
  TRY(session_lay_plain(session, session->tokens));
  TRY(layout_build_plain(&session->layout, session->tokens, session->plain_layout.class_token)); /* room for any layout of a batch */
  if (session->use != SESSION_PLAN) TRY(confusion_init(&session->confusion, session->classes));
  rng_init(&session->map_rng, (uint64_t)options->seed, STREAM_MAP);
  rng_init(&session->revive_rng, (uint64_t)options->seed, STREAM_REVIVE);
  rng_init(&session->mixup_rng, (uint64_t)options->seed, STREAM_MIXUP);
  if (config->astra.groups > 0) {
    EmulateOptions emulate = {.noise = options->noise,
                              .covariance = (NoiseCovariance)options->covariance,
                              .gradient = (QuantiseGradient)options->gradient,
                              .ema = {.decay = options->codebook_decay, .smoothing = 1e-5, .dead_below = options->dead_below},
                              .seed = (uint64_t)options->seed,
                              .eval_loss = {.share = options->eval_token_loss}};
    TRY(token_loss_parse(&emulate.loss, options->token_loss));
    TRY(emulate_init(&session->emulation, config, &emulate));
  }
  if (session->use != SESSION_TRAIN) return STATUS_OK;
  OptimizerOptions optimizer = options->optimizer;
  optimizer.seed = options->seed;
  return optimizer_init(&session->optimizer, model_params(session->model), &optimizer);
}

/* They learn, and are in no file: nobody but training has them. */
static Status add_adapters(Session *session) {
  const TrainOptions *options = &session->options;
  bool learning = session->use == SESSION_TRAIN || session->use == SESSION_PLAN;
  if (options->lora_rank == 0 || !learning) return STATUS_OK;
  double alpha = options->lora_alpha > 0 ? options->lora_alpha : 2 * (double)options->lora_rank;
  Status status = model_add_adapters(session->model, (int)options->lora_rank, alpha, options->lora_targets);
  return status == STATUS_OK ? status : status_wrap(status, "--lora %lld", (long long)options->lora_rank);
}

static Status open_weights(Session *session) {
  ParamSet *params = model_params(session->model);
  if (session->use == SESSION_PLAN) return param_reserve(params, true);
  TRY(param_allocate(params, session->use == SESSION_TRAIN));
  return start_weights_load(session);
}

static Status open_all(Session *session, ModelConfig *config) {
  const MemoryUse before = memory_used();
  TRY(choose_task(session));
  TRY(session->task->open(session));
  run_defaults_batch(session);
  TRY(read_config(session, config));
  TRY(start_weights_find(session));
  TRY(start_weights_adopt(session, config));
  TRY(model_new(&session->model, config));
  session->config = model_config(session->model);
  TRY(map_options_set(session));
  TRY(add_adapters(session));
  session->program = before.resident + memory_used().anonymous - before.anonymous; /* mapped data counts as such */
  TRY(open_weights(session));
  TRY(session->task->start(session));
  run_defaults_length(session);
  return open_work(session);
}

Status session_open(Session *session, const TrainOptions *options, SessionUse use) {
  *session = (Session){.options = *options, .use = use};
  ModelConfig config = {0};
  Status status = open_all(session, &config);
  config_release(&config);
  if (status != STATUS_OK) session_close(session);
  return status;
}

void session_close(Session *session) {
  if (session->task != NULL) session->task->close(session);
  optimizer_release(&session->optimizer);
  confusion_release(&session->confusion);
  emulate_release(&session->emulation);
  tape_free(session->tape);
  arena_free(session->arena);
  arena_free(session->block_arena);
  model_free(session->model);
  checkpoint_unmap(session->frozen);
  layout_release(&session->layout);
  layout_release(&session->plain_layout);
  free(session->order);
  free(session->origin);
  *session = (Session){0};
}
