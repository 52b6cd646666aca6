/* Asking a run to stop: set by a signal handler, looked at between steps and between the batches of an evaluation. */
#ifndef TRAIN_INTERRUPT_H
#define TRAIN_INTERRUPT_H
#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP ask for it (signals_catch): a second Ctrl-C, a second later, ends the program at once. In a job of
 * several ranks they also say where the last checkpoint is, as the launcher that tells a job to end, or that has lost a rank, leaves it a
 * second; SIGUSR1, which mpirun passes on without ending the job a second later, asks only. */
void interrupt_catch(void);
bool interrupt_asked(void);
void interrupt_last_checkpoint(const char *directory, long long step); /* NULL: there is none yet */

#endif
