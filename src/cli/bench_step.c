/* astra-bench step: how long a training step (or a forward pass) takes, plain and with ASTRA in turns, step by step, and how much of it is
 * matrix products. Needs no data: images or tokens are drawn and weights are random. */
#include "autograd/kernels/matmul.h"
#include "autograd/tape.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/train_options.h"
#include "nn/json_build.h"
#include "train/micro_step.h"
#include "train/session.h"
#include "train/validate.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- Timed steps ---- */

typedef struct BenchSample {
  double seconds, processor_seconds; /* by the clock; of all threads together, which a busy machine disturbs less */
  double product_seconds, flops;     /* of matrix products */
  double faults;                     /* pages that were touched for the first time */
  int64_t units;                     /* images, tokens */
} BenchSample;

typedef struct BenchStep {
  Session *session;   /* not its own: two that take turns share weights, gradients and arena */
  bool plain;         /* the plain model's steps, whatever the session's model has */
  size_t activations; /* bytes: most of the arena that a step took */
  bool forward;       /* the forward pass alone, with nothing recorded */
  BenchSample *samples;
  int64_t count, max;
  bool profiled;        /* the caller's to set */
  BenchProfile profile; /* of the kept steps, where it is profiled */
} BenchStep;

/* Room for `max` samples of steps of that session, which outlives the bench. The bench must not be moved while it is in use. */
static Status bench_step_open(BenchStep *bench, Session *session, bool plain, bool forward, int64_t max) {
  *bench = (BenchStep){.session = session, .plain = plain, .forward = forward, .max = max};
  bench->samples = calloc((size_t)max, sizeof *bench->samples);
  return bench->samples ? STATUS_OK : status_no_memory(NULL, "samples");
}

/* Fine on a zeroed one. */
static void bench_step_close(BenchStep *bench) {
  free(bench->samples);
  *bench = (BenchStep){0};
}

/* ---------------------------------------------------------------- one step */

static Status train_once(Session *session, const TaskBatch *batch) {
  Tape *tape = session->tape;
  StepResult result;
  double norm;
  param_empty_grads(model_params(session->model));
  TRY(micro_step(session, batch, &result));
  param_fill_grads(model_params(session->model));
  const double begun = tape_clock(tape);
  TRY(optimizer_step(&session->optimizer, 1, 1, &norm));
  tape_note(tape, "optimizer", TAPE_AROUND, begun);
  session->step++;
  return STATUS_OK;
}

static Status forward_once(Session *session, const TaskBatch *batch) {
  TaskScore score = {0};
  tape_record(session->tape, false);
  return validate_batch(session, batch, session_astra(session) ? session->config->astra.devices : 0, &score);
}

/* What the process has used so far. */
static BenchSample usage_now(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return (BenchSample){0};
  struct timeval user = usage.ru_utime, system = usage.ru_stime;
  return (BenchSample){.processor_seconds = (double)(user.tv_sec + system.tv_sec) + 1e-6 * (double)(user.tv_usec + system.tv_usec),
                       .faults = (double)usage.ru_minflt};
}

/* One step; kept as a sample or, as it touches memory for the first time, not. */
static Status bench_step_run(BenchStep *bench, bool keep) {
  Session *session = bench->session;
  TaskBatch batch;
  BenchSample before = usage_now();
  size_t floor = arena_mark(session->arena);
  session->plain = bench->plain;
  arena_watch(session->arena);
  matmul_reset_count();
  bench_profile_watch(bench->profiled ? &bench->profile : NULL, session->tape);
  double begun = clock_now(), waited = tape_clock(session->tape);
  TRY(session->task->source->next(session, TASK_TRAIN, &batch));
  tape_note(session->tape, "wait for data", TAPE_AROUND, waited);
  TRY(bench->forward ? forward_once(session, &batch) : train_once(session, &batch));
  MatmulCount products = matmul_counted();
  BenchSample sample = usage_now();
  session->plain = false;
  if (arena_watched(session->arena) - floor > bench->activations) bench->activations = arena_watched(session->arena) - floor;
  sample.seconds = clock_now() - begun;
  sample.processor_seconds -= before.processor_seconds;
  sample.faults -= before.faults;
  sample.product_seconds = products.seconds;
  sample.flops = products.flops;
  sample.units = batch.units;
  if (keep && bench->count < bench->max) bench->samples[bench->count++] = sample;
  if (!keep) bench->profile.parts = 0;
  return STATUS_OK;
}

