/* Signals that ask a program to end. Who sends them often sends them twice: timeout(1) to the program and then to its group, a supervisor
 * to each process of a group and the parent again to its child. Those are one request; a person who asks again does so later. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H
#include <stdbool.h>

/* How a signal stands to those of its number before it: none was noted; the first of them came within a second; it came earlier. */
typedef enum SignalOrder { SIGNAL_FIRST, SIGNAL_DOUBLED, SIGNAL_AGAIN } SignalOrder;

/* Notes signal `number` (1 to 31), in its handler. From any thread. */
SignalOrder signals_note(int number);

/* Whether SIGHUP has no effect: as nohup starts programs, which is to stay so. */
bool signals_hangup_ignored(void);

/* From now on the first signal `number` calls `ask` in the handler, doubled ones do nothing, and one that comes again has its default
 * action. A SIGHUP that is ignored stays so. */
void signals_catch(int number, void (*ask)(int number));

#endif
