/* See plan.h. */
#include "train/plan.h"
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/memory.h"
#include "base/threads.h"
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "train/codebooks.h"
#include "train/data_parallel.h"
#include "train/micro_step.h"
#include "train/ranks.h"
#include "train/selftest_writer.h"
#include "train/session.h"
#include "train/validate.h"
#include "vq/pack.h"
#include <math.h>
#include <stdlib.h>

/* ---- Memory of a device ---- */

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
  Status status = status_no_memory(NULL, "planning a node");
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

static double cache_bytes(KvShape shape, int64_t local, int64_t sites) {
  shape.local = local;
  shape.sites = sites;
  return (double)kv_cache_predict(&shape);
}

/* own: tokens of the node, of node->tokens. */
static void plan_caches(const ModelConfig *config, int64_t own, PlanNode *node) {
  const AstraConfig *astra = &config->astra;
  int64_t all = node->tokens, sites = config_sites(config);
  KvShape shape = {.tokens = all, .blocks = config->blocks, .width = config_kv_width(config), .number_bytes = NARROW_BYTES};
  if (astra->groups > 0) shape.token_bytes = (int64_t)pack_bytes_per_token(astra->groups, astra->codebook_size);
  node->cache = cache_bytes(shape, astra->prediction ? all : own, sites); /* what a code tells depends on others before it */
  node->cache_full = cache_bytes(shape, all, sites);
  node->paper = cache_bytes(shape, own, PAPER_SITES);
  node->paper_full = cache_bytes(shape, all, PAPER_SITES);
  if (astra->groups > 0)
    node->codebooks =
        (double)(config_rates(config) * config_codebooks(config)) * astra->codebook_size * (double)config_site_width(config) * NARROW_BYTES;
}

