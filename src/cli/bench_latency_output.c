/* Figures as files: a CSV with every simulated case, and a chart of it. */
#include "cli/bench_latency_output.h"
#include "base/files.h"
#include "cli/network_options.h"
#include "train/plot.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 48, SERIES_MOST = 48, SLOWEST_DRAWN = 100 /* Mbit/s */, PANEL_WIDTH = 640, PANEL_HEIGHT = 460 };

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
    [LATENCY_FIGURE_trace] = {"Requests in ten seconds, 20-100 Mbit/s", "seconds", "requests", false, false, x_second},
};

static bool at_one_rate(LatencyFigure figure) { return figure == LATENCY_FIGURE_devices; }
static bool in_bars(LatencyFigure figure) { return figure == LATENCY_FIGURE_breakdown || figure == LATENCY_FIGURE_codebook; }

/* ---- CSV */

static const double whole_core = 0.9;

static const char *about_strategy(Strategy strategy) {
  switch (strategy) {
  case STRATEGY_TP:
    return "sums move 4 U a block where the paper counts 2 U";
  case STRATEGY_BP_AG:
  case STRATEGY_BP_SP:
    return "latency only: its accuracy would need its own training";
  default:
    return "";
  }
}

const char *bench_latency_output_note(const LatencyPlan *plan, const LatencyRow *row, char text[BENCH_LATENCY_NOTE]) {
  bool stream = row->of.devices > 1 && !strategy_facts(row->of.strategy)->sends_codes;
  const char *notes[] = {about_strategy(row->of.strategy), stream && plan->bench->links.loss > 0 ? "loss not modelled" : "",
                         row->share < whole_core ? "shared core" : "", row->note ? row->note : ""};
  size_t used = 0;
  text[0] = 0;
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
    if (*notes[i]) used += (size_t)snprintf(text + used, BENCH_LATENCY_NOTE - used, "%s%s", used ? "; " : "", notes[i]);
  return text;
}

static int print_row(char *text, size_t room, const LatencyPlan *plan, LatencyFigure figure, const LatencyRow *row) {
  const LatencyCase *of = &row->of;
  char paper[24] = "", note[BENCH_LATENCY_NOTE];
  if (row->paper > 0) snprintf(paper, sizeof paper, "%.4g", row->paper);
  return snprintf(text, room, "%s,%s,%s,%s,%d,%d,%d,%lld,%d,%g,%g,%.4f,%.4f,%.4f,%.4f,%.3f,%.4f,%s,%.4f,%.3f,%s\n",
                  bench_latency_figures_name(figure), row->calibrated ? "calibrated" : "measured",
                  network_options_topology(plan->bench->links.topology), strategy_facts(of->strategy)->name, of->groups, of->entries,
                  of->devices, (long long)of->tokens, of->parts, row->mbit, row->second, 1e3 * row->latency, 1e3 * row->compute,
                  1e3 * row->wait, row->hidden, row->kilobytes, row->value, paper, 1e3 * row->single, row->share,
                  bench_latency_output_note(plan, row, note));
}

static const char CSV_HEAD[] =
    "figure,form,link_model,strategy,groups,codewords,nodes,tokens,parts,mbit,second,latency_ms,compute_ms,wait_ms,"
    "hidden,kilobytes_sent,value,paper,single_ms,core_share,note\n";

static Status save_csv(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *path) {
  enum { LINE = 320 + BENCH_LATENCY_NOTE };
  char *text = malloc(sizeof CSV_HEAD + (size_t)rows->count * LINE);
  if (!text) return status_set(STATUS_NO_MEMORY, "%s: no memory for %d rows", path, rows->count);
  size_t used = sizeof CSV_HEAD - 1;
  memcpy(text, CSV_HEAD, sizeof CSV_HEAD);
  for (int i = 0; i < rows->count; i++) used += (size_t)print_row(text + used, LINE, plan, figure, &rows->list[i]);
  Status status = files_write(path, text, used);
  free(text);
  return status;
}

/* ---- chart */

typedef struct Lines {
  char name[SERIES_MOST][NAME_ROOM];
  PlotSeries series[SERIES_MOST];
  double *numbers; /* x and y of all series */
  size_t used, count;
} Lines;

