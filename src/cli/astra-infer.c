/* astra-infer: classifies pictures on several processes of this machine, measures accuracy over a data set through them, and proves that
 * they compute what training emulated. */
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "cli/cli.h"
#include "data/data_paths.h"
#include "infer/report.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct Settings {
  const char *checkpoint, *split, *dataset, *data_dir, *file;
  int64_t nodes, threads, batch, top, samples;
  double timeout;
  bool json, quiet, verbose;
} Settings;

/* A run of any command: what is open. */
typedef struct Run {
  char *directory;
  Weights weights;
  Partition partition;
  Leader *leader;
  Dataset *set;
} Run;

static volatile sig_atomic_t stop;
static void ask_to_stop(int number) { stop = number; }

/* The first signal ends the run with all its nodes; a second one has its usual effect. A hang-up that nohup ignores stays ignored. */
static void catch_signals(void) {
  struct sigaction hang_up;
  struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

/* ---- options: one table for all commands, each takes its part ---- */

enum { FOR_PICTURES = 1, FOR_EVAL = 2, FOR_SELFTEST = 4, FOR_ALL = 7, MOST_OPTIONS = 32 };

typedef struct Row {
  int commands;
  Option option;
} Row;

static void select_options(Settings *s, int command, Option *options) {
  const Row rows[] = {
      {FOR_ALL, {OPTION_GROUP, .help = "What to run:"}},
      {FOR_ALL,
       {OPTION_TEXT, "checkpoint", 'c', &s->checkpoint, "DIR",
        .help = "directory of the model, or the name of an installed one (required)"}},
      {FOR_EVAL,
       {OPTION_TEXT, "dataset", 'd', &s->dataset, "NAME", .help = "cifar100, cifar10, cifar100-sample, folder:DIR or csv:FILE (required)"}},
      {FOR_EVAL, {OPTION_TEXT, "data-dir", 0, &s->data_dir, "DIR", .help = "where the data set lies"}},
      {FOR_EVAL,
       {OPTION_INT, "samples", 's', &s->samples, "N", .least = 0, .most = 1e12,
        .help = "only the first N pictures of the test part; 0: all"}},
      {FOR_SELFTEST, {OPTION_TEXT, "file", 'f', &s->file, "FILE", .help = "samples to compare with, instead of DIR/selftest.safetensors"}},
      {FOR_ALL, {OPTION_GROUP, .help = "Nodes:"}},
      {FOR_PICTURES | FOR_EVAL,
       {OPTION_INT, "nodes", 'n', &s->nodes, "N", .least = 0, .most = WIRE_NODES,
        .help = "processes; 0: as many as the model was trained for"}},
      {FOR_PICTURES | FOR_EVAL,
       {OPTION_TEXT, "split", 0, &s->split, "LIST", .help = "share of the tokens of each node, e.g. 3,1,1,1; without it: even"}},
      {FOR_ALL,
       {OPTION_INT, "threads", 't', &s->threads, "N", .least = 0, .most = 256,
        .help = "of each node; 0: one, or all cores for a single node"}},
      {FOR_ALL,
       {OPTION_REAL, "timeout", 0, &s->timeout, "SECONDS", .least = 0.1, .most = 86400,
        .help = "silence of a node after which the run fails"}},
      {FOR_PICTURES | FOR_EVAL,
       {OPTION_INT, "batch", 'b', &s->batch, "N", .least = 1, .most = 65536, .help = "most pictures of one request"}},
      {FOR_ALL, {OPTION_GROUP, .help = "Output:"}},
      {FOR_PICTURES, {OPTION_INT, "top", 0, &s->top, "N", .least = 1, .most = RANKING_MOST, .help = "classes to print for each picture"}},
      {FOR_ALL, {OPTION_FLAG, "json", 'j', &s->json, .help = "one JSON object on the last line instead of text"}},
      {FOR_ALL, {OPTION_FLAG, "quiet", 'q', &s->quiet, .help = "no progress, no table of nodes"}},
      {FOR_ALL, {OPTION_FLAG, "verbose", 'v', &s->verbose, .help = "print the process numbers of the nodes to stderr"}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].commands & command) *options++ = rows[i].option;
  }
  *options = (Option){.kind = OPTION_GROUP};
}

static void set_defaults(Settings *s, int command) { *s = (Settings){.batch = command == FOR_EVAL ? 64 : 8, .top = 5, .timeout = 30}; }

