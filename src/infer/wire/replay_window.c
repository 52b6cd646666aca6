/* A ring of one word more than the window is wide, so that the word that is being filled is never one that still counts. */
#include "infer/wire/replay_window.h"

static uint64_t *word_of(ReplayWindow *window, uint64_t sequence) { return &window->bits[sequence / 64 % REPLAY_WORDS]; }

bool replay_window_fresh(const ReplayWindow *window, uint64_t sequence) {
  if (sequence == 0 || sequence + REPLAY_WINDOW <= window->most) return false;
  return sequence > window->most || !(window->bits[sequence / 64 % REPLAY_WORDS] >> sequence % 64 & 1);
}

void replay_window_note(ReplayWindow *window, uint64_t sequence) {
  uint64_t from = window->most / 64 + 1, to = sequence / 64;
  if (to >= from + REPLAY_WORDS) from = to - REPLAY_WORDS + 1;
  for (uint64_t word = from; word <= to; word++) window->bits[word % REPLAY_WORDS] = 0;
  *word_of(window, sequence) |= (uint64_t)1 << sequence % 64;
  if (sequence > window->most) window->most = sequence;
}
