/* The command plan: measures this device on the model's shapes and takes its speed as that of all, or measures all of --peers, and predicts
 * every way of dividing the model over these devices and links. */
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/infer_plan_internal.h"
#include "cli/infer_run.h"
#include "cli/network_options.h"
#include "data/data_paths.h"
#include "infer/cluster/leader.h"
#include "infer/plan/planner.h"
#include "infer/plan/probe.h"
#include "infer/sim/measure.h"
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include "infer/wire.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Profiles of devices ---- */

/* Devices and links as the options of astra-infer plan name them: how many, how fast, each behind which link. */
typedef struct PlanDevices {
  int count;
  uint64_t counts_tried;              /* of devices, as PlannerSetup has them */
  int leader;                         /* this device, the first one given whose speed is 1; -1: there is none, it takes no part */
  double speeds[WIRE_NODES];          /* [count], the fastest first, of equal ones this device */
  DeviceProfile profiles[WIRE_NODES]; /* [count]: the caller fills them in, once this device is measured */
  LinkEnd ends[WIRE_NODES];           /* [count], in the same order */
  bool linked;                        /* `ends` were given */
} PlanDevices;

typedef struct Described {
  double speed, rate;
  bool here;
} Described;

static int faster_first(const void *a, const void *b) {
  const Described *x = a, *y = b;
  if (x->speed != y->speed) return x->speed < y->speed ? 1 : -1;
  if (x->here != y->here) return x->here ? -1 : 1; /* it has the input */
  return (x->rate < y->rate) - (x->rate > y->rate);
}

static Status read_speeds(const char *text, double speeds[WIRE_NODES], int *count) {
  *count = options_reals(text, speeds, WIRE_NODES);
  if (*count > 0) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--speeds \"%s\": accepted is a list of at most %d positive numbers, as in 1,2,0.5", text,
                    WIRE_NODES);
}

static Status read_rates(const char *text, double rates[WIRE_NODES], int *count) {
  char rate[32];
  for (const char *at = text; *count < WIRE_NODES; at++) {
    size_t length = strcspn(at, ",");
    snprintf(rate, sizeof rate, "%.*s", (int)length, at);
    TRY(options_unit(OPTION_RATE, "--links", length < sizeof rate ? rate : at, &rates[(*count)++]));
    at += length;
    if (*at == '\0') return STATUS_OK;
  }
  return status_set(STATUS_BAD_USAGE, "--links: at most %d rates are accepted", WIRE_NODES);
}

static Status read_described(const char *speed_list, const char *link_list, PlanDevices *devices) {
  Described all[WIRE_NODES];
  double speeds[WIRE_NODES], rates[WIRE_NODES];
  int links = 0, here = 0;
  if (speed_list) TRY(read_speeds(speed_list, speeds, &devices->count));
  if (link_list) TRY(read_rates(link_list, rates, &links));
  if (speed_list && link_list && links != devices->count)
    return status_set(STATUS_BAD_USAGE, "--speeds names %d device%s, --links %d: each needs both", devices->count,
                      text_plural(devices->count), links);
  if (link_list) devices->count = links;
  for (int d = 0; d < devices->count; d++) all[d] = (Described){.speed = speed_list ? speeds[d] : 1, .rate = link_list ? rates[d] : 0};
  while (here < devices->count && all[here].speed != 1) here++;
  if (here < devices->count) all[here].here = true;
  qsort(all, (size_t)devices->count, sizeof *all, faster_first);
  devices->leader = -1;
  for (int d = 0; d < devices->count; d++) {
    if (all[d].here) devices->leader = d;
    devices->speeds[d] = all[d].speed;
    devices->ends[d] = (LinkEnd){.out = all[d].rate, .in = all[d].rate};
  }
  devices->linked = link_list != NULL;
  return STATUS_OK;
}

