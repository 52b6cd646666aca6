/* See speculation.h. */
#include "infer/speculation.h"
#include <math.h>
#include <string.h>

enum { LEAST = 2, LONGEST = 64 /* tokens that must, and that may, match */, TRY_EVERY = 32 /* steps */, TRY = 2 /* drafts */ };
enum {
  TRIAL = 16,
  TRIAL_LEAST = 4 /* steps */,
  TRIAL_ASKS = 4 /* drafts */,
  REST = 512,
  REST_DOUBLED = 5 /* steps between trials that fail */
};
static const double drafter_kept = 0.95;
static const double costs_kept = 0.98, record_kept = 0.9;                                /* of moving sums, from a step to the next */
static const double first_right[SPECULATION_LENGTHS] = {1, 1.5, 1.8}, first_checked = 2; /* what is assumed of a new text */

int speculation_look_up(const int32_t *ids, int64_t count, int max, int32_t *drafts, int *length) {
  int64_t best = LEAST - 1, from = 0;
  for (int64_t end = count - 1; end >= LEAST && best < LONGEST; end--) { /* ids[end - 1] is the last one of an occurrence */
    int64_t same = 0;
    while (same < end && same < LONGEST && ids[end - 1 - same] == ids[count - 1 - same]) same++;
    if (same > best) best = same, from = end;
  }
  for (int i = 0; from > 0 && i < max; i++) drafts[i] = from + i < count ? ids[from + i] : drafts[from + i - count];
  *length = (int)best;
  return from > 0 ? max : 0;
}

void speculation_measure(SpeculationCosts *c, int rows, int tokens, double seconds) {
  const double mean = c->weight > 0 ? c->seconds / c->rows * rows : seconds;
  if (c->weight > 4) seconds = fmin(seconds, 4 * mean); /* the device did something else */
  const double add[] = {1, rows, seconds, (double)rows * rows, rows * seconds, tokens};
  double *sums[] = {&c->weight, &c->rows, &c->seconds, &c->rows_squared, &c->rows_seconds, &c->tokens};
  for (int i = 0; i < 6; i++) *sums[i] = costs_kept * *sums[i] + add[i];
}

static int class_of(int length) { return length < 4 ? 0 : length < 8 ? 1 : 2; }

void speculation_note(SpeculationRecord *r, int length, int drafts, int right) {
  double *good = &r->right[class_of(length)], *all = &r->checked[class_of(length)];
  if (drafts == 0) {
    r->steps++;
    return;
  }
  if (*all <= 0) *good = first_right[class_of(length)], *all = first_checked;
  *good = record_kept * *good + right;
  *all = record_kept * *all + right + (right < drafts);
  r->steps = 0;
}

/* Whether steps differed enough to say what a row costs: a step of R rows takes *step + R *row seconds. */
static bool find_costs(const SpeculationCosts *c, double *step, double *row) {
  const double spread = c->weight * c->rows_squared - c->rows * c->rows; /* W^2 times the variance of the rows */
  if (c->weight < 4 || spread < 0.01 * c->rows * c->rows) return false;
  *row = fmax(0, (c->weight * c->rows_seconds - c->rows * c->seconds) / spread);
  *step = fmax(0, (c->seconds - *row * c->rows) / c->weight);
  return true;
}

static double share_right(const SpeculationRecord *r, int kind) {
  return r->checked[kind] > 0 ? r->right[kind] / r->checked[kind] : first_right[kind] / first_checked;
}

int speculation_worth(const SpeculationCosts *c, const SpeculationRecord *r, int length, int found) {
  const int kind = class_of(length);
  const double p = share_right(r, kind);
  double step, row;
  int worth = 0;
  if (!find_costs(c, &step, &row)) { /* drafts are the way to learn it */
    if (p > 0.5) return found;
  } else {
    const double rate = c->tokens / c->seconds;
    for (double kept = p; worth < found && kept > rate * row; kept *= p) worth++;
  }
  if (worth > 0 || r->steps < TRY_EVERY) return worth;
  return found < TRY ? found : TRY;
}

/* ---- of another device */

int speculation_follow(const int32_t *text, int64_t tokens, int64_t base, const int32_t *chain, int count) {
  const int64_t known = tokens - base;
  if (base < 0 || known < 0 || known >= count || memcmp(text + base, chain, (size_t)known * sizeof *chain) != 0) return 0;
  return count - (int)known;
}

void speculation_drafted(SpeculationDrafter *d, int asked, int drafts, int right, double waited) {
  const double add[] = {right, right + (right < drafts), asked, waited};
  double *sums[] = {&d->right, &d->checked, &d->asked, &d->waited};
  for (int i = 0; i < 4; i++) *sums[i] = drafter_kept * *sums[i] + add[i];
  if (d->steps < TRIAL) d->steps++;
}

/* A trial ends early where not even drafts that are all right would pay. */
int speculation_ask(const SpeculationCosts *c, SpeculationDrafter *d, int min) {
  double step, row, tokens = 1, kept = 1, best;
  int asks = 0;
  if (min == 0 && d->rest > 0) {
    d->rest--;
    return 0;
  }
  if (d->steps < TRIAL_LEAST || !find_costs(c, &step, &row)) return TRIAL_ASKS;
  const bool trial = d->steps < TRIAL;
  const double p = trial ? 1 : d->checked > 0 ? d->right / d->checked : 0, wait = d->waited / d->asked;
  best = min == 0 ? 1 / (step + row) : 0;
  for (int k = 1; k <= SPECULATION_MAX; k++) {
    tokens += kept *= p;
    const double rate = tokens / (step + (1 + k) * row + k * wait);
    if (rate > best) best = rate, asks = k;
  }
  if (asks == 0 && min == 0)
    *d = (SpeculationDrafter){.rest = REST << d->failures, .failures = d->failures < REST_DOUBLED ? d->failures + 1 : REST_DOUBLED};
  else if (trial)
    return TRIAL_ASKS;
  else
    d->failures = 0;
  return asks > min ? asks : min;
}

bool speculation_prefers(const SpeculationDrafter *d, const SpeculationRecord *r, int length) {
  return d->right > share_right(r, class_of(length)) * d->checked;
}
