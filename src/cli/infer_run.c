/* What all commands of astra-infer do: the checkpoint, the nodes, JSON, cleaning up. */
#include "cli/infer_run.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/files.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/signals.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/infer_settings.h"
#include "cli/network_options.h"
#include "data/data_paths.h"
#include "data/dataset.h"
#include "infer/cluster/leader.h"
#include "infer/node_share.h"
#include "infer/report.h"
#include "infer/wire.h"
#include "nn/json_build.h"
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- How codes travel ---- */

enum { OVERHEAD_UDP = 28 + 14 /* IP, UDP, Ethernet: what a token bucket of the system counts */ };

static Status read_links(const InferLinkOptions *o, LinkOptions *links) {
  if (o->loss_unit == 1 && o->network.loss <= 0)
    return status_set(STATUS_BAD_USAGE, "--loss-unit token is for --loss SHARE, e.g. --loss 5%%; without it nothing is lost");
  TRY(network_links_read(&o->network, o->loss_unit == 1, links));
  if (o->trace && o->network.bandwidth >= 0) return status_set(STATUS_BAD_USAGE, "--trace gives the rate: leave out --bandwidth");
  if (o->trace && link_trace_open(&links->trace, o->trace, links->seed) != STATUS_OK) return status_wrap(STATUS_BAD_USAGE, "--trace");
  return STATUS_OK;
}

static Status read_reliability(const InferLinkOptions *o, TransportKind transport, double timeout, Reliability *r) {
  bool datagrams = transport == TRANSPORT_UDP;
  if (!datagrams && o->reliability) return status_set(STATUS_BAD_USAGE, "--reliability is for --transport udp: a stream loses nothing");
  *r = (Reliability){.mode = datagrams ? (ReliabilityMode)(o->reliability ? o->reliability : RELIABILITY_DEADLINE) : RELIABILITY_STREAM,
                     .min_packets = datagrams ? (int)o->datagrams : 1,
                     .timeout = timeout};
  if (!o->deadline || strcmp(o->deadline, "auto") == 0) return STATUS_OK;
  if (r->mode == RELIABILITY_RETRANSMIT)
    return status_set(STATUS_BAD_USAGE, "--deadline does not go with --reliability retransmit, which waits until all is there");
  TRY(options_unit(OPTION_TIMEOUT, "--deadline", o->deadline, &r->deadline));
  return r->deadline > 0 ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--deadline 0: give a time above it, or auto");
}

static Status read_link_options(const InferLinkOptions *o, TransportKind transport, double timeout, ClusterSetup *setup) {
  setup->transport = transport;
  setup->parts = o->parts > 0 ? (int)o->parts : 1;
  setup->mtu = (uint32_t)o->mtu;
  setup->entropy = (EntropyChoice)o->entropy;
  if (o->mtu && o->mtu < 576) return status_set(STATUS_BAD_USAGE, "--mtu %d: 576 to 9000, or 0", (int)o->mtu);
  TRY(read_links(o, &setup->links));
  Status status = read_reliability(o, setup->transport, timeout, &setup->reliability);
  setup->links.overhead = setup->transport == TRANSPORT_UDP ? OVERHEAD_UDP : LINK_SEGMENT_OVERHEAD;
  bool packets_lost = setup->links.loss > 0 && !setup->links.lose_tokens;
  const NetworkLinks *asked = &o->network;
  setup->shaped = asked->bandwidth >= 0 || asked->latency >= 0 || asked->jitter >= 0 || o->trace || packets_lost;
  if (status != STATUS_OK) return status;
  if (setup->links.topology == LINK_SHARED)
    return status_set(STATUS_BAD_USAGE, "--link-model shared-medium needs virtual time (astra-infer plan, astra-bench latency)");
  if (packets_lost && setup->transport != TRANSPORT_UDP)
    return status_set(STATUS_BAD_USAGE, "--loss needs --transport udp (a stream hides what is lost), or --loss-unit token");
  return STATUS_OK;
}

