/* See bench_results.h. */
#include "cli/bench_results.h"
#include "base/array.h"
#include "base/files.h"
#include "base/order.h"
#include "base/rng.h"
#include "base/text.h"
#include "nn/json_build.h"
#include "train/plot.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Mean {
  double mean, deviation; /* NAN: none; the deviation of a single number is one */
  int count;
} Mean;

/* Over the seeds that are done, of a row, or of its differences from another one (minus >= 0) with the same seed. */
static Mean mean_of(const Experiment *e, int row, int minus) {
  double sum = 0, squares = 0;
  int n = 0;
  for (int s = 0; s < e->seed_count; s++) {
    double value = e->run[row][s].value - (minus >= 0 ? e->run[minus][s].value : 0);
    if (isnan(value)) continue;
    sum += value, squares += value * value, n++;
  }
  double mean = n ? sum / n : NAN, variance = n > 1 ? (squares - sum * mean) / (n - 1) : NAN;
  return (Mean){mean, variance > 0 ? sqrt(variance) : n > 1 ? 0 : NAN, n};
}

/* ---- the difference from the baseline, bootstrapped over the samples of the test part */

enum { RESAMPLES = 1000 };

typedef struct Sample {
  long long number;            /* of the test part: which sample it is */
  double items, correct, loss; /* as infer/evaluate.h writes them */
  double tempered;             /* of classes: the loss at the best temperature; else NAN */
} Sample;

typedef struct Samples {
  Sample *list;
  size_t count, room;
} Samples;

static int by_number(const void *a, const void *b) {
  const long long one = ((const Sample *)a)->number, other = ((const Sample *)b)->number;
  return (one > other) - (one < other);
}

/* In the order of their numbers. */
static Status read_samples(const char *path, Samples *samples) {
  char line[256];
  FILE *file = fopen(path, "r");
  *samples = (Samples){0};
  if (file == NULL) return status_set(STATUS_IO, "%s: %s", path, strerror(errno));
  Status status = STATUS_OK;
  while (status == STATUS_OK && fgets(line, sizeof line, file)) {
    Sample read = {.tempered = NAN};
    const int fields = sscanf(line, "%lld,%lf,%lf,%lf,%lf", &read.number, &read.items, &read.correct, &read.loss, &read.tempered);
    if (fields < 4) continue; /* the head */
    status = ARRAY_RESERVE(samples->list, samples->count, 1, samples->room, "samples");
    if (status == STATUS_OK) samples->list[samples->count++] = read;
  }
  if (status == STATUS_OK && ferror(file)) status = status_set(STATUS_IO, "%s: cannot be read", path);
  fclose(file);
  if (samples->count > 0) qsort(samples->list, samples->count, sizeof *samples->list, by_number);
  return status;
}

static bool same_samples(const Samples *a, const Samples *b) {
  bool same = a->count == b->count;
  for (size_t i = 0; same && i < a->count; i++) same = a->list[i].number == b->list[i].number;
  return same;
}

/* Whether a perplexity is divided by the tokens that samples count; by other conventions it is by words or bytes. */
static bool is_per_token(const Experiment *e, int row) {
  json_t *settings = experiment_settings(e, "eval", e->row[row].eval);
  const char *convention = json_string_value(json_object_get(settings, "perplexity"));
  const bool per_token = convention == NULL || strcmp(convention, "auto") == 0 || strcmp(convention, "token") == 0;
  json_decref(settings);
  return per_token;
}

/* What the row's figure is of sums over samples; NAN for one that is none. */
static double figure_of(const Experiment *e, int row, Sample sum) {
  const char *figure = e->row[row].figure;
  if (strcmp(figure, "top1") == 0 || strcmp(figure, "accuracy") == 0) return e->scale * sum.correct / sum.items;
  if (strcmp(figure, "loss") == 0) return e->scale * sum.loss / sum.items;
  if (strcmp(figure, "tempered_loss") == 0) return e->scale * sum.tempered / sum.items;
  return strcmp(figure, "perplexity") == 0 ? e->scale * exp(sum.loss / sum.items) : NAN;
}

