/* Which cases a figure shows. Parts are chosen as a node would choose them, by prediction, not for having been the fastest of several
 * measurements. Everything is simulated twice: with computation as measured here, and calibrated. */
#include "cli/bench_latency_figures.h"
#include "cli/bench_latency_paper.h"
#include <math.h>
#include <stdlib.h>

enum {
  FORMS = 2,
  RATES = 6,
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
  FAST_MBIT = 200
};
static const double rates[RATES] = {10, 20, 50, 100, 200, 500};
static const int groups[GROUPS] = {1, 16, 32}, entries[ENTRIES] = {256, 512, 1024, 2048};
static const Strategy others[] = {STRATEGY_TP, STRATEGY_SP, STRATEGY_BP_AG, STRATEGY_BP_SP};
enum { OTHERS = sizeof others / sizeof *others };

const char *bench_latency_figures_name(LatencyFigure figure) {
#define LATENCY_FIGURE_NAME(name) #name,
  static const char *const names[] = {LATENCY_FIGURES(LATENCY_FIGURE_NAME)};
#undef LATENCY_FIGURE_NAME
  return names[figure];
}

void bench_latency_figures_release(LatencyRows *rows) {
  free(rows->list);
  *rows = (LatencyRows){0};
}

static Status add(LatencyRows *rows, const LatencyRow *row) {
  if (rows->count == rows->capacity) {
    int capacity = rows->capacity ? 2 * rows->capacity : 64;
    LatencyRow *list = realloc(rows->list, (size_t)capacity * sizeof *list);
    if (!list) return status_set(STATUS_NO_MEMORY, "no memory for %d rows of a figure", capacity);
    rows->list = list;
    rows->capacity = capacity;
  }
  rows->list[rows->count++] = *row;
  return STATUS_OK;
}

/* ---- a case at a speed on a network */

static double scale_of(const LatencyPlan *plan, bool calibrated) { return calibrated ? plan->calibrated : 1; }

static void fill(LatencyRow *row, const SimResult *result) {
  int last = 0;
  for (int d = 1; d < row->of.devices; d++) last = result->device[d].end > result->device[last].end ? d : last;
  row->latency = result->latency;
  row->compute = result->device[last].compute;
  row->wait = result->device[last].wait;
  row->hidden = net_sim_hidden(&result->device[last]);
  row->kilobytes = (double)result->device[last].bytes_sent / 1e3;
}

/* row->of, row->calibrated and row->mbit say which one; its parts are chosen here, but for a trace, of which they are known. */
static Status simulate(const LatencyPlan *plan, const LatencyLink *link, LatencyRow *row) {
  SimResult result;
  double scale = scale_of(plan, row->calibrated), single;
  TRY(bench_latency_cases_single(plan->bench, row->of.tokens, &single));
  if (plan->parts > 0)
    row->of.parts = row->of.strategy == STRATEGY_ASTRA ? plan->parts : 1;
  else if (!link->trace)
    TRY(bench_latency_cases_parts(plan->bench, &row->of, link, scale, &row->of.parts));
  TRY(bench_latency_cases_run(plan->bench, &row->of, link, scale, &result));
  fill(row, &result);
  row->single = scale * single;
  row->share = fmin(bench_latency_cases_share(plan->bench, &row->of), plan->bench->single.share);
  return STATUS_OK;
}

static Status at_rate(const LatencyPlan *plan, LatencyRow *row) {
  return simulate(plan, &(LatencyLink){.bits_per_second = 1e6 * row->mbit}, row);
}

