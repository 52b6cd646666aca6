/* astra-bench: measurements of our own. `step`: how long a training step (or a forward pass) takes, plain and with ASTRA in turns, and how
 * much of it is matrix products. Needs no data: pictures or tokens are drawn and weights are random. `latency` is bench_latency.c's. */
#include "autograd/kernels/matmul.h"
#include "base/memory.h"
#include "cli/bench_forward.h"
#include "cli/bench_kmeans.h"
#include "cli/bench_latency.h"
#include "cli/bench_machine.h"
#include "cli/bench_op.h"
#include "cli/bench_quantize.h"
#include "cli/bench_report.h"
#include "cli/bench_scaling.h"
#include "cli/cli.h"
#include "cli/train_options.h"

static const char STEP_USAGE[] = "astra-bench step --model NAME [--batch N] [--groups G] [options]";
static const char STEP_ABOUT[] =
    "Times real training steps on drawn pictures or tokens and random weights; with --groups the plain model's in turns.";

enum { STEP_OPTIONS_MOST = 32, STEPS_MOST = 100000 };

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
  static const char *const what[] = {"model", "image-size", "context", "batch", NULL};
  static const char *const astra[] = {"groups",      "codebook-size", "devices",          "map",         "site", "counts", "concentration",
                                      "class-token", "noise",         "noise-covariance", "vq-gradient", NULL};
  static const char *const run[] = {"precision", "backend", "seed", "threads", "json", NULL};
  const Option length = {
      OPTION_INT, "length", 0, &command->shared.train.context, "N", .least = 0, .most = 1 << 20, .help = "the same as --context"};
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
  *to++ = length;
  *to++ = (Option){OPTION_GROUP, .help = "ASTRA"};
  to += train_options_select(table, astra, to);
  *to++ = (Option){OPTION_GROUP, .help = "Measuring"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *to++ = own[i];
  to += train_options_select(table, run, to);
  *to = (Option){.kind = OPTION_GROUP};
}

static Status parse(StepCommand *command, int argc, char **argv) {
  Option options[STEP_OPTIONS_MOST];
  step_options(command, options);
  TRY(cli_parse(options, argc, argv));
  return train_options_need_model(&command->shared.train, NULL);
}

/* ---------------------------------------------------------------- the run */

static Status open_side(const StepCommand *command, BenchReport *report, int side) {
  TRY(bench_step_open(&report->bench[side], &report->session, side == BENCH_PLAIN, command->forward, command->steps));
  for (int64_t i = 0; i < command->warm_up; i++) TRY(bench_step_run(&report->bench[side], false));
  report->resident[side] = memory_peak();
  if (command->profile) bench_step_profile(&report->bench[side]);
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
  Option options[STEP_OPTIONS_MOST];
  step_options(&command, options);
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, STEP_USAGE, STEP_ABOUT, stdout);
    return STATUS_OK;
  }
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

static const CliCommand COMMANDS[] = {
    {"step", "time a training step or a forward pass, plain and with ASTRA", run_step},
    {"forward", "time the forward pass of a plain model, and decoding", bench_forward_run},
    {"kmeans", "time the iterations of K-means", bench_kmeans_run},
    {"op", "time each operation by itself", bench_op_run},
    {"quantize", "accuracy and latency of checkpoints with weights of 32, 8 and 4 bits", bench_quantize_run},
    {"peak", "peak rates of this machine: matrix products and memory, per thread count", bench_machine_run},
    {"scaling", "predict training on 1 to 64 ranks from a step of one; under mpirun, measure as well", bench_scaling_run},
    {"latency", "the paper's latency figures: devices measured, the network computed", bench_latency_run},
    {NULL, NULL, NULL}};

static void help(FILE *stream) {
  fputs("usage: astra-bench COMMAND [options]\nMeasures this toolkit on this machine.\n\nCommands\n", stream);
  cli_commands_help(COMMANDS, stream);
  fputs("\n'astra-bench COMMAND --help' prints its options.\n", stream);
}

int main(int argc, char **argv) {
  matmul_start();
  return cli_run(argc, argv, &(CliProgram){.name = "astra-bench", .commands = COMMANDS, .help = help});
}
