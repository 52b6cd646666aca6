/* Child processes, one for each node, joined by sockets: a stream between every two of them and one from each to this process.
 * No child outlives its parent: it is killed when the parent dies and it leaves when its control stream ends. */
#ifndef INFER_PROCESSES_H
#define INFER_PROCESSES_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct Processes {
  int count;
  pid_t *pid;   /* [count]; 0: not started */
  int *control; /* [count] this process's end of each control stream; -1: given away or closed */
  bool *reaped; /* [count] */
  int *ended;   /* [count] wait status of the reaped */
} Processes;

/* What a child does: sockets [count] are its streams to the others ([node] is -1), control leads to the parent. Returns its exit code. */
typedef int ProcessesMain(void *context, int node, int control, const int *sockets);

/* Forks `count` children. Call before any thread is started. On failure those that run are ended. */
Status processes_start(Processes *processes, int count, ProcessesMain *child, void *context);

/* A child that has ended by itself: its number, and how into text ("died: signal 9 (Killed)"); -1 when all still run after `wait` seconds.
 * One killed by a signal is named before one that gave up. */
int processes_find_dead(Processes *processes, double wait, char *text, size_t room);

/* Waits up to `grace` seconds for the children to end, kills the rest, reaps all, frees. Control streams must have been closed or told to
 * end. */
void processes_stop(Processes *processes, double grace);

#endif
