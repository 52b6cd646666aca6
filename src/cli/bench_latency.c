/* The command latency: the paper's figures. Each device's computation is measured alone on one core, one after the other, and the exchange
 * is simulated: so any number of devices is measured honestly on a machine of few cores. The measuring is in bench_latency_cases.c, the
 * paper's numbers are in bench_latency_paper.c, tables, CSV and charts in bench_latency_output.c; here are the cases that each figure
 * shows, and the command. */
#include "base/array.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/bench_latency_internal.h"
#include "cli/cli.h"
#include "cli/network_options.h"
#include "infer/plan/planner.h"
#include "infer/plan/probe.h"
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include "nn/config.h"
#include "nn/json_build.h"
#include "nn/kv_tables.h"
#include "nn/strategy.h"
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Figures ---- */

/* Speedup against bandwidth, devices and tokens, where the time goes, codebook sizes, speedup over other strategies, and requests over a
 * link whose rate changes. Parts are chosen as a node would choose them, by prediction, not for having been the fastest of several
 * measurements. Everything is simulated twice: with computation as measured here, and calibrated. */

enum {
  FORMS = 2,
  GROUPS = 3,
  ONE_GROUP = 1,
  TRACE_SECONDS = 600,
  TRACE_WINDOW = 10,
  TRACE_STATES = 9,
  PAPER_TOKENS = 1024,
  ENTRIES = 4,
  ENTRIES_GROUPS = 32,
  ENTRIES_MBIT = 100,
  FEW_RETAINED = 1,
  MANY_RETAINED = 4
};
static const int groups[GROUPS] = {1, 16, 32}, entries[ENTRIES] = {256, 512, 1024, 2048};

static Status add(LatencyRows *rows, const LatencyRow *row) {
  TRY(ARRAY_RESERVE(rows->list, rows->count, 1, rows->capacity, "rows of a figure"));
  rows->list[rows->count++] = *row;
  return STATUS_OK;
}

/* ---- a case at a speed on a network */

/* Its latency, and what the device that ends last did until then. */
static const SimDevice *fill_times(LatencyRow *row, const SimResult *result) {
  const SimDevice *last = simulate_last(result, row->of.devices);
  row->latency = result->latency;
  row->compute = last->compute;
  row->wait = last->wait;
  row->hidden = simulate_hidden(last);
  return last;
}

/* row->of, row->calibrated and row->mbit say which one; its parts are chosen here, but for a trace, of which they are known. */
static Status simulate(const LatencyPlan *plan, const LatencyLink *link, LatencyRow *row) {
  SimResult result;
  double scale = row->calibrated ? plan->calibrated : 1, single, share;
  TRY(bench_latency_cases_single(plan->bench, row->of.tokens, false, &single));
  if (plan->parts > 0)
    row->of.parts = row->of.strategy == STRATEGY_ASTRA ? plan->parts : 1;
  else if (!link->trace)
    row->of.parts = 0;
  TRY(bench_latency_cases_run(plan->bench, &row->of, link, scale, &result, &share));
  const SimDevice *last = fill_times(row, &result);
  row->sending = last->carried;
  row->kilobytes = (double)last->bytes_sent / 1e3;
  row->single = scale * single;
  row->share = fmin(share, plan->bench->single.share);
  return STATUS_OK;
}

static Status at_rate(const LatencyPlan *plan, LatencyRow *row) {
  return simulate(plan, &(LatencyLink){.bits_per_second = 1e6 * row->mbit}, row);
}

static bool possible(const LatencyBench *bench, const LatencyCase *wanted) {
  return planner_possible(&bench->model.config, wanted->strategy, wanted->devices, wanted->tokens, wanted->retained);
}

