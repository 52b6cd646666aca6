/* --strategy and --retained of astra-infer: what goes with them, and what is said about them. */
#ifndef CLI_INFER_STRATEGY_H
#define CLI_INFER_STRATEGY_H
#include "cli/infer_settings.h"
#include "infer/leader.h"
#include <jansson.h>

/* Of the command line by itself; BAD_USAGE names the options that do not go together, and what does. */
Status infer_strategy_check(const InferSettings *settings, const Option *options);

/* Into what the nodes are told; checks it against how codes travel (infer_link_options_read), which it follows. */
Status infer_strategy_read(const InferSettings *settings, ClusterSetup *setup);

/* A warning where the answers of this cluster mean nothing. */
void infer_strategy_notice(const Leader *leader);
void infer_strategy_json(json_t *value, const Leader *leader); /* its name, and that warning */

#endif
