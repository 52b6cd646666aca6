/* A progress bar on stderr: redrawn in place on a terminal, a plain line every few seconds otherwise. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Progress {
  const char *title;
  int64_t total; /* 0: unknown */
  int64_t first; /* what was done before progress_start, in another run; 0 unless set after it */
  double started, drawn;
  bool terminal, quiet;
} Progress;

/* stderr is a terminal that obeys escape sequences, which TERM=dumb denies. */
bool progress_terminal(void);

void progress_start(Progress *progress, const char *title, int64_t total, bool quiet);
void progress_update(Progress *progress, int64_t done, const char *note); /* note may be NULL: "loss 1.234  312 images/s" */
void progress_finish(Progress *progress, int64_t done, const char *note);

/* Takes the bar off the terminal in place of progress_finish, where its last state says nothing. */
void progress_wipe(const Progress *progress);

/* The bar as it stands on a terminal, without the codes around it: "title [####....]  40% 4/10  note  left 3s" in at most `columns` (24 or
 * more) characters. What there is no room for is shortened or left out; percentage and time stay. now: clock_now(). line [size] */
void progress_render(const Progress *progress, int64_t done, const char *note, double now, bool last, int columns, char *line, size_t size);

/* "12d07h", "1h02m", "3m20s", "4.1s" into buffer; returns buffer. */
const char *progress_duration(double seconds, char buffer[16]);

#endif