/* Against the single device with as many tokens. Nothing where there cannot be such a case. */
static Status add_speedup(const LatencyPlan *plan, LatencyCase of, double mbit, LatencyRows *rows) {
  if (!bench_latency_cases_possible(plan->bench, &of)) return STATUS_OK;
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit};
    TRY(at_rate(plan, &row));
    row.value = row.single / row.latency;
    if (plan->paper && row.calibrated) {
      row.paper = bench_latency_paper_speedup(of.strategy, of.groups, of.devices, of.tokens, mbit);
      row.note = bench_latency_paper_note(of.strategy, of.groups, of.devices, of.tokens, mbit);
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

static LatencyCase other(const LatencyPlan *plan, Strategy strategy) {
  return (LatencyCase){.strategy = strategy, .devices = plan->devices, .parts = 1, .tokens = plan->tokens};
}

/* ---- speedup against bandwidth, devices, tokens */

static Status run_bandwidth(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < RATES; r++) TRY(add_speedup(plan, astra(plan, groups[g]), rates[r], rows));
  for (int s = 0; s < OTHERS; s++)
    for (int r = 0; r < RATES; r++) TRY(add_speedup(plan, other(plan, others[s]), rates[r], rows));
  return STATUS_OK;
}

/* Other strategies on even numbers of devices alone: they take as long to measure. */
static Status run_devices(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < (plan->quick ? ONE_GROUP : GROUPS + OTHERS); s++)
    for (int devices = 2; devices <= 8; devices *= plan->quick ? 2 : 1, devices += !plan->quick) {
      LatencyCase of = s < GROUPS ? astra(plan, groups[s]) : other(plan, others[s - GROUPS]);
      of.devices = devices;
      if (s < GROUPS || devices % 2 == 0) TRY(add_speedup(plan, of, plan->mbit, rows));
    }
  return STATUS_OK;
}

/* One case at the rate asked for and at a fast one. */
static Status add_at_both(const LatencyPlan *plan, LatencyCase of, LatencyRows *rows) {
  TRY(add_speedup(plan, of, plan->mbit, rows));
  return plan->mbit == FAST_MBIT ? STATUS_OK : add_speedup(plan, of, FAST_MBIT, rows);
}

static Status run_tokens(const LatencyPlan *plan, LatencyRows *rows) {
  const int sets = plan->quick ? ONE_GROUP : GROUPS;
  for (int g = 0; g <= sets; g++)
    for (int64_t tokens = plan->tokens / 4; tokens <= (plan->quick ? 1 : 4) * plan->tokens; tokens *= 2) {
      LatencyCase of = g < sets ? astra(plan, groups[g]) : other(plan, STRATEGY_BP_AG);
      of.tokens = tokens;
      TRY(add_at_both(plan, of, rows));
    }
  return STATUS_OK;
}

/* ---- where the time goes: milliseconds */

static Status add_milliseconds(const LatencyPlan *plan, LatencyCase of, double mbit, LatencyRows *rows) {
  if (!bench_latency_cases_possible(plan->bench, &of)) return STATUS_OK;
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit};
    TRY(at_rate(plan, &row));
    row.value = 1e3 * row.latency;
    if (plan->paper && row.calibrated && of.devices == PAPER_DEVICES && of.tokens == PAPER_TOKENS && of.strategy == STRATEGY_ASTRA)
      row.paper = bench_latency_paper_milliseconds(of.groups, of.entries, mbit);
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static Status run_breakdown(const LatencyPlan *plan, LatencyRows *rows) {
  static const Strategy by_blocks[] = {STRATEGY_BP_AG, STRATEGY_BP_SP};
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < RATES; r++) TRY(add_milliseconds(plan, astra(plan, groups[g]), rates[r], rows));
  for (size_t s = 0; s < sizeof by_blocks / sizeof *by_blocks; s++)
    for (int r = 0; r < RATES; r++) TRY(add_milliseconds(plan, other(plan, by_blocks[s]), rates[r], rows));
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

