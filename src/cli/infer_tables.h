/* --table-memory: tables of keys and values of codewords (nn/key_tables.h), and what was chosen. */
#ifndef CLI_INFER_TABLES_H
#define CLI_INFER_TABLES_H
#include "infer/weights.h"
#include <jansson.h>

/* size: "512M", "0": none. BAD_USAGE names the option. Before the nodes are; `verbose`: says on stderr what was chosen. */
Status infer_tables_make(const char *size, bool verbose, Weights *weights);

/* {"chosen": "tables", "blocks": 12, "bytes": 75497472, "tables_ms": 0.1, "product_ms": 6.4}: times of 256 tokens in a block; chosen is
 * "product" where tables do not pay (key_tables.h), or no block's has room. */
json_t *infer_tables_json(const KeyTables *tables);

#endif
