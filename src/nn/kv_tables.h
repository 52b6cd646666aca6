/* Keys and values of codewords, computed once at load time: at site x a remote token is the concatenation of G codewords, and K and V are
 * linear in it, so that k = b + sum over g of W_g e_g[code_g], a look-up and G - 1 sums instead of a product.
 *
 *   rows  [block][group][K][2 kv width]   keys, then values; the bias is in group 0
 *
 * Plain numbers: nn does not know codebooks. Made once before any fork; read by all threads and processes. */
#ifndef NN_KV_TABLES_H
#define NN_KV_TABLES_H
#include "nn/model.h"

typedef struct KvTables KvTables;

typedef struct KvTablesSetup {
  const real *const *codewords; /* [blocks] -> [G, K, D / G] */
  int64_t groups, entries;      /* G, K */
  size_t memory;                /* maximum bytes: blocks from 0 on get tables while it lasts; 0: none */
  bool measure;                 /* times both methods; with G > 1 tables are kept only if kv_tables_pay */
} KvTablesSetup;

/* What the choice between tables and products depends on, for one block. */
typedef struct KvTablesCase {
  int64_t groups;
  size_t bytes;                    /* of the table */
  double flops;                    /* of the product of as many rows as are timed */
  double table_time, product_time; /* seconds */
} KvTablesCase;

/* True with one group; where a table fits a core's own cache; and where tables take at most 0.7 of the time of a product that is long
 * enough to matter. Times that are nearly equal, or too short to tell apart, thus give the same choice each run, and answers repeat. */
bool kv_tables_pay(const KvTablesCase *of);

/* How many blocks, from 0 on, get a table within `memory` bytes. */
int64_t kv_tables_room(const ModelConfig *config, int64_t groups, int64_t entries, double memory);

enum { KV_TABLES_ROWS = 256 }; /* rows that are timed */

#define KV_TABLES_MEMORY 536870912.0 /* bytes of a device for its tables where nothing else is said: 512M */

/* Only for site x, without adapters and with weights of more than 8 bits, UNSUPPORTED otherwise; BAD_VALUE where groups do not divide the
 * width. Where there is no memory for the rows, there are no tables, and that is no failure. The model and the codewords are read only now.
 * Before any fork, and before threads start: the time of a single thread is measured. */
Status kv_tables_build(KvTables **tables, Model *model, const KvTablesSetup *setup);
void kv_tables_free(KvTables *tables); /* accepts NULL */

bool kv_tables_has(const KvTables *tables, int block);
int64_t kv_tables_blocks(const KvTables *tables); /* that have one, from block 0 on; NULL has none */
size_t kv_tables_bytes(const KvTables *tables);
int64_t kv_tables_width(const KvTables *tables); /* kv width */

/* codes [rows, G], each below K -> k, v [rows, kv width], rows ldk and ldv numbers apart. Of a block that has a table. Over the pool. */
void kv_tables_sum(const KvTables *tables, int block, const int32_t *codes, int64_t rows, real *k, int64_t ldk, real *v, int64_t ldv);

/* Measured seconds for KV_TABLES_ROWS rows: codewords gathered and multiplied, or table rows added up. 0: not measured. */
double kv_tables_seconds(const KvTables *tables, bool product);

#endif