/* Checked against how codes travel, which it follows. */
static Status read_strategy(const InferSettings *s, ClusterSetup *setup) {
  const StrategyFacts *facts = strategy_facts((Strategy)s->strategy);
  setup->strategy = (Strategy)s->strategy;
  setup->retained = (int)s->retained;
  if (facts->sends_codes) return STATUS_OK;
  if (setup->transport == TRANSPORT_UDP && setup->strategy == STRATEGY_SINGLE)
    return status_set(STATUS_BAD_USAGE, "--strategy single sends nothing between nodes: leave out --transport udp");
  if (setup->transport == TRANSPORT_UDP)
    return status_set(STATUS_BAD_USAGE, "--strategy %s sends whole tokens: --transport tcp", facts->name);
  if (setup->entropy == ENTROPY_ON)
    return status_set(STATUS_BAD_USAGE, "--entropy on: --strategy %s sends no codes, astra does", facts->name);
  if (setup->parts > 1) return status_set(STATUS_BAD_USAGE, "--parts: --strategy %s knows no parts of blocks, astra does", facts->name);
  if (setup->reliability.deadline > 0)
    return status_set(STATUS_BAD_USAGE, "--deadline: --strategy %s needs every message: leave out --deadline, or use --strategy astra",
                      facts->name);
  if (setup->links.lose_tokens && setup->links.loss > 0)
    return status_set(STATUS_BAD_USAGE, "--loss: --strategy %s needs every message: leave out --loss, or use --strategy astra",
                      facts->name);
  setup->links.lose_tokens = false;
  return STATUS_OK;
}

/* ---- Tables of keys and values ---- */

static double milliseconds(const KvTables *tables, bool product) { return 1e3 * kv_tables_seconds(tables, product); }

static void tell_tables(const Weights *weights) {
  const KvTables *tables = weights->keys;
  const int groups = weights->config->astra.groups;
  const char *plural = text_plural(groups);
  if (weights->config->astra.prediction) return; /* there never are any */
  if (kv_tables_seconds(tables, true) <= 0) {
    log_info("keys and values of other nodes' tokens by products: a table of %d group%s has no room in --table-memory", groups, plural);
    return;
  }
  if (kv_tables_blocks(tables) == 0) {
    log_info(
        "keys and values of other nodes' tokens by products: tables of %d group%s would save too little (%d tokens in a block: %.2f ms, by "
        "products %.2f ms)",
        groups, plural, KV_TABLES_ROWS, milliseconds(tables, false), milliseconds(tables, true));
    return;
  }
  log_info(
      "keys and values of other nodes' tokens from tables of %d group%s: %d tokens in a block %.2f ms, by products %.2f ms; %.1f MB for "
      "%lld of %lld blocks",
      groups, plural, KV_TABLES_ROWS, milliseconds(tables, false), milliseconds(tables, true), (double)kv_tables_bytes(tables) / 1e6,
      (long long)kv_tables_blocks(tables), (long long)config_end_coded(weights->config));
}

Status infer_tables_make(double bytes, bool verbose, Weights *weights) {
  TRY(weights_make_tables(weights, bytes < (double)SIZE_MAX ? (size_t)bytes : SIZE_MAX));
  if (verbose && weights->keys) tell_tables(weights);
  return STATUS_OK;
}

/* ---- Running a command ---- */

static const char notice[] = "latency baseline: the accuracy would need its own training";

static volatile sig_atomic_t stop;
static void ask_to_stop(int number) { stop = number; }

void infer_run_catch_signals(void) {
  signals_catch(SIGINT, ask_to_stop);
  signals_catch(SIGTERM, ask_to_stop);
  signals_catch(SIGHUP, ask_to_stop);
}

const volatile sig_atomic_t *infer_run_stop_flag(void) { return &stop; }

Status infer_run_find(const char *checkpoint, char **directory) {
  const bool there = files_exists(checkpoint), name = !there && !strchr(checkpoint, '/');
  if (!*checkpoint)
    return status_set(STATUS_BAD_USAGE, "--checkpoint: '' is not accepted; give a directory, or the name of an installed model");
  if (!checkpoint_is_path(checkpoint) && name) return data_paths_find("checkpoints", checkpoint, NULL, directory);
  if (!checkpoint_is_path(checkpoint))
    return status_set(there ? STATUS_BAD_FILE : STATUS_NOT_FOUND,
                      "--checkpoint %s: %s directory or GGUF file; give that of a model, or the name of an installed one (astra-data list)",
                      checkpoint, there ? "it is no" : "there is no such");
  *directory = strdup(checkpoint);
  return *directory ? STATUS_OK : status_no_memory(NULL, "a path");
}

