/* --dry-run: see plan.h. */
#include "train/plan.h"
#include "autograd/kernels/matmul.h"
#include "base/memory.h"
#include "base/threads.h"
#include "nn/adapters.h"
#include "nn/safetensors_convert.h"
#include "train/codebooks.h"
#include "train/selftest_writer.h"
#include "train/trainer.h"
#include <math.h>

/* What a run takes beside what it asks for by size: pages of libraries that are touched late, metrics and charts; and, for each thread, its
 * stack and what BLAS packs of both operands; oneDNN beside these its code, which is large, and what it generates. Measured:
 * docs/results/memory.md. */
enum { PROGRAM_LATER = 4 << 20, PROGRAM_OF_THREAD = 5 << 19, PROGRAM_OF_ONEDNN = 10 << 20 };

static Status plan_forward(Session *session, const TaskBatch *batch) {
  TaskScore score = {0};
  TRY(session_lay_plain(session, batch->tokens));
  tape_record(session->tape, false);
  session->task->loss(session, batch, &session->plain_layout, NULL, &score);
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

/* Their most is counted from here: not what an earlier plan, with other blocks computed twice, has taken. */
static void watch_arenas(Session *session) {
  arena_watch(session->arena);
  if (session->block_arena != NULL) arena_watch(session->block_arena);
}

static double watched(const Session *session, size_t floor) {
  double inner = session->block_arena != NULL ? (double)arena_watched(session->block_arena) : 0;
  return (double)(arena_watched(session->arena) - floor) + inner;
}

/* A batch of the right size; planning reads nothing of it. */
static Status plan_step(Session *session, Plan *plan) {
  TaskBatch batch;
  StepResult result;
  size_t floor = arena_mark(session->arena);
  Rng map_rng = session->map_rng, mixup_rng = session->mixup_rng;
  uint64_t step = session->emulation.step;
  int64_t drop_step = session->drop_step, drop_batch = session->drop_batch;
  TRY(session->task->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->next(session, TASK_TRAIN, &batch));
  matmul_reset_count();
  TRY(plan_forward(session, &batch));
  plan->forward_flops = matmul_counted().flops;
  matmul_reset_count();
  watch_arenas(session);
  Status status = trainer_micro_step(session, &batch, &result);
  plan->step_flops = matmul_counted().flops;
  plan->activations = watched(session, floor);
  matmul_reset_count();
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

/* Of all sites: codewords, moving averages, norms, and the noise moments of that kind. */
static double codebook_bytes(const Emulation *emulation, NoiseCovariance kind) {
  double numbers = 0;
  for (int index = 0; index < emulation->blocks * emulation->sites; index++) {
    const Codebook *book = &emulation->site[index].book;
    double words = (double)(book->entries * book->width), codes = (double)(book->entries * book->groups);
    double part = kind == NOISE_FULL ? (double)(book->width / book->groups) : 1;
    numbers += 2 * words + 2 * codes + (1 + 2 * part) * (double)book->width;
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
    if (!adapters_is_one(session->model, i)) numbers += (double)tensor_count(&params->list[i].tensor);
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
  TRY(session->task->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->next(session, TASK_TRAIN, &batch));
  if (batch.count > SELFTEST_SAMPLES) batch.count = SELFTEST_SAMPLES;
  TRY(session_lay_plain(session, batch.tokens));
  if (session_astra(session)) {
    emulate_begin_step(&session->emulation, false);
    layout = &session->layout;
    TRY(device_map_place(&session->layout, session->config, batch.tokens, session->config->astra.devices, session->order));
  }
  const bool bf16 = tape_uses_bf16(session->tape);
  tape_use_bf16(session->tape, false); /* as the self-test computes */
  tape_record(session->tape, false);
  watch_arenas(session);
  session->task->answer(model, session->tape, &batch, layout, session_astra(session) ? &session->emulation.exchange : NULL, &loss);
  plan->selftest_activations = watched(session, floor);
  tape_use_bf16(session->tape, bf16);
  session->emulation.look = look;
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  matmul_reset_count();
  return status;
}

static Status plan_selftest(Session *session, Plan *plan) {
  Model *model;
  TRY(model_new(&model, session->config));
  Status status = param_reserve(model_params(model), false);
  if (status == STATUS_OK) status = plan_answer(session, model, plan);
  model_free(model);
  return status;
}

static Status plan_start(Session *session, Plan *plan) {
  if (!session_astra(session) || session->options.codebooks != NULL) return STATUS_OK; /* there is nothing to cluster */
  CodebooksPlan start;
  TRY(codebooks_plan(session, &start));
  plan->kmeans_samples = start.samples;
  plan->kmeans_work = start.work;
  plan->kmeans_activations = start.activations;
  plan->kmeans_flops = start.batches * start.batch_flops + start.kmeans_flops;
  return STATUS_OK;
}

Status plan_make(Session *session, Plan *plan) {
  ParamSet *params = model_params(session->model);
  double block = (double)params->total * sizeof(real);
  *plan = (Plan){.parameters = (double)param_count_numbers(params),
                 .trainable = (double)param_count_trainable(params),
                 .weights = block + (double)params->shadow_total * sizeof *params->shadows,
                 .gradients = block,
                 .moments = optimizer_moment_bytes(params, (OptimizerMoments)session->options.optimizer.moments),
                 .average = session->options.optimizer.average > 0 ? block : 0,
                 .frozen = frozen_bytes(params),
                 .codebooks = codebook_bytes(&session->emulation, session->emulation.options.covariance),
                 .selftest = selftest_bytes(session),
                 .selftest_mapped = selftest_mapped(session),
                 .data = (double)session->task->bytes(session)};
  TRY(plan_start(session, plan));
  tape_plan(session->tape, true);
  Status status = plan_step(session, plan);
  if (status == STATUS_OK) status = plan_selftest(session, plan);
  tape_plan(session->tape, false);
  return status;
}

double plan_program_bytes(const Session *session) {
  double products = (double)PROGRAM_OF_THREAD * threads_count() + (matmul_backend() == MATMUL_ONEDNN ? PROGRAM_OF_ONEDNN : 0);
  return session->program + PROGRAM_LATER + products;
}

/* The self-test begins when the memory of a step's activations and gradients has been given back. */
double plan_training_bytes(const Plan *plan) {
  double in_turns = fmax(plan->gradients + plan->activations, plan_selftest_bytes(plan));
  return plan->weights + plan->moments + plan->average + plan->codebooks + plan->data + plan->frozen + in_turns;
}

double plan_selftest_bytes(const Plan *plan) { return plan->selftest + plan->selftest_mapped + plan->selftest_activations; }

/* Gradients are there, but nothing has touched them yet. */
double plan_kmeans_bytes(const Plan *plan) {
  if (plan->kmeans_samples == 0) return 0;
  return plan->weights + plan->frozen + plan->moments + plan->average + plan->codebooks + plan->data + plan->kmeans_samples +
         plan->kmeans_work + plan->kmeans_activations;
}

double plan_total_bytes(const Session *session, const Plan *plan) {
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
  for (int i = 0; i < 2; i++) arena_small_pages(arenas[i]); /* plans touch a little of what they count everywhere */
  Status status = fit(session);
  for (int i = 0; i < 2; i++) arena_trim(arenas[i]);
  for (int i = 0; i < 2 && session->use != SESSION_PLAN; i++) arena_large_pages(arenas[i]);
  return status;
}

/* ---------------------------------------------------------------- the machine */

Status plan_check(Session *session) {
  Plan plan;
  TRY(plan_make(session, &plan));
  double available = memory_available(), in_turns = fmax(plan.gradients + plan.activations, plan.selftest + plan.selftest_activations);
  double needed = in_turns + plan.moments; /* the rest is there */
  if (needed <= available) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY,
                    "training needs %.1f GiB more memory, but %.1f GiB are free: use --recompute, a smaller --batch (with --accumulate for "
                    "the same step) "
                    "or a smaller --%s; --dry-run shows what takes how much",
                    needed / 1073741824, available / 1073741824, session->task->decoder ? "context" : "image-size");
}
