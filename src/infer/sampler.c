/* Candidates come off a heap in the order of their probability, so only as many are sorted as are looked at; and tokens that are too
 * unlikely to be among them are left out of the heap. */
#include "infer/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM = 7 }; /* of the generator: new tokens */

Status sampler_init(Sampler *sampler, int64_t vocabulary) {
  const size_t count = (size_t)vocabulary;
  *sampler = (Sampler){.capacity = vocabulary};
  sampler->bytes = count * (sizeof *sampler->order + sizeof *sampler->weight + sizeof *sampler->adjusted + sizeof *sampler->made +
                            sizeof *sampler->prompted);
  sampler->order = malloc(count * sizeof *sampler->order);
  sampler->weight = malloc(count * sizeof *sampler->weight);
  sampler->adjusted = malloc(count * sizeof *sampler->adjusted);
  sampler->made = malloc(count * sizeof *sampler->made);
  sampler->prompted = malloc(count * sizeof *sampler->prompted);
  if (sampler->order && sampler->weight && sampler->adjusted && sampler->made && sampler->prompted) return STATUS_OK;
  sampler_release(sampler);
  return status_set(STATUS_NO_MEMORY, "no memory to choose among %lld tokens", (long long)vocabulary);
}

void sampler_release(Sampler *sampler) {
  free(sampler->order);
  free(sampler->weight);
  free(sampler->adjusted);
  free(sampler->made);
  free(sampler->prompted);
  *sampler = (Sampler){.capacity = 0};
}

Status sampler_start(Sampler *s, const Sampling *sampling, const int32_t *ids, int64_t count) {
  if (sampling->made < 0 || sampling->made > count)
    return status_set(STATUS_BAD_VALUE, "%lld new tokens are not among %lld", (long long)sampling->made, (long long)count);
  s->sampling = *sampling;
  if (s->sampling.repetition_penalty == 0) s->sampling.repetition_penalty = 1;
  s->penalised =
      s->sampling.repetition_penalty != 1 || sampling->frequency_penalty != 0 || sampling->presence_penalty != 0 || sampling->biases;
  rng_init(&s->rng, sampling->seed, STREAM + ((uint64_t)sampling->stream << 32));
  for (s->drawn = 0; s->drawn < sampling->drawn; s->drawn++) (void)rng_next(&s->rng);
  if (!s->penalised) return STATUS_OK;
  memset(s->made, 0, (size_t)s->capacity * sizeof *s->made);
  memset(s->prompted, 0, (size_t)s->capacity * sizeof *s->prompted);
  for (int64_t i = 0; i < count - sampling->made; i++) s->prompted[ids[i]] = 1;
  for (int64_t i = count - sampling->made; i < count; i++) s->made[ids[i]]++;
  return STATUS_OK;
}

static int32_t likeliest(const real *logits, int64_t count) {
  int32_t best = 0;
  for (int64_t i = 1; i < count; i++) {
    if (logits[i] > logits[best] || isnan((double)logits[best])) best = (int32_t)i;
  }
  return best;
}

/* Biases and penalties; the logits as they are where there are none. */
static const real *adjust(Sampler *s, const real *logits) {
  const Sampling *how = &s->sampling;
  if (!s->penalised) return logits;
  memcpy(s->adjusted, logits, (size_t)how->vocabulary * sizeof *logits);
  for (int i = 0; i < how->biases; i++) {
    if (how->bias[i].id >= 0 && how->bias[i].id < how->vocabulary) s->adjusted[how->bias[i].id] += (real)how->bias[i].add;
  }
  for (int64_t j = 0; j < how->vocabulary; j++) {
    if (!s->made[j] && !s->prompted[j]) continue;
    double l = (double)s->adjusted[j];
    l = l > 0 ? l / how->repetition_penalty : l * how->repetition_penalty;
    s->adjusted[j] = (real)(l - how->frequency_penalty * s->made[j] - (s->made[j] ? how->presence_penalty : 0));
  }
  return s->adjusted;
}

/* ---- the heap ---- */

static bool before(const Sampler *s, int32_t a, int32_t b) {
  return s->weight[a] > s->weight[b] || (s->weight[a] == s->weight[b] && a < b);
}

static void sink(Sampler *s, int64_t at, int64_t count) {
  int32_t id = s->order[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && before(s, s->order[child + 1], s->order[child])) child++;
    if (!before(s, s->order[child], id)) break;
    s->order[at] = s->order[child];
  }
  s->order[at] = id;
}

/* The top goes behind the remaining heap: candidates that were taken stand at the end, the likeliest last. */
static int32_t take(Sampler *s, int64_t *count) {
  int32_t top = s->order[0];
  s->order[0] = s->order[--*count];
  s->order[*count] = top;
  sink(s, 0, *count);
  return top;
}

/* ---- what is left to draw from ---- */

/* ids [at order + first], the last of them the likeliest, whose weights sum to `sum`. */
typedef struct Candidates {
  int64_t first, count;
  double sum;
} Candidates;

enum { OCTAVES = 64, LANES = 4 /* neighbours add to sums of their own: none waits for the one before */ };

/* Weights are at most 1: octave o holds those from 2^-o up to the one before, the last one also all below. */
static int octave_of(double weight) {
  uint64_t bits;
  memcpy(&bits, &weight, sizeof bits);
  const int octave = 1023 - (int)(bits >> 52); /* the exponent of a number that is not negative */
  return octave < OCTAVES ? octave : OCTAVES - 1;
}

