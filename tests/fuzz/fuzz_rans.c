/* Fuzz target: entropy-coded codes as they come off the wire. The first bytes choose the shape and how uneven the frequencies are, the rest
 * are the codes. Holds: what is accepted has only codes below K and is coded to the same bytes again. */
#include "fuzz/fuzz.h"
#include "vq/rans.h"
#include <stdlib.h>
#include <string.h>

enum { HEAD = 5, MAX_ENTRIES = 2048, MAX_GROUPS = 40 };

static RansTable *make_tables(int64_t groups, int64_t entries, unsigned slope) {
  static double counts[MAX_ENTRIES];
  static uint16_t frequencies[MAX_GROUPS * MAX_ENTRIES];
  RansTable *tables;
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t k = 0; k < entries; k++) counts[k] = 1000.0 / (1.0 + (double)((k + g) % entries) * slope);
    if (code_frequencies_fit(counts, entries, frequencies + g * entries) != STATUS_OK) abort();
  }
  if (rans_tables_new(&tables, frequencies, groups, entries) != STATUS_OK) abort();
  return tables;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < HEAD) return 0;
  int64_t groups = 1 + data[0] % MAX_GROUPS, entries = 2 + (data[1] | data[2] << 8) % (MAX_ENTRIES - 2), tokens = data[3];
  RansTable *tables = make_tables(groups, entries, data[4]);
  size_t bytes = size - HEAD, count = (size_t)(tokens * groups);
  uint8_t *in = malloc(bytes + 1), *again = malloc(bytes + 1);
  int32_t *codes = malloc((count + 1) * sizeof *codes);
  if (!in || !again || !codes) abort();
  memcpy(in, data + HEAD, bytes);
  if (rans_decode(tables, tokens, groups, in, bytes, codes) == STATUS_OK) {
    for (size_t i = 0; i < count; i++)
      if (codes[i] < 0 || codes[i] >= entries) abort();
    if (rans_encode(tables, codes, tokens, groups, again, bytes) != bytes || memcmp(in, again, bytes) != 0) abort();
  }
  free(in);
  free(again);
  free(codes);
  rans_tables_free(tables);
  return 0;
}
