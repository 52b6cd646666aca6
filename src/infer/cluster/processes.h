/* Child processes, one for each device that is on this machine, each joined to this process by two sockets: a control stream, and one
 * through which descriptors are passed (cluster/fd_passing.h), such as those of streams to the others. No child outlives its parent: it is
 * killed when the parent dies and it leaves when its control stream ends. */
#ifndef INFER_PROCESSES_H
#define INFER_PROCESSES_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct Processes {
  int count;
  pid_t *pid;   /* [count]; 0: not started */
  int *control; /* [count] this process's end of each control stream; -1: given away or closed */
  int *passed;  /* [count] the same of that for descriptors */
  bool *reaped; /* [count] */
  int *ended;   /* [count] wait status of the reaped */
} Processes;

/* What a child does, with its ends of the two sockets. Returns its exit code. */
typedef int ProcessesMain(void *context, int number, int control, int passed);

/* Forks `count` children, at least one. Call before any thread is started. On failure those that run are ended. */
Status processes_start(Processes *processes, int count, ProcessesMain *child, void *context);

/* In whoever forks: its children can be waited for, whatever its own parent has left it with (an ignored SIGCHLD). */
void processes_become_parent(void);

/* In a child that is forked by whom these are: what all such children do first. Ctrl-C reaches them too, but the parent decides what it
 * means; and they die with it. */
void processes_become_child(pid_t parent);

/* Two streams between two children, one end handed to each: `a` is told that it leads to node `to_b`, and the other way round. */
Status processes_join(Processes *processes, int a, int to_b, int b, int to_a, uint16_t epoch);

/* A child that has ended by itself: its number, and how into text ("died: signal 9 (Killed)"); -1 when all still run after `wait` seconds.
 * One killed by a signal is named before one that gave up. */
int processes_find_dead(Processes *processes, double wait, char *text, size_t room);

/* Ends one of them at once; it is then nobody's failure any more. */
void processes_end(Processes *processes, int number);

/* Waits up to `grace` seconds for the children to end, kills the rest, reaps all, frees. Control streams must have been closed or told to
 * end. */
void processes_stop(Processes *processes, double grace);

#endif