/* A weight that all of the k likeliest reach or, where they are not limited to `few`, all that make up the share p: the octaves from there
 * on have so many, or so much. */
static double least_weight(const Sampler *s, bool few, double sum) {
  static const double rounding = 1e-6; /* far above that of sums */
  const double enough = few ? (double)s->sampling.top_k : (s->sampling.top_p + rounding) * sum;
  double of[OCTAVES][LANES] = {0}, held = 0;
  for (int64_t i = 0; i < s->sampling.vocabulary; i++) of[octave_of(s->weight[i])][i % LANES] += few ? 1 : s->weight[i];
  for (int octave = 0; octave < OCTAVES - 1; octave++) {
    for (int lane = 0; lane < LANES; lane++) held += of[octave][lane];
    if (held >= enough) return ldexp(1, -octave);
  }
  return 0;
}

/* Those of at least this weight, as a heap; their number. */
static int64_t build_heap(Sampler *s, double least) {
  int64_t count = 0;
  for (int64_t i = 0; i < s->sampling.vocabulary; i++) {
    s->order[count] = (int32_t)i;
    count += s->weight[i] >= least;
  }
  for (int64_t i = count / 2; i-- > 0;) sink(s, i, count);
  return count;
}

/* First the k likeliest, then of these as many as make up the share p. */
static Candidates best_of(Sampler *s, double sum) {
  const bool few = s->sampling.top_k > 0 && s->sampling.top_k < s->sampling.vocabulary;
  const int64_t count = build_heap(s, least_weight(s, few, sum)), max = few ? s->sampling.top_k : count;
  int64_t heap = count, taken = 0;
  double whole = few ? 0 : sum, held = 0;
  for (int64_t i = 0; few && i < max; i++) whole += s->weight[take(s, &heap)];
  if (few && s->sampling.top_p >= 1) return (Candidates){heap, max, whole};
  const int64_t sorted = count - heap;
  while (taken < max && held < s->sampling.top_p * whole) {
    int32_t id = taken < sorted ? s->order[count - 1 - taken] : take(s, &heap);
    held += s->weight[id];
    taken++;
  }
  return (Candidates){count - taken, taken, held};
}

/* Without a temperature the likeliest alone. */
static Status find_candidates(Sampler *s, const real *raw, Candidates *found) {
  const real *logits = adjust(s, raw);
  const int32_t largest = likeliest(logits, s->sampling.vocabulary);
  if (!isfinite((double)logits[largest])) return status_set(STATUS_NUMERIC, "the model's output holds no finite number");
  if (s->sampling.temperature <= 0) {
    s->order[0] = largest;
    s->weight[largest] = 1;
    *found = (Candidates){0, 1, 1};
    return STATUS_OK;
  }
  double sum = 0;
  for (int64_t i = 0; i < s->sampling.vocabulary; i++) {
    double weight = exp(((double)logits[i] - (double)logits[largest]) / s->sampling.temperature);
    sum += s->weight[i] = isnan(weight) || weight < s->sampling.min_p ? 0 : weight;
  }
  bool all = s->sampling.top_p >= 1 && (s->sampling.top_k <= 0 || s->sampling.top_k >= s->sampling.vocabulary);
  for (int64_t i = 0; all && i < s->sampling.vocabulary; i++) s->order[i] = (int32_t)i;
  *found = all ? (Candidates){0, s->sampling.vocabulary, sum} : best_of(s, sum);
  return STATUS_OK;
}

/* ---- drawing ---- */

Status sampler_pick(Sampler *s, const real *logits, int32_t *id) {
  Candidates from = {0};
  TRY(find_candidates(s, logits, &from));
  *id = s->order[from.first];
  if (s->sampling.temperature > 0) {
    s->drawn++;
    double left = rng_uniform(&s->rng) * from.sum;
    for (int64_t i = from.first + from.count; i-- > from.first;) {
      if (s->weight[s->order[i]] <= 0) continue;
      left -= s->weight[ *id = s->order[i]]; /* the last one takes what rounding leaves */
      if (left < 0) break;
    }
  }
  if (s->penalised) s->made[*id]++;
  return STATUS_OK;
}

bool sampler_ends(const Sampler *sampler, int32_t id) {
  for (int i = 0; i < sampler->sampling.ends; i++) {
    if (sampler->sampling.end[i] == id) return true;
  }
  return false;
}

/* ---- log-probabilities ---- */

int sampler_logprobs(const real *logits, int64_t count, int32_t id, float *logprob, int top, SamplerCandidate candidates[SAMPLER_TOP]) {
  const double largest = (double)logits[likeliest(logits, count)];
  double sum = 0;
  int found = 0;
  for (int64_t j = 0; j < count; j++) {
    const double l = (double)logits[j];
    if (!isfinite(l)) continue;
    sum += exp(l - largest);
    int place = found;
    while (place > 0 && l > (double)logits[candidates[place - 1].id]) place--;
    if (place >= top) continue;
    if (found < top) found++;
    memmove(candidates + place + 1, candidates + place, (size_t)(found - 1 - place) * sizeof *candidates);
    candidates[place].id = (int32_t)j;
  }
  const double whole = largest + log(sum);
  for (int i = 0; i < found; i++) candidates[i].logprob = (float)((double)logits[candidates[i].id] - whole);
  if (id >= 0) *logprob = (float)((double)logits[id] - whole);
  return found;
}
