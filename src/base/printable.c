/* See printable.h. */
#include "base/printable.h"
#include "base/utf8.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 4, COPY_BYTES = 4096, LONGEST = 6 /* of what stands for a character: \u202e */ };

static const char MORE[] = "...";

/* U+202A to U+202E are E2 80 AA to E2 80 AE, U+2066 to U+2069 are E2 81 A6 to E2 81 A9. */
static bool turns_direction(const unsigned char *byte) {
  return byte[0] == 0xe2 &&
         ((byte[1] == 0x80 && byte[2] >= 0xaa && byte[2] <= 0xae) || (byte[1] == 0x81 && byte[2] >= 0xa6 && byte[2] <= 0xa9));
}

/* Bytes of the first character of text [size >= 1] when it may be shown; 0 when it must not, or is none. */
static size_t printable_size(const char *text, size_t size) {
  const unsigned char *byte = (const unsigned char *)text;
  size_t whole = utf8_size(text, size);
  if (whole == 1) return byte[0] >= ' ' && byte[0] != 0x7f;
  if (whole == 2) return byte[0] == 0xc2 && byte[1] < 0xa0 ? 0 : 2;
  return whole == 3 && turns_direction(byte) ? 0 : whole;
}

/* Writes out the first character of text [size], which is not to be shown; sets its bytes. */
static size_t write_out(char out[LONGEST + 1], const char *text, size_t size, size_t *taken) {
  const unsigned char *byte = (const unsigned char *)text;
  *taken = utf8_size(text, size);
  if (*taken == 3) return (size_t)snprintf(out, LONGEST + 1, "\\u%02x%02x", 0x20, ((byte[1] & 3) << 6 | (byte[2] & 0x3f)) & 0xff);
  if (*taken == 2) return (size_t)snprintf(out, LONGEST + 1, "\\x%02x", byte[1]);
  *taken = 1;
  return (size_t)snprintf(out, LONGEST + 1, "\\x%02x", byte[0]);
}

char *printable_copy(char *to, size_t room, const char *text, size_t size) {
  size_t used = 0, cut = 0; /* cut: where MORE has room */
  for (size_t at = 0, taken; at < size; at += taken) {
    char written[LONGEST + 1];
    const char *from = text + at;
    size_t length = taken = printable_size(from, size - at);
    if (!taken) {
      length = write_out(written, from, size - at, &taken);
      from = written;
    }
    if (used + sizeof MORE <= room) cut = used;
    if (used + length >= room) {
      memcpy(to + cut, MORE, sizeof MORE);
      return to;
    }
    memcpy(to + used, from, length);
    used += length;
  }
  to[used] = 0;
  return to;
}

const char *printable(const char *text) {
  static _Thread_local char copies[COPIES][COPY_BYTES];
  static _Thread_local unsigned next;
  return printable_copy(copies[next++ % COPIES], COPY_BYTES, text ? text : "", text ? strlen(text) : 0);
}

/* ---- Excerpts ---- */

static const char ELLIPSIS[] = "...", STRANGE[] = "\xef\xbf\xbd";

char *printable_excerpt(const char *text, size_t bytes, size_t max) {
  size_t room = bytes < max ? bytes : max, at = 0, size;
  char *shown = malloc(room * (sizeof STRANGE - 1) + sizeof ELLIPSIS), *out = shown;
  if (shown == NULL) return NULL;
  for (; at < bytes; at += size) {
    size_t whole = utf8_size(text + at, bytes - at);
    size = whole ? whole : 1;
    if (at + size > max) break;
    bool control = whole && !printable_size(text + at, size);
    size_t length = control ? 1 : whole ? size : sizeof STRANGE - 1;
    memcpy(out, control ? " " : whole ? text + at : STRANGE, length);
    out += length;
  }
  strcpy(out, at < bytes ? ELLIPSIS : "");
  return shown;
}

bool printable_is(const char *text, size_t bytes) {
  size_t at = 0, size = 1;
  while (at < bytes && (size = printable_size(text + at, bytes - at)) > 0) at += size;
  return size > 0;
}

bool printable_blank(char *text, size_t bytes) {
  bool any = false;
  for (size_t at = 0, size; at < bytes; at += size) {
    size_t whole = utf8_size(text + at, bytes - at);
    size = whole ? whole : 1;
    if (printable_size(text + at, size)) continue;
    memset(text + at, ' ', size);
    any = true;
  }
  return any;
}
