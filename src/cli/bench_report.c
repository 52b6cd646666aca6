/* The tables and the JSON line of astra-bench step: see bench_report.h. One list (FIGURES) serves both. */
#include "cli/bench_report.h"
#include "base/printable.h"
#include "cli/profile_table.h"
#include "nn/json_build.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const SIDE_NAMES[BENCH_SIDES] = {"plain", "astra"};

typedef enum Figure {
  MEDIAN,
  LEAST,
  SPREAD,
  PROCESSOR,
  SPEED, /* in the task's unit: label and key begin with it */
  SHARE,
  FAULTS,
  GFLOP,
  RATE,
  PART_OF_PEAK,
  ARENA,
  WEIGHTS,
  TRAINING,
  TOGETHER,
  RESIDENT,
  FIGURES_SHOWN,
  MEAN = FIGURES_SHOWN, /* milliseconds: what the shares of a profile are of */
  FIGURES_COUNT
} Figure;

static const struct {
  const char *text, *json;
} FIGURES[FIGURES_SHOWN] = {
    [MEDIAN] = {"milliseconds, median", "milliseconds"},
    [LEAST] = {"milliseconds, least", "milliseconds_least"},
    [SPREAD] = {"  middle half of steps, +-%", "spread_percent"},
    [PROCESSOR] = {"milliseconds of all threads", "processor_milliseconds"},
    [SPEED] = {"%s a second", "%s_per_second"},
    [SHARE] = {"time inside matrix products, %", "product_percent"},
    [FAULTS] = {"page faults", "page_faults"},
    [GFLOP] = {"GFLOP of matrix products", "gflop"},
    [RATE] = {"GFLOP/s inside them", "gflop_per_second"},
    [PART_OF_PEAK] = {"  of the machine's best, %", "peak_percent"},
    [ARENA] = {"MiB of activations", "activation_mib"},
    [WEIGHTS] = {"MiB of weights", "weight_mib"},
    [TRAINING] = {"MiB of gradients and moments", "training_mib"},
    [TOGETHER] = {"MiB together", "together_mib"},
    [RESIDENT] = {"MiB most resident until then", "resident_mib"},
};

enum { FIGURE_NAME = 48 };

/* %s stands for the unit of speed. */
static const char *named(const char *pattern, const Session *session, char text[FIGURE_NAME]) {
  size_t at = strcspn(pattern, "%");
  if (pattern[at] == '\0' || pattern[at + 1] != 's') return pattern;
  snprintf(text, FIGURE_NAME, "%.*s%s%s", (int)at, pattern, session->task->unit, pattern + at + 2);
  return text;
}

static PeakNumbers numbers_of(const Session *session) { return session->options.precision == PRECISION_BF16 ? PEAK_BF16 : PEAK_F32; }

static void figures_of(BenchReport *report, int side, double figure[FIGURES_COUNT]) {
  const double mib = 1048576, giga = 1e9;
  BenchSummary summary;
  bench_step_summary(&report->bench[side], &summary);
  figure[MEDIAN] = 1e3 * summary.median;
  figure[LEAST] = 1e3 * summary.least;
  figure[SPREAD] = 100 * summary.spread;
  figure[PROCESSOR] = 1e3 * summary.processor;
  figure[FAULTS] = summary.faults;
  figure[SPEED] = summary.units_per_second;
  figure[SHARE] = 100 * summary.product_share;
  figure[GFLOP] = summary.flops / giga;
  figure[RATE] = summary.flops_per_second / giga;
  figure[PART_OF_PEAK] = 100 * summary.flops_per_second / bench_peak_products(&report->peak, numbers_of(&report->session));
  figure[ARENA] = summary.activations / mib;
  figure[WEIGHTS] = summary.weights / mib;
  figure[TRAINING] = summary.training / mib;
  figure[TOGETHER] = figure[ARENA] + figure[WEIGHTS] + figure[TRAINING];
  figure[MEAN] = 1e3 * summary.mean;
  figure[RESIDENT] = report->resident[side] / mib;
}

