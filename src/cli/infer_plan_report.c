/* What astra-infer plan says: a table, one JSON object, a chart. See infer_plan_internal.h. */
#include "base/files.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/infer_plan_internal.h"
#include "cli/network_options.h"
#include "infer/transport/netem.h"
#include "nn/json_build.h"
#include "train/plot.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- table */

static bool takes_tokens(const ModelConfig *config, int64_t tokens) {
  return config_is_decoder(config) ? tokens <= config_tokens(config) : tokens == config_tokens(config);
}

static const char *notes_of(const PlanRow *row, char *text, size_t room) {
  const char *doubts = row->loss_not_modelled                          ? "loss not modelled: it would delay streams"
                       : row->other_groups                             ? "needs training"
                       : !strategy_facts(row->strategy)->right_answers ? "latency only: the answers would need training"
                                                                       : "";
  if (row->measured <= 0) return doubts;
  snprintf(text, room, "%.2f ms in virtual time%s%s", 1e3 * row->measured, *doubts ? "; " : "", doubts);
  return text;
}

/* "256,256,256,256", or "4 x 256". */
static const char *split_of(const PlanRow *row, char *text, size_t room) {
  bool alike = true;
  size_t used = 0;
  for (int d = 1; d < row->devices; d++) alike = alike && row->counts[d] == row->counts[0];
  if (!strategy_facts(row->strategy)->divides_tokens) return "all each";
  if (alike) {
    snprintf(text, room, "%d x %lld", row->devices, (long long)row->counts[0]);
    return text;
  }
  for (int d = 0; d < row->devices && used < room; d++)
    used += (size_t)snprintf(text + used, room - used, "%s%lld", d ? "," : "", (long long)row->counts[d]);
  return text;
}

enum { NETWORK_NAME = 64 };

/* "mesh, 20 Mbit/s" */
static const char *network_name(const PlannerSetup *setup, char text[NETWORK_NAME]) {
  const char *topology = network_options_topology(setup->links->topology);
  if (setup->ends)
    snprintf(text, NETWORK_NAME, "%s, links of their own", topology);
  else
    snprintf(text, NETWORK_NAME, "%s, %.4g Mbit/s", topology, setup->links->bits_per_second / 1e6);
  return text;
}

/* Measured links stand beside the devices. */
static void print_network(const PlannerSetup *setup, bool measured) {
  const LinkOptions *links = setup->links;
  char text[NETWORK_NAME];
  printf("network: %s", network_name(setup, text));
  for (int d = 0; setup->ends && !measured && d < setup->devices; d++) printf("%s %.4g", d ? "," : ":", setup->ends[d].out / 1e6);
  if (setup->ends && !measured) fputs(" Mbit/s", stdout);
  if (!setup->ends || !measured) printf(", latency %.3g ms", 1e3 * links->latency);
  if (links->jitter > 0) printf(" +- %g ms", 1e3 * links->jitter);
  if (links->loss > 0) printf(", loss %g%%", 100 * links->loss);
  putchar('\n');
}

