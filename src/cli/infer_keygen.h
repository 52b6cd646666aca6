/* astra-infer keygen: makes the key that all devices of a cluster share. */
#ifndef CLI_INFER_KEYGEN_H
#define CLI_INFER_KEYGEN_H
#include "base/status.h"

/* A subcommand, see cli.h. */
Status infer_keygen_run(int argc, char **argv);

#endif
