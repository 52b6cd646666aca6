/* A plan of train/plan.h as text and as JSON. */
#include "cli/train_plan.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/text.h"
#include "nn/json_build.h"
#include "train/plan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LABEL = 49 }; /* width of the column of names */

static void print_bytes(const char *name, double bytes) { printf("  %-*s %10.1f MiB\n", LABEL, name, bytes / 1048576); }

static void print_memory(const Session *session, const TrainPlan *plan) {
  const double program = plan_program_bytes(session);
  char data[LABEL + 1];
  snprintf(data, sizeof data, "prefetched batches of %s, mapped data", session->task->source->name.samples);
  printf("memory of a step of %lld %s\n", (long long)session->options.batch, task_samples(session->task, session->options.batch));
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

static void print_text(const Session *session, const TrainPlan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
  const ModelConfig *config = session->config;
  printf("%-*s %10.2f M\n", LABEL + 2, "parameters", plan->parameters / 1e6);
  if (plan->frozen > 0) printf("%-*s %10.2f M\n", LABEL + 2, "trainable parameters", plan->trainable / 1e6);
  const TrainOptions *options = &session->options;
  if (options->drawn) {
    printf("batch %lld of %lld token%s; without --dataset there is no run to plan\n", (long long)options->batch, (long long)session->tokens,
           text_plural(session->tokens));
  } else {
    printf("%lld step%s, %.10g per epoch: batch %lld, learning rate %g after a warm-up of %lld step%s, evaluation every %lld epoch%s\n",
           (long long)session->total_steps, text_plural(session->total_steps), epoch_steps(session), (long long)options->batch,
           options->optimizer.rate, (long long)options->warmup, text_plural(options->warmup), (long long)options->eval_every,
           text_plural(options->eval_every));
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
    print_bytes("total (with --table-memory 0)", node->together);
    print_bytes("keys and values, all in 16 bits", node->cache_full);
    print_bytes("the paper's M_KV^ASTRA (16 bits)", node->paper);
    print_bytes("the paper's M_KV^orig (16 bits)", node->paper_full);
  }
  if (sheet != NULL) printf("first batch drawn to %s\n", printable(sheet));
}

/* Of bytes, numbers, blocks and bits; what is measured or a ratio is a real number, and so are FLOPs, which may be more than 2^63. */
static json_t *whole(double value) { return json_integer((json_int_t)llround(value)); }

static json_t *plan_json(const Session *session, const TrainPlan *plan) {
  const double program = plan_program_bytes(session);
  const bool astra = session_astra(session);
  const struct {
    const char *name;
    double value;
    json_t *(*make)(double value);
  } list[] = {{"parameters", plan->parameters, whole},
              {"trainable", plan->trainable, whole},
              {"weight_bytes", plan->weights, whole},
              {"frozen_bytes", plan->frozen, whole},
              {"teacher_bytes", plan->teacher, whole},
              {"gradient_bytes", plan->gradients, whole},
              {"moment_bytes", plan->moments, whole},
              {"average_bytes", plan->average, whole},
              {"codebook_bytes", plan->codebooks, whole},
              {"activation_bytes", plan->activations, whole},
              {"evaluation_bytes", plan->evaluation, whole},
              {"recomputed_blocks", session->recomputed, whole},
              {"data_bytes", plan->data, whole},
              {"selftest_bytes", plan_selftest_bytes(plan), whole},
              {"program_bytes", program, whole},
              {"training_bytes", plan_training_bytes(plan) + program, whole},
              {"kmeans_sample_bytes", plan->kmeans_samples, whole},
              {"kmeans_work_bytes", plan->kmeans_work, whole},
              {"kmeans_activation_bytes", plan->kmeans_activations, whole},
              {"kmeans_bytes", plan->kmeans_samples > 0 ? plan_kmeans_bytes(plan) + program : 0, whole},
              {"total_bytes", plan_total_bytes(session, plan), whole},
              {"forward_flops", plan->forward_flops, json_real},
              {"step_flops", plan->step_flops, json_real},
              {"kmeans_flops", plan->kmeans_flops, json_real},
              {"exchange_blocks", astra ? config_end_coded(session->config) : 0, whole},
              {"bits_per_token", astra ? config_bits_per_token(session->config) : 0, whole},
              {"compression", astra ? config_compression(session->config, 32) : 1, json_real},
              {"compression_16bit", astra ? config_compression(session->config, 16) : 1, json_real},
              {"paper_number_bits", config_paper_bits(session->config), whole}};
  json_t *object = json_object();
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) json_object_set_new(object, list[i].name, list[i].make(list[i].value));
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

static Status print_json(const Session *session, const TrainPlan *plan, const PlanTime *time, const PlanNode *node, const char *sheet) {
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
                        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)node->tokens, "weight_bytes",
                                  whole(node->weights), "codebook_bytes", whole(node->codebooks), "cache_bytes", whole(node->cache),
                                  "work_bytes", whole(node->work), "total_bytes", whole(node->together), "cache_full_bytes",
                                  whole(node->cache_full), "paper_cache_bytes", whole(node->paper), "paper_cache_full_bytes",
                                  whole(node->paper_full)));
  if (sheet != NULL) json_object_set_new(object, "sheet", json_build_string(sheet));
  return json_build_print(object);
}

Status train_plan_print(Session *session, double rate, bool json) {
  TrainPlan plan;
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
