/* Fuzz target: the files that a hostile leader may offer to a worker that fetches its checkpoint. Holds: what is accepted packs to the same
 * bytes, its names are different and name files of one folder, and its sizes add up within the limit. */
#include "fuzz/fuzz.h"
#include "infer/cluster/checkpoint_offer.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void check(const OfferList *list, const uint8_t *data, size_t size) {
  uint8_t *again = malloc(size);
  OfferList packed = *list;
  uint64_t bytes = 0;
  need(again != NULL && list->count >= 1 && list->count <= OFFER_FILES && (size_t)list->count * OFFER_FILE_BYTES == size);
  offer_list(byte_cursor_to(again), size, &packed);
  need(memcmp(again, data, size) == 0);
  free(again);
  for (int i = 0; i < list->count; i++) {
    const OfferFile *file = &list->files[i];
    need(memchr(file->name, 0, OFFER_NAME) != NULL && file->name[0] != 0 && file->name[0] != '.');
    for (const char *c = file->name; *c; c++) need(isalnum((unsigned char)*c) || strchr("-_.", *c));
    for (int j = 0; j < i; j++) need(strcmp(file->name, list->files[j].name) != 0);
    need(file->size <= OFFER_MAX_BYTES - bytes);
    bytes += file->size;
  }
  need(bytes == list->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static OfferList list;
  if (offer_list(byte_cursor_from(data), size, &list) == STATUS_OK) check(&list, data, size);
  return 0;
}
