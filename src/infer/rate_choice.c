/* See rate_choice.h. */
#include "infer/rate_choice.h"
#include <math.h>

enum { SLOW_ANSWERS = 3, FAST_ANSWERS = 8, FAST_ANSWERS_MAX = 1024, PROVEN = 64 };
static const double slow_share = 1, fast_share = 0.5; /* waiting / computing: above, fewer groups; below with more of them, these */
static const double predicted_share = 1.1;

void rate_choice_init(RateChoice *choice, const ModelConfig *config, int groups) {
  *choice = (RateChoice){.rates = config_rates(config), .fast_needed = FAST_ANSWERS, .since = -1};
  for (int rate = 0; rate < choice->rates; rate++) {
    choice->groups[rate] = config_rate_groups(config, rate);
    if (choice->groups[rate] == groups) choice->used = rate;
  }
}

static void change(RateChoice *choice, int rate) {
  choice->since = rate > choice->used ? 0 : -1;
  choice->used = rate;
  choice->slow = choice->fast = 0;
  choice->share = 0;
}

int rate_choice_note(RateChoice *choice, double compute, double wait) {
  const double share = compute > 0 ? wait / compute : 0;
  const int used = choice->used;
  choice->slow = share > slow_share ? choice->slow + 1 : 0;
  choice->share = choice->slow > 0 ? choice->share + share : 0;
  const double more = used + 1 < choice->rates ? (double)choice->groups[used + 1] / choice->groups[used] : INFINITY;
  choice->fast = share * more <= fast_share ? choice->fast + 1 : 0;
  if (choice->since >= 0 && ++choice->since >= PROVEN) choice->since = -1, choice->fast_needed = FAST_ANSWERS;
  if (choice->slow >= SLOW_ANSWERS && used > 0) {
    const double mean = choice->share / choice->slow;
    int rate = used - 1;
    while (rate > 0 && mean * choice->groups[rate] / choice->groups[used] > slow_share) rate--;
    if (choice->since >= 0 && choice->fast_needed < FAST_ANSWERS_MAX) choice->fast_needed *= 2; /* it was too much at once */
    change(choice, rate);
  } else if (choice->fast >= choice->fast_needed) {
    change(choice, used + 1);
  }
  return choice->groups[choice->used];
}

int rate_choice_predicted(const ModelConfig *config, const double *seconds) {
  const int rates = config_rates(config);
  double fastest = INFINITY;
  for (int rate = 0; rate < rates; rate++) fastest = fmin(fastest, seconds[rate]);
  int best = 0;
  for (int rate = 0; rate < rates; rate++)
    if (seconds[rate] <= predicted_share * fastest) best = rate;
  return config_rate_groups(config, best);
}
