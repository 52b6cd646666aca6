/* Opening and closing what a training run works on: see session.h. */
#include "train/session.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include "nn/checkpoint.h"
#include "nn/model.h"
#include "train/emulate.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/ranks.h"
#include "train/session_internal.h"
#include "train/task.h"
#include "vq/kmeans.h"
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tokens on devices ---- */

/* Where tokens live: in training --devices, --map, --counts, --concentration and --layout, in evaluation --eval-layout. */

/* --counts: as many positive numbers as devices, which sum to the tokens. */
static Status read_counts(Session *session) {
  const TrainOptions *options = &session->options;
  int64_t devices = options->devices[1], tokens = session->tokens, sum = 0;
  if (options_integers(options->counts, 1, INT64_MAX, session->fixed_counts, (int)devices) != devices)
    return status_set(STATUS_BAD_USAGE, "--counts %s: %lld positive numbers with commas between are accepted", options->counts,
                      (long long)devices);
  for (int64_t d = 0; d < devices; d++) {
    const int64_t count = session->fixed_counts[d];
    sum += count <= tokens ? count : tokens + 1; /* no sum of at most SESSION_DEVICES of these overflows */
  }
  if (sum == tokens) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--counts %s: they do not sum to the %lld tokens of a sample", options->counts, (long long)tokens);
}

/* ---- which tokens */

static bool permutes(const TrainOptions *options) { return options->layout == NULL || strcmp(options->layout, "permuted") == 0; }

/* An option's value -> *map, which "trained" leaves as the model's configuration has it. */
static Status read_layout(const char *option, const char *value, const ModelConfig *config, TokenMap *map) {
  if (config_is_decoder(config))
    return status_set(STATUS_BAD_USAGE, "--%s %s: a layout is for tokens of images; devices hold contiguous spans of a text", option,
                      value);
  if (config->astra.groups == 0)
    return status_set(STATUS_BAD_USAGE, "--%s %s: a plain model (--groups 0) has all tokens on one device", option, value);
  if (strcmp(value, "trained") == 0 || token_map_parse(value, map)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s %s: accepted are %s, trained (as the checkpoint says)%s", option, value, token_map_names,
                    strcmp(option, "layout") == 0 ? " and permuted (anew for each batch)" : "");
}

/* Sets session->fixed_map, which training uses unless it permutes, and config->astra.layout, that of evaluations and of the checkpoint:
 * --eval-layout, else a fixed --layout, else what config has. BAD_USAGE: a layout that is none, or one for a decoder or a plain model. */
static Status choose_layout(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  TokenMap *training = &session->fixed_map, *evaluation = &config->astra.layout;
  *training = *evaluation;
  if (options->layout != NULL && (!permutes(options) || config_is_decoder(config) || config->astra.groups == 0))
    TRY(read_layout("layout", options->layout, config, training));
  if (options->eval_layout != NULL) return read_layout("eval-layout", options->eval_layout, config, evaluation);
  if (!permutes(options)) *evaluation = *training;
  return STATUS_OK;
}

/* Fills session->map: of images as --layout says, of a decoder contiguous spans in order. BAD_USAGE names the option. */
static Status set_device_map(Session *session) {
  const TrainOptions *options = &session->options;
  const bool images = !config_is_decoder(session->config);
  if (options->groups > 0 && options->patch_drop > 0)
    return status_set(STATUS_BAD_USAGE, "--patch-drop is for training a plain model (--groups 0)");
  session->map = (DeviceMapOptions){.devices_min = (int)options->devices[0],
                                    .devices_max = (int)options->devices[1],
                                    .counts = (MapCounts)options->map,
                                    .fixed = session->fixed_counts,
                                    .concentration = options->concentration,
                                    .permute = images && permutes(options),
                                    .map = session->fixed_map,
                                    .side = images ? session->config->image / session->config->patch : 0};
  if (options->map != COUNTS_FIXED)
    return options->counts == NULL ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--counts is for --map fixed");
  if (session->task->source == &source_labels)
    return status_set(STATUS_BAD_USAGE, "--map fixed: texts to classify have lengths of their own; it is for images and windows of a text");
  if (options->counts == NULL) return status_set(STATUS_BAD_USAGE, "--map fixed needs --counts, e.g. --counts 16,16,16,16");
  if (options->devices[0] != options->devices[1])
    return status_set(STATUS_BAD_USAGE, "--map fixed needs one number of --devices, not a range");
  return read_counts(session);
}

