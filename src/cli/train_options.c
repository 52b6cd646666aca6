/* The command line of training: see train_options.h. */
#include "cli/train_options.h"
#include "base/files.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "data/data_paths.h"
#include "data/text/text_perplexity.h"
#include "nn/safetensors.h"
#include "train/ranks.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTIONS_FILE_MAX = 1 << 16 };
enum { CHOICES_LINES = 44, CHOICES_BYTES = 8192 }; /* of it, kept for write_choices, BEGUN and the digest, and for later versions */

void train_options_table(TrainCommand *command, Option table[TRAIN_OPTIONS_MAX]) {
  *command = (TrainCommand){.memory = -1};
  session_defaults(&command->train);
  command->train.recipe = RECIPE_TUNED;
  TrainOptions *t = &command->train;
  OptimizerOptions *o = &t->optimizer;
  Option list[] = {
      {OPTION_GROUP, .help = "Model and data"},
      {OPTION_TEXT, "model", 'm', &t->model, "NAME",
       .help = "preset (vit-base, gpt2, llama-mini...), installed checkpoint, checkpoint directory or GGUF file"},
      {OPTION_TEXT, "dataset", 'd', &t->dataset, "NAME",
       .help = "cifar100 (of images), folder:DIR, csv:FILE, text:PATH, sst2:DIR, agnews:DIR, qqp:DIR, tsv:FILE..."},
      {OPTION_TEXT, "eval-dataset", 0, &t->eval_dataset, "NAME", .help = "text for evaluation (default: the data set's validation part)"},
      {OPTION_INT, "validation-part", 0, &t->validation_part, "N", .min = 0, .max = INT32_MAX,
       .help = "hold out N training samples for evaluation; 0: evaluate on the test part"},
      {OPTION_INT, "train-part", 0, &t->train_part, "N", .min = 0, .max = INT32_MAX,
       .help = "train only on the N samples that --validation-part N would hold out; 0: on all others"},
      {OPTION_TEXT, "tokenizer", 0, &t->tokenizer, "DIR",
       .help = "tokenizer file or directory, or installed model (default: the model's own)"},
      {OPTION_INT, "context", 0, &t->context, "N", .min = 0, .max = 1 << 20, .help = "tokens per window of text; 0: the model's context"},
      {OPTION_TEXT, "data-dir", 0, &t->data_dir, "DIR", .help = "directory searched first for data sets"},
      {OPTION_TEXT, "init", 'i', &t->init, "FROM",
       .help = "initial weights: directory, .safetensors or GGUF file, installed checkpoint, random, mimetic"},
      {OPTION_INT, "blocks", 0, &t->blocks, "N", .min = 0, .max = CONFIG_BLOCKS_MAX,
       .help = "number of blocks when training from scratch; 0: the model's"},
      {OPTION_INT, "image-size", 0, &t->image_size, "N", .min = 0, .max = 4096, .help = "image side in pixels; 0: the model's"},
      {OPTION_TEXT, "out", 'o', &t->out, "DIR", .help = "output directory for the checkpoint (default: runs/MODEL-DATASET-gG)"},
      {OPTION_FLAG, "overwrite", 0, &command->overwrite, .help = "replace an earlier checkpoint in --out"},
      {OPTION_TEXT, "resume", 0, &command->resume, "DIR", .help = "resume an interrupted run, bit for bit"},
      {OPTION_GROUP, .help = "ASTRA"},
      {OPTION_NUMBERS, "groups", 'g', t->rates, "G", .min = 0, .max = 65536,
       .help = "groups per codebook; 0: train the plain model; 1,2,4,8: one model for all of these"},
      {OPTION_INT, "codebook-size", 'k', &t->entries, "K", .min = CODEBOOK_MIN, .max = CODEBOOK_MAX, .help = "codewords per group"},
      {OPTION_RANGE, "devices", 'n', t->devices, "N", .min = 1, .max = SESSION_DEVICES,
       .help = "number of devices: 4, or 2-8 (drawn per batch); astra-infer runs at most 64"},
      {OPTION_CHOICE, "map", 0, &t->map, .choices = "even|fixed|dirichlet|auto",
       .help = "token counts per device; auto: even for images, dirichlet for texts"},
      {OPTION_CHOICE, "site", 0, &t->site, .choices = "x|kv|auto",
       .help = "quantised tensor: block input or keys and values; auto: kv for Llama"},
      {OPTION_CHOICE, "recipe", 0, &t->recipe, .choices = "tuned|paper",
       .help = "tuned: --prediction --distill 0.5 --distill-hidden 1 for pretrained models, site x"},
      {OPTION_FLAG, "rotation", 0, &t->rotation, .help = "quantise tokens in a basis of independent, equally hard groups"},
      {OPTION_FLAG, "prediction", 0, &t->prediction, .help = "quantise only what the previous block does not predict; implies --rotation"},
      {OPTION_INT, "exchange-blocks", 0, &t->exchange_blocks, "N", .min = 0, .max = CONFIG_BLOCKS_MAX,
       .help = "images: only the first N blocks exchange codes; 0: all; auto: --recipe"},
      {OPTION_TEXT, "counts", 0, &t->counts, "LIST", .help = "token counts for --map fixed: 28,12,12,12"},
      {OPTION_TEXT, "layout", 0, &t->layout, "LAYOUT",
       .help = "token placement: raster, strided, checkerboard, random:SEED, permuted (per batch; default)"},
      {OPTION_TEXT, "eval-layout", 0, &t->eval_layout, "LAYOUT",
       .help = "placement for evaluation and inference (default: checkerboard, or a fixed --layout)"},
      {OPTION_REAL, "concentration", 0, &t->concentration, "A", .min = 0.01, .max = 1e6}, /* unlisted: --help keeps to 102 lines */
      {OPTION_CHOICE, "class-token", 0, &t->class_token, .choices = "distributed|single",
       .help = "one class token per device, or one in total"},
      {OPTION_REAL, "class-bias", 0, &t->class_bias, "B", .min = -100, .max = 100},        /* unlisted, too */
      {OPTION_REAL, "class-mean-power", 0, &t->class_mean_power, "P", .min = 0, .max = 4}, /* and this */
      {OPTION_REAL, "commitment", 0, &t->commitment_weight, "BETA", .min = 0, .max = 1e6, .help = "weight of the commitment loss"},
      {OPTION_REAL, "noise", 0, &t->noise, "LAMBDA", .min = 0, .max = 100, .help = "scale of the noise added to quantised tokens"},
      {OPTION_INT, "noise-warmup", 0, &t->noise_warmup, "STEPS", .min = 0, .max = 1e9}, /* unlisted, as above */
      {OPTION_CHOICE, "noise-covariance", 0, &t->covariance, .choices = "full|diagonal|joint|restored", .help = "covariance of that noise"},
      {OPTION_CHOICE, "vq-gradient", 0, &t->gradient, .choices = "ste|rotation|none", .help = "gradient estimator of the quantiser"},
      {OPTION_REAL, "codebook-decay", 0, &t->codebook_decay, "GAMMA", .min = 0, .max = 1,
       .help = "decay of the codebooks' moving averages"},
      {OPTION_REAL, "dead-below", 0, &t->dead_below, "SHARE", .min = 0, .max = 1,
       .help = "revive codewords used less than this share of the mean"},
      {OPTION_TEXT, "token-loss", 0, &t->token_loss, "P[,span:S]",
       .help = "share of remote tokens lost, in bursts of mean length S (default none)"},
      {OPTION_TEXT, "codebooks", 0, &t->codebooks, "DIR", .help = "initial codebooks instead of K-means"},
      {OPTION_INT, "kmeans-samples", 0, &t->kmeans_samples, "N", .min = 0, .max = 1e9,
       .help = "number of embeddings for K-means; 0: 16 per codeword, or more for a basis"},
      {OPTION_INT, "kmeans-iterations", 0, &t->kmeans_iterations, "N", .min = 1, .max = 1e6, .help = "maximum number of Lloyd iterations"},
      {OPTION_REAL, "kmeans-tolerance", 0, &t->kmeans_tolerance, "SHARE", .min = 0, .max = 1}, /* unlisted, as above */
      {OPTION_INT, "kmeans-restarts", 0, &t->kmeans_restarts, "N", .min = 1, .max = 1000, .help = "number of restarts; the best is kept"},
      {OPTION_CHOICE, "kmeans-start", 0, &t->kmeans_start, .choices = "greedy|plus-plus|random|split"}, /* unlisted, as above */
      {OPTION_INT, "kmeans-minibatch", 0, &t->kmeans_minibatch, "N", .min = 0, .max = 1e9},             /* unlisted, as above */
      {OPTION_GROUP, .help = "Training"},
      {OPTION_INT, "epochs", 'e', &t->epochs, "N", .min = 0, .max = 1e6,
       .help = "passes over the data; 0: 32 for images, 1 for text, 3 for labelled texts, more if few"},
      {OPTION_INT, "max-steps", 0, &t->max_steps, "N", .min = 0, .max = 1e12,
       .help = "number of steps, in place of --epochs; 0: set by those"},
      {OPTION_INT, "batch", 'b', &t->batch, "N", .min = 0, .max = 65536,
       .help = "samples per batch; 0: 64 images, 8 windows, 16 labelled texts, less if few"},
      {OPTION_INT, "accumulate", 0, &t->accumulate, "N", .min = 1, .max = 65536, .help = "batches accumulated per step"},
      {OPTION_CHOICE, "precision", 0, &t->precision, .choices = "fp32|bf16|auto",
       .help = "precision of products and activations; auto: bf16 where it is faster"},
      {OPTION_TEXT, "backend", 0, &command->backend, "NAME", .help = CLI_BACKEND_HELP},
      {OPTION_TEXT, "recompute", 0, &command->recompute, "[N]", .bare = "all", .off = "0",
       .help = "recompute activations of all blocks or the first N in backward: less memory"},
      {OPTION_SIZE, "memory", 0, &command->memory, "SIZE", .help = "memory limit, e.g. 4G: recompute as few blocks as needed"},
      {OPTION_CHOICE, "optimizer", 0, &o->kind, .choices = "adamw|muon", .help = "muon: orthogonalised momentum for the blocks' matrices"},
      {OPTION_REAL, "learning-rate", 'l', &o->rate, "RATE", .min = 0, .max = 100,
       .help = "peak learning rate; auto: 1e-4 pretrained, 3e-4 adapters, up to 1e-3 from scratch"},
      {OPTION_INT, "warmup", 0, &t->warmup, "STEPS", .min = 0, .max = 1e12,
       .help = "linear warm-up steps, then cosine decay; auto: a tenth of the run, at most 100"},
      {OPTION_REAL, "rate-floor", 0, &t->rate_floor, "PART", .min = 0, .max = 1, .help = "final learning rate as a share of the peak"},
      {OPTION_REAL, "weight-decay", 0, &o->decay, "W", .min = 0, .max = 10, .help = "decoupled weight decay (AdamW); 0: Adam"},
      {OPTION_REAL, "beta1", 0, &o->beta1, "B", .min = 0, .max = 0.999999}, /* unlisted, as above */
      {OPTION_REAL, "beta2", 0, &o->beta2, "B", .min = 0, .max = 0.999999, .help = "decay of Adam's second moment"},
      {OPTION_REAL, "epsilon", 0, &o->eps, "E", .min = 1e-30, .max = 1},
      {OPTION_CHOICE, "optimizer-bits", 0, &o->moments, .choices = "32|16|8",
       .help = "bits of each of Adam's two moments per weight; fewer: less memory"},
      {OPTION_REAL, "clip", 0, &o->clip, "NORM", .min = 0, .max = 1e9, .help = "maximum gradient norm; 0: no clipping"},
      {OPTION_REAL, "label-smoothing", 0, &t->smoothing, "S", .min = 0, .max = 0.99, .help = "smoothing of the target distribution"},
      {OPTION_REAL, "mixup", 0, &t->mixup, "ALPHA", .min = 0, .max = 100, .help = "Beta parameter of mixup; 0: off; default: by recipe"},
      {OPTION_REAL, "cutmix", 0, &t->cutmix, "ALPHA", .min = 0, .max = 100,
       .help = "Beta parameter of CutMix; 0: off; with --mixup, one of the two per batch"},
      {OPTION_REAL, "drop-path", 0, &t->drop_path, "RATE", .min = 0, .max = 0.95,
       .help = "stochastic depth: rate of dropped branches in the last block"},
      {OPTION_REAL, "ema-decay", 0, &o->average, "D", .min = 0, .max = 0.999999, .help = "decay of the weights' moving average; 0: off"},
      {OPTION_TEXT, "augment", 0, &t->augment, "HOW", .bare = "crop", .off = "none",
       .help = "image augmentation: none, crop, trivial (TrivialAugment), randaugment[:N,M]"},
      {OPTION_REAL, "random-erasing", 0, &t->erase, "P", .min = 0, .max = 1, .help = "probability of erasing a random box of an image"},
      {OPTION_REAL, "crop-min", 0, &t->crop_min, "AREA", .min = 0, .max = 1, .old_name = "crop-least",
       .help = "minimum area of random resized crops; 0: pad and crop"},
      {OPTION_REAL, "patch-drop", 0, &t->patch_drop, "PART", .min = 0, .max = 0.95,
       .help = "share of patches dropped in the first 80% of the steps (plain model)"},
      {OPTION_REAL, "distill", 0, &t->distill, "SHARE", .min = 0, .max = 1,
       .help = "share of the targets taken from a plain teacher's probabilities; auto: see --recipe"},
      {OPTION_REAL, "distill-hidden", 0, &t->distill_hidden, "WEIGHT", .min = 0, .max = 1e6,
       .help = "weight of the hidden-state loss against a teacher; auto: --recipe"},
      {OPTION_TEXT, "teacher", 0, &t->teacher, "DIR", .help = "plain model to distil from (default: the weights the run starts from)"},
      {OPTION_INT, "lora", 0, &t->lora_rank, "RANK", .min = 0, .max = MODEL_ADAPTERS_RANK_MAX,
       .help = "rank of low-rank adapters; the weights are frozen; 0: train all weights"},
      {OPTION_REAL, "lora-alpha", 0, &t->lora_alpha, "ALPHA", .min = 0, .max = 1e6,
       .help = "adapter scale is ALPHA / RANK; 0: ALPHA = 2 RANK"},
      {OPTION_TEXT, "lora-targets", 0, &t->lora_targets, "LIST",
       .help = "adapted matrices: all, attention, mlp, or some of query,key,value,output,gate,up,down"},
      {OPTION_CHOICE, "wire", 0, &t->wire, .choices = "fp32|bf16",
       .help = "format of gradients between ranks (mpirun -n N astra-train ...); bf16 for slow links"},
      {OPTION_FLAG, "shard-optimizer", 0, &t->shard_optimizer, .help = "shard the optimizer's states over the ranks (ZeRO-1)"},
      {OPTION_GROUP, .help = "Evaluation and output"},
      {OPTION_INT, "eval-samples", 0, &t->eval_samples, "N", .min = 0, .max = 1e9, .help = "test samples per evaluation; 0: all"},
      {OPTION_REAL, "eval-token-loss", 0, &t->eval_token_loss, "P", .min = 0, .max = 0.95,
       .help = "share of remote tokens lost during evaluation"},
      {OPTION_INT, "eval-every", 0, &t->eval_every, "EPOCHS", .min = 0, .max = 1e6,
       .help = "epochs between evaluations; 0: 1, or more for about 20 evaluations in total"},
      {OPTION_INT, "log-every", 0, &t->log_every, "STEPS", .min = 1, .max = 1e9, .help = "steps between progress lines"},
      {OPTION_INT, "checkpoint-every", 0, &t->checkpoint_every, "STEPS", .min = 1, .max = 1e9, .help = "steps between checkpoints"},
      {OPTION_FLAG, "keep-best", 0, &t->keep_best, .help = "also keep the best checkpoint, in OUT/best"},
      {OPTION_INT, "early-stopping", 0, &t->early_stopping, "N", .min = 0, .max = 1e6,
       .help = "stop after N evaluations without improvement; 0: never"},
      {OPTION_CHOICE, "dtype", 0, &t->dtype, .choices = "f32|f16|bf16", .help = "data type of the exported weights"},
      {OPTION_INT, "seed", 's', &t->seed, "N", .min = 0, .max = 9e15, .help = "random seed; same seed and threads, same result"},
      {OPTION_INT, "threads", 't', &t->threads, "N", .min = 0, .max = THREADS_MAX, .help = "compute threads; 0: one per core"},
      {OPTION_INT, "workers", 0, &t->workers, "N", .min = 1, .max = 64, .help = "threads that load images"},
      {OPTION_FLAG, "dry-run", 0, &command->dry_run,
       .help = "report parameters, memory, FLOPs, bits and time, and show the first batch, without training"},
      {OPTION_FLAG, "eval-only", 0, &command->eval_only, .help = "evaluate without training"},
      {OPTION_CHOICE, "perplexity", 0, &t->perplexity, .choices = PERPLEXITY_CHOICES,
       .help = "unit of perplexity, with --eval-only on text"},
      {OPTION_INT, "stride", 0, &t->stride, "N", .min = 0, .max = 1 << 20,
       .help = "tokens between windows, with --eval-only on text; 0: the context"},
      {OPTION_CHOICE, "eval-part", 0, &t->test_part, .choices = "train|valid|test|whole|auto",
       .help = "part of the text, with --eval-only"},
      {OPTION_FLAG, "verbose", 'v', &command->verbose, .help = "more detail: codebook statistics, data search paths"},
      {OPTION_FLAG, "quiet", 'q', &t->quiet, .help = "print warnings and errors only"},
      {OPTION_FLAG, "json", 'j', &command->json, .help = "print one JSON object on stdout, nothing else"},
      {OPTION_GROUP, .help = NULL}};
  _Static_assert(sizeof list / sizeof *list <= TRAIN_OPTIONS_MAX, "the table has room for all options");
  memcpy(table, list, sizeof list);
}