/* Against the single device with as many tokens. Nothing where there cannot be such a case. */
static Status add_speedup(const LatencyPlan *plan, LatencyCase of, double mbit, LatencyRows *rows) {
  if (!possible(plan->bench, &of)) return STATUS_OK;
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit};
    TRY(at_rate(plan, &row));
    row.value = row.single / row.latency;
    if (plan->paper && row.calibrated && of.retained <= FEW_RETAINED) {
      row.paper = bench_latency_paper_speedup(of.strategy, of.groups, of.devices, of.tokens, mbit, &row.note);
    }
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static LatencyCase astra(const LatencyPlan *plan, int group_count) {
  return (LatencyCase){.strategy = STRATEGY_ASTRA,
                       .groups = group_count,
                       .entries = (int)plan->bench->model.config.astra.codebook_size,
                       .devices = plan->devices,
                       .tokens = plan->tokens};
}

static LatencyCase other(const LatencyPlan *plan, int which) {
  const Baseline *of = &plan->others[which];
  return (LatencyCase){.strategy = of->strategy, .devices = plan->devices, .retained = of->retained, .parts = 1, .tokens = plan->tokens};
}

/* What a figure compares: codes of 1, 16 and 32 groups, then the others; with `quick` codes of one group alone. */
static int kinds_of(const LatencyPlan *plan) { return plan->quick ? ONE_GROUP : GROUPS + plan->other_count; }
static LatencyCase kind(const LatencyPlan *plan, int which) {
  return which < GROUPS ? astra(plan, groups[which]) : other(plan, which - GROUPS);
}

/* Speedup at all rates, and at the one asked for; with `quick` at this one and a fast one. */
static Status add_rates(const LatencyPlan *plan, LatencyCase of, LatencyRows *rows) {
  bool known = false;
  for (int r = 0; r < LATENCY_RATES; r++) {
    known = known || bench_latency_rates[r] == plan->mbit;
    if (!plan->quick || bench_latency_rates[r] == plan->mbit || bench_latency_rates[r] == LATENCY_FAST_MBIT)
      TRY(add_speedup(plan, of, bench_latency_rates[r], rows));
  }
  return known ? STATUS_OK : add_speedup(plan, of, plan->mbit, rows);
}

/* ---- speedup against bandwidth, devices, tokens */

static Status run_bandwidth(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < LATENCY_RATES; r++) TRY(add_speedup(plan, astra(plan, groups[g]), bench_latency_rates[r], rows));
  for (int s = 0; s < plan->other_count; s++)
    for (int r = 0; r < LATENCY_RATES; r++) TRY(add_speedup(plan, other(plan, s), bench_latency_rates[r], rows));
  return STATUS_OK;
}

/* Other strategies on even numbers of devices alone: they take as long to measure. */
static Status run_devices(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < kinds_of(plan); s++)
    for (int devices = 2; devices <= 8; devices *= plan->quick ? 2 : 1, devices += !plan->quick) {
      LatencyCase of = kind(plan, s);
      of.devices = devices;
      if (s < GROUPS || devices % 2 == 0) TRY(add_rates(plan, of, rows));
    }
  return STATUS_OK;
}

static Status run_tokens(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < kinds_of(plan); s++)
    for (int64_t tokens = plan->tokens / 4; tokens <= (plan->quick ? 1 : 4) * plan->tokens; tokens *= 2) {
      LatencyCase of = kind(plan, s);
      of.tokens = tokens;
      TRY(add_rates(plan, of, rows));
    }
  return STATUS_OK;
}

/* ---- where the time goes: milliseconds */

static Status add_milliseconds(const LatencyPlan *plan, LatencyCase of, double mbit, LatencyRows *rows) {
  if (!possible(plan->bench, &of)) return STATUS_OK;
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit};
    TRY(at_rate(plan, &row));
    row.value = 1e3 * row.latency;
    if (plan->paper && row.calibrated && of.devices == LATENCY_PAPER_DEVICES && of.tokens == PAPER_TOKENS && of.strategy == STRATEGY_ASTRA)
      row.paper = bench_latency_paper_milliseconds(of.groups, of.entries, mbit, &row.paper_sending);
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static Status run_breakdown(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < LATENCY_RATES; r++) TRY(add_milliseconds(plan, astra(plan, groups[g]), bench_latency_rates[r], rows));
  for (int s = 0; s < plan->other_count; s++)
    for (int r = 0; r < LATENCY_RATES; r++)
      if (plan->others[s].retained > 0) TRY(add_milliseconds(plan, other(plan, s), bench_latency_rates[r], rows));
  return STATUS_OK;
}