/* Which numbers of devices to try where there are `count`, said to be "of --peers" or the like: all, or those of nodes. BAD_USAGE. */
static Status plan_devices_counts(const char *nodes, int count, const char *whose, uint64_t *tried) {
  int list[WIRE_NODES], listed = 0;
  *tried = ~0ull;
  if (!nodes) return STATUS_OK;
  TRY(cli_parse_numbers("nodes", nodes, WIRE_NODES, list, WIRE_NODES, &listed));
  *tried = 0;
  for (int i = 0; i < listed; i++) {
    if (list[i] > count) return status_set(STATUS_BAD_USAGE, "--nodes %d: there are %d devices %s", list[i], count, whose);
    *tried |= 1ull << (list[i] - 1);
  }
  return STATUS_OK;
}

/* nodes "2,4", speeds "1,1,0.5", links "50mbit,50mbit,5mbit": NULL where an option was not given. Without speeds and links there are as
 * many devices as the largest of nodes (2, 4 and 8), all like this one. BAD_USAGE names the option. */
static Status plan_devices_read(const char *nodes, const char *speeds, const char *links, PlanDevices *devices) {
  *devices = (PlanDevices){.count = 0};
  if (speeds || links) {
    TRY(read_described(speeds, links, devices));
    return plan_devices_counts(nodes, devices->count, speeds ? "in --speeds" : "in --links", &devices->counts_tried);
  }
  TRY(plan_devices_counts(nodes ? nodes : "2,4,8", WIRE_NODES, "at most", &devices->counts_tried));
  for (int d = 0; d < WIRE_NODES; d++) {
    devices->speeds[d] = 1;
    if (devices->counts_tried >> d & 1) devices->count = d + 1;
  }
  return STATUS_OK;
}

/* ---- Measured peers ---- */

/* astra-infer plan --peers: the devices that there are, measured, in place of one that stands for all. */
typedef struct PlanPeersOptions {
  const char *peers, *key_file; /* as of astra-infer itself */
  const char *nodes;            /* the numbers of devices to plan for, or NULL */
  bool local;
  double wait, timeout;
  WeightsBits weights; /* these two as of the workers */
  WeightsPrecision precision;
  int threads;    /* of this device */
  int64_t tokens; /* of a text */
} PlanPeersOptions;

static Status measure(const PlanPeersOptions *options, const InferCluster *cluster, const Weights *weights, DeviceMeasure *measured) {
  int nodes = cluster->options.local + cluster->options.peer_count;
  const ClusterSetup plain = {.strategy = STRATEGY_SINGLE, .reliability.mode = RELIABILITY_STREAM, .parts = 1}; /* it has no codes */
  const bool text = config_is_decoder(weights->config);
  const LeaderOptions leader = {.batch_max = 1,
                                .tokens_max = text && options->tokens < weights->config->context ? options->tokens : 0,
                                .network = weights->books ? NULL : &plain,
                                .timeout = options->timeout,
                                .threads = options->threads,
                                .stop = infer_run_stop_flag(),
                                .cluster = &cluster->options};
  TokenSplit split;
  Partition partition;
  infer_run_catch_signals();
  if (text) {
    TRY(token_split_init(&split, nodes, NULL));
    return leader_measure(weights, NULL, &split, &leader, measured);
  }
  TRY(partition_init(&partition, config_tokens(weights->config), nodes, NULL));
  Status status = leader_measure(weights, &partition, NULL, &leader, measured);
  partition_release(&partition);
  return status;
}

static void name(const InferCluster *cluster, int node, char text[ADDRESS_TEXT]) {
  if (node < cluster->options.local)
    snprintf(text, ADDRESS_TEXT, "this device");
  else
    address_text(&cluster->peers[node - cluster->options.local], text);
}

