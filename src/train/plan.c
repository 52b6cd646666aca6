/* --dry-run: see plan.h. */
#include "train/plan.h"
#include "autograd/kernels/matmul.h"
#include "base/printable.h"
#include "nn/json_build.h"
#include "train/plan_node.h"
#include "train/selftest_writer.h"
#include "train/trainer.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  double bytes = codebook_bytes(&session->emulation, SELFTEST_COVARIANCE);
  if (!session_astra(session)) return 0;
  for (size_t i = 0; i < params->count; i++)
    if ((narrow && !params->list[i].narrow) || REAL_IS_DOUBLE) bytes += (double)param_padded(&params->list[i]) * sizeof(real);
  return bytes;
}

Status plan_make(Session *session, Plan *plan) {
  ParamSet *params = model_params(session->model);
  double block = (double)params->total * sizeof(real);
  *plan = (Plan){.parameters = (double)param_count_numbers(params),
                 .trainable = (double)param_count_trainable(params),
                 .weights = block,
                 .gradients = block,
                 .moments = 2 * block,
                 .average = session->options.optimizer.average > 0 ? block : 0,
                 .frozen = frozen_bytes(params),
                 .codebooks = codebook_bytes(&session->emulation, session->emulation.options.covariance),
                 .selftest = selftest_bytes(session),
                 .data = (double)session->task->bytes(session)};
  tape_plan(session->tape, true);
  Status status = plan_step(session, plan);
  tape_plan(session->tape, false);
  return status;
}

static double total_bytes(const Plan *plan) {
  return plan->weights + plan->gradients + plan->moments + plan->average + plan->codebooks + plan->activations + plan->data +
         plan->selftest + plan->frozen;
}

static double available_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[256];
  long long kilobytes = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "MemAvailable: %lld kB", &kilobytes) != 1) continue;
  if (file != NULL) fclose(file);
  return kilobytes > 0 ? 1024.0 * (double)kilobytes : INFINITY;
}

Status plan_check(Session *session) {
  Plan plan;
  TRY(plan_make(session, &plan));
  double available = available_bytes(), needed = plan.activations + plan.gradients + plan.moments + plan.selftest; /* the rest is there */
  if (needed <= available) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY,
                    "training needs %.1f GiB more memory, but %.1f GiB are free: use --recompute, a smaller --batch (with --accumulate for "
                    "the same step) "
                    "or a smaller --%s; --dry-run shows what takes how much",
                    needed / 1073741824, available / 1073741824, session->task->decoder ? "context" : "image-size");
}

/* ---------------------------------------------------------------- printing */

enum { LABEL = 49 }; /* width of the column of names */

static void print_bytes(const char *name, double bytes) { printf("  %-*s %10.1f MiB\n", LABEL, name, bytes / 1048576); }

static void print_memory(const Session *session, const Plan *plan) {
  char data[LABEL + 1];
  snprintf(data, sizeof data, "batches of %s, made ahead", session->task->sample);
  printf("memory of a step of %lld %s\n", (long long)session->options.batch, session->task->sample);
  if (plan->frozen > 0) print_bytes("frozen weights, mapped from a file of 16 bits", plan->frozen);
  print_bytes(plan->frozen > 0 ? "adapters and what else learns" : "weights", plan->weights);
  print_bytes("gradients", plan->gradients);
  print_bytes("optimizer moments", plan->moments);
  if (plan->average > 0) print_bytes("averaged weights", plan->average);
  if (session_astra(session)) print_bytes("codebooks, averages, noise moments", plan->codebooks);
  print_bytes("activations and gradients of them", plan->activations);
  print_bytes(data, plan->data);
  if (session_astra(session)) print_bytes("self-test's copy of the model, at each checkpoint", plan->selftest);
  print_bytes("together", total_bytes(plan));
}

static void print_length(const Session *session) {
  const TrainOptions *options = &session->options;
  printf(
      "a run of %lld steps, %lld to an epoch: batch %lld, learning rate %g after a warm-up of %lld steps, evaluation every %lld epochs\n",
      (long long)session->total_steps, (long long)session_epoch_steps(session), (long long)options->batch, options->optimizer.rate,
      (long long)options->warmup, (long long)options->eval_every);
  if (session->chosen[0] != '\0') printf("  of these chosen for the data: %s\n", session->chosen);
}

