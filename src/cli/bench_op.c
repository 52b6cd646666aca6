/* The command op: times each operation, forward and backward, and says how near it comes to what the machine can do: to the rate of its
 * products, or to that of memory where it has none. Arrays that fit in the caches may pass faster than memory does. */
#include "cli/bench_op.h"
#include "autograd/kernels/matmul.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/threads.h"
#include "cli/bench_op_cases.h"
#include "cli/bench_peak.h"
#include "cli/bench_run.h"
#include "cli/bench_timing.h"
#include "nn/json_build.h"
#include "train/bench_profile.h"
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const BenchUsage USAGE = {"astra-bench op [--op NAME,...] [--rows M] [--width D] [options]",
                                 "Times each operation by itself, beside the peak rates of products and memory."};

static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

enum { MAX_REPEATS = 100000, MAX_SIZE = 1 << 24, NAMES_TEXT = 512 };

typedef struct OpCommand {
  const char *names;
  OpSizes sizes;
  int64_t repeats, warm_up;
  int precision; /* TrainPrecision */
  BenchRun run;
} OpCommand;

typedef struct OpFigures {
  BenchTiming timing;
  OpWork work;
  PeakNumbers numbers; /* of its inputs: with bf16 half the bytes, but for weights' gradients */
} OpFigures;

typedef struct OpRun {
  const OpCommand *command;
  OpBench bench;
  Arena *arena;
  double *seconds[TAPE_BACKWARD + 1]; /* [repeats]: forward and backward */
  BenchPeak peak;
  json_t *list; /* with --json */
} OpRun;

static bool in_bf16(const OpCommand *command) {
  return command->precision == PRECISION_BF16 || (command->precision == PRECISION_AUTO && matmul_bf16_is_faster());
}

/* ---------------------------------------------------------------- measuring */

/* Time of the operations of one phase; those of the loss that was put behind them are left out. */
static double phase_seconds(const BenchProfile *profile, TapePhase phase, bool is_loss) {
  double seconds = 0;
  for (const BenchPart *part = profile->part; part < profile->part + profile->parts; part++)
    if (part->phase == phase && (is_loss || strcmp(part->name, "cross_entropy") != 0)) seconds += part->seconds;
  return seconds;
}

static Status call_on_tape(OpBench *bench, const OpCase *which, double seconds[]) {
  BenchProfile profile = {.parts = 0};
  bench_op_prepare(bench, which);
  tape_record(bench->tape, true);
  bench_profile_watch(&profile, bench->tape);
  Tensor *output = which->apply(bench);
  Tensor *loss = which->is_loss ? output : bench_op_loss(bench, output);
  Status status = loss ? tape_backward(bench->tape, loss) : tape_status(bench->tape);
  bench_profile_watch(NULL, bench->tape);
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++)
    seconds[phase] = phase_seconds(&profile, (TapePhase)phase, which->is_loss);
  return status;
}

static Status call(OpBench *bench, const OpCase *which, double seconds[]) {
  if (which->apply != NULL) return call_on_tape(bench, which, seconds);
  double begun = clock_now();
  which->run(bench);
  seconds[TAPE_FORWARD] = clock_now() - begun;
  seconds[TAPE_BACKWARD] = 0;
  return tape_status(bench->tape);
}

static Status measure_case(OpRun *run, const OpCase *which) {
  const OpCommand *command = run->command;
  for (int64_t i = -command->warm_up; i < command->repeats; i++) {
    double seconds[TAPE_BACKWARD + 1];
    Status status = call(&run->bench, which, seconds);
    tape_clear(run->bench.tape);
    if (status != STATUS_OK) return status_wrap(status, "%s", which->name);
    for (int phase = TAPE_FORWARD; i >= 0 && phase <= TAPE_BACKWARD; phase++) run->seconds[phase][i] = seconds[phase];
  }
  return STATUS_OK;
}

/* ---------------------------------------------------------------- what is printed */

/* The part of the time that the machine would need at its best. */
static double limit_share(const OpRun *run, const OpFigures *figures) {
  double products = figures->work.flops / bench_peak_products(&run->peak, figures->numbers),
         memory = figures->work.bytes / run->peak.read.all;
  return fmax(products, memory) / figures->timing.median;
}