static int choose_nodes(const InferSettings *s, const InferRun *run) {
  int named = s->split ? partition_split_length(s->split) : 0;
  if (run->devices > 0) return run->devices;
  if (run->cluster.options.peer_count > 0) return run->cluster.options.local + run->cluster.options.peer_count;
  if (s->nodes > 0) return (int)s->nodes;
  if (named > 0) return named;
  return run->weights.books && run->weights.config->astra.devices > 0 ? run->weights.config->astra.devices : 1;
}

/* Where the model cannot be divided among so many devices, names the option that says how many there are; found workers are no option's. */
static Status name_nodes(const InferSettings *s, const InferRun *run, Status status) {
  const bool impossible = status == STATUS_BAD_VALUE || status == STATUS_UNSUPPORTED;
  if (!impossible || run->cluster.options.discovered) return status;
  if (s->peers) return status_wrap(STATUS_BAD_USAGE, "--peers %s", s->peers);
  if (s->nodes > 0) return status_wrap(STATUS_BAD_USAGE, "--nodes %lld", (long long)s->nodes);
  if (s->split && !infer_split_wanted(s->split)) return status_wrap(STATUS_BAD_USAGE, "--split %s", s->split);
  return s->strategy == STRATEGY_ASTRA ? status : status_wrap(STATUS_BAD_USAGE, "--strategy"); /* as many as it was trained for */
}

static Status choose_partition(const InferSettings *s, InferRun *run) {
  const ModelConfig *config = run->weights.config;
  TokenMap map = config->astra.layout;
  int64_t side = config->image / config->patch;
  if (s->layout && strcmp(s->layout, "trained") != 0 && !token_map_parse(s->layout, &map))
    return status_set(STATUS_BAD_USAGE, "--layout %s: accepted are %s, and trained (as the checkpoint says)", s->layout, token_map_names);
  const bool by_number = s->split && !infer_split_wanted(s->split);
  const int nodes = choose_nodes(s, run);
  TRY(name_nodes(s, run, partition_init(&run->partition, config_tokens(config), nodes, by_number ? s->split : NULL)));
  return partition_place(&run->partition, &map, side, side);
}

LeaderOptions infer_run_options(const InferSettings *s, const InferRun *run, int nodes) {
  int threads = s->threads > 0 ? (int)s->threads : nodes == 1 ? 0 : 1;
  return (LeaderOptions){.batch_max = s->batch, .timeout = s->timeout, .threads = threads, .network = &run->network, .stop = &stop};
}

/* --groups auto, where there is something to choose. */
static bool infer_rates_wanted(const InferSettings *s, const InferRun *run) {
  return s->groups && strcmp(s->groups, "auto") == 0 && config_rates(run->weights.config) > 1 &&
         strategy_facts(run->network.strategy)->sends_codes;
}

/* --groups: the bit rate. */
static Status use_rate(const InferSettings *s, Weights *weights) {
  char *end;
  if (!s->groups || strcmp(s->groups, "auto") == 0) return STATUS_OK;
  const long groups = s->groups[0] >= '0' && s->groups[0] <= '9' ? strtol(s->groups, &end, 10) : 0;
  if (groups < 1 || groups > INT_MAX || *end)
    return status_set(STATUS_BAD_USAGE, "--groups: '%s' is not accepted; give one of the checkpoint's numbers of groups, or auto",
                      s->groups);
  weights->one_rate = true;
  return weights_use_rate(weights, (int)groups) == STATUS_OK ? STATUS_OK : status_wrap(STATUS_BAD_USAGE, "--groups %ld", groups);
}

/* This process forks a node, or more. */
static bool codes_are_heard_here(const InferSettings *s) { return !s->peers || s->local; }

