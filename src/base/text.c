/* Leaves out: UTF-8 (utf8.h), what may be printed (printable.c). */
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

bool text_ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

const char *text_plural(int64_t count) { return count == 1 ? "" : "s"; }

void text_hex(const uint8_t *bytes, size_t count, char *text) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < count; i++) {
    *text++ = digits[bytes[i] >> 4];
    *text++ = digits[bytes[i] & 15];
  }
  *text = '\0';
}

const char *text_environment(const char *name) {
  const char *value = getenv(name);
  return value != NULL && *value != '\0' ? value : NULL;
}
