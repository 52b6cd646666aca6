/* Texts as they may be shown on a line of a terminal. */
#ifndef DATA_TEXT_EXCERPT_H
#define DATA_TEXT_EXCERPT_H
#include <stdbool.h>
#include <stddef.h>

/* At most `most` of the bytes of text [bytes], whole characters of UTF-8 alone, with "..." behind them where something is left out. Control
 * characters and the others that base/printable.h does not show are spaces, and each byte that belongs to no character
 * is U+FFFD. A fresh string (caller frees); NULL when out of memory. */
char *text_excerpt(const char *text, size_t bytes, size_t most);

/* In place, of text [bytes]: what would be a space there, and each byte that belongs to no character, becomes spaces. False: there was
 * nothing of the kind. */
bool text_excerpt_blank(char *text, size_t bytes);

#endif
