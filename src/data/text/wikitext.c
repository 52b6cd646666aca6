/* Pages and plain text of WikiText: see wikitext.h. The replacements and their order are the harness's. What it writes as patterns,
 * "\(\s*([^\)]*?)\s*\)" and its like, always ends at the first closing sign, so that it takes away white space inside of a pair. */
#include "data/text/wikitext.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- white space ---- */

/* Bytes of the white space character at text [left >= 1], or 0. */
static size_t space_size(const char *text, size_t left) {
  const unsigned char *b = (const unsigned char *)text;
  if (b[0] < 0x80) return b[0] == ' ' || (b[0] >= 0x09 && b[0] <= 0x0d) || (b[0] >= 0x1c && b[0] <= 0x1f);
  if (left >= 2 && b[0] == 0xc2) return b[1] == 0x85 || b[1] == 0xa0 ? 2 : 0;
  if (left < 3) return 0;
  uint32_t code = ((uint32_t)b[0] << 16) | ((uint32_t)b[1] << 8) | b[2];
  bool space = code == 0xe19a80 || (code >= 0xe28080 && code <= 0xe2808a) || code == 0xe280a8 || code == 0xe280a9 || code == 0xe280af ||
               code == 0xe2819f || code == 0xe38080;
  return space ? 3 : 0;
}

/* Bytes of the white space character that ends at text + size, or 0. */
static size_t space_before(const char *text, size_t size) {
  for (size_t length = 1; length <= 3 && length <= size; length++)
    if (space_size(text + size - length, length) == length) return length;
  return 0;
}

/* Takes white space off both ends of *text [*size]. */
static void strip(const char **text, size_t *size) {
  for (size_t n; *size > 0 && (n = space_size(*text, *size)) > 0; *text += n) *size -= n;
  for (size_t n; *size > 0 && (n = space_before(*text, *size)) > 0;) *size -= n;
}

int64_t wikitext_words(const char *page, size_t bytes) {
  int64_t words = 1;
  bool inside = false; /* of a run of white space */
  for (size_t i = 0; i < bytes;) {
    size_t size = space_size(page + i, bytes - i);
    words += size > 0 && !inside;
    inside = size > 0;
    i += size > 0 ? size : 1;
  }
  return words;
}

/* ---- replacing ---- */

typedef struct Buffer {
  char *text; /* [room], `size` of it in use */
  size_t size;
} Buffer;

/* Every `from` becomes `to`, which is not longer. */
static void replace(Buffer *buffer, const char *from, const char *to) {
  size_t length = strlen(from), shorter = strlen(to), written = 0;
  const char *at = buffer->text, *end = at + buffer->size;
  for (const char *found; (found = memmem(at, (size_t)(end - at), from, length)) != NULL; at = found + length) {
    memmove(buffer->text + written, at, (size_t)(found - at));
    written += (size_t)(found - at);
    memcpy(buffer->text + written, to, shorter);
    written += shorter;
  }
  memmove(buffer->text + written, at, (size_t)(end - at));
  buffer->size = written + (size_t)(end - at);
}

/* The harness's pattern for years, "/' [0-9]/" with its slashes, whose replacement is no digit but the text "[0-9]": kept as it is, and
 * five bytes longer for each time it stands in a text. */
static Status replace_slashes(Buffer *buffer) {
  Buffer out = {malloc(2 * buffer->size + 1), 0};
  if (out.text == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a page of %zu bytes", buffer->size);
  for (size_t i = 0; i < buffer->size;) {
    const char *at = buffer->text + i;
    bool found = buffer->size - i >= 5 && memcmp(at, "/' ", 3) == 0 && isdigit((unsigned char)at[3]) && at[4] == '/';
    memcpy(out.text + out.size, found ? "/'[0-9]/" : at, found ? 8 : 1);
    out.size += found ? 8 : 1;
    i += found ? 5 : 1;
  }
  free(buffer->text);
  *buffer = out;
  return STATUS_OK;
}

/* White space inside of a pair of signs, next to them, goes. A sign that is not closed stays as it is. */
static void close_up(Buffer *buffer, char opening, char closing) {
  size_t written = 0, size = buffer->size;
  char *text = buffer->text;
  bool any = true; /* closing signs ahead: looked for in vain only once */
  for (size_t i = 0; i < size;) {
    const char *end = any && text[i] == opening ? memchr(text + i + 1, closing, size - i - 1) : NULL;
    if (end == NULL) {
      any = any && text[i] != opening;
      text[written++] = text[i++];
      continue;
    }
    const char *inner = text + i + 1;
    size_t length = (size_t)(end - inner), next = (size_t)(end - text) + 1;
    strip(&inner, &length);
    text[written++] = opening;
    memmove(text + written, inner, length);
    written += length;
    text[written++] = closing;
    i = next;
  }
  buffer->size = written;
}

Status wikitext_detokenise(const char *page, size_t bytes, char **plain, size_t *plain_bytes) {
  static const char *const before[][2] = {{" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
                                          {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "}};
  static const char pairs[] = "()[]{}\"\"''";
  static const char *const behind[][2] = {{"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xc2\xb0 ", "\xc2\xb0"},
                                          {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"}};
  Buffer buffer = {malloc(bytes + 1), bytes};
  *plain = NULL;
  if (buffer.text == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a page of %zu bytes", bytes);
  memcpy(buffer.text, page, bytes);
  replace(&buffer, "s '", "s'");
  Status status = replace_slashes(&buffer);
  if (status != STATUS_OK) free(buffer.text);
  TRY(status);
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) replace(&buffer, before[i][0], before[i][1]);
  for (const char *pair = pairs; *pair; pair += 2) close_up(&buffer, pair[0], pair[1]);
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) replace(&buffer, behind[i][0], behind[i][1]);
  buffer.text[buffer.size] = '\0';
  *plain = buffer.text;
  *plain_bytes = buffer.size;
  return STATUS_OK;
}

/* ---- pages ---- */

/* "= Title =", but neither "= = Section = =" nor what is deeper. */
static bool is_title(const char *line, size_t size) {
  strip(&line, &size);
  if (size < 2 || memcmp(line, "= ", 2) != 0 || memcmp(line + size - 2, " =", 2) != 0) return false;
  return !(size >= 3 && memcmp(line, "= =", 3) == 0) && !(size >= 3 && memcmp(line + size - 3, "= =", 3) == 0);
}

Status wikitext_pages(const char *text, size_t bytes, Status (*page)(void *context, const char *text, size_t bytes), void *context) {
  size_t begin = 0;
  for (size_t line = 0; line <= bytes;) {
    const char *end = memchr(text + line, '\n', bytes - line);
    size_t next = end ? (size_t)(end - text) + 1 : bytes + 1;
    if (line > 0 && is_title(text + line, next - 1 - line)) {
      const char *inner = text + begin;
      size_t size = line - 1 - begin;
      strip(&inner, &size);
      if (size > 0) TRY(page(context, text + begin, line - 1 - begin));
      begin = line;
    }
    line = next;
  }
  return page(context, text + begin, bytes - begin);
}
