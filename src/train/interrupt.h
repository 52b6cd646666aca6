/* Asking a run to stop: set by a signal handler, looked at between steps and between the batches of an evaluation. */
#ifndef TRAIN_INTERRUPT_H
#define TRAIN_INTERRUPT_H
#include <stdbool.h>

void interrupt_ask(int signal_number); /* async-signal-safe: a handler for sigaction */
bool interrupt_asked(void);

/* In a job of several ranks: a handler as well, which first says where the last checkpoint is, as the launcher that tells a job to end, or
 * that has lost a rank, leaves it a second. */
void interrupt_ask_job(int signal_number);
void interrupt_last_checkpoint(const char *directory, long long step); /* NULL: there is none yet */

#endif
