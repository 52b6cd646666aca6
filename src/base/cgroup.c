/* See cgroup.h. A limit holds for all groups inside, so the least one on the way from the own group to the root counts. What cannot be read
 * or understood limits nothing. In a container the list may name the group by its path outside, which is not mounted there: then what is
 * mounted is the own group. */
#include "base/cgroup.h"
#include "base/files.h"
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* What one group allows, INFINITY without a limit. */
typedef double ReadLevel(const char *folder);

static FILE *open_in(const char *folder, const char *name) {
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return fopen(path, "r");
}

/* The number that a file begins with; -1 where there is no file or no number, as in "max". */
static double read_number(const char *folder, const char *name) {
  long long number = -1;
  FILE *file = open_in(folder, name);
  if (file == NULL) return -1;
  if (fscanf(file, "%lld", &number) != 1) number = -1;
  fclose(file);
  return (double)number;
}

/* The number behind `key` in memory.stat; 0 where there is none. */
static double read_stat(const char *folder, const char *key) {
  char line[256];
  long long number = -1;
  const size_t length = strlen(key);
  FILE *file = open_in(folder, "memory.stat");
  while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, key, length) != 0 || sscanf(line + length, " %lld", &number) != 1) number = -1;
  if (file != NULL) fclose(file);
  return fmax((double)number, 0);
}

/* Pages of files that were not used lately count as used, but give way to anything else. */
static double memory_left(const char *folder, const char *limit, const char *used, const char *cache) {
  const double max = read_number(folder, limit), now = read_number(folder, used);
  return max < 0 || now < 0 ? INFINITY : fmax(max - now + read_stat(folder, cache), 0);
}

static double memory_v2(const char *folder) { return memory_left(folder, "memory.max", "memory.current", "inactive_file "); }

static double memory_v1(const char *folder) {
  return memory_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ");
}

static double share_of_time(double quota, double period) { return quota > 0 && period > 0 ? ceil(quota / period) : INFINITY; }

static double cores_v2(const char *folder) {
  long long quota = -1, period = -1;
  FILE *file = open_in(folder, "cpu.max"); /* "max 100000" or "150000 100000" */
  if (file == NULL) return INFINITY;
  if (fscanf(file, "%lld %lld", &quota, &period) != 2) quota = -1;
  fclose(file);
  return share_of_time((double)quota, (double)period);
}

static double cores_v1(const char *folder) {
  return share_of_time(read_number(folder, "cpu.cfs_quota_us"), read_number(folder, "cpu.cfs_period_us"));
}

/* The least of the group at `path` below `mount`, and of those around it. */
static double least_on_way(const char *mount, const char *path, ReadLevel *read_level) {
  char folder[PATH_MAX];
  const size_t top = strlen(mount);
  const int length = snprintf(folder, sizeof folder, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
  const bool inside = path[0] == '/' && strstr(path, "/..") == NULL && length < (int)sizeof folder && files_is_dir(folder);
  if (!inside) snprintf(folder, sizeof folder, "%s", mount); /* above a namespace's root the path begins with "/.." */
  double least = read_level(folder);
  while (strlen(folder) > top) {
    *strrchr(folder, '/') = 0;
    least = fmin(least, read_level(folder));
  }
  return least;
}

/* Whether "cpu,cpuacct" names the controller. */
static bool has_controller(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (; *list; list += strcspn(list, ","), list += *list == ',')
    if (strcspn(list, ",") == length && strncmp(list, name, length) == 0) return true;
  return false;
}

/* Of one line of the list, "NUMBER:CONTROLLERS:PATH": version 2 has no controllers there. It is mounted at the root, or beside hierarchies
 * of version 1; each of those by its controllers, or by one of them. */
static double least_of_line(char *line, const char *root, const char *controller, ReadLevel *v1, ReadLevel *v2) {
  char mount[PATH_MAX];
  line[strcspn(line, "\n")] = 0;
  char *list = strchr(line, ':'), *path = list != NULL ? strchr(++list, ':') : NULL;
  if (path == NULL) return INFINITY;
  *path++ = 0;
  if (list[0] == 0) {
    snprintf(mount, sizeof mount, "%s/cgroup.controllers", root); /* every group of version 2 has it */
    const bool alone = files_exists(mount);
    snprintf(mount, sizeof mount, "%s%s", root, alone ? "" : "/unified");
    return least_on_way(mount, path, v2);
  }
  if (!has_controller(list, controller)) return INFINITY;
  snprintf(mount, sizeof mount, "%s/%s", root, list);
  if (!files_is_dir(mount)) snprintf(mount, sizeof mount, "%s/%s", root, controller);
  return least_on_way(mount, path, v1);
}

static double least_of_all(const char *self, const char *root, const char *controller, ReadLevel *v1, ReadLevel *v2) {
  char line[PATH_MAX + 256];
  double least = INFINITY;
  FILE *file = fopen(self, "r");
  if (file == NULL) return INFINITY;
  while (fgets(line, sizeof line, file) != NULL) least = fmin(least, least_of_line(line, root, controller, v1, v2));
  fclose(file);
  return least;
}

double cgroup_memory_left(const char *self, const char *root) { return least_of_all(self, root, "memory", memory_v1, memory_v2); }

double cgroup_cores(const char *self, const char *root) { return least_of_all(self, root, "cpu", cores_v1, cores_v2); }
