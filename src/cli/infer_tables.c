/* See infer_tables.h. */
#include "cli/infer_tables.h"
#include "base/log.h"
#include "cli/link_values.h"

enum { ROWS = 256 /* that times are told of */ };

static double milliseconds(const KeyTables *tables, bool product) { return 1e3 * key_tables_seconds(tables, product, ROWS); }

static void tell(const Weights *weights) {
  const KeyTables *tables = weights->keys;
  const int groups = weights->config->astra.groups;
  if (key_tables_seconds(tables, true, ROWS) <= 0) {
    log_info("keys and values of other nodes' tokens by products: a table of %d groups has no room in --table-memory", groups);
    return;
  }
  if (key_tables_blocks(tables) == 0) {
    log_info(
        "keys and values of other nodes' tokens by products: tables of %d groups would save too little (%d tokens in a block: %.2f ms, by "
        "products %.2f ms)",
        groups, ROWS, milliseconds(tables, false), milliseconds(tables, true));
    return;
  }
  log_info(
      "keys and values of other nodes' tokens from tables of %d groups: %d tokens in a block %.2f ms, by products %.2f ms; %.1f MB for "
      "%lld of %lld blocks",
      groups, ROWS, milliseconds(tables, false), milliseconds(tables, true), (double)key_tables_bytes(tables) / 1e6,
      (long long)key_tables_blocks(tables), (long long)weights->config->blocks);
}

Status infer_tables_make(const char *size, bool verbose, Weights *weights) {
  double bytes;
  TRY(link_values_size("table-memory", size, &bytes));
  TRY(weights_make_tables(weights, bytes < (double)SIZE_MAX ? (size_t)bytes : SIZE_MAX));
  if (verbose && weights->keys) tell(weights);
  return STATUS_OK;
}

json_t *infer_tables_json(const KeyTables *tables) {
  return json_pack("{s:s, s:I, s:I, s:f, s:f}", "chosen", key_tables_blocks(tables) > 0 ? "tables" : "product", "blocks",
                   (json_int_t)key_tables_blocks(tables), "bytes", (json_int_t)key_tables_bytes(tables), "tables_ms",
                   milliseconds(tables, false), "product_ms", milliseconds(tables, true));
}
