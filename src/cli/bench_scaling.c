/* The command scaling: how fast training would be on R ranks over a given link, from a measured step of one rank (train/bench_step.h).
 * Under mpirun the ranks are there: their link and their steps are measured, and stand beside what the model says of them. */
#include "base/log.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/network_options.h"
#include "cli/train_options.h"
#include "nn/json_build.h"
#include "train/bench_step.h"
#include "train/data_parallel.h"
#include "train/plan.h"
#include <stdlib.h>
#include <string.h>

static const char USAGE[] = "astra-bench scaling --model NAME [--batch N] [--ranks LIST] [--link RATE,LATENCY] [options]";
static const char ABOUT[] = "Predicts training on several machines from a measured step of one. Under mpirun measures the job as well.";

enum { OPTIONS_MAX = 32, ROWS_MAX = 32, RANKS_MAX = 4096, STEPS_MAX = 1000 };

typedef struct ScalingCommand {
  TrainCommand shared;
  const char *ranks, *link;
  int64_t steps;
  bool strong;
  int list[ROWS_MAX], count; /* of --ranks */
  ScalingLink network;
} ScalingCommand;

typedef struct Row {
  int ranks;
  int64_t batch; /* of a rank */
  ScalingResult predicted;
  double units, efficiency; /* a second, of all ranks; against one rank that had as much of this work */
} Row;