/* The model as nodes load it, adapters folded in. It gets no memory. A plain one, or one for one device, has no codes: both caches are
 * full. */
Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node) {
  TokenLayout layout = {0};
  *node = (PlanNode){.tokens = tokens};
  int devices = config->astra.groups > 0 ? config->astra.devices : 1;
  int64_t *counts = calloc((size_t)devices, sizeof *counts);
  if (counts == NULL) return status_no_memory(NULL, "planning a node");
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
static Status plan_evaluation(Session *session, const TaskBatch *batch, size_t floor, TrainPlan *plan) {
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
static Status plan_steps(Session *session, const TaskBatch *batch, TrainPlan *plan) {
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
static Status plan_step(Session *session, TrainPlan *plan) {
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
  for (int index = 0; index < emulate_all_sites(emulation); index++) {
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

/* A self-test's samples through a model of the same configuration, on all devices, with each bit rate: adapters are folded in, and
 * parameters are address space. */
static Status answer_at_all_rates(Session *session, Model *model, const TaskBatch *batch, const TokenLayout *layout) {
  Emulation *emulation = &session->emulation;
  const bool exchange = session_astra(session);
  Status status = STATUS_OK;
  for (int rate = exchange ? emulation->rates - 1 : 0; rate >= 0 && status == STATUS_OK; rate--) {
    Tensor *loss;
    if (exchange) {
      status = model_use_rate(model, config_rate_groups(session->config, rate));
      emulate_use_rate(emulation, rate);
      emulate_begin_step(emulation, false);
    }
    if (status == STATUS_OK)
      session->task->head->answer(model, session->tape, batch, layout, exchange ? &emulation->exchange : NULL, &loss);
  }
  if (exchange) emulate_use_rate(emulation, config_rate(session->config));
  return status == STATUS_OK ? tape_status(session->tape) : status;
}

static Status plan_answer(Session *session, Model *model, TrainPlan *plan) {
  TaskBatch batch;
  const size_t floor = arena_mark(session->arena);
  const uint64_t look = session->emulation.look;
  const TokenLayout *layout = &session->plain_layout;
  TRY(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  if (batch.count > SELFTEST_SAMPLES) batch.count = SELFTEST_SAMPLES;
  TRY(task_lay_plain(session, batch.tokens));
  if (session_astra(session)) {
    layout = &session->layout;
    TRY(device_map_place(&session->layout, session->config, batch.tokens, session->config->astra.devices, session->order));
  }
  const bool bf16 = tape_uses_bf16(session->tape);
  tape_use_bf16(session->tape, false); /* as the self-test computes */
  tape_record(session->tape, false);
  watch_arenas(session);
  const Status status = answer_at_all_rates(session, model, &batch, layout);
  plan->selftest_activations = watched(session, floor);
  tape_use_bf16(session->tape, bf16);
  session->emulation.look = look;
  tape_clear(session->tape);
  matmul_reset_count();
  return status;
}

Status plan_make(Session *session, TrainPlan *plan) {
  ParamSet *params = model_params(session->model);
  double block = (double)params->total * sizeof(real);
  *plan = (TrainPlan){.parameters = (double)param_count_numbers(params),
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

double plan_program_bytes(const Session *session) {
  double products = (double)PROGRAM_OF_THREAD * threads_count() + (matmul_backend().onednn ? PROGRAM_OF_ONEDNN : 0);
  return session->program + PROGRAM_LATER + products;
}

double plan_selftest_bytes(const TrainPlan *plan) { return plan->selftest + plan->selftest_mapped + plan->selftest_activations; }

/* The self-test begins when the memory of a step's activations and gradients has been given back, and an evaluation follows it. */
double plan_training_bytes(const TrainPlan *plan) {
  double in_turns = fmax(fmax(plan->gradients + plan->activations, plan->evaluation), plan_selftest_bytes(plan));
  return plan->weights + plan->moments + plan->average + plan->codebooks + plan->data + plan->frozen + plan->teacher + in_turns;
}

/* Gradients are there, but nothing has touched them yet. */
double plan_kmeans_bytes(const TrainPlan *plan) {
  if (plan->kmeans_samples == 0) return 0;
  return plan->weights + plan->frozen + plan->teacher + plan->moments + plan->average + plan->codebooks + plan->data +
         plan->kmeans_samples + plan->kmeans_work + plan->kmeans_activations;
}

double plan_total_bytes(const Session *session, const TrainPlan *plan) {
  return fmax(plan_training_bytes(plan), plan_kmeans_bytes(plan)) + plan_program_bytes(session);
}

/* ---------------------------------------------------------------- a budget */

static const double MIB = 1048576;

static Status plan_recomputed(Session *session, int64_t blocks, TrainPlan *plan, bool *fits) {
  session_recompute(session, blocks);
  TRY(plan_make(session, plan));
  *fits = plan_total_bytes(session, plan) <= session->options.memory;
  return STATUS_OK;
}

static Status refuse_budget(const Session *session, const TrainPlan *plan) {
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
  TrainPlan plan;
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

/* Plans touch a little of what they count everywhere: that is given back. */
static Status plan_lightly(Session *session, Status (*plan)(Session *session)) {
  Arena *const arenas[] = {session->arena, session->block_arena};
  const int count = session->block_arena != NULL ? 2 : 1;
  for (int i = 0; i < count; i++) arena_huge_pages(arenas[i], false);
  const Status status = plan(session);
  for (int i = 0; i < count; i++) arena_trim(arenas[i]);
  for (int i = 0; i < count && session->use != SESSION_PLAN; i++) arena_huge_pages(arenas[i], true);
  return status;
}

Status plan_fit(Session *session) { return session->options.memory > 0 ? plan_lightly(session, fit) : STATUS_OK; }

/* ---------------------------------------------------------------- the machine */

static Status check(Session *session) {
  TrainPlan plan;
  TRY(plan_make(session, &plan));
  double available = memory_available() / ranks_here(), /* the others of this machine take as much */
      in_turns = fmax(fmax(plan.gradients + plan.activations, plan.evaluation), plan.selftest + plan.selftest_activations);
  double needed = in_turns + plan.moments; /* the rest is there */
  if (needed <= available) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY,
                    "training needs %.1f GiB more memory, but %.1f GiB are free: --recompute, a smaller --batch (with --accumulate for the "
                    "same step) or a smaller --%s take less for activations, --optimizer-bits 8 and --lora RANK for what learns; --dry-run "
                    "shows what takes how much",
                    needed / 1073741824, available / 1073741824, session->task->source->texts ? "context" : "image-size");
}

Status plan_check(Session *session) { return plan_lightly(session, check); }

/* ---- Its time ---- */

/* Whole steps run at about this share of the rate that large products reach (docs/results/speed.md). */
static const double STEP_SHARE = 0.8;

PlanTime plan_time(const Session *session, const TrainPlan *plan, double rate) {
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