static Status run_codebook(const LatencyPlan *plan, LatencyRows *rows) {
  for (int k = 0; k < ENTRIES; k++) {
    LatencyCase of = astra(plan, ENTRIES_GROUPS);
    of.entries = entries[k];
    if (!plan->quick || k % 2 == 0) TRY(add_milliseconds(plan, of, ENTRIES_MBIT, rows));
  }
  return STATUS_OK;
}

/* ---- how many times as fast as another strategy */

static Status run_baselines(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < plan->other_count; s++)
    for (int r = 0; r < LATENCY_RATES; r++)
      for (int form = FORMS - 1; form >= 0; form--) {
        LatencyRow ours = {.of = astra(plan, ONE_GROUP), .calibrated = form == 1, .mbit = bench_latency_rates[r]};
        LatencyRow row = {.of = other(plan, s), .calibrated = form == 1, .mbit = bench_latency_rates[r]};
        if (!possible(plan->bench, &row.of)) continue;
        TRY(at_rate(plan, &ours));
        TRY(at_rate(plan, &row));
        row.value = row.latency / ours.latency;
        row.share = fmin(row.share, ours.share);
        if (plan->paper && row.calibrated && plan->devices == LATENCY_PAPER_DEVICES && row.of.retained <= FEW_RETAINED)
          row.paper = bench_latency_paper_over(row.of.strategy, bench_latency_rates[r]);
        TRY(add(rows, &row));
      }
  return STATUS_OK;
}

/* ---- a rate that changes: requests one after another, 20 to 100 Mbit/s as link_trace_open (netem.h) draws it */

/* Requests that end in each ten seconds, parts of one counted as such; the rest of a row is of the last request in them. A request within
 * one step of the trace takes the time of the step's rate, which is simulated once. */
static Status run_requests(const LatencyPlan *plan, const LinkTrace *trace, LatencyCase of, bool calibrated, LatencyRows *rows) {
  LatencyRow windows[TRACE_SECONDS / TRACE_WINDOW] = {0};
  LatencyRow known[TRACE_STATES] = {0};
  LatencyRow row = {.of = of, .calibrated = calibrated};
  for (double at = 0; at < TRACE_SECONDS; at += row.latency) {
    double rate = link_trace_rate(trace, at);
    LatencyRow *steady = &known[(int)lround(rate / 1e7) - 2];
    if (steady->latency == 0) {
      TRY(simulate(plan, &(LatencyLink){.bits_per_second = rate}, &row));
      *steady = row;
    }
    row = *steady;
    if (floor(at + row.latency) != floor(at)) TRY(simulate(plan, &(LatencyLink){.trace = trace, .start = at}, &row));
    for (int w = (int)(at / TRACE_WINDOW); w < TRACE_SECONDS / TRACE_WINDOW && w * TRACE_WINDOW < at + row.latency; w++) {
      double done = windows[w].value;
      windows[w] = row;
      windows[w].second = (w + 1) * TRACE_WINDOW;
      windows[w].value = done + (fmin(at + row.latency, (w + 1) * TRACE_WINDOW) - fmax(at, w * TRACE_WINDOW)) / row.latency;
    }
  }
  for (int w = 0; w < TRACE_SECONDS / TRACE_WINDOW; w++) TRY(add(rows, &windows[w]));
  return STATUS_OK;
}