/* Into the place that its speed gives it, which is returned. */
static int insert(PlanPeers *peers, const DeviceProfile *profile, const LinkEnd *end, const char *text) {
  int at = peers->count++;
  for (; at > 0 && peers->profiles[at - 1].linear[PROFILE_SIZES - 1] > profile->linear[PROFILE_SIZES - 1]; at--) {
    peers->profiles[at] = peers->profiles[at - 1];
    peers->ends[at] = peers->ends[at - 1];
    memcpy(peers->names[at], peers->names[at - 1], ADDRESS_TEXT);
  }
  peers->profiles[at] = *profile;
  peers->ends[at] = *end;
  snprintf(peers->names[at], ADDRESS_TEXT, "%s", text);
  return at;
}

static Status measure_cluster(const PlanPeersOptions *options, const Weights *weights, const char *directory, PlanPeers *peers) {
  const InferSettings settings = {
      .peers = options->peers, .key_file = options->key_file, .local = options->local, .wait = options->wait, .on_failure = INFER_ABORT};
  DeviceMeasure measured[WIRE_NODES] = {0};
  LinkEnd ends[WIRE_NODES];
  InferCluster cluster;
  uint64_t tried;
  TRY(infer_cluster_open(&cluster, &settings));
  const int all = cluster.options.local + cluster.options.peer_count;
  TRY(plan_devices_counts(options->nodes, all, "with those of --peers", &tried)); /* before measuring, which takes a while */
  cluster.options.checkpoint = directory;
  cluster.options.await_fetch = true;
  TRY(measure(options, &cluster, weights, measured));
  planner_link_ends(measured, all, ends);
  peers->beside = planner_leader_end(measured, all);
  for (int d = 0; d < all; d++) {
    char text[ADDRESS_TEXT];
    name(&cluster, d, text);
    if (!measured[d].here) continue;
    int at = insert(peers, &measured[d].profile, &ends[d], text);
    if (d < cluster.options.local)
      peers->leader = at;
    else if (at <= peers->leader)
      peers->leader++;
    peers->linked = peers->linked || measured[d].linked;
  }
  return STATUS_OK;
}

/* Calls the workers, which must have the model at `checkpoint` (a path, or the name of an installed one), measures all, and lets them go.
 */
static Status plan_peers_measure(const PlanPeersOptions *options, const char *checkpoint, PlanPeers *peers) {
  Weights weights = {0};
  char *directory = NULL;
  *peers = (PlanPeers){.leader = -1};
  TRY(infer_run_find(checkpoint, &directory));
  Status status = weights_load(&weights, directory);
  if (status == STATUS_OK) status = weights_quantise(&weights, options->weights);
  if (status == STATUS_OK) status = weights_use_precision(&weights, options->precision);
  if (status == STATUS_OK) status = measure_cluster(options, &weights, directory, peers);
  weights_release(&weights);
  free(directory);
  return status;
}

/* ---- The command ---- */

static const char USAGE[] = "astra-infer plan --checkpoint DIR|--model NAME [OPTION...]";
static const char ABOUT[] = "Predicts the latency of every strategy for running a model on several devices, and recommends the fastest.";

enum { PLAN_OPTIONS_MAX = 33 + NETWORK_OPTIONS_COUNT, CLASSES = 1000, MEASURE_REPEATS = 3 };
static const double LONG_MEASURING = 0.2; /* TFLOP: two seconds of a core, or more */

typedef struct PlanCommand {
  const char *checkpoint, *model, *nodes, *speeds, *links, *groups, *strategies, *chart;
  double table_memory, calibrate; /* bytes; seconds, negative: as measured */
  int64_t tokens, threads, retained, parts;
  bool even, json, measure, with_input;
  const char *peers, *key_file;
  bool local;
  int weights, precision; /* WeightsBits, WeightsPrecision */
  const char *backend;
  double wait, timeout;
  bool own_rate, own_links, own_topology; /* --bandwidth; that or --latency; --link-model was given */
  NetworkOptions network;
  char about_strategies[STRATEGY_LIST + 16]; /* the help of --strategies */
} PlanCommand;

