/* A figure's rows as CSV, chart, table and JSON. */
#include "base/files.h"
#include "base/text.h"
#include "cli/bench_latency_internal.h"
#include "cli/network_options.h"
#include "nn/json_build.h"
#include "nn/strategy.h"
#include "train/plot.h"
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_FIGURE_NAME(name) #name,
const char *const bench_latency_figures[LATENCY_FIGURE_COUNT] = {LATENCY_FIGURES(LATENCY_FIGURE_NAME)};
#undef LATENCY_FIGURE_NAME

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
        bench_latency_figures[figure], row->calibrated ? "calibrated" : "measured", network_options_topology(plan->bench->links.topology),
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
      snprintf(panel[p], sizeof *panel, "Computation calibrated (one device: %d ms)", LATENCY_LLAMA_MILLISECONDS);
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
             LATENCY_PAPER_DEVICES, LATENCY_LLAMA_TOKENS);
  else
    snprintf(title, sizeof title, "%s; %s, %d device%s, %lld token%s unless they vary", look->title,
             network_options_topology(plan->bench->links.topology), plan->devices, text_plural(plan->devices), (long long)plan->tokens,
             text_plural(plan->tokens));
  if (status == STATUS_OK) status = plot_save(path, title, panels, (size_t)count, PANEL_WIDTH, PANEL_HEIGHT);
  if (lines) free(lines->numbers);
  free(lines);
  return status;
}

Status bench_latency_output_save(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/latency-%s.csv", directory, bench_latency_figures[figure]) >= (int)sizeof path)
    return status_set(STATUS_BAD_VALUE, "%s: the path is too long", directory);
  TRY(save_csv(plan, figure, rows, path));
  snprintf(path, sizeof path, "%s/latency-%s.png", directory, bench_latency_figures[figure]);
  TRY(save_chart(plan, figure, rows, figure, path));
  if (!by_rate(figure)) return STATUS_OK;
  if (snprintf(path, sizeof path, "%s/latency-%s-bandwidth.png", directory, bench_latency_figures[figure]) >= (int)sizeof path)
    return status_set(STATUS_BAD_VALUE, "%s: the path is too long", directory);
  return save_chart(plan, figure, rows, LATENCY_FIGURE_bandwidth, path);
}

/* ---- JSON */

void bench_latency_output_rows(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, json_t *list) {
  if (figure == LATENCY_FIGURE_trace) return;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    char note[NOTE];
    json_array_append_new(
        list,
        json_pack("{s:s, s:b, s:s, s:i, s:i, s:i, s:I, s:i, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:s, s:i, s:f, s:f}", "figure",
                  bench_latency_figures[figure], "calibrated", row->calibrated, "strategy", strategy_facts(row->of.strategy)->name,
                  "groups", row->of.groups, "codewords", row->of.entries, "nodes", row->of.devices, "tokens", (json_int_t)row->of.tokens,
                  "parts", row->of.parts, "mbit", row->mbit, "latency_ms", 1e3 * row->latency, "compute_ms", 1e3 * row->compute, "wait_ms",
                  1e3 * row->wait, "hidden", json_build_number(row->hidden), "value", row->value, "paper", row->paper, "single_ms",
                  1e3 * row->single, "core_share", row->share, "note", note_of(plan, row, note), "retained", row->of.retained, "sending_ms",
                  1e3 * row->sending, "paper_sending", row->paper_sending));
  }
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
  return !by_rate(figure) || row->mbit == plan->mbit || row->mbit == LATENCY_FAST_MBIT;
}

void bench_latency_output_print(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows) {
  const Look *look = &looks[figure];
  printf("\n%s: %s", bench_latency_figures[figure], look->title);
  printf(" (%s)\n", network_options_topology(plan->bench->links.topology));
  for (int calibrated = 1; calibrated >= 0; calibrated--) {
    if (calibrated && figure == LATENCY_FIGURE_llama)
      printf("  calibrated: one device takes %d ms\n", LATENCY_LLAMA_MILLISECONDS);
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
