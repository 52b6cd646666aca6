/* Which sequence numbers of a sender have been seen: the last REPLAY_WINDOW of them, older ones count as seen (RFC 6479's idea: a ring of
 * words of bits, of which whole words are cleared as it moves on). A number is noted only once its datagram has proved genuine. */
#ifndef INFER_REPLAY_WINDOW_H
#define INFER_REPLAY_WINDOW_H
#include <stdbool.h>
#include <stdint.h>

enum { REPLAY_WINDOW = 2048, REPLAY_WORDS = REPLAY_WINDOW / 64 + 1 };

typedef struct ReplayWindow {
  uint64_t most; /* the largest noted; 0: none */
  uint64_t bits[REPLAY_WORDS];
} ReplayWindow;

/* Zeroed: nothing was seen. Numbers begin with 1. */
bool replay_window_fresh(const ReplayWindow *window, uint64_t sequence);
void replay_window_note(ReplayWindow *window, uint64_t sequence);

#endif
