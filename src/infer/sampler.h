/* Choosing the next token from the logits l of a model, in this order:
 *
 *   bias         l_j += the biases of j
 *   repetition   of tokens of the prompt and new ones: l_j = l_j / r where l_j > 0, else l_j r             (Keskar et al., 2019)
 *   frequency, presence   l_j -= f c_j + p [c_j > 0], c_j: how often j is among the new tokens              (as OpenAI define them)
 *   temperature  w_j = exp((l_j - max l) / T); T = 0: the likeliest token, and nothing below applies
 *   min p        w_j = 0 where w_j < min_p, that is below min_p times the largest probability               (Nguyen et al., 2024)
 *   top k        the k likeliest
 *   top p        of these as many of the likeliest as make up the share p      (nucleus sampling; Holtzman et al., 2020)
 *   draw         j with probability w_j over the sum of those that are left: the distribution p
 *
 * These are vLLM's definitions and its order; llama.cpp's are the same but for the temperature, which it applies last. A choice is a
 * function of the logits, the sampling, the tokens before and how many random numbers were drawn. Nothing is allocated after sampler_init.
 */
#ifndef INFER_SAMPLER_H
#define INFER_SAMPLER_H
#include "autograd/real.h"
#include "base/rng.h"
#include "base/status.h"
#include "nn/config.h"

enum { SAMPLING_BIASES = 32, SAMPLER_TOP = 20 };

/* What users may ask for, on every way to it: options and fields of a service. */
#define SAMPLING_TEMPERATURE_MAX 100.0
#define SAMPLING_TOP_K_MAX       INT32_MAX
#define SAMPLING_TOP_P_MIN       1e-6 /* the likeliest token alone */
#define SAMPLING_MIN_P_MAX       0.999999
#define SAMPLING_REPETITION_MIN  0.01
#define SAMPLING_REPETITION_MAX  100.0
#define SAMPLING_PENALTY_MAX     2.0 /* of frequency and presence, and its negative the least */

typedef struct SamplingBias {
  int32_t id;
  float add; /* finite */
} SamplingBias;

typedef struct Sampling {
  int64_t max;               /* new tokens from here on */
  int64_t vocabulary;        /* only ids below are drawn: those that the tokenizer has */
  double temperature;        /* 0: the likeliest */
  int64_t top_k;             /* 0: all */
  double top_p;              /* in (0, 1]; 1: all */
  double min_p;              /* in [0, 1); 0: all */
  double repetition_penalty; /* above 0; 1, and 0 as in a zeroed struct: none */
  double frequency_penalty, presence_penalty;
  SamplingBias bias[SAMPLING_BIASES];
  int biases;
  uint64_t seed;
  uint16_t stream;          /* of the seed: texts of other numbers are drawn from other random numbers */
  int32_t end[CONFIG_ENDS]; /* tokens that end the text */
  int ends;
  /* A text that was begun elsewhere goes on as it would have gone on there: */
  int64_t made;   /* how many of the ids that come before are new tokens; 0: all are prompt */
  uint64_t drawn; /* random numbers that these took (Sampler.drawn), at most one for each */
} Sampling;

typedef struct Sampler {
  Sampling sampling;
  Rng rng;
  uint64_t drawn; /* random numbers, since the text's first new token */
  bool penalised; /* penalties or biases change logits */
  int64_t capacity;
  size_t bytes;      /* of the arrays */
  int32_t *order;    /* [capacity] a heap of candidates, the likeliest on top */
  double *weight;    /* [capacity] w_j, by id */
  real *adjusted;    /* [capacity] logits after biases and penalties */
  int32_t *made;     /* [capacity] c_j */
  uint8_t *prompted; /* [capacity] 1: in the prompt */
} Sampler;

Status sampler_init(Sampler *sampler, int64_t vocabulary);
void sampler_release(Sampler *sampler); /* accepts a zeroed one */

/* ids [count], read now: the prompt and, behind it, sampling->made new tokens; each below the vocabulary of sampler_init, which is at least
 * sampling->vocabulary. BAD_VALUE: fewer ids than new tokens. */
Status sampler_start(Sampler *sampler, const Sampling *sampling, const int32_t *ids, int64_t count);

/* logits [vocabulary] -> *id, the lowest among equals, which is a new token from now on, at most one random number later. A draft of
 * the next token is right if it is this id: with the probability that rejection sampling accepts it with (docs/MATH.md). NUMERIC when there
 * is no largest finite logit. */
Status sampler_pick(Sampler *sampler, const real *logits, int32_t *id);

bool sampler_ends(const Sampler *sampler, int32_t id);

/* ---- log-probabilities of the model: before temperature, penalties and filters */

typedef struct SamplerCandidate {
  int32_t id;
  float logprob; /* ln p(id), p = softmax(logits) */
} SamplerCandidate;

/* Of logits [count], of one token *logprob and of the likeliest `top` <= SAMPLER_TOP, likeliest first, the lowest id among equals. id -1:
 * only of the likeliest. Returns how many there are, fewer where the vocabulary ends or logits are not finite. */
int sampler_logprobs(const real *logits, int64_t count, int32_t id, float *logprob, int top, SamplerCandidate candidates[SAMPLER_TOP]);

#endif
