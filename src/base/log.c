/* Messages on stderr. Leaves out: levels beyond three, files.
 * Invariant: one message is one write, so that lines of several processes do not mix, and one line that holds nothing a terminal obeys. */
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *program = "astra";
static atomic_bool is_verbose, is_quiet, is_terse, has_times;

void log_program(const char *name) { program = name; }
void log_quiet(bool quiet) { is_quiet = quiet; }
void log_errors_only(bool only) { is_quiet = is_terse = only; }
void log_verbose(bool verbose) { is_verbose = verbose; }
void log_times(bool times) { has_times = times; }

/* ISO 8601 with milliseconds and the distance from UTC, and a space behind; returns its length. */
static size_t local_time(char *text, size_t room) {
  struct timespec now;
  struct tm parts;
  char zone[8], date[32];
  clock_gettime(CLOCK_REALTIME, &now);
  if (!localtime_r(&now.tv_sec, &parts)) return 0;
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  strftime(zone, sizeof zone, "%z", &parts);
  int length = snprintf(text, room, "%s.%03ld%.3s:%.2s ", date, now.tv_nsec / 1000000, zone, strlen(zone) > 3 ? zone + 3 : "00");
  return length < 0 || (size_t)length >= room ? 0 : (size_t)length;
}

__attribute__((format(printf, 2, 0))) static void print(const char *level, const char *format, va_list arguments) {
  char message[4096], line[2 * sizeof message];
  /* On a terminal a progress bar may stand on this line: wipe it. */
  char when[64] = "";
  if (has_times) when[local_time(when, sizeof when)] = 0;
  int start = snprintf(line, sizeof line, "%s%s%s: %s", progress_terminal() ? "\r\033[K" : "", when, program, level);
  if (start < 0 || (size_t)start >= sizeof line / 2) start = 0;
  vsnprintf(message, sizeof message, format, arguments);
  printable_copy(line + start, sizeof line - (size_t)start - 1, message, strlen(message));
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

void log_detail(const char *format, ...) {
  if (is_quiet || !is_verbose) return;
  va_list arguments;
  va_start(arguments, format);
  print("", format, arguments);
  va_end(arguments);
}

void log_warning(const char *format, ...) {
  if (is_terse) return;
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
