/* What all commands of astra-infer do: find and load the checkpoint, start the nodes, print JSON, and clean up however it ends. */
#ifndef CLI_INFER_RUN_H
#define CLI_INFER_RUN_H
#include "cli/infer_cluster.h"
#include "cli/infer_settings.h"
#include "cli/infer_split.h"
#include "data/dataset.h"
#include "infer/leader.h"
#include <jansson.h>

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

/* The nodes, for a model of the kind that it is; `options` has what differs from the settings: batch_most, tokens_most, codes. The first
 * signal ends the run with all its nodes; a second one has its usual effect. */
Status infer_run_start(const InferSettings *settings, InferRun *run, const LeaderOptions *options);
LeaderOptions infer_run_options(const InferSettings *settings, const InferRun *run, int nodes);
void infer_run_catch_signals(void);
bool infer_run_interrupted(void); /* a signal has come */
const volatile sig_atomic_t *infer_run_stop_flag(void);

Status infer_run_print_json(json_t *value, const InferRun *run); /* takes value over; with the checkpoint's directory */

#endif