static void add_sample(Sample *sum, const Sample *sample) {
  sum->items += sample->items;
  sum->correct += sample->correct;
  sum->loss += sample->loss;
  sum->tempered += sample->tempered;
}

/* The row whose evaluation has its figure. */
static int evaluated_row(const Experiment *e, int row) { return e->row[row].of >= 0 ? e->row[row].of : row; }

/* Of one resampling, by its number: the same samples are drawn for both, and for all seeds, which share the test part. */
static double resampled_difference(const Experiment *e, int row, const Samples *a, const Samples *b, int number) {
  Sample of_a = {0}, of_b = {0};
  Rng rng;
  rng_init(&rng, 1, (uint64_t)number);
  for (size_t i = 0; i < a->count; i++) {
    size_t at = (size_t)rng_below(&rng, a->count);
    add_sample(&of_a, &a->list[at]);
    add_sample(&of_b, &b->list[at]);
  }
  return figure_of(e, row, of_a) - figure_of(e, row, of_b);
}

typedef struct Interval {
  double low, high; /* NAN: none */
} Interval;

/* The middle 95% of the mean over seeds of row minus baseline. None where a figure is not of single samples, or samples are not the same or
 * not there. */
static Status bootstrap(const Experiment *e, int row, Interval *interval) {
  double mean[RESAMPLES] = {0};
  int seeds = 0, baseline = e->row[row].baseline;
  *interval = (Interval){NAN, NAN};
  if (baseline < 0 || !e->evaluation->samples || !experiment_same_figure(e, row, baseline)) return STATUS_OK;
  const int made = evaluated_row(e, row), base_made = evaluated_row(e, baseline);
  if (strcmp(e->row[row].figure, "perplexity") == 0 && !(is_per_token(e, made) && is_per_token(e, base_made))) return STATUS_OK;
  for (int s = 0; s < e->seed_count; s++) {
    if (isnan(e->run[row][s].value) || isnan(e->run[baseline][s].value)) continue;
    char *path = experiment_place(e, made, s, EXPERIMENT_SAMPLES), *base_path = experiment_place(e, base_made, s, EXPERIMENT_SAMPLES);
    Samples ours = {0}, base = {0};
    Status status = path && base_path ? STATUS_OK : status_no_memory(NULL, "a path");
    if (status == STATUS_OK && files_exists(path)) status = read_samples(path, &ours);
    if (status == STATUS_OK && files_exists(base_path)) status = read_samples(base_path, &base);
    bool alike = status == STATUS_OK && ours.count > 1 && same_samples(&ours, &base);
    for (int i = 0; alike && i < RESAMPLES; i++) mean[i] += resampled_difference(e, row, &ours, &base, i);
    seeds += alike;
    free(path), free(base_path), free(ours.list), free(base.list);
    TRY(status);
    if (!alike) return STATUS_OK;
  }
  for (int i = 0; i < RESAMPLES; i++)
    if (isnan(mean[i])) return STATUS_OK;
  if (seeds == 0) return STATUS_OK;
  qsort(mean, RESAMPLES, sizeof *mean, order_by_size);
  *interval = (Interval){mean[RESAMPLES / 40] / seeds, mean[RESAMPLES - 1 - RESAMPLES / 40] / seeds};
  return STATUS_OK;
}

static void write_quoted(FILE *out, const char *text) { /* as CSV wants it */
  putc('"', out);
  for (; *text; text++) {
    if (*text == '"') putc('"', out);
    putc(*text, out);
  }
  putc('"', out);
}

/* Nothing where they are not known: of a program that ended before the bench could note them. */
static void write_seconds(FILE *out, double seconds) {
  if (!isnan(seconds)) fprintf(out, "%.1f", seconds);
  putc(',', out);
}