size_t train_options_select(const Option *table, const char *const *names, Option *to) {
  size_t count = 0;
  for (; *names != NULL; names++) to[count++] = *options_find(table, *names);
  return count;
}

static bool is_installed(const char *kind, const char *name) {
  char *path;
  if (data_paths_find(kind, name, NULL, &path) != STATUS_OK) return false;
  free(path);
  return true;
}

/* In place of the name of an installed checkpoint its directory, which *owner keeps. Paths and NULL stay. */
static void find_installed(const char **name, const char *data_dir, char **owner) {
  char *found;
  if (*name == NULL || strchr(*name, '/') || checkpoint_is_path(*name)) return;
  if (data_paths_find("checkpoints", *name, data_dir, &found) != STATUS_OK) return;
  free(*owner);
  *name = *owner = found;
}

/* A preset's name stays: its weights are found later, or need not be there. */
static void find_model(TrainOptions *options) {
  static char *directory; /* lives as long as the program: the options point to it */
  ModelConfig config;
  const bool preset = config_preset(&config, options->model, 2) == STATUS_OK;
  config_release(&config);
  if (!preset) find_installed(&options->model, options->data_dir, &directory);
}

void train_options_find_others(TrainOptions *options) {
  static char *init, *teacher, *codebooks; /* as above */
  const bool named = options->init != NULL && !session_is_scratch(options->init) && !files_exists(options->init);
  if (named) find_installed(&options->init, options->data_dir, &init);
  find_installed(&options->teacher, options->data_dir, &teacher);
  find_installed(&options->codebooks, options->data_dir, &codebooks);
}

