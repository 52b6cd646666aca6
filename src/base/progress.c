/* The progress bar of progress.h. Leaves out: several bars at once.
 * Invariant: on a terminal one line is redrawn and ended by progress_finish; elsewhere every line is complete. */
#include "base/progress.h"
#include "base/clock.h"
#include "base/printable.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_WIDTH = 24, BAR_MIN = 6, COLUMNS_MAX = 80, COLUMNS_MIN = 24 };
enum { HOURS_MAX = 100 /* from which on there are days */, DAYS_MAX = 99999 };
static const double redraw_seconds = 0.1, line_seconds = 10;

const char *progress_duration(double seconds, char buffer[16]) {
  if (!(seconds >= 0)) seconds = 0;
  if (seconds > 86400.0 * DAYS_MAX) seconds = 86400.0 * DAYS_MAX;
  const unsigned long long whole = (unsigned long long)(seconds + 0.5);
  const unsigned minutes = whole / 60 % 60, hours = (unsigned)(whole / 3600);
  if (seconds < 9.95)
    snprintf(buffer, 16, "%.1fs", seconds);
  else if (whole < 60)
    snprintf(buffer, 16, "%us", (unsigned)(whole % 60));
  else if (whole < 3600)
    snprintf(buffer, 16, "%um%02us", minutes, (unsigned)(whole % 60));
  else if (hours < HOURS_MAX)
    snprintf(buffer, 16, "%uh%02um", hours % HOURS_MAX, minutes);
  else
    snprintf(buffer, 16, "%ud%02uh", hours / 24 % (DAYS_MAX + 1), hours % 24);
  return buffer;
}

/* The width to keep to: the terminal's or what COLUMNS says, at most 80, which stays whole in split windows and recordings. */
static int terminal_columns(void) {
  struct winsize size;
  const char *given = getenv("COLUMNS");
  int columns = COLUMNS_MAX, told = given != NULL ? atoi(given) : 0;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_col < columns) columns = size.ws_col;
  if (told > 0 && told < columns) columns = told;
  return columns > COLUMNS_MIN ? columns : COLUMNS_MIN;
}

bool progress_terminal(void) {
  const char *kind = getenv("TERM");
  return isatty(STDERR_FILENO) && (kind == NULL || strcmp(kind, "dumb") != 0);
}

static double part_done(const Progress *progress, int64_t done) {
  double part = (double)done / (double)progress->total;
  return part < 0 ? 0 : part > 1 ? 1 : part;
}

/* " 40% 4/10" or, of an unknown total, "4" */
static void tell_count(const Progress *progress, int64_t done, bool count, char text[64]) {
  if (progress->total <= 0)
    snprintf(text, 64, "%lld", (long long)done);
  else if (count)
    snprintf(text, 64, "%3.0f%% %lld/%lld", 100 * part_done(progress, done), (long long)done, (long long)progress->total);
  else
    snprintf(text, 64, "%3.0f%%", 100 * part_done(progress, done));
}

/* "  ETA 3s", "  in 4s" or nothing */
static void tell_time(const Progress *progress, int64_t done, double now, bool last, char text[32]) {
  char duration[16];
  double elapsed = now - progress->started;
  text[0] = '\0';
  if (last) snprintf(text, 32, "  in %s", progress_duration(elapsed, duration));
  if (last || progress->total <= 0 || done <= progress->first) return;
  double left = elapsed * (double)(progress->total - done) / (double)(done - progress->first);
  snprintf(text, 32, "  ETA %s", progress_duration(left, duration));
}

static int put_bar(const Progress *progress, int64_t done, int width, char *line) {
  if (progress->total <= 0 || width < BAR_MIN) return 0;
  int full = (int)(part_done(progress, done) * width);
  line[0] = '[';
  memset(line + 1, '#', (size_t)full);
  memset(line + 1 + full, '.', (size_t)(width - full));
  memcpy(line + 1 + width, "] ", 3);
  return width + 3;
}

static int at_most(size_t length, int max) { return length < (size_t)max ? (int)length : max; }

/* Of a note of `noted` characters with the blanks before it what fits: its parts, which two blanks divide, whole or not at all. */
static int whole_parts(const char *note, int noted, int room) {
  if (noted <= room) return noted;
  for (noted = room; noted > 2 && strncmp(note + noted - 2, "  ", 2) != 0; noted--) continue;
  return noted > 2 ? noted : 0;
}

/* What there is no room for goes in this order: the bar's length, the count, the note, the bar, the title's end. */
void progress_render(const Progress *progress, int64_t done, const char *note, double now, bool last, int columns, char *line,
                     size_t size) {
  char count[64], left[32], bar[BAR_WIDTH + 4] = "";
  if (columns > (int)size - 1) columns = (int)size - 1;
  tell_count(progress, done, true, count);
  tell_time(progress, done, now, last, left);
  int title = at_most(strlen(progress->title), columns / 2), noted = note != NULL ? (int)strlen(note) + 2 : 0;
  int bare = title + 1 + (int)strlen(left);
  if (bare + (int)strlen(count) + noted + BAR_MIN + 3 > columns) tell_count(progress, done, false, count);
  noted = whole_parts(note, noted, columns - bare - (int)strlen(count));
  int room = columns - bare - (int)strlen(count) - noted - 3;
  put_bar(progress, done, room < BAR_WIDTH ? room : BAR_WIDTH, bar);
  snprintf(line, (size_t)columns + 1, "%.*s %s%s%s%.*s%s", title, progress->title, bar, count, noted ? "  " : "", noted ? noted - 2 : 0,
           note ? note : "", left);
}

/* Beside a terminal all that there is, on a line of its own. */
static void print_line(const Progress *progress, int64_t done, const char *note, double now, bool last) {
  char count[64], left[32];
  tell_count(progress, done, true, count);
  tell_time(progress, done, now, last, left);
  fprintf(stderr, "%.198s %s%s%.200s%s\n", printable(progress->title), count, note ? "  " : "", note ? printable(note) : "", left);
}

static void draw(const Progress *progress, int64_t done, const char *note, double now, bool last) {
  char line[COLUMNS_MAX + 1];
  Progress shown = *progress;
  if (!progress->terminal) {
    print_line(progress, done, note, now, last);
  } else {
    shown.title = printable(progress->title);
    progress_render(&shown, done, note ? printable(note) : NULL, now, last, terminal_columns() - 1, line, sizeof line);
    fprintf(stderr, "\r%s\033[K%s", line, last ? "\n" : "");
  }
  fflush(stderr);
}

void progress_start(Progress *progress, const char *title, int64_t total, bool quiet) {
  double now = clock_now();
  bool terminal = progress_terminal();
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

void progress_wipe(const Progress *progress) {
  if (progress->quiet || !progress->terminal) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
}
