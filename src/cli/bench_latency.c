/* The command latency: the paper's figures. Each device's computation is measured alone on one core, one after the other, and the exchange
 * is simulated: so any number of devices is measured honestly on a machine of few cores. The measuring is in bench_latency_cases.c, the
 * paper's numbers are in bench_latency_paper.c; here are the cases that each figure shows, its table, CSV and chart, and the command. */
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
#include "nn/strategy.h"
#include "train/plot.h"
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

#define LATENCY_FIGURES(X) X(bandwidth) X(devices) X(tokens) X(breakdown) X(codebook) X(baselines) X(trace) X(llama)
typedef enum LatencyFigure {
#define LATENCY_FIGURE_ENUM(name) LATENCY_FIGURE_##name,
  LATENCY_FIGURES(LATENCY_FIGURE_ENUM)
#undef LATENCY_FIGURE_ENUM
      LATENCY_FIGURE_COUNT
} LatencyFigure;

/* One simulated case. */
typedef struct LatencyRow {
  LatencyCase of;
  bool calibrated;
  double mbit;                           /* of a link; 0: a trace */
  double second;                         /* of a trace: the end of the ten seconds counted */
  double latency, compute, wait, hidden; /* seconds, of the device that ends last; a share (simulate_hidden) */
  double kilobytes;                      /* that it sent; of Llama the device that sends most */
  double sending;                        /* seconds in which the busiest direction of its links carried packets; likewise */
  double value;                          /* what the figure draws: a speedup, milliseconds, requests */
  double paper;                          /* the same as the paper prints it; 0: it does not */
  double paper_sending;                  /* milliseconds of that which it says are communication; 0: it does not */
  double single;                         /* seconds that one device takes for as many tokens */
  double share;                          /* of a core, the least that these measurements had */
  const char *note;                      /* about the paper's number; NULL */
} LatencyRow;

typedef struct LatencyRows {
  LatencyRow *list; /* [count], owned */
  int count;
  size_t capacity;
} LatencyRows;

/* Strategies that codes are compared with. */
typedef struct Baseline {
  Strategy strategy;
  int retained;
} Baseline;

typedef struct LatencyPlan {
  LatencyBench *bench;
  Baseline others[2 * STRATEGY_COUNT]; /* each at most with few and with many retained blocks */
  int other_count;
  double calibrated; /* scale of computation with which one device takes as long as asked for; NaN: none was measured */
  double mbit;       /* of figures that draw something else than bandwidth */
  int64_t tokens;    /* likewise; 1,024 */
  int devices;       /* 4 */
  int parts;         /* 0: as a node would choose them */
  bool quick;        /* fewer devices, tokens and codebooks */
  bool paper;        /* model and links are the paper's: its numbers stand beside */
  uint64_t seed;     /* of the trace */
} LatencyPlan;

enum {
  FORMS = 2,
  GROUPS = 3,
  ONE_GROUP = 1,
  TRACE_SECONDS = 600,
  TRACE_WINDOW = 10,
  TRACE_STATES = 9,
  PAPER_DEVICES = 4,
  PAPER_TOKENS = 1024,
  ENTRIES = 4,
  ENTRIES_GROUPS = 32,
  ENTRIES_MBIT = 100,
  FAST_MBIT = 200,
  FEW_RETAINED = 1,
  MANY_RETAINED = 4,
  LLAMA_TOKENS = 1024,
  LLAMA_MILLISECONDS = 4578 /* of one device of the paper */
};
static const int groups[GROUPS] = {1, 16, 32}, entries[ENTRIES] = {256, 512, 1024, 2048};

