/* --dry-run: see plan.h. */
#include "train/plan.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/threads.h"
#include "nn/json_build.h"
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "train/codebooks.h"
#include "train/data_parallel.h"
#include "train/micro_step.h"
#include "train/session.h"
#include "train/state.h"
#include "train/validate.h"
#include "vq/pack.h"
#include <math.h>
#include <stdlib.h>

/* ---- Memory of a device ---- */

/* What a node of a cluster takes to run a language model on its longest sequence: for --dry-run. Counted is the last node, with an even
 * share: it receives from all others, and it generates the new tokens. Leaves out the sockets' buffers, which hold codes alone. */

typedef struct PlanNode {
  int64_t tokens;           /* N of the longest sequence */
  double weights;           /* bytes in 16 bits (norms and biases in 32), once for all processes of a machine */
  double codebooks;         /* L C K d 2 for each bit rate, the paper's M_codebook: in 16 bits, as are the weights */
  double cache;             /* keys and values: own tokens in 16 bits, others as codes or, with predictions, likewise (kv_cache_predict) */
  double work;              /* the tape of a prompt of N tokens: from ids to the logits of the last */
  double together;          /* weights, codebooks, cache and work */
  double cache_full;        /* all tokens in full, 16 bits */
  double paper, paper_full; /* the paper's M_KV^ASTRA, codes in whole bytes, and M_KV^orig: numbers of 16 bits */
} PlanNode;

/* The prompt is planned on a tape (everything allocated, nothing computed), so that its memory is what the same code takes on a node. */

enum { NARROW_BYTES = 2, PAPER_SITES = 2 };
static const size_t ARENA_BYTES = (size_t)1 << 40; /* address space, not memory */

/* Stands in for the others: their tokens take the place that they will have. */
typedef struct Silence {
  Exchange exchange; /* first */
  int64_t width;     /* W */
  int sites;
} Silence;

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)layout, (void)block, (void)part, (void)h;
  return tape_status(tape);
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  const Silence *silence = (Silence *)self;
  (void)block, (void)part;
  for (int site = 0; site < silence->sites; site++) rows[site].x = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, silence->width});
  return tape_status(tape);
}

/* A prompt of the whole layout, whose codes are never sent. */
static Status plan_on_tape(Model *model, const TokenLayout *layout, double *bytes) {
  Arena *arena = arena_new(ARENA_BYTES), *block_arena = arena_new(ARENA_BYTES);
  Tape *tape = arena && block_arena ? tape_new(arena) : NULL;
  Status status = status_set(STATUS_NO_MEMORY, "no memory to plan a node");
  if (tape != NULL) {
    arena_huge_pages(arena, false);
    arena_huge_pages(block_arena, false);
    tape_segment_use(tape, block_arena);
    tape_record(tape, false);
    tape_plan(tape, true);
    Silence silence = {.exchange = {.begin = begin, .finish = finish},
                       .width = config_site_width(model_config(model)),
                       .sites = config_sites(model_config(model))};
    ModelInput input = {.ids = tape_alloc(tape, (size_t)layout->tokens * sizeof *input.ids), .batch = 1};
    if (input.ids != NULL) {
      Exchange *exchange = layout->devices > 1 ? &silence.exchange : NULL;
      model_logits(model, tape, model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_LAST));
      *bytes = (double)tape_peak_bytes(tape);
    }
    status = tape_status(tape);
  }
  tape_free(tape);
  arena_free(block_arena);
  arena_free(arena);
  return status;
}

static double weight_bytes(const ParamSet *params) {
  double bytes = 0;
  for (size_t i = 0; i < params->count; i++)
    bytes += (double)tensor_count(&params->list[i].tensor) * (params->list[i].narrow ? (double)NARROW_BYTES : (double)sizeof(float));
  return bytes;
}

static double cache_bytes(KvShape shape, int64_t local, int64_t sites, int64_t number_bytes) {
  shape.local = local;
  shape.sites = sites;
  shape.number_bytes = number_bytes;
  return (double)kv_cache_predict(&shape);
}

