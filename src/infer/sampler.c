/* Candidates come off a heap in the order of their probability, so only as many are sorted as are looked at. */
#include "infer/sampler.h"
#include <math.h>
#include <stdlib.h>

enum { STREAM = 7 }; /* of the generator: new tokens */

Status sampler_init(Sampler *sampler, int64_t vocabulary) {
  *sampler = (Sampler){.capacity = vocabulary};
  sampler->order = malloc((size_t)vocabulary * sizeof *sampler->order);
  sampler->weight = malloc((size_t)vocabulary * sizeof *sampler->weight);
  if (sampler->order && sampler->weight) return STATUS_OK;
  sampler_release(sampler);
  return status_set(STATUS_NO_MEMORY, "no memory to choose among %lld tokens", (long long)vocabulary);
}

size_t sampler_bytes(const Sampler *s) { return (size_t)s->capacity * (sizeof *s->order + sizeof *s->weight); }

void sampler_release(Sampler *sampler) {
  free(sampler->order);
  free(sampler->weight);
  *sampler = (Sampler){.capacity = 0};
}

void sampler_start(Sampler *sampler, const Sampling *sampling) {
  sampler->sampling = *sampling;
  rng_init(&sampler->rng, sampling->seed, STREAM + ((uint64_t)sampling->stream << 32));
}

static int32_t likeliest(const real *logits, int64_t count) {
  int32_t best = 0;
  for (int64_t i = 1; i < count; i++) {
    if (logits[i] > logits[best] || isnan((double)logits[best])) best = (int32_t)i;
  }
  return best;
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

/* ---- drawing ---- */

static double weigh(Sampler *s, const real *logits, double largest) {
  double sum = 0;
  for (int64_t i = 0; i < s->sampling.vocabulary; i++) {
    double weight = exp(((double)logits[i] - largest) / s->sampling.temperature);
    s->order[i] = (int32_t)i;
    sum += s->weight[i] = isnan(weight) ? 0 : weight;
  }
  return sum;
}

/* One of `count` ids [at order + first], the last of them the likeliest, whose weights sum to `sum`. */
static int32_t draw(Sampler *s, int64_t first, int64_t count, double sum) {
  double left = rng_uniform(&s->rng) * sum;
  for (int64_t i = first + count - 1; i > first; i--) {
    left -= s->weight[s->order[i]];
    if (left < 0) return s->order[i];
  }
  return s->order[first];
}

/* First the k likeliest, then of these as many as make up the share p. */
static int32_t draw_from_best(Sampler *s, double sum) {
  int64_t all = s->sampling.vocabulary, max = s->sampling.top_k > 0 && s->sampling.top_k < all ? s->sampling.top_k : all, heap = all;
  double whole = max < all ? 0 : sum, held = 0;
  for (int64_t i = all / 2; i-- > 0;) sink(s, i, all);
  for (int64_t i = 0; i < max && max < all; i++) whole += s->weight[take(s, &heap)];
  if (max < all && s->sampling.top_p >= 1) return draw(s, heap, max, whole);
  int64_t taken = 0, sorted = all - heap;
  while (taken < max && held < s->sampling.top_p * whole) {
    int32_t id = taken < sorted ? s->order[all - 1 - taken] : take(s, &heap);
    held += s->weight[id];
    taken++;
  }
  return draw(s, all - taken, taken, held);
}

Status sampler_pick(Sampler *s, const real *logits, int32_t *id) {
  *id = likeliest(logits, s->sampling.vocabulary);
  if (!isfinite((double)logits[*id])) return status_set(STATUS_NUMERIC, "the model's output holds no finite number");
  if (s->sampling.temperature <= 0) return STATUS_OK;
  double sum = weigh(s, logits, (double)logits[*id]);
  bool all = s->sampling.top_p >= 1 && (s->sampling.top_k <= 0 || s->sampling.top_k >= s->sampling.vocabulary);
  *id = all ? draw(s, 0, s->sampling.vocabulary, sum) : draw_from_best(s, sum);
  return STATUS_OK;
}

bool sampler_ends(const Sampler *sampler, int32_t id) {
  for (int i = 0; i < sampler->sampling.ends; i++) {
    if (sampler->sampling.end[i] == id) return true;
  }
  return false;
}