static Status run_trace(const LatencyPlan *plan, LatencyRows *rows) {
  LinkTrace trace = {0};
  char drawn[40];
  snprintf(drawn, sizeof drawn, "markov:20-100mbit:%d", TRACE_SECONDS);
  Status status = link_trace_open(&trace, drawn, plan->seed);
  for (int form = FORMS - 1; form >= 0 && status == STATUS_OK; form--) {
    for (int g = 0; g < GROUPS && status == STATUS_OK; g++) status = run_requests(plan, &trace, astra(plan, groups[g]), form == 1, rows);
    LatencyCase one = {.strategy = STRATEGY_SINGLE, .devices = 1, .parts = 1, .tokens = plan->tokens};
    if (status == STATUS_OK) status = run_requests(plan, &trace, one, form == 1, rows);
    for (int s = 0; s < plan->other_count && status == STATUS_OK; s++) {
      const LatencyCase of = other(plan, s);
      if (possible(plan->bench, &of)) status = run_requests(plan, &trace, of, form == 1, rows);
    }
  }
  link_trace_release(&trace);
  return status;
}

/* ---- Llama-3-8B: milliseconds until the first token, predicted; calibrated to the device of the paper */

static Status add_llama(const LatencyPlan *plan, LatencyCase of, double single, double mbit, LatencyRows *rows) {
  for (int form = FORMS - 1; form >= 0; form--) {
    SimResult result;
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit, .share = 1};
    const double scale = row.calibrated ? LATENCY_LLAMA_MILLISECONDS / (1e3 * single) : 1;
    TRY(bench_latency_cases_predict(plan->bench, &row.of, &(LatencyLink){.bits_per_second = 1e6 * mbit}, scale, &result));
    fill_times(&row, &result);
    row.value = 1e3 * result.latency;
    for (int d = 0; d < of.devices; d++) { /* of a text the last device hears all others and sends nothing */
      row.sending = fmax(row.sending, result.device[d].carried);
      row.kilobytes = fmax(row.kilobytes, (double)result.device[d].bytes_sent / 1e3);
    }
    row.single = scale * single;
    if (row.calibrated && bench_latency_paper_links(&plan->bench->links))
      row.paper = bench_latency_paper_llama(of.strategy, of.groups, of.retained, mbit);
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static Status run_llama(const LatencyPlan *plan, LatencyRows *rows) {
  static const Baseline compared[] = {{STRATEGY_TP, 0}, {STRATEGY_SP, 0}, {STRATEGY_BP_AG, 4}, {STRATEGY_BP_AG, 8}};
  SimResult result;
  LatencyCase of = {.strategy = STRATEGY_SINGLE, .devices = 1, .tokens = LATENCY_LLAMA_TOKENS};
  TRY(bench_latency_cases_predict(plan->bench, &of, &(LatencyLink){.bits_per_second = 1e9}, 1, &result));
  for (int r = 0; r < LATENCY_RATES; r++) {
    for (int g = 0; g < GROUPS; g++) {
      of = (LatencyCase){.strategy = STRATEGY_ASTRA,
                         .groups = groups[g],
                         .entries = 1024,
                         .devices = LATENCY_PAPER_DEVICES,
                         .tokens = LATENCY_LLAMA_TOKENS};
      TRY(add_llama(plan, of, result.latency, bench_latency_rates[r], rows));
    }
    for (size_t s = 0; s < sizeof compared / sizeof *compared; s++) {
      of = (LatencyCase){.strategy = compared[s].strategy,
                         .devices = LATENCY_PAPER_DEVICES,
                         .retained = compared[s].retained,
                         .tokens = LATENCY_LLAMA_TOKENS};
      TRY(add_llama(plan, of, result.latency, bench_latency_rates[r], rows));
    }
  }
  return STATUS_OK;
}

/* Appends the figure's rows. */
static Status figure_rows(const LatencyPlan *plan, LatencyFigure figure, LatencyRows *rows) {
#define LATENCY_FIGURE_RUN(name) run_##name,
  static Status (*const runs[])(const LatencyPlan *, LatencyRows *) = {LATENCY_FIGURES(LATENCY_FIGURE_RUN)};
#undef LATENCY_FIGURE_RUN
  return runs[figure](plan, rows);
}

/* ---- The command ---- */

static const char USAGE[] = "astra-bench latency [--figure NAME] [--quick] [OPTION...]";
static const char ABOUT[] = "The paper's latency figures from this runner: computation measured device by device, the network computed.";

static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

enum { LATENCY_OPTIONS_MAX = 28 + NETWORK_OPTIONS_COUNT, PROBE_GROUPS = 16 };

typedef struct LatencyCommand {
  const char *out;
  double calibrate, table_memory; /* seconds, bytes */
  int figure;                     /* LATENCY_FIGURE_COUNT: all */
  int64_t repeats, parts, width, blocks, exchange_blocks, heads, entries, tokens, nodes, retained;
  bool quick, measure_all, json;
  NetworkOptions network;
} LatencyCommand;

static void latency_options(LatencyCommand *c, Option options[LATENCY_OPTIONS_MAX]) {
#define FIGURE_CHOICE(name) #name "|"
  *c = (LatencyCommand){.calibrate = 99.9 * 1e-3,
                        .table_memory = KV_TABLES_MEMORY,
                        .figure = LATENCY_FIGURE_COUNT,
                        .repeats = 3,
                        .width = 768,
                        .blocks = 12,
                        .heads = 12,
                        .entries = 1024,
                        .tokens = 1024,
                        .nodes = 4};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to draw"},
      {OPTION_CHOICE, "figure", 0, &c->figure, .choices = LATENCY_FIGURES(FIGURE_CHOICE) "all", .help = "which of the figures"},
      {OPTION_TIME, "calibrate", 0, &c->calibrate, "TIME", .help = "latency of one device in the calibrated form (the paper's GPU)"},
      {OPTION_FLAG, "quick", 0, &c->quick, .help = "fewer devices, tokens and codebooks, each measured once"},
      {OPTION_GROUP, .help = "Model"},
      {OPTION_INT, "width", 0, &c->width, "N", .min = 32, .max = 8192, .help = "width of a token; the MLP is four times as wide"},
      {OPTION_INT, "blocks", 0, &c->blocks, "N", .min = 1, .max = 128, .help = "number of blocks"},
      {OPTION_INT, "exchange-blocks", 0, &c->exchange_blocks, "N", .min = 0, .max = 128,
       .help = "astra: only the first N blocks exchange codes; 0: all"},
      {OPTION_INT, "heads", 0, &c->heads, "N", .min = 1, .max = 128, .help = "attention heads"},
      {OPTION_INT, "codebook-size", 0, &c->entries, "K", .min = 2, .max = 65536, .help = "codewords per group"},
      {OPTION_INT, "tokens", 0, &c->tokens, "N", .min = 64, .max = 65536, .help = "input tokens, where not varied"},
      {OPTION_INT, "nodes", 'n', &c->nodes, "N", .min = 2, .max = WIRE_NODES, .help = "number of devices, where not varied"},
      {OPTION_INT, "retained", 0, &c->retained, "N", .min = 0, .max = 128,
       .help = "blocks that bp-ag and bp-sp compute together; 0: 1 and 4"},
      {OPTION_INT, "parts", 0, &c->parts, "N", .min = 0, .max = MAX_PARTS,
       .help = "parts of a block's codes; 0: the planner's choice of 1, 2, 4, 8"},
      {OPTION_SIZE, "table-memory", 0, &c->table_memory, "SIZE", .help = "memory per device for keys and values of codewords"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c->repeats, "N", .min = 1, .max = 32, .help = "runs per device; the median counts"},
      {OPTION_FLAG, "measure-all", 0, &c->measure_all, .help = "measure identical devices separately"},
  };
  const Option output[] = {{OPTION_GROUP, .help = "Output"},
                           {OPTION_TEXT, "out", 'o', &c->out, "DIR", .help = "write a CSV and a PNG of each figure there"},
                           {OPTION_FLAG, "json", 'j', &c->json, .help = "print one JSON object instead of tables"},
                           {.kind = OPTION_GROUP}};
#undef FIGURE_CHOICE
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *options++ = own[i];
  options += network_options_rows(&c->network, options);
  for (size_t i = 0; i < sizeof output / sizeof *output; i++) *options++ = output[i];
}

