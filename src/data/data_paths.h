/* Where data sets and pretrained weights are looked for: --data-dir, $ASTRA_HOME, ~/.cache/astra, ./datasets and ./checkpoints, and the
 * installed share folder, in this order. */
#ifndef DATA_PATHS_H
#define DATA_PATHS_H
#include "base/status.h"
#include <stddef.h>

/* The first existing of CANDIDATE_ROOT/relative over all roots (extra first when not NULL): a fresh string, or NOT_FOUND whose message
 * lists every place that was tried. kind: "datasets" or "checkpoints". */
Status data_paths_find(const char *kind, const char *relative, const char *extra, char **found);
/* Where downloads go: fresh string, e.g. ~/.cache/astra/datasets. */
Status data_paths_store(const char *kind, char **directory);

#endif
