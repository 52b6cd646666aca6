/* An example for a command line that lacks something, of what is installed on this machine. */
#ifndef CLI_EXAMPLE_H
#define CLI_EXAMPLE_H
#include "base/status.h"
#include <stdint.h>

/* BAD_USAGE: `what`, and behind it a command that works here with the pictures and checkpoints that come with the programs, where they are
 * found (data_paths.h). Command lines are those of astra-train, astra-kmeans init, and astra-infer on that many nodes. */
Status example_train(const char *what);
Status example_kmeans(const char *what);
Status example_infer(const char *what, int64_t nodes);

#endif