/* ---- the run */

static void show_progress(const LatencyCase *wanted) {
  log_info("measuring %s, %d group%s, %d device%s, %lld token%s, %d part%s", strategy_facts(wanted->strategy)->name, wanted->groups,
           text_plural(wanted->groups), wanted->devices, text_plural(wanted->devices), (long long)wanted->tokens,
           text_plural(wanted->tokens), wanted->parts, text_plural(wanted->parts));
}

static Status run_figure(const LatencyCommand *command, const LatencyPlan *plan, LatencyFigure figure, json_t *list) {
  LatencyRows rows = {0};
  Status status = figure_rows(plan, figure, &rows);
  if (status == STATUS_OK && command->out) status = bench_latency_output_save(plan, figure, &rows, command->out);
  if (status == STATUS_OK && !command->json) bench_latency_output_print(plan, figure, &rows);
  if (status == STATUS_OK) bench_latency_output_rows(plan, figure, &rows, list);
  free(rows.list);
  return status;
}

static Status print_json(const LatencyPlan *plan, json_t *rows, double seconds) {
  const LatencyBench *bench = plan->bench;
  const PacketWork *work = &bench->work;
  json_t *single = isnan(plan->calibrated) ? json_null()
                                           : json_pack("{s:f, s:f, s:f}", "first_ms", 1e3 * bench->single.first, "last_ms",
                                                       1e3 * bench->single.last, "spread", bench->single.spread);
  json_t *packets = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "packet_out_us", 1e6 * work->out.packet, "byte_out_ns",
                              1e9 * work->out.byte, "packet_in_us", 1e6 * work->in.packet, "byte_in_ns", 1e9 * work->in.byte,
                              "stream_byte_out_ns", 1e9 * work->stream_out.byte, "stream_byte_in_ns", 1e9 * work->stream_in.byte);
  return json_build_print(json_pack("{s:o, s:s, s:i, s:i, s:f, s:f, s:f, s:o, s:o, s:O}", "scale", json_build_number(plan->calibrated),
                                    "link_model", network_options_topology(bench->links.topology), "devices_measured", bench->measured,
                                    "repeats", bench->repeats, "min_share_of_a_core", bench->quality.min_share, "spread",
                                    bench->quality.spread, "seconds", seconds, "single", single, "packet_work", packets, "rows", rows));
}

