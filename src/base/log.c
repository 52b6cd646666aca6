/* Messages on stderr. Leaves out: levels beyond three, files, time stamps.
 * Invariant: one message is one write, so that lines of several processes do not mix. */
#include "base/log.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *program = "astra";
static atomic_bool is_quiet;

void log_program(const char *name) { program = name; }
void log_quiet(bool quiet) { is_quiet = quiet; }

__attribute__((format(printf, 2, 0))) static void print(const char *level, const char *format, va_list arguments) {
  char line[4096];
  /* On a terminal a progress bar may stand on this line: wipe it. */
  int start = snprintf(line, sizeof line, "%s%s: %s", isatty(STDERR_FILENO) ? "\r\033[K" : "", program, level);
  if (start < 0 || (size_t)start >= sizeof line / 2) start = 0;
  vsnprintf(line + start, sizeof line - (size_t)start - 1, format, arguments);
  strcat(line, "\n");
  fputs(line, stderr);
  fflush(stderr);
}

void log_info(const char *format, ...) {
  if (is_quiet) return;
  va_list arguments;
  va_start(arguments, format);
  print("", format, arguments);
  va_end(arguments);
}

void log_warning(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print("warning: ", format, arguments);
  va_end(arguments);
}

void log_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print("error: ", format, arguments);
  va_end(arguments);
}
