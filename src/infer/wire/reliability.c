/* Decisions over a group that is waited for. */
#include "infer/wire/reliability.h"
#include <math.h>

static const double least_grace = 1e-3, least_pause = 2e-3, least_patience = 5e-3, first_pause = 20e-3, most_grace = 0.1, most_pause = 0.25,
                    most_flight = 0.1;

double reliability_smooth(double estimate, double measured) {
  if (estimate <= 0) return measured;
  return estimate + (measured - estimate) / (measured > estimate ? 8 : 2);
}

bool reliability_still_flying(double since_left, double round_trip) { return since_left < fmin(most_flight, round_trip); }

static bool asks(const Reliability *r) { return r->mode != RELIABILITY_STREAM; }
static bool masks(const Reliability *r) { return r->mode == RELIABILITY_DEADLINE || r->mode == RELIABILITY_FEC; }

static double wait_most(const Reliability *r) { return r->deadline > 0 && r->mode != RELIABILITY_RETRANSMIT ? r->deadline : INFINITY; }

/* All that is missing is said to be sent, and had a grace to come since: from then on it is lost. INFINITY: not so. */
static double lost_from(const Reliability *r, const GroupState *g, double grace) {
  bool sent = g->sender == GROUP_SENDER_SENT && g->packets > 0 && g->missing_sent >= g->packets - g->arrived;
  return masks(r) && sent && g->told >= g->waiting ? g->told + grace : INFINITY;
}

/* When to ask, if nothing comes before. */
static double question_at(const GroupState *g, double grace) {
  double heard = fmax(g->heard, g->waiting),
         pause = g->round_trip > 0 ? fmin(most_pause, fmax(least_pause, 2 * g->round_trip)) : first_pause;
  if (g->sender == GROUP_SENDER_NOT_YET) pause = fmax(pause, fmin(most_pause, g->block_time / 4));
  if (g->asked >= g->waiting) return fmax(g->asked + pause, heard + grace);
  return g->arrived > 0 ? heard + grace : g->waiting + fmax(least_patience, fmax(fmin(most_pause, 2 * g->round_trip), g->block_time));
}

GroupVerdict reliability_judge(const Reliability *r, const GroupState *g, double now, bool *ask, double *again) {
  double grace = fmin(most_grace, fmax(least_grace, fmax(2 * g->jitter, 3 * g->gap)));
  *ask = false;
  *again = now;
  if (g->packets > 0 && g->arrived + g->repairable >= g->packets) return GROUP_COMPLETE;
  if (g->sender == GROUP_SENDER_GONE) return r->mode == RELIABILITY_RETRANSMIT ? GROUP_PEER_GONE : GROUP_LOST;
  double lost = lost_from(r, g, grace), late = g->waiting + wait_most(r), gone = g->waiting + r->timeout;
  if (now >= lost) return GROUP_LOST;
  if (now >= late) return GROUP_LATE;
  if (now >= gone) return GROUP_PEER_GONE;
  *again = fmin(lost, fmin(late, gone));
  if (!asks(r)) return GROUP_WAIT;
  double next = question_at(g, grace);
  *ask = now >= next;
  *again = fmin(*again, *ask ? now + least_pause : next);
  return GROUP_WAIT;
}
