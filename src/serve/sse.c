/* Lines out of bytes, events out of lines. */
#include "serve/sse.h"
#include "base/array.h"
#include <stdlib.h>
#include <string.h>

void sse_init(Sse *sse, SseEvent *event, void *context) { *sse = (Sse){.event = event, .context = context}; }

void sse_release(Sse *sse) {
  free(sse->data);
  free(sse->line);
  *sse = (Sse){.event = NULL};
}

static Status too_long(void) { return status_set(STATUS_BAD_FILE, "the server sent an event of more than %d bytes", (int)SSE_EVENT_MAX); }

static Status end_event(Sse *sse) {
  if (!sse->has_data) return STATUS_OK;
  sse->data[sse->data_bytes] = '\0';
  size_t bytes = sse->data_bytes;
  sse->data_bytes = 0;
  sse->has_data = false;
  return sse->event(sse->context, sse->data, bytes);
}

static Status end_line(Sse *sse) {
  const char *line = sse->line;
  size_t bytes = sse->line_bytes;
  sse->line_bytes = 0;
  if (bytes == 0) return end_event(sse);
  if (bytes < 5 || memcmp(line, "data:", 5) != 0) return STATUS_OK;
  size_t skipped = bytes > 5 && line[5] == ' ' ? 6 : 5;
  if (sse->data_bytes + bytes > SSE_EVENT_MAX) return too_long();
  TRY(ARRAY_RESERVE(sse->data, sse->data_bytes, bytes + 2, sse->data_room, "an event"));
  if (sse->has_data) sse->data[sse->data_bytes++] = '\n';
  memcpy(sse->data + sse->data_bytes, line + skipped, bytes - skipped);
  sse->data_bytes += bytes - skipped;
  sse->has_data = true;
  return STATUS_OK;
}

Status sse_add(Sse *sse, const char *bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    if (sse->after_return && bytes[at] == '\n') {
      sse->after_return = false;
      at++;
      continue;
    }
    size_t end = at;
    while (end < size && bytes[end] != '\n' && bytes[end] != '\r') end++;
    if (sse->line_bytes + (end - at) > SSE_EVENT_MAX) return too_long();
    TRY(ARRAY_RESERVE(sse->line, sse->line_bytes, end - at + 1, sse->line_room, "a line"));
    memcpy(sse->line + sse->line_bytes, bytes + at, end - at);
    sse->line_bytes += end - at;
    sse->after_return = end < size && bytes[end] == '\r';
    if (end < size) TRY(end_line(sse));
    at = end + 1;
  }
  return STATUS_OK;
}