/* own: tokens of the node, of node->tokens. */
static void plan_caches(const ModelConfig *config, int64_t own, PlanNode *node) {
  const AstraConfig *astra = &config->astra;
  int64_t all = node->tokens, sites = config_sites(config);
  KvShape shape = {.tokens = all, .blocks = config->blocks, .width = config->width / config->heads * config->kv_heads};
  if (astra->groups > 0) shape.token_bytes = (int64_t)pack_bytes_per_token(astra->groups, astra->codebook_size);
  node->cache = cache_bytes(shape, astra->prediction ? all : own, sites, NARROW_BYTES); /* what a code tells depends on others before it */
  node->cache_full = cache_bytes(shape, all, sites, NARROW_BYTES);
  node->paper = cache_bytes(shape, own, PAPER_SITES, NARROW_BYTES);
  node->paper_full = cache_bytes(shape, all, PAPER_SITES, NARROW_BYTES);
  if (astra->groups > 0)
    node->codebooks =
        (double)(config_rates(config) * config_codebooks(config)) * astra->codebook_size * (double)config_site_width(config) * NARROW_BYTES;
}

/* The model as nodes load it, adapters folded in. It gets no memory. A plain one, or one for one device, has no codes: both caches are
 * full. */
static Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node) {
  TokenLayout layout = {0};
  *node = (PlanNode){.tokens = tokens};
  int devices = config->astra.groups > 0 ? config->astra.devices : 1;
  int64_t *counts = calloc((size_t)devices, sizeof *counts);
  if (counts == NULL) return status_set(STATUS_NO_MEMORY, "no memory to plan a node");
  layout_even_counts(tokens, devices, counts);
  Status status = layout_build(&layout, tokens, devices, counts, NULL, CLASS_NONE, devices - 1); /* the last node's, or the plain model's */
  free(counts);
  TRY(status);
  plan_caches(config, layout.rows, node);
  Model *model;
  status = model_new(&model, config);
  if (status == STATUS_OK) {
    status = param_reserve(model_params(model), false);
    node->weights = weight_bytes(model_params(model));
    if (status == STATUS_OK) status = plan_on_tape(model, &layout, &node->work);
    model_free(model);
  }
  node->together = node->weights + node->codebooks + node->cache + node->work;
  layout_release(&layout);
  return status;
}

/* ---- The plan of a run ---- */

typedef struct Plan {
  double parameters, trainable;                                                        /* numbers, and those of them that learn */
  double weights, gradients, moments, average, codebooks, activations, data, selftest; /* bytes: the first four of what learns */
  double evaluation;                                      /* bytes of its largest forward pass, whose place is that of `activations` */
  double selftest_mapped;                                 /* bytes of the exported weights, which the self-test reads in place */
  double selftest_activations;                            /* bytes of its forward pass, whose place is that of `activations` */
  double frozen;                                          /* bytes of what does not learn, in a file of 16 bits */
  double teacher;                                         /* bytes of a teacher's weights, and in bf16 of their packed copies */
  double kmeans_samples, kmeans_work, kmeans_activations; /* bytes, before the first step; 0 where codebooks come from a file */
  double forward_flops, step_flops;                       /* of one batch's products */
  double kmeans_flops;                                    /* of the K-means initialisation, with all its iterations */
} Plan;

/* What a run takes beside what it asks for by size: pages of libraries that are touched late, metrics and charts; and, for each thread, its
 * stack and what BLAS packs of both operands; oneDNN beside these its code, which is large, and what it generates. Measured:
 * docs/results/memory.md. */
enum { PROGRAM_LATER = 4 << 20, PROGRAM_OF_THREAD = 5 << 19, PROGRAM_OF_ONEDNN = 10 << 20 };

/* Their most is counted from here: not what an earlier plan, with other blocks computed twice, has taken. */
static void watch_arenas(Session *session) {
  arena_watch(session->arena);
  if (session->block_arena != NULL) arena_watch(session->block_arena);
}

static double watched(const Session *session, size_t floor) {
  double inner = session->block_arena != NULL ? (double)arena_watched(session->block_arena) : 0;
  return (double)(arena_watched(session->arena) - floor) + inner;
}

