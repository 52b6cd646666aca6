/* One flag for the process, which is never taken back: see interrupt.h. */
#include "train/interrupt.h"
#include <signal.h>

static volatile sig_atomic_t asked;

void interrupt_ask(int signal_number) {
  (void)signal_number;
  asked = 1;
}

bool interrupt_asked(void) { return asked != 0; }
