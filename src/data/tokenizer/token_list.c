/* Lists of token ids. Room doubles, so that adding costs a constant on average. */
#include "data/tokenizer/token_list.h"
#include <stdlib.h>

enum { TOKEN_LIST_LEAST = 64 };

Status token_list_reserve(TokenList *list, size_t more) {
  if (more <= list->capacity - list->count) return STATUS_OK;
  size_t most = SIZE_MAX / 2 / sizeof *list->ids, capacity = list->capacity ? list->capacity : TOKEN_LIST_LEAST;
  if (more > most || list->count > most - more) return status_set(STATUS_NO_MEMORY, "no memory for %zu more tokens", more);
  while (capacity < list->count + more) capacity *= 2;
  int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
  if (!ids) return status_set(STATUS_NO_MEMORY, "no memory for %zu tokens", capacity);
  list->ids = ids;
  list->capacity = capacity;
  return STATUS_OK;
}

Status token_list_add(TokenList *list, int32_t id) {
  if (list->count == list->capacity) TRY(token_list_reserve(list, 1));
  list->ids[list->count++] = id;
  return STATUS_OK;
}

void token_list_release(TokenList *list) {
  free(list->ids);
  *list = (TokenList){0};
}