Status train_options_need_model(TrainOptions *options, const char *command) {
  char example[256] = "";
  if (options->model != NULL) {
    find_model(options);
    return STATUS_OK;
  }
  if (command != NULL && is_installed("checkpoints", "vit-cifar") && is_installed("datasets", "cifar100-sample"))
    snprintf(example, sizeof example, ". For example: %s --model vit-cifar --dataset cifar100-sample --groups 8", command);
  return status_set(STATUS_BAD_USAGE,
                    "--model is missing: %s, an installed checkpoint (astra-data list), or a checkpoint's directory or GGUF file%s",
                    config_preset_names(), example);
}

/* The last part of a path or of a data set's name (clothing of folder:/data/clothing/), [*length] letters; all of one that has no parts. */
static const char *last_part(const char *name, int *length) {
  size_t end = strlen(name), begin;
  while (end > 1 && name[end - 1] == '/') end--;
  for (begin = end; begin > 0 && name[begin - 1] != '/' && name[begin - 1] != ':'; begin--) continue;
  *length = (int)(end - begin);
  return name + begin;
}

const char *train_options_usual_out(const TrainOptions *options, const char *prefix) {
  static char path[512];
  int model_length, set_length;
  const char *model = last_part(options->model, &model_length),
             *set = last_part(options->dataset ? options->dataset : "cifar100", &set_length);
  const int64_t *rates = options->rates[1] > 0 ? options->rates + 1 : options->rates;
  const int max = (int)sizeof path - 1; /* a longer name is cut */
  int at = snprintf(path, sizeof path, "runs/%s%.*s-%.*s-g%lld", prefix, model_length, model, set_length, set, (long long)rates[0]);
  for (int i = 1; rates > options->rates && rates[i] > 0 && at < max; i++)
    at += snprintf(path + at, sizeof path - (size_t)at, "-%lld", (long long)rates[i]);
  return path;
}