/* Both are even until the devices have been measured. */
static void choose_split(const InferSettings *s, InferRun *run, LeaderOptions *options) {
  bool text = config_is_decoder(run->weights.config);
  options->adapt_rate = infer_rates_wanted(s, run);
  run->divided.rates = options->adapt_rate;
  run->divided.wanted = infer_split_wanted(s->split);
  if (!run->divided.wanted && !run->divided.rates) return;
  run->divided.all = (s->split && strcmp(s->split, "all") == 0) || s->nodes > 0 || run->devices > 0;
  run->divided.weights = &run->weights;
  run->divided.network = &run->network;
  run->divided.choose_parts = s->links.parts == 0 && s->batch == 1; /* of larger batches blocks are not cut */
  run->divided.partition = text ? NULL : &run->partition;
  run->divided.split = text ? &run->split : NULL;
  run->divided.tokens = !text ? run->partition.tokens : options->tokens_max > 0 ? options->tokens_max : run->weights.config->context;
  run->divided.table_memory = codes_are_heard_here(s) || !strategy_facts(run->network.strategy)->sends_codes ? 0 : s->links.memory.tables;
  options->divide = infer_split_divide;
  options->divide_context = &run->divided;
}

static Status describe_nodes(const InferSettings *s, InferRun *run, const LeaderOptions *options, LeaderOptions *all) {
  bool text = config_is_decoder(run->weights.config);
  TRY(retained_check(s->retained, run->weights.config->blocks));
  TRY(text ? token_split_init(&run->split, choose_nodes(s, run), infer_split_wanted(s->split) ? NULL : s->split)
           : choose_partition(s, run));
  const NodeSetup division = {.weights = &run->weights,
                              .partition = text ? NULL : &run->partition,
                              .split = text ? &run->split : NULL,
                              .strategy = run->network.strategy,
                              .retained = run->network.retained};
  TRY(name_nodes(s, run, node_share_check(&division)));
  int nodes = text ? run->split.nodes : run->partition.nodes;
  *all = infer_run_options(s, run, nodes);
  all->batch_max = options->batch_max;
  all->tokens_max = text ? options->tokens_max : 0;
  all->cluster = &run->cluster.options;
  run->cluster.options.checkpoint = run->directory;
  if (s->peers && s->threads == 0) all->threads = 0; /* a device of its own computes on all its cores; nodes of one machine share them */
  if (run->cluster.options.peer_count == 0) run->cluster.options.local = nodes;
  choose_split(s, run, all);
  return STATUS_OK;
}

static Status start_nodes(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  LeaderOptions all;
  TRY(describe_nodes(s, run, options, &all));
  return config_is_decoder(run->weights.config) ? leader_start_text(&run->leader, &run->weights, &run->split, &all)
                                                : leader_start(&run->leader, &run->weights, &run->partition, &all);
}

/* The others are let go, and the devices that are faster by themselves start anew. used: nodes as bits */
static Status start_fewer(const InferSettings *s, InferRun *run, const LeaderOptions *options, uint64_t used) {
  ClusterOptions *cluster = &run->cluster.options;
  int local = s->peers ? cluster->local : 0, kept = 0;
  leader_stop(run->leader);
  run->leader = NULL;
  partition_release(&run->partition);
  run->divided.made = false;
  for (int i = 0; i < cluster->peer_count; i++)
    if (used >> (local + i) & 1) run->cluster.peers[kept++] = run->cluster.peers[i];
  if (s->peers) cluster->local = local && (used & 1);
  cluster->peer_count = kept;
  for (; used; used &= used - 1) run->devices++;
  return start_nodes(s, run, options);
}

/* Nodes that this process forks hear others, and hear codes. */
static bool needs_tables(const InferSettings *s, const InferRun *run) {
  return choose_nodes(s, run) > 1 && codes_are_heard_here(s) && strategy_facts(run->network.strategy)->sends_codes;
}

Status infer_run_prepare(const InferSettings *s, InferRun *run, const LeaderOptions *options, LeaderOptions *all) {
  TRY(infer_cluster_open(&run->cluster, s));
  if (needs_tables(s, run)) TRY(infer_tables_make(s->links.memory.tables, s->verbose, &run->weights));
  return describe_nodes(s, run, options, all);
}

/* worker: its address; NULL: a process of this machine. */
static void tell_node(const InferSettings *s, int node, const char *worker, int pid) {
  if (!s->verbose) return;
  if (worker)
    fprintf(stderr, "node %d is worker %s\n", node, printable(worker));
  else
    fprintf(stderr, "node %d is pid %d\n", node, pid);
}