/* A batch through the plain model, whose products are counted, and as the devices of an evaluation compute it. */
static Status plan_evaluation(Session *session, const TaskBatch *batch, size_t floor, Plan *plan) {
  TaskScore score = {0};
  const uint64_t look = session->emulation.look;
  tape_record(session->tape, false);
  matmul_reset_count();
  watch_arenas(session);
  TRY(validate_batch(session, batch, 0, &score));
  plan->forward_flops = matmul_counted().flops;
  if (session_astra(session)) TRY(validate_batch(session, batch, session->config->astra.devices, &score));
  plan->evaluation = watched(session, floor);
  session->emulation.look = look;
  return STATUS_OK;
}

/* The products of a micro-batch at session->step, at each bit rate: noise takes more room with few groups, codes with many. *flops: of the
 * rate with the most. */
static Status plan_rates(Session *session, const TaskBatch *batch, double *flops) {
  StepResult result;
  const int rate = config_rate(session->config), rates = session_astra(session) ? session->emulation.rates : 1;
  Status status = STATUS_OK;
  for (int other = 0; other < rates && status == STATUS_OK; other++) {
    if (rates > 1) status = session_use_rate(session, other);
    matmul_reset_count();
    data_parallel_begin_plan(session);
    if (status == STATUS_OK) status = micro_step(session, batch, &result);
  }
  if (rates > 1 && status == STATUS_OK) status = session_use_rate(session, rate);
  *flops = matmul_counted().flops;
  matmul_reset_count();
  return status;
}

/* The first step and the last, which may be on more patches: memory is that of the larger one, work the mean over the run. */
static Status plan_steps(Session *session, const TaskBatch *batch, Plan *plan) {
  const int64_t now = session->step, dropping = micro_step_dropping(session);
  const double share = dropping > 0 ? (double)dropping / (double)session->total_steps : 0;
  double first = 0, last = 0;
  session->step = 0;
  Status status = dropping > 0 ? plan_rates(session, batch, &first) : STATUS_OK;
  session->step = session->total_steps;
  if (status == STATUS_OK) status = plan_rates(session, batch, &last);
  session->step = now;
  plan->step_flops = share * first + (1 - share) * last;
  return status;
}

/* A batch of the right size; planning reads nothing of it. */
static Status plan_step(Session *session, Plan *plan) {
  TaskBatch batch;
  size_t floor = arena_mark(session->arena);
  Rng map_rng = session->map_rng, mixup_rng = session->mixup_rng;
  uint64_t step = session->emulation.step;
  int64_t drop_step = session->drop_step, drop_batch = session->drop_batch;
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  TRY(plan_evaluation(session, &batch, floor, plan));
  watch_arenas(session);
  const Status status = plan_steps(session, &batch, plan);
  plan->activations = watched(session, floor);
  session->map_rng = map_rng; /* the plan leaves no trace in the run */
  session->mixup_rng = mixup_rng;
  session->emulation.step = step;
  session->drop_step = drop_step;
  session->drop_batch = drop_batch;
  return status;
}

/* Weights that do not learn stay in their file: matrices in 16 bits, as they are shared. */
static double frozen_bytes(const ParamSet *params) {
  double bytes = 0;
  for (size_t i = 0; i < params->count; i++) {
    const Param *param = &params->list[i];
    if (param->frozen) bytes += (double)tensor_count(&param->tensor) * (param->narrow ? (double)sizeof(uint16_t) : (double)sizeof(real));
  }
  return bytes;
}

/* Mapped as float32, and beside them what products take them from. */
static double teacher_bytes(const Session *session) {
  if (session->teacher.model == NULL) return 0;
  const double numbers = (double)param_count_numbers(model_params(session->teacher.model));
  return numbers * (sizeof(float) + (tape_uses_bf16(session->tape) ? sizeof(uint16_t) : sizeof(float)));
}

/* Of all sites: codewords, moving averages, norms, and the noise moments of that kind. */
static double codebook_bytes(const Emulation *emulation, NoiseCovariance kind) {
  double numbers = 0;
  for (int index = 0; index < emulation->rates * emulation->blocks * emulation->sites; index++) {
    const Codebook *book = &emulation->all[index].book;
    double words = (double)(book->entries * book->width), codes = (double)(book->entries * book->groups);
    numbers += 2 * words + 2 * codes + (double)(book->width + 2 * noise_spread(book->groups, book->width, kind));
  }
  return numbers * sizeof(real);
}