/* ---------------------------------------------------------------- remembering */

static char *options_path(const char *directory) {
  char *folder = files_join(directory, "training"), *path = folder ? files_join(folder, "options.txt") : NULL;
  free(folder);
  return path;
}

#define RECIPE "recipe"
static const char BEGUN[] = "# begun in "; /* behind the options */
static const char DIGEST[] = "# xxh3 ";    /* the last line: of all before it */

const char *train_options_here(void) {
  static char path[PATH_MAX];
  return getcwd(path, sizeof path) != NULL && strchr(path, '\n') == NULL ? path : NULL;
}

static void write_choice(FILE *stream, const Option *table, const char *name, int chosen) {
  int length;
  const char *word = options_choice(options_find(table, name), chosen, &length);
  fprintf(stream, "--%s\n%.*s\n", name, length, word);
}

/* What was chosen for the data and the machine, and what a resumed run was given. RECIPE begins it. */
static void write_choices(FILE *stream, const TrainOptions *options, int64_t threads) {
  TrainCommand command;
  Option table[TRAIN_OPTIONS_MAX]; /* for its words */
  train_options_table(&command, table);
  write_choice(stream, table, RECIPE, options->recipe);
  fprintf(stream, "--threads\n%lld\n--batch\n%lld\n--epochs\n%lld\n--warmup\n%lld\n--eval-every\n%lld\n--learning-rate\n%.17g\n",
          (long long)threads, (long long)options->batch, (long long)options->epochs, (long long)options->warmup,
          (long long)options->eval_every, options->optimizer.rate);
  fprintf(stream, "--mixup\n%.17g\n--cutmix\n%.17g\n", options->mixup, options->cutmix);
  fprintf(stream, "--distill\n%.17g\n--distill-hidden\n%.17g\n--class-bias\n%.17g\n--class-mean-power\n%.17g\n--exchange-blocks\n%lld\n",
          options->distill, options->distill_hidden, options->class_bias, options->class_mean_power, (long long)options->exchange_blocks);
  fprintf(stream, "--max-steps\n%lld\n", (long long)options->max_steps);
  write_choice(stream, table, "precision", options->precision);
  write_choice(stream, table, "dtype", options->dtype);
  fprintf(stream, "--early-stopping\n%lld\n%s\n", (long long)options->early_stopping,
          options->keep_best ? "--keep-best" : "--no-keep-best");
}