static void print_row(const OpRun *run, const char *name, const char *phase, const OpFigures *f) {
  printf("  %-18s %-9s %10.4f %10.4f %6.1f %10.1f %10.1f %8.1f\n", name, phase, 1e3 * f->timing.median, 1e3 * f->timing.least,
         100 * f->timing.spread, f->work.flops / f->timing.median / 1e9, f->work.bytes / f->timing.median / 1e9, 100 * limit_share(run, f));
}

static json_t *row_json(const OpRun *run, const char *name, const char *phase, const OpFigures *f) {
  json_t *object = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "name", name, "numbers", bench_peak_numbers_name(f->numbers), "phase", phase,
                             "gflop_per_second", f->work.flops / f->timing.median / 1e9, "gb_per_second",
                             f->work.bytes / f->timing.median / 1e9, "limit_percent", 100 * limit_share(run, f));
  if (object) bench_timing_json(&f->timing, object);
  return object;
}

static void report_case(OpRun *run, const OpCase *which) {
  static const char *const phases[] = {[TAPE_FORWARD] = "forward", [TAPE_BACKWARD] = "backward"};
  OpFigures figures[TAPE_BACKWARD + 1] = {0};
  which->work(&run->command->sizes, &figures[TAPE_FORWARD].work, &figures[TAPE_BACKWARD].work);
  PeakNumbers numbers = which->narrow && in_bf16(run->command) ? PEAK_BF16 : PEAK_F32;
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++) {
    figures[phase].timing = bench_timing_of(run->seconds[phase], run->command->repeats);
    figures[phase].numbers = numbers;
    if (numbers == PEAK_BF16) figures[phase].work.bytes /= 2;
    if (figures[phase].timing.median <= 0) continue; /* there is no such phase */
    if (run->list)
      json_build_append(&run->list, row_json(run, which->name, phases[phase], &figures[phase]));
    else
      print_row(run, which->name, phases[phase], &figures[phase]);
  }
}

static void print_head(const OpRun *run) {
  const OpSizes *s = &run->command->sizes;
  bench_peak_print(&run->peak);
  printf("sizes:   %lld rows of %lld, %lld outputs, %lld tokens a sample, %lld heads%s, %lld groups of %lld codewords, vocabulary %lld\n",
         (long long)s->rows, (long long)s->width, (long long)s->outputs, (long long)s->tokens, (long long)s->heads,
         s->causal ? " (causal)" : "", (long long)s->groups, (long long)s->entries, (long long)s->vocabulary);
  printf("%-30s %10s %10s %6s %10s %10s %8s\n", "operation", "ms, median", "ms, least", "+-%", "GFLOP/s", "GB/s", "% limit");
}

static Status print_json(OpRun *run) {
  const OpSizes *s = &run->command->sizes;
  json_t *object =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "rows", (json_int_t)s->rows, "width", (json_int_t)s->width, "outputs",
                (json_int_t)s->outputs, "tokens", (json_int_t)s->tokens, "heads", (json_int_t)s->heads, "groups", (json_int_t)s->groups,
                "entries", (json_int_t)s->entries, "vocabulary", (json_int_t)s->vocabulary, "causal", s->causal);
  if (object) bench_peak_json(&run->peak, object);
  json_build_put(&object, "operations", run->list);
  run->list = NULL;
  return json_build_print(object);
}

/* ---------------------------------------------------------------- the command */