static void plan_options(PlanCommand *c, Option options[PLAN_OPTIONS_MAX]) {
  *c = (PlanCommand){.strategies = "all",
                     .table_memory = KV_TABLES_MEMORY,
                     .calibrate = -1,
                     .threads = -1,
                     .retained = 1,
                     .local = true,
                     .wait = 30,
                     .timeout = 60};
  char strategies[STRATEGY_LIST];
  snprintf(c->about_strategies, sizeof c->about_strategies, "%s, or all", strategy_list(",", false, strategies));
  const Option own[] = {
      {OPTION_GROUP, .help = "What to plan"},
      {OPTION_TEXT, "checkpoint", 'c', &c->checkpoint, "DIR",
       .help = "directory or GGUF file of the model, or the name of an installed one"},
      {OPTION_TEXT, "model", 0, &c->model, "NAME", .help = "a preset instead: vit-base, gpt2..."},
      {OPTION_INT, "tokens", 0, &c->tokens, "N", .min = 0, .max = 1 << 20, .help = "number of input tokens; 0: the model's"},
      {OPTION_TEXT, "strategies", 0, &c->strategies, "LIST", .help = c->about_strategies},
      {OPTION_TEXT, "groups", 0, &c->groups, "LIST",
       .help = "numbers of groups (default: the model's, or those of 1,16,32 that divide its width)"},
      {OPTION_INT, "retained", 0, &c->retained, "N", .min = 1, .max = CONFIG_BLOCKS_MAX,
       .help = "blocks that bp-ag and bp-sp compute together"},
      {OPTION_INT, "parts", 0, &c->parts, "N", .min = 0, .max = MAX_PARTS, .help = "parts of a block's codes; 0: the best of 1, 2, 4, 8"},
      {OPTION_SIZE, "table-memory", 0, &c->table_memory, "SIZE", .help = "memory per device for keys and values of codewords"},
      {OPTION_GROUP, .help = "Devices"},
      {OPTION_TEXT, "nodes", 'n', &c->nodes, "LIST",
       .help = "numbers of devices to try (default: 2,4,8, or all of --speeds, --links, --peers)"},
      {OPTION_TEXT, "speeds", 0, &c->speeds, "LIST", .help = "speed of each device relative to this one: 1,1,0.5"},
      {OPTION_TEXT, "links", 0, &c->links, "LIST", .help = "rate of each device's link: 50mbit,50mbit,5mbit"},
      {OPTION_TEXT, "peers", 0, &c->peers, "LIST", .help = "HOST:PORT,... of workers: measure them and their links"},
      {OPTION_FLAG, "local", 0, &c->local, .help = "--no-local: this device takes no part"},
      {OPTION_TEXT, "key-file", 0, &c->key_file, "FILE", .help = "the cluster's key (astra-infer keygen)"},
      {OPTION_TIMEOUT, "wait", 0, &c->wait, "TIME", .help = "how long to wait for a busy worker"},
      {OPTION_TIMEOUT, "timeout", 0, &c->timeout, "TIME", .min = 0.1, .max = 86400,
       .help = "fail if a worker is silent, or not measured, for this long"},
      {OPTION_CHOICE, "weights", 0, &c->weights, .choices = WEIGHTS_BITS, .help = "bits of matrices, as --peers were started with"},
      {OPTION_CHOICE, "precision", 0, &c->precision, .choices = WEIGHTS_PRECISIONS,
       .help = "precision, as --peers were started with; planned is fp32"},
      {OPTION_TEXT, "backend", 0, &c->backend, "NAME", .help = CLI_BACKEND_HELP},
      {OPTION_FLAG, "even", 0, &c->even, .help = "equal number of tokens per device"},
      {OPTION_INT, "threads", 't', &c->threads, "N", .min = 0, .max = THREADS_MAX,
       .help = "threads of this device; 0: all cores; auto: one, or all cores with --peers"},
      {OPTION_FLAG, "measure", 0, &c->measure, .help = "also simulate in virtual time, with measured computation"},
      {OPTION_FLAG, "with-input", 0, &c->with_input, .help = "include the input's transfer to the devices in latencies"},
      {OPTION_TIME, "calibrate", 0, &c->calibrate, "TIME", .help = "scale computation so that one device takes this long, e.g. 99.9ms"},
  };
  const Option output[] = {{OPTION_GROUP, .help = "Output"},
                           {OPTION_TEXT, "chart", 0, &c->chart, "FILE", .help = "write a PNG chart of latency against devices"},
                           {OPTION_FLAG, "json", 'j', &c->json, .help = "print one JSON object instead of the table"},
                           {.kind = OPTION_GROUP}};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) *options++ = own[i];
  options += network_options_rows(&c->network, options);
  for (size_t i = 0; i < sizeof output / sizeof *output; i++) *options++ = output[i];
}