#define LATENCY_FIGURE_NAME(name) #name,
static const char *const figure_names[] = {LATENCY_FIGURES(LATENCY_FIGURE_NAME)};
#undef LATENCY_FIGURE_NAME

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
    if (!plan->quick || bench_latency_rates[r] == plan->mbit || bench_latency_rates[r] == FAST_MBIT)
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
    if (plan->paper && row.calibrated && of.devices == PAPER_DEVICES && of.tokens == PAPER_TOKENS && of.strategy == STRATEGY_ASTRA)
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
        if (plan->paper && row.calibrated && plan->devices == PAPER_DEVICES && row.of.retained <= FEW_RETAINED)
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
    const double scale = row.calibrated ? LLAMA_MILLISECONDS / (1e3 * single) : 1;
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
  LatencyCase of = {.strategy = STRATEGY_SINGLE, .devices = 1, .tokens = LLAMA_TOKENS};
  TRY(bench_latency_cases_predict(plan->bench, &of, &(LatencyLink){.bits_per_second = 1e9}, 1, &result));
  for (int r = 0; r < LATENCY_RATES; r++) {
    for (int g = 0; g < GROUPS; g++) {
      of =
          (LatencyCase){.strategy = STRATEGY_ASTRA, .groups = groups[g], .entries = 1024, .devices = PAPER_DEVICES, .tokens = LLAMA_TOKENS};
      TRY(add_llama(plan, of, result.latency, bench_latency_rates[r], rows));
    }
    for (size_t s = 0; s < sizeof compared / sizeof *compared; s++) {
      of = (LatencyCase){
          .strategy = compared[s].strategy, .devices = PAPER_DEVICES, .retained = compared[s].retained, .tokens = LLAMA_TOKENS};
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

/* ---- Files and tables ---- */

enum { NAME_ROOM = 48, SERIES_MAX = 160, PANELS_MAX = 9, SLOWEST_DRAWN = 100 /* Mbit/s */, PANEL_WIDTH = 640, PANEL_HEIGHT = 460 };

typedef struct Look {
  const char *title, *x_label, *y_label;
  bool log_x, log_y;
  double (*x)(const LatencyRow *row);
} Look;

static double x_rate(const LatencyRow *row) { return row->mbit; }
static double x_devices(const LatencyRow *row) { return row->of.devices; }
static double x_tokens(const LatencyRow *row) { return (double)row->of.tokens; }
static double x_entries(const LatencyRow *row) { return row->of.entries; }
static double x_second(const LatencyRow *row) { return row->second; }

static const Look looks[LATENCY_FIGURE_COUNT] = {
    [LATENCY_FIGURE_bandwidth] = {"Speedup over one device", "Mbit/s of a link", "times as fast", true, true, x_rate},
    [LATENCY_FIGURE_devices] = {"Speedup over one device", "devices", "times as fast", false, false, x_devices},
    [LATENCY_FIGURE_tokens] = {"Speedup over one device", "tokens", "times as fast", true, false, x_tokens},
    [LATENCY_FIGURE_breakdown] = {"Computing, and waiting for links on top of it", "Mbit/s of a link", "milliseconds", true, false, x_rate},
    [LATENCY_FIGURE_codebook] = {"G = 32 and the size of codebooks, 100 Mbit/s", "codewords of a group", "milliseconds", true, false,
                                 x_entries},
    [LATENCY_FIGURE_baselines] = {"Speedup of G = 1 over other strategies", "Mbit/s of a link", "times as fast", true, true, x_rate},
    [LATENCY_FIGURE_llama] = {"Llama-3-8B until its first token, predicted", "Mbit/s of a link", "milliseconds", true, true, x_rate},
    [LATENCY_FIGURE_trace] = {"Requests in ten seconds, 20-100 Mbit/s", "seconds", "requests", false, false, x_second},
};

/* Rows of all rates: a panel for each. */
static bool by_rate(LatencyFigure figure) { return figure == LATENCY_FIGURE_devices || figure == LATENCY_FIGURE_tokens; }

/* ---- CSV */

static const double whole_core = 0.9;

enum { NOTE = 240 };

/* A row's note: that its strategy is a latency baseline, loss that is not modelled, a core that others shared, doubts about the paper's
 * number. Without commas; "": nothing. */
static const char *note_of(const LatencyPlan *plan, const LatencyRow *row, char text[NOTE]) {
  static const char *const of_strategy[STRATEGY_COUNT] = {[STRATEGY_TP] = "sums move 4 U a block where the paper counts 2 U",
                                                          [STRATEGY_BP_AG] = "latency only: its accuracy would need its own training",
                                                          [STRATEGY_BP_SP] = "latency only: its accuracy would need its own training"};
  bool stream = row->of.devices > 1 && !strategy_facts(row->of.strategy)->sends_codes;
  const char *notes[] = {of_strategy[row->of.strategy] ? of_strategy[row->of.strategy] : "",
                         stream && plan->bench->links.loss > 0 ? "loss not modelled" : "", row->share < whole_core ? "shared core" : "",
                         row->note ? row->note : ""};
  size_t used = 0;
  text[0] = 0;
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
    if (*notes[i]) used += (size_t)snprintf(text + used, NOTE - used, "%s%s", used ? "; " : "", notes[i]);
  return text;
}

static const char CSV_HEAD[] =
    "figure,form,link_model,strategy,groups,codewords,nodes,tokens,parts,mbit,second,latency_ms,compute_ms,wait_ms,"
    "hidden,kilobytes_sent,value,paper,single_ms,core_share,note,retained,sending_ms,paper_sending\n";

static Status save_csv(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *path) {
  enum { LINE = 320 + NOTE };
  char *text = malloc(sizeof CSV_HEAD + (size_t)rows->count * LINE);
  if (!text) return status_set(STATUS_NO_MEMORY, "%s: no memory for %d rows", path, rows->count);
  size_t used = sizeof CSV_HEAD - 1;
  memcpy(text, CSV_HEAD, sizeof CSV_HEAD);
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    const LatencyCase *of = &row->of;
    char hidden[24] = "", paper[24] = "", sending[24] = "", note[NOTE];
    if (isfinite(row->hidden)) snprintf(hidden, sizeof hidden, "%.4f", row->hidden);
    if (row->paper > 0) snprintf(paper, sizeof paper, "%.4g", row->paper);
    if (row->paper_sending > 0) snprintf(sending, sizeof sending, "%.4g", row->paper_sending);
    used += (size_t)snprintf(
        text + used, LINE, "%s,%s,%s,%s,%d,%d,%d,%lld,%d,%g,%g,%.4f,%.4f,%.4f,%s,%.3f,%.4f,%s,%.4f,%.3f,%s,%d,%.4f,%s\n",
        figure_names[figure], row->calibrated ? "calibrated" : "measured", network_options_topology(plan->bench->links.topology),
        strategy_facts(of->strategy)->name, of->groups, of->entries, of->devices, (long long)of->tokens, of->parts, row->mbit, row->second,
        1e3 * row->latency, 1e3 * row->compute, 1e3 * row->wait, hidden, row->kilobytes, row->value, paper, 1e3 * row->single, row->share,
        note_of(plan, row, note), of->retained, 1e3 * row->sending, sending);
  }
  Status status = files_write(path, text, used);
  free(text);
  return status;
}

/* ---- chart */

typedef struct Lines {
  char name[SERIES_MAX][NAME_ROOM];
  PlotSeries series[SERIES_MAX];
  double *numbers; /* x and y of all series */
  size_t used, count;
} Lines;

/* named: with the rate, where rows of several are together. */
static const char *name_of(LatencyFigure figure, const LatencyRow *row, bool named, const char *suffix, char name[NAME_ROOM]) {
  char label[20], rate[24] = "";
  if (row->of.groups)
    snprintf(label, sizeof label, "G = %d", row->of.groups);
  else if (row->of.retained)
    snprintf(label, sizeof label, "%s, %d", strategy_facts(row->of.strategy)->name, row->of.retained);
  else
    snprintf(label, sizeof label, "%s", strategy_facts(row->of.strategy)->name);
  if (named && by_rate(figure)) snprintf(rate, sizeof rate, ", %g Mbit/s", row->mbit);
  snprintf(name, NAME_ROOM, "%s%s%s", label, rate, suffix);
  return name;
}

/* What a panel shows of a figure's rows: those of one form and, where there is such a function, of one value of it; against x. */
typedef struct View {
  LatencyFigure figure;
  bool calibrated;
  double (*by)(const LatencyRow *row);
  double value;
  double (*x)(const LatencyRow *row);
} View;

static bool shows(const View *view, const LatencyRow *row) {
  return row->calibrated == view->calibrated && (view->by == NULL || view->by(row) == view->value);
}

/* Points of one line, of rows that a view shows. */
static bool together(const LatencyRow *a, const LatencyRow *b) {
  return a->of.strategy == b->of.strategy && a->of.groups == b->of.groups && a->of.retained == b->of.retained;
}

static double y_sending(const LatencyRow *row) { return 1e3 * row->sending; }
static double y_paper_sending(const LatencyRow *row) { return row->paper_sending > 0 ? row->paper_sending : NAN; }
static double y_paper_computing(const LatencyRow *row) { return row->paper_sending > 0 ? row->paper - row->paper_sending : NAN; }
static double y_value(const LatencyRow *row) { return row->value; }
static double y_paper(const LatencyRow *row) { return row->paper > 0 ? row->paper : NAN; }
static double y_compute(const LatencyRow *row) { return 1e3 * row->compute; }

/* The rows that are like rows->list[first], as one series, which is drawn as `how` says. */
static void add_line(Lines *lines, const LatencyRows *rows, int first, const View *view, double (*y)(const LatencyRow *),
                     const char *suffix, PlotSeries how) {
  const LatencyRow *of = &rows->list[first];
  size_t begun = lines->used, count = 0;
  double *x = lines->numbers + begun, *values = x + rows->count;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    /* Bars of blocks in parallel on slow links would leave nothing to see of the others: they are in the CSV alone. */
    bool drawn = view->figure != LATENCY_FIGURE_breakdown || row->of.groups || row->mbit >= SLOWEST_DRAWN;
    if (!drawn || !shows(view, row) || !together(row, of) || !isfinite(y(row))) continue;
    x[count] = view->x(row);
    values[count++] = y(row);
  }
  if (count == 0 || lines->count == SERIES_MAX) return;
  how.name = name_of(view->figure, of, false, suffix, lines->name[lines->count]);
  if (how.style == PLOT_MARK) { /* all look alike: one of them is named */
    how.name = "paper";
    for (size_t s = 0; s < lines->count; s++)
      if (lines->series[s].style == PLOT_MARK) how.name = NULL;
  }
  how.x = x, how.y = values, how.count = count;
  lines->series[lines->count] = how;
  lines->used += 2 * (size_t)rows->count;
  lines->count++;
}

