/* Status codes and the per-thread message. Leaves out: printing (src/base/log.c) and exiting (src/cli). */
#include "base/status.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char message[MESSAGE_BYTES];

/* Formatted aside first: an argument may be the present message itself. */
Status status_set(Status code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(message, text, strlen(text) + 1);
  return code;
}

Status status_wrap(Status code, const char *format, ...) {
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char *inner = message[0] ? message : status_text(code);
  size_t length = strlen(text);
  snprintf(text + length, sizeof text - length, ": %.*s", (int)(sizeof text - length), inner);
  memcpy(message, text, strlen(text) + 1);
  return code;
}

Status status_no_memory(const char *owner, const char *what) {
  return status_set(STATUS_NO_MEMORY, "%s%sno memory for %s", owner ? owner : "", owner ? ": " : "", what);
}

const char *status_message(void) { return message; }

const char *status_text(Status code) {
  static const char *const texts[STATUS_COUNT] = {
#define STATUS_TEXT(name, text) [STATUS_##name] = text,
      STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
  };
  return (unsigned)code < STATUS_COUNT ? texts[code] : "unknown status";
}
