/* Growing arrays: see array.h. */
#include "base/array.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

Status array_reserve(void *list, size_t element, size_t count, size_t more, size_t *room, const char *what) {
  if (more <= *room - count) return STATUS_OK;
  size_t max = SIZE_MAX / 2 / element, wanted = *room ? *room : FIRST_ROOM;
  if (more > max || count > max - more) return status_no_memory(NULL, what);
  while (wanted < count + more) wanted *= 2;
  void *grown; /* copied out and in: a T * may not be read through a void ** */
  memcpy(&grown, list, sizeof grown);
  grown = realloc(grown, wanted * element);
  if (!grown) return status_no_memory(NULL, what);
  memcpy(list, &grown, sizeof grown);
  *room = wanted;
  return STATUS_OK;
}