/* Codebooks, and of the weights, which are mapped from the checkpoint, those that an export in 16 bits has to have widened. */
static double selftest_bytes(Session *session) {
  const ParamSet *params = model_params(session->model);
  bool narrow = session->options.dtype != SAFE_F32;
  double bytes = session_astra(session) ? codebook_bytes(&session->emulation, SELFTEST_COVARIANCE) : 0;
  for (size_t i = 0; i < params->count; i++)
    if ((narrow && !params->list[i].narrow) || REAL_IS_DOUBLE) bytes += (double)param_padded(&params->list[i]) * sizeof(real);
  return bytes;
}

/* The file of these weights, all of which is read. The system can take its pages back. */
static double selftest_mapped(Session *session) {
  const ParamSet *params = model_params(session->model);
  double numbers = 0;
  for (size_t i = 0; i < params->count; i++)
    if (!model_is_adapter(session->model, i)) numbers += (double)tensor_count(&params->list[i].tensor);
  return numbers * (double)safe_dtype_bytes((SafeDtype)session->options.dtype);
}

/* A self-test's samples through a model of the same configuration, on all devices: adapters are folded in, and parameters are address
 * space. */
static Status plan_answer(Session *session, Model *model, Plan *plan) {
  TaskBatch batch;
  Tensor *loss;
  const size_t floor = arena_mark(session->arena);
  const uint64_t look = session->emulation.look;
  const TokenLayout *layout = &session->plain_layout;
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  if (batch.count > SELFTEST_SAMPLES) batch.count = SELFTEST_SAMPLES;
  TRY(task_lay_plain(session, batch.tokens));
  if (session_astra(session)) {
    emulate_begin_step(&session->emulation, false);
    layout = &session->layout;
    TRY(device_map_place(&session->layout, session->config, batch.tokens, session->config->astra.devices, session->order));
  }
  const bool bf16 = tape_uses_bf16(session->tape);
  tape_use_bf16(session->tape, false); /* as the self-test computes */
  tape_record(session->tape, false);
  watch_arenas(session);
  session->task->head->answer(model, session->tape, &batch, layout, session_astra(session) ? &session->emulation.exchange : NULL, &loss);
  plan->selftest_activations = watched(session, floor);
  tape_use_bf16(session->tape, bf16);
  session->emulation.look = look;
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  matmul_reset_count();
  return status;
}

static Status plan_make(Session *session, Plan *plan) {
  ParamSet *params = model_params(session->model);
  double block = (double)params->total * sizeof(real);
  *plan = (Plan){.parameters = (double)param_count_numbers(params),
                 .trainable = (double)param_count_trainable(params),
                 .weights = block + (double)params->shadow_total * sizeof *params->shadows,
                 .gradients = block,
                 .moments = optimizer_moment_bytes(params, &session->options.optimizer),
                 .average = session->options.optimizer.average > 0 ? block : 0,
                 .frozen = frozen_bytes(params),
                 .teacher = teacher_bytes(session),
                 .codebooks = codebook_bytes(&session->emulation, session->emulation.options.covariance),
                 .selftest = selftest_bytes(session),
                 .selftest_mapped = selftest_mapped(session),
                 .data = (double)session->data.bytes};
  if (session_astra(session) && session->options.codebooks == NULL) { /* else there is nothing to cluster */
    CodebooksPlan start;
    TRY(codebooks_plan(session, &start));
    plan->kmeans_samples = start.samples;
    plan->kmeans_work = start.work;
    plan->kmeans_activations = start.activations;
    plan->kmeans_flops = start.batches * start.batch_flops + start.kmeans_flops;
  }
  tape_plan(session->tape, true);
  Status status = plan_step(session, plan);
  Model *model = NULL; /* of the self-test */
  if (status == STATUS_OK) status = model_new(&model, session->config);
  if (status == STATUS_OK) status = param_reserve(model_params(model), false);
  if (status == STATUS_OK) status = plan_answer(session, model, plan);
  model_free(model);
  tape_plan(session->tape, false);
  return status;
}

/* Code, libraries, threads with their buffers, and what the data's files say. */
static double plan_program_bytes(const Session *session) {
  double products = (double)PROGRAM_OF_THREAD * threads_count() + (matmul_backend().onednn ? PROGRAM_OF_ONEDNN : 0);
  return session->program + PROGRAM_LATER + products;
}

