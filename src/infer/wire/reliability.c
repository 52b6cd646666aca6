/* Decisions over a group that is waited for. */
#include "infer/wire/reliability.h"
#include <math.h>

static const double least_grace = 1e-3, least_pause = 2e-3, least_silence = 0.25;

double reliability_smooth(double estimate, double measured) { return estimate > 0 ? estimate + (measured - estimate) / 8 : measured; }

static bool asks(const Reliability *r) { return r->mode != RELIABILITY_STREAM; }
static bool masks(const Reliability *r) { return r->mode == RELIABILITY_DEADLINE || r->mode == RELIABILITY_FEC; }

static double silence_most(const Reliability *r, const GroupState *g) {
  if (!masks(r) || !asks(r)) return r->timeout;
  return fmin(r->timeout, fmax(fmax(least_silence, 4 * g->block_time), r->deadline));
}

static double wait_most(const Reliability *r) { return r->deadline > 0 && r->mode != RELIABILITY_RETRANSMIT ? r->deadline : r->timeout; }

/* All that is missing is said to be sent, and had a grace to come since: from then on it is lost. INFINITY: not so. */
static double lost_from(const Reliability *r, const GroupState *g, double grace) {
  bool sent = g->sender == GROUP_SENDER_SENT && g->packets > 0 && g->missing_sent >= g->packets - g->arrived;
  return masks(r) && sent && g->told >= g->waiting ? g->told + grace : INFINITY;
}

GroupVerdict reliability_judge(const Reliability *r, const GroupState *g, double now, bool *ask, double *again) {
  double grace = fmax(least_grace, 2 * g->jitter), pause = fmax(least_pause, 2 * g->round_trip);
  *ask = false;
  *again = now;
  if (g->packets > 0 && g->arrived + g->repairable >= g->packets) return GROUP_COMPLETE;
  if (g->sender == GROUP_SENDER_GONE) return r->mode == RELIABILITY_RETRANSMIT ? GROUP_PEER_GONE : GROUP_LOST;
  double lost = lost_from(r, g, grace), late = g->waiting + wait_most(r), silent = fmax(g->heard, g->waiting) + silence_most(r, g);
  if (now >= lost) return GROUP_LOST;
  if (now >= late) return r->deadline > 0 || g->heard > g->waiting ? GROUP_LATE : GROUP_PEER_GONE;
  if (now >= silent) return GROUP_PEER_GONE;
  *again = fmin(lost, fmin(late, silent));
  if (!asks(r)) return GROUP_WAIT;
  double next = g->asked >= g->waiting ? fmax(g->asked, fmin(g->heard, now)) + pause : g->waiting + grace;
  *ask = now >= next;
  *again = fmin(*again, *ask ? now + pause : next);
  return GROUP_WAIT;
}
