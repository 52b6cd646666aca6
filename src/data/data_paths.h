/* Where data sets and pretrained weights are looked for: --data-dir, $ASTRA_HOME, ~/.cache/astra, ./datasets and ./checkpoints, the
 * installed share folder, and the source tree a program was built in, in this order. */
#ifndef DATA_PATHS_H
#define DATA_PATHS_H
#include "base/status.h"
#include <stddef.h>

/* The places themselves, whether they exist or not: [0] is `extra` when that was given. */
enum { DATA_PATHS_MAX = 8 };
typedef struct DataRoots {
  char *paths[DATA_PATHS_MAX];
  int count;
} DataRoots;

/* kind: "datasets", "checkpoints" or "experiments"; extra, --data-dir, may be NULL. BAD_USAGE: it is no directory. Release with
 * data_paths_release, also after a failure. */
Status data_paths_roots(DataRoots *roots, const char *kind, const char *extra);
void data_paths_release(DataRoots *roots);

/* Added to the name of a file that is being downloaded. */
#define DATA_PATHS_PART ".part"

/* The first existing ROOT/relative of data_paths_roots (extra first when not NULL) that is no folder with an unfinished download (of what
 * `astra-data get` knows): a fresh string, or NOT_FOUND whose message lists every place that was tried. BAD_USAGE: as above. An absolute
 * path is looked for once, where it says. */
Status data_paths_find(const char *kind, const char *relative, const char *extra, char **found);
/* Where downloads go: fresh string, e.g. ~/.cache/astra/datasets. */
Status data_paths_store(const char *kind, char **directory);

#endif
