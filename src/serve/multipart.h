/* Bodies of multipart/form-data (RFC 7578): what browsers and curl -F send. Parts are slices of the body. Hostile bytes. Fuzzed. */
#ifndef SERVE_MULTIPART_H
#define SERVE_MULTIPART_H
#include "base/status.h"
#include <stddef.h>

enum { MULTIPART_NAME = 128 };

typedef struct MultipartPart {
  char name[MULTIPART_NAME], file[MULTIPART_NAME], type[MULTIPART_NAME]; /* "" where missing; longer ones are cut */
  const char *data;                                                      /* [bytes] of the body */
  size_t bytes;
} MultipartPart;

/* type: the Content-Type with its boundary. BAD_VALUE: no multipart body, one that is cut off, or of more than `max` parts. */
Status multipart_parse(const char *type, const char *body, size_t bytes, MultipartPart *parts, int max, int *count);

#endif
