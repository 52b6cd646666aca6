/* Asking a run to stop: set by a signal handler, looked at between steps and between the batches of an evaluation. */
#ifndef TRAIN_INTERRUPT_H
#define TRAIN_INTERRUPT_H
#include <stdbool.h>

void interrupt_ask(int signal_number); /* async-signal-safe: a handler for sigaction */
bool interrupt_asked(void);

#endif
