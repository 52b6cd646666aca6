/* Held-back text is short: at most a stop string's length and three bytes, so it is searched anew with each piece. */
#include "infer/text_stream.h"
#include "base/array.h"
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

static Status append(TextStream *stream, const char *text, size_t bytes) {
  TRY(ARRAY_RESERVE(stream->held, stream->held_bytes, bytes, stream->capacity, "text"));
  if (bytes) memcpy(stream->held + stream->held_bytes, text, bytes);
  stream->held_bytes += bytes;
  return STATUS_OK;
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

/* Where the stop string begins that is whole first, the longest of those that end together: whatever pieces the text comes in, it ends at
 * the same place. held_bytes if there is none. */
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

/* Bytes of the character that a first byte announces; 1 for one that is none. */
static size_t character_bytes(unsigned char first) {
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  return first >= 0xf0 && first <= 0xf4 ? 4 : 1;
}

/* Where a character begins whose end is missing at `end`; `end` itself if there is none. */
static size_t find_cut_character(const TextStream *stream, size_t end) {
  for (size_t back = 1; back <= 3 && back <= end; back++) {
    unsigned char byte = (unsigned char)stream->held[end - back];
    if ((byte & 0xc0) != 0x80) return character_bytes(byte) > back ? end - back : end;
  }
  return end;
}

Status text_stream_add(TextStream *stream, const char *text, size_t bytes) {
  if (stream->stopped) return STATUS_OK;
  TRY(append(stream, text, bytes));
  size_t stop = find_stop(stream);
  stream->stopped = stop < stream->held_bytes;
  let_go(stream, stream->stopped ? stop : find_cut_character(stream, find_possible_stop(stream)));
  return STATUS_OK;
}

void text_stream_finish(TextStream *stream) {
  if (!stream->stopped) let_go(stream, stream->held_bytes);
}