static char *options_text(const TrainOptions *options, int argc, char **argv, const char *begun_in, int64_t threads, size_t *size) {
  char *text = NULL, digest[SAFE_DIGEST_TEXT];
  FILE *stream = open_memstream(&text, size);
  if (stream == NULL) return NULL;
  const bool marked = argc > 1 && strcmp(argv[argc - 1], "--") == 0; /* the end of the options, behind which more come here */
  for (int i = 1; i < argc - marked; i++) fprintf(stream, "%s\n", argv[i]);
  write_choices(stream, options, threads);
  if (begun_in != NULL) fprintf(stream, "%s%s\n", BEGUN, begun_in);
  if (fflush(stream) == 0) {
    safe_digest_text(safe_digest_of(text, *size), digest);
    fprintf(stream, "%s%s\n", DIGEST, digest);
  }
  if (fclose(stream) == 0) return text;
  free(text);
  return NULL;
}

Status train_options_check_lines(int argc, char **argv) {
  size_t bytes = 0;
  for (int i = 1; i < argc; i++) {
    bytes += strlen(argv[i]) + 1;
    if (strchr(argv[i], '\n')) return status_set(STATUS_BAD_USAGE, "argument %d holds a line feed, with which --resume could not go on", i);
  }
  if (argc + CHOICES_LINES <= TRAIN_OPTIONS_REMEMBERED && bytes + CHOICES_BYTES <= OPTIONS_FILE_MAX) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%d arguments of %zu bytes: at most %d arguments and %d bytes can be remembered for --resume",
                    argc - 1, bytes, TRAIN_OPTIONS_REMEMBERED - CHOICES_LINES - 1, OPTIONS_FILE_MAX - CHOICES_BYTES);
}