/* How steady the measured devices were. */
static void print_measured(const LatencyPlan *plan, double seconds) {
  const LatencyBench *bench = plan->bench;
  printf("one device: %.1f ms for %lld token%s before everything else, %.1f ms behind it; their mean counts", 1e3 * bench->single.first,
         (long long)plan->tokens, text_plural(plan->tokens), 1e3 * bench->single.last);
  if (bench->repeats > 1)
    printf("; its runs differed by %.1f%%\n", 100 * bench->single.spread);
  else
    printf("; each measured once\n");
  printf("%d device%s measured one after another%s, in %.0f s\n", bench->measured, text_plural(bench->measured),
         bench->measure_all ? "" : ", those that are alike once", seconds);
  printf("processor time: a run had %.0f%% of a core at least", 100 * bench->quality.min_share);
  if (bench->repeats > 1)
    printf(", runs of a device differed by %.1f%% at most", 100 * bench->quality.spread);
  else
    printf(", each device was measured once");
  printf("%s\n", bench->quality.min_share < 0.97 ? "; others were on this core, and took its caches" : "");
}

/* What the numbers rest on. */
static void print_quality(const LatencyPlan *plan, double seconds) {
  const PacketWork *work = &plan->bench->work;
  printf("\n");
  if (isnan(plan->calibrated))
    printf("no device was measured: computation is predicted from this machine's rates; %.0f s\n", seconds);
  else
    print_measured(plan, seconds);
  printf("packets of 1,200 bytes take %.1f us to seal and send, %.1f us to receive and open, a megabyte of a stream %.0f and %.0f us:"
         " as they are here, whatever computation is scaled by\n",
         1e6 * (work->out.packet + 1200 * work->out.byte), 1e6 * (work->in.packet + 1200 * work->in.byte), 1e12 * work->stream_out.byte,
         1e12 * work->stream_in.byte);
  printf("left out: sending the input to the devices, embedding and head\n");
}