static Status add_over(const LatencyPlan *plan, Strategy strategy, double mbit, LatencyRows *rows) {
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow ours = {.of = astra(plan, ONE_GROUP), .calibrated = form == 1, .mbit = mbit};
    LatencyRow row = {.of = other(plan, strategy), .calibrated = form == 1, .mbit = mbit};
    TRY(at_rate(plan, &ours));
    TRY(at_rate(plan, &row));
    row.value = row.latency / ours.latency;
    row.share = fmin(row.share, ours.share);
    if (plan->paper && row.calibrated && plan->devices == PAPER_DEVICES) row.paper = bench_latency_paper_over(strategy, mbit);
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static Status run_baselines(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < OTHERS; s++) {
    const LatencyCase of = other(plan, others[s]);
    for (int r = 0; r < RATES && bench_latency_cases_possible(plan->bench, &of); r++) TRY(add_over(plan, others[s], rates[r], rows));
  }
  return STATUS_OK;
}

/* ---- a rate that changes: requests one after another, 20 to 100 Mbit/s as link_trace.h draws it */

/* Seconds of a request that begins then. Within one step of the trace it is that of the step's rate, simulated once. */
static Status request_at(const LatencyPlan *plan, const LinkTrace *trace, double start, LatencyRow known[TRACE_STATES], LatencyRow *row) {
  double rate = link_trace_rate(trace, start);
  int state = (int)lround(rate / 1e7) - 2;
  if (known[state].latency == 0) {
    TRY(simulate(plan, &(LatencyLink){.bits_per_second = rate}, row));
    known[state] = *row;
  }
  *row = known[state];
  if (floor(start + row->latency) == floor(start)) return STATUS_OK;
  return simulate(plan, &(LatencyLink){.trace = trace, .start = start}, row);
}

/* Requests that end in each ten seconds, parts of one counted as such. */
static Status run_requests(const LatencyPlan *plan, const LinkTrace *trace, LatencyCase of, bool calibrated, LatencyRows *rows) {
  double done[TRACE_SECONDS / TRACE_WINDOW] = {0};
  LatencyRow known[TRACE_STATES] = {0};
  LatencyRow row = {.of = of, .calibrated = calibrated};
  for (double at = 0; at < TRACE_SECONDS; at += row.latency) {
    TRY(request_at(plan, trace, at, known, &row));
    for (int w = (int)(at / TRACE_WINDOW); w < TRACE_SECONDS / TRACE_WINDOW && w * TRACE_WINDOW < at + row.latency; w++)
      done[w] += (fmin(at + row.latency, (w + 1) * TRACE_WINDOW) - fmax(at, w * TRACE_WINDOW)) / row.latency;
  }
  for (int w = 0; w < TRACE_SECONDS / TRACE_WINDOW; w++) {
    row.second = (w + 1) * TRACE_WINDOW;
    row.value = done[w];
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static Status run_trace(const LatencyPlan *plan, LatencyRows *rows) {
  LinkTrace trace = {0};
  Status status = link_trace_draw(&trace, 20e6, 100e6, TRACE_SECONDS, plan->seed);
  for (int form = FORMS - 1; form >= 0 && status == STATUS_OK; form--) {
    for (int g = 0; g < GROUPS && status == STATUS_OK; g++) status = run_requests(plan, &trace, astra(plan, groups[g]), form == 1, rows);
    LatencyCase one = {.strategy = STRATEGY_SINGLE, .devices = 1, .parts = 1, .tokens = plan->tokens};
    if (status == STATUS_OK) status = run_requests(plan, &trace, one, form == 1, rows);
    const LatencyCase bp = other(plan, STRATEGY_BP_AG);
    if (status == STATUS_OK && bench_latency_cases_possible(plan->bench, &bp)) status = run_requests(plan, &trace, bp, form == 1, rows);
  }
  link_trace_release(&trace);
  return status;
}

Status bench_latency_figures_run(const LatencyPlan *plan, LatencyFigure figure, LatencyRows *rows) {
#define LATENCY_FIGURE_RUN(name) run_##name,
  static Status (*const runs[])(const LatencyPlan *, LatencyRows *) = {LATENCY_FIGURES(LATENCY_FIGURE_RUN)};
#undef LATENCY_FIGURE_RUN
  return runs[figure](plan, rows);
}
