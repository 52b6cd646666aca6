/* The text that is held back is short, at most a stop string and three bytes, so it is searched again with each piece. */
#include "infer/text_stream.h"
#include "base/array.h"
#include "base/utf8.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void text_stream_init(TextStream *stream, const char *const *stops, int stop_count, TextStreamWrite *write, void *context) {
  *stream = (TextStream){.stops = stops, .stop_count = stop_count, .write = write, .context = context};
}

void text_stream_release(TextStream *stream) {
  free(stream->held);
  *stream = (TextStream){.stop_count = 0};
}

/* Writes the first `bytes` of what is held. */
static void let_go(TextStream *stream, size_t bytes) {
  if (bytes == 0) return;
  stream->write(stream->context, stream->held, bytes);
  memmove(stream->held, stream->held + bytes, stream->held_bytes -= bytes);
}

static bool begins_at(const TextStream *stream, size_t at, const char *stop) {
  size_t length = strlen(stop), left = stream->held_bytes - at;
  return memcmp(stream->held + at, stop, length < left ? length : left) == 0;
}

/* The beginning of the stop string that is complete first, the longest of those that end together: the text ends at the same place whatever
 * pieces it comes in. held_bytes if there is none. */
static size_t find_stop(const TextStream *stream) {
  size_t begin = stream->held_bytes, end = SIZE_MAX;
  for (size_t at = 0; at < stream->held_bytes; at++) {
    for (int i = 0; i < stream->stop_count; i++) {
      size_t length = strlen(stream->stops[i]);
      bool whole = length <= stream->held_bytes - at && begins_at(stream, at, stream->stops[i]);
      if (whole && at + length < end) begin = at, end = at + length;
    }
  }
  return begin;
}

/* The first place from which on everything may be the beginning of a stop string. */
static size_t find_possible_stop(const TextStream *stream) {
  for (size_t at = 0; at < stream->held_bytes; at++) {
    for (int i = 0; i < stream->stop_count; i++) {
      if (begins_at(stream, at, stream->stops[i])) return at;
    }
  }
  return stream->held_bytes;
}

Status text_stream_add(TextStream *stream, const char *text, size_t bytes) {
  if (stream->stopped) return STATUS_OK;
  TRY(ARRAY_RESERVE(stream->held, stream->held_bytes, bytes, stream->capacity, "text"));
  if (bytes) memcpy(stream->held + stream->held_bytes, text, bytes);
  stream->held_bytes += bytes;
  size_t stop = find_stop(stream);
  stream->stopped = stop < stream->held_bytes;
  let_go(stream, stream->stopped ? stop : utf8_complete(stream->held, find_possible_stop(stream)));
  return STATUS_OK;
}

void text_stream_finish(TextStream *stream) {
  if (!stream->stopped) let_go(stream, stream->held_bytes);
}
