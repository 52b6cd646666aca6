/* The progress bar of progress.h. Leaves out: several bars at once.
 * Invariant: on a terminal one line is redrawn and ended by progress_finish; elsewhere every line is complete. */
#include "base/progress.h"
#include "base/clock.h"
#include "base/printable.h"
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_WIDTH = 24 };
static const double redraw_seconds = 0.1, line_seconds = 10;

const char *progress_duration(double seconds, char buffer[16]) {
  if (!(seconds >= 0)) seconds = 0;
  if (seconds > 359999) seconds = 359999; /* 99h59m */
  unsigned whole = (unsigned)(seconds + 0.5), minutes = whole / 60 % 60;
  if (seconds < 9.95)
    snprintf(buffer, 16, "%.1fs", seconds);
  else if (whole < 60)
    snprintf(buffer, 16, "%us", whole % 60);
  else if (whole < 3600)
    snprintf(buffer, 16, "%um%02us", minutes, whole % 60);
  else
    snprintf(buffer, 16, "%uh%02um", whole / 3600 % 100, minutes);
  return buffer;
}

static int terminal_columns(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

/* "title [####....]  40% 4/10  note  left 3s" */
static void draw(const Progress *progress, int64_t done, const char *note, double now, bool last) {
  char line[512], bar[BAR_WIDTH + 1], duration[16];
  size_t used = (size_t)snprintf(line, 200, "%s ", printable(progress->title));
  if (used > 199) used = 199;
  if (progress->total > 0) {
    double part = (double)done / (double)progress->total;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    int full = (int)(part * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    bar[BAR_WIDTH] = 0;
    if (progress->terminal) used += (size_t)snprintf(line + used, sizeof line - used, "[%s] ", bar);
    used += (size_t)snprintf(line + used, sizeof line - used, "%3.0f%% %lld/%lld", 100 * part, (long long)done, (long long)progress->total);
  } else {
    used += (size_t)snprintf(line + used, sizeof line - used, "%lld", (long long)done);
  }
  if (note) used += (size_t)snprintf(line + used, sizeof line - used, "  %.200s", printable(note));
  double elapsed = now - progress->started;
  if (last)
    snprintf(line + used, sizeof line - used, "  in %s", progress_duration(elapsed, duration));
  else if (progress->total > 0 && done > 0) {
    double left = elapsed * (double)(progress->total - done) / (double)done;
    snprintf(line + used, sizeof line - used, "  left %s", progress_duration(left, duration));
  }
  if (progress->terminal)
    fprintf(stderr, "\r%.*s\033[K%s", terminal_columns() - 1, line, last ? "\n" : "");
  else
    fprintf(stderr, "%s\n", line);
  fflush(stderr);
}

void progress_start(Progress *progress, const char *title, int64_t total, bool quiet) {
  double now = clock_now();
  bool terminal = isatty(STDERR_FILENO);
  *progress = (Progress){.title = title, .total = total, .started = now, .drawn = terminal ? 0 : now, .terminal = terminal, .quiet = quiet};
}

void progress_update(Progress *progress, int64_t done, const char *note) {
  if (progress->quiet) return;
  double now = clock_now();
  if (now - progress->drawn < (progress->terminal ? redraw_seconds : line_seconds)) return;
  progress->drawn = now;
  draw(progress, done, note, now, false);
}

void progress_finish(Progress *progress, int64_t done, const char *note) {
  if (!progress->quiet) draw(progress, done, note, clock_now(), true);
}