static void scaling_options(ScalingCommand *command, Option options[OPTIONS_MAX]) {
  static const char *const what[] = {"model", "image-size", "context", "batch", "wire", "shard-optimizer", NULL};
  static const char *const astra[] = {"groups", "codebook-size", "devices", "site", "noise", "noise-covariance", "vq-gradient", NULL};
  static const char *const run[] = {"precision", "backend", "seed", "threads", "json", NULL};
  const Option own[] = {
      {OPTION_TEXT, "ranks", 0, &command->ranks, "LIST", .help = "numbers of ranks to predict: 1,2,4,8,16,32,64"},
      {OPTION_TEXT, "link", 0, &command->link, "RATE,TIME", .help = "rate of each rank's link and its one-way delay: 1gbit,0.1ms"},
      {OPTION_FLAG, "strong", 0, &command->strong, .help = "strong scaling: --batch is the total over all ranks"},
      {OPTION_INT, "steps", 0, &command->steps, "N", .min = 1, .max = STEPS_MAX, .help = "measured steps; the fastest counts"},
  };
  Option table[TRAIN_OPTIONS_MAX], *to = options;
  *command = (ScalingCommand){.ranks = "1,2,4,8,16,32,64", .link = "1gbit,0.1ms", .steps = 5};
  train_options_table(&command->shared, table);
  command->shared.train.batch = 8;
  *to++ = (Option){OPTION_GROUP, .help = "What to run"};
  to += train_options_select(table, what, to);
  *to++ = (Option){OPTION_GROUP, .help = "ASTRA"};
  to += train_options_select(table, astra, to);
  *to++ = (Option){OPTION_GROUP, .help = "Ranks"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *to++ = own[i];
  to += train_options_select(table, run, to);
  *to = (Option){.kind = OPTION_GROUP};
}

static Status parse_link(ScalingCommand *command) {
  char rate[64];
  const char *comma = strchr(command->link, ',');
  size_t length = comma ? (size_t)(comma - command->link) : 0;
  if (length == 0 || length >= sizeof rate)
    return status_set(STATUS_BAD_USAGE, "--link \"%s\": a rate and a time are accepted, as in 1gbit,0.1ms", command->link);
  memcpy(rate, command->link, length);
  rate[length] = '\0';
  double bits;
  TRY(options_unit(OPTION_RATE, "--link", rate, &bits));
  command->network.bandwidth = bits / 8;
  return options_unit(OPTION_TIME, "--link", comma + 1, &command->network.latency);
}

static Status parse(ScalingCommand *command, Option *options, int argc, char **argv) {
  TRY(cli_parse(options, argc, argv));
  TRY(train_options_need_model(&command->shared.train, NULL));
  TRY(link_values_list("ranks", command->ranks, 1, RANKS_MAX, command->list, ROWS_MAX, &command->count));
  command->shared.train.dead_below = 0; /* random codewords are dead by chance: reviving them is not what a step is about */
  return parse_link(command);
}

/* ---------------------------------------------------------------- predictions */

static Status measure_one(const ScalingCommand *command, int64_t batch, ScalingStep *step) {
  char name[BENCH_NAME];
  Session session;
  TrainOptions train = command->shared.train;
  train.batch = batch;
  TRY(bench_session_samples(&train, name));
  TRY(bench_session_open(&session, &train, false));
  Status status = scaling_measure(&session, command->steps, step);
  session_close(&session);
  return status;
}

static void fill_row(const ScalingCommand *command, int ranks, const ScalingStep *step, const ScalingStep *first, Row *row) {
  const TrainOptions *train = &command->shared.train;
  ScalingResult alone;
  scaling_predict(step, &command->network, ranks, (Wire)train->wire, train->shard_optimizer, &row->predicted);
  scaling_predict(first, &command->network, 1, (Wire)train->wire, false, &alone);
  double single = alone.step * ((double)step->units / (double)first->units); /* one rank's time for a rank's part of the work */
  row->ranks = ranks;
  row->units = (double)step->units * ranks / row->predicted.step;
  row->efficiency = single / row->predicted.step;
}

static Status predict_all(const ScalingCommand *command, Row *rows) {
  ScalingStep first = {0}, own = {0};
  int64_t batch = command->shared.train.batch;
  Status status = measure_one(command, batch, &first);
  for (int i = 0; status == STATUS_OK && i < command->count; i++) {
    int ranks = command->list[i];
    rows[i].batch = command->strong ? (batch + ranks - 1) / ranks : batch; /* the largest share decides */
    bool again = rows[i].batch != batch;
    if (again) status = measure_one(command, rows[i].batch, &own);
    if (status == STATUS_OK) fill_row(command, ranks, again ? &own : &first, &first, &rows[i]);
    scaling_step_release(&own);
  }
  scaling_step_release(&first);
  return status;
}

static Status print_rows(const ScalingCommand *command, const Row *rows) {
  printf("link %s, %s on the wire%s, batch %lld %s\n", command->link, command->shared.train.wire == WIRE_BF16 ? "bf16" : "fp32",
         command->shared.train.shard_optimizer ? ", divided optimizer states" : "", (long long)command->shared.train.batch,
         command->strong ? "of all ranks" : "per rank");
  printf("%6s %8s %12s %12s %12s %12s %12s %11s\n", "ranks", "batch", "ms a step", "ms exposed", "ms of link", "MiB sent", "units/s",
         "efficiency");
  for (int i = 0; i < command->count; i++)
    printf("%6d %8lld %12.1f %12.1f %12.1f %12.1f %12.1f %10.1f%%\n", rows[i].ranks, (long long)rows[i].batch, 1e3 * rows[i].predicted.step,
           1e3 * rows[i].predicted.exposed, 1e3 * rows[i].predicted.alone, rows[i].predicted.traffic / 1048576, rows[i].units,
           100 * rows[i].efficiency);
  return STATUS_OK;
}

static Status print_json(const ScalingCommand *command, const Row *rows) {
  json_t *object = json_pack("{s:f, s:f, s:b, s:b}", "bytes_per_second", command->network.bandwidth, "latency_seconds",
                             command->network.latency, "strong", command->strong, "divided", command->shared.train.shard_optimizer),
         *list = json_array();
  for (int i = 0; list != NULL && i < command->count; i++)
    json_array_append_new(list, json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks", rows[i].ranks, "batch",
                                          (json_int_t)rows[i].batch, "seconds", rows[i].predicted.step, "exposed_seconds",
                                          rows[i].predicted.exposed, "link_seconds", rows[i].predicted.alone, "bytes",
                                          rows[i].predicted.traffic, "units_per_second", rows[i].units, "efficiency", rows[i].efficiency));
  json_build_put(&object, "rows", list);
  return json_build_print(object);
}

static Status predict(ScalingCommand *command) {
  Row rows[ROWS_MAX] = {0};
  command->network.addition = scaling_addition();
  TRY(predict_all(command, rows));
  return command->shared.json ? print_json(command, rows) : print_rows(command, rows);
}

