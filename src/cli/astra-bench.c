/* astra-bench: measurements of our own. `step`: how long a training step (or a forward pass) takes, plain and with ASTRA in turns, and how
 * much of it is matrix products. Needs no data: pictures are drawn and weights are random. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/log.h"
#include "cli/bench_peak.h"
#include "cli/cli.h"
#include "cli/train_options.h"
#include "train/bench_step.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char STEP_USAGE[] = "astra-bench step --model NAME [--batch N] [--groups G] [options]";
static const char STEP_ABOUT[] = "Times real training steps on drawn pictures and random weights; with --groups the plain model's in turns.";

enum { PLAIN, ASTRA, SIDES, STEP_OPTIONS_MOST = 32, CLASSES = 100, STEPS_MOST = 100000 };
static const char *const SIDE_NAMES[SIDES] = {"plain", "astra"};

typedef struct StepCommand {
  TrainCommand shared;
  int64_t steps, warm_up;
  bool forward, profile;
} StepCommand;

static void set_defaults(StepCommand *command, Option table[TRAIN_OPTIONS_MOST]) {
  *command = (StepCommand){.steps = 5, .warm_up = 1};
  train_options_table(&command->shared, table);
  command->shared.train.batch = 8;
}

static void step_options(StepCommand *command, Option options[STEP_OPTIONS_MOST]) {
  static const char *const what[] = {"model", "image-size", "batch", NULL};
  static const char *const astra[] = {"groups",     "codebook-size",    "devices",     "map",  "counts", "concentration",
                                      "class-token", "noise", "noise-covariance", "vq-gradient", NULL};
  static const char *const run[] = {"seed", "threads", "json", NULL};
  const Option own[] = {
      {OPTION_INT, "steps", 0, &command->steps, "N", .least = 1, .most = STEPS_MOST, .help = "measured steps of each kind"},
      {OPTION_INT, "warm-up", 0, &command->warm_up, "N", .least = 0, .most = STEPS_MOST, .help = "steps before them"},
      {OPTION_FLAG, "forward", 0, &command->forward, .help = "forward passes only, with nothing recorded"},
      {OPTION_FLAG, "profile", 0, &command->profile, .help = "time of each kind of operation"},
  };
  Option table[TRAIN_OPTIONS_MOST];
  set_defaults(command, table);
  Option *to = options;
  *to++ = (Option){OPTION_GROUP, .help = "What to run"};
  to += train_options_select(table, what, to);
  *to++ = (Option){OPTION_GROUP, .help = "ASTRA"};
  to += train_options_select(table, astra, to);
  *to++ = (Option){OPTION_GROUP, .help = "Measuring"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *to++ = own[i];
  to += train_options_select(table, run, to);
  *to = (Option){OPTION_GROUP};
}

static Status parse(StepCommand *command, int argc, char **argv) {
  Option options[STEP_OPTIONS_MOST];
  const char **positional = calloc((size_t)argc, sizeof *positional);
  if (positional == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  int count = 0;
  step_options(command, options);
  Status status = options_parse(options, argc, argv, positional, &count);
  if (status == STATUS_OK && count > 0) status = status_set(STATUS_BAD_USAGE, "unexpected argument \"%s\"", positional[0]);
  free(positional);
  if (status == STATUS_OK && command->shared.train.model == NULL)
    status = status_set(STATUS_BAD_USAGE, "--model is missing: %s, or a checkpoint's directory", config_preset_names());
  return status;
}

/* ---------------------------------------------------------------- the run */

typedef struct StepRun {
  StepCommand *command;
  char dataset[64];
  BenchStep bench[SIDES];
  bool open[SIDES];
  BenchSummary summary[SIDES];
  BenchPeak peak;
  double resident[SIDES]; /* bytes: most that the process ever held, when this side (and those before it) had run once */
} StepRun;

static double most_resident(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : 0;
}

/* Pictures of the size that the model takes, so that no time goes into resizing them. */
static Status name_pictures(StepRun *run) {
  TrainOptions *train = &run->command->shared.train;
  ModelConfig config;
  TRY(files_is_dir(train->model) ? config_load(&config, train->model) : config_preset(&config, train->model, CLASSES));
  long long side = train->image_size > 0 ? train->image_size : config.image;
  config_release(&config);
  snprintf(run->dataset, sizeof run->dataset, "synthetic:%lldx%lld:%d:%lld", side, side, CLASSES, 4LL * train->batch);
  train->dataset = run->dataset;
  train->init = "random";
  train->augment = false;
  return STATUS_OK;
}

static Status open_side(StepRun *run, int side) {
  TrainOptions options = run->command->shared.train;
  if (side == PLAIN) options.groups = 0;
  TRY(bench_step_open(&run->bench[side], &options, run->command->forward, run->command->steps));
  run->open[side] = true;
  for (int64_t i = 0; i < run->command->warm_up; i++) TRY(bench_step_run(&run->bench[side], false));
  run->resident[side] = most_resident();
  return STATUS_OK;
}

static Status measure(StepRun *run) {
  TRY(name_pictures(run));
  TRY(bench_peak_measure(&run->peak));
  TRY(open_side(run, PLAIN));
  if (run->command->shared.train.groups > 0) TRY(open_side(run, ASTRA));
  for (int side = 0; side < SIDES; side++)
    if (run->open[side] && run->command->profile) bench_step_profile(&run->bench[side]);
  for (int64_t i = 0; i < run->command->steps; i++) /* in turns: what disturbs one disturbs the other */
    for (int side = 0; side < SIDES; side++)
      if (run->open[side]) TRY(bench_step_run(&run->bench[side], true));
  TRY(bench_peak_measure(&run->peak));
  for (int side = 0; side < SIDES; side++)
    if (run->open[side]) bench_step_summary(&run->bench[side], &run->summary[side]);
  return STATUS_OK;
}

/* ---------------------------------------------------------------- printing */

typedef struct Line {
  const char *name, *json;
  double value[SIDES];
  int digits;
} Line;

enum { LINES = 11 };

static void make_lines(const StepRun *run, Line lines[LINES]) {
  const char *step = run->command->forward ? "forward pass" : "step";
  (void)step;
  for (int side = 0; side < SIDES; side++) {
    const BenchSummary *s = &run->summary[side];
    double together = s->activations + s->weights + s->training, mib = 1048576;
    const Line of_side[LINES] = {
        {"milliseconds, median", "milliseconds", {1e3 * s->median}, 1},
        {"milliseconds, least", "milliseconds_least", {1e3 * s->least}, 1},
        {"images a second", "images_per_second", {s->images_per_second}, 2},
        {"share inside matrix products, %", "product_share", {100 * s->product_share}, 1},
        {"GFLOP in products", "gflop", {s->flops / 1e9}, 1},
        {"GFLOP/s inside products", "gflops", {s->flops_per_second / 1e9}, 1},
        {"MiB of activations (arena)", "arena_mib", {s->activations / mib}, 1},
        {"MiB of weights", "weights_mib", {s->weights / mib}, 1},
        {"MiB of gradients and moments", "training_mib", {s->training / mib}, 1},
        {"MiB together", "together_mib", {together / mib}, 1},
        {"MiB most resident (process so far)", "resident_mib", {run->resident[side] / mib}, 1},
    };
    for (int i = 0; i < LINES; i++) {
      double value = of_side[i].value[0], other = lines[i].value[PLAIN];
      lines[i] = of_side[i];
      lines[i].value[PLAIN] = side == PLAIN ? value : other;
      lines[i].value[side] = value;
    }
  }
}