/* of training's, in turns with the activations of a step */
static double plan_selftest_bytes(const Plan *plan) { return plan->selftest + plan->selftest_mapped + plan->selftest_activations; }

/* The self-test begins when the memory of a step's activations and gradients has been given back, and an evaluation follows it. */
static double plan_training_bytes(const Plan *plan) {
  double in_turns = fmax(fmax(plan->gradients + plan->activations, plan->evaluation), plan_selftest_bytes(plan));
  return plan->weights + plan->moments + plan->average + plan->codebooks + plan->data + plan->frozen + plan->teacher + in_turns;
}

/* Gradients are there, but nothing has touched them yet. */
static double plan_kmeans_bytes(const Plan *plan) {
  if (plan->kmeans_samples == 0) return 0;
  return plan->weights + plan->frozen + plan->teacher + plan->moments + plan->average + plan->codebooks + plan->data +
         plan->kmeans_samples + plan->kmeans_work + plan->kmeans_activations;
}

/* The peak: training and K-means do not overlap (0: no K-means); and the program. */
static double plan_total_bytes(const Session *session, const Plan *plan) {
  return fmax(plan_training_bytes(plan), plan_kmeans_bytes(plan)) + plan_program_bytes(session);
}

/* ---------------------------------------------------------------- a budget */

static const double MIB = 1048576;

static Status plan_recomputed(Session *session, int64_t blocks, Plan *plan, bool *fits) {
  session_recompute(session, blocks);
  TRY(plan_make(session, plan));
  *fits = plan_total_bytes(session, plan) <= session->options.memory;
  return STATUS_OK;
}

static Status refuse_budget(const Session *session, const Plan *plan) {
  double needed = plan_total_bytes(session, plan);
  if (plan_kmeans_bytes(plan) > plan_training_bytes(plan))
    return status_set(
        STATUS_BAD_USAGE,
        "--memory: %.0f MiB are too few: K-means takes %.0f MiB, of which its samples are %.0f. Fewer --kmeans-samples take less, "
        "and --codebooks DIR (astra-kmeans init) needs none",
        session->options.memory / MIB, ceil(needed / MIB), plan->kmeans_samples / MIB);
  return status_set(
      STATUS_BAD_USAGE,
      "--memory: %.0f MiB are too few: with all %d blocks computed twice the run takes %.0f MiB, of which weights and gradients are "
      "%.0f, moments %.0f, activations %.0f. A smaller --batch (with --accumulate for the same step) or --optimizer-bits 8 takes "
      "less; --dry-run --recompute shows what takes how much",
      session->options.memory / MIB, session->recomputed, ceil(needed / MIB), (plan->weights + plan->gradients + plan->average) / MIB,
      plan->moments / MIB, plan->activations / MIB);
}

/* By bisection: the more blocks are computed twice, the less memory. But for one block, which takes about what it saves. */
static Status fit(Session *session) {
  Plan plan;
  bool fits;
  int64_t too_few = 0, enough = session->config->blocks;
  TRY(plan_recomputed(session, 0, &plan, &fits));
  if (fits) return STATUS_OK;
  TRY(plan_recomputed(session, enough, &plan, &fits));
  if (!fits) return refuse_budget(session, &plan);
  while (enough - too_few > 1) {
    int64_t middle = too_few + (enough - too_few) / 2;
    TRY(plan_recomputed(session, middle, &plan, &fits));
    *(fits ? &enough : &too_few) = middle;
  }
  session_recompute(session, enough);
  return STATUS_OK;
}

Status plan_fit(Session *session) {
  Arena *const arenas[] = {session->arena, session->block_arena};
  if (session->options.memory <= 0) return STATUS_OK;
  for (int i = 0; i < 2; i++) arena_huge_pages(arenas[i], false); /* plans touch a little of what they count everywhere */
  Status status = fit(session);
  for (int i = 0; i < 2; i++) arena_trim(arenas[i]);
  for (int i = 0; i < 2 && session->use != SESSION_PLAN; i++) arena_huge_pages(arenas[i], true);
  return status;
}

/* ---------------------------------------------------------------- the machine */

