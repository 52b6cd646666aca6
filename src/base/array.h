/* Arrays that grow: a pointer, a count and a room that its struct keeps, the room at least doubled when it is full, so that adding one
 * element costs a constant on average.
 *
 *   typedef struct Words { Word *list; size_t count, room; } Words;      zeroed to start with; free(list) at the end
 *   TRY(ARRAY_RESERVE(words->list, words->count, 1, words->room, "words"));
 *   words->list[words->count++] = word; */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H
#include "base/status.h"
#include <stddef.h>

/* Room for `more` elements behind the first `count` of `list`, an lvalue of type T *; `room` is a size_t lvalue. NO_MEMORY ("no memory for
 * WHAT") leaves both as they were. */
#define ARRAY_RESERVE(list, count, more, room, what) array_reserve(&(list), sizeof *(list), (size_t)(count), (more), &(room), (what))

/* The function behind the macro; `list` is the address of the pointer. */
Status array_reserve(void *list, size_t element, size_t count, size_t more, size_t *room, const char *what);

#endif
