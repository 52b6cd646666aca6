/* Choosing the next token from logits: the likeliest, or drawn at a temperature from the likeliest k or from those that make up a share p
 * of the probability (nucleus sampling; Holtzman et al., 2020). A function of the logits, the sampling and how many tokens were drawn
 * before; nothing is allocated after sampler_init. */
#ifndef INFER_SAMPLER_H
#define INFER_SAMPLER_H
#include "autograd/real.h"
#include "base/rng.h"
#include "base/status.h"
#include "nn/config.h"

typedef struct Sampling {
  int64_t max;        /* new tokens */
  int64_t vocabulary; /* only ids below are drawn: those that the tokenizer has */
  double temperature; /* 0: the likeliest */
  int64_t top_k;      /* 0: all */
  double top_p;       /* in (0, 1]; 1: all */
  uint64_t seed;
  uint16_t stream;          /* of the seed: texts of other numbers are drawn from other random numbers */
  int32_t end[CONFIG_ENDS]; /* tokens that end the text */
  int ends;
} Sampling;

typedef struct Sampler {
  Sampling sampling;
  Rng rng;
  int64_t capacity;
  int32_t *order; /* [capacity] a heap of candidates, the likeliest on top */
  double *weight; /* [capacity] exp((logit - largest) / temperature), by id */
} Sampler;

Status sampler_init(Sampler *sampler, int64_t vocabulary);
size_t sampler_bytes(const Sampler *sampler); /* that sampler_init asked for */
void sampler_release(Sampler *sampler);       /* accepts a zeroed one */

void sampler_start(Sampler *sampler, const Sampling *sampling); /* sampling->vocabulary <= that of sampler_init */

/* logits [vocabulary] -> *id, the lowest among equals. NUMERIC when there is no largest finite logit. */
Status sampler_pick(Sampler *sampler, const real *logits, int32_t *id);
bool sampler_ends(const Sampler *sampler, int32_t id);

#endif
