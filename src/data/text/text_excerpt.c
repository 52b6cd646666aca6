/* See text_excerpt.h. */
#include "data/text/text_excerpt.h"
#include "base/printable.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

static const char MORE[] = "...", STRANGE[] = "\xef\xbf\xbd";

char *text_excerpt(const char *text, size_t bytes, size_t most) {
  size_t room = bytes < most ? bytes : most, at = 0, size;
  char *shown = malloc(room * (sizeof STRANGE - 1) + sizeof MORE), *out = shown;
  if (shown == NULL) return NULL;
  for (; at < bytes; at += size) {
    size_t whole = utf8_size(text + at, bytes - at);
    size = whole ? whole : 1;
    if (at + size > most) break;
    bool control = whole && !printable_size(text + at, size);
    size_t length = control ? 1 : whole ? size : sizeof STRANGE - 1;
    memcpy(out, control ? " " : whole ? text + at : STRANGE, length);
    out += length;
  }
  strcpy(out, at < bytes ? MORE : "");
  return shown;
}

bool text_excerpt_blank(char *text, size_t bytes) {
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
