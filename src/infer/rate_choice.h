/* Which of a model's bit rates the next requests use (--groups auto): the one with the most groups whose codes the links carry while the
 * devices compute. After each answer the time that devices waited for codes is compared with the time that they computed; waiting is
 * expected to grow with the number of groups. Changes need several answers that agree, and a higher rate that had to be given up again is
 * tried less and less often. */
#ifndef INFER_RATE_CHOICE_H
#define INFER_RATE_CHOICE_H
#include "nn/config.h"

typedef struct RateChoice {
  int groups[CONFIG_RATES], rates; /* ascending */
  int used;                        /* the rate in use */
  int slow, fast;                  /* answers in a row that ask for fewer groups; that allow more */
  int fast_needed;                 /* how many of the latter it takes */
  int since;                       /* answers since the last change to more groups; -1: none, or it has proven itself */
  double share;                    /* sum of waiting / computing over the answers of `slow` */
} RateChoice;

void rate_choice_init(RateChoice *choice, const ModelConfig *config, int groups); /* groups: of the rate in use */

/* Takes an answer into account: seconds that a device computed, and waited for codes. Returns the groups to use from now on. */
int rate_choice_note(RateChoice *choice, double compute, double wait);

/* Of predicted latencies, seconds[rates]: the most groups that take at most a tenth longer than the fastest rate. */
int rate_choice_predicted(const ModelConfig *config, const double *seconds);

#endif