static void print_help(int command, const char *usage, const char *about, FILE *stream) {
  Settings settings;
  Option options[MOST_OPTIONS];
  set_defaults(&settings, command);
  select_options(&settings, command, options);
  options_help(options, usage, about, stream);
}

static Status parse(Settings *s, int command, int argc, char **argv, const char **positional, int *count) {
  Option options[MOST_OPTIONS];
  set_defaults(s, command);
  select_options(s, command, options);
  TRY(options_parse(options, argc, argv, positional, count));
  if (command != FOR_PICTURES && *count > 0) return status_set(STATUS_BAD_USAGE, "%s: %s takes options only", positional[0], argv[0]);
  if (!s->checkpoint) return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: the directory of the model to run");
  if (command == FOR_EVAL && !s->dataset)
    return status_set(STATUS_BAD_USAGE, "--dataset NAME is missing: the pictures to judge the model by");
  if (command == FOR_PICTURES && *count == 0) return status_set(STATUS_BAD_USAGE, "no picture given");
  if (command == FOR_PICTURES && s->batch > *count) s->batch = *count;
  log_quiet(s->quiet);
  return STATUS_OK;
}

/* ---- common parts of a run ---- */

static Status find_checkpoint(const Settings *s, Run *run) {
  if (!files_is_dir(s->checkpoint)) return data_paths_find("checkpoints", s->checkpoint, NULL, &run->directory);
  run->directory = strdup(s->checkpoint);
  return run->directory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a path");
}

static int choose_nodes(const Settings *s, const Run *run) {
  int named = s->split ? partition_split_length(s->split) : 0;
  if (s->nodes > 0) return (int)s->nodes;
  if (named > 0) return named;
  return run->weights.books && run->weights.config->astra.devices > 0 ? run->weights.config->astra.devices : 1;
}

static Status choose_partition(const Settings *s, Run *run) {
  int64_t tokens = config_tokens(run->weights.config);
  int nodes = choose_nodes(s, run);
  if (s->split) return partition_split(&run->partition, tokens, nodes, s->split);
  return partition_even(&run->partition, tokens, nodes);
}

static LeaderOptions leader_options(const Settings *s, int nodes) {
  int threads = s->threads > 0 ? (int)s->threads : nodes == 1 ? 0 : 1;
  return (LeaderOptions){.batch_most = s->batch, .timeout = s->timeout, .threads = threads, .stop = &stop};
}

static Status start(const Settings *s, Run *run) {
  LeaderOptions options;
  catch_signals();
  TRY(choose_partition(s, run));
  options = leader_options(s, run->partition.nodes);
  TRY(leader_start(&run->leader, &run->weights, &run->partition, &options));
  for (int d = 0; s->verbose && d < leader_nodes(run->leader); d++)
    fprintf(stderr, "node %d is pid %d\n", d, (int)leader_pid(run->leader, d));
  return STATUS_OK;
}

static Status load(const Settings *s, Run *run) {
  TRY(find_checkpoint(s, run));
  return weights_load(&run->weights, run->directory);
}

static Status print_json(json_t *value, const Run *run) {
  if (value) json_object_set_new(value, "checkpoint", json_string(run->directory));
  char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(value);
  if (!text) return status_set(STATUS_NO_MEMORY, "no memory for the JSON output");
  puts(text);
  free(text);
  return STATUS_OK;
}

/* ---- astra-infer PICTURE... ---- */

static Status report_failures(const PictureResult *results, int count) {
  int failed = 0;
  for (int i = 0; i < count; i++) {
    if (results[i].read) continue;
    log_error("%s", results[i].message);
    failed++;
  }
  if (!failed) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%d of %d pictures could not be read", failed, count);
}

static Status print_pictures(const Settings *s, const Run *run, const PictureResult *results, int count, double seconds) {
  if (s->json) {
    json_t *value = json_pack("{s:o, s:o, s:f}", "pictures", report_pictures_json(&run->weights, results, count), "nodes",
                              report_nodes_json(run->leader), "milliseconds", 1e3 * seconds);
    return print_json(value, run);
  }
  report_pictures(stdout, &run->weights, results, count);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, run->leader);
  return STATUS_OK;
}

