/* The command plan: measures this device on the model's shapes and takes its speed as that of all, or measures all of --peers, and predicts
 * every way of dividing the model over these devices and links. */
#include "cli/infer_plan.h"
#include "base/files.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/link_values.h"
#include "cli/network_options.h"
#include "cli/plan_devices.h"
#include "cli/plan_peers.h"
#include "cli/plan_report.h"
#include "data/data_paths.h"
#include "infer/plan/probe.h"
#include "infer/plan/split_measured.h"
#include "infer/virtual/virtual_latency.h"
#include "infer/wire/packet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] = "astra-infer plan --checkpoint DIR|--model NAME [OPTION...]";
static const char ABOUT[] = "Predicts the latency of every way of dividing a model over devices, and says which one is fastest.";

enum { PLAN_OPTIONS_MOST = 30 + NETWORK_OPTIONS_COUNT, CLASSES = 1000, PEERS_TIMEOUT = 60, MEASURE_REPEATS = 3 };

typedef struct PlanCommand {
  const char *checkpoint, *model, *nodes, *speeds, *links, *groups, *strategies, *table_memory, *calibrate, *chart;
  int64_t tokens, threads, retained, parts;
  bool even, json, measure, with_input;
  const char *peers, *key_file;
  bool local;
  double wait;
  bool own_rate, own_links, own_topology; /* --bandwidth; that or --latency; --link-model was given */
  NetworkOptions network;
} PlanCommand;

static void plan_options(PlanCommand *c, Option options[PLAN_OPTIONS_MOST]) {
  *c = (PlanCommand){.strategies = "all", .table_memory = "512M", .threads = 1, .retained = 1, .local = true, .wait = 30};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to plan"},
      {OPTION_TEXT, "checkpoint", 'c', &c->checkpoint, "DIR",
       .help = "directory or GGUF file of the model, or the name of an installed one"},
      {OPTION_TEXT, "model", 0, &c->model, "NAME", .help = "a preset instead: vit-base, gpt2..."},
      {OPTION_INT, "tokens", 0, &c->tokens, "N", .least = 0, .most = 1 << 20, .help = "of the input; 0: what the model takes"},
      {OPTION_TEXT, "strategies", 0, &c->strategies, "LIST", .help = "astra,single,tp,sp,bp-ag,bp-sp, or all"},
      {OPTION_TEXT, "groups", 0, &c->groups, "LIST", .help = "of codes; without it the model's, or 1,16,32 of those that divide its width"},
      {OPTION_INT, "retained", 0, &c->retained, "N", .least = 1, .most = 1024, .help = "blocks that bp-ag and bp-sp compute together"},
      {OPTION_INT, "parts", 0, &c->parts, "N", .least = 0, .most = PARTS_MOST, .help = "of a block's codes; 0: the best of 1, 2, 4, 8"},
      {OPTION_TEXT, "table-memory", 0, &c->table_memory, "SIZE", .help = "of a device for keys and values of codewords"},
      {OPTION_GROUP, .help = "Devices"},
      {OPTION_TEXT, "nodes", 'n', &c->nodes, "LIST", .help = "how many to try; without it 2,4,8, or all of --speeds, --links, --peers"},
      {OPTION_TEXT, "speeds", 0, &c->speeds, "LIST", .help = "of each device, this one being 1: 1,1,0.5"},
      {OPTION_TEXT, "links", 0, &c->links, "LIST", .help = "rate of each device's way into the network: 50mbit,50mbit,5mbit"},
      {OPTION_TEXT, "peers", 0, &c->peers, "LIST", .help = "HOST:PORT,... of workers: measure them and the links to them"},
      {OPTION_FLAG, "local", 0, &c->local, .help = "--no-local: this device takes no part with --peers"},
      {OPTION_TEXT, "key-file", 0, &c->key_file, "FILE", .help = "the key that they have (astra-infer keygen)"},
      {OPTION_REAL, "wait", 0, &c->wait, "SECONDS", .least = 0, .most = 86400,
       .help = "in the queue of a worker that serves somebody else"},
      {OPTION_FLAG, "even", 0, &c->even, .help = "every device gets as many tokens"},
      {OPTION_INT, "threads", 't', &c->threads, "N", .least = 0, .most = 256, .help = "of each device; 0: all cores"},
      {OPTION_FLAG, "measure", 0, &c->measure, .help = "also in virtual time: every device's computing measured, the network computed"},
      {OPTION_FLAG, "with-input", 0, &c->with_input, .help = "latencies count the input's way to the devices"},
      {OPTION_TEXT, "calibrate", 0, &c->calibrate, "TIME", .help = "scale computing so that one device takes this, as in 99.9ms"},
  };
  const Option output[] = {{OPTION_GROUP, .help = "Output"},
                           {OPTION_TEXT, "chart", 0, &c->chart, "FILE", .help = "PNG with latency against devices"},
                           {OPTION_FLAG, "json", 'j', &c->json, .help = "one JSON object instead of the table"},
                           {.kind = OPTION_GROUP}};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *options++ = own[i];
  options += network_options_rows(&c->network, options);
  for (size_t i = 0; i < sizeof output / sizeof *output; i++) *options++ = output[i];
}

