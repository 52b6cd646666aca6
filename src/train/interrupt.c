/* Asking a run to stop: see interrupt.h. */
#include "train/interrupt.h"
#include "base/signals.h"
#include "train/ranks.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One flag for the process, which is never taken back. */
static volatile sig_atomic_t asked;

static void ask(int signal_number) {
  (void)signal_number;
  asked = 1;
}

/* What the handler writes; it is set up in the one that is not in use. */
static char words[2][1024];
static const char *volatile last_words = "";

void interrupt_last_checkpoint(const char *directory, long long step) {
  char *next = words[last_words == words[0]];
  if (directory == NULL)
    snprintf(next, sizeof words[0] - 1, "the job is told to end (stopped, or a rank was lost); there is no checkpoint yet");
  else
    snprintf(
        next, sizeof words[0] - 1,
        "the job is told to end (stopped, or a rank was lost). The last checkpoint, of step %lld, is intact in %s; go on, with any number "
        "of ranks: mpirun -n N astra-train --resume %s",
        step, directory, directory);
  strcat(next, "\n");
  last_words = next;
}

static void ask_job(int signal_number) {
  static const char program[] = "\nastra-train: ";
  const char *text = last_words;
  ask(signal_number);
  if (text[0] == '\0' || !ranks_speaks()) return;
  if (write(STDERR_FILENO, program, sizeof program - 1) < 0 || write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

void interrupt_catch(void) {
  void (*const of_job)(int) = ranks_count() > 1 ? ask_job : ask;
  signals_catch(SIGINT, of_job);
  signals_catch(SIGTERM, of_job);
  signals_catch(SIGHUP, of_job);
  if (ranks_count() > 1) signals_catch(SIGUSR1, ask);
}

bool interrupt_asked(void) { return asked != 0; }
