/* --split auto and --groups auto: what the planner makes of the devices as they were measured, and how that turned out. */
#include "cli/infer_split.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/network_options.h"
#include "infer/rate_choice.h"
#include "infer/report.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double worth_leaving_out = 0.95; /* less than a twentieth may be the noise of what was measured */

enum { NAMES = 256 };

bool infer_split_wanted(const char *split) { return split && (strcmp(split, "auto") == 0 || strcmp(split, "all") == 0); }

/* How many blocks have tables with one of the bit rates. */
static int table_blocks(const InferSplit *s, int rate) {
  const ModelConfig *config = s->weights->config;
  const int rates = config_rates(config);
  if (lowbit_weights_of(s->weights->model) != LOWBIT_NONE) return 0; /* kv_tables_build makes none of them */
  if (s->table_memory > 0)
    return (int)kv_tables_room(config, config_rate_groups(config, rate), config->astra.codebook_size, s->table_memory / rates);
  return (int)kv_tables_blocks(rates > 1 ? s->weights->rate[rate].keys : s->weights->keys);
}

static double coded_share(const InferSplit *s, int rate) {
  const double share = s->weights->rate[rate].coded_share;
  return setup_message_codes_pay(s->network->entropy, share) ? share : 0;
}

static PlanCase plan_of(const InferSplit *s) {
  const ModelConfig *config = s->weights->config;
  return (PlanCase){.config = config,
                    .strategy = s->network->strategy,
                    .tokens = s->tokens,
                    .reliability = s->network->transport == TRANSPORT_UDP ? &s->network->reliability : NULL,
                    .parts = s->samples > 1    ? 1
                             : s->choose_parts ? 0
                                               : s->network->parts, /* only single samples are cut */
                    .min_packets = s->network->reliability.min_packets,
                    .retained = s->network->retained,
                    .table_blocks = table_blocks(s, config_rate(config)),
                    .coded_share = coded_share(s, config_rate(config)),
                    .all_rows = s->all_rows,
                    .input_bytes = s->partition && !s->ahead ? (double)(config->channels * config->patch * config->patch) : 0};
}

/* What is to be compared with the prediction; of texts, whose lengths differ, nothing. */
static double measured_seconds(const InferSplit *s, const Leader *leader) {
  if (!s->partition) return 0;
  return s->ahead ? leader_sums(leader)->fastest : leader_sums(leader)->fastest_request;
}

/* Divides what a request pays once by its number of samples, since the plan is for one. given may be NULL, as is the result then; else the
 * result is links. */
static const LinkOptions *share_constants(const InferSplit *s, DeviceMeasure *measured, int nodes, const LinkOptions *given,
                                          LinkOptions *links) {
  const double part = s->samples > 1 ? 1 / (double)s->samples : 1;
  for (int d = 0; d < nodes; d++) measured[d].round_trip *= part, measured[d].profile.fixed *= part;
  if (given == NULL) return NULL;
  *links = *given;
  links->latency *= part, links->jitter *= part;
  return links;
}

/* Seconds of a sample, with the division that will be used: the best one, or that which was asked for. */
static Status predict(const InferSplit *s, const DeviceMeasure *measured, int nodes, const LinkOptions *given, const PlanCase *plan,
                      double *seconds) {
  int64_t counts[WIRE_NODES];
  PlanCase asked = *plan;
  if (s->wanted) {
    MeasuredSplit *split = malloc(sizeof *split);
    Status status = split ? planner_split(plan, measured, nodes, given, split) : status_no_memory(NULL, "a plan");
    *seconds = status == STATUS_OK ? split->predicted : 0;
    free(split);
    return status;
  }
  asked.parts = s->samples > 1 ? 1 : s->network->parts;
  asked.counts = s->partition ? s->partition->counts : counts;
  if (s->split) nodes = token_split_counts(s->split, s->tokens, counts); /* of a short text the first nodes alone take part */
  return planner_given_split(&asked, measured, nodes, given, seconds);
}

