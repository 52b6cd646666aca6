/* Tables of keys and values. */
#include "nn/key_tables.h"

Status key_tables_build(KeyTables **tables, Model *model, const KeyTablesSetup *setup) {
  (void)model;
  *tables = NULL;
  return status_set(STATUS_UNSUPPORTED, "tables of %lld codewords: this version cannot make them yet", (long long)setup->entries);
}
