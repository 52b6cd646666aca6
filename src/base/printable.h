/* Text from files, command lines and other machines, made safe to show: names of classes, files, tensors and models may hold anything, also
 * what a terminal obeys. Printable UTF-8 stays as it is; control characters (C0 with line feed and tab, delete, C1), characters that
 * change the direction of what follows (U+202A to U+202E, U+2066 to U+2069) and bytes that are no UTF-8 are written out: \x1b, \u202e.
 *
 * log_* and progress bars do this with whole lines. Whoever prints such a text to stdout passes it through printable(); JSON holds it as
 * it is. */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H
#include <stdbool.h>
#include <stddef.h>

enum { PRINTABLE_ROOM = 16 }; /* of one character */

/* text [size] into to [room >= PRINTABLE_ROOM], with a NUL; what has no room is left out and "..." stands for it. Returns to. */
char *printable_copy(char *to, size_t room, const char *text, size_t size);

/* A string, ready to be printed; valid until the fourth next call on this thread. NULL gives "". */
const char *printable(const char *text);

/* At most `max` of the bytes of text [bytes], whole characters of UTF-8 alone, with "..." behind them where something is left out. Control
 * characters and the others that base/printable.h does not show are spaces, and each byte that belongs to no character
 * is U+FFFD. A fresh string (caller frees); NULL when out of memory. */
char *printable_excerpt(const char *text, size_t bytes, size_t max);

/* Whether text [bytes] is UTF-8 without any of these characters. */
bool printable_is(const char *text, size_t bytes);

/* In place, of text [bytes]: what would be a space there, and each byte that belongs to no character, becomes spaces. False: there was
 * nothing of the kind. */
bool printable_blank(char *text, size_t bytes);

#endif