static bool first_of_its_kind(const View *view, const LatencyRows *rows, int at) {
  for (int i = 0; i < at; i++)
    if (shows(view, &rows->list[i]) && together(&rows->list[i], &rows->list[at])) return false;
  return true;
}

/* Codebook sizes: computing and sending beside each other, whatever of the latter computing hides. Elsewhere bars are computing and, on top
 * of it, waiting. */
static void add_panel(Lines *lines, const LatencyRows *rows, const View *view) {
  const bool apart = view->figure == LATENCY_FIGURE_codebook, bars = view->figure == LATENCY_FIGURE_breakdown;
  const bool points = view->figure != LATENCY_FIGURE_trace;
  for (int i = 0; i < rows->count; i++) {
    if (!shows(view, &rows->list[i]) || !first_of_its_kind(view, rows, i)) continue;
    if (apart || bars) add_line(lines, rows, i, view, y_compute, ", computing", (PlotSeries){.style = PLOT_BAR});
    if (apart) {
      add_line(lines, rows, i, view, y_paper_computing, "", (PlotSeries){.style = PLOT_MARK, .like_last = true});
      add_line(lines, rows, i, view, y_sending, ", sending", (PlotSeries){.style = PLOT_BAR});
      add_line(lines, rows, i, view, y_paper_sending, "", (PlotSeries){.style = PLOT_MARK, .like_last = true});
      continue;
    }
    add_line(lines, rows, i, view, y_value, bars ? ", waiting" : "",
             (PlotSeries){.points = points, .style = bars ? PLOT_ON_BAR : PLOT_LINE});
    add_line(lines, rows, i, view, y_paper, ", paper",
             (PlotSeries){.points = points, .style = bars ? PLOT_MARK : PLOT_DASHED, .like_last = true});
  }
}

