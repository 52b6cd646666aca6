/* A progress bar on stderr: redrawn in place on a terminal, a plain line every few seconds otherwise. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct Progress {
  const char *title;
  int64_t total; /* 0: unknown */
  double started, drawn;
  bool terminal, quiet;
} Progress;

void progress_start(Progress *progress, const char *title, int64_t total, bool quiet);
void progress_update(Progress *progress, int64_t done, const char *note); /* note may be NULL: "loss 1.234  312 images/s" */
void progress_finish(Progress *progress, int64_t done, const char *note);

/* "1h02m", "3m20s", "4.1s" into buffer; returns buffer. */
const char *progress_duration(double seconds, char buffer[16]);

#endif
