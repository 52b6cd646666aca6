/* Ends of names, plurals, bytes as hexadecimal digits, and variables of the environment. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Byte for byte, as for the extension of a file's name; a text ends with itself and with "". */
bool text_ends_with(const char *text, const char *end);

/* "s", or "" for 1: "%lld token%s". */
const char *text_plural(int64_t count);

/* bytes [count] -> two lower-case digits each and a NUL: text [2 * count + 1]. */
void text_hex(const uint8_t *bytes, size_t count, char *text);

/* Of an environment variable; NULL where it is not set, or empty. */
const char *text_environment(const char *name);

#endif