/* A panel for each value of `by`, in rising order, calibrated; NULL: one calibrated, one as measured. */
static int choose_views(LatencyFigure figure, const LatencyRows *rows, double (*by)(const LatencyRow *), double (*x)(const LatencyRow *),
                        View views[PANELS_MAX]) {
  int count = 0;
  if (by == NULL) {
    views[0] = (View){.figure = figure, .calibrated = true, .x = x};
    views[1] = (View){.figure = figure, .calibrated = false, .x = x};
    return 2;
  }
  for (double above = -INFINITY; count < PANELS_MAX; above = views[count++].value) {
    double next = INFINITY;
    for (int i = 0; i < rows->count; i++)
      if (by(&rows->list[i]) > above) next = fmin(next, by(&rows->list[i]));
    if (!isfinite(next)) break;
    views[count] = (View){.figure = figure, .calibrated = true, .by = by, .value = next, .x = x};
  }
  return count;
}

/* against: the figure whose x axis it has. */
static Status save_chart(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, LatencyFigure against, const char *path) {
  const Look *look = &looks[figure], *axis = &looks[against];
  Lines *lines = calloc(1, sizeof *lines);
  View views[PANELS_MAX];
  PlotPanel panels[PANELS_MAX];
  char title[192], panel[PANELS_MAX][80];
  if (lines) lines->numbers = malloc(sizeof(double) * 2 * SERIES_MAX * (size_t)(rows->count + 1));
  Status status = lines && lines->numbers ? STATUS_OK : status_no_memory(path, "the chart");
  const int count = choose_views(figure, rows, against != figure ? look->x : by_rate(figure) ? x_rate : NULL, axis->x, views);
  for (int p = 0; p < count && status == STATUS_OK; p++) {
    const size_t first = lines->count;
    add_panel(lines, rows, &views[p]);
    if (views[p].by == NULL && views[p].calibrated && figure == LATENCY_FIGURE_llama)
      snprintf(panel[p], sizeof *panel, "Computation calibrated (one device: %d ms)", LLAMA_MILLISECONDS);
    else if (views[p].by == NULL)
      snprintf(panel[p], sizeof *panel, views[p].calibrated ? "Computation calibrated (x %.4g)" : "Computation as measured",
               plan->calibrated);
    else
      snprintf(panel[p], sizeof *panel, "%g %s", views[p].value, against != figure ? look->x_label : "Mbit/s");
    panels[p] =
        (PlotPanel){panel[p], axis->x_label, axis->y_label, lines->series + first, lines->count - first, axis->log_x, axis->log_y, true};
  }
  if (figure == LATENCY_FIGURE_llama)
    snprintf(title, sizeof title, "%s; %s, %d devices, %d tokens", look->title, network_options_topology(plan->bench->links.topology),
             PAPER_DEVICES, LLAMA_TOKENS);
  else
    snprintf(title, sizeof title, "%s; %s, %d device%s, %lld token%s unless they vary", look->title,
             network_options_topology(plan->bench->links.topology), plan->devices, text_plural(plan->devices), (long long)plan->tokens,
             text_plural(plan->tokens));
  if (status == STATUS_OK) status = plot_save(path, title, panels, (size_t)count, PANEL_WIDTH, PANEL_HEIGHT);
  if (lines) free(lines->numbers);
  free(lines);
  return status;
}