Status plan_check(Session *session) {
  Plan plan;
  TRY(plan_make(session, &plan));
  double available = memory_available(),
         in_turns = fmax(fmax(plan.gradients + plan.activations, plan.evaluation), plan.selftest + plan.selftest_activations);
  double needed = in_turns + plan.moments; /* the rest is there */
  if (needed <= available) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY,
                    "training needs %.1f GiB more memory, but %.1f GiB are free: use --recompute, a smaller --batch (with --accumulate for "
                    "the same step) "
                    "or a smaller --%s; --dry-run shows what takes how much",
                    needed / 1073741824, available / 1073741824, session->task->source->texts ? "context" : "image-size");
}

/* ---- The plan as text and JSON ---- */

enum { LABEL = 49 }; /* width of the column of names */

/* Whole steps run at about this share of the rate that large products reach (docs/results/speed.md). */
static const double STEP_SHARE = 0.8;

/* Seconds; 0 where a part does not occur or is not known. */
typedef struct PlanTime {
  double rate; /* FLOP/s of large products on this machine */
  double step, kmeans, evaluation, run;
  int64_t evaluations;
} PlanTime;

/* ---------------------------------------------------------------- time */

static PlanTime plan_time(const Session *session, const Plan *plan, double rate) {
  const TrainOptions *options = &session->options;
  const double speed = STEP_SHARE * rate;
  PlanTime time = {.rate = rate, .step = plan->step_flops * (double)options->accumulate / speed, .kmeans = plan->kmeans_flops / speed};
  if (options->drawn) return time; /* no data: there is no run */
  time.evaluations = (int64_t)ceil(session_epochs(session, session->total_steps) / (double)options->eval_every); /* one at the end */
  if (time.evaluations > session->total_steps) time.evaluations = session->total_steps; /* after a step, whatever epochs it has had */
  /* Batches of one evaluation: the plain model's, and with codebooks the devices' as well at each bit rate, whose forward pass grows as the
   * step does. */
  int64_t samples = session->data.count[TASK_TEST];
  double passes = session_astra(session) ? 1 + config_rates(session->config) * plan->step_flops / (3 * plan->forward_flops) : 1;
  if (options->eval_samples > 0 && options->eval_samples < samples) samples = options->eval_samples;
  time.evaluation = passes * plan->forward_flops * ceil((double)samples / (double)options->batch) / speed;
  time.run = time.kmeans + (double)session->total_steps * time.step + (double)time.evaluations * time.evaluation;
  return time;
}

/* ---------------------------------------------------------------- text */

static void print_bytes(const char *name, double bytes) { printf("  %-*s %10.1f MiB\n", LABEL, name, bytes / 1048576); }

static void print_memory(const Session *session, const Plan *plan) {
  const double program = plan_program_bytes(session);
  char data[LABEL + 1];
  snprintf(data, sizeof data, "prefetched batches of %s, mapped data", session->task->source->name.samples);
  printf("memory of a step of %lld %s\n", (long long)session->options.batch, session->task->source->name.samples);
  if (plan->frozen > 0) print_bytes("frozen weights, 16 bits, mapped from their file", plan->frozen);
  if (plan->teacher > 0) print_bytes("weights of the teacher (--distill)", plan->teacher);
  print_bytes(plan->frozen > 0 ? "trainable weights" : "weights", plan->weights);
  print_bytes("optimizer moments", plan->moments);
  if (plan->average > 0) print_bytes("averaged weights", plan->average);
  if (session_astra(session)) print_bytes("codebooks, averages, noise moments", plan->codebooks);
  print_bytes("gradients", plan->gradients);
  print_bytes("activations and their gradients", plan->activations);
  if (session->recomputed > 0)
    printf("    %-*s %10d of %lld\n", LABEL - 2, "recomputed blocks", session->recomputed, (long long)session->config->blocks);
  print_bytes("evaluation (reuses that memory)", plan->evaluation);
  print_bytes("self-test at each checkpoint (reuses that memory)", plan_selftest_bytes(plan));
  print_bytes(data, plan->data);
  print_bytes("program, libraries, threads", program);
  print_bytes("total", plan_training_bytes(plan) + program);
  if (plan->kmeans_samples == 0) return;
  printf("memory of K-means, before the first step\n");
  print_bytes("samples of all codebooks", plan->kmeans_samples);
  print_bytes("clustering one codebook", plan->kmeans_work);
  print_bytes("activations of a batch", plan->kmeans_activations);
  print_bytes("total, with weights, moments, codebooks, data", plan_kmeans_bytes(plan) + program);
}