/* --groups auto: by the latency that is predicted with each rate. plan->config becomes *config, at the one that is chosen. */
static Status choose_rate(const InferSplit *s, const DeviceMeasure *measured, int nodes, const LinkOptions *given, PlanCase *plan,
                          ModelConfig *config) {
  double seconds[CONFIG_RATES];
  *config = *s->weights->config; /* shares the labels */
  plan->config = config;
  for (int rate = 0; rate < config_rates(config); rate++) {
    config->astra.groups = config_rate_groups(config, rate);
    plan->table_blocks = table_blocks(s, rate);
    plan->coded_share = coded_share(s, rate);
    TRY(predict(s, measured, nodes, given, plan, &seconds[rate]));
  }
  config->astra.groups = rate_choice_predicted(config, seconds);
  const int rate = config_rate(config), last = config_rates(config) - 1;
  plan->table_blocks = table_blocks(s, rate);
  plan->coded_share = coded_share(s, rate);
  log_info("%d group%s to begin with: %.1f ms predicted, with %d group%s %.1f ms, with %d groups %.1f ms", config->astra.groups,
           text_plural(config->astra.groups), 1e3 * seconds[rate], config_rate_groups(config, 0),
           text_plural(config_rate_groups(config, 0)), 1e3 * seconds[0], config_rate_groups(config, last), 1e3 * seconds[last]);
  return STATUS_OK;
}

Status infer_split_divide(void *context, const DeviceMeasure *measured, int nodes, const volatile sig_atomic_t *asked_to_stop,
                          int *groups) {
  InferSplit *s = context;
  PlanCase plan = plan_of(s);
  PacketWork work;
  ModelConfig config;
  DeviceMeasure of_sample[WIRE_NODES];
  LinkOptions links;
  plan.stop = asked_to_stop;
  s->nodes = nodes;
  memcpy(s->measured, measured, (size_t)nodes * sizeof *measured);
  if (nodes < 2) return STATUS_OK;
  memcpy(of_sample, measured, (size_t)nodes * sizeof *measured);
  const LinkOptions *given = share_constants(s, of_sample, nodes, s->network->shaped ? &s->network->links : NULL, &links);
  if (packet_work_measure(&work) == STATUS_OK) plan.work = &work; /* of this device, as of one that is like it */
  if (s->rates) {
    TRY(choose_rate(s, of_sample, nodes, given, &plan, &config));
    *groups = config.astra.groups;
  }
  if (!s->wanted) return STATUS_OK;
  TRY(planner_split(&plan, of_sample, nodes, given, &s->result));
  for (int d = 0; d < nodes && s->samples > 1; d++) s->result.ends[d].latency *= (double)s->samples;
  if (s->samples > 1) s->result.latency *= (double)s->samples;
  if (s->choose_parts) s->network->parts = s->result.parts;
  if (s->partition) TRY(partition_recount(s->partition, s->result.counts));
  for (int d = 0; d < nodes && s->split; d++) s->split->weights[d] = (double)s->result.counts[d];
  s->made = true;
  return STATUS_OK;
}

/* ---- what it came to */

/* "; links of 20 Mbit/s, 2 ms" as given, or "; links to and from a node at 50/20, 48/48 Mbit/s, 2 ms" as the leader saw them. */
static void report_links(FILE *out, const InferSplit *s) {
  const MeasuredSplit *r = &s->result;
  if (r->bits_per_second <= 0) return;
  if (s->network->shaped) {
    fprintf(out, "; links of %.4g Mbit/s, %.3g ms", r->bits_per_second / 1e6, 1e3 * r->latency);
    return;
  }
  fputs("; links to and from a node at", out);
  for (int d = 0, first = 1; d < s->nodes; d++)
    if (s->measured[d].linked) fprintf(out, "%s %.4g/%.4g", first ? "" : ",", r->ends[d].in / 1e6, r->ends[d].out / 1e6), first = 0;
  fprintf(out, " Mbit/s, %.3g ms", 1e3 * r->latency);
}

