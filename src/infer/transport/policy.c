/* Decisions about a message that is waited for: see policy.h. */
#include "infer/transport/policy.h"
#include <math.h>

static const double min_grace = 1e-3, max_grace = 0.1, min_pause = 2e-3, min_timeout = 5e-3, first_timeout = 20e-3, max_timeout = 0.5;

static double earlier(double a, double b) { return a < b ? a : b; } /* fmin and fmax look for what is no number, and are called often */
static double later(double a, double b) { return a > b ? a : b; }

double policy_smooth(double estimate, double measured) {
  if (estimate <= 0) return measured;
  return estimate + (measured - estimate) / (measured > estimate ? 8 : 2);
}

bool policy_is_in_flight(double round_trip, double left, double now) { return now < left + earlier(max_timeout, round_trip); }

static double between(double min, double value, double max) { return earlier(max, later(min, value)); }

/* When to send a QUERY, if nothing arrives before. */
static double question_at(const MessageState *g, double grace) {
  if (g->asking) return INFINITY;
  if (g->unanswered > 0) { /* how long an answer may take before the question is repeated */
    double first = g->round_trip > 0 ? between(min_timeout, 2 * g->round_trip, max_timeout) : first_timeout;
    return g->asked + earlier(max_timeout, first * pow(1.5, g->unanswered - 1));
  }
  if (g->told >= g->waiting) { /* what was sent should arrive within a grace after its sender said so; the rest takes longer */
    double pause = between(min_pause, later(2 * g->round_trip, g->block_time / 4), max_timeout);
    return later(g->told + (g->sender == SENDER_SENT ? grace : pause), g->heard + grace);
  }
  if (g->arrived > 0) return later(g->heard, g->waiting) + grace;
  return g->waiting + later(g->block_time, between(min_timeout, 2 * g->round_trip, max_timeout));
}

Decision policy_decide(const Reliability *r, const MessageState *g, double now, bool *ask, double *again) {
  double grace = earlier(max_grace, later(min_grace, later(2 * g->jitter, 3 * g->gap)));
  *ask = false;
  *again = now;
  if (g->packets > 0 && g->arrived >= g->packets) return DECISION_COMPLETE;
  if (g->sender == SENDER_GONE) return r->mode == RELIABILITY_RETRANSMIT ? DECISION_PEER_GONE : DECISION_LOST;
  /* Everything missing was reported as sent and had a grace to arrive: from then on it is lost. */
  bool sent = g->sender == SENDER_SENT && g->packets > 0 && g->missing_sent >= g->packets - g->arrived;
  double lost = r->mode == RELIABILITY_DEADLINE && sent && g->told >= g->waiting ? g->told + grace : INFINITY;
  double late = r->deadline > 0 && r->mode != RELIABILITY_RETRANSMIT ? g->waiting + r->deadline : INFINITY;
  double gone = later(g->waiting, g->heard) + r->timeout;
  if (now >= lost) return DECISION_LOST;
  if (now >= late) return DECISION_LATE;
  if (now >= gone) return DECISION_PEER_GONE;
  *again = earlier(lost, earlier(late, gone));
  if (r->mode == RELIABILITY_STREAM) return DECISION_WAIT;
  double next = question_at(g, grace);
  *ask = now >= next;
  *again = earlier(*again, *ask ? now + min_pause : next); /* where no QUERY can be sent now */
  return DECISION_WAIT;
}
