/* The commands of astra-data that have files of their own. */
#ifndef CLI_DATA_COMMANDS_H
#define CLI_DATA_COMMANDS_H
#include "cli/cli.h"

extern const CliCommand data_list_command;                        /* what can be fetched, what is installed, and where */
extern const CliCommand data_tokenizer_command;                   /* trains a byte-level BPE on text, in the Hugging Face layout */
extern const CliCommand data_encode_command, data_decode_command; /* a text to token ids, and ids back to the text */

#endif
