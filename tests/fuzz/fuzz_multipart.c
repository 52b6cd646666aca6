/* Fuzz target: a form of hostile bytes; the first line is its Content-Type. Holds: parts lie in the body, in order, without overlap, and
 * texts about them end; what is accepted ends with its boundary. */
#include "fuzz/fuzz.h"
#include "serve/multipart.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *line = memchr(data, '\n', size);
  size_t length = line ? (size_t)(line - data) : 0, bytes = size - length - (line != NULL);
  char *type = calloc(length + 1, 1), *body = malloc(bytes ? bytes : 1);
  MultipartPart parts[PARTS];
  int count;
  if (!type || !body) abort();
  memcpy(type, data, length);
  memcpy(body, data + size - bytes, bytes);
  Status status = multipart_parse(type, body, bytes, parts, PARTS, &count);
  if (count < 0 || count > PARTS) abort();
  const char *end = body;
  for (int i = 0; i < count; i++) {
    const MultipartPart *part = &parts[i];
    if (part->data < end || part->bytes > (size_t)(body + bytes - part->data)) abort();
    end = part->data + part->bytes;
    if (strlen(part->name) >= MULTIPART_NAME || strlen(part->file) >= MULTIPART_NAME || strlen(part->type) >= MULTIPART_NAME) abort();
  }
  if (status == STATUS_OK && (!strstr(type, "=") || bytes < 5)) abort();
  free(type);
  free(body);
  return 0;
}