void plan_report_text(const PlanReport *report) {
  const DeviceProfile *p = report->profile;
  char split[64], notes[96];
  printf("model:   %s, %lld token%s\n", printable(report->model), (long long)report->setup->tokens, text_plural(report->setup->tokens));
  printf("device:  products of %d, %d and %lld rows at %.1f, %.1f, %.1f GFLOP/s; attention at %.1f, codes at %.1f\n", PROFILE_SMALL,
         PROFILE_MIDDLE, (long long)(report->setup->rows_measured > 0 ? report->setup->rows_measured : report->setup->tokens),
         1e-9 / p->linear[0], 1e-9 / p->linear[1], 1e-9 / p->linear[2], 1e-9 / p->attention[1], 1e-9 / p->assign[1]);
  const PlanPeers *peers = report->peers; /* in the order in which the table lists their tokens */
  for (int d = 0; d < peers->count; d++) {
    printf("%s%s (%.1f GFLOP/s", d ? ", " : "peers:   ", printable(peers->names[d]), 1e-9 / peers->profiles[d].linear[PROFILE_SIZES - 1]);
    if (peers->linked)
      printf(", %.4g Mbit/s to it, %.4g from it, %.3g ms", peers->ends[d].in / 1e6, peers->ends[d].out / 1e6, 1e3 * peers->ends[d].latency);
    putchar(')');
  }
  if (peers->count) putchar('\n');
  if (report->calibrated > 0)
    printf("scale:   computation x %.4g, so that one device takes %g ms\n", report->setup->scale, 1e3 * report->calibrated);
  print_network(report->setup, report->peers->count > 0);
  printf("\n%-9s %6s %5s %5s %6s %-20s %10s %8s %9s %7s %6s %10s %10s  %s\n", "strategy", "groups", "nodes", "parts", "tables", "tokens",
         "predicted", "speedup", "waiting", "hidden", "FPAR", "bytes/tok", "input", "");
  for (int i = 0; i < report->plan->count; i++) {
    const PlanRow *row = &report->plan->rows[i];
    char groups[16] = "-", hidden[16] = "-";
    if (row->groups) snprintf(groups, sizeof groups, "%d", row->groups);
    if (isfinite(row->hidden)) snprintf(hidden, sizeof hidden, "%.0f%%", 100 * row->hidden);
    printf("%-9s %6s %5d %5d %6d %-20s %7.2f ms %8.2f %6.2f ms %7s %6.3f %10.1f %7.2f ms  %s\n", strategy_facts(row->strategy)->name,
           groups, row->devices, row->parts, row->table_blocks, split_of(row, split, sizeof split), 1e3 * row->latency, row->speedup,
           1e3 * row->wait, hidden, row->fpar, row->bytes_per_token, 1e3 * row->input, notes_of(row, notes, sizeof notes));
  }
  printf("\nsending the input to the devices is %s the prediction; embedding and head are left out\n",
         report->setup->with_input ? "part of" : "not part of");
  if (!report->setup->untrained && !takes_tokens(report->setup->config, report->setup->tokens))
    printf("%s takes %s%lld tokens: these are predictions for a model like it that takes %lld\n", printable(report->model),
           config_is_decoder(report->setup->config) ? "at most " : "", (long long)config_tokens(report->setup->config),
           (long long)report->setup->tokens);
  printf("%s\n", report->plan->decision);
}

/* ---- JSON, on one line */

static json_t *row_json(const PlanRow *row) {
  json_t *counts = json_array();
  for (int d = 0; d < row->devices; d++) json_array_append_new(counts, json_integer((json_int_t)row->counts[d]));
  return json_pack("{s:s, s:i, s:i, s:i, s:o, s:b, s:i, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:b, s:b, s:b, s:o}", "strategy",
                   strategy_facts(row->strategy)->name, "groups", row->groups, "nodes", row->devices, "parts", row->parts, "tokens", counts,
                   "tables", row->table_blocks > 0, "table_blocks", row->table_blocks, "predicted_ms", 1e3 * row->latency, "speedup",
                   row->speedup, "wait_ms", 1e3 * row->wait, "hidden", json_build_number(row->hidden), "fpar", row->fpar, "bytes_per_token",
                   row->bytes_per_token, "input_ms", 1e3 * row->input, "needs_training", row->other_groups, "loss_not_modelled",
                   row->loss_not_modelled, "right_answers", strategy_facts(row->strategy)->right_answers, "virtual_ms",
                   json_build_number(row->measured > 0 ? 1e3 * row->measured : NAN));
}

static json_t *rates_json(const double *rates) { return json_pack("[f, f, f]", 1e-9 / rates[0], 1e-9 / rates[1], 1e-9 / rates[2]); }