static void print_seconds(const char *name, double seconds) {
  char text[16];
  if (seconds > 0) printf("  %-*s %10s\n", LABEL, name, progress_duration(seconds, text));
}

static void print_flops(const Session *session, const char *name, double flops) {
  printf("  %-*s %10.3f GFLOP per %s\n", LABEL, name, flops / 1e9 / (double)session->options.batch, session->task->source->name.sample);
}

/* Below 1 where a step takes more batches than an epoch has. */
static double epoch_steps(const Session *session) {
  const double epochs = session_epochs(session, 1);
  return epochs > 1 ? round(1000 / epochs) / 1000 : (double)session_epoch_steps(session);
}

static void print_text(const Session *session, const Plan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
  const ModelConfig *config = session->config;
  printf("%-*s %10.2f M\n", LABEL + 2, "parameters", plan->parameters / 1e6);
  if (plan->frozen > 0) printf("%-*s %10.2f M\n", LABEL + 2, "trainable parameters", plan->trainable / 1e6);
  const TrainOptions *options = &session->options;
  if (options->drawn) {
    printf("batch %lld of %lld tokens; without --dataset there is no run to plan\n", (long long)options->batch, (long long)session->tokens);
  } else {
    printf("%lld steps, %.10g per epoch: batch %lld, learning rate %g after a warm-up of %lld steps, evaluation every %lld epochs\n",
           (long long)session->total_steps, epoch_steps(session), (long long)options->batch, options->optimizer.rate,
           (long long)options->warmup, (long long)options->eval_every);
    if (session->chosen[0] != '\0') printf("  chosen for the data: %s\n", session->chosen);
  }
  print_memory(session, plan);
  print_bytes("peak of the run", plan_total_bytes(session, plan));
  printf("matrix products\n");
  print_flops(session, "plain forward", plan->forward_flops);
  print_flops(session, "training step", plan->step_flops);
  printf("time (an estimate: matrix products at %.0f GFLOP/s, measured now)\n", time->rate / 1e9);
  print_seconds("K-means (upper bound)", time->kmeans);
  print_seconds("a training step", time->step);
  print_seconds("an evaluation", time->evaluation);
  print_seconds("the run", time->run);
  if (session_astra(session)) {
    printf("communication\n");
    printf("  %-*s %10.0f\n", LABEL, "bits per token", config_bits_per_token(config));
    for (int bits = 32; bits >= 16; bits -= 16) {
      char name[2 * LABEL];
      snprintf(name, sizeof name, "compression against %d-bit numbers%s", bits, config_paper_bits(config) == bits ? " (the paper's)" : "");
      printf("  %-*s %10.1f\n", LABEL, name, config_compression(config, bits));
    }
  }
  if (node != NULL) {
    printf("memory of each of %d nodes for %lld tokens\n", session_astra(session) ? config->astra.devices : 1, (long long)node->tokens);
    print_bytes("weights in 16 bits, once per machine", node->weights);
    if (node->codebooks > 0) print_bytes("codebooks, in 16 bits", node->codebooks);
    const bool codes = node->cache < node->cache_full; /* not with predictions, nor with one device */
    print_bytes(codes ? "keys and values: own in 16 bits, others as codes" : "keys and values, in 16 bits", node->cache);
    print_bytes("working memory for a prompt of this length", node->work);
    print_bytes("total", node->together);
    print_bytes("keys and values, all in 16 bits", node->cache_full);
    print_bytes("the paper's M_KV^ASTRA (16 bits)", node->paper);
    print_bytes("the paper's M_KV^orig (16 bits)", node->paper_full);
  }
  if (sheet != NULL) printf("first batch drawn to %s\n", printable(sheet));
}