static void write_row_csv(const Experiment *e, FILE *out, int row, int seed) {
  const Run *run = &e->run[row][seed];
  if (isnan(run->value)) return;
  fprintf(out, "%s,", e->row[row].name);
  if (run->commit[0]) write_quoted(out, run->commit);
  fprintf(out, ",%lld,", (long long)e->seeds[seed]);
  if (!isnan(e->row[row].x)) fprintf(out, "%.9g", e->row[row].x);
  fprintf(out, ",%s,%.9g,", e->row[row].figure, run->value);
  write_seconds(out, run->train_seconds);
  write_seconds(out, run->eval_seconds);
  fprintf(out, "%d,", (int)e->quick);
  write_quoted(out, run->train_command);
  putc(',', out);
  write_quoted(out, run->eval_command);
  putc('\n', out);
}

static Status write_csv(const Experiment *e, FILE *out) {
  fputs("row,commit,seed,x,figure,value,train_seconds,eval_seconds,quick,train_command,eval_command\n", out);
  for (int row = 0; row < e->count; row++)
    for (int s = 0; s < e->seed_count; s++) write_row_csv(e, out, row, s);
  return STATUS_OK;
}

/* ---- what the trainings logged */

enum { COLUMNS_MAX = 64, LINE_MAX_LENGTH = 4096 };

/* Columns of all trainings' metrics.csv, in the order in which they are met: those of texts and of images, with and without a part that is
 * held out, differ. */
typedef struct Columns {
  char *name[COLUMNS_MAX]; /* owned */
  int count;
} Columns;

static int find_column(const Columns *columns, const char *name) {
  for (int i = 0; i < columns->count; i++)
    if (strcmp(columns->name[i], name) == 0) return i;
  return -1;
}

/* The metrics.csv of a run that was trained and is done; NULL where there is none. */
static FILE *open_metrics(const Experiment *e, int row, int seed) {
  const Row *r = &e->row[row];
  if (isnan(e->run[row][seed].value) || r->train == NULL || r->of >= 0) return NULL;
  char *path = experiment_place(e, row, seed, "/metrics.csv");
  FILE *file = path ? fopen(path, "r") : NULL;
  free(path);
  return file;
}

static Status add_columns(FILE *file, Columns *columns) {
  char line[LINE_MAX_LENGTH], *rest = NULL;
  if (fgets(line, sizeof line, file) == NULL) return STATUS_OK;
  for (char *name = strtok_r(line, ",\n", &rest); name; name = strtok_r(NULL, ",\n", &rest)) {
    if (find_column(columns, name) >= 0) continue;
    if (columns->count == COLUMNS_MAX) return status_set(STATUS_BAD_FILE, "trainings have more than %d columns of metrics", COLUMNS_MAX);
    if ((columns->name[columns->count] = strdup(name)) == NULL) return status_no_memory(NULL, "a column");
    columns->count++;
  }
  return STATUS_OK;
}

/* The lines behind the header, their fields in the table's order of columns. */
static Status copy_metrics(FILE *file, const Columns *columns, const char *row, int64_t seed, FILE *out) {
  char head[LINE_MAX_LENGTH], line[LINE_MAX_LENGTH], *rest = NULL;
  int place[COLUMNS_MAX], fields = 0; /* field: which column it is */
  if (fgets(head, sizeof head, file) == NULL) return STATUS_OK;
  for (char *name = strtok_r(head, ",\n", &rest); name && fields < COLUMNS_MAX; name = strtok_r(NULL, ",\n", &rest))
    place[fields++] = find_column(columns, name);
  while (fgets(line, sizeof line, file)) {
    const char *value[COLUMNS_MAX] = {NULL};
    char *at = line;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < fields && at; i++) {
      const char *field = strsep(&at, ",");
      if (place[i] >= 0) value[place[i]] = field; /* else the file has changed since its header was read */
    }
    fprintf(out, "%s,%lld", row, (long long)seed);
    for (int i = 0; i < columns->count; i++) fprintf(out, ",%s", value[i] ? value[i] : "");
    putc('\n', out);
  }
  return ferror(file) ? status_set(STATUS_IO, "seed %lld, %s: metrics.csv cannot be read", (long long)seed, row) : STATUS_OK;
}

