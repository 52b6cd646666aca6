/* The commands of astra-data that have files of their own; each is a CliCommand's `run` (cli.h). */
#ifndef CLI_DATA_COMMANDS_H
#define CLI_DATA_COMMANDS_H
#include "base/status.h"

/* astra-data tokenizer: trains a byte-level BPE on text and writes it in the Hugging Face layout. */
Status data_tokenizer_run(int argc, char **argv);

/* astra-data encode and decode: a text to token ids, and ids back to the text. */
Status data_encode_run(int argc, char **argv);
Status data_decode_run(int argc, char **argv);

#endif
