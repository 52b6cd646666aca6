/* Other programs, run to their end, and how a forked child begins. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H
#include "base/status.h"
#include <stdbool.h>
#include <sys/types.h>

/* In a child, right after fork: the signals of `defaults` have their usual effect and those of `ignored` none (each list ends with 0; NULL:
 * none), whatever `parent` had made of them, and signal `end` comes when `parent` ends. False: it has ended already. */
bool process_child(pid_t parent, int end, const int *defaults, const int *ignored);

/* The program NAME that lies beside the running one, in a fresh string (caller frees); NAME itself, which PATH is searched for, where that
 * is not known; NULL when out of memory. */
char *process_beside(const char *name);

/* Runs argv (argv[0] is the program, the last one NULL) with no input. Its standard output becomes the file `out`, which is replaced only
 * when the program ended with exit code 0; its standard error goes to the end of the file `log`. SIGINT and SIGTERM of this process are
 * passed on meanwhile, once each, and the program's end is waited for: INTERRUPTED. Another exit code than 0, or a signal: PEER, with the
 * last line that it wrote to `log` and that holds "error:", or else its last line. One program at a time. */
Status process_run(const char *const *argv, const char *out, const char *log);

#endif