/* Trainings may log different columns: all headers are read first, then all lines. */
static Status write_metrics(const Experiment *e, FILE *out) {
  Columns columns = {0};
  FILE *file;
  Status status = STATUS_OK;
  for (int row = 0; row < e->count; row++)
    for (int s = 0; s < e->seed_count && status == STATUS_OK; s++) {
      if ((file = open_metrics(e, row, s)) == NULL) continue;
      status = add_columns(file, &columns);
      fclose(file);
    }
  fputs("row,seed", out);
  for (int i = 0; i < columns.count; i++) fprintf(out, ",%s", columns.name[i]);
  putc('\n', out);
  for (int row = 0; row < e->count; row++)
    for (int s = 0; s < e->seed_count && status == STATUS_OK; s++) {
      if ((file = open_metrics(e, row, s)) == NULL) continue;
      status = copy_metrics(file, &columns, e->row[row].name, e->seeds[s], out);
      fclose(file);
    }
  for (int i = 0; i < columns.count; i++) free(columns.name[i]);
  return status;
}

/* ---- the table, the chart, JSON */

/* Losses and ratios differ in digits that percentages do not have. What rounds to zero has no sign. */
static void write_figure(const Experiment *e, FILE *out, double value, bool sign) {
  const int decimals = e->scale == 100 || strcmp(e->unit, "%") == 0 ? 2 : 4;
  const bool zero = fabs(value) < 0.5 * pow(10, -decimals);
  fprintf(out, sign && !zero ? "%+.*f" : "%.*f", decimals, zero ? 0 : value);
}

static void write_cell(const Experiment *e, FILE *out, double value, bool sign) {
  putc(' ', out);
  isnan(value) ? (void)putc('-', out) : write_figure(e, out, value, sign);
  fputs(" |", out);
}

static void write_mean(const Experiment *e, FILE *out, Mean m, bool sign) {
  if (m.count < 2) {
    write_cell(e, out, m.count ? m.mean : NAN, sign);
    return;
  }
  putc(' ', out);
  write_figure(e, out, m.mean, sign);
  fputs(" ± ", out);
  write_figure(e, out, m.deviation, false);
  fputs(" |", out);
}

static void write_interval(const Experiment *e, FILE *out, Interval interval) {
  if (isnan(interval.low)) {
    fputs(" - |", out);
    return;
  }
  putc(' ', out);
  write_figure(e, out, interval.low, true);
  fputs(" to ", out);
  write_figure(e, out, interval.high, true);
  fputs(" |", out);
}

/* Without the space by which it is parted from figures. */
static const char *unit_name(const Experiment *e) { return e->unit + strspn(e->unit, " "); }

/* What all rows that have a figure share: its name, and the number of seeds. */
typedef struct Shared {
  const char *figure; /* NULL: they have others */
  int seeds;          /* -1: other numbers */
} Shared;

static Shared shared_of(const Experiment *e) {
  Shared shared = {e->figure, 0};
  bool any = false;
  for (int row = 0; row < e->count; row++) {
    const int seeds = mean_of(e, row, -1).count;
    if (seeds == 0) continue;
    const Shared own = {e->row[row].figure, seeds};
    if (!any) shared = own;
    any = true;
    if (shared.figure && strcmp(shared.figure, own.figure) != 0) shared.figure = NULL;
    if (shared.seeds != own.seeds) shared.seeds = -1;
  }
  return shared;
}

