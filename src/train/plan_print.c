/* --dry-run's tables and JSON object: see plan_print.h. */
#include "train/plan_print.h"
#include "base/printable.h"
#include "base/progress.h"
#include "nn/json_build.h"
#include "train/plan.h"
#include "train/plan_node.h"
#include <math.h>
#include <stdlib.h>

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

/* Batches of one evaluation: the plain model's, and with codebooks the devices' as well, whose forward pass grows as the step does. */
static double evaluation_flops(const Session *session, const Plan *plan) {
  int64_t samples = session->task->count(session, TASK_TEST), wanted = session->options.eval_samples;
  double passes = session_astra(session) ? 1 + plan->step_flops / (3 * plan->forward_flops) : 1;
  if (wanted > 0 && wanted < samples) samples = wanted;
  return passes * plan->forward_flops * ceil((double)samples / (double)session->options.batch);
}

static PlanTime plan_time(const Session *session, const Plan *plan, double rate) {
  const TrainOptions *options = &session->options;
  const double speed = STEP_SHARE * rate;
  PlanTime time = {.rate = rate, .step = plan->step_flops * (double)options->accumulate / speed, .kmeans = plan->kmeans_flops / speed};
  if (options->drawn) return time;                                      /* no data: there is no run */
  int64_t between = session_epoch_steps(session) * options->eval_every; /* steps from evaluation to evaluation, and one at the end */
  time.evaluations = (session->total_steps + between - 1) / between;
  time.evaluation = evaluation_flops(session, plan) / speed;
  time.run = time.kmeans + (double)session->total_steps * time.step + (double)time.evaluations * time.evaluation;
  return time;
}

/* ---------------------------------------------------------------- text */

static void print_bytes(const char *name, double bytes) { printf("  %-*s %10.1f MiB\n", LABEL, name, bytes / 1048576); }

static void print_memory(const Session *session, const Plan *plan) {
  const double program = plan_program_bytes(session);
  char data[LABEL + 1];
  snprintf(data, sizeof data, "batches of %s, made ahead; mapped data", session->task->sample);
  printf("memory of a step of %lld %s\n", (long long)session->options.batch, session->task->sample);
  if (plan->frozen > 0) print_bytes("frozen weights, mapped from a file of 16 bits", plan->frozen);
  print_bytes(plan->frozen > 0 ? "adapters and what else learns" : "weights", plan->weights);
  print_bytes("optimizer moments", plan->moments);
  if (plan->average > 0) print_bytes("averaged weights", plan->average);
  if (session_astra(session)) print_bytes("codebooks, averages, noise moments", plan->codebooks);
  print_bytes("gradients", plan->gradients);
  print_bytes("activations and gradients of them", plan->activations);
  if (session->recomputed > 0)
    printf("    %-*s %10d of %lld\n", LABEL - 2, "blocks computed twice", session->recomputed, (long long)session->config->blocks);
  print_bytes("self-test at each checkpoint, in turns with these", plan_selftest_bytes(plan));
  print_bytes(data, plan->data);
  print_bytes("program, libraries, threads", program);
  print_bytes("together", plan_training_bytes(plan) + program);
  if (plan->kmeans_samples == 0) return;
  printf("memory of K-means, before the first step\n");
  print_bytes("samples of all codebooks", plan->kmeans_samples);
  print_bytes("clustering one of them", plan->kmeans_work);
  print_bytes("activations of a batch", plan->kmeans_activations);
  print_bytes("together, with weights, moments, codebooks, data", plan_kmeans_bytes(plan) + program);
}

static void print_seconds(const char *name, double seconds) {
  char text[16];
  if (seconds > 0) printf("  %-*s %10s\n", LABEL, name, progress_duration(seconds, text));
}

static void print_time(const PlanTime *time) {
  printf("time (an estimate: matrix products at %.0f GFLOP/s, measured now)\n", time->rate / 1e9);
  print_seconds("K-means, at most", time->kmeans);
  print_seconds("a training step", time->step);
  print_seconds("an evaluation", time->evaluation);
  print_seconds("the run", time->run);
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
  if (node->codebooks > 0) print_bytes("codebooks, in 16 bits", node->codebooks);
  print_bytes("keys and values: own in 16 bits, others as codes", node->cache);
  print_bytes("working memory of a prompt of so many tokens", node->work);
  print_bytes("together", node->together);
  print_bytes("keys and values, all in 16 bits", node->cache_full);
  print_bytes("the paper's M_KV^ASTRA (16 bits)", node->paper);
  print_bytes("the paper's M_KV^orig (16 bits)", node->paper_full);
}

static void print_text(const Session *session, const Plan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
  const ModelConfig *config = session->config;
  printf("%-*s %10.2f M\n", LABEL + 2, "parameters", plan->parameters / 1e6);
  if (plan->frozen > 0) printf("%-*s %10.2f M\n", LABEL + 2, "of these learn", plan->trainable / 1e6);
  print_length(session);
  print_memory(session, plan);
  print_bytes("peak of the run", plan_total_bytes(session, plan));
  printf("matrix products\n");
  print_flops(session, "plain forward", plan->forward_flops);
  print_flops(session, "training step", plan->step_flops);
  print_time(time);
  if (session_astra(session)) {
    printf("communication\n");
    printf("  %-*s %10.0f\n", LABEL, "bits per token", config_bits_per_token(config));
    for (int bits = 32; bits >= 16; bits -= 16) {
      char name[2 * LABEL];
      snprintf(name, sizeof name, "compression against %d-bit numbers%s", bits, config_paper_bits(config) == bits ? " (the paper's)" : "");
      printf("  %-*s %10.1f\n", LABEL, name, config_compression(config, bits));
    }
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

static json_t *time_json(const PlanTime *time) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "gflop_per_second", time->rate / 1e9, "step", time->step, "kmeans", time->kmeans,
                   "evaluation", time->evaluation, "run", time->run, "evaluations", (json_int_t)time->evaluations);
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
              {"gradient_bytes", plan->gradients},
              {"moment_bytes", plan->moments},
              {"average_bytes", plan->average},
              {"codebook_bytes", plan->codebooks},
              {"activation_bytes", plan->activations},
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

static Status print_json(const Session *session, const Plan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
  json_t *object = plan_json(session, plan);
  json_object_set_new(object, "run", length_json(session));
  json_object_set_new(object, "seconds", time_json(time));
  if (node != NULL) json_object_set_new(object, "node", node_json(node));
  if (sheet != NULL) json_object_set_new(object, "sheet", json_string(sheet));
  return json_build_print(object);
}

Status plan_print(Session *session, double rate, bool json) {
  Plan plan;
  PlanNode memory, *node = config_is_decoder(session->config) && session->classes == 0 ? &memory : NULL; /* what makes tokens */
  char *shown = NULL;
  TRY(plan_make(session, &plan));
  if (node != NULL) TRY(plan_node_make(session->config, session->tokens, node));
  const PlanTime time = plan_time(session, &plan, rate);
  Status status = session->task->show(session, json, &shown);
  if (status == STATUS_OK && !json) print_text(session, &plan, &time, node, shown);
  if (status == STATUS_OK && json) status = print_json(session, &plan, &time, node, shown);
  free(shown);
  return status;
}