/* ---------------------------------------------------------------- a job */

static Status print_job(const ScalingCommand *command, const ScalingLink *link, const ScalingResult *result, double computed,
                        double seconds) {
  if (ranks_self() > 0) return STATUS_OK;
  if (command->shared.json) {
    json_t *object = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks", ranks_count(), "bytes_per_second", link->bandwidth,
                               "latency_seconds", link->latency, "computed_seconds", computed, "predicted_seconds", result->step,
                               "measured_seconds", seconds, "bytes", result->traffic);
    return json_build_print(object);
  }
  printf("%d ranks on %d machine%s, %d thread%s each: link of %.2f GB/s and %.1f us%s\n", ranks_count(), ranks_machines(),
         ranks_machines() == 1 ? "" : "s", threads_count(), threads_count() == 1 ? "" : "s", link->bandwidth / 1e9, 1e6 * link->latency,
         link->memory ? ", whose copies take the processors' time" : "");
  printf("a step of batch %lld per rank: %.1f ms of computing, %.1f ms predicted, %.1f ms measured (%+.1f%%); %.1f MiB sent\n",
         (long long)command->shared.train.batch / ranks_count(), 1e3 * computed, 1e3 * result->step, 1e3 * seconds,
         100 * (seconds / result->step - 1), result->traffic / 1048576);
  return STATUS_OK;
}

static Status measure_job(ScalingCommand *command, Session *session) {
  ScalingLink link;
  ScalingStep step;
  ScalingResult result, alone;
  double seconds;
  const TrainOptions *train = &command->shared.train;
  session->share = (Share){ranks_self(), ranks_count()};
  TRY(scaling_measure_link(&link));
  Status status = scaling_measure(session, command->steps, &step);
  if (status == STATUS_OK) {
    scaling_predict(&step, &link, ranks_count(), (Wire)train->wire, train->shard_optimizer, &result);
    scaling_predict(&step, &link, 1, (Wire)train->wire, false, &alone);
  }
  scaling_step_release(&step);
  status = ranks_agree(status);
  if (status == STATUS_OK) status = ranks_agree(data_parallel_open(session));
  if (status == STATUS_OK) status = plan_check(session); /* counts uses of parameters */
  if (status == STATUS_OK) status = scaling_measure_job(session, command->steps, &seconds);
  data_parallel_close(session);
  return status == STATUS_OK ? print_job(command, &link, &result, alone.step, seconds) : status;
}

static Status run_job(ScalingCommand *command) {
  char name[BENCH_NAME];
  Session session;
  TrainOptions *train = &command->shared.train;
  if (!command->strong) train->batch *= ranks_count();
  TRY(bench_session_samples(train, name));
  if (train->drawn) return ranks_common(status_set(STATUS_BAD_USAGE, "--model %s: a job is measured with models of images", train->model));
  TRY(ranks_agree(bench_session_open(&session, train, false)));
  Status status = measure_job(command, &session);
  session_close(&session);
  return status;
}

static Status run(ScalingCommand *command, Option *options, int argc, char **argv) {
  TRY(ranks_agree(parse(command, options, argc, argv)));
  TRY(cli_check_kernels(command->shared.backend));
  TRY(threads_start((int)command->shared.train.threads));
  Status status = ranks_count() > 1 ? run_job(command) : predict(command);
  threads_stop();
  return status;
}

static Status run_scaling(int argc, char **argv) {
  ScalingCommand command;
  Option options[OPTIONS_MAX];
  scaling_options(&command, options);
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, USAGE, ABOUT, stdout);
    return STATUS_OK;
  }
  TRY(ranks_join());
  log_errors_only(ranks_self() > 0);
  Status status = run(&command, options, argc, argv);
  if (ranks_alone(status)) ranks_abort(cli_finish(status));
  ranks_leave();
  if (ranks_self() > 0) exit(CLI_OK);
  return status;
}

const CliCommand bench_scaling_command = {"scaling", "predict training on 1 to 64 ranks from a step of one; under mpirun, measure as well",
                                          run_scaling};