/* ---------------------------------------------------------------- summary */

typedef struct BenchSummary {
  double median, min, mean;              /* seconds a step */
  double spread;                         /* half the range of the middle half of the steps, as a part of the median */
  double processor, faults;              /* of a step, on average: seconds of all threads together, page faults */
  double product_share;                  /* of the time, inside matrix products */
  double flops, flops_per_second;        /* of the products: a step's, and while inside them */
  double units_per_second;               /* images, tokens: at the median */
  double activations, weights, training; /* bytes: arena, weights, gradients and moments */
} BenchSummary;

static int by_seconds(const void *a, const void *b) {
  double x = ((const BenchSample *)a)->seconds, y = ((const BenchSample *)b)->seconds;
  return (x > y) - (x < y);
}

/* Sorts the samples by time. */
static void bench_step_summary(BenchStep *bench, BenchSummary *summary) {
  BenchSample sum = {0};
  int64_t count = bench->count;
  qsort(bench->samples, (size_t)count, sizeof *bench->samples, by_seconds);
  for (int64_t i = 0; i < count; i++) {
    sum.seconds += bench->samples[i].seconds;
    sum.product_seconds += bench->samples[i].product_seconds;
    sum.flops += bench->samples[i].flops;
    sum.processor_seconds += bench->samples[i].processor_seconds;
    sum.faults += bench->samples[i].faults;
  }
  double block = (double)model_params(bench->session->model)->total * sizeof(real);
  *summary = (BenchSummary){.activations = (double)bench->activations, .weights = block, .training = bench->forward ? 0 : 3 * block};
  if (count == 0) return;
  summary->median = (bench->samples[(count - 1) / 2].seconds + bench->samples[count / 2].seconds) / 2;
  summary->min = bench->samples[0].seconds;
  summary->mean = sum.seconds / (double)count;
  summary->spread = (bench->samples[3 * (count - 1) / 4].seconds - bench->samples[(count - 1) / 4].seconds) / 2 / summary->median;
  summary->product_share = sum.product_seconds / sum.seconds;
  summary->flops = sum.flops / (double)count;
  summary->processor = sum.processor_seconds / (double)count;
  summary->faults = sum.faults / (double)count;
  summary->flops_per_second = sum.product_seconds > 0 ? sum.flops / sum.product_seconds : 0;
  summary->units_per_second = (double)bench->samples[0].units / summary->median; /* all batches are alike */
}

/* ---- What astra-bench step prints ---- */

/* What astra-bench step prints. */
/* One list (FIGURES) serves both. */

enum { BENCH_PLAIN, BENCH_ASTRA, BENCH_SIDES };

typedef struct BenchReport {
  bool forward, profile;
  int sides;       /* 1: the plain model alone */
  Session session; /* of both sides */
  BenchStep bench[BENCH_SIDES];
  double resident[BENCH_SIDES]; /* bytes: most that the process had held when this side (after those before it) had run */
  BenchPeak peak;
} BenchReport;

static const char *const SIDE_NAMES[BENCH_SIDES] = {"plain", "astra"};