static Status check_peers(const PlanCommand *c) {
  if (!c->peers && (c->key_file || !c->local))
    return status_set(STATUS_BAD_USAGE, "--%s goes with --peers, of which none are given", c->key_file ? "key-file" : "no-local");
  if (c->peers && (c->speeds || c->links))
    return status_set(STATUS_BAD_USAGE, "--%s and --peers: the %s of peers are measured", c->speeds ? "speeds" : "links",
                      c->speeds ? "speeds" : "links");
  if (c->links && c->network.topology == LINK_AIR)
    return status_set(STATUS_BAD_USAGE, "--links: in shared-air there is one rate for all, --bandwidth");
  if (c->links && c->own_rate) return status_set(STATUS_BAD_USAGE, "--links says how fast each device's way is: leave out --bandwidth");
  if (c->measure && (c->model || c->peers || c->speeds))
    return status_set(STATUS_BAD_USAGE, "--measure is for a --checkpoint on devices like this one, without --peers and --speeds");
  if (c->peers && c->model) return status_set(STATUS_BAD_USAGE, "--peers: workers have a checkpoint, give it with --checkpoint");
  return STATUS_OK;
}

static Status parse(PlanCommand *command, int argc, char **argv) {
  Option options[PLAN_OPTIONS_MOST];
  const char **positional = calloc((size_t)argc, sizeof *positional);
  int count = 0;
  if (!positional) return status_set(STATUS_NO_MEMORY, "no memory for the arguments");
  plan_options(command, options);
  Status status = options_parse(options, argc, argv, positional, &count);
  if (status == STATUS_OK && count > 0) status = status_set(STATUS_BAD_USAGE, "unexpected argument \"%s\"", positional[0]);
  free(positional);
  command->own_rate = options_find(options, "bandwidth")->given;
  command->own_links = command->own_rate || options_find(options, "latency")->given;
  command->own_topology = options_find(options, "link-model")->given;
  if (status == STATUS_OK) status = check_peers(command);
  if (status == STATUS_OK && !command->checkpoint == !command->model)
    status = status_set(STATUS_BAD_USAGE, "give --checkpoint DIR or --model NAME (%s)", config_preset_names());
  return status;
}

/* ---- the model */

static Status load_config(const PlanCommand *command, ModelConfig *config) {
  if (command->model) return config_preset(config, command->model, CLASSES);
  if (checkpoint_is_path(command->checkpoint)) return config_load(config, command->checkpoint);
  char *directory = NULL;
  if (strchr(command->checkpoint, '/'))
    return status_set(STATUS_NOT_FOUND, "--checkpoint %s: there is no such directory or GGUF file", command->checkpoint);
  TRY(data_paths_find("checkpoints", command->checkpoint, NULL, &directory));
  Status status = config_load(config, directory);
  free(directory);
  return status;
}

/* ---- from options to the planner's setup */

static Status read_strategies(const char *text, uint32_t *bits) {
  char name[16];
  *bits = strcmp(text, "all") == 0 ? (1u << STRATEGY_COUNT) - 1 : 0;
  for (const char *at = text; *bits == 0 || *at == ','; at += strcspn(at, ",")) {
    Strategy strategy;
    at += *at == ',';
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
    if (strategy_find(&strategy, name) != STATUS_OK) return status_wrap(STATUS_BAD_USAGE, "--strategies");
    *bits |= 1u << strategy;
  }
  return STATUS_OK;
}

static Status read_groups(const PlanCommand *command, PlannerSetup *setup) {
  static const int usual[] = {1, 16, 32};
  if (command->groups)
    return link_values_list("groups", command->groups, 1, 65536, setup->groups, PLANNER_GROUPS_MOST, &setup->group_count);
  if (setup->config->astra.groups > 0) setup->groups[setup->group_count++] = setup->config->astra.groups;
  for (size_t i = 0; setup->config->astra.groups == 0 && i < sizeof usual / sizeof *usual; i++)
    if (config_site_width(setup->config) % usual[i] == 0) setup->groups[setup->group_count++] = usual[i];
  return STATUS_OK;
}

