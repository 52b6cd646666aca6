/* astra-data encode and decode: a text to token ids, and ids back to the text. */
#ifndef CLI_DATA_COMMANDS_H
#define CLI_DATA_COMMANDS_H
#include "base/status.h"
#include "data/dataset.h"
#include <jansson.h>

/* astra-data tokenizer: trains a byte-level BPE on text and writes it in the Hugging Face layout. */

/* A subcommand, see cli.h. */
Status data_tokenizer_run(int argc, char **argv);

/* Subcommands, see cli.h. */
Status data_encode_run(int argc, char **argv);
Status data_decode_run(int argc, char **argv);

/* astra-data verify: the digests of a checkpoint's files, compared or written. */
Status data_verify_run(int argc, char **argv);

/* What `astra-data show` says of text: corpora (text:, text-lines:) and labelled texts (cola:, sst2:, agnews:, tsv:, csv:...:text=). */
bool show_text_knows(const char *name);

/* Reads the whole part and prints what is in it. The test part of a corpus is its validation part. *facts: the same for --json
 * (quiet: nothing is printed), a new
 * reference, NULL after a failure. */
Status show_text(const char *name, const char *data_dir, DatasetPart part, bool quiet, json_t **facts);

#endif