/* ---- Steps and epochs ---- */

/* Micro-batches of an epoch that are used. */
static int64_t epoch_batches(const Session *session) {
  const int64_t all = session->data.steps, step = session->options.accumulate;
  if (all <= 0) return step; /* drawn windows: there are no epochs */
  return all < step ? all : all / step * step;
}

/* Whole steps of so many epochs, at least one. */
static int64_t steps_of(const Session *session, int64_t epochs) {
  const int64_t steps = epochs * epoch_batches(session) / session->options.accumulate;
  return steps > 0 ? steps : 1;
}

int64_t session_epoch_steps(const Session *session) { return steps_of(session, 1); }

double session_epochs(const Session *session, int64_t steps) {
  return (double)(steps * session->options.accumulate) / (double)epoch_batches(session);
}

Status session_seek_step(Session *session) {
  const int64_t batch = session->step * session->options.accumulate, epoch = epoch_batches(session);
  return session->task->source->seek(session, TASK_TRAIN, batch / epoch, batch % epoch);
}

/* ---- Defaults that follow from model and data ---- */

/* Those that are the same for every run: session_defaults. After choose_length no option is automatic any more. */

enum { BATCH_MIN = 8, BATCHES_MIN = 8, WARMUP_MAX = 100, WARMUP_SHARE = 10, EVALUATIONS = 20 };

static const double DISTILL_TUNED = 0.5;   /* share of the targets */
static const double HIDDEN_TUNED = 1;      /* weight of the rows' error */
static const double POWER_TUNED = 0.5;     /* exponent of a device's tokens in the mean of class tokens */
static const double BIAS_TUNED = -0.8;     /* of class tokens towards codes, */
static const double BIAS_ONE_GROUP = -0.4; /* and where they are of one group */
static const double MIX_TUNED = 1;         /* of mixup and of CutMix */
static const int64_t COARSE = 24; /* numbers of a group, from which on only the first blocks exchange codes, and class tokens are biased */

/* Appends a part to the line of what was chosen; a part too many is cut off. */
__attribute__((format(printf, 2, 3))) static void say(Session *session, const char *format, ...) {
  size_t used = strlen(session->chosen);
  va_list arguments;
  va_start(arguments, format);
  if (used > 0 && used + 2 < sizeof session->chosen) strcpy(session->chosen + used, ", "), used += 2;
  vsnprintf(session->chosen + used, sizeof session->chosen - used, format, arguments);
  va_end(arguments);
}

void session_choose_batch(Session *session) {
  TrainOptions *options = &session->options;
  const int64_t samples = session->data.count[TASK_TRAIN];
  if (options->earlier_defaults) { /* a run that was begun before defaults followed from the data goes on with those of its time */
    if (options->batch == 0) options->batch = session->task->source->defaults.batch;
    if (options->epochs == 0) options->epochs = session->task->source->defaults.epochs;
    if (options->optimizer.rate < 0) options->optimizer.rate = 1e-4;
    if (options->warmup < 0) options->warmup = 100;
    if (options->eval_every == 0) options->eval_every = 1;
  }
  if (options->batch > 0 || (session_learns(session) && samples == 0)) return;
  options->batch = session->task->source->defaults.batch;
  if (!session_learns(session)) return;
  while (options->batch > BATCH_MIN && samples / options->batch < BATCHES_MIN) options->batch /= 2;
  options->batch = session_batch(session);
  say(session, "batch %lld for %lld %s", (long long)options->batch, (long long)samples, task_samples(session->task, samples));
}