/* The scale with which the fastest device alone takes as long as was asked for. */
static Status calibrate(const PlanCommand *command, PlannerSetup *setup, double *target) {
  PlannerSetup alone = *setup;
  Plan plan;
  *target = 0;
  setup->scale = 1;
  if (!command->calibrate) return STATUS_OK;
  TRY(link_values_time("calibrate", command->calibrate, target));
  if (*target <= 0) return status_set(STATUS_BAD_USAGE, "--calibrate %s: the time must be above 0", command->calibrate);
  alone.devices = 1;
  TRY(planner_run(&alone, &plan));
  setup->scale = *target / plan.single;
  planner_release(&plan);
  return STATUS_OK;
}

/* ---- in virtual time */

static Status measure_row(const PlannerSetup *setup, const Weights *weights, const KeyTables *tables, PlanRow *row) {
  const VirtualCase wanted = {.weights = weights,
                              .device = {.strategy = row->strategy,
                                         .devices = row->devices,
                                         .tokens = setup->tokens,
                                         .counts = row->counts,
                                         .tables = row->tables ? tables : NULL,
                                         .parts = row->parts,
                                         .least_packets = setup->least_packets,
                                         .retained = setup->retained,
                                         .rows = MODEL_ROWS_CLASS},
                              .repeats = MEASURE_REPEATS,
                              .links = setup->links,
                              .ends = setup->ends,
                              .reliability = setup->reliability,
                              .work = setup->work,
                              .scale = setup->scale};
  SimResult result;
  TRY(virtual_latency_measure(&wanted, &result));
  row->measured = result.latency;
  return STATUS_OK;
}

/* Where the plan counts on them. */
static Status build_tables(const PlannerSetup *setup, const Weights *weights, const Plan *plan, KeyTables **tables) {
  bool wanted = false;
  for (int i = 0; i < plan->count; i++) wanted = wanted || plan->rows[i].tables;
  if (!wanted || !weights->books) return STATUS_OK;
  const real **codewords = calloc((size_t)weights->book_count, sizeof *codewords);
  if (!codewords) return status_set(STATUS_NO_MEMORY, "no memory for tables of keys and values");
  for (int b = 0; b < weights->book_count; b++) codewords[b] = weights->books[b].codewords;
  const KeyTablesSetup all = {.codewords = codewords,
                              .groups = weights->books[0].groups,
                              .entries = weights->books[0].entries,
                              .memory = (size_t)setup->table_bytes};
  Status status = key_tables_build(tables, weights->model, &all);
  free(codewords);
  return status;
}

static Status measure_rows(const PlannerSetup *setup, const Weights *weights, Plan *plan) {
  KeyTables *tables = NULL;
  if (config_is_decoder(weights->config)) return status_set(STATUS_BAD_USAGE, "--measure is for models that classify pictures");
  Status status = build_tables(setup, weights, plan, &tables);
  for (int i = 0; i < plan->count && status == STATUS_OK; i++)
    if (!plan->rows[i].other_groups) status = measure_row(setup, weights, tables, &plan->rows[i]);
  key_tables_free(tables);
  return status;
}

static Status measure_plan(const PlanCommand *command, const PlannerSetup *setup, Plan *plan) {
  Weights weights = {0};
  char *directory = NULL;
  TRY(infer_run_find(command->checkpoint, &directory));
  Status status = weights_load_as(&weights, directory, WEIGHTS_FLOAT32); /* tables are made of reals */
  if (status == STATUS_OK) status = measure_rows(setup, &weights, plan);
  weights_release(&weights);
  free(directory);
  return status;
}

/* ---- the run */

static Status report_plan(const PlanCommand *command, const PlanReport *report) {
  if (command->chart) TRY(plan_report_chart(report, command->chart));
  if (command->json) return plan_report_json(report);
  plan_report_text(report);
  return STATUS_OK;
}

/* Each device has a way of its own into the network, of a rate of its own. */
static void take_ends(const PlanCommand *command, PlannerSetup *setup, const LinkEnd *ends, LinkOptions *links) {
  setup->ends = ends;
  links->bits_per_second = 0;
  if (!command->own_topology) links->topology = LINK_SWITCH;
}