Status train_options_remember(const TrainOptions *options, int argc, char **argv, const char *begun_in, int64_t threads) {
  size_t size;
  char *path = options_path(options->out), *folder = files_join(options->out, "training");
  char *text = options_text(options, argc, argv, begun_in, threads, &size);
  Status status =
      path != NULL && folder != NULL && text != NULL ? files_make_dirs(folder) : status_no_memory(NULL, "the options of the run");
  if (status == STATUS_OK) status = files_write(path, text, size);
  free(text);
  free(path);
  free(folder);
  return status;
}

/* As they are listed to the user. */
static const char *const HARMLESS[] = {
    "epochs",     "max-steps",    "data-dir",    "threads",         "workers",   "precision",      "backend",
    "recompute",  "memory",       "wire",        "shard-optimizer", "keep-best", "early-stopping", "checkpoint-every",
    "eval-every", "eval-samples", "eval-layout", "eval-token-loss", "log-every", "dtype",          "json",
    "quiet",      "verbose"};
enum { HARMLESS_COUNT = sizeof HARMLESS / sizeof *HARMLESS, HARMLESS_TEXT = 512 };

/* "--epochs, --max-steps ... and --verbose" */
static const char *list_harmless(char text[HARMLESS_TEXT]) {
  size_t used = 0;
  for (size_t i = 0; i < HARMLESS_COUNT && used < HARMLESS_TEXT; i++) {
    const char *between = i + 1 < HARMLESS_COUNT ? ", " : " and ";
    used += (size_t)snprintf(text + used, HARMLESS_TEXT - used, "%s--%s", i > 0 ? between : "", HARMLESS[i]);
  }
  return text;
}