static double gflops(const DeviceMeasure *measure) { return 1e-9 / measure->profile.linear[PROFILE_SIZES - 1]; }

/* "node 1" or "nodes 0, 2": the devices that are fastest among themselves. */
static void name_fewer(const InferSplit *s, char *text, size_t room) {
  uint64_t fewer = s->result.fewer;
  size_t used = (size_t)snprintf(text, room, "node%s", (fewer & (fewer - 1)) == 0 ? "" : "s");
  const char *between = " ";
  for (int d = 0; d < s->nodes && used < room; d++)
    if (fewer >> d & 1) used += (size_t)snprintf(text + used, room - used, "%s%d", between, d), between = ", ";
}

bool infer_split_leaves_out(InferSplit *s, const Leader *leader, uint64_t *used) {
  const MeasuredSplit *r = &s->result;
  char names[NAMES];
  *used = r->fewer;
  if (!s->made || s->all || r->without >= worth_leaving_out * r->predicted) return false;
  for (int d = 0; d < s->nodes; d++) /* whoever is not here now may come back, and was not measured */
    if (!s->measured[d].here) return false;
  name_fewer(s, names, sizeof names);
  log_info("%s alone: %.1f ms predicted, %.1f ms with all %d devices (--split all takes every device)", names, 1e3 * r->without,
           1e3 * r->predicted, s->nodes);
  s->asked = leader_nodes(leader);
  s->with = r->predicted;
  return true;
}

void infer_split_report(FILE *out, const InferSplit *s, const Leader *leader) {
  if (!s->made) return;
  fputs("measured at the start: products of a node at", out);
  for (int d = 0; d < s->nodes; d++)
    if (s->measured[d].here)
      fprintf(out, "%s %.1f", d ? "," : "", gflops(&s->measured[d]));
    else
      fprintf(out, "%s ?", d ? "," : "");
  fputs(" GFLOP/s", out);
  report_links(out, s);
  if (s->choose_parts && s->result.parts > 1) fprintf(out, "; blocks in %d parts", s->result.parts);
  fputc('\n', out);
  if (s->partition) report_plan_line(out, s->result.predicted, measured_seconds(s, leader));
  if (s->result.without >= s->result.predicted) return;
  char names[NAMES]; /* some device slows the others, and takes part all the same */
  name_fewer(s, names, sizeof names);
  fprintf(out, "%s alone would take %.1f ms\n", names, 1e3 * s->result.without);
}

json_t *infer_split_json(const InferSplit *s, const Leader *leader) {
  double measured = measured_seconds(s, leader);
  json_t *measured_ms = json_build_number(measured > 0 ? 1e3 * measured : NAN);
  if (!s->made) /* one device is left of those that were measured: nothing is divided */
    return json_pack("{s:i, s:f, s:f, s:o}", "asked", s->asked, "predicted_all_ms", 1e3 * s->with, "predicted_ms", 1e3 * s->result.without,
                     "measured_ms", measured_ms);
  json_t *tokens = json_array(), *speeds = json_array(), *links = json_array();
  for (int d = 0; d < s->nodes; d++) {
    json_build_append(&tokens, json_integer((json_int_t)s->result.counts[d]));
    json_build_append(&speeds, s->measured[d].here ? json_real(gflops(&s->measured[d])) : json_null());
    json_build_append(&links, link_json(s->measured[d].linked && !s->network->shaped ? &s->result.ends[d] : NULL));
  }
  return json_pack("{s:o, s:i, s:o, s:f, s:f, s:o, s:f, s:o, s:i, s:f}", "tokens", tokens, "parts", s->result.parts, "gflops", speeds,
                   "bits_per_second", s->result.bits_per_second, "latency_ms", 1e3 * s->result.latency, "links", links, "predicted_ms",
                   1e3 * s->result.predicted, "measured_ms", measured_ms, "asked", s->asked > 0 ? s->asked : s->nodes, "predicted_all_ms",
                   1e3 * (s->asked > 0 ? s->with : s->result.predicted));
}