static void write_command(const Experiment *e, FILE *out) {
  const Shared shared = shared_of(e);
  fprintf(out, "`astra-bench accuracy --table %s%s%s`: %s%s%s, mean and standard deviation over ", e->name, e->quick ? " --quick" : "",
          experiment_uses_data(e) ? " --data-dir DIR" : "",
          shared.figure ? shared.figure : "the figure that each row has in the experiment", e->unit[0] ? " in " : "", unit_name(e));
  if (shared.seeds < 0)
    fputs("as many seeds as the last column says.\n\n", out);
  else
    fprintf(out, "%d seed%s.\n\n", shared.seeds, text_plural(shared.seeds));
}

static Status write_table(const Experiment *e, FILE *out) {
  fprintf(out, "# %s\n\n%s%s", e->title, e->about, e->about[0] ? "\n\n" : "");
  if (e->quick) fputs("Made with --quick: this shows that the experiment runs, not what it finds.\n\n", out);
  write_command(e, out);
  fprintf(out, "| row | %s | ours |", e->x_label);
  if (e->has_baselines)
    fprintf(out, " against %s, same seed | 95%% of samples |", e->baseline >= 0 ? e->row[e->baseline].name : "the row named");
  fprintf(out, " paper%s%s |", e->paper[0] ? ": " : "", e->paper);
  if (e->has_baselines) fprintf(out, " paper, against its baseline |");
  fputs(e->has_baselines ? " seeds |\n|---|---|---|---|---|---|---|---|\n" : " seeds |\n|---|---|---|---|---|\n", out);
  for (int i = 0; i < e->count; i++) {
    Mean m = mean_of(e, i, -1);
    const Row *row = &e->row[i];
    if (m.count == 0) continue;
    fprintf(out, "| %s |", row->name);
    isnan(row->x) ? (void)fputs(" - |", out) : (void)fprintf(out, " %.6g |", row->x);
    write_mean(e, out, m, false);
    if (e->has_baselines) {
      Interval interval = {NAN, NAN};
      TRY(bootstrap(e, i, &interval));
      if (row->baseline >= 0 && row->baseline != e->baseline) fprintf(out, " %s:", e->row[row->baseline].name);
      write_mean(e, out, row->baseline < 0 ? (Mean){0} : mean_of(e, i, row->baseline), true);
      write_interval(e, out, interval);
    }
    write_cell(e, out, row->paper, false);
    if (e->has_baselines) write_cell(e, out, row->baseline < 0 ? NAN : row->paper - e->row[row->baseline].paper, true);
    fprintf(out, " %d |\n", m.count);
  }
  return STATUS_OK;
}

/* What a figure has become since the baseline's: in its unit, or, as of perplexities, which have none, in percent. */
static double change(const Experiment *e, double value, double baseline) {
  return e->unit[0] ? value - baseline : 100 * (value / baseline - 1);
}

/* Moves the point behind the first n to its place among them, so that x rises. */
static void place_by_x(double *x, double *ours, double *paper, size_t n) {
  for (size_t i = n; i > 0 && x[i - 1] > x[i]; i--) {
    double *const columns[] = {x, ours, paper};
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
      double later = columns[c][i - 1];
      columns[c][i - 1] = columns[c][i];
      columns[c][i] = later;
    }
  }
}

/* A chart of earlier results would not be of those beside it. */
static Status remove_chart(const char *path) {
  if (remove(path) == 0 || errno == ENOENT) return STATUS_OK;
  return status_set(STATUS_IO, "cannot remove %s, the chart of earlier results: %s", path, strerror(errno));
}

