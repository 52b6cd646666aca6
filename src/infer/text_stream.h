/* Text that is written as it is generated, in whole characters, up to a stop string: bytes that may begin a stop string or a character are
 * held back until that is known. */
#ifndef INFER_TEXT_STREAM_H
#define INFER_TEXT_STREAM_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef void TextStreamWrite(void *context, const char *text, size_t bytes);

typedef struct TextStream {
  const char *const *stops; /* [stop_count], none empty; the caller's */
  int stop_count;
  TextStreamWrite *write;
  void *context;
  char *held; /* [held_bytes] */
  size_t held_bytes, capacity;
  bool stopped; /* there was a stop string: nothing more is written */
} TextStream;

void text_stream_init(TextStream *stream, const char *const *stops, int stop_count, TextStreamWrite *write, void *context);
void text_stream_release(TextStream *stream);

Status text_stream_add(TextStream *stream, const char *text, size_t bytes); /* NO_MEMORY */

/* The end: writes what was held back, an incomplete character as it is, unless there was a stop string. */
void text_stream_finish(TextStream *stream);

#endif
