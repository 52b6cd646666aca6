/* What all commands of astra-infer do: find and load the checkpoint, start the nodes, print JSON, and clean up however it ends. */
#ifndef CLI_INFER_RUN_H
#define CLI_INFER_RUN_H
#include "base/files.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/infer_cluster.h"
#include "cli/infer_settings.h"
#include "cli/infer_split.h"
#include "data/dataset.h"
#include "infer/cluster/leader.h"
#include "infer/vocabulary.h"
#include "infer/wire.h"
#include "serve/engine.h"
#include <jansson.h>

/* --table-memory: tables of keys and values of codewords (nn/kv_tables.h), and what was chosen. */

/* bytes: 0: none. Before the nodes are; `verbose`: says on stderr what was chosen. */
Status infer_tables_make(double bytes, bool verbose, Weights *weights);

/* What is open. */
typedef struct InferRun {
  char *directory;
  Weights weights;
  Partition partition;
  TokenSplit split;
  InferCluster cluster;
  Leader *leader;
  Dataset *set;
  ClusterSetup network; /* how codes travel */
  InferSplit divided;   /* --split auto */
  int devices;          /* that --split auto keeps; 0: all */
  FileWriter rows;      /* --per-sample; its stream is NULL: none */
} InferRun;

typedef Status InferBody(const InferSettings *settings, InferRun *run, const char *const *arguments, int count);

/* The directory of a checkpoint that is a path, or the name of an installed one; to be freed. */
Status infer_run_find(const char *checkpoint, char **directory);

/* Parses, runs `body`, cleans up. */
Status infer_run_command(InferCommand command, int argc, char **argv, InferBody *body);

Status infer_run_load(const InferSettings *settings, InferRun *run); /* the checkpoint, once */

/* BAD_USAGE for a model of another kind, which says what it takes. */
Status infer_run_require(const InferRun *run, InferKind kind);

/* BAD_USAGE for an option that means nothing to the model's kind. */
Status infer_run_require_options(const InferSettings *settings, const InferRun *run);

/* The nodes, for a model of the kind that it is; `options` has what differs from the settings: batch_max, tokens_max, codes. The first
 * signal ends the run with all its nodes; a second one has its usual effect. */
Status infer_run_start(const InferSettings *settings, InferRun *run, const LeaderOptions *options);
LeaderOptions infer_run_options(const InferSettings *settings, const InferRun *run, int nodes);
void infer_run_catch_signals(void);
const volatile sig_atomic_t *infer_run_stop_flag(void);

/* With --verbose to standard error: the kernels that run; what each node of an engine is, a worker's address or a process of this machine.
 */
void infer_run_tell_machine(const InferSettings *settings);
void infer_run_tell_nodes(const InferSettings *settings, Engine *engine);

/* Of a service, whose engine starts the cluster: how codes travel, before the checkpoint is loaded; then what leader_start is to be given,
 * which points into *run. --split auto leaves no device out. */
Status infer_run_network(const InferSettings *settings, InferRun *run);
Status infer_run_prepare(const InferSettings *settings, InferRun *run, const LeaderOptions *options, LeaderOptions *all);
void infer_run_release(InferRun *run); /* accepts a zeroed one */

/* Behind the result of an evaluation, unless --quiet: a table of the nodes, and infer_split_report. */
void infer_run_report(const InferSettings *settings, const InferRun *run);

Status infer_run_print_json(json_t *value, const InferRun *run); /* takes value over; with the checkpoint's directory */

/* astra-infer with prompts: text as it comes to stdout, what it took to stderr; or both as JSON. */
InferBody infer_text_generate; /* loads the checkpoint */

/* astra-infer eval on a text: tokens of the data set through the nodes, perplexity as text or JSON. */

InferBody infer_text_eval;

/* plan: find the fastest division of a model over devices. worker: this machine as a device of clusters that others lead. keygen: makes
 * the key that all devices of a cluster share. */
extern const CliCommand infer_plan_command, infer_worker_command, infer_keygen_command;

enum { INFER_TEXT_BYTES = 64 << 20 }; /* of a text from a file or standard input, at most */

/* All of standard input: *text is to be freed, also after a failure. INTERRUPTED when a signal comes first. */
Status infer_run_read_standard_input(char **text, size_t *bytes);

#endif