static void print_flops(const Session *session, const char *name, double flops) {
  printf("  %-*s %10.3f GFLOP a %s\n", LABEL, name, flops / 1e9 / (double)session->options.batch, session->task->one);
}

static void print_node(const PlanNode *node, int devices) {
  printf("memory of a node of %d that runs it on %lld tokens\n", devices, (long long)node->tokens);
  print_bytes("weights in 16 bits, once a machine", node->weights);
  if (node->codebooks > 0) print_bytes("codebooks", node->codebooks);
  print_bytes("keys and values: own in full, others as codes", node->cache);
  print_bytes("working memory of a prompt of so many tokens", node->work);
  print_bytes("together", node->together);
  print_bytes("keys and values, all in full", node->cache_full);
  print_bytes("the paper's M_KV^ASTRA (16 bits)", node->paper);
  print_bytes("the paper's M_KV^orig (16 bits)", node->paper_full);
}

static void print_text(const Session *session, const Plan *plan, const PlanNode *node, const char *sheet) {
  const ModelConfig *config = session->config;
  printf("%-*s %10.2f M\n", LABEL + 2, "parameters", plan->parameters / 1e6);
  if (plan->frozen > 0) printf("%-*s %10.2f M\n", LABEL + 2, "of these learn", plan->trainable / 1e6);
  print_length(session);
  print_memory(session, plan);
  printf("matrix products\n");
  print_flops(session, "plain forward", plan->forward_flops);
  print_flops(session, "training step", plan->step_flops);
  if (session_astra(session)) {
    printf("communication\n");
    printf("  %-*s %10.0f\n", LABEL, "bits per token", config_bits_per_token(config));
    printf("  %-*s %10.1f\n", LABEL, "compression ratio", config_compression(config));
  }
  if (node != NULL) print_node(node, session_astra(session) ? config->astra.devices : 1);
  if (sheet != NULL) printf("first batch drawn to %s\n", printable(sheet));
}

static json_t *node_json(const PlanNode *node) {
  return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens", (json_int_t)node->tokens, "weight_bytes", node->weights,
                   "codebook_bytes", node->codebooks, "cache_bytes", node->cache, "work_bytes", node->work, "total_bytes", node->together,
                   "cache_full_bytes", node->cache_full, "paper_cache_bytes", node->paper, "paper_cache_full_bytes", node->paper_full);
}

static json_t *length_json(const Session *session) {
  const TrainOptions *options = &session->options;
  return json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:s}", "steps", (json_int_t)session->total_steps, "epoch_steps",
                   (json_int_t)session_epoch_steps(session), "batch", (json_int_t)options->batch, "learning_rate", options->optimizer.rate,
                   "warmup", (json_int_t)options->warmup, "eval_every", (json_int_t)options->eval_every, "chosen", session->chosen);
}

static Status print_json(const Session *session, const Plan *plan, const PlanNode *node, const char *sheet) {
  bool astra = session_astra(session);
  json_t *object =
      json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "parameters", plan->parameters,
                "trainable", plan->trainable, "weight_bytes", plan->weights, "frozen_bytes", plan->frozen, "gradient_bytes",
                plan->gradients, "moment_bytes", plan->moments, "average_bytes", plan->average, "codebook_bytes", plan->codebooks,
                "activation_bytes", plan->activations, "data_bytes", plan->data, "selftest_bytes", plan->selftest, "total_bytes",
                total_bytes(plan), "forward_flops", plan->forward_flops, "step_flops", plan->step_flops, "bits_per_token",
                astra ? config_bits_per_token(session->config) : 0.0, "compression", astra ? config_compression(session->config) : 1.0);
  json_object_set_new(object, "run", length_json(session));
  if (node != NULL) json_object_set_new(object, "node", node_json(node));
  if (sheet != NULL) json_object_set_new(object, "sheet", json_string(sheet));
  return json_build_print(object);
}

Status plan_print(Session *session, bool json) {
  Plan plan;
  PlanNode memory, *node = config_is_decoder(session->config) && session->classes == 0 ? &memory : NULL; /* what makes tokens */
  char *shown = NULL;
  TRY(plan_make(session, &plan));
  if (node != NULL) TRY(plan_node_make(session->config, session->tokens, node));
  Status status = session->task->show(session, json, &shown);
  if (status == STATUS_OK && !json) print_text(session, &plan, node, shown);
  if (status == STATUS_OK && json) status = print_json(session, &plan, node, shown);
  free(shown);
  return status;
}
