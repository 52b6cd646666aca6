/* What a training run works on: a task with its data, model, emulated devices, optimizer, tape. Opened once; every array has its final size
 * before the first step. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H
#include "autograd/tape.h"
#include "base/files.h"
#include "base/options.h"
#include "base/share.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/checkpoint.h"
#include "nn/model.h"
#include "train/emulate.h"
#include "train/optimizer.h"
#include "train/task.h"
#include "vq/kmeans.h"
#include <jansson.h>
#include <math.h>
#include <stdbool.h>

enum { SESSION_DEVICES = 256, SESSION_CHOSEN = 400, SESSION_ALL_BLOCKS = 65536 };
enum {
  SESSION_AUTO = -1,     /* of numbers for which 0 has a meaning */
  SESSION_MAP_AUTO = 3,  /* among MapCounts: even for images, Dirichlet for texts */
  SESSION_SITE_AUTO = 2, /* among Site: the model's */
  SESSION_PART_AUTO = 4  /* among TextPart: valid, or of an eval_dataset whole */
};

/* How a plain model is adapted for devices. RECIPE_TUNED: with predictions, and distillation of answers and rows from its own weights,
 * where options leave these open and the model is pretrained, its tokens are quantised at site x and all its weights learn (docs/results
 * says what each brings). RECIPE_PAPER: as in the paper. */
typedef enum Recipe { RECIPE_TUNED, RECIPE_PAPER } Recipe;

/* What a session is opened for: looking at both parts of the data (K-means); training; evaluation, with the test part alone; planning,
 * where parameters are address space without numbers, weights need not be there, and nothing may be computed. */
typedef enum SessionUse { SESSION_LOOK, SESSION_TRAIN, SESSION_EVALUATE, SESSION_PLAN } SessionUse;

/* What products with weights and the activations between them are computed in. AUTO: bf16 where it is measured to be faster. */
typedef enum TrainPrecision { PRECISION_FP32, PRECISION_BF16, PRECISION_AUTO } TrainPrecision;

typedef struct TrainOptions {
  /* what */
  const char *model, *dataset, *data_dir, *init, *out, *codebooks; /* dataset NULL: cifar100, of images alone */
  int64_t image_size;                                              /* 0: the model's */
  int64_t blocks;                                                  /* of a model from scratch; 0: the model's */
  int64_t validation_part; /* samples of the training part that are held out, and evaluated in place of the test part; 0: none */
  int64_t train_part;      /* train only on what a validation part of this size would hold out, less validation_part; 0: on all others */
  /* texts */
  const char *tokenizer;    /* a directory or file; NULL: what lies beside the model */
  bool drawn;               /* windows of random tokens in place of a data set, for measurements: no tokenizer is needed */
  int64_t context;          /* tokens of a window; 0: the model's */
  const char *eval_dataset; /* text to evaluate on; NULL: a part of the data set */
  int64_t stride;           /* of the windows of an evaluation; 0: the context */
  int perplexity;           /* PerplexityUnit */
  int test_part;            /* TextPart or SESSION_PART_AUTO: of what is evaluated */
  /* how long, how fast */
  int64_t epochs, max_steps;         /* epochs 0: choose_length; max_steps 0: epochs decide */
  int64_t batch, accumulate, warmup; /* batch 0: session_choose_batch; warmup SESSION_AUTO: by the length of the run */
  bool earlier_defaults;             /* those of versions that knew one set for all data, for runs that they began */
  int precision;                     /* TrainPrecision */
  int64_t recompute;                 /* blocks, from the first on, that the backward pass recomputes instead of keeping their values */
  double memory;                     /* bytes that the run may take: plan_fit chooses `recompute`; 0: what it takes */
  double rate_floor;
  bool shard_optimizer;       /* of a job of several ranks: each keeps the optimizer's states of its part alone (ZeRO-1) */
  int wire;                   /* Wire: how gradients travel between ranks */
  OptimizerOptions optimizer; /* rate SESSION_AUTO: by where the weights come from */
  /* regularisation and augmentation */
  double smoothing, crop_min, patch_drop, drop_path;
  double mixup, cutmix;  /* parameters of the Beta distribution; 0: off, SESSION_AUTO: by recipe where both are left open, else 0 */
  const char *augment;   /* augment_policy_parse */
  double erase;          /* probability of random erasing */
  double distill;        /* share of the targets that comes from a teacher's probabilities (task.h); 0: none, SESSION_AUTO: by recipe */
  double distill_hidden; /* weight of the error of rows after blocks against a teacher's (MATH.md); 0: none, SESSION_AUTO: by recipe */
  const char *teacher;   /* a directory; NULL: the weights that the run starts from */
  /* adapters in place of all weights */
  int64_t lora_rank; /* 0: none */
  double lora_alpha; /* 0: twice the rank */
  const char *lora_targets;
  /* ASTRA */
  union {
    int64_t rates[OPTION_NUMBERS_MAX + 2]; /* OPTION_NUMBERS: behind groups those of all bit rates, ascending, and a 0 */
    int64_t groups;                        /* G; of several bit rates that in use at first, the most */
  };
  bool one_rate; /* of several only groups is evaluated */
  int64_t entries, devices[2];
  int64_t noise_warmup;    /* steps */
  double class_bias;       /* AstraConfig; NaN: by recipe */
  double class_mean_power; /* AstraConfig; SESSION_AUTO: by recipe */
  int64_t exchange_blocks; /* AstraConfig; SESSION_AUTO: as of weights whose tokens are quantised already, else by recipe */
  double noise, commitment_weight, concentration, codebook_decay, dead_below;
  int map, site;                         /* MapCounts or SESSION_MAP_AUTO, Site or SESSION_SITE_AUTO */
  int recipe;                            /* Recipe */
  bool rotation, prediction;             /* AstraConfig */
  bool resumed;                          /* a run goes on, with what was accepted when it was begun */
  bool basis_given;                      /* these two are as chosen, off as well; false: both off leave them to the recipe */
  bool plain_prediction;                 /* as earlier checkpoints: neither AstraConfig.exact_first nor position_mean */
  int class_token, covariance, gradient; /* ClassToken, NoiseCovariance, QuantiseGradient */
  const char *counts;                    /* "16,16,16,16" for COUNTS_FIXED */
  const char *layout, *eval_layout;      /* names of token maps (nn/layout.h) or "trained"; of training NULL or "permuted": a new one for
                                          * each batch; of evaluation NULL: as in training, or the configuration's */
  const char *token_loss;                /* parse_token_loss; NULL: none */
  double eval_token_loss;                /* share */
  /* K-means initialisation of the codebooks */
  int64_t kmeans_samples, kmeans_iterations, kmeans_restarts,
      kmeans_minibatch; /* samples 0: 16 K, and 16 for each number that a basis is fitted to */
  double kmeans_tolerance;
  int kmeans_start;
  /* looking and keeping */
  int64_t eval_samples, eval_every /* epochs; 0: choose_length */, log_every, checkpoint_every;
  bool keep_best;         /* weights of the best evaluation in OUT/best */
  int64_t early_stopping; /* evaluations without a better one after which a run ends; 0: never */
  int dtype;              /* SafeDtype of the exported weights */
  int64_t seed, threads, workers;
  bool quiet;
} TrainOptions;

