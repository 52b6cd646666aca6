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
 * stack and what BLAS packs of both operands. Measured: docs/results/memory.md. */
enum { PROGRAM_LATER = 4 << 20, PROGRAM_OF_THREAD = 5 << 19 };

static Status plan_forward(Session *session, const TaskBatch *batch) {
  TaskScore score = {0};
  TRY(session_lay_plain(session, batch->tokens));
  tape_record(session->tape, false);
  session->task->loss(session, batch, &session->plain_layout, NULL, &score);
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

/* A batch of the right size; planning reads nothing of it. */
static Status plan_step(Session *session, Plan *plan) {
  TaskBatch batch;
  StepResult result;
  Rng map_rng = session->map_rng, mixup_rng = session->mixup_rng;
  uint64_t step = session->emulation.step;
  TRY(session->task->seek(session, TASK_TRAIN, 0, 0));
  TRY(session->task->next(session, TASK_TRAIN, &batch));
  matmul_reset_count();
  TRY(plan_forward(session, &batch));
  plan->forward_flops = matmul_counted().flops;
  matmul_reset_count();
  Status status = trainer_micro_step(session, &batch, &result);
  plan->step_flops = matmul_counted().flops;
  plan->activations = (double)tape_peak_bytes(session->tape);
  matmul_reset_count();
  session->map_rng = map_rng; /* the plan leaves no trace in the run */
  session->mixup_rng = mixup_rng;
  session->emulation.step = step;
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
                 .weights = block,
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
  tape_plan(session->tape, false);
  return status;
}

double plan_program_bytes(const Session *session) { return session->program + PROGRAM_LATER + (double)PROGRAM_OF_THREAD * threads_count(); }

double plan_training_bytes(const Plan *plan) {
  return plan->weights + plan->gradients + plan->moments + plan->average + plan->codebooks + plan->activations + plan->data +
         plan->selftest + plan->selftest_mapped + plan->frozen;
}

/* Gradients are there, but nothing has touched them yet. */
double plan_kmeans_bytes(const Plan *plan) {
  if (plan->kmeans_samples == 0) return 0;
  return plan->weights + plan->frozen + plan->moments + plan->average + plan->codebooks + plan->data + plan->kmeans_samples +
         plan->kmeans_work + plan->kmeans_activations;
}

Status plan_check(Session *session) {
  Plan plan;
  TRY(plan_make(session, &plan));
  double available = memory_available(), needed = plan.activations + plan.gradients + plan.moments + plan.selftest; /* the rest is there */
  if (needed <= available) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY,
                    "training needs %.1f GiB more memory, but %.1f GiB are free: use --recompute, a smaller --batch (with --accumulate for "
                    "the same step) "
                    "or a smaller --%s; --dry-run shows what takes how much",
                    needed / 1073741824, available / 1073741824, session->task->decoder ? "context" : "image-size");
}