static Status check_harmless(const Option *table) {
  for (; table->kind != OPTION_GROUP || table->help != NULL; table++) {
    bool fine = !table->given || strcmp(table->name, "resume") == 0;
    for (size_t i = 0; !fine && i < HARMLESS_COUNT; i++) fine = strcmp(table->name, HARMLESS[i]) == 0;
    if (fine) continue;
    char text[HARMLESS_TEXT];
    return status_set(STATUS_BAD_USAGE, "--%s cannot be changed on --resume: the run keeps its own options. Accepted with it are %s",
                      table->name, list_harmless(text));
  }
  return STATUS_OK;
}

Status train_options_split(char *text, size_t size, const char *path, char *arguments[TRAIN_OPTIONS_REMEMBERED], int *count) {
  *count = 1;
  arguments[0] = text;
  for (char *at = text; at < text + size;) {
    char *end = memchr(at, '\n', (size_t)(text + size - at));
    if (end == NULL || *count >= TRAIN_OPTIONS_REMEMBERED)
      return status_set(STATUS_BAD_FILE, "%s is damaged: it should hold one option to a line", path);
    *end = '\0';
    arguments[(*count)++] = at;
    at = end + 1;
  }
  return STATUS_OK;
}

/* Takes the last line off; files of earlier versions have none. */
static Status check_digest(char *text, size_t *size, const char *path) {
  const size_t length = sizeof DIGEST - 1 + SAFE_DIGEST_TEXT;
  if (*size < length || memcmp(text + *size - length, DIGEST, sizeof DIGEST - 1) != 0) return STATUS_OK;
  char expected[SAFE_DIGEST_TEXT];
  *size -= length;
  safe_digest_text(safe_digest_of(text, *size), expected);
  bool same = memcmp(text + *size + sizeof DIGEST - 1, expected, SAFE_DIGEST_TEXT - 1) == 0;
  text[*size] = '\0';
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE,
                    "%s is damaged: its lines do not agree with their digest; start anew (or, if you changed it, remove its last line)",
                    path);
}

/* Takes the line off that says where the run was begun; NULL: files of earlier versions have none. */
static const char *take_begun(char *text, size_t *size) {
  const size_t length = sizeof BEGUN - 1;
  if (*size == 0 || text[*size - 1] != '\n') return NULL; /* which train_options_split refuses */
  size_t at = *size - 1;
  while (at > 0 && text[at - 1] != '\n') at--;
  if (*size - at <= length || memcmp(text + at, BEGUN, length) != 0) return NULL;
  text[*size - 1] = '\0';
  *size = at;
  return text + at + length;
}

Status train_options_tell_begun(const TrainCommand *command, Status status) {
  const char *here = train_options_here();
  if (command->resume == NULL || command->begun_in == NULL || here == NULL || strcmp(here, command->begun_in) == 0) return status;
  if (status != STATUS_NOT_FOUND && status != STATUS_BAD_USAGE && status != STATUS_IO) return status;
  return status_wrap(status, "--resume %s: relative paths in its options are of %s, where the run was begun; resume it there",
                     command->resume, command->begun_in);
}

/* Runs of earlier versions go on as they are. */
static Status find_plain_prediction(TrainOptions *options, const char *directory) {
  ModelConfig config;
  const Status status = config_load(&config, directory);
  if (status == STATUS_NOT_FOUND) return STATUS_OK; /* no checkpoint yet */
  TRY(status);
  options->plain_prediction = config_plain_prediction(&config.astra);
  config_release(&config);
  return STATUS_OK;
}

/* How many of the lines of options.txt are the command line that the run was begun with: the choices come behind it. */
static int command_line_of(char *const *arguments, int count) {
  int at = count - 1;
  while (at > 0 && strcmp(arguments[at], "--" RECIPE) != 0) at--;
  return at > 0 ? at : count; /* files of earlier versions do not begin with that: they keep their choices */
}