/* Rows that have an x, as a line beside the paper's. Its models are others: where both have a baseline, the change since is drawn. */
static Status write_chart(const Experiment *e, const char *path) {
  double x[ROWS_MAX], ours[ROWS_MAX], paper[ROWS_MAX];
  size_t n = 0, of_paper = 0;
  double low = INFINITY, high = 0;
  const Mean base = e->baseline < 0 ? (Mean){0} : mean_of(e, e->baseline, -1);
  const bool changes = base.count > 0 && !isnan(e->row[e->baseline].paper);
  for (int i = 0; i < e->count; i++) {
    Mean m = mean_of(e, i, -1);
    if (isnan(e->row[i].x) || m.count == 0 || (changes && !experiment_same_figure(e, i, e->baseline))) continue;
    x[n] = e->row[i].x, ours[n] = m.mean, paper[n] = e->row[i].paper;
    if (changes) ours[n] = change(e, base.mean + mean_of(e, i, e->baseline).mean, base.mean);
    if (changes) paper[n] = change(e, paper[n], e->row[e->baseline].paper);
    low = fmin(low, x[n]), high = fmax(high, x[n]);
    of_paper += !isnan(paper[n]);
    place_by_x(x, ours, paper, n++);
  }
  if (n < 2) return remove_chart(path);
  const PlotSeries series[] = {{.name = "ours", .x = x, .y = ours, .count = n, .points = true},
                               {.name = "paper", .x = x, .y = paper, .count = n, .points = true, .style = PLOT_DASHED}};
  char label[2 * NAME_MAX_LENGTH];
  if (changes)
    snprintf(label, sizeof label, "%s, %s against %s", e->figure, e->unit[0] ? unit_name(e) : "%", e->row[e->baseline].name);
  else
    snprintf(label, sizeof label, "%s %s", e->figure, unit_name(e));
  const PlotPanel panel = {.title = "",
                           .x_label = e->x_label,
                           .y_label = label,
                           .series = series,
                           .count = of_paper ? 2 : 1,
                           .log_x = low > 0 && high > 8 * low};
  return plot_save(path, e->title, &panel, 1, 720, 460);
}

static Status write_beside(const Experiment *e, const char *name, Status (*write)(const Experiment *, FILE *)) {
  char *path = files_join(e->folder, name);
  FileWriter writer;
  Status status = path ? files_create(&writer, path) : status_no_memory(NULL, "a path");
  if (status == STATUS_OK) {
    status = write(e, writer.stream);
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer);
  }
  free(path);
  return status;
}

Status results_print_json(const Experiment *e) {
  json_t *rows = json_array();
  for (int i = 0; i < e->count; i++) {
    Mean m = mean_of(e, i, -1);
    if (m.count == 0) continue;
    json_t *row = json_pack("{s:s, s:s, s:i, s:o, s:o}", "row", e->row[i].name, "figure", e->row[i].figure, "seeds", m.count, "mean",
                            json_build_number(m.mean), "deviation", json_build_number(m.deviation));
    if (e->has_baselines) {
      Interval interval = {NAN, NAN};
      int baseline = e->row[i].baseline;
      Status status = bootstrap(e, i, &interval);
      if (status != STATUS_OK) return json_decref(row), json_decref(rows), status;
      json_build_put(&row, "difference", baseline < 0 ? json_null() : json_build_number(mean_of(e, i, baseline).mean));
      json_build_put(&row, "difference_low", json_build_number(interval.low));
      json_build_put(&row, "difference_high", json_build_number(interval.high));
    }
    json_build_put(&row, "paper", json_build_number(e->row[i].paper));
    json_build_append(&rows, row);
  }
  return json_build_print(json_pack("{s:o, s:o, s:b, s:s, s:o}", "table", json_build_string(e->name), "out", json_build_string(e->folder),
                                    "quick", (int)e->quick, "figure", e->figure, "rows", rows));
}

Status results_print(const Experiment *e) { return write_table(e, stdout); }

Status results_write(const Experiment *e) {
  TRY(write_beside(e, "results.csv", write_csv));
  TRY(write_beside(e, "metrics.csv", write_metrics));
  TRY(write_beside(e, "results.md", write_table));
  char *chart = files_join(e->folder, RESULTS_CHART);
  Status status = chart ? write_chart(e, chart) : status_no_memory(NULL, "a path");
  free(chart);
  return status;
}