Status infer_run_start(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  infer_run_catch_signals();
  TRY(infer_cluster_open(&run->cluster, s));
  run->cluster.options.await_fetch = true;
  run->divided.samples = options->batch_max;
  if (needs_tables(s, run)) TRY(infer_tables_make(s->links.memory.tables, s->verbose, &run->weights));
  TRY(start_nodes(s, run, options));
  uint64_t used;
  if (infer_split_leaves_out(&run->divided, run->leader, &used)) TRY(start_fewer(s, run, options, used));
  if (!leader_strategy(run->leader)->right_answers) log_warning("strategy %s: %s", leader_strategy(run->leader)->name, notice);
  for (int d = 0; d < leader_nodes(run->leader); d++) {
    char text[LEADER_WORKER];
    tell_node(s, d, leader_worker(run->leader, d, text) ? text : NULL, (int)leader_pid(run->leader, d));
  }
  return STATUS_OK;
}

void infer_run_tell_nodes(const InferSettings *s, Engine *engine) {
  EngineState state;
  engine_state(engine, &state);
  for (int d = 0; d < state.nodes; d++) tell_node(s, d, state.devices[d].worker[0] ? state.devices[d].worker : NULL, state.devices[d].pid);
}

void infer_run_tell_machine(const InferSettings *s) {
  char machine[KERNELS_TEXT];
  if (!s->verbose) return;
  matmul_describe(machine, sizeof machine);
  fprintf(stderr, "machine: %s\n", machine);
}

Status infer_run_load(const InferSettings *s, InferRun *run) {
  if (run->directory) return STATUS_OK;
  TRY(infer_run_find(s->checkpoint, &run->directory));
  TRY(weights_load_as(&run->weights, run->directory, (WeightsType)s->links.memory.cache_type));
  run->weights.cache_full = s->links.memory.remote_cache != 0;
  TRY(weights_quantise(&run->weights, (WeightsBits)s->weights));
  TRY(weights_use_precision(&run->weights, (WeightsPrecision)s->precision));
  TRY(use_rate(s, &run->weights));
  if (s->dataset) TRY(weights_pack(&run->weights, false));
  weights_guard(&run->weights);
  if (run->network.entropy != ENTROPY_ON || run->weights.coding) return STATUS_OK;
  if (!run->weights.books) return status_set(STATUS_BAD_USAGE, "--entropy on: a plain model has no codebooks, and so no codes to send");
  return status_set(STATUS_BAD_USAGE, "--entropy on: %s has no frequencies of codes; astra-kmeans frequencies counts them", run->directory);
}

static InferKind kind_of(const InferRun *run) {
  const ModelConfig *config = run->weights.config;
  return !config_is_decoder(config) ? INFER_KIND_IMAGES : config->classes > 0 ? INFER_KIND_TEXTS : INFER_KIND_LANGUAGE;
}

static const struct {
  const char *name, *takes;
} kinds[] = {[INFER_KIND_IMAGES] = {"a model that classifies images", "images, or astra-infer eval a data set of them"},
             [INFER_KIND_TEXTS] = {"a model that classifies texts",
                                   "--text TEXT, or astra-infer eval a data set of texts with classes (sst2:DIR, tsv:FILE...)"},
             [INFER_KIND_LANGUAGE] = {"a language model", "--prompt TEXT, or astra-infer eval --dataset text:PATH"}};

Status infer_run_require(const InferRun *run, InferKind kind) {
  InferKind own = kind_of(run);
  if (own == kind) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s is %s: give astra-infer %s", run->directory, kinds[own].name, kinds[own].takes);
}

Status infer_run_require_options(const InferSettings *s, const InferRun *run) {
  InferKind own = kind_of(run);
  char those[96] = "";
  if (!s->not_for[own].option) return STATUS_OK;
  for (int kind = 0; kind < INFER_KINDS; kind++) {
    size_t used = strlen(those);
    if (s->not_for[own].kinds >> kind & 1) snprintf(those + used, sizeof those - used, "%s%s", used ? " or " : "", kinds[kind].name);
  }
  return status_set(STATUS_BAD_USAGE, "--%s is for %s; %s is %s", s->not_for[own].option, those, run->directory, kinds[own].name);
}

/* {"chosen": "tables", "blocks": 12, "bytes": 75497472, "tables_ms": 0.1, "product_ms": 6.4}: times of 256 tokens in a block; chosen is
 * "product" where tables do not pay (kv_tables.h), or no block's has room. */