/* After TaskSource.start and before the optimizer is made, of sessions that train or plan; sets session->total_steps:
 *   epochs          the source's, or as many as make its min_steps steps
 *   learning rate   1e-4 for pretrained weights, 3e-4 for adapters, min(1e-3, 0.4 / width) from scratch
 *   warm-up         a tenth of the steps, at most 100
 *   evaluations     after each epoch, or fewer so that there are about 20
 * What was chosen and why is then in session->chosen, one line; "" if the options said everything. */
static void choose_length(Session *session) {
  TrainOptions *options = &session->options;
  if (!session_learns(session)) return;
  const int64_t usual = session->task->source->defaults.epochs;
  const int64_t min = (int64_t)ceil(session_epochs(session, session->task->source->defaults.min_steps));
  if (options->epochs == 0) {
    options->epochs = min > usual ? min : usual;
    if (options->max_steps == 0)
      say(session, "%lld epoch%s%s", (long long)options->epochs, text_plural(options->epochs), min > usual ? " to have enough steps" : "");
  }
  session->total_steps = options->max_steps > 0 ? options->max_steps : steps_of(session, options->epochs);
  if (options->optimizer.rate < 0) {
    const bool scratch = session_is_scratch(options->init), adapters = options->lora_rank > 0;
    options->optimizer.rate = scratch ? fmin(1e-3, 0.4 / (double)session->config->width) : adapters ? 3e-4 : 1e-4;
    say(session, "learning rate %.2g (%s)", options->optimizer.rate,
        scratch    ? "from scratch"
        : adapters ? "adapters"
                   : "pretrained weights");
  }
  if (options->warmup < 0) {
    int64_t share = session->total_steps / WARMUP_SHARE;
    options->warmup = share < WARMUP_MAX ? share : WARMUP_MAX;
    say(session, "warm-up of %lld of %lld step%s", (long long)options->warmup, (long long)session->total_steps,
        text_plural(session->total_steps));
  }
  if (options->eval_every == 0) {
    int64_t epochs = (int64_t)session_epochs(session, session->total_steps);
    options->eval_every = epochs > EVALUATIONS ? (epochs + EVALUATIONS - 1) / EVALUATIONS : 1;
    if (options->eval_every > 1) say(session, "evaluation every %lld epochs", (long long)options->eval_every);
  }
  const int64_t last = session->total_steps - 1; /* the schedule counts from 0 */
  if (last <= 0 || options->warmup < session->total_steps) return;
  char named[96];
  snprintf(named, sizeof named, options->resumed ? "the warm-up of %lld steps, chosen when the run began," : "--warmup %lld",
           (long long)options->warmup);
  snprintf(session->doubt, sizeof session->doubt,
           "%s is as long as the run of %lld steps or longer: the learning rate never passes %.0f%% of its peak, and little is learnt; a "
           "tenth of the run is usual",
           named, (long long)session->total_steps, 100 * (double)last / (double)options->warmup);
}

/* ---- Tokens that are lost in training ---- */

static const double SHARE_MAX = 0.95, SPAN_MAX = 1e6;

static Status malformed(const char *text) {
  return status_set(
      STATUS_BAD_USAGE,
      "--token-loss \"%s\": a share of the tokens between 0 and %g is accepted, and behind it \",span:\" and the mean length of "
      "a run of lost ones, between share / (1 - share), 1 at least, and %g",
      text, SHARE_MAX, SPAN_MAX);
}

/* "P" or "P,span:S", "0.05,span:8": P of all tokens, in runs of S on the mean (a two-state chain: Gilbert, 1960). BAD_USAGE says what is
 * accepted; a run has a minimum length, below which that share cannot be lost. NULL: none. */
static Status parse_token_loss(TokenLoss *loss, const char *text) {
  static const char behind[] = ",span:";
  char *end;
  *loss = (TokenLoss){0, 0};
  if (text == NULL) return STATUS_OK;
  loss->share = strtod(text, &end);
  if (end == text || !(loss->share >= 0 && loss->share <= SHARE_MAX)) return malformed(text);
  if (*end == '\0') return STATUS_OK;
  if (strncmp(end, behind, sizeof behind - 1) != 0) return malformed(text);
  const char *number = end + sizeof behind - 1;
  loss->span = strtod(number, &end);
  const double min = fmax(loss->share / (1 - loss->share), 1);
  bool fits = end != number && *end == '\0' && loss->span >= min && loss->span <= SPAN_MAX;
  return fits ? STATUS_OK : malformed(text);
}

