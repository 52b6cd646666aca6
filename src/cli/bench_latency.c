/* The command latency. Each device's computation is measured alone on one core, one after the other, and the exchange is computed: so any
 * number of devices is measured honestly on a machine of few cores. */
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/bench_latency_internal.h"
#include "cli/cli.h"
#include "cli/network_options.h"
#include "infer/plan/probe.h"
#include "infer/transport/packet.h"
#include "nn/json_build.h"
#include <jansson.h>

static const char USAGE[] = "astra-bench latency [--figure NAME] [--quick] [OPTION...]";
static const char ABOUT[] = "The paper's latency figures from this runner: computation measured device by device, the network computed.";

static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

enum { LATENCY_OPTIONS_MAX = 28 + NETWORK_OPTIONS_COUNT, PROBE_GROUPS = 16 };

typedef struct LatencyCommand {
  const char *out;
  double calibrate, table_memory; /* seconds, bytes */
  int figure;                     /* LATENCY_FIGURE_COUNT: all */
  int64_t repeats, parts, width, blocks, heads, entries, tokens, nodes, retained;
  bool quick, measure_all, json;
  NetworkOptions network;
} LatencyCommand;

static void latency_options(LatencyCommand *c, Option options[LATENCY_OPTIONS_MAX]) {
#define FIGURE_CHOICE(name) #name "|"
  *c = (LatencyCommand){.calibrate = 99.9 * 1e-3,
                        .table_memory = TABLE_MEMORY_DEFAULT,
                        .figure = LATENCY_FIGURE_COUNT,
                        .repeats = 3,
                        .width = 768,
                        .blocks = 12,
                        .heads = 12,
                        .entries = 1024,
                        .tokens = 1024,
                        .nodes = 4,
                        .retained = 1};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to draw"},
      {OPTION_CHOICE, "figure", 0, &c->figure, .choices = LATENCY_FIGURES(FIGURE_CHOICE) "all", .help = "which of the figures"},
      {OPTION_TIME, "calibrate", 0, &c->calibrate, "TIME", .help = "latency of one device in the calibrated form (the paper's GPU)"},
      {OPTION_FLAG, "quick", 0, &c->quick, .help = "fewer devices, tokens and codebooks, each measured once"},
      {OPTION_GROUP, .help = "Model"},
      {OPTION_INT, "width", 0, &c->width, "N", .min = 32, .max = 8192, .help = "width of a token; the MLP is four times as wide"},
      {OPTION_INT, "blocks", 0, &c->blocks, "N", .min = 1, .max = 128, .help = "number of blocks"},
      {OPTION_INT, "heads", 0, &c->heads, "N", .min = 1, .max = 128, .help = "attention heads"},
      {OPTION_INT, "codebook-size", 0, &c->entries, "K", .min = 2, .max = 65536, .help = "codewords per group"},
      {OPTION_INT, "tokens", 0, &c->tokens, "N", .min = 64, .max = 65536, .help = "input tokens, where not varied"},
      {OPTION_INT, "nodes", 'n', &c->nodes, "N", .min = 2, .max = WIRE_NODES, .help = "number of devices, where not varied"},
      {OPTION_INT, "retained", 0, &c->retained, "N", .min = 1, .max = 128, .help = "blocks that bp-ag and bp-sp compute together"},
      {OPTION_INT, "parts", 0, &c->parts, "N", .min = 0, .max = MAX_PARTS,
       .help = "parts of a block's codes; 0: the planner's choice of 1, 2, 4, 8"},
      {OPTION_SIZE, "table-memory", 0, &c->table_memory, "SIZE", .help = "memory per device for keys and values of codewords"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c->repeats, "N", .min = 1, .max = 32, .help = "runs per device; the median counts"},
      {OPTION_FLAG, "measure-all", 0, &c->measure_all, .help = "measure identical devices separately"},
  };
  const Option output[] = {{OPTION_GROUP, .help = "Output"},
                           {OPTION_TEXT, "out", 'o', &c->out, "DIR", .help = "write a CSV and a PNG of each figure there"},
                           {OPTION_FLAG, "json", 'j', &c->json, .help = "print one JSON object instead of tables"},
                           {.kind = OPTION_GROUP}};
#undef FIGURE_CHOICE
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *options++ = own[i];
  options += network_options_rows(&c->network, options);
  for (size_t i = 0; i < sizeof output / sizeof *output; i++) *options++ = output[i];
}

static Status parse(LatencyCommand *command, int argc, char **argv) {
  Option options[LATENCY_OPTIONS_MAX];
  latency_options(command, options);
  Status status = cli_parse(options, argc, argv);
  if (status == STATUS_OK && command->width % command->heads)
    status =
        status_set(STATUS_BAD_USAGE, "--heads %lld does not divide --width %lld", (long long)command->heads, (long long)command->width);
  if (status == STATUS_OK && command->width % 32)
    status = status_set(STATUS_BAD_USAGE, "--width %lld: 1, 16 and 32 groups must divide it", (long long)command->width);
  return status;
}

