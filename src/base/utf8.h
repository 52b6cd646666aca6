/* Where characters end in bytes that may or may not be UTF-8. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes of the mark that some editors write before a text [size] in UTF-8, and which is none of it: 3 or 0. */
static inline size_t utf8_mark(const char *text, size_t size) { return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; }

/* Bytes of the well-formed UTF-8 character at text [size >= 1], 0 when there is none (table 3-7 of the Unicode standard). */
static inline size_t utf8_size(const char *text, size_t size) {
  const unsigned char *byte = (const unsigned char *)text, first = byte[0];
  if (first < 0x80) return 1;
  size_t length = first >= 0xc2 && first <= 0xdf ? 2 : (first & 0xf0) == 0xe0 ? 3 : first >= 0xf0 && first <= 0xf4 ? 4 : 0;
  if (length == 0 || length > size) return 0;
  unsigned char min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte[1] < min || byte[1] > max) return 0;
  for (size_t i = 2; i < length; i++) {
    if ((byte[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

/* Whether text [size] is UTF-8 from end to end; a NUL is a character as others are. */
static inline bool utf8_is_whole(const char *text, size_t size) {
  for (size_t at = 0, step; at < size; at += step) {
    step = utf8_size(text + at, size - at);
    if (step == 0) return false;
  }
  return true;
}

/* Bytes of text [size] before a character at its end whose last bytes are still to come; `size` where there is none. */
static inline size_t utf8_complete(const char *text, size_t size) {
  for (size_t back = 1; back <= 3 && back <= size; back++) {
    const unsigned char byte = (unsigned char)text[size - back];
    if ((byte & 0xc0) == 0x80) continue;
    const size_t bytes = byte >= 0xc2 && byte <= 0xdf ? 2 : byte >= 0xe0 && byte <= 0xef ? 3 : byte >= 0xf0 && byte <= 0xf4 ? 4 : 1;
    return bytes > back ? size - back : size;
  }
  return size;
}

#endif
