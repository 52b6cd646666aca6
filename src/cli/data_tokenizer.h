/* astra-data tokenizer: trains a byte-level BPE on text and writes it in the Hugging Face layout. */
#ifndef CLI_DATA_TOKENIZER_H
#define CLI_DATA_TOKENIZER_H
#include "base/status.h"

/* A subcommand, see cli.h. */
Status data_tokenizer_run(int argc, char **argv);

#endif