static json_t *plan_json(const Session *session, const Plan *plan) {
  const double program = plan_program_bytes(session);
  const bool astra = session_astra(session);
  const struct {
    const char *name;
    double value;
  } list[] = {{"parameters", plan->parameters},
              {"trainable", plan->trainable},
              {"weight_bytes", plan->weights},
              {"frozen_bytes", plan->frozen},
              {"teacher_bytes", plan->teacher},
              {"gradient_bytes", plan->gradients},
              {"moment_bytes", plan->moments},
              {"average_bytes", plan->average},
              {"codebook_bytes", plan->codebooks},
              {"activation_bytes", plan->activations},
              {"evaluation_bytes", plan->evaluation},
              {"recomputed_blocks", session->recomputed},
              {"data_bytes", plan->data},
              {"selftest_bytes", plan_selftest_bytes(plan)},
              {"program_bytes", program},
              {"training_bytes", plan_training_bytes(plan) + program},
              {"kmeans_sample_bytes", plan->kmeans_samples},
              {"kmeans_work_bytes", plan->kmeans_work},
              {"kmeans_activation_bytes", plan->kmeans_activations},
              {"kmeans_bytes", plan->kmeans_samples > 0 ? plan_kmeans_bytes(plan) + program : 0},
              {"total_bytes", plan_total_bytes(session, plan)},
              {"forward_flops", plan->forward_flops},
              {"step_flops", plan->step_flops},
              {"kmeans_flops", plan->kmeans_flops},
              {"bits_per_token", astra ? config_bits_per_token(session->config) : 0},
              {"compression", astra ? config_compression(session->config, 32) : 1},
              {"compression_16bit", astra ? config_compression(session->config, 16) : 1},
              {"paper_number_bits", config_paper_bits(session->config)}};
  json_t *object = json_object();
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) json_object_set_new(object, list[i].name, json_real(list[i].value));
  return object;
}

/* Of a run; without data there is none. */
static json_t *steps_json(const Session *session, int64_t steps) {
  return session->options.drawn ? json_null() : json_integer((json_int_t)steps);
}

static json_t *epoch_json(const Session *session) {
  const double steps = epoch_steps(session);
  return steps < 1 ? json_real(steps) : steps_json(session, (int64_t)steps);
}

static Status print_json(const Session *session, const Plan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
  json_t *object = plan_json(session, plan);
  const TrainOptions *options = &session->options;
  json_object_set_new(object, "run",
                      json_pack("{s:o, s:o, s:I, s:f, s:o, s:I, s:s}", "steps", steps_json(session, session->total_steps), "epoch_steps",
                                epoch_json(session), "batch", (json_int_t)options->batch, "learning_rate", options->optimizer.rate,
                                "warmup", steps_json(session, options->warmup), "eval_every", (json_int_t)options->eval_every, "chosen",
                                options->drawn ? "" : session->chosen));
  json_object_set_new(object, "seconds",
                      json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "gflop_per_second", time->rate / 1e9, "step", time->step, "kmeans",
                                time->kmeans, "evaluation", time->evaluation, "run", time->run, "evaluations",
                                (json_int_t)time->evaluations));
  if (node != NULL)
    json_object_set_new(object, "node",
                        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens", (json_int_t)node->tokens, "weight_bytes",
                                  node->weights, "codebook_bytes", node->codebooks, "cache_bytes", node->cache, "work_bytes", node->work,
                                  "total_bytes", node->together, "cache_full_bytes", node->cache_full, "paper_cache_bytes", node->paper,
                                  "paper_cache_full_bytes", node->paper_full));
  if (sheet != NULL) json_object_set_new(object, "sheet", json_build_string(sheet));
  return json_build_print(object);
}

Status plan_print(Session *session, double rate, bool json) {
  Plan plan;
  PlanNode memory, *node = config_is_decoder(session->config) && session->classes == 0 ? &memory : NULL; /* what makes tokens */
  char *shown = NULL;
  TRY(plan_make(session, &plan));
  if (node != NULL) TRY(plan_node_make(session->config, session->tokens, node));
  const PlanTime time = plan_time(session, &plan, rate);
  Status status = session->task->source->show(session, json, &shown);
  if (status == STATUS_OK && !json) print_text(session, &plan, &time, node, shown);
  if (status == STATUS_OK && json) status = print_json(session, &plan, &time, node, shown);
  free(shown);
  return status;
}