static double ratio(double figures[BENCH_SIDES][FIGURES_COUNT], Figure which) {
  return figures[BENCH_ASTRA][which] / figures[BENCH_PLAIN][which];
}

/* ---------------------------------------------------------------- text */

/* "224x224", or "1024 tokens" */
static const char *size_of_sample(const Session *session, char text[FIGURE_NAME]) {
  long long side = (long long)session->config->image;
  if (session->task->decoder)
    snprintf(text, FIGURE_NAME, "%lld tokens", (long long)session->tokens);
  else
    snprintf(text, FIGURE_NAME, "%lldx%lld", side, side);
  return text;
}

Status bench_report_text(BenchReport *report) {
  double figures[BENCH_SIDES][FIGURES_COUNT];
  const Session *session = &report->session;
  const ModelConfig *astra = report->session.config;
  char sample[FIGURE_NAME], name[FIGURE_NAME];
  for (int side = 0; side < report->sides; side++) figures_of(report, side, figures[side]);
  bench_peak_print(&report->peak);
  printf("model:   %s, %s, batch %lld, %.2f M parameters, products in %s\n", printable(session->options.model),
         size_of_sample(session, sample), (long long)session->options.batch,
         (double)param_count_numbers(model_params(session->model)) / 1e6, bench_peak_numbers_name(numbers_of(session)));
  if (report->sides > 1)
    printf("astra:   %d groups of %d codewords, %d-%d devices, noise %g\n", astra->astra.groups, astra->astra.codebook_size,
           astra->astra.devices_least, astra->astra.devices, astra->astra.noise);
  printf("%-32s %12s %12s %9s\n", report->forward ? "forward pass" : "training step", SIDE_NAMES[BENCH_PLAIN],
         report->sides > 1 ? SIDE_NAMES[BENCH_ASTRA] : "", report->sides > 1 ? "ratio" : "");
  for (int i = 0; i < FIGURES_SHOWN; i++) {
    printf("  %-30s %12.1f", named(FIGURES[i].text, session, name), figures[BENCH_PLAIN][i]);
    if (report->sides > 1) printf(" %12.1f", figures[BENCH_ASTRA][i]);
    if (report->sides > 1 && figures[BENCH_PLAIN][i] > 0) printf(" %9.2f", ratio(figures, (Figure)i));
    putchar('\n');
  }
  for (int side = 0; side < report->sides && report->profile; side++)
    profile_table_print(&report->bench[side].profile, SIDE_NAMES[side], report->bench[side].count, figures[side][MEAN] / 1e3,
                        figures[side][PART_OF_PEAK] / 100);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- JSON */

static json_t *side_json(BenchReport *report, int side, const double figure[FIGURES_COUNT]) {
  json_t *object = json_object();
  char name[FIGURE_NAME];
  for (int i = 0; i < FIGURES_SHOWN; i++) json_object_set_new(object, named(FIGURES[i].json, &report->session, name), json_real(figure[i]));
  if (report->profile) json_object_set_new(object, "profile", profile_table_json(&report->bench[side].profile, report->bench[side].count));
  return object;
}

Status bench_report_json(BenchReport *report) {
  double figures[BENCH_SIDES][FIGURES_COUNT];
  const Session *session = &report->session;
  bool text_model = session->task->decoder;
  json_t *object =
      json_pack("{s:s, s:I, s:I, s:b, s:s, s:I}", "model", session->options.model, text_model ? "context" : "image_size",
                (json_int_t)(text_model ? session->tokens : session->config->image), "batch", (json_int_t)session->options.batch, "forward",
                report->forward, "precision", bench_peak_numbers_name(numbers_of(session)), "parameters",
                (json_int_t)param_count_numbers(model_params(session->model)));
  if (object) bench_peak_json(&report->peak, object);
  for (int side = 0; side < report->sides; side++) {
    figures_of(report, side, figures[side]);
    json_object_set_new(object, SIDE_NAMES[side], side_json(report, side, figures[side]));
  }
  if (report->sides > 1) json_object_set_new(object, "ratio", json_real(ratio(figures, MEDIAN)));
  return json_build_print(object);
}
