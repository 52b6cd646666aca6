/* Figures as files: a CSV with every simulated case, and a chart of it. */
#include "cli/bench_latency_output.h"
#include "base/files.h"
#include "cli/network_options.h"
#include "train/plot.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 40, SERIES_MOST = 32, PANEL_WIDTH = 640, PANEL_HEIGHT = 460 };

typedef struct Look {
  const char *title, *x_label, *y_label;
  bool log_x, log_y;
  double (*x)(const LatencyRow *row);
} Look;

static double x_rate(const LatencyRow *row) { return row->mbit; }
static double x_devices(const LatencyRow *row) { return row->of.devices; }
static double x_tokens(const LatencyRow *row) { return (double)row->of.tokens; }
static double x_second(const LatencyRow *row) { return row->second; }

static const Look looks[LATENCY_FIGURE_COUNT] = {
    [LATENCY_FIGURE_bandwidth] = {"Speedup over one device", "Mbit/s of a link", "times as fast", true, true, x_rate},
    [LATENCY_FIGURE_devices] = {"Speedup over one device", "devices", "times as fast", false, false, x_devices},
    [LATENCY_FIGURE_tokens] = {"Speedup over one device", "tokens", "times as fast", true, false, x_tokens},
    [LATENCY_FIGURE_breakdown] = {"Computing, and waiting for links on top of it", "Mbit/s of a link", "milliseconds", true, false, x_rate},
    [LATENCY_FIGURE_baselines] = {"Speedup of G = 1 over other strategies", "Mbit/s of a link", "times as fast", true, true, x_rate},
    [LATENCY_FIGURE_trace] = {"Requests in ten seconds, 20-100 Mbit/s", "seconds", "requests", false, false, x_second},
};

static bool at_one_rate(LatencyFigure figure) { return figure == LATENCY_FIGURE_devices || figure == LATENCY_FIGURE_tokens; }

/* ---- CSV */

static const char *note_of(const LatencyRow *row) {
  switch (row->of.strategy) {
  case STRATEGY_TP:
    return "sums move 4 U a block where the paper counts 2 U";
  case STRATEGY_BP_AG:
  case STRATEGY_BP_SP:
    return "latency only: its accuracy would need its own training";
  default:
    return "";
  }
}

static int print_row(char *text, size_t room, const LatencyPlan *plan, LatencyFigure figure, const LatencyRow *row) {
  const LatencyCase *of = &row->of;
  char paper[24] = "";
  if (row->paper > 0) snprintf(paper, sizeof paper, "%.4g", row->paper);
  return snprintf(text, room, "%s,%s,%s,%s,%d,%d,%lld,%d,%g,%g,%.4f,%.4f,%.4f,%.4f,%.3f,%.4f,%s,%s\n", bench_latency_figures_name(figure),
                  row->calibrated ? "calibrated" : "measured", network_options_topology(plan->bench->links.topology),
                  strategy_facts(of->strategy)->name, of->groups, of->devices, (long long)of->tokens, of->parts, row->mbit, row->second,
                  1e3 * row->latency, 1e3 * row->compute, 1e3 * row->wait, row->hidden, row->kilobytes, row->value, paper, note_of(row));
}

static const char CSV_HEAD[] = "figure,form,link_model,strategy,groups,nodes,tokens,parts,mbit,second,latency_ms,compute_ms,wait_ms,hidden,"
                               "kilobytes_sent,value,paper,note\n";

