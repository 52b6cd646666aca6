/* What `astra-data show` says of text: corpora (text:, text-lines:) and labelled texts (cola:, sst2:, agnews:, tsv:, csv:...:text=). */
#ifndef CLI_SHOW_TEXT_H
#define CLI_SHOW_TEXT_H
#include "data/dataset.h"
#include <jansson.h>

bool show_text_knows(const char *name);

/* Reads the whole part and prints what is in it. The test part of a corpus is its validation part. *facts: the same for --json
 * (quiet: nothing is printed), a new
 * reference, NULL after a failure. */
Status show_text(const char *name, const char *data_dir, DatasetPart part, bool quiet, json_t **facts);

#endif