static const char *name_of(LatencyFigure figure, const LatencyRow *row, const char *suffix, char name[NAME_ROOM]) {
  char way[20], rate[24] = "";
  if (row->of.groups)
    snprintf(way, sizeof way, "G = %d", row->of.groups);
  else
    snprintf(way, sizeof way, "%s", strategy_facts(row->of.strategy)->name);
  if (figure == LATENCY_FIGURE_tokens) snprintf(rate, sizeof rate, ", %g Mbit/s", row->mbit);
  snprintf(name, NAME_ROOM, "%s%s%s", way, rate, suffix);
  return name;
}

/* Points of one line. */
static bool together(LatencyFigure figure, const LatencyRow *a, const LatencyRow *b) {
  if (a->of.strategy != b->of.strategy || a->of.groups != b->of.groups || a->calibrated != b->calibrated) return false;
  return figure != LATENCY_FIGURE_tokens || a->mbit == b->mbit;
}

/* Bars of blocks in parallel on slow links would leave nothing to see of the others: they stand in the CSV alone. */
static bool is_drawn(LatencyFigure figure, const LatencyRow *row) {
  return figure != LATENCY_FIGURE_breakdown || row->of.groups || row->mbit >= SLOWEST_DRAWN;
}

static double y_value(const LatencyRow *row) { return row->value; }
static double y_paper(const LatencyRow *row) { return row->paper > 0 ? row->paper : NAN; }
static double y_compute(const LatencyRow *row) { return 1e3 * row->compute; }

static bool marks_before(const Lines *lines) {
  bool any = false;
  for (size_t s = 0; s < lines->count; s++) any = any || lines->series[s].style == PLOT_MARK;
  return any;
}

/* The rows that are like rows->list[first], as one series, which is drawn as `how` says. */
static void add_line(Lines *lines, const LatencyRows *rows, int first, LatencyFigure figure, double (*y)(const LatencyRow *),
                     const char *suffix, PlotSeries how) {
  const LatencyRow *of = &rows->list[first];
  size_t begun = lines->used, count = 0;
  double *x = lines->numbers + begun, *values = x + rows->count;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    if (!together(figure, row, of) || !is_drawn(figure, row) || !isfinite(y(row))) continue;
    x[count] = looks[figure].x(row);
    values[count++] = y(row);
  }
  if (count == 0 || lines->count == SERIES_MOST) return;
  how.name = name_of(figure, of, suffix, lines->name[lines->count]);
  if (how.style == PLOT_MARK) how.name = marks_before(lines) ? NULL : "paper"; /* all look alike */
  how.x = x, how.y = values, how.count = count;
  lines->series[lines->count] = how;
  lines->used += 2 * (size_t)rows->count;
  lines->count++;
}

static bool first_of_its_kind(LatencyFigure figure, const LatencyRows *rows, int at) {
  for (int i = 0; i < at; i++)
    if (together(figure, &rows->list[i], &rows->list[at])) return false;
  return true;
}

static void add_panel(Lines *lines, const LatencyRows *rows, LatencyFigure figure, bool calibrated) {
  bool bars = in_bars(figure), points = figure != LATENCY_FIGURE_trace;
  for (int i = 0; i < rows->count; i++) {
    if (rows->list[i].calibrated != calibrated || !first_of_its_kind(figure, rows, i)) continue;
    if (bars) add_line(lines, rows, i, figure, y_compute, ", computing", (PlotSeries){.style = PLOT_BAR});
    add_line(lines, rows, i, figure, y_value, bars ? ", waiting" : "",
             (PlotSeries){.points = points, .style = bars ? PLOT_ON_BAR : PLOT_LINE});
    add_line(lines, rows, i, figure, y_paper, ", paper",
             (PlotSeries){.points = points, .style = bars ? PLOT_MARK : PLOT_DASHED, .like_last = true});
  }
}

