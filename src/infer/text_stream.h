/* Text that is shown as it comes, in whole characters, up to a stop string: bytes that may be the beginning of one, or of a character, are
 * held back until it is decided. */
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
  bool stopped; /* a stop string has come: nothing more is written */
} TextStream;

void text_stream_init(TextStream *stream, const char *const *stops, int stop_count, TextStreamWrite *write, void *context);
void text_stream_release(TextStream *stream);

Status text_stream_add(TextStream *stream, const char *text, size_t bytes); /* NO_MEMORY */

/* The end: what was held back is written, unless a stop string has come; a character that was cut off as it is. */
void text_stream_finish(TextStream *stream);

#endif
