/* See multipart.h. */
#include "serve/multipart.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY_MAX = 70 /* as RFC 2046 limits it */ };

/* A parameter of a header's value, with or without quotes; where a name is doubled the first one counts. */
static bool parameter(const char *value, size_t length, const char *name, char *out, size_t room) {
  size_t name_length = strlen(name);
  for (size_t at = 0; at < length; at++) {
    if (value[at] == '"') { /* a quoted value: what is in it is no name */
      for (at++; at < length && value[at] != '"'; at++) at += value[at] == '\\';
      continue;
    }
    if (value[at] != ';') continue;
    size_t begin = at + 1, used = 0;
    while (begin < length && (value[begin] == ' ' || value[begin] == '\t')) begin++;
    if (length - begin <= name_length || strncasecmp(value + begin, name, name_length) != 0 || value[begin + name_length] != '=') continue;
    begin += name_length + 1;
    bool quoted = begin < length && value[begin] == '"';
    for (begin += quoted; begin < length && (quoted ? value[begin] != '"' : !strchr("; \t", value[begin])); begin++) {
      if (quoted && value[begin] == '\\' && begin + 1 < length) begin++;
      if (used + 1 < room && value[begin]) out[used++] = value[begin];
    }
    out[used] = 0;
    return true;
  }
  return false;
}

static Status find_boundary(const char *type, char boundary[BOUNDARY_MAX + 5]) {
  static const char wanted[] = "multipart/form-data";
  char given[BOUNDARY_MAX + 2];
  size_t length = type ? strlen(type) : 0;
  if (length < sizeof wanted - 1 || strncasecmp(type, wanted, sizeof wanted - 1) != 0)
    return status_set(STATUS_BAD_VALUE, "the body is not multipart/form-data");
  if (!parameter(type, length, "boundary", given, sizeof given) || given[0] == 0 || strlen(given) > BOUNDARY_MAX)
    return status_set(STATUS_BAD_VALUE, "multipart/form-data needs a boundary of 1 to %d characters", BOUNDARY_MAX);
  memcpy(boundary, "\r\n--", 4);
  memcpy(boundary + 4, given, strlen(given) + 1);
  return STATUS_OK;
}

/* Headers from `at` on, up to an empty line; returns where the data begins, NULL: they do not end. */
static const char *read_headers(const char *at, const char *end, MultipartPart *part) {
  static const char disposition[] = "content-disposition:", type[] = "content-type:";
  for (const char *line = at, *line_end; line < end; line = line_end + 2) {
    line_end = memmem(line, (size_t)(end - line), "\r\n", 2);
    if (!line_end) return NULL;
    if (line_end == line) return line + 2;
    size_t length = (size_t)(line_end - line);
    if (length > sizeof disposition - 1 && strncasecmp(line, disposition, sizeof disposition - 1) == 0) {
      parameter(line, length, "name", part->name, sizeof part->name);
      parameter(line, length, "filename", part->file, sizeof part->file);
    }
    if (length > sizeof type - 1 && strncasecmp(line, type, sizeof type - 1) == 0) {
      size_t begin = sizeof type - 1, used = 0;
      while (begin < length && line[begin] == ' ') begin++;
      for (; begin < length && used + 1 < sizeof part->type && !strchr("; \r", line[begin]); begin++) part->type[used++] = line[begin];
      part->type[used] = 0;
    }
  }
  return NULL;
}

Status multipart_parse(const char *type, const char *body, size_t bytes, MultipartPart *parts, int max, int *count) {
  char boundary[BOUNDARY_MAX + 5];
  *count = 0;
  TRY(find_boundary(type, boundary));
  size_t length = strlen(boundary);
  const char *end = body + bytes, *at;
  if (bytes >= length - 2 && memcmp(body, boundary + 2, length - 2) == 0)
    at = body + length - 2;
  else if ((at = memmem(body, bytes, boundary, length))) /* a preamble, which is ignored */
    at += length;
  while (at) {
    if (end - at >= 2 && memcmp(at, "--", 2) == 0) return STATUS_OK;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    if (end - at < 2 || memcmp(at, "\r\n", 2) != 0) break;
    if (*count == max) return status_set(STATUS_BAD_VALUE, "a body of more than %d parts", max);
    MultipartPart *part = &parts[*count];
    memset(part, 0, sizeof *part);
    const char *data = read_headers(at + 2, end, part);
    if (!data) break;
    /* The line end before a boundary belongs to it, and that of the last header as well where a part is empty. */
    const char *next = memmem(data - 2, (size_t)(end - data) + 2, boundary, length);
    if (!next) break;
    part->data = data;
    part->bytes = next > data ? (size_t)(next - data) : 0;
    (*count)++;
    at = next + length;
  }
  return status_set(STATUS_BAD_VALUE, "the multipart body is malformed or cut off: part %d does not end with the boundary", *count + 1);
}
