/* Status codes and the message that explains the last failure.
 *
 * Every function that can fail returns a Status. The one that finds the fault writes a message for people with
 * status_set (what failed, on which file or option, what is accepted, what to do next); callers pass the code on with
 * TRY, and may put context in front with status_wrap. Libraries print to standard output only where that is what they
 * are called for (json_build_print, a task's first batch), tell of progress and doubts through base/log.h, and exit only in ranks_abort:
 * the rest is src/cli's. The message is kept per thread. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#define STATUS_LIST(X)                                                                                                                     \
  X(OK, "ok")                                                                                                                              \
  X(NO_MEMORY, "out of memory")                                                                                                            \
  X(IO, "input/output error")                                                                                                              \
  X(BAD_FILE, "malformed file")                                                                                                            \
  X(BAD_VALUE, "value not accepted")                                                                                                       \
  X(BAD_USAGE, "wrong usage")                                                                                                              \
  X(NOT_FOUND, "not found")                                                                                                                \
  X(TIMEOUT, "timed out")                                                                                                                  \
  X(PEER, "a peer failed")                                                                                                                 \
  X(NUMERIC, "not a finite number")                                                                                                        \
  X(INTERRUPTED, "interrupted")                                                                                                            \
  X(UNSUPPORTED, "not supported")                                                                                                          \
  X(BUSY, "busy")

typedef enum Status {
#define STATUS_ENUM(name, text) STATUS_##name,
  STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
      STATUS_COUNT
} Status;

/* Sets this thread's message and returns `code`. */
Status status_set(Status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " in front of this thread's message and returns `code`. */
Status status_wrap(Status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* NO_MEMORY with the message "OWNER: no memory for WHAT", or without an owner (a file, a name; NULL) "no memory for WHAT". */
Status status_no_memory(const char *owner, const char *what);

/* The message of the last failure on this thread; "" if there was none. Valid until the next call on this thread. */
const char *status_message(void);

/* The fixed text of a code. */
const char *status_text(Status code);

#define TRY(expression)                                                                                                                    \
  do {                                                                                                                                     \
    Status try_status = (expression);                                                                                                      \
    if (try_status != STATUS_OK) return try_status;                                                                                        \
  } while (0)

#endif