void session_defaults(TrainOptions *options); /* the paper's, where it gives them */

/* A batch's rows after each block but the last: the teacher's, which the student's are compared with (options.distill_hidden > 0). */
typedef struct TeacherStates {
  BlockOutputs outputs; /* first, so that take_rows finds this struct */
  real **rows;          /* [blocks - 1] of [B, count, D], on the tape */
  int64_t count;
  int32_t *match;   /* [S] the teacher's row of each of the student's */
  int64_t compared; /* S */
  double *power;    /* [blocks - 1] of a job of several ranks: what errors are relative to (task.c); NULL: the rows themselves */
  Tensor *error;    /* sum over the blocks of the step under way; NULL: none yet */
} TeacherStates;

/* Of a run with distillation: a plain model that does not learn. */
typedef struct Teacher {
  Model *model; /* NULL: there is none */
  CheckpointMapping *mapping;
  TeacherStates states;
  bool other_names; /* its classes are as many as the run's and have other names, or the same in another order */
} Teacher;

struct Session {
  TrainOptions options; /* with the task's defaults filled in */
  SessionUse use;
  bool plain; /* computes as the plain model, whatever the model has: for measurements in turns */
  const Task *task;
  void *source; /* the state of the task's source */
  TaskData data;
  Tokenizer *tokenizer;  /* of texts; saved with each checkpoint. NULL: of images, of random tokens */
  char *tokenizer_place; /* the path where it was found; NULL without a tokenizer */
  json_t *chat;          /* tokenizer_config.json of a GGUF file's tokenizer; NULL: of another, whose own lies beside it */
  int64_t classes;       /* of the data; 0: tokens are predicted */
  int64_t tokens;        /* T: content tokens of a sample */
  double program;        /* bytes that the process took before weights and batches: code, libraries, threads, what the data's files say */
  Model *model;
  const ModelConfig *config; /* the model's */
  CheckpointReport report;   /* of the weights that were loaded */
  char *origin;              /* where the weights came from: a path, "random" or "mimetic"; NULL: a plan without any */
  bool own_teacher;          /* the origin's outputs are those of the run: it can teach */
  bool origin_quantised;     /* its tokens are: it has been adapted */
  int64_t origin_classes;    /* as its config.json says, and side of its images; -1: there is none */
  int64_t origin_image;
  bool other_names;          /* the origin has as many classes, of other names */
  int32_t *head_rows;        /* [classes] of each its row in the origin's head, whose names are in another order; NULL: as they stand */
  CheckpointMapping *frozen; /* weights that do not learn, where adapters do */
  uint32_t *confusion;       /* [classes of the label, of the answer] of the last validation; NULL: none is counted (metrics.h) */
  Teacher teacher;
  Emulation emulation; /* when config->astra.groups > 0 */
  DeviceMapOptions map;
  int64_t fixed_counts[SESSION_DEVICES];
  TokenMap fixed_map; /* where training does not permute */
  Optimizer optimizer;
  Arena *arena, *block_arena; /* the second with `recompute` or `memory` alone */
  Tape *tape;
  int recomputed;                   /* blocks that are computed twice */
  TokenLayout layout, plain_layout; /* of the batch under way; of the plain model */
  int32_t *order;                   /* [T + 1] */
  Share share;                      /* of every batch, from the next TaskSource.seek on: a rank's; zeroed: the whole */
  bool more_batches;                /* the micro-batch under way is not the last of its step */
  bool stop;                        /* some rank was asked to stop: as of the last step */
  struct DataParallel *parallel;    /* between the ranks of a job, while it trains; NULL: none */
  int64_t step, total_steps;        /* optimizer steps done, and in all (known to runs that train or plan) */
  char chosen[SESSION_CHOSEN];      /* the defaults that follow from the data, for people; "": none */
  char doubt[SESSION_CHOSEN];       /* what is worth a warning about them, a line for people; "": nothing */
  Rng map_rng, revive_rng, mixup_rng;
  int64_t drop_step, drop_batch; /* stochastic depth: a step, and how many of its batches there have been */
};

