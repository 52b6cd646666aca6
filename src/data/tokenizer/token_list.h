/* A growing list of token ids. Owned by the caller: zero it first, token_list_release at the end; count = 0 uses it again. */
#ifndef DATA_TOKEN_LIST_H
#define DATA_TOKEN_LIST_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct TokenList {
  int32_t *ids; /* [capacity], of which count are set */
  size_t count, capacity;
} TokenList;

/* Room for `more` ids behind the present ones; NO_MEMORY leaves the list as it was. */
Status token_list_reserve(TokenList *list, size_t more);
Status token_list_add(TokenList *list, int32_t id);
void token_list_release(TokenList *list); /* the list is zeroed */

#endif