/* waits: --wait or --timeout was given. */
static Status check_peers(const PlanCommand *c, bool waits) {
  if (!c->peers && waits) return status_set(STATUS_BAD_USAGE, "--wait and --timeout go with --peers, of which none are given");
  if (!c->peers && (c->key_file || !c->local))
    return status_set(STATUS_BAD_USAGE, "--%s goes with --peers, of which none are given", c->key_file ? "key-file" : "no-local");
  if (!c->peers && (c->weights != WEIGHTS_AS_THEY_ARE || c->precision != WEIGHTS_FP32))
    return status_set(STATUS_BAD_USAGE, "--%s goes with --peers: this device alone is measured in fp32",
                      c->weights != WEIGHTS_AS_THEY_ARE ? "weights" : "precision");
  if (c->peers && (c->speeds || c->links))
    return status_set(STATUS_BAD_USAGE, "--%s and --peers: the %s of peers are measured", c->speeds ? "speeds" : "links",
                      c->speeds ? "speeds" : "links");
  if (c->links && c->network.links.topology == LINK_SHARED)
    return status_set(STATUS_BAD_USAGE, "--links: on a shared medium there is one rate for all, --bandwidth");
  if (c->links && c->own_rate) return status_set(STATUS_BAD_USAGE, "--links gives the rate of each device's link: leave out --bandwidth");
  if (c->measure && (c->model || c->peers || c->speeds))
    return status_set(STATUS_BAD_USAGE, "--measure is for a --checkpoint on devices like this one, without --peers and --speeds");
  if (c->peers && c->model) return status_set(STATUS_BAD_USAGE, "--peers: workers have a checkpoint, give it with --checkpoint");
  return STATUS_OK;
}

static Status parse(PlanCommand *command, int argc, char **argv) {
  Option options[PLAN_OPTIONS_MAX];
  plan_options(command, options);
  Status status = cli_parse(options, argc, argv);
  command->own_rate = options_given(options, "bandwidth");
  command->own_links = command->own_rate || options_given(options, "latency");
  command->own_topology = options_given(options, "link-model");
  if (command->threads < 0) command->threads = command->peers ? 0 : 1; /* as a run does */
  if (status == STATUS_OK) status = check_peers(command, options_given(options, "wait") || options_given(options, "timeout"));
  if (status == STATUS_OK && !command->checkpoint == !command->model)
    status = status_set(STATUS_BAD_USAGE, "give --checkpoint DIR or --model NAME (%s)", config_preset_names());
  if (status == STATUS_OK && command->calibrate == 0) status = status_set(STATUS_BAD_USAGE, "--calibrate: the time must be above 0");
  if (status == STATUS_OK && command->chart) status = files_try(command->chart); /* before anything is measured */
  return status;
}

/* ---- the model */

static Status load_config(const PlanCommand *command, ModelConfig *config) {
  if (command->model) {
    const Status known = config_preset(config, command->model, CLASSES);
    return known == STATUS_OK || known == STATUS_NO_MEMORY
               ? known
               : status_set(STATUS_BAD_USAGE, "--model %s: known are %s; a checkpoint is named with --checkpoint", command->model,
                            config_preset_names());
  }
  char *directory;
  TRY(infer_run_find(command->checkpoint, &directory));
  Status status = config_load(config, directory);
  free(directory);
  return status;
}