/* ---- Sessions ---- */

static const char LORA_TARGETS[] = "all";             /* unless given */
enum { STREAM_MAP = 2, STREAM_REVIVE, STREAM_MIXUP }; /* 1 is that of the first weights */
static const size_t ARENA_BYTES = (size_t)1 << 40;    /* address space, not memory */

void session_defaults(TrainOptions *options) {
  *options = (TrainOptions){.test_part = SESSION_PART_AUTO,
                            .accumulate = 1,
                            .warmup = SESSION_AUTO,
                            .augment = "crop",
                            .entries = CONFIG_CODEBOOK_SIZE,
                            .devices = {4, 4},
                            .map = SESSION_MAP_AUTO,
                            .site = SESSION_SITE_AUTO,
                            .noise = 1,
                            .recipe = RECIPE_PAPER,
                            .mixup = SESSION_AUTO,
                            .cutmix = SESSION_AUTO,
                            .distill = SESSION_AUTO,
                            .distill_hidden = SESSION_AUTO,
                            .class_bias = (double)NAN,
                            .class_mean_power = SESSION_AUTO,
                            .exchange_blocks = SESSION_AUTO,
                            .commitment_weight = 0.0005,
                            .concentration = 4,
                            .codebook_decay = 0.99,
                            .dead_below = 0.01,
                            .kmeans_start = KMEANS_SPLIT,
                            .kmeans_iterations = 20,
                            .kmeans_restarts = 1,
                            .log_every = 20,
                            .lora_targets = LORA_TARGETS,
                            .checkpoint_every = 1000,
                            .dtype = SAFE_F32,
                            .seed = 42,
                            .workers = 1};
  options->optimizer = (OptimizerOptions){.rate = SESSION_AUTO, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
}

const char *session_test_name(const Session *session) {
  return session->options.validation_part > 0 ? "valid" : session->task->source->name.test;
}

int64_t session_batch(const Session *session) {
  const int64_t samples = session->data.count[TASK_TRAIN], batch = session->options.batch;
  return samples > 0 && samples < batch ? samples : batch;
}

Status session_check_classes(const Session *session) {
  if (session->report.new_head)
    return status_set(STATUS_BAD_USAGE,
                      "%s has no classifier for the %lld classes of --dataset %s; give the data set that it was trained for, or train "
                      "one with astra-train",
                      session->origin, (long long)session->classes, session->options.dataset);
  if (session->other_names)
    log_warning("the classes of %s have other names than those of --dataset %s: its answers may mean something else", session->origin,
                session->options.dataset);
  return STATUS_OK;
}

bool session_astra(const Session *session) { return session->config->astra.groups > 0 && !session->plain; }

Status session_use_rate(Session *session, int rate) {
  TRY(model_use_rate(session->model, config_rate_groups(session->config, rate)));
  emulate_use_rate(&session->emulation, rate);
  return STATUS_OK;
}

void session_set_rates(TrainOptions *options, const AstraConfig *astra) {
  memset(options->rates, 0, sizeof options->rates);
  options->groups = astra->groups;
  for (int rate = 0; rate < astra->rate_count; rate++) options->rates[1 + rate] = astra->rates[rate];
}

void session_set_codebooks(TrainOptions *options, const AstraConfig *astra) {
  session_set_rates(options, astra);
  options->entries = astra->codebook_size;
  options->site = (int)astra->site;
  options->rotation = astra->rotation;
  options->prediction = astra->prediction;
  options->plain_prediction = config_plain_prediction(astra);
  options->exchange_blocks = astra->exchange_blocks;
}

/* ---------------------------------------------------------------- configuration */

/* --model is a preset's name, or a checkpoint's directory, whose configuration and weights are then taken. */
static Status base_config(ModelConfig *config, const TrainOptions *options, int64_t classes) {
  if (checkpoint_is_path(options->model)) return config_load(config, options->model);
  return config_preset(config, options->model, classes);
}

/* The data set says what is taught; what the options leave open follows from that. */
static Status choose_task(Session *session) {
  TrainOptions *options = &session->options;
  ModelConfig config;
  TRY(base_config(&config, options, 1));
  const bool decoder = config_is_decoder(&config);
  config_release(&config);
  if (options->dataset == NULL && decoder && session->use == SESSION_PLAN) options->drawn = true;
  char list[TEXT_LABELS_LIST];
  if (options->dataset == NULL && decoder && !options->drawn)
    return status_set(STATUS_BAD_USAGE, "--dataset is missing: text:PATH, %s, tsv:FILE or csv:FILE:text=COLUMN",
                      text_labels_list(":DIR", list));
  if (options->dataset == NULL && !options->drawn) options->dataset = "cifar100";
  bool known = options->drawn || text_source_knows(options->dataset) || text_labels_knows(options->dataset);
  if (!known) TRY(dataset_check_name(options->dataset, options->data_dir));
  session->task = task_find(options->drawn ? NULL : options->dataset);
  if (session->task->source->texts != decoder) {
    char hint[DATASET_HINT];
    return status_set(STATUS_BAD_USAGE, "--model %s learns from %s; --dataset %s holds %s.%s", options->model, decoder ? "texts" : "images",
                      options->dataset, decoder ? "images" : "texts",
                      dataset_hint(options->dataset, options->data_dir, decoder ? DATASET_TEXTS : DATASET_IMAGES, hint));
  }
  if (options->map == SESSION_MAP_AUTO) options->map = decoder ? COUNTS_DIRICHLET : COUNTS_EVEN;
  return STATUS_OK;
}

static Status read_config(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  TRY(base_config(config, options, session->classes));
  if (options->blocks > 0 && !session_is_scratch(options->init)) /* weights that come from somewhere have a number of blocks already */
    return status_set(STATUS_BAD_USAGE, "--blocks %lld is for models trained from scratch, with --init random or --init mimetic",
                      (long long)options->blocks);
  if (options->blocks > 0) config->blocks = options->blocks;
  TRY(session->task->source->configure(session, config));
  if (options->out) TRY(config_check_labels(config)); /* not when everything is computed and cannot be saved */
  int rates = 0;
  while (options->rates[1 + rates] > 0) rates++;
  TRY(config_set_rates(config, options->rates + 1, rates));
  config->astra.groups = (int)options->groups;
  config->astra.codebook_size = (int)options->entries;
  config->astra.devices_min = (int)options->devices[0];
  config->astra.devices = (int)options->devices[1];
  config->astra.commitment_weight = options->commitment_weight;
  config->astra.noise = options->noise;
  if (options->site != SESSION_SITE_AUTO) config->astra.site = (Site)options->site;
  /* What config_check would refuse as well, but in the words of the command line. */
  const long long width = (long long)config_site_width(config);
  for (int rate = 0; rate < config_rates(config); rate++)
    if (width % config_rate_groups(config, rate) != 0)
      return status_set(STATUS_BAD_USAGE, "--groups %d does not divide the %s width %lld; give one of its divisors",
                        config_rate_groups(config, rate), config->astra.site == SITE_KV ? "key and value" : "model's", width);
  if (options->groups > 0 && (options->devices[1] > session->tokens || options->devices[1] > SESSION_DEVICES))
    return status_set(STATUS_BAD_USAGE, "--devices %lld: a sample has %lld tokens, and at most %d devices are accepted",
                      (long long)options->devices[1], (long long)session->tokens, SESSION_DEVICES);
  if (options->prediction && options->groups == 0)
    return status_set(STATUS_BAD_USAGE, "--prediction is for tokens that are quantised: it needs --groups");
  if (options->rotation && options->groups == 0)
    return status_set(STATUS_BAD_USAGE, "--rotation is for tokens that are quantised: it needs --groups");
  if (options->exchange_blocks > 0 && options->groups == 0)
    return status_set(STATUS_BAD_USAGE, "--exchange-blocks is for tokens that are quantised: it needs --groups");
  if (options->codebooks != NULL && options->groups == 0)
    return status_set(STATUS_BAD_USAGE, "--codebooks is for tokens that are quantised: it needs --groups");
  if (options->lora_rank == 0 && options->lora_alpha > 0)
    return status_set(STATUS_BAD_USAGE, "--lora-alpha is for --lora RANK, e.g. --lora 8");
  if (options->lora_rank == 0 && strcmp(options->lora_targets, LORA_TARGETS) != 0)
    return status_set(STATUS_BAD_USAGE, "--lora-targets is for --lora RANK, e.g. --lora 8");
  if (options->class_token == CLASS_SINGLE && (session_class_bias(options) != 0 || options->class_mean_power > 0))
    return status_set(STATUS_BAD_USAGE, "--%s is for one class token per device; it cannot be combined with --class-token single",
                      session_class_bias(options) != 0 ? "class-bias" : "class-mean-power");
  TRY(choose_layout(session, config));
  if (options->groups == 0 && (options->token_loss != NULL || options->eval_token_loss > 0))
    return status_set(STATUS_BAD_USAGE,
                      "--token-loss and --eval-token-loss are of tokens between devices: a plain model (--groups 0) has none");
  return STATUS_OK;
}

/* The blocks that exchange codes, unless an option or the codebooks beside the weights say it: of images, which late blocks need least of
 * others' tokens, the first two thirds where groups are coarse; finer ones gained nothing by it. 0: all. Measured:
 * docs/results/cifar100-recipe.md, "Which blocks exchange codes". */
static int64_t tuned_exchange_blocks(const ModelConfig *config) {
  const int64_t first = (2 * config->blocks + 2) / 3;
  const bool coarse = config->width >= COARSE * config->astra.groups, apart = config->astra.class_token == CLASS_DISTRIBUTED;
  return !config_is_decoder(config) && apart && coarse && first < config->blocks ? first : 0;
}

/* The bias of class tokens towards codes, of images where codes are coarse. Measured: docs/results/cifar100-recipe.md, "Class-token bias".
 */
static double tuned_class_bias(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  if (config_is_decoder(config) || astra->class_token != CLASS_DISTRIBUTED || config->width < COARSE * astra->groups) return 0;
  return astra->groups == 1 ? BIAS_ONE_GROUP : BIAS_TUNED;
}

/* Images that a model is taught by itself are mixed, where a rank's share of a batch has two. Measured: docs/results/cifar100-recipe.md,
 * "What astra-train makes where it is given no settings". */
static void choose_mixing(Session *session, bool own_targets) {
  TrainOptions *options = &session->options;
  const bool mixes = own_targets && options->mixup < 0 && options->cutmix < 0 && session_batch(session) >= 2 * ranks_count();
  if (options->mixup < 0) options->mixup = mixes ? MIX_TUNED : 0;
  if (options->cutmix < 0) options->cutmix = mixes ? MIX_TUNED : 0;
  if (mixes) say(session, "images mixed by mixup and CutMix (--recipe tuned)");
}

/* What the options leave to the recipe, after start_weights_adopt; and what of the configuration follows from it. */
static Status choose_recipe(Session *session, ModelConfig *config) {
  TrainOptions *options = &session->options;
  const bool tuned = options->recipe == RECIPE_TUNED && session_learns(session) && options->groups > 0 && options->codebooks == NULL &&
                     !session_is_scratch(session->origin) && options->lora_rank == 0 && config->astra.site == SITE_X;
  if (options->recipe == RECIPE_TUNED && session->use == SESSION_TRAIN && options->codebooks != NULL &&
      strcmp(options->codebooks, options->model) != 0)
    say(session, "the paper's recipe (--codebooks)");
  const bool predicts = tuned && !options->basis_given && !options->rotation && !options->prediction;
  const bool distils = tuned && options->distill < 0 && (session->own_teacher || options->teacher);
  const bool compares = distils && options->teacher == NULL; /* another teacher may have other rows */
  if (predicts) options->prediction = true;
  if (options->distill < 0) options->distill = distils ? DISTILL_TUNED : 0;
  if (options->distill_hidden < 0) options->distill_hidden = compares ? HIDDEN_TUNED : 0;
  if (predicts || distils)
    say(session, "%s%s%s (--recipe tuned)", predicts ? "predictions" : "", predicts && distils ? " and " : "",
        distils ? "distillation" : "");
  choose_mixing(session, compares && !config_is_decoder(config));
  const bool weighs = tuned || session->use == SESSION_LOOK; /* astra-kmeans init: what it writes whole goes beyond the paper, too */
  if (options->class_mean_power < 0) options->class_mean_power = weighs && config->astra.class_token == CLASS_DISTRIBUTED ? POWER_TUNED : 0;
  config->astra.class_mean_power = options->class_mean_power;
  const bool biases = isnan(options->class_bias) && tuned && tuned_class_bias(config) != 0;
  if (isnan(options->class_bias)) options->class_bias = biases ? tuned_class_bias(config) : 0;
  if (biases) say(session, "class bias %g (--recipe tuned)", options->class_bias);
  config->astra.class_bias = options->class_bias;
  if (options->exchange_blocks < 0 && tuned && !session->origin_quantised) {
    config->astra.exchange_blocks = tuned_exchange_blocks(config);
    if (config->astra.exchange_blocks > 0)
      say(session, "codes of the first %d block%s (--recipe tuned)", config_end_coded(config), text_plural(config_end_coded(config)));
  }
  options->exchange_blocks = config->astra.exchange_blocks;
  config->astra.rotation = options->rotation || options->prediction;
  config->astra.prediction = options->prediction;
  const bool more = options->prediction && !options->plain_prediction;
  config->astra.exact_first = more && config_is_decoder(config) && config->blocks > 1;
  config->astra.position_mean = more && !config_is_decoder(config);
  return config_check(config);
}

/* ---------------------------------------------------------------- open and close */

void session_recompute(Session *session, int64_t blocks) {
  session->recomputed = (int)(blocks < session->config->blocks ? blocks : session->config->blocks);
  model_recompute(session->model, session->recomputed);
  tape_segment_use(session->tape, session->recomputed > 0 ? session->block_arena : NULL);
}

static Status open_work(Session *session) {
  TrainOptions *options = &session->options;
  const ModelConfig *config = session->config;
  matmul_reserve();
  session->order = malloc((size_t)(session->tokens + 1) * sizeof *session->order);
  session->arena = arena_new(ARENA_BYTES);
  session->tape = session->arena ? tape_new(session->arena) : NULL;
  if (session->order == NULL || session->tape == NULL) return status_no_memory(NULL, "the training arena");
  if (session->use == SESSION_PLAN) arena_huge_pages(session->arena, false);
  if (options->precision == PRECISION_AUTO) options->precision = matmul_bf16_is_faster() ? PRECISION_BF16 : PRECISION_FP32;
  if (options->precision != PRECISION_FP32) { /* weights are in memory by now; who changes them later refreshes their shadows */
    tape_use_bf16(session->tape, true);
    TRY(param_make_shadows(model_params(session->model)));
  }
  TRY(teacher_open(session));
  if (session_learns(session) && session->teacher.other_names && session->teacher.model == NULL && session->head_rows == NULL)
    log_warning("the classes of %s have other names than those of --dataset %s: its head is kept, and learns them anew", session->origin,
                options->dataset);
  if (options->recompute > 0 || options->memory > 0) {
    session->block_arena = arena_new(ARENA_BYTES);
    if (session->block_arena == NULL)
      return status_set(STATUS_NO_MEMORY, "no address space for the values of a block (--recompute, --memory)");
    if (session->use == SESSION_PLAN) arena_huge_pages(session->block_arena, false);
  }
  session_recompute(session, options->recompute);
  TRY(task_lay_plain(session, session->tokens));
  TRY(layout_build_plain(&session->layout, session->tokens, session->plain_layout.class_token)); /* room for any layout of a batch */
  if (session->use != SESSION_PLAN) TRY(metrics_confusion_new(&session->confusion, session->classes));
  rng_init(&session->map_rng, (uint64_t)options->seed, STREAM_MAP);
  rng_init(&session->revive_rng, (uint64_t)options->seed, STREAM_REVIVE);
  rng_init(&session->mixup_rng, (uint64_t)options->seed, STREAM_MIXUP);
  if (config->astra.groups > 0) {
    EmulateOptions emulate = {.noise = options->noise,
                              .noise_warmup = options->noise_warmup * options->accumulate,
                              .covariance = (NoiseCovariance)options->covariance,
                              .gradient = (QuantiseGradient)options->gradient,
                              .ema = {.decay = options->codebook_decay, .smoothing = 1e-5, .dead_below = options->dead_below},
                              .seed = (uint64_t)options->seed,
                              .eval_loss = {.share = options->eval_token_loss}};
    TRY(parse_token_loss(&emulate.loss, options->token_loss));
    TRY(emulate_init(&session->emulation, config, &emulate));
  }
  OptimizerOptions optimizer = options->optimizer;
  optimizer.seed = options->seed;
  if (session->use != SESSION_TRAIN) return session_learns(session) ? optimizer_check(&optimizer) : STATUS_OK;
  return optimizer_init(&session->optimizer, model_params(session->model), &optimizer);
}

static Status open_all(Session *session, ModelConfig *config) {
  const TrainOptions *options = &session->options;
  const MemoryUse before = memory_used();
  TRY(choose_task(session));
  TRY(session->task->source->open(session));
  if (session->classes == 1 && session_learns(session)) /* codebooks need no classes */
    return status_set(STATUS_BAD_VALUE, "--dataset %s has one class; a classifier learns to tell at least 2 apart", options->dataset);
  session_choose_batch(session);
  TRY(read_config(session, config));
  TRY(start_weights_find(session));
  TRY(start_weights_adopt(session, config));
  TRY(choose_recipe(session, config));
  TRY(model_new(&session->model, config));
  session->config = model_config(session->model);
  TRY(set_device_map(session));
  if (options->lora_rank > 0 && session_learns(session)) { /* adapters learn and are in no file yet: only training has them */
    const double alpha = options->lora_alpha > 0 ? options->lora_alpha : 2 * (double)options->lora_rank;
    Status status = model_add_adapters(session->model, (int)options->lora_rank, alpha, options->lora_targets);
    if (status == STATUS_BAD_VALUE)
      return status_wrap(STATUS_BAD_USAGE, "--lora %lld --lora-targets %s", (long long)options->lora_rank, options->lora_targets);
    TRY(status);
  }
  session->program = before.resident + memory_used().anonymous - before.anonymous; /* mapped data counts as such */
  if (session->use == SESSION_PLAN) {
    TRY(param_reserve(model_params(session->model), true));
    if (session->origin != NULL && !session_is_scratch(session->origin)) /* no number is read, but they are those the run would read */
      TRY(checkpoint_check_params(session->model, session->origin, &session->report));
  } else {
    TRY(param_allocate(model_params(session->model), session->use == SESSION_TRAIN));
    TRY(start_weights_load(session));
  }
  TRY(session->task->source->start(session));
  choose_length(session);
  return open_work(session);
}

Status session_open(Session *session, const TrainOptions *options, SessionUse use) {
  *session = (Session){.options = *options, .use = use, .origin_classes = -1, .origin_image = -1};
  ModelConfig config = {0};
  Status status = open_all(session, &config);
  config_release(&config);
  if (status != STATUS_OK) session_close(session);
  return status;
}

void session_close(Session *session) {
  if (session->task != NULL) session->task->source->close(session);
  model_free(session->teacher.model);
  checkpoint_unmap(session->teacher.mapping);
  optimizer_release(&session->optimizer);
  emulate_release(&session->emulation);
  tape_free(session->tape);
  arena_free(session->arena);
  arena_free(session->block_arena);
  model_free(session->model);
  checkpoint_unmap(session->frozen);
  layout_release(&session->layout);
  layout_release(&session->plain_layout);
  tokenizer_close(session->tokenizer);
  free(session->tokenizer_place);
  json_decref(session->chat);
  free(session->confusion);
  free(session->head_rows);
  free(session->order);
  free(session->origin);
  *session = (Session){0};
}
