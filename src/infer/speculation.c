/* See speculation.h. */
#include "infer/speculation.h"
#include <math.h>

enum { LEAST = 2, LONGEST = 64 /* tokens that must, and that may, match */, TRY_EVERY = 32 /* steps */, TRY = 2 /* drafts */ };
static const double costs_kept = 0.98, record_kept = 0.9;                                /* of moving sums, from a step to the next */
static const double first_right[SPECULATION_LENGTHS] = {1, 1.5, 1.8}, first_checked = 2; /* what is assumed of a new text */

int speculation_look_up(const int32_t *ids, int64_t count, int most, int32_t *drafts, int *length) {
  int64_t best = LEAST - 1, from = 0;
  for (int64_t end = count - 1; end >= LEAST && best < LONGEST; end--) { /* ids[end - 1] is the last one of an occurrence */
    int64_t same = 0;
    while (same < end && same < LONGEST && ids[end - 1 - same] == ids[count - 1 - same]) same++;
    if (same > best) best = same, from = end;
  }
  for (int i = 0; from > 0 && i < most; i++) drafts[i] = from + i < count ? ids[from + i] : drafts[from + i - count];
  *length = (int)best;
  return from > 0 ? most : 0;
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

int speculation_worth(const SpeculationCosts *c, const SpeculationRecord *r, int length, int found) {
  const double spread = c->weight * c->rows_squared - c->rows * c->rows; /* W^2 times the variance of the rows */
  const int kind = class_of(length);
  const double p = r->checked[kind] > 0 ? r->right[kind] / r->checked[kind] : first_right[kind] / first_checked;
  int worth = 0;
  if (c->weight < 4 || spread < 0.01 * c->rows * c->rows) { /* what a row costs is not known: drafts are the way to learn it */
    if (p > 0.5) return found;
  } else {
    const double row = fmax(0, (c->weight * c->rows_seconds - c->rows * c->seconds) / spread), rate = c->tokens / c->seconds;
    for (double kept = p; worth < found && kept > rate * row; kept *= p) worth++;
  }
  if (worth > 0 || r->steps < TRY_EVERY) return worth;
  return found < TRY ? found : TRY;
}
