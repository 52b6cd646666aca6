/* astra-data encode and decode: a text to token ids, and ids back to the text. */
#ifndef CLI_DATA_ENCODE_H
#define CLI_DATA_ENCODE_H
#include "base/status.h"

/* Subcommands, see cli.h. */
Status data_encode_run(int argc, char **argv);
Status data_decode_run(int argc, char **argv);

#endif