/* ---- the run */

static void show_progress(const LatencyCase *wanted) {
  log_info("measuring %s, %d groups, %d devices, %lld tokens, %d parts", strategy_facts(wanted->strategy)->name, wanted->groups,
           wanted->devices, (long long)wanted->tokens, wanted->parts);
}

static json_t *row_json(const LatencyPlan *plan, LatencyFigure figure, const LatencyRow *row) {
  char note[BENCH_LATENCY_NOTE];
  return json_pack("{s:s, s:b, s:s, s:i, s:i, s:i, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "figure",
                   bench_latency_figures_name(figure), "calibrated", row->calibrated, "strategy", strategy_facts(row->of.strategy)->name,
                   "groups", row->of.groups, "codewords", row->of.entries, "nodes", row->of.devices, "tokens", (json_int_t)row->of.tokens,
                   "parts", row->of.parts, "mbit", row->mbit, "latency_ms", 1e3 * row->latency, "compute_ms", 1e3 * row->compute, "wait_ms",
                   1e3 * row->wait, "hidden", row->hidden, "value", row->value, "paper", row->paper, "single_ms", 1e3 * row->single,
                   "core_share", row->share, "note", bench_latency_output_note(plan, row, note));
}

static Status run_figure(const LatencyCommand *command, const LatencyPlan *plan, LatencyFigure figure, json_t *list) {
  LatencyRows rows = {0};
  Status status = bench_latency_figures_run(plan, figure, &rows);
  if (status == STATUS_OK && command->out) status = bench_latency_output_save(plan, figure, &rows, command->out);
  if (status == STATUS_OK && !command->json) bench_latency_output_print(plan, figure, &rows);
  for (int i = 0; status == STATUS_OK && figure != LATENCY_FIGURE_trace && i < rows.count; i++)
    json_array_append_new(list, row_json(plan, figure, &rows.list[i]));
  bench_latency_figures_release(&rows);
  return status;
}

static json_t *work_json(const PacketWork *work) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "packet_out_us", 1e6 * work->out.packet, "byte_out_ns", 1e9 * work->out.byte,
                   "packet_in_us", 1e6 * work->in.packet, "byte_in_ns", 1e9 * work->in.byte, "stream_byte_out_ns",
                   1e9 * work->stream_out.byte, "stream_byte_in_ns", 1e9 * work->stream_in.byte);
}

static json_t *single_json(const LatencySingle *single) {
  return json_pack("{s:f, s:f, s:f}", "first_ms", 1e3 * single->first, "last_ms", 1e3 * single->last, "spread", single->spread);
}

static Status print_json(const LatencyPlan *plan, json_t *rows, double seconds) {
  const LatencyBench *bench = plan->bench;
  json_t *object = json_pack("{s:f, s:s, s:i, s:i, s:f, s:f, s:f, s:o, s:o, s:O}", "scale", plan->calibrated, "link_model",
                             network_options_topology(bench->links.topology), "devices_measured", bench->measured, "repeats",
                             bench->repeats, "least_share_of_a_core", bench->quality.min_share, "spread", bench->quality.spread, "seconds",
                             seconds, "single", single_json(&bench->single), "packet_work", work_json(&bench->work), "rows", rows);
  return json_build_print(object);
}

static void print_single(const LatencyPlan *plan) {
  const LatencySingle *single = &plan->bench->single;
  printf("\none device: %.1f ms for %lld tokens before everything else, %.1f ms behind it; their mean counts", 1e3 * single->first,
         (long long)plan->tokens, 1e3 * single->last);
  if (plan->bench->repeats > 1)
    printf("; its runs differed by %.1f%%\n", 100 * single->spread);
  else
    printf("; each measured once\n");
}

/* What the numbers rest on. */
static void print_quality(const LatencyPlan *plan, double seconds) {
  const LatencyBench *bench = plan->bench;
  const PacketWork *work = &bench->work;
  print_single(plan);
  printf("%d devices measured one after another%s, in %.0f s\n", bench->measured, bench->measure_all ? "" : ", those that are alike once",
         seconds);
  printf("processor time: a run had %.0f%% of a core at least", 100 * bench->quality.min_share);
  if (bench->repeats > 1)
    printf(", runs of a device differed by %.1f%% at most", 100 * bench->quality.spread);
  else
    printf(", each device was measured once");
  printf("%s\n", bench->quality.min_share < 0.97 ? "; others were on this core, and took its caches" : "");
  printf("packets of 1,200 bytes take %.1f us to seal and send, %.1f us to receive and open, a megabyte of a stream %.0f and %.0f us:"
         " as they are here, whatever computation is scaled by\n",
         1e6 * (work->out.packet + 1200 * work->out.byte), 1e6 * (work->in.packet + 1200 * work->in.byte), 1e12 * work->stream_out.byte,
         1e12 * work->stream_in.byte);
  printf("left out: sending the input to the devices, embedding and head\n");
}