typedef enum Figure {
  MEDIAN,
  MIN,
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
    [MIN] = {"milliseconds, min", "milliseconds_min"},
    [SPREAD] = {"  middle half of steps, +-%", "spread_percent"},
    [PROCESSOR] = {"milliseconds of all threads", "processor_milliseconds"},
    [SPEED] = {"%s per second", "%s_per_second"},
    [SHARE] = {"time inside matrix products, %", "product_percent"},
    [FAULTS] = {"page faults", "page_faults"},
    [GFLOP] = {"GFLOP of matrix products", "gflop"},
    [RATE] = {"GFLOP/s inside them", "gflop_per_second"},
    [PART_OF_PEAK] = {"  of the machine's best, %", "peak_percent"},
    [ARENA] = {"MiB of activations", "activation_mib"},
    [WEIGHTS] = {"MiB of weights", "weight_mib"},
    [TRAINING] = {"MiB of gradients and moments", "training_mib"},
    [TOGETHER] = {"MiB together", "together_mib"},
    [RESIDENT] = {"peak resident MiB until then", "resident_mib"},
};

enum { FIGURE_NAME = 48 };

/* %s stands for the unit of speed. */
static const char *named(const char *pattern, const Session *session, char text[FIGURE_NAME]) {
  size_t at = strcspn(pattern, "%");
  if (pattern[at] == '\0' || pattern[at + 1] != 's') return pattern;
  snprintf(text, FIGURE_NAME, "%.*s%s%s", (int)at, pattern, session->task->source->name.units, pattern + at + 2);
  return text;
}

static PeakNumbers numbers_of(const Session *session) { return session->options.precision == PRECISION_BF16 ? PEAK_BF16 : PEAK_F32; }

static void figures_of(BenchReport *report, int side, double figure[FIGURES_COUNT]) {
  const double mib = 1048576, giga = 1e9;
  BenchSummary summary;
  bench_step_summary(&report->bench[side], &summary);
  figure[MEDIAN] = 1e3 * summary.median;
  figure[MIN] = 1e3 * summary.min;
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
  if (session->task->source->texts)
    snprintf(text, FIGURE_NAME, "%lld token%s", (long long)session->tokens, text_plural(session->tokens));
  else
    snprintf(text, FIGURE_NAME, "%lldx%lld", side, side);
  return text;
}

