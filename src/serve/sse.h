/* Server-sent events (HTML standard, section 9.2) as they come in pieces: the data of each event, whose lines are joined by newlines.
 * Fields other than `data` are passed over. Invariant: neither an event's data nor a line exceeds SSE_EVENT_MAX bytes. */
#ifndef SERVE_SSE_H
#define SERVE_SSE_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

enum { SSE_EVENT_MAX = 4 << 20 };

typedef Status SseEvent(void *context, const char *data, size_t bytes); /* with a NUL behind; a failure ends sse_add */

typedef struct Sse {
  SseEvent *event;
  void *context;
  char *data, *line; /* of the event and of the line that are not complete */
  size_t data_bytes, data_room, line_bytes, line_room;
  bool has_data, after_return; /* the last byte was a carriage return: a line feed behind it belongs to it */
} Sse;

void sse_init(Sse *sse, SseEvent *event, void *context);
void sse_release(Sse *sse); /* accepts a zeroed one */

/* BAD_FILE: an event of more than SSE_EVENT_MAX bytes; NO_MEMORY; or what the event's function returned. */
Status sse_add(Sse *sse, const char *bytes, size_t size);

#endif