/* All that the figures need, and the single device once more behind it, so that a core that becomes slower slows both sides. */
static Status measure_figures(const LatencyCommand *command, LatencyPlan *plan, double target) {
  double single;
  for (int figure = 0; figure < LATENCY_FIGURE_COUNT; figure++) {
    LatencyRows rows = {0};
    if (command->figure != LATENCY_FIGURE_COUNT && command->figure != figure) continue;
    Status status = bench_latency_figures_run(plan, (LatencyFigure)figure, &rows);
    bench_latency_figures_release(&rows);
    TRY(status);
  }
  TRY(bench_latency_cases_single_again(plan->bench, plan->tokens));
  TRY(bench_latency_cases_single(plan->bench, plan->tokens, &single));
  plan->calibrated = target / single;
  return STATUS_OK;
}

static Status run_figures(const LatencyCommand *command, LatencyPlan *plan, double begun) {
  json_t *rows = json_array();
  Status status = rows ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the JSON output");
  for (int figure = 0; figure < LATENCY_FIGURE_COUNT && status == STATUS_OK; figure++)
    if (command->figure == LATENCY_FIGURE_COUNT || command->figure == figure)
      status = run_figure(command, plan, (LatencyFigure)figure, rows);
  if (status == STATUS_OK && command->json) status = print_json(plan, rows, clock_now() - begun);
  if (status == STATUS_OK && !command->json) print_quality(plan, clock_now() - begun);
  json_decref(rows);
  return status;
}

static bool is_the_papers(const LatencyCommand *c, const LatencyBench *bench, double target) {
  return bench_latency_paper_applies(&(PaperRun){.width = c->width,
                                                 .blocks = c->blocks,
                                                 .heads = c->heads,
                                                 .entries = c->entries,
                                                 .tokens = c->tokens,
                                                 .retained = bench->retained,
                                                 .single = target,
                                                 .links = &bench->links});
}

static Status open_bench(const LatencyCommand *command, LatencyBench *bench, Reliability *reliability) {
  *bench = (LatencyBench){.repeats = command->quick ? 1 : (int)command->repeats,
                          .min_packets = (int)command->network.datagrams,
                          .measure_all = command->measure_all,
                          .reliability = reliability,
                          .retained = (int)(command->retained < command->blocks ? command->retained : command->blocks),
                          .quality = {.min_share = 1},
                          .progress = show_progress};
  bench->arena = arena_new(ARENA_BYTES);
  if (!bench->arena) return status_set(STATUS_NO_MEMORY, "no memory to measure devices");
  network_options_read(&command->network, &bench->links, reliability);
  bench->table_bytes = command->table_memory;
  const LatencySize size = {.width = command->width, .blocks = command->blocks, .heads = command->heads, .entries = command->entries};
  TRY(bench_latency_model_open(&bench->model, &size));
  TRY(packet_work_measure(&bench->work));
  ModelConfig coded = bench->model.config; /* whatever the number of groups, codes take as many operations */
  coded.astra.groups = PROBE_GROUPS;
  return probe_compute(&coded, command->tokens, PROBE_BY_ITSELF, &bench->profile);
}

static Status run_latency(const LatencyCommand *command, LatencyBench *bench) {
  Reliability reliability;
  double target = command->calibrate, single, begun = clock_now();
  if (target <= 0) return status_set(STATUS_BAD_USAGE, "--calibrate: the time must be above 0");
  if (command->out) TRY(files_make_dirs(command->out));
  TRY(open_bench(command, bench, &reliability));
  TRY(bench_latency_cases_single(bench, command->tokens, &single));
  LatencyPlan plan = {.bench = bench,
                      .calibrated = target / single,
                      .mbit = bench->links.bits_per_second / 1e6,
                      .tokens = command->tokens,
                      .devices = (int)command->nodes,
                      .parts = (int)command->parts,
                      .quick = command->quick,
                      .paper = is_the_papers(command, bench, target),
                      .seed = bench->links.seed};
  TRY(measure_figures(command, &plan, target));
  return run_figures(command, &plan, begun);
}

Status bench_latency_run(int argc, char **argv) {
  LatencyCommand command;
  Option options[LATENCY_OPTIONS_MAX];
  LatencyBench bench = {.repeats = 0};
  latency_options(&command, options);
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, USAGE, ABOUT, stdout);
    return STATUS_OK;
  }
  TRY(parse(&command, argc, argv));
  TRY(cli_check_kernels(NULL));
  Status status = run_latency(&command, &bench);
  bench_latency_cases_release(&bench);
  return status;
}