/* ---- from options to the planner's setup */

static Status read_strategies(const char *text, uint32_t *bits) {
  char name[16];
  *bits = (1u << STRATEGY_COUNT) - 1;
  if (strcmp(text, "all") == 0) return STATUS_OK;
  *bits = 0;
  for (const char *at = text;; at++) {
    Strategy strategy;
    const size_t length = strcspn(at, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    if (strategy_find(&strategy, name) != STATUS_OK) return status_wrap(STATUS_BAD_USAGE, "--strategies");
    *bits |= 1u << strategy;
    at += length;
    if (*at == '\0') return STATUS_OK;
  }
}

static Status read_groups(const PlanCommand *command, PlannerSetup *setup) {
  static const int usual[] = {1, 16, 32};
  if (command->groups) {
    TRY(cli_parse_numbers("groups", command->groups, 65536, setup->groups, PLANNER_GROUPS_MAX, &setup->group_count));
    return planner_check_groups(setup) == STATUS_OK ? STATUS_OK : status_wrap(STATUS_BAD_USAGE, "--groups");
  }
  for (int rate = 0; rate < config_rates(setup->config); rate++)
    setup->groups[setup->group_count++] = config_rate_groups(setup->config, rate);
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
  if (command->calibrate < 0) return STATUS_OK;
  *target = command->calibrate;
  alone.devices = 1;
  alone.with_input = false; /* computation is scaled, not the transfer */
  TRY(planner_run(&alone, &plan));
  setup->scale = *target / plan.single;
  planner_release(&plan);
  return STATUS_OK;
}

/* ---- in virtual time */

static Status measure_row(const PlannerSetup *setup, const Weights *weights, const KvTables *tables, PlanRow *row) {
  const MeasuredCase wanted = {.weights = weights,
                               .device = {.strategy = row->strategy,
                                          .devices = row->devices,
                                          .tokens = setup->tokens,
                                          .counts = row->counts,
                                          .tables = row->table_blocks > 0 ? tables : NULL,
                                          .parts = row->parts,
                                          .min_packets = setup->min_packets,
                                          .retained = setup->retained,
                                          .rows = MODEL_ROWS_CLASS},
                               .repeats = MEASURE_REPEATS,
                               .links = setup->links,
                               .ends = setup->ends,
                               .reliability = setup->reliability,
                               .work = setup->work,
                               .scale = setup->scale};
  SimResult result;
  TRY(measure_latency(&wanted, &result));
  row->measured = result.latency + (setup->with_input ? row->input : 0);
  return STATUS_OK;
}

/* Where the plan counts on them. */
static Status build_tables(const PlannerSetup *setup, const Weights *weights, const Plan *plan, KvTables **tables) {
  bool wanted = false;
  for (int i = 0; i < plan->count; i++) wanted = wanted || plan->rows[i].table_blocks > 0;
  if (!wanted || !weights->books) return STATUS_OK;
  const real **codewords = calloc((size_t)weights->book_count, sizeof *codewords);
  if (!codewords) return status_no_memory(NULL, "tables of keys and values");
  for (int b = 0; b < weights->book_count; b++) codewords[b] = weights->books[b].codewords;
  const KvTablesSetup all = {.codewords = codewords,
                             .groups = weights->books[0].groups,
                             .entries = weights->books[0].entries,
                             .memory = (size_t)(setup->table_bytes / config_rates(weights->config)) /* which has codebooks: 1 or more */};
  Status status = kv_tables_build(tables, weights->model, &all);
  free(codewords);
  return status;
}

/* With the bit rate in use: rows of other rates are left out, and of strategies that send no codes all but those of the first rate. */
static Status measure_rate(const PlannerSetup *setup, const Weights *weights, bool first, Plan *plan) {
  const int groups = weights->config->astra.groups;
  KvTables *tables = NULL;
  Status status = build_tables(setup, weights, plan, &tables);
  for (int i = 0; i < plan->count && status == STATUS_OK; i++) {
    PlanRow *row = &plan->rows[i];
    const bool here = row->strategy == STRATEGY_ASTRA && groups > 0 ? row->groups == groups : first;
    if (here && !row->other_groups) status = measure_row(setup, weights, tables, row);
  }
  kv_tables_free(tables);
  return status;
}

static Status measure_rows(const PlannerSetup *setup, Weights *weights, Plan *plan) {
  const int rates = config_rates(weights->config);
  for (int rate = 0; rate < (rates > 1 ? rates : 1); rate++) {
    if (rates > 1) TRY(weights_use_rate(weights, config_rate_groups(weights->config, rate)));
    TRY(measure_rate(setup, weights, rate == 0, plan));
  }
  return STATUS_OK;
}

/* What is measured is the model itself, which has positions for its own tokens alone; less costly to tell before anything is measured. */
static Status check_measured(const PlanCommand *command, const ModelConfig *config) {
  if (!command->measure) return STATUS_OK;
  if (config_is_decoder(config)) return status_set(STATUS_BAD_USAGE, "--measure is for models that classify images");
  if (command->tokens > config_tokens(config))
    return status_set(STATUS_BAD_USAGE, "--tokens %lld: %s takes at most %lld, and with --measure no others can be measured",
                      (long long)command->tokens, command->checkpoint, (long long)config_tokens(config));
  return STATUS_OK;
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

/* Each device has a connection of its own to the network, with a rate of its own. */
static void take_ends(const PlanCommand *command, PlannerSetup *setup, const LinkEnd *ends, LinkOptions *links) {
  setup->ends = ends;
  links->bits_per_second = 0;
  if (!command->own_topology) links->topology = LINK_SWITCH;
}

/* A shared medium has one rate for all: the slowest. */
static void take_measured(const PlanCommand *command, PlannerSetup *setup, const PlanPeers *peers, LinkOptions *links) {
  const LinkEnd slowest = planner_slowest_link(peers->ends, peers->count);
  bool shared = links->topology == LINK_SHARED;
  if (!shared) take_ends(command, setup, peers->ends, links);
  if (!shared) setup->beside = peers->beside;
  links->latency = shared ? slowest.latency : 0;
  if (shared) links->bits_per_second = link_slower(slowest.out, slowest.in);
}

static void tell_of_long_measuring(const ModelConfig *config, int64_t tokens) {
  const double tera = 1e-12 * probe_operations(config, tokens);
  if (tera > LONG_MEASURING) log_info("measuring takes %.1f TFLOP at least, %.0f s at 100 GFLOP/s", tera, 10 * tera);
}

/* This device as it is, and as many like it as the options want. */
static Status measure_own(const PlanCommand *command, PlannerSetup *setup, PlanDevices *devices, LinkOptions *links, DeviceProfile *own) {
  TRY(plan_devices_read(command->nodes, command->speeds, command->links, devices)); /* before measuring, which takes a while */
  tell_of_long_measuring(setup->config, setup->tokens);
  TRY(probe_compute(setup->config, setup->tokens, PROBE_BY_ITSELF, own));
  setup->devices = devices->count;
  setup->leader = devices->leader;
  setup->counts_tried = devices->counts_tried;
  for (int d = 0; d < devices->count; d++) devices->profiles[d] = device_profile_scaled(own, devices->speeds[d]);
  setup->profiles = devices->profiles;
  if (devices->linked) take_ends(command, setup, devices->ends, links);
  return STATUS_OK;
}

/* Devices measure themselves with the tokens that the model takes. */
static Status measure_peers(const PlanCommand *command, PlannerSetup *setup, PlanPeers *peers, LinkOptions *links) {
  const PlanPeersOptions options = {.peers = command->peers,
                                    .key_file = command->key_file,
                                    .nodes = command->nodes,
                                    .local = command->local,
                                    .wait = command->wait,
                                    .timeout = command->timeout,
                                    .weights = (WeightsBits)command->weights,
                                    .precision = (WeightsPrecision)command->precision,
                                    .threads = (int)command->threads,
                                    .tokens = setup->tokens};
  const int64_t max = config_tokens(setup->config);
  setup->rows_measured = config_is_decoder(setup->config) && setup->tokens < max ? setup->tokens : max;
  tell_of_long_measuring(setup->config, setup->rows_measured);
  TRY(plan_peers_measure(&options, command->checkpoint, peers));
  setup->devices = peers->count;
  setup->leader = peers->leader;
  setup->profiles = peers->profiles;
  if (!command->own_links && peers->linked) take_measured(command, setup, peers, links);
  return plan_devices_counts(command->nodes, setup->devices, "with those of --peers", &setup->counts_tried);
}

static Status run_plan(const PlanCommand *command, const ModelConfig *config) {
  PlanDevices devices;
  PlanPeers peers = {.count = 0};
  DeviceProfile own;
  LinkOptions links;
  Reliability reliability;
  PlannerSetup setup = {.config = config,
                        .tokens = command->tokens > 0 ? command->tokens : config_tokens(config),
                        .links = &links,
                        .reliability = &reliability,
                        .parts = (int)command->parts,
                        .min_packets = (int)command->network.datagrams,
                        .retained = (int)command->retained,
                        .even = command->even,
                        .untrained = command->model != NULL,
                        .with_input = command->with_input};
  PacketWork work;
  Plan plan;
  double target;
  TRY(retained_check(command->retained, config->blocks));
  TRY(network_options_read(&command->network, &links, &reliability));
  TRY(read_strategies(command->strategies, &setup.strategies));
  TRY(read_groups(command, &setup));
  setup.table_bytes = command->table_memory;
  TRY(command->peers ? measure_peers(command, &setup, &peers, &links) : measure_own(command, &setup, &devices, &links, &own));
  if (packet_work_measure(&work) == STATUS_OK)
    setup.work = &work;
  else
    log_warning("%s; packets are planned as if they cost nothing", status_message());
  TRY(calibrate(command, &setup, &target));
  TRY(planner_run(&setup, &plan));
  const PlanReport report = {.model = command->model ? command->model : command->checkpoint,
                             .setup = &setup,
                             .profile = command->peers ? setup.profiles : &own,
                             .peers = &peers,
                             .plan = &plan,
                             .calibrated = target};
  Status status = command->measure ? measure_plan(command, &setup, &plan) : STATUS_OK;
  if (status == STATUS_OK && command->json) status = plan_report_json(&report);
  if (status == STATUS_OK && !command->json) plan_report_text(&report);
  if (status == STATUS_OK && command->chart) status = plan_report_chart(&report, command->chart);
  planner_release(&plan);
  return status;
}

static Status plan_run(int argc, char **argv) {
  PlanCommand command;
  Option options[PLAN_OPTIONS_MAX];
  ModelConfig config;
  plan_options(&command, options);
  if (cli_helped(options, USAGE, ABOUT, argc, argv)) return STATUS_OK;
  TRY(parse(&command, argc, argv));
  TRY(cli_check_kernels(command.backend));
  TRY(load_config(&command, &config));
  /* With --peers this process computes nothing: the device of its own that it forks has threads of its own. */
  Status status = check_measured(&command, &config);
  if (status == STATUS_OK && !command.peers) status = threads_start((int)command.threads);
  if (status == STATUS_OK) status = run_plan(&command, &config);
  threads_stop();
  config_release(&config);
  return status;
}

const CliCommand infer_plan_command = {"plan", "predict which strategy, groups and devices are fastest", plan_run};