static Status bench_report_text(BenchReport *report) {
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
    printf("astra:   the paper's recipe, %d group%s of %d codewords, %d-%d devices, noise %g\n", astra->astra.groups,
           text_plural(astra->astra.groups), astra->astra.codebook_size, astra->astra.devices_min, astra->astra.devices,
           astra->astra.noise);
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

/* one object on one line */
static Status bench_report_json(BenchReport *report) {
  double figures[BENCH_SIDES][FIGURES_COUNT];
  const Session *session = &report->session;
  bool text_model = session->task->source->texts;
  json_t *object =
      json_pack("{s:o, s:I, s:I, s:b, s:s, s:I}", "model", json_build_string(session->options.model), text_model ? "context" : "image_size",
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

/* ---- astra-bench step ---- */

static const char STEP_USAGE[] = "astra-bench step --model NAME [--batch N] [--groups G] [options]";
static const char STEP_ABOUT[] =
    "Times real training steps on drawn images or tokens and random weights; with --groups also of the paper's recipe, in turns.";

enum { STEP_OPTIONS_MAX = 32, STEPS_MAX = 100000 };

typedef struct StepCommand {
  TrainCommand shared;
  int64_t steps, warm_up;
  bool forward, profile;
} StepCommand;

static void set_defaults(StepCommand *command, Option table[TRAIN_OPTIONS_MAX]) {
  *command = (StepCommand){.steps = 5, .warm_up = 1};
  train_options_table(&command->shared, table);
  command->shared.train.batch = 8;
}

static void step_options(StepCommand *command, Option options[STEP_OPTIONS_MAX]) {
  static const char *const what[] = {"model", "image-size", "context", "batch", NULL};
  static const char *const astra[] = {"groups",      "codebook-size", "devices",          "map",         "site", "counts", "concentration",
                                      "class-token", "noise",         "noise-covariance", "vq-gradient", NULL};
  static const char *const run[] = {"precision", "backend", "seed", "threads", "json", NULL};
  const Option length = {
      OPTION_INT, "length", 0, &command->shared.train.context, "N", .min = 0, .max = 1 << 20, .help = "the same as --context"};
  const Option own[] = {
      {OPTION_INT, "steps", 0, &command->steps, "N", .min = 1, .max = STEPS_MAX, .help = "measured steps per kind"},
      {OPTION_INT, "warm-up", 0, &command->warm_up, "N", .min = 0, .max = STEPS_MAX, .help = "unmeasured steps before them"},
      {OPTION_FLAG, "forward", 0, &command->forward, .help = "forward passes only, without a tape"},
      {OPTION_FLAG, "profile", 0, &command->profile, .help = "report the time per kind of operation"},
  };
  Option table[TRAIN_OPTIONS_MAX];
  set_defaults(command, table);
  Option *to = options;
  *to++ = (Option){OPTION_GROUP, .help = "What to run"};
  to += train_options_select(table, what, to);
  *to++ = length;
  *to++ = (Option){OPTION_GROUP, .help = "ASTRA"};
  to += train_options_select(table, astra, to);
  *to++ = (Option){OPTION_GROUP, .help = "Measuring"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *to++ = own[i];
  to += train_options_select(table, run, to);
  *to = (Option){.kind = OPTION_GROUP};
}

static Status parse(StepCommand *command, int argc, char **argv) {
  Option options[STEP_OPTIONS_MAX];
  step_options(command, options);
  TRY(cli_parse(options, argc, argv));
  return train_options_need_model(&command->shared.train, NULL);
}

/* ---------------------------------------------------------------- the run */

static Status open_side(const StepCommand *command, BenchReport *report, int side) {
  TRY(bench_step_open(&report->bench[side], &report->session, side == BENCH_PLAIN, command->forward, command->steps));
  for (int64_t i = 0; i < command->warm_up; i++) TRY(bench_step_run(&report->bench[side], false));
  report->resident[side] = memory_peak();
  report->bench[side].profiled = command->profile; /* not of the warm-up */
  return STATUS_OK;
}

static Status measure(StepCommand *command, BenchReport *report) {
  char name[BENCH_NAME];
  TrainOptions train = command->shared.train;
  TRY(bench_session_samples(&train, name));
  TRY(bench_peak_measure(&report->peak));
  TRY(bench_peak_memory(&report->peak)); /* the last before the model: what is resident at most counts from here on */
  report->sides = train.groups > 0 ? BENCH_SIDES : 1;
  TRY(bench_session_open(&report->session, &train, command->forward));
  for (int side = 0; side < report->sides; side++) TRY(open_side(command, report, side));
  for (int64_t i = 0; i < command->steps; i++) /* in turns: what disturbs one disturbs the other */
    for (int side = 0; side < report->sides; side++) TRY(bench_step_run(&report->bench[side], true));
  return bench_peak_measure(&report->peak);
}

/* ---------------------------------------------------------------- the program */

static Status run_step(int argc, char **argv) {
  StepCommand command;
  Option options[STEP_OPTIONS_MAX];
  step_options(&command, options);
  if (cli_helped(options, STEP_USAGE, STEP_ABOUT, argc, argv)) return STATUS_OK;
  TRY(parse(&command, argc, argv));
  TRY(cli_check_kernels(command.shared.backend));
  TRY(threads_start((int)command.shared.train.threads));
  BenchReport report = {.forward = command.forward, .profile = command.profile};
  Status status = measure(&command, &report);
  if (status == STATUS_OK) status = command.shared.json ? bench_report_json(&report) : bench_report_text(&report);
  for (int side = 0; side < BENCH_SIDES; side++) bench_step_close(&report.bench[side]);
  session_close(&report.session);
  threads_stop();
  return status;
}

const CliCommand bench_step_command = {"step", "time a training step or a forward pass, plain and with ASTRA", run_step};
