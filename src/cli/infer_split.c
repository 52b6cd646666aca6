/* See infer_split.h. */
#include "cli/infer_split.h"
#include "cli/link_json.h"
#include "infer/report.h"
#include "nn/json_build.h"
#include <math.h>
#include <string.h>

bool infer_split_wanted(const char *split) { return split && strcmp(split, "auto") == 0; }

static PlanCase plan_of(const InferSplit *s) {
  const ModelConfig *config = s->weights->config;
  return (PlanCase){.config = config,
                    .strategy = s->network->strategy,
                    .tokens = s->partition ? s->partition->tokens : config_tokens(config),
                    .reliability = s->network->transport == TRANSPORT_UDP ? &s->network->reliability : NULL,
                    .parts = s->choose_parts ? 0 : s->network->parts,
                    .least_packets = s->network->reliability.least_packets,
                    .retained = s->network->retained,
                    .table_blocks = (int)key_tables_blocks(s->weights->keys),
                    .multicast = s->network->multicast,
                    .all_rows = s->all_rows,
                    .input_bytes = s->partition && !s->ahead ? (double)(config->channels * config->patch * config->patch) : 0};
}

/* What is to be compared with the prediction; of texts, whose lengths differ, nothing. */
static double measured_seconds(const InferSplit *s, const Leader *leader) {
  if (!s->partition) return 0;
  return s->ahead ? leader_fastest(leader) : leader_fastest_request(leader);
}

Status infer_split_divide(void *context, const LeaderMeasure *measured, int nodes) {
  InferSplit *s = context;
  PlanCase plan = plan_of(s);
  PacketWork work;
  s->nodes = nodes;
  memcpy(s->measured, measured, (size_t)nodes * sizeof *measured);
  if (nodes < 2) return STATUS_OK;
  if (packet_work_measure(&work) == STATUS_OK) plan.work = &work; /* of this device, as of one that is like it */
  TRY(split_measured_run(&plan, measured, nodes, s->network->shaped ? &s->network->links : NULL, &s->result));
  if (s->choose_parts) s->network->parts = s->result.parts;
  if (s->partition) TRY(partition_recount(s->partition, s->result.counts));
  for (int d = 0; d < nodes && s->split; d++) s->split->weights[d] = (double)s->result.counts[d];
  s->made = true;
  return STATUS_OK;
}

/* ---- what it came to */

/* "; links of 20 Mbit/s, 2 ms" as given, or "; ways to and from a node at 50/20, 48/48 Mbit/s, 2 ms" as the leader saw them. */
static void report_links(FILE *out, const InferSplit *s) {
  const MeasuredSplit *r = &s->result;
  if (r->bits_per_second <= 0) return;
  if (s->network->shaped) {
    fprintf(out, "; links of %.4g Mbit/s, %.3g ms", r->bits_per_second / 1e6, 1e3 * r->latency);
    return;
  }
  fputs("; ways to and from a node at", out);
  for (int d = 0, first = 1; d < s->nodes; d++)
    if (s->measured[d].linked) fprintf(out, "%s %.4g/%.4g", first ? "" : ",", r->ends[d].in / 1e6, r->ends[d].out / 1e6), first = 0;
  fprintf(out, " Mbit/s, %.3g ms", 1e3 * r->latency);
}

static double gflops(const LeaderMeasure *measure) { return 1e-9 / measure->profile.linear[PROFILE_SIZES - 1]; }

/* A member that slows the others. */
static void advise(FILE *out, const InferSplit *s) {
  const MeasuredSplit *r = &s->result;
  bool alone = (r->fewer & (r->fewer - 1)) == 0;
  if (r->without >= r->predicted) return;
  fprintf(out, "node%s", alone ? "" : "s");
  for (int d = 0, first = 1; d < s->nodes; d++)
    if (r->fewer >> d & 1) fprintf(out, "%s %d", first ? "" : ",", d), first = 0;
  fprintf(out, " alone would take %.1f ms\n", 1e3 * r->without);
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
  advise(out, s);
}

json_t *infer_split_json(const InferSplit *s, const Leader *leader) {
  json_t *tokens = json_array(), *speeds = json_array(), *links = json_array();
  for (int d = 0; d < s->nodes; d++) {
    json_build_append(&tokens, json_integer((json_int_t)s->result.counts[d]));
    json_build_append(&speeds, s->measured[d].here ? json_real(gflops(&s->measured[d])) : json_null());
    json_build_append(&links, link_json(s->measured[d].linked && !s->network->shaped ? &s->result.ends[d] : NULL));
  }
  return json_pack("{s:o, s:i, s:o, s:f, s:f, s:o, s:f, s:o}", "tokens", tokens, "parts", s->result.parts, "gflops", speeds,
                   "bits_per_second", s->result.bits_per_second, "latency_ms", 1e3 * s->result.latency, "links", links, "predicted_ms",
                   1e3 * s->result.predicted, "measured_ms",
                   json_build_number(measured_seconds(s, leader) > 0 ? 1e3 * measured_seconds(s, leader) : NAN));
}
