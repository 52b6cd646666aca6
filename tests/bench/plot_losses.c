/* plot_losses LOSSES.csv OUT.png: the loss curves of tools/results-precision.sh, a panel per task: fp32 solid and bf16 dashed, a colour per
 * seed. The CSV has the columns task, seed, precision, step, loss, and the rows of a run follow one another. */
#include "train/plot.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 32, MAX_POINTS = 256, MAX_TASKS = 3, NAME = 32, PANEL_WIDTH = 640, PANEL_HEIGHT = 420 };

typedef struct Run {
  char task[NAME], seed[NAME], precision[NAME], label[3 * NAME];
  double step[MAX_POINTS], loss[MAX_POINTS];
  size_t points;
} Run;

static Run runs[MAX_RUNS];
static size_t run_count;

static Run *run_of(const Run *row) {
  for (size_t i = 0; i < run_count; i++)
    if (!strcmp(runs[i].task, row->task) && !strcmp(runs[i].seed, row->seed) && !strcmp(runs[i].precision, row->precision)) return &runs[i];
  if (run_count == MAX_RUNS) return NULL;
  Run *run = &runs[run_count++];
  *run = *row;
  snprintf(run->label, sizeof run->label, "%s, seed %s", row->precision, row->seed);
  return run;
}

static bool read_losses(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return perror(path), false;
  char line[256];
  bool good = fgets(line, sizeof line, file) && !strcmp(line, "task,seed,precision,step,loss\n");
  while (good && fgets(line, sizeof line, file)) {
    Run row = {.points = 0};
    double step, loss;
    good = sscanf(line, "%31[^,],%31[^,],%31[^,],%lf,%lf", row.task, row.seed, row.precision, &step, &loss) == 5;
    Run *run = good ? run_of(&row) : NULL;
    good = run && run->points < MAX_POINTS;
    if (good) run->step[run->points] = step, run->loss[run->points++] = loss;
  }
  fclose(file);
  if (!good) fprintf(stderr, "%s: not a table of losses: task,seed,precision,step,loss\n", path);
  return good;
}

/* The runs of a task, bf16 behind fp32 of the same seed, which gives it its colour. */
static size_t add_series(const char *task, PlotSeries *series) {
  size_t count = 0;
  for (size_t i = 0; i < run_count; i++) {
    const bool narrow = !strcmp(runs[i].precision, "bf16");
    if (strcmp(runs[i].task, task) != 0 || narrow) continue;
    series[count++] = (PlotSeries){.name = runs[i].label, .x = runs[i].step, .y = runs[i].loss, .count = runs[i].points};
    for (size_t j = 0; j < run_count; j++)
      if (!strcmp(runs[j].task, task) && !strcmp(runs[j].seed, runs[i].seed) && !strcmp(runs[j].precision, "bf16"))
        series[count++] = (PlotSeries){
            .name = runs[j].label, .x = runs[j].step, .y = runs[j].loss, .count = runs[j].points, .style = PLOT_DASHED, .like_last = true};
  }
  return count;
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: plot_losses LOSSES.csv OUT.png\n"), 2;
  if (!read_losses(argv[1])) return 1;
  static PlotSeries series[MAX_TASKS][MAX_RUNS];
  PlotPanel panels[MAX_TASKS];
  size_t count = 0;
  for (size_t i = 0; i < run_count; i++) {
    size_t known = 0;
    while (known < count && strcmp(panels[known].title, runs[i].task) != 0) known++;
    if (known < count || count == MAX_TASKS) continue;
    panels[count] =
        (PlotPanel){.title = runs[i].task, .x_label = "step", .y_label = "task loss, mean of 100 steps", .series = series[count]};
    panels[count].count = add_series(runs[i].task, series[count]);
    count++;
  }
  if (count > 0 && plot_save(argv[2], "fp32 and bf16", panels, count, PANEL_WIDTH, PANEL_HEIGHT) == STATUS_OK) return 0;
  fprintf(stderr, "plot_losses: %s\n", count > 0 ? status_message() : "no rows");
  return 1;
}