/* Llama's figure alone is predicted, from the machine's rates. */
static bool measures(const LatencyCommand *command) { return command->figure != LATENCY_FIGURE_llama; }

/* All that the figures need, and the single device once more behind it, so that a core that becomes slower slows both sides. */
static Status measure_figures(const LatencyCommand *command, LatencyPlan *plan, double target) {
  double single;
  for (int figure = 0; figure < LATENCY_FIGURE_COUNT; figure++) {
    LatencyRows rows = {0};
    if (command->figure != LATENCY_FIGURE_COUNT && command->figure != figure) continue;
    Status status = figure_rows(plan, (LatencyFigure)figure, &rows);
    free(rows.list);
    TRY(status);
  }
  if (!measures(command)) return STATUS_OK;
  TRY(bench_latency_cases_single(plan->bench, plan->tokens, true, &single));
  plan->calibrated = target / single;
  return STATUS_OK;
}

static Status run_figures(const LatencyCommand *command, LatencyPlan *plan, double begun) {
  json_t *rows = json_array();
  Status status = rows ? STATUS_OK : status_no_memory(NULL, "the JSON output");
  for (int figure = 0; figure < LATENCY_FIGURE_COUNT && status == STATUS_OK; figure++)
    if (command->figure == LATENCY_FIGURE_COUNT || command->figure == figure)
      status = run_figure(command, plan, (LatencyFigure)figure, rows);
  if (status == STATUS_OK && command->json) status = print_json(plan, rows, clock_now() - begun);
  if (status == STATUS_OK && !command->json) print_quality(plan, clock_now() - begun);
  json_decref(rows);
  return status;
}

static Status open_bench(const LatencyCommand *command, LatencyBench *bench, const LinkOptions *links, const Reliability *reliability) {
  *bench = (LatencyBench){.links = *links,
                          .repeats = command->quick ? 1 : (int)command->repeats,
                          .min_packets = (int)command->network.datagrams,
                          .measure_all = command->measure_all,
                          .reliability = reliability,
                          .quality = {.min_share = 1},
                          .progress = show_progress};
  bench->arena = arena_new(ARENA_BYTES);
  if (!bench->arena) return status_no_memory(NULL, "measuring devices");
  bench->table_bytes = command->table_memory;
  const LatencySize size = {.width = command->width,
                            .blocks = command->blocks,
                            .heads = command->heads,
                            .entries = command->entries,
                            .exchange_blocks = command->exchange_blocks};
  TRY(packet_work_measure(&bench->work));
  if (!measures(command)) return STATUS_OK;
  TRY(bench_latency_model_open(&bench->model, &size));
  ModelConfig coded = bench->model.config; /* whatever the number of groups, codes take as many operations */
  coded.astra.groups = PROBE_GROUPS;
  return probe_compute(&coded, command->tokens, PROBE_BY_ITSELF, &bench->profile);
}

/* Blocks in parallel with few and with many of them retained, or with as many as were asked for. */
static void choose_others(const LatencyCommand *command, LatencyPlan *plan) {
  static const Strategy by_blocks[] = {STRATEGY_BP_AG, STRATEGY_BP_SP};
  const int64_t few = command->retained > 0 ? command->retained : FEW_RETAINED;
  const int64_t many = command->retained > 0 || command->quick ? few : MANY_RETAINED;
  plan->others[plan->other_count++] = (Baseline){STRATEGY_TP, 0};
  plan->others[plan->other_count++] = (Baseline){STRATEGY_SP, 0};
  for (size_t s = 0; s < sizeof by_blocks / sizeof *by_blocks; s++)
    for (int64_t retained = few; retained <= many; retained += many - few > 0 ? many - few : 1)
      if (retained == few || retained < command->blocks) plan->others[plan->other_count++] = (Baseline){by_blocks[s], (int)retained};
}