static Status classify(const Settings *s, Run *run, const char *const *paths, int count) {
  PictureResult *results = calloc((size_t)count, sizeof *results);
  if (!results) return status_set(STATUS_NO_MEMORY, "no memory for %d pictures", count);
  double seconds;
  Status status = load(s, run);
  if (status == STATUS_OK) status = start(s, run);
  if (status == STATUS_OK) status = pictures_classify(run->leader, paths, count, s->batch, (int)s->top, results, &seconds);
  if (status == STATUS_OK) status = print_pictures(s, run, results, count, seconds);
  if (status == STATUS_OK) status = report_failures(results, count);
  free(results);
  return status;
}

/* ---- astra-infer eval ---- */

static Status evaluate(const Settings *s, Run *run, const char *const *paths, int count) {
  Evaluation evaluation;
  (void)paths, (void)count;
  TRY(dataset_open(&run->set, s->dataset, s->data_dir, DATASET_TEST));
  TRY(load(s, run));
  TRY(start(s, run));
  TRY(evaluate_run(run->leader, run->set, s->samples, s->batch, s->quiet, &evaluation));
  if (s->json) {
    json_t *value = report_evaluation_json(run->leader, &evaluation);
    if (value) json_object_set_new(value, "dataset", json_string(s->dataset));
    return print_json(value, run);
  }
  report_evaluation(stdout, run->leader, &evaluation);
  if (s->quiet) return STATUS_OK;
  putchar('\n');
  report_nodes(stdout, run->leader);
  return STATUS_OK;
}

/* ---- astra-infer selftest ---- */

static Status prove(const Settings *s, Run *run, const char *const *paths, int count) {
  SelftestReport report;
  (void)paths, (void)count;
  TRY(load(s, run));
  catch_signals();
  LeaderOptions options = leader_options(s, run->weights.books ? 2 : 1);
  TRY(selftest_run(&run->weights, run->directory, s->file, &options, &report));
  if (s->json)
    TRY(print_json(report_selftest_json(&report), run));
  else
    report_selftest(stdout, &report);
  return report.passed ? STATUS_OK : status_set(STATUS_NUMERIC, "the processes do not compute what training emulated: %s", report.reason);
}

/* ---- commands ---- */

/* Parses, runs and cleans up whatever way it ends. */
static Status run_command(int command, int argc, char **argv, Status (*body)(const Settings *, Run *, const char *const *, int)) {
  Settings settings;
  Run run = {0};
  int count = 0;
  const char **arguments = calloc((size_t)argc, sizeof *arguments);
  if (!arguments) return status_set(STATUS_NO_MEMORY, "no memory for %d arguments", argc);
  Status status = parse(&settings, command, argc, argv, arguments, &count);
  if (status == STATUS_OK) status = body(&settings, &run, arguments, count);
  leader_stop(run.leader);
  partition_release(&run.partition);
  weights_release(&run.weights);
  dataset_close(run.set);
  free(run.directory);
  free(arguments);
  return status;
}

static Status run_pictures(int argc, char **argv) { return run_command(FOR_PICTURES, argc, argv, classify); }

static Status run_eval(int argc, char **argv) {
  if (!cli_help_wanted(argc, argv)) return run_command(FOR_EVAL, argc, argv, evaluate);
  print_help(FOR_EVAL, "astra-infer eval --checkpoint DIR --dataset NAME [OPTION...]",
             "Accuracy over the test part of a data set, through the real processes.", stdout);
  return STATUS_OK;
}

static Status run_selftest(int argc, char **argv) {
  if (!cli_help_wanted(argc, argv)) return run_command(FOR_SELFTEST, argc, argv, prove);
  print_help(FOR_SELFTEST, "astra-infer selftest --checkpoint DIR [OPTION...]",
             "Repeats a checkpoint's sample pictures on real processes and compares codes and logits with training's.", stdout);
  return STATUS_OK;
}

static const CliCommand commands[] = {
    {"eval", "accuracy over a data set", run_eval}, {"selftest", "compare the processes with what training emulated", run_selftest}, {0}};

static void help(FILE *stream) {
  print_help(FOR_PICTURES, "astra-infer --checkpoint DIR [OPTION...] PICTURE...",
             "Classifies pictures on several processes, each of which holds a share of the tokens.", stream);
  fprintf(stream, "\nCommands (astra-infer COMMAND --help):\n");
  cli_commands_help(commands, stream);
}

int main(int argc, char **argv) {
  matmul_start();
  const CliProgram program = {"astra-infer", commands, run_pictures, help};
  return cli_run(argc, argv, &program);
}
