/* --dry-run: see plan.h. */
#include "train/plan.h"
#include "autograd/kernels/matmul.h"
#include "train/selftest_writer.h"
#include "train/trainer.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Status plan_forward(Session *session, const TaskBatch *batch) {
  TaskScore score = {0};
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

Status plan_make(Session *session, Plan *plan) {
  ParamSet *params = model_params(session->model);
  double block = (double)params->total * sizeof(real);
  *plan = (Plan){.parameters = (double)param_count_numbers(params),
                 .weights = block,
                 .gradients = block,
                 .moments = 2 * block,
                 .average = session->optimizer.average ? block : 0,
                 .codebooks = codebook_bytes(&session->emulation, session->emulation.options.covariance),
                 .selftest = session_astra(session) ? block + codebook_bytes(&session->emulation, SELFTEST_COVARIANCE) : 0,
                 .data = (double)session->task->bytes(session)};
  tape_plan(session->tape, true);
  Status status = plan_step(session, plan);
  tape_plan(session->tape, false);
  return status;
}

static double total_bytes(const Plan *plan) {
  return plan->weights + plan->gradients + plan->moments + plan->average + plan->codebooks + plan->activations + plan->data +
         plan->selftest;
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
  return status_set(
      STATUS_NO_MEMORY,
      "training needs %.1f GiB more memory, but %.1f GiB are free: use a smaller --batch (with --accumulate for the same step) or "
      "--image-size; --dry-run shows what takes how much",
      needed / 1073741824, available / 1073741824);
}

/* ---------------------------------------------------------------- printing */

enum { LABEL = 49 }; /* width of the column of names */

static void print_bytes(const char *name, double bytes) { printf("  %-*s %10.1f MiB\n", LABEL, name, bytes / 1048576); }

static void print_text(const Session *session, const Plan *plan, const char *sheet) {
  const ModelConfig *config = session->config;
  printf("%-*s %10.2f M\n", LABEL + 2, "parameters", plan->parameters / 1e6);
  printf("memory of a step of %lld pictures\n", (long long)session->options.batch);
  print_bytes("weights", plan->weights);
  print_bytes("gradients", plan->gradients);
  print_bytes("optimizer moments", plan->moments);
  if (plan->average > 0) print_bytes("averaged weights", plan->average);
  if (session_astra(session)) print_bytes("codebooks, averages, noise moments", plan->codebooks);
  print_bytes("activations and gradients of them", plan->activations);
  print_bytes("batches of pictures, made ahead", plan->data);
  if (session_astra(session)) print_bytes("self-test's copy of the model, at each checkpoint", plan->selftest);
  print_bytes("together", total_bytes(plan));
  printf("matrix products\n");
  printf("  %-*s %10.3f GFLOP a picture\n", LABEL, "plain forward", plan->forward_flops / 1e9 / (double)session->options.batch);
  printf("  %-*s %10.3f GFLOP a picture\n", LABEL, "training step", plan->step_flops / 1e9 / (double)session->options.batch);
  if (session_astra(session)) {
    printf("communication\n");
    printf("  %-*s %10.0f\n", LABEL, "bits per token", config_bits_per_token(config));
    printf("  %-*s %10.1f\n", LABEL, "compression ratio", config_compression(config));
  }
  printf("first batch drawn to %s\n", sheet);
}

static Status print_json(const Session *session, const Plan *plan, const char *sheet) {
  bool astra = session_astra(session);
  json_t *object =
      json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "parameters", plan->parameters,
                "weight_bytes", plan->weights, "gradient_bytes", plan->gradients, "moment_bytes", plan->moments, "average_bytes",
                plan->average, "codebook_bytes", plan->codebooks, "activation_bytes", plan->activations, "data_bytes", plan->data,
                "selftest_bytes", plan->selftest, "total_bytes", total_bytes(plan), "forward_flops", plan->forward_flops, "step_flops",
                plan->step_flops, "bits_per_token", astra ? config_bits_per_token(session->config) : 0.0, "compression",
                astra ? config_compression(session->config) : 1.0, "sheet", sheet);
  char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
  if (text != NULL) puts(text);
  free(text);
  json_decref(object);
  return text ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the JSON line");
}

Status plan_print(Session *session, bool json) {
  Plan plan;
  char *shown = NULL;
  TRY(plan_make(session, &plan));
  Status status = session->task->show(session, json, &shown);
  if (status == STATUS_OK && !json) print_text(session, &plan, shown);
  if (status == STATUS_OK && json) status = print_json(session, &plan, shown);
  free(shown);
  return status;
}