/* DIR/latency-NAME.csv with every simulated case, DIR/latency-NAME.png and, where rows are of all rates, DIR/latency-NAME-bandwidth.png
 * against these; all written beside and renamed. */
static Status save_figure(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/latency-%s.csv", directory, figure_names[figure]) >= (int)sizeof path)
    return status_set(STATUS_BAD_VALUE, "%s: the path is too long", directory);
  TRY(save_csv(plan, figure, rows, path));
  snprintf(path, sizeof path, "%s/latency-%s.png", directory, figure_names[figure]);
  TRY(save_chart(plan, figure, rows, figure, path));
  if (!by_rate(figure)) return STATUS_OK;
  if (snprintf(path, sizeof path, "%s/latency-%s-bandwidth.png", directory, figure_names[figure]) >= (int)sizeof path)
    return status_set(STATUS_BAD_VALUE, "%s: the path is too long", directory);
  return save_chart(plan, figure, rows, LATENCY_FIGURE_bandwidth, path);
}

/* ---- text */

static void print_trace(const LatencyRows *rows, bool calibrated) {
  const LatencyFigure figure = LATENCY_FIGURE_trace;
  const View view = {.figure = figure, .calibrated = calibrated};
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    char name[NAME_ROOM];
    double sum = 0, min = INFINITY, max = 0;
    int count = 0;
    if (!shows(&view, row) || !first_of_its_kind(&view, rows, i)) continue;
    for (int j = i; j < rows->count; j++) {
      const LatencyRow *other = &rows->list[j];
      if (!shows(&view, other) || !together(other, row)) continue;
      sum += other->value, count++;
      min = fmin(min, other->value), max = fmax(max, other->value);
    }
    printf("  %-8s %9.1f requests in ten seconds, from %.1f to %.1f\n", name_of(figure, row, false, "", name), sum / count, min, max);
  }
}

/* Of the rates of a figure that has all, the one asked for and a fast one are printed. */
static bool is_printed(const LatencyPlan *plan, LatencyFigure figure, const LatencyRow *row) {
  return !by_rate(figure) || row->mbit == plan->mbit || row->mbit == FAST_MBIT;
}