static Status run_latency(const LatencyCommand *command, LatencyBench *bench) {
  LinkOptions links;
  Reliability reliability;
  double target = command->calibrate, single = NAN, begun = clock_now();
  if (target <= 0) return status_set(STATUS_BAD_USAGE, "--calibrate: the time must be above 0");
  TRY(retained_check(command->retained, command->blocks));
  TRY(config_check_exchange(command->exchange_blocks, command->blocks));
  TRY(network_options_read(&command->network, &links, &reliability));
  if (command->out) TRY(files_make_dirs(command->out));
  TRY(open_bench(command, bench, &links, &reliability));
  if (measures(command)) TRY(bench_latency_cases_single(bench, command->tokens, false, &single));
  const PaperRun run = {.width = command->width,
                        .blocks = command->blocks,
                        .heads = command->heads,
                        .entries = command->entries,
                        .tokens = command->tokens,
                        .single = target,
                        .links = &bench->links};
  LatencyPlan plan = {.bench = bench,
                      .calibrated = target / single,
                      .mbit = bench->links.bits_per_second / 1e6,
                      .tokens = command->tokens,
                      .devices = (int)command->nodes,
                      .parts = (int)command->parts,
                      .quick = command->quick,
                      .paper = command->exchange_blocks == 0 && bench_latency_paper_applies(&run),
                      .seed = bench->links.seed};
  choose_others(command, &plan);
  TRY(measure_figures(command, &plan, target));
  return run_figures(command, &plan, begun);
}

/* An option that the chosen figure would pass over: it has its own value, or, as Llama's, which is predicted, nothing to do with it. */
static Status check_figure(const LatencyCommand *command, const Option *options) {
#define OF(name) (1u << LATENCY_FIGURE_##name)
  static const unsigned all = (1u << LATENCY_FIGURE_COUNT) - 1, measured = all & ~OF(llama);
  const struct {
    const char *name;
    unsigned figures; /* that take it */
  } list[] = {{"nodes", measured & ~OF(devices)},
              {"codebook-size", measured & ~OF(codebook)},
              {"retained", measured & ~OF(codebook)},
              {"bandwidth", OF(devices) | OF(tokens)},
              {"calibrate", measured},
              {"width", measured},
              {"blocks", measured},
              {"exchange-blocks", measured},
              {"heads", measured},
              {"tokens", measured},
              {"parts", measured},
              {"table-memory", measured},
              {"repeats", measured},
              {"measure-all", measured}};
#undef OF
  char figures[128] = "";
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!options_given(options, list[i].name) || command->figure == LATENCY_FIGURE_COUNT) continue;
    if (list[i].figures >> command->figure & 1) continue;
    size_t used = 0;
    for (int figure = 0; figure < LATENCY_FIGURE_COUNT; figure++)
      if (list[i].figures >> figure & 1)
        used += (size_t)snprintf(figures + used, sizeof figures - used, "%s%s", used > 0 ? ", " : "", bench_latency_figures[figure]);
    return status_set(STATUS_BAD_USAGE, "--%s changes nothing in --figure %s; it is for %s", list[i].name,
                      bench_latency_figures[command->figure], figures);
  }
  return STATUS_OK;
}

static Status latency_run(int argc, char **argv) {
  LatencyCommand command;
  Option options[LATENCY_OPTIONS_MAX];
  LatencyBench bench = {.repeats = 0};
  latency_options(&command, options);
  if (cli_helped(options, USAGE, ABOUT, argc, argv)) return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  TRY(check_figure(&command, options));
  if (command.width % command.heads)
    return status_set(STATUS_BAD_USAGE, "--heads %lld does not divide --width %lld", (long long)command.heads, (long long)command.width);
  if (command.width % 32) return status_set(STATUS_BAD_USAGE, "--width %lld: 1, 16 and 32 groups must divide it", (long long)command.width);
  TRY(cli_check_kernels(NULL));
  Status status = run_latency(&command, &bench);
  bench_latency_cases_release(&bench);
  return status;
}

const CliCommand bench_latency_command = {"latency", "draw the paper's latency figures from measured devices and a simulated network",
                                          latency_run};