/* The air has one rate for all: the slowest. */
static void take_measured(const PlanCommand *command, PlannerSetup *setup, const PlanPeers *peers, LinkOptions *links) {
  const LinkEnd slowest = split_measured_slowest(peers->ends, peers->count);
  bool air = links->topology == LINK_AIR;
  if (!air) take_ends(command, setup, peers->ends, links);
  links->latency = air ? slowest.latency : 0;
  if (air) links->bits_per_second = link_slower(slowest.out, slowest.in);
}

/* This device as it is, and as many like it as the options want. */
static Status measure_own(const PlanCommand *command, PlannerSetup *setup, PlanDevices *devices, LinkOptions *links) {
  DeviceProfile own;
  TRY(plan_devices_read(command->nodes, command->speeds, command->links, devices)); /* before measuring, which takes a while */
  TRY(probe_compute(setup->config, setup->tokens, PROBE_BY_ITSELF, &own));
  setup->devices = devices->count;
  setup->counts_tried = devices->counts_tried;
  for (int d = 0; d < devices->count; d++) devices->profiles[d] = device_profile_scaled(&own, devices->speeds[d]);
  setup->profiles = devices->profiles;
  if (devices->linked) take_ends(command, setup, devices->ends, links);
  return STATUS_OK;
}

/* Devices measure themselves with the tokens that the model takes. */
static Status measure_peers(const PlanCommand *command, PlannerSetup *setup, PlanPeers *peers, LinkOptions *links) {
  const PlanPeersOptions options = {.peers = command->peers,
                                    .key_file = command->key_file,
                                    .local = command->local,
                                    .wait = command->wait,
                                    .timeout = PEERS_TIMEOUT,
                                    .threads = (int)command->threads};
  TRY(plan_peers_measure(&options, command->checkpoint, peers));
  setup->devices = peers->count;
  setup->profiles = peers->profiles;
  if (!command->own_links && peers->linked) take_measured(command, setup, peers, links);
  return plan_devices_counts(command->nodes, setup->devices, "with those of --peers", &setup->counts_tried);
}

static Status run_plan(const PlanCommand *command, const ModelConfig *config) {
  PlanDevices devices;
  PlanPeers peers = {.count = 0};
  LinkOptions links;
  Reliability reliability;
  PlannerSetup setup = {.config = config,
                        .tokens = command->tokens > 0 ? command->tokens : config_tokens(config),
                        .links = &links,
                        .reliability = &reliability,
                        .parts = (int)command->parts,
                        .least_packets = (int)command->network.datagrams,
                        .retained = (int)(command->retained < config->blocks ? command->retained : config->blocks),
                        .even = command->even,
                        .untrained = command->model != NULL,
                        .with_input = command->with_input};
  PacketWork work;
  Plan plan;
  double target;
  TRY(network_options_read(&command->network, &links, &reliability));
  TRY(read_strategies(command->strategies, &setup.strategies));
  TRY(read_groups(command, &setup));
  TRY(link_values_size("table-memory", command->table_memory, &setup.table_bytes));
  TRY(command->peers ? measure_peers(command, &setup, &peers, &links) : measure_own(command, &setup, &devices, &links));
  if (packet_work_measure(&work) == STATUS_OK)
    setup.work = &work;
  else
    log_warning("%s; packets are planned as if they cost nothing", status_message());
  TRY(calibrate(command, &setup, &target));
  TRY(planner_run(&setup, &plan));
  const PlanReport report = {.model = command->model ? command->model : command->checkpoint,
                             .setup = &setup,
                             .profile = setup.profiles,
                             .peers = &peers,
                             .plan = &plan,
                             .calibrated = target};
  Status status = command->measure ? measure_plan(command, &setup, &plan) : STATUS_OK;
  if (status == STATUS_OK) status = report_plan(command, &report);
  planner_release(&plan);
  return status;
}

Status infer_plan_run(int argc, char **argv) {
  PlanCommand command;
  Option options[PLAN_OPTIONS_MOST];
  ModelConfig config;
  plan_options(&command, options);
  if (cli_help_wanted(options, argc, argv)) {
    options_help(options, USAGE, ABOUT, stdout);
    return STATUS_OK;
  }
  TRY(parse(&command, argc, argv));
  TRY(cli_check_kernels(NULL));
  TRY(load_config(&command, &config));
  /* With --peers this process computes nothing: the device of its own that it forks has threads of its own. */
  Status status = command.peers ? STATUS_OK : threads_start((int)command.threads);
  if (status == STATUS_OK) status = run_plan(&command, &config);
  threads_stop();
  config_release(&config);
  return status;
}