/* The figure's table; of a trace its means. Below it what is to be said about the paper's numbers, and about links that lose packets. */
static void print_figure(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows) {
  const Look *look = &looks[figure];
  printf("\n%s: %s", figure_names[figure], look->title);
  printf(" (%s)\n", network_options_topology(plan->bench->links.topology));
  for (int calibrated = 1; calibrated >= 0; calibrated--) {
    if (calibrated && figure == LATENCY_FIGURE_llama)
      printf("  calibrated: one device takes %d ms\n", LLAMA_MILLISECONDS);
    else if (calibrated)
      printf("  calibrated: computation x %.4g\n", plan->calibrated);
    else
      printf("  as measured\n");
    if (figure == LATENCY_FIGURE_trace) {
      print_trace(rows, calibrated);
      continue;
    }
    printf("  %-19s %8s %5s %5s %13s %10s %10s %8s %10s %10s %9s %8s\n", "", look->x_label, "nodes", "parts", "latency", "computing",
           "waiting", "hidden", "sending", "kB sent", "value", "paper");
    for (int i = 0; i < rows->count; i++) {
      const LatencyRow *row = &rows->list[i];
      char name[NAME_ROOM], hidden[16] = "-", paper[16] = "-";
      if (row->calibrated != calibrated || !is_printed(plan, figure, row)) continue;
      if (isfinite(row->hidden)) snprintf(hidden, sizeof hidden, "%.0f%%", 100 * row->hidden);
      if (row->paper > 0) snprintf(paper, sizeof paper, "%.2f", row->paper);
      printf("  %-19s %8g %5d %5d %10.2f ms %10.2f %10.2f %8s %10.2f %10.1f %9.2f %8s%s\n", name_of(figure, row, true, "", name),
             look->x(row), row->of.devices, row->of.parts, 1e3 * row->latency, 1e3 * row->compute, 1e3 * row->wait, hidden,
             1e3 * row->sending, row->kilobytes, row->value, paper, row->share < whole_core ? "  shared core" : "");
    }
  }
  bool streams = false;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    if (row->note && *row->note) printf("  %s, %g Mbit/s: %s\n", strategy_facts(row->of.strategy)->name, row->mbit, row->note);
    streams = streams || (row->of.devices > 1 && !strategy_facts(row->of.strategy)->sends_codes);
  }
  if (streams && plan->bench->links.loss > 0)
    printf("  loss not modelled: tp, sp, bp-ag and bp-sp go over streams, which loss would delay\n");
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
                        .table_memory = TABLE_MEMORY_DEFAULT,
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
  if (status == STATUS_OK && command->out) status = save_figure(plan, figure, &rows, command->out);
  if (status == STATUS_OK && !command->json) print_figure(plan, figure, &rows);
  for (int i = 0; status == STATUS_OK && figure != LATENCY_FIGURE_trace && i < rows.count; i++) {
    const LatencyRow *row = &rows.list[i];
    char note[NOTE];
    json_array_append_new(
        list,
        json_pack("{s:s, s:b, s:s, s:i, s:i, s:i, s:I, s:i, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:s, s:i, s:f, s:f}", "figure",
                  figure_names[figure], "calibrated", row->calibrated, "strategy", strategy_facts(row->of.strategy)->name, "groups",
                  row->of.groups, "codewords", row->of.entries, "nodes", row->of.devices, "tokens", (json_int_t)row->of.tokens, "parts",
                  row->of.parts, "mbit", row->mbit, "latency_ms", 1e3 * row->latency, "compute_ms", 1e3 * row->compute, "wait_ms",
                  1e3 * row->wait, "hidden", json_build_number(row->hidden), "value", row->value, "paper", row->paper, "single_ms",
                  1e3 * row->single, "core_share", row->share, "note", note_of(plan, row, note), "retained", row->of.retained, "sending_ms",
                  1e3 * row->sending, "paper_sending", row->paper_sending));
  }
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
        used += (size_t)snprintf(figures + used, sizeof figures - used, "%s%s", used > 0 ? ", " : "", figure_names[figure]);
    return status_set(STATUS_BAD_USAGE, "--%s changes nothing in --figure %s; it is for %s", list[i].name, figure_names[command->figure],
                      figures);
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