Status plan_report_json(const PlanReport *report) {
  const PlannerSetup *setup = report->setup;
  const DeviceProfile *p = report->profile;
  const PlanPeers *peers = report->peers;
  json_t *rows = json_array(), *devices = json_array(), *links = setup->ends ? json_array() : json_null(); /* null: all are alike */
  for (int d = 0; setup->ends && d < setup->devices; d++) json_build_append(&links, link_json(&setup->ends[d]));
  for (int d = 0; d < peers->count; d++)
    json_build_append(&devices, json_pack("{s:o, s:f, s:o}", "device", json_build_string(peers->names[d]), "gflops",
                                          1e-9 / peers->profiles[d].linear[PROFILE_SIZES - 1], "link",
                                          link_json(peers->linked ? &peers->ends[d] : NULL)));
  json_t *trained = report->plan->trained ? row_json(report->plan->trained) : json_null(); /* null: nothing would be faster with training */
  for (int i = 0; i < report->plan->count; i++) json_array_append_new(rows, row_json(&report->plan->rows[i]));
  json_t *object =
      json_pack("{s:o, s:I, s:f, s:s, s:f, s:f, s:o, s:f, s:f, s:{s:o, s:o, s:o}, s:f, s:b, s:o, s:o, s:o, s:o, s:s}", "model",
                json_build_string(report->model), "tokens", (json_int_t)setup->tokens, "scale", setup->scale, "link_model",
                network_options_topology(setup->links->topology), "bits_per_second", setup->links->bits_per_second, "latency_ms",
                1e3 * setup->links->latency, "links", links, "jitter_ms", 1e3 * setup->links->jitter, "loss", setup->links->loss, "gflops",
                "linear", rates_json(p->linear), "attention", rates_json(p->attention), "assign", rates_json(p->assign), "single_ms",
                1e3 * report->plan->single, "with_input", setup->with_input, "best", row_json(report->plan->best), "trained", trained,
                "rows", rows, "peers", devices, "decision", report->plan->decision);
  return json_build_print(object);
}

/* ---- chart */

enum { SERIES_MAX = STRATEGY_COUNT + PLANNER_GROUPS_MAX, SERIES_NAME = 24, CHART_WIDTH = 760, CHART_HEIGHT = 480 };

typedef struct Chart {
  char name[SERIES_MAX][SERIES_NAME];
  double x[SERIES_MAX][WIRE_NODES + 1], y[SERIES_MAX][WIRE_NODES + 1];
  PlotSeries series[SERIES_MAX];
  size_t count;
} Chart;

static void add_series(Chart *chart, const PlanReport *report, Strategy strategy, int groups) {
  size_t at = chart->count, points = 0;
  for (int devices = 1; devices <= report->setup->devices; devices++)
    for (int i = 0; i < report->plan->count; i++) {
      const PlanRow *row = &report->plan->rows[i];
      bool wanted = strategy == STRATEGY_SINGLE ? row->strategy == strategy
                                                : row->strategy == strategy && row->groups == groups && row->devices == devices;
      if (!wanted) continue;
      chart->x[at][points] = devices; /* one device alone: a line across */
      chart->y[at][points++] = 1e3 * row->latency;
    }
  if (points == 0) return;
  if (groups)
    snprintf(chart->name[at], SERIES_NAME, "%s, G = %d", strategy_facts(strategy)->name, groups);
  else
    snprintf(chart->name[at], SERIES_NAME, "%s", strategy_facts(strategy)->name);
  chart->series[at] =
      (PlotSeries){.name = chart->name[at], .x = chart->x[at], .y = chart->y[at], .count = points, .points = strategy != STRATEGY_SINGLE};
  chart->count++;
}

Status plan_report_chart(const PlanReport *report, const char *path) {
  Chart *chart = calloc(1, sizeof *chart);
  if (!chart) return status_no_memory(path, "the chart");
  add_series(chart, report, STRATEGY_SINGLE, 0);
  for (int g = 0; g < report->setup->group_count; g++) add_series(chart, report, STRATEGY_ASTRA, report->setup->groups[g]);
  for (int s = STRATEGY_TP; s < STRATEGY_COUNT; s++) add_series(chart, report, (Strategy)s, 0);
  char title[160], network[NETWORK_NAME];
  snprintf(title, sizeof title, "%s, %lld token%s, %s", report->model, (long long)report->setup->tokens, text_plural(report->setup->tokens),
           network_name(report->setup, network));
  const PlotPanel panel = {.title = "Predicted latency",
                           .x_label = "devices",
                           .y_label = "milliseconds",
                           .series = chart->series,
                           .count = chart->count,
                           .log_y = true};
  char *target;
  Status status = files_follow(path, &target);
  if (status == STATUS_OK) status = plot_save(target, title, &panel, 1, CHART_WIDTH, CHART_HEIGHT);
  free(target);
  free(chart);
  return status;
}