static Status save_chart(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *path) {
  const Look *look = &looks[figure];
  Lines lines = {.numbers = malloc(sizeof(double) * 2 * SERIES_MOST * (size_t)(rows->count + 1))};
  char title[192], measured[80], calibrated[80], rate[32] = "";
  if (!lines.numbers) return status_set(STATUS_NO_MEMORY, "%s: no memory for the chart", path);
  add_panel(&lines, rows, figure, true);
  size_t first = lines.count;
  add_panel(&lines, rows, figure, false);
  if (at_one_rate(figure)) snprintf(rate, sizeof rate, "%g Mbit/s, ", plan->mbit);
  snprintf(title, sizeof title, "%s; %s, %s%d devices, %lld tokens unless they vary", look->title,
           network_options_topology(plan->bench->links.topology), rate, plan->devices, (long long)plan->tokens);
  snprintf(calibrated, sizeof calibrated, "Computation calibrated (x %.4g)", plan->calibrated);
  snprintf(measured, sizeof measured, "Computation as measured");
  const PlotPanel panels[] = {
      {calibrated, look->x_label, look->y_label, lines.series, first, look->log_x, look->log_y, true},
      {measured, look->x_label, look->y_label, lines.series + first, lines.count - first, look->log_x, look->log_y, true}};
  Status status = plot_save(path, title, panels, 2, PANEL_WIDTH, PANEL_HEIGHT);
  free(lines.numbers);
  return status;
}

Status bench_latency_output_save(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory) {
  char path[4096];
  const char *name = bench_latency_figures_name(figure);
  if (snprintf(path, sizeof path, "%s/latency-%s.csv", directory, name) >= (int)sizeof path)
    return status_set(STATUS_BAD_VALUE, "%s: the path is too long", directory);
  TRY(save_csv(plan, figure, rows, path));
  snprintf(path, sizeof path, "%s/latency-%s.png", directory, name);
  return save_chart(plan, figure, rows, path);
}

/* ---- text */

static void print_line(LatencyFigure figure, const LatencyRow *row, double x) {
  char name[NAME_ROOM], paper[16] = "-";
  if (row->paper > 0) snprintf(paper, sizeof paper, "%.2f", row->paper);
  printf("  %-17s %8g %5d %5d %10.2f ms %10.2f %10.2f %7.0f%% %10.1f %9.2f %8s%s\n", name_of(figure, row, "", name), x, row->of.devices,
         row->of.parts, 1e3 * row->latency, 1e3 * row->compute, 1e3 * row->wait, 100 * row->hidden, row->kilobytes, row->value, paper,
         row->share < whole_core ? "  shared core" : "");
}

static void print_trace(const LatencyRows *rows, bool calibrated) {
  const LatencyFigure figure = LATENCY_FIGURE_trace;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    char name[NAME_ROOM];
    double sum = 0, least = INFINITY, most = 0;
    int count = 0;
    if (row->calibrated != calibrated || !first_of_its_kind(figure, rows, i)) continue;
    for (int j = i; j < rows->count; j++) {
      const LatencyRow *other = &rows->list[j];
      if (!together(figure, other, row)) continue;
      sum += other->value, count++;
      least = fmin(least, other->value), most = fmax(most, other->value);
    }
    printf("  %-8s %9.1f requests in ten seconds, from %.1f to %.1f\n", name_of(figure, row, "", name), sum / count, least, most);
  }
}

/* What is to be said about the paper's numbers, and about links that lose packets. */
static void print_notes(const LatencyPlan *plan, const LatencyRows *rows) {
  bool streams = false;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    if (row->note && *row->note) printf("  %s, %g Mbit/s: %s\n", strategy_facts(row->of.strategy)->name, row->mbit, row->note);
    streams = streams || (row->of.devices > 1 && !strategy_facts(row->of.strategy)->sends_codes);
  }
  if (streams && plan->bench->links.loss > 0)
    printf("  loss not modelled: tp, sp, bp-ag and bp-sp go over streams, which loss would delay\n");
}

void bench_latency_output_print(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows) {
  const Look *look = &looks[figure];
  printf("\n%s: %s", bench_latency_figures_name(figure), look->title);
  if (at_one_rate(figure)) printf(", %g Mbit/s", plan->mbit);
  printf(" (%s)\n", network_options_topology(plan->bench->links.topology));
  for (int calibrated = 1; calibrated >= 0; calibrated--) {
    if (calibrated)
      printf("  calibrated: computation x %.4g\n", plan->calibrated);
    else
      printf("  as measured\n");
    if (figure == LATENCY_FIGURE_trace) {
      print_trace(rows, calibrated);
      continue;
    }
    printf("  %-17s %8s %5s %5s %13s %10s %10s %8s %10s %9s %8s\n", "", look->x_label, "nodes", "parts", "latency", "computing", "waiting",
           "hidden", "kB sent", "value", "paper");
    for (int i = 0; i < rows->count; i++)
      if (rows->list[i].calibrated == calibrated) print_line(figure, &rows->list[i], look->x(&rows->list[i]));
  }
  print_notes(plan, rows);
}