static bool names_case(const char *names, const char *name) {
  size_t length = strlen(name);
  for (const char *at = names; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
  return strcmp(names, "all") == 0;
}

static Status check_names(const char *names) {
  char known[NAMES_TEXT] = "all";
  size_t used = strlen(known);
  int64_t wanted = 1, found = 0;
  for (const OpCase *which = OP_CASES; which->name; which++) {
    used += (size_t)snprintf(known + used, sizeof known - used, ", %s", which->name);
    found += names_case(names, which->name);
  }
  for (const char *at = names; (at = strchr(at, ',')) != NULL; at++) wanted++;
  if (strcmp(names, "all") == 0 || found == wanted) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--op %s: accepted are %s, several with commas between", names, known);
}

static Status open_run(OpRun *run) {
  run->arena = arena_new(ARENA_BYTES);
  Tape *tape = run->arena ? tape_new(run->arena) : NULL;
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++)
    run->seconds[phase] = calloc((size_t)run->command->repeats, sizeof(double));
  if (!tape || !run->seconds[TAPE_FORWARD] || !run->seconds[TAPE_BACKWARD]) {
    tape_free(tape);
    return status_set(STATUS_NO_MEMORY, "no memory for the operations");
  }
  run->bench.tape = tape;
  return bench_op_open(&run->bench, &run->command->sizes, (uint64_t)run->command->run.seed, tape, in_bf16(run->command));
}

static void close_run(OpRun *run) {
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++) free(run->seconds[phase]);
  tape_free(run->bench.tape);
  arena_free(run->arena);
  bench_op_close(&run->bench);
  json_decref(run->list);
}

static Status measure(OpRun *run) {
  const OpCommand *command = run->command;
  TRY(open_run(run));
  TRY(bench_peak_memory(&run->peak));
  TRY(bench_peak_measure(&run->peak));
  if (command->run.json && (run->list = json_array()) == NULL) return status_set(STATUS_NO_MEMORY, "no memory for JSON");
  if (!command->run.json) print_head(run);
  for (const OpCase *which = OP_CASES; which->name; which++) {
    if (!names_case(command->names, which->name)) continue;
    TRY(measure_case(run, which));
    report_case(run, which);
  }
  return command->run.json ? print_json(run) : STATUS_OK;
}

Status bench_op_run(int argc, char **argv) {
  OpCommand c = {
      .names = "all",
      .sizes = {.rows = 1576, .width = 768, .outputs = 3072, .tokens = 197, .heads = 12, .entries = 1024, .groups = 32, .vocabulary = 4096},
      .repeats = 9,
      .warm_up = 1};
  OpSizes *s = &c.sizes;
  const Option own[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_TEXT, "op", 0, &c.names, "NAMES", .help = "linear, attention, layer-norm, ...; several with commas between; all"},
      {OPTION_INT, "rows", 0, &s->rows, "M", .least = 1, .most = MAX_SIZE, .help = "rows of the input (of 8 pictures of ViT-Base)"},
      {OPTION_INT, "width", 0, &s->width, "D", .least = 2, .most = 65536, .help = "numbers of a row"},
      {OPTION_INT, "outputs", 0, &s->outputs, "N", .least = 1, .most = MAX_SIZE, .help = "outputs of a matrix"},
      {OPTION_INT, "tokens", 0, &s->tokens, "N", .least = 1, .most = MAX_SIZE, .help = "rows of a sample, which attend to each other"},
      {OPTION_INT, "heads", 0, &s->heads, "N", .least = 1, .most = 4096, .help = "of attention"},
      {OPTION_FLAG, "causal", 0, &s->causal, .help = "attention to earlier tokens alone"},
      {OPTION_INT, "entries", 'k', &s->entries, "K", .least = CODEBOOK_LEAST, .most = CODEBOOK_MOST, .help = "codewords of a group"},
      {OPTION_INT, "groups", 'g', &s->groups, "G", .least = 1, .most = 65536, .help = "groups of a codebook"},
      {OPTION_INT, "vocabulary", 0, &s->vocabulary, "V", .least = 2, .most = MAX_SIZE, .help = "rows of the token table"},
      {OPTION_CHOICE, "precision", 0, &c.precision, .choices = "fp32|bf16|auto",
       .help = "of operations as a model of this precision runs them"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c.repeats, "N", .least = 1, .most = MAX_REPEATS, .help = "measured calls of each"},
      {OPTION_INT, "warm-up", 0, &c.warm_up, "N", .least = 0, .most = MAX_REPEATS, .help = "calls before them"},
      {.kind = OPTION_GROUP}};
  bool helped;
  TRY(bench_run_parse(&c.run, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(check_names(c.names));
  TRY(bench_run_start(&c.run));
  OpRun run = {.command = &c};
  Status status = measure(&run);
  close_run(&run);
  threads_stop();
  return status;
}