/* Opens data and model and loads or initialises the weights (options.init: "random", "mimetic", a directory or file; NULL: pretrained
 * weights of the model's name are looked for, and their absence is an error that says where and what to do). A config.json beside the
 * weights decides what their shapes do not show: heads, activation, norm epsilon, normalisation of images, ids of special tokens. Only
 * SESSION_TRAIN has gradients and an optimizer. */
Status session_open(Session *session, const TrainOptions *options, SessionUse use);
void session_close(Session *session); /* fine on a zeroed session */

/* What the part that is evaluated is called in columns and lines: "valid" where it is held out, else the source's name of it. */
const char *session_test_name(const Session *session);

/* Whether weights that come from there come from nowhere: "random" and "mimetic" do, NULL does not. */
bool session_is_scratch(const char *from);

/* What --class-bias asks for, before the recipe decides what it leaves open: 0 then. */
static inline double session_class_bias(const TrainOptions *options) { return isnan(options->class_bias) ? 0 : options->class_bias; }

/* Where the options leave --batch open: the source's, of runs that train or plan halved while an epoch would have fewer than 8 of them,
 * down to 8 samples or as many as there are. After TaskSource.open, and once more by a source that counts its samples later than that;
 * nothing is chosen before. */
void session_choose_batch(Session *session);

/* Samples of a training batch, of all ranks: options.batch, or all that there are where they are fewer. */
int64_t session_batch(const Session *session);

/* Before the head's answers are measured, or the head is kept without being trained: BAD_USAGE where the weights have none for the classes
 * of the data set; warns where their classes have other names. */
Status session_check_classes(const Session *session);

bool session_astra(const Session *session);
Status session_use_rate(Session *session, int rate); /* model and emulation: what comes next is quantised at this one (config_rates) */
void session_set_rates(TrainOptions *options, const AstraConfig *astra); /* groups, and all bit rates, of a checkpoint */
/* All that a checkpoint's codebooks are made for: bit rates, codewords, site, rotation, prediction. */
void session_set_codebooks(TrainOptions *options, const AstraConfig *astra);

/* Where a step takes more micro-batches than an epoch has, epochs follow each other within it and none is left out; else those left over at
 * the end of an epoch are not used, and each epoch begins with a step. */
int64_t session_epoch_steps(const Session *session);          /* optimizer steps per epoch; 1 where steps are longer */
double session_epochs(const Session *session, int64_t steps); /* in so many steps */
Status session_seek_step(Session *session);                   /* to the training batch that the next step begins with */

/* From now on the first `blocks` blocks are computed twice, or all where there are fewer. For sessions with a block_arena, and for 0. */
void session_recompute(Session *session, int64_t blocks);

#endif
