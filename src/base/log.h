/* Messages for people, on stderr, one line each, prefixed with the program's name. What a terminal would obey is written out
 * (base/printable.h), so that names from files may stand in them. */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include <stdbool.h>

void log_program(const char *name); /* not copied */
void log_quiet(bool quiet);         /* silences log_info and log_detail */
void log_errors_only(bool only);    /* silences log_warning as well; false ends both */
void log_verbose(bool verbose);     /* log_detail speaks */
void log_times(bool times);         /* each line begins with the local time, as in 2026-11-22T14:03:07.512+01:00: for what runs for days */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_detail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* what --verbose adds to log_info */
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
