/* Lines "Name:  number kB" of /proc: see memory.h. */
#include "base/memory.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Bytes behind `name`, which ends in a colon; -1 where there is no such line. */
static double read_line(const char *path, const char *name) {
  FILE *file = fopen(path, "r");
  char line[256];
  long long kilobytes = -1;
  while (file != NULL && kilobytes < 0 && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) != 0 || sscanf(line + strlen(name), "%lld kB", &kilobytes) != 1) kilobytes = -1;
  if (file != NULL) fclose(file);
  return kilobytes < 0 ? -1 : 1024.0 * (double)kilobytes;
}

double memory_available(void) {
  double bytes = read_line("/proc/meminfo", "MemAvailable:"), allowed = cgroup_memory_left(CGROUP_SELF, CGROUP_ROOT);
  return fmin(bytes > 0 ? bytes : INFINITY, allowed);
}

MemoryUse memory_used(void) {
  static const char path[] = "/proc/self/status";
  return (MemoryUse){fmax(read_line(path, "VmRSS:"), 0), fmax(read_line(path, "RssAnon:"), 0)};
}

double memory_peak(void) { return fmax(read_line("/proc/self/status", "VmHWM:"), 0); }

void memory_peak_reset(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (file == NULL) return;
  fputs("5\n", file); /* proc(5): the high-water mark of resident memory becomes what is resident now */
  fclose(file);
}

#ifdef __GLIBC__
void memory_give_back(void) { malloc_trim(0); }
void memory_few_heaps(void) { mallopt(M_ARENA_MAX, 2); }
#else
void memory_give_back(void) {}
void memory_few_heaps(void) {}
#endif

void memory_give_back_at_times(double *last) {
  const double now = clock_now(), period = 2;
  if (now < *last + period) return;
  memory_give_back();
  *last = now;
}
