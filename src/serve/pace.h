/* How fast a device decodes, from the tokens that arrive, and how long it would be busy with what it has: so that a new text goes where it
 * is done first. */
#ifndef SERVE_PACE_H
#define SERVE_PACE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct Pace {
  int64_t left;                  /* tokens that its sequences may still make */
  double rate;                   /* tokens a second, a moving average; 0: not known */
  double speed;                  /* the same in a batch without end: see pace_note */
  double before;                 /* when the last token came, 0: something else has come in between */
  double seconds, tokens, steps; /* of the window that is measured; steps: one token of each sequence */
} Pace;

/* A token at time `now` of a device that decodes `sequences` at a time, 1 or more. `alone`: since the last token it did nothing but decode.
 *
 * A step of n sequences takes a + b n seconds: a reads the weights, b computes for one of them. Tokens a second therefore depend on n, and
 * a device would seem fast because it has much to do. `speed` is 1 / b, for which a / b is taken to be 4: measured with the shape of GPT-2
 * small, 4.6 with weights in fp32, 1 in int8; devices that are compared have the same weights. */
void pace_note(Pace *pace, double now, int sequences, bool alone);

/* Until a device that gets `more` tokens to make is done. A speed that is not known is taken to be `usual`, or 1. */
double pace_seconds(const Pace *pace, int64_t more, double usual);

/* Nothing is left, nothing under way; what was measured stays. */
void pace_restart(Pace *pace);

#endif