static Status save_csv(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *path) {
  enum { LINE = 320 };
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

static const char *name_of(const LatencyCase *of, const char *suffix, char name[NAME_ROOM]) {
  if (of->groups)
    snprintf(name, NAME_ROOM, "G = %d%s", of->groups, suffix);
  else
    snprintf(name, NAME_ROOM, "%s%s", strategy_facts(of->strategy)->name, suffix);
  return name;
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
static void add_line(Lines *lines, const LatencyRows *rows, int first, const Look *look, double (*y)(const LatencyRow *),
                     const char *suffix, PlotSeries how) {
  const LatencyRow *of = &rows->list[first];
  size_t begun = lines->used, count = 0;
  double *x = lines->numbers + begun, *values = x + rows->count;
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    if (row->of.strategy != of->of.strategy || row->of.groups != of->of.groups || row->calibrated != of->calibrated) continue;
    if (!isfinite(y(row))) continue;
    x[count] = look->x(row);
    values[count++] = y(row);
  }
  if (count == 0 || lines->count == SERIES_MOST) return;
  how.name = name_of(&of->of, suffix, lines->name[lines->count]);
  if (how.style == PLOT_MARK) how.name = marks_before(lines) ? NULL : "paper"; /* all look alike */
  how.x = x, how.y = values, how.count = count;
  lines->series[lines->count] = how;
  lines->used += 2 * (size_t)rows->count;
  lines->count++;
}

static bool first_of_its_kind(const LatencyRows *rows, int at) {
  const LatencyRow *row = &rows->list[at];
  for (int i = 0; i < at; i++) {
    const LatencyRow *before = &rows->list[i];
    if (before->of.strategy == row->of.strategy && before->of.groups == row->of.groups && before->calibrated == row->calibrated)
      return false;
  }
  return true;
}

static void add_panel(Lines *lines, const LatencyRows *rows, LatencyFigure figure, bool calibrated) {
  const Look *look = &looks[figure];
  bool breakdown = figure == LATENCY_FIGURE_breakdown, points = figure != LATENCY_FIGURE_trace;
  for (int i = 0; i < rows->count; i++) {
    if (rows->list[i].calibrated != calibrated || !first_of_its_kind(rows, i)) continue;
    if (breakdown) add_line(lines, rows, i, look, y_compute, ", computing", (PlotSeries){.style = PLOT_BAR});
    add_line(lines, rows, i, look, y_value, breakdown ? ", waiting" : "",
             (PlotSeries){.points = points, .style = breakdown ? PLOT_ON_BAR : PLOT_LINE});
    add_line(lines, rows, i, look, y_paper, ", paper",
             (PlotSeries){.points = points, .style = breakdown ? PLOT_MARK : PLOT_DASHED, .like_last = true});
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

static void print_line(const LatencyRow *row, double x) {
  char name[NAME_ROOM], paper[16] = "-";
  if (row->paper > 0) snprintf(paper, sizeof paper, "%.2f", row->paper);
  printf("  %-8s %8g %5d %5d %10.2f ms %10.2f %10.2f %7.0f%% %10.1f %9.2f %8s\n", name_of(&row->of, "", name), x, row->of.devices,
         row->of.parts, 1e3 * row->latency, 1e3 * row->compute, 1e3 * row->wait, 100 * row->hidden, row->kilobytes, row->value, paper);
}

static void print_trace(const LatencyRows *rows, bool calibrated) {
  for (int i = 0; i < rows->count; i++) {
    const LatencyRow *row = &rows->list[i];
    char name[NAME_ROOM];
    double sum = 0, least = INFINITY, most = 0;
    int count = 0;
    if (row->calibrated != calibrated || !first_of_its_kind(rows, i)) continue;
    for (int j = i; j < rows->count; j++) {
      const LatencyRow *other = &rows->list[j];
      if (other->of.strategy != row->of.strategy || other->of.groups != row->of.groups || other->calibrated != calibrated) continue;
      sum += other->value, count++;
      least = fmin(least, other->value), most = fmax(most, other->value);
    }
    printf("  %-8s %9.1f requests in ten seconds, from %.1f to %.1f\n", name_of(&row->of, "", name), sum / count, least, most);
  }
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
    printf("  %-8s %8s %5s %5s %13s %10s %10s %8s %10s %9s %8s\n", "", look->x_label, "nodes", "parts", "latency", "computing", "waiting",
           "hidden", "kB sent", "value", "paper");
    for (int i = 0; i < rows->count; i++)
      if (rows->list[i].calibrated == calibrated) print_line(&rows->list[i], look->x(&rows->list[i]));
  }
}