static json_t *tables_json(const KvTables *tables) {
  return json_pack("{s:s, s:I, s:I, s:f, s:f}", "chosen", kv_tables_blocks(tables) > 0 ? "tables" : "product", "blocks",
                   (json_int_t)kv_tables_blocks(tables), "bytes", (json_int_t)kv_tables_bytes(tables), "tables_ms",
                   milliseconds(tables, false), "product_ms", milliseconds(tables, true));
}

Status infer_run_print_json(json_t *value, const InferRun *run) {
  if (value) json_object_set_new(value, "checkpoint", json_build_string(run->directory));
  if (value && run->leader) {
    const LeaderSums *sums = leader_sums(run->leader);
    char layout[TOKEN_MAP_NAME];
    json_object_set_new(value, "strategy", json_string(strategy_facts(leader_setup(run->leader)->strategy)->name));
    if (!leader_strategy(run->leader)->right_answers) json_object_set_new(value, "notice", json_string(notice));
    if (leader_strategy(run->leader)->sends_codes && run->weights.books)
      json_object_set_new(value, "groups", json_integer(leader_weights(run->leader)->config->astra.groups));
    json_object_set_new(value, "reruns", json_integer(sums->reruns));
    json_object_set_new(value, "incomplete_answers", json_integer(sums->masked));
    const KvTables *tables = leader_weights(run->leader)->keys; /* of the last request's bit rate */
    if (tables) json_object_set_new(value, "tables", tables_json(tables));
    json_object_set_new(value, "fastest_ms", json_build_number(sums->fastest > 0 ? 1e3 * sums->fastest : NAN));
    token_map_name(&run->partition.map, layout);
    if (run->partition.width > 0) json_object_set_new(value, "layout", json_string(layout));
    json_object_set_new(value, "fpar", json_real(report_fpar(run->leader)));
  }
  if (value && (run->divided.made || run->divided.asked > 0))
    json_object_set_new(value, "split", infer_split_json(&run->divided, run->leader));
  return json_build_print(value);
}

void infer_run_report(const InferSettings *s, const InferRun *run) {
  if (s->quiet) return;
  putchar('\n');
  report_nodes(stdout, run->leader);
  infer_split_report(stdout, &run->divided, run->leader);
}

Status infer_run_network(const InferSettings *s, InferRun *run) {
  TRY(read_link_options(&s->links, infer_settings_datagrams(s) ? TRANSPORT_UDP : TRANSPORT_TCP, s->timeout, &run->network));
  return read_strategy(s, &run->network);
}

void infer_run_release(InferRun *run) {
  leader_stop(run->leader);
  link_trace_release(&run->network.links.trace);
  partition_release(&run->partition);
  weights_release(&run->weights);
  dataset_close(run->set);
  free(run->directory);
  *run = (InferRun){0};
}

Status infer_run_command(InferCommand command, int argc, char **argv, InferBody *body) {
  InferSettings settings;
  InferRun run = {0};
  int count = 0;
  Option options[INFER_OPTIONS_MAX];
  infer_settings_table(&settings, command, options);
  if (cli_help_wanted(options, argc, argv)) return infer_settings_help(command, stdout), STATUS_OK;
  const char **arguments = calloc((size_t)argc, sizeof *arguments);
  if (!arguments) return status_set(STATUS_NO_MEMORY, "no memory for %d arguments", argc);
  Status status = infer_settings_parse(&settings, command, argc, argv, arguments, &count);
  if (status == STATUS_OK) status = infer_run_network(&settings, &run);
  if (status == STATUS_OK) status = cli_check_kernels(settings.backend);
  if (status == STATUS_OK) infer_run_tell_machine(&settings);
  if (status == STATUS_OK) status = body(&settings, &run, arguments, count);
  infer_run_release(&run);
  free(arguments);
  return status;
}

Status infer_run_read_standard_input(char **text, size_t *bytes) {
  const Status status = cli_read_stream(stdin, INFER_TEXT_BYTES, "a prompt", &stop, text, bytes);
  if (status == STATUS_BAD_VALUE) return status_set(status, "standard input: more than %d MB of text", INFER_TEXT_BYTES >> 20);
  return status == STATUS_IO ? status_set(status, "standard input cannot be read") : status;
}
