/* See infer_run.h. */
#include "cli/infer_run.h"
#include "autograd/kernels/kernels.h"
#include "base/files.h"
#include "base/printable.h"
#include "cli/cli.h"
#include "cli/infer_strategy.h"
#include "cli/infer_tables.h"
#include "data/data_paths.h"
#include "infer/report.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t stop;
static void ask_to_stop(int number) { stop = number; }

/* A hang-up that nohup ignores stays ignored. */
void infer_run_catch_signals(void) {
  struct sigaction hang_up;
  struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

bool infer_run_interrupted(void) { return stop != 0; }

const volatile sig_atomic_t *infer_run_stop_flag(void) { return &stop; }

Status infer_run_find(const char *checkpoint, char **directory) {
  bool installed = !strchr(checkpoint, '/');
  if (!checkpoint_is_path(checkpoint) && installed) return data_paths_find("checkpoints", checkpoint, NULL, directory);
  if (!checkpoint_is_path(checkpoint))
    return status_set(STATUS_NOT_FOUND,
                      "--checkpoint %s: there is no such directory or GGUF file; give that of a model, or the name of an installed one",
                      checkpoint);
  *directory = strdup(checkpoint);
  return *directory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for a path");
}

static int choose_nodes(const InferSettings *s, const InferRun *run) {
  int named = s->split ? partition_split_length(s->split) : 0;
  if (run->devices > 0) return run->devices;
  if (run->cluster.options.peer_count > 0) return run->cluster.options.local + run->cluster.options.peer_count;
  if (s->nodes > 0) return (int)s->nodes;
  if (named > 0) return named;
  return run->weights.books && run->weights.config->astra.devices > 0 ? run->weights.config->astra.devices : 1;
}

static Status count_tokens(const InferSettings *s, InferRun *run) {
  int64_t tokens = config_tokens(run->weights.config);
  int nodes = choose_nodes(s, run);
  if (s->split && !infer_split_wanted(s->split)) return partition_split(&run->partition, tokens, nodes, s->split);
  return partition_even(&run->partition, tokens, nodes);
}

static Status choose_partition(const InferSettings *s, InferRun *run) {
  const ModelConfig *config = run->weights.config;
  TokenMap map = config->astra.layout;
  int64_t side = config->image / config->patch;
  if (s->layout && strcmp(s->layout, "trained") != 0 && !token_map_parse(s->layout, &map))
    return status_set(STATUS_BAD_USAGE, "--layout %s: accepted are %s, and trained (as the checkpoint says)", s->layout, token_map_names);
  TRY(count_tokens(s, run));
  return partition_place(&run->partition, &map, side, side);
}

LeaderOptions infer_run_options(const InferSettings *s, const InferRun *run, int nodes) {
  int threads = s->threads > 0 ? (int)s->threads : nodes == 1 ? 0 : 1;
  return (LeaderOptions){.batch_most = s->batch, .timeout = s->timeout, .threads = threads, .network = &run->network, .stop = &stop};
}

/* A device of its own computes on all its cores; nodes of one machine share them. */
static void choose_cluster(const InferSettings *s, InferRun *run, LeaderOptions *options, int nodes) {
  options->cluster = &run->cluster.options;
  if (s->peers && s->threads == 0) options->threads = 0;
  if (run->cluster.options.peer_count == 0) run->cluster.options.local = nodes;
}

/* Both are even until the devices have been measured. */
static void choose_split(const InferSettings *s, InferRun *run, LeaderOptions *options) {
  bool text = config_is_decoder(run->weights.config);
  if (!infer_split_wanted(s->split)) return;
  run->divided.all = strcmp(s->split, "all") == 0 || s->nodes > 0 || run->devices > 0;
  run->divided.weights = &run->weights;
  run->divided.network = &run->network;
  run->divided.choose_parts = s->links.parts == 0 && s->batch == 1; /* of larger batches blocks are not cut */
  run->divided.partition = text ? NULL : &run->partition;
  run->divided.split = text ? &run->split : NULL;
  options->divide = infer_split_divide;
  options->divide_context = &run->divided;
}

static Status start_text(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  TRY(token_split_init(&run->split, choose_nodes(s, run), infer_split_wanted(s->split) ? NULL : s->split));
  LeaderOptions all = infer_run_options(s, run, run->split.nodes);
  all.batch_most = options->batch_most;
  all.tokens_most = options->tokens_most;
  choose_cluster(s, run, &all, run->split.nodes);
  choose_split(s, run, &all);
  return leader_start_text(&run->leader, &run->weights, &run->split, &all);
}

static Status start_pictures(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  TRY(choose_partition(s, run));
  LeaderOptions all = infer_run_options(s, run, run->partition.nodes);
  all.batch_most = options->batch_most;
  choose_cluster(s, run, &all, run->partition.nodes);
  choose_split(s, run, &all);
  return leader_start(&run->leader, &run->weights, &run->partition, &all);
}

static Status start_nodes(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  return config_is_decoder(run->weights.config) ? start_text(s, run, options) : start_pictures(s, run, options);
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

static void print_node(const Leader *leader, int node) {
  char text[ADDRESS_TEXT];
  const Address *address = leader_address(leader, node);
  if (address)
    fprintf(stderr, "node %d is worker %s\n", node, printable(address_text(address, text)));
  else
    fprintf(stderr, "node %d is pid %d\n", node, (int)leader_pid(leader, node));
}

/* Nodes that this process forks hear others, and hear codes. */
static bool needs_tables(const InferSettings *s, const InferRun *run) {
  return choose_nodes(s, run) > 1 && (!s->peers || s->local) && strategy_facts(run->network.strategy)->sends_codes;
}

Status infer_run_start(const InferSettings *s, InferRun *run, const LeaderOptions *options) {
  infer_run_catch_signals();
  TRY(infer_cluster_open(&run->cluster, s));
  if (needs_tables(s, run)) TRY(infer_tables_make(s->links.table_memory, s->verbose, &run->weights));
  TRY(start_nodes(s, run, options));
  uint64_t used;
  if (infer_split_leaves_out(&run->divided, run->leader, &used)) TRY(start_fewer(s, run, options, used));
  infer_strategy_notice(run->leader);
  for (int d = 0; s->verbose && d < leader_nodes(run->leader); d++) print_node(run->leader, d);
  return STATUS_OK;
}

Status infer_run_load(const InferSettings *s, InferRun *run) {
  if (run->directory) return STATUS_OK;
  TRY(infer_run_find(s->checkpoint, &run->directory));
  TRY(weights_load_as(&run->weights, run->directory, (WeightsType)s->links.cache_type));
  TRY(weights_quantise(&run->weights, (WeightsBits)s->weights));
  TRY(weights_use_precision(&run->weights, (WeightsPrecision)s->precision));
  weights_guard(&run->weights);
  if (run->network.entropy != ENTROPY_ON || run->weights.coding) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--entropy on: %s has no frequencies of codes; astra-kmeans frequencies counts them", run->directory);
}

static InferKind kind_of(const InferRun *run) {
  const ModelConfig *config = run->weights.config;
  return !config_is_decoder(config) ? INFER_KIND_PICTURES : config->classes > 0 ? INFER_KIND_TEXTS : INFER_KIND_LANGUAGE;
}

static const struct {
  const char *name, *takes;
} kinds[] = {[INFER_KIND_PICTURES] = {"a model that classifies pictures", "pictures, or to eval a data set of them"},
             [INFER_KIND_TEXTS] = {"a model that classifies texts",
                                   "--text TEXT, or to eval a data set of texts with classes (sst2:DIR, tsv:FILE...)"},
             [INFER_KIND_LANGUAGE] = {"a language model", "--prompt TEXT, or to eval --dataset text:PATH"}};

Status infer_run_require(const InferRun *run, InferKind kind) {
  InferKind own = kind_of(run);
  if (own == kind) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s is %s: give it %s", run->directory, kinds[own].name, kinds[own].takes);
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

static json_t *layout_json(const TokenMap *map) {
  char name[TOKEN_MAP_NAME];
  token_map_name(map, name);
  return json_string(name);
}

Status infer_run_print_json(json_t *value, const InferRun *run) {
  if (value) json_object_set_new(value, "checkpoint", json_string(run->directory));
  if (value && run->leader) {
    infer_strategy_json(value, run->leader);
    json_object_set_new(value, "reruns", json_integer(leader_reruns(run->leader)));
    json_object_set_new(value, "incomplete_answers", json_integer(leader_masked(run->leader)));
    if (run->weights.keys) json_object_set_new(value, "tables", infer_tables_json(run->weights.keys));
    json_object_set_new(value, "fastest_ms", json_build_number(leader_fastest(run->leader) > 0 ? 1e3 * leader_fastest(run->leader) : NAN));
    if (run->partition.width > 0) json_object_set_new(value, "layout", layout_json(&run->partition.map));
    json_object_set_new(value, "fpar", json_real(report_fpar(run->leader)));
  }
  if (value && (run->divided.made || run->divided.asked > 0))
    json_object_set_new(value, "split", infer_split_json(&run->divided, run->leader));
  return json_build_print(value);
}

/* Between devices a segment that a stream has lost holds up all behind it for longer than a request takes; whole rows bear no loss. */
static Transport usual_transport(const InferSettings *s) {
  return s->peers && strategy_facts((Strategy)s->strategy)->sends_codes ? TRANSPORT_UDP : TRANSPORT_TCP;
}

static void print_machine(void) {
  char text[KERNELS_TEXT];
  kernels_describe(text, sizeof text);
  fprintf(stderr, "machine: %s\n", text);
}

Status infer_run_command(InferCommand command, int argc, char **argv, InferBody *body) {
  InferSettings settings;
  InferRun run = {0};
  int count = 0;
  const char **arguments = calloc((size_t)argc, sizeof *arguments);
  if (!arguments) return status_set(STATUS_NO_MEMORY, "no memory for %d arguments", argc);
  Status status = infer_settings_parse(&settings, command, argc, argv, arguments, &count);
  if (status == STATUS_OK) status = infer_link_options_read(&settings.links, usual_transport(&settings), settings.timeout, &run.network);
  if (status == STATUS_OK) status = infer_strategy_read(&settings, &run.network);
  if (status == STATUS_OK) status = cli_check_kernels(settings.backend);
  if (status == STATUS_OK && settings.verbose) print_machine();
  if (status == STATUS_OK) status = body(&settings, &run, arguments, count);
  leader_stop(run.leader);
  link_trace_release(&run.network.links.trace);
  partition_release(&run.partition);
  weights_release(&run.weights);
  dataset_close(run.set);
  free(run.directory);
  free(arguments);
  return status;
}
