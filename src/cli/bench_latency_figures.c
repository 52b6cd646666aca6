/* Which cases a figure shows. Everything is simulated twice: with computation as measured here, and calibrated. */
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
  PAPER_TOKENS = 1024
};
static const double rates[RATES] = {10, 20, 50, 100, 200, 500};
static const int groups[GROUPS] = {1, 16, 32};
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

/* Parts that are tried: what a node would choose from by itself. Others than codes travel whole. */
static int part_choices(const LatencyPlan *plan, const LatencyCase *of, int choices[4]) {
  int count = 0;
  if (plan->parts > 0 || of->strategy != STRATEGY_ASTRA) choices[count++] = of->strategy == STRATEGY_ASTRA ? plan->parts : 1;
  for (int parts = 1; count < 4 && plan->parts == 0 && of->strategy == STRATEGY_ASTRA && parts <= 8; parts *= plan->quick ? 4 : 2)
    choices[count++] = parts;
  return count;
}

/* row->of, row->calibrated and row->mbit say which one; its parts are chosen here. */
static Status simulate(const LatencyPlan *plan, const LatencyLink *link, LatencyRow *row) {
  int choices[4], count = part_choices(plan, &row->of, choices);
  LatencyRow best = {.latency = INFINITY};
  for (int i = 0; i < count; i++) {
    SimResult result;
    row->of.parts = choices[i];
    TRY(bench_latency_cases_run(plan->bench, &row->of, link, scale_of(plan, row->calibrated), &result));
    fill(row, &result);
    if (row->latency < best.latency) best = *row;
  }
  *row = best;
  return STATUS_OK;
}

static Status at_rate(const LatencyPlan *plan, LatencyRow *row) {
  return simulate(plan, &(LatencyLink){.bits_per_second = 1e6 * row->mbit}, row);
}

/* Against the single device with as many tokens. */
static Status add_speedup(const LatencyPlan *plan, LatencyCase of, double mbit, LatencyRows *rows) {
  for (int form = FORMS - 1; form >= 0; form--) {
    LatencyRow row = {.of = of, .calibrated = form == 1, .mbit = mbit};
    double single;
    TRY(bench_latency_cases_single(plan->bench, of.tokens, &single));
    TRY(at_rate(plan, &row));
    row.value = single * scale_of(plan, row.calibrated) / row.latency;
    if (plan->paper && row.calibrated) row.paper = bench_latency_paper_speedup(of.strategy, of.groups, of.devices, of.tokens, mbit);
    TRY(add(rows, &row));
  }
  return STATUS_OK;
}

static LatencyCase astra(const LatencyPlan *plan, int group_count) {
  return (LatencyCase){.strategy = STRATEGY_ASTRA, .groups = group_count, .devices = plan->devices, .tokens = plan->tokens};
}

static LatencyCase other(const LatencyPlan *plan, Strategy strategy) {
  return (LatencyCase){.strategy = strategy, .devices = plan->devices, .tokens = plan->tokens};
}

/* ---- speedup against bandwidth, devices, tokens */

static Status run_bandwidth(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < RATES; r++) TRY(add_speedup(plan, astra(plan, groups[g]), rates[r], rows));
  for (int s = 0; s < OTHERS; s++)
    for (int r = 0; r < RATES; r++) TRY(add_speedup(plan, other(plan, others[s]), rates[r], rows));
  return STATUS_OK;
}

static Status run_devices(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < (plan->quick ? ONE_GROUP : GROUPS); g++)
    for (int devices = 2; devices <= 8; devices *= plan->quick ? 2 : 1, devices += !plan->quick) {
      LatencyCase of = astra(plan, groups[g]);
      of.devices = devices;
      TRY(add_speedup(plan, of, plan->mbit, rows));
    }
  return STATUS_OK;
}

static Status run_tokens(const LatencyPlan *plan, LatencyRows *rows) {
  for (int64_t tokens = plan->tokens / 4; tokens <= (plan->quick ? 1 : 4) * plan->tokens; tokens *= 2) {
    for (int g = 0; g < (plan->quick ? ONE_GROUP : GROUPS); g++) {
      LatencyCase of = astra(plan, groups[g]);
      of.tokens = tokens;
      TRY(add_speedup(plan, of, plan->mbit, rows));
    }
    LatencyCase bp = other(plan, STRATEGY_BP_AG);
    bp.tokens = tokens;
    TRY(add_speedup(plan, bp, plan->mbit, rows));
  }
  return STATUS_OK;
}

/* ---- where the time goes: milliseconds */

static Status run_breakdown(const LatencyPlan *plan, LatencyRows *rows) {
  for (int g = 0; g < GROUPS; g++)
    for (int r = 0; r < RATES; r++)
      for (int form = FORMS - 1; form >= 0; form--) {
        LatencyRow row = {.of = astra(plan, groups[g]), .calibrated = form == 1, .mbit = rates[r]};
        TRY(at_rate(plan, &row));
        row.value = 1e3 * row.latency;
        if (plan->paper && row.calibrated && plan->devices == PAPER_DEVICES && plan->tokens == PAPER_TOKENS)
          row.paper = bench_latency_paper_milliseconds(groups[g], rates[r]);
        TRY(add(rows, &row));
      }
  return STATUS_OK;
}

/* ---- how many times as fast as another strategy */

static Status run_baselines(const LatencyPlan *plan, LatencyRows *rows) {
  for (int s = 0; s < OTHERS; s++)
    for (int r = 0; r < RATES; r++)
      for (int form = FORMS - 1; form >= 0; form--) {
        LatencyRow ours = {.of = astra(plan, ONE_GROUP), .calibrated = form == 1, .mbit = rates[r]};
        LatencyRow row = {.of = other(plan, others[s]), .calibrated = form == 1, .mbit = rates[r]};
        TRY(at_rate(plan, &ours));
        TRY(at_rate(plan, &row));
        row.value = row.latency / ours.latency;
        if (plan->paper && row.calibrated) row.paper = bench_latency_paper_over(others[s], rates[r]);
        TRY(add(rows, &row));
      }
  return STATUS_OK;
}

/* ---- a rate that changes: requests one after another, 20 to 100 Mbit/s as link_trace.h draws it */

/* Seconds of a request that begins then. Within one step of the trace it is that of the step's rate, simulated once. */
static Status request_at(const LatencyPlan *plan, const LinkTrace *trace, double start, double known[TRACE_STATES], LatencyRow *row) {
  double rate = link_trace_rate(trace, start);
  int state = (int)lround(rate / 1e7) - 2;
  if (known[state] == 0) {
    TRY(simulate(plan, &(LatencyLink){.bits_per_second = rate}, row));
    known[state] = row->latency;
  }
  row->latency = known[state];
  if (floor(start + row->latency) == floor(start)) return STATUS_OK;
  return simulate(plan, &(LatencyLink){.trace = trace, .start = start}, row);
}

/* Requests that end in each ten seconds, parts of one counted as such. */
static Status run_requests(const LatencyPlan *plan, const LinkTrace *trace, LatencyCase of, bool calibrated, LatencyRows *rows) {
  double done[TRACE_SECONDS / TRACE_WINDOW] = {0}, known[TRACE_STATES] = {0};
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
    if (status == STATUS_OK) status = run_requests(plan, &trace, other(plan, STRATEGY_BP_AG), form == 1, rows);
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
