/* Any bytes as rows of labelled text. The first byte picks the kind and the columns, the rest is the file. What must hold: an accepted
 * table has rows, each with a text, a label and lines that do not go back; a refused one has a message. */
#include "data/text/text_labels.c" /* its reader of rows in memory */
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

static const TextTableFormat formats[] = {{.texts = {"4"}, .text_count = 1, .label = "2"},
                                          {.header = true, .texts = {"sentence"}, .text_count = 1, .label = "label"},
                                          {.quoted = true, .texts = {"2", "3"}, .text_count = 2, .label = "1"},
                                          {.quoted = true, .header = true, .texts = {"text", "1"}, .text_count = 2, .label = "label"},
                                          {.header = true, .texts = {"q1"}, .text_count = 1, .pair = "q2", .label = "same"},
                                          {.texts = {"1"}, .text_count = 1, .pair = "2", .label = "3", .skip_incomplete = true}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  TextTable table;
  if (size == 0) return 0;
  const TextTableFormat *format = &formats[data[0] % 6];
  Status status = text_table_parse(&table, (const char *)data + 1, size - 1, format, "input");
  if (status == STATUS_OK && table.count == 0) abort();
  if (status != STATUS_OK && !strstr(status_message(), "input")) abort();
  for (int64_t i = 0; i < table.count; i++) {
    const TextRow *row = &table.rows[i];
    if (!row->label[0] || (row->pair != NULL) != (format->pair != NULL)) abort();
    if (!row->text[0] && !(row->pair && row->pair[0])) abort();
    if (row->line < (i ? table.rows[i - 1].line : 1)) abort();
  }
  text_table_release(&table);
  return 0;
}