Status train_options_resume(TrainCommand *command, Option table[TRAIN_OPTIONS_MAX], int argc, char **argv) {
  TRY(check_harmless(table));
  const char *directory = command->resume;
  bool memory = options_given(table, "memory"), recompute = options_given(table, "recompute"), threads = options_given(table, "threads");
  bool by_epochs = options_given(table, "epochs") && !options_given(table, "max-steps");
  static char *arguments[TRAIN_OPTIONS_REMEMBERED]; /* as long as the text */
  char *path = options_path(directory);
  const char *positional[TRAIN_OPTIONS_REMEMBERED];
  int count = 0, positionals;
  const char *begun_in = NULL;
  static char *text; /* lives as long as the program: the options point into it */
  size_t size;
  if (path == NULL) return status_no_memory(NULL, "a path");
  free(text);
  text = NULL;
  Status status = files_exists(path)
                      ? files_read(path, OPTIONS_FILE_MAX, &text, &size)
                      : status_set(STATUS_NOT_FOUND, "no run to resume here; give the --out directory of an interrupted run");
  if (status == STATUS_OK) status = check_digest(text, &size, path);
  if (status == STATUS_OK) begun_in = take_begun(text, &size);
  if (status == STATUS_OK) status = train_options_split(text, size, path, arguments, &count);
  free(path);
  if (status != STATUS_OK) return status_wrap(status, "--resume %s", directory);
  train_options_table(command, table);
  TRY(options_parse(table, count, arguments, positional, &positionals));
  if (positionals > 0) return status_set(STATUS_BAD_FILE, "--resume %s: its options.txt is damaged at \"%s\"", directory, positional[0]);
  if (!options_given(table, "recipe")) command->train.recipe = RECIPE_PAPER;      /* there was no other when it began */
  if (!options_given(table, "distill-hidden")) command->train.distill_hidden = 0; /* no recipe had it */
  if (!options_given(table, "mixup")) command->train.mixup = 0;
  if (!options_given(table, "cutmix")) command->train.cutmix = 0;
  if (!options_given(table, "class-bias")) command->train.class_bias = 0;
  if (!options_given(table, "class-mean-power")) command->train.class_mean_power = 0;
  if (!options_given(table, "exchange-blocks")) command->train.exchange_blocks = 0;
  command->train.earlier_defaults = !options_given(table, "warmup"); /* since they follow from the data, they are remembered */
  if (memory) command->recompute = NULL;                             /* one takes the place of the other */
  if (recompute) command->memory = -1;
  if (command->train.prediction) TRY(find_plain_prediction(&command->train, directory));
  TRY(options_parse(table, argc, argv, positional, &positionals));
  if (by_epochs) command->train.max_steps = 0; /* the one that was given decides */
  /* Ranks share the cores that one process had when the run began. */
  if (!threads && ranks_count() > 1 && command->train.threads > threads_usable()) command->train.threads = 0;
  command->train.out = directory;
  command->begun = arguments;
  command->begun_in = begun_in;
  command->begun_count = command_line_of(arguments, count);
  return STATUS_OK;
}

void train_options_adapt(TrainOptions *options, const Option *table, const AstraConfig *astra) {
  if (!options_given(table, "class-token")) options->class_token = (int)astra->class_token;
  const bool several = options->class_token == CLASS_DISTRIBUTED; /* class tokens, which these two are for */
  if (several && !options_given(table, "class-bias")) options->class_bias = astra->class_bias;
  if (several && !options_given(table, "class-mean-power")) options->class_mean_power = astra->class_mean_power;
  if (!options_given(table, "commitment")) options->commitment_weight = astra->commitment_weight;
  if (!options_given(table, "noise")) options->noise = astra->noise;
  if (!options_given(table, "site")) options->site = (int)astra->site;
  if (!options_given(table, "devices")) options->devices[0] = astra->devices_min, options->devices[1] = astra->devices;
}

Status train_options_inherit(TrainOptions *options, const char *directory) {
  const char *weights;
  ModelConfig config;
  if (!files_is_dir(directory)) return status_set(STATUS_NOT_FOUND, "--checkpoint %s: no such directory", directory);
  TRY(checkpoint_find_weights(directory, &weights));
  if (weights == NULL) return status_set(STATUS_NOT_FOUND, "--checkpoint %s holds no model.safetensors", directory);
  TRY(config_load(&config, directory));
  options->model = options->codebooks = directory;
  session_set_codebooks(options, &config.astra);
  train_options_adapt(options, NULL, &config.astra);
  config_release(&config);
  if (options->groups > 0) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "--checkpoint %s: a plain model (its config.json has no astra groups) sends no codes", directory);
}

/* ---- the end */

Status train_options_end_rank(Status status) {
  if (ranks_alone(status)) ranks_abort(cli_finish(status));
  ranks_leave();
  if (ranks_self() > 0) exit(CLI_OK); /* the job ends as rank 0 does: mpirun would not let it finish its sentence after a failure here */
  return status;
}
