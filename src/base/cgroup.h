/* Limits that the control groups of this process set, as containers and systemd do: cgroups(7), of both versions. Leaves out: what only
 * slows a process down before its limit (memory.high), swap, weights. Read from Linux's files at each call, a few for each level of the
 * hierarchy: nothing for a loop. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#define CGROUP_SELF "/proc/self/cgroup" /* lists the groups of this process */
#define CGROUP_ROOT "/sys/fs/cgroup"    /* where the hierarchies are mounted */

/* Bytes that the group and those around it still allow, with what the system would take back from their cache of files; INFINITY without a
 * limit. `self` and `root`: the two above, or a test's. */
double cgroup_memory_left(const char *self, const char *root);

/* Cores whose time the group and those around it may use, rounded up; INFINITY without a limit. */
double cgroup_cores(const char *self, const char *root);

#endif
