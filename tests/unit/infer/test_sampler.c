/* Drawing tokens: the likeliest without a temperature; with one as often as the probabilities say, among the likeliest k and the nucleus p
 * alone; the same for the same seed; logits that are no numbers; biases, penalties and min p against a plain computation of their
 * equations; a text that goes on elsewhere; log-probabilities. */
#include "infer/sampler.c"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 6, DRAWS = 20000 };
/* Probabilities at temperature 1: 0.40, 0.05, 0.25, 0.15, 0.10, 0.05. */
static const double share[COUNT] = {0.40, 0.05, 0.25, 0.15, 0.10, 0.05};

static void fill(real *logits) {
  for (int i = 0; i < COUNT; i++) logits[i] = (real)(log(share[i]) + 3);
}

static Sampling usual(void) { return (Sampling){.max = 1, .vocabulary = COUNT, .temperature = 1, .top_p = 1, .seed = 5}; }

static void count_draws(const Sampling *sampling, int64_t counts[COUNT]) {
  Sampler sampler;
  real logits[COUNT];
  fill(logits);
  memset(counts, 0, COUNT * sizeof *counts);
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, sampling, NULL, 0), STATUS_OK);
  for (int i = 0; i < DRAWS; i++) {
    int32_t id;
    assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
    assert_in_range(id, 0, COUNT - 1);
    counts[id]++;
  }
  sampler_release(&sampler);
}

/* Expected shares, those of 0 never: within five deviations of the binomial distribution. */
static void assert_shares(const Sampling *sampling, const double *expected) {
  int64_t counts[COUNT];
  count_draws(sampling, counts);
  for (int i = 0; i < COUNT; i++) {
    double mean = DRAWS * expected[i], deviation = sqrt(mean * (1 - expected[i]));
    if (fabs((double)counts[i] - mean) > 5 * deviation + 1e-9)
      fail_msg("token %d came %d times; %.0f were expected", i, (int)counts[i], mean);
  }
}

static void all_as_often_as_they_are_likely(void **state) {
  (void)state;
  Sampling sampling = usual();
  assert_shares(&sampling, share);
  sampling.temperature = 0.5; /* squares */
  double squares[COUNT], sum = 0;
  for (int i = 0; i < COUNT; i++) sum += squares[i] = share[i] * share[i];
  for (int i = 0; i < COUNT; i++) squares[i] /= sum;
  assert_shares(&sampling, squares);
}

static void only_the_likeliest_k(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.top_k = 3;
  assert_shares(&sampling, (double[COUNT]){0.5, 0, 0.3125, 0.1875, 0, 0});
  sampling.top_k = 1;
  assert_shares(&sampling, (double[COUNT]){1, 0, 0, 0, 0, 0});
  sampling.top_k = 100;
  assert_shares(&sampling, share);
}

/* As many of the likeliest as are needed to reach p. */
static void only_the_nucleus(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.top_p = 0.6; /* 0.40 + 0.25 */
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.65, 0, 0.25 / 0.65, 0, 0, 0});
  sampling.top_p = 0.01;
  assert_shares(&sampling, (double[COUNT]){1, 0, 0, 0, 0, 0});
  sampling.top_p = 0.85;
  sampling.top_k = 3; /* of 0.40, 0.25 and 0.15: all three are needed for 85% of their 0.80 */
  assert_shares(&sampling, (double[COUNT]){0.5, 0, 0.3125, 0.1875, 0, 0});
  sampling.top_p = 0.8; /* 0.40 + 0.25 are 81% of it */
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.65, 0, 0.25 / 0.65, 0, 0, 0});
}

static void only_ids_of_the_vocabulary(void **state) {
  (void)state;
  Sampling sampling = usual();
  sampling.vocabulary = 2;
  assert_shares(&sampling, (double[COUNT]){0.40 / 0.45, 0.05 / 0.45, 0, 0, 0, 0});
}

static void the_same_seed_the_same_draws(void **state) {
  (void)state;
  Sampling sampling = usual();
  int64_t first[COUNT], second[COUNT];
  count_draws(&sampling, first);
  count_draws(&sampling, second);
  assert_memory_equal(first, second, sizeof first);
  sampling.seed = 6;
  count_draws(&sampling, second);
  assert_memory_not_equal(first, second, sizeof first);
}

static void the_likeliest_without_a_temperature(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  real logits[COUNT] = {1, 7, 3, 7, (real)NAN, (real)-INFINITY};
  int32_t id;
  sampling.temperature = 0;
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, &sampling, NULL, 0), STATUS_OK);
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
  assert_int_equal(id, 1); /* the first of equals */
  logits[0] = (real)NAN;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
  assert_int_equal(id, 1);
  for (int i = 0; i < COUNT; i++) logits[i] = (real)NAN;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_NUMERIC);
  logits[2] = (real)INFINITY;
  assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_NUMERIC);
  sampler_release(&sampler);
}

static void numbers_that_are_none_are_never_drawn(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  real logits[COUNT] = {(real)NAN, 1, (real)-INFINITY, 1, (real)NAN, (real)-INFINITY};
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  for (int way = 0; way < 3; way++) {
    sampling.top_k = way == 1 ? 4 : 0;
    sampling.top_p = way == 2 ? 0.99 : 1;
    assert_int_equal(sampler_start(&sampler, &sampling, NULL, 0), STATUS_OK);
    for (int i = 0; i < 500; i++) {
      int32_t id = 0;
      assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
      assert_true(id == 1 || id == 3);
    }
  }
  sampler_release(&sampler);
}

static void ends_are_told(void **state) {
  (void)state;
  Sampler sampler;
  Sampling sampling = usual();
  sampling.ends = 2, sampling.end[0] = 4, sampling.end[1] = 1;
  assert_int_equal(sampler_init(&sampler, COUNT), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, &sampling, NULL, 0), STATUS_OK);
  assert_true(sampler_ends(&sampler, 4) && sampler_ends(&sampler, 1));
  assert_false(sampler_ends(&sampler, 0));
  sampler_release(&sampler);
}

/* ---- biases, penalties and filters against a plain computation ---- */

enum { WORDS = 23, TEXT = 15 };

typedef struct Plain {
  double weight;
  int id;
} Plain;

static int by_weight(const void *a, const void *b) {
  const Plain *x = a, *y = b;
  return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : x->id - y->id;
}

/* The equations of sampler.h, one after another, over sorted tokens. */
static void plain_distribution(const Sampling *how, const real *logits, const int32_t *ids, int count, double p[WORDS]) {
  Plain list[WORDS];
  double largest = -INFINITY, sum = 0, held = 0;
  int left = 0;
  for (int j = 0; j < WORDS; j++) {
    double l = (double)logits[j];
    int made = 0, prompted = 0;
    for (int i = 0; i < how->biases; i++) l += how->bias[i].id == j ? (double)how->bias[i].add : 0;
    for (int i = 0; i < count; i++) *(i < count - how->made ? &prompted : &made) += ids[i] == j;
    if ((made || prompted) && how->repetition_penalty > 0) l = l > 0 ? l / how->repetition_penalty : l * how->repetition_penalty;
    l -= how->frequency_penalty * made + (made ? how->presence_penalty : 0);
    list[j] = (Plain){l, j};
    largest = fmax(largest, l);
  }
  for (int j = 0; j < WORDS; j++) {
    list[j].weight = exp((list[j].weight - largest) / how->temperature);
    if (list[j].weight < how->min_p) list[j].weight = 0;
  }
  qsort(list, WORDS, sizeof *list, by_weight);
  const int k = how->top_k > 0 && how->top_k < WORDS ? (int)how->top_k : WORDS;
  for (int i = 0; i < k; i++) sum += list[i].weight;
  while (left < k && held < how->top_p * sum) held += list[left++].weight;
  memset(p, 0, WORDS * sizeof *p);
  for (int i = 0; i < left; i++) p[list[i].id] = list[i].weight / held;
}

static double between(Rng *rng, double low, double high) { return low + (high - low) * rng_uniform(rng); }

static Sampling any_sampling(Rng *rng, int round) {
  Sampling how = {.max = 1, .vocabulary = WORDS, .temperature = between(rng, 0.3, 2), .top_p = 1, .seed = (uint64_t)round};
  if (round & 1) how.top_p = between(rng, 0.3, 0.99);
  if (round & 2) how.top_k = 1 + (int64_t)rng_below(rng, WORDS);
  if (round & 4) how.min_p = between(rng, 0.001, 0.4);
  if (round & 8) how.repetition_penalty = between(rng, 0.5, 2);
  if (round & 16) how.frequency_penalty = between(rng, -1, 1);
  if (round & 32) how.presence_penalty = between(rng, -1, 1);
  if (round & 64) how.biases = (int)rng_below(rng, 5);
  for (int i = 0; i < how.biases; i++)
    how.bias[i] = (SamplingBias){(int32_t)rng_below(rng, WORDS), (float)between(rng, -3, 3)}; /* one id twice at times */
  how.made = (int64_t)rng_below(rng, TEXT + 1);
  return how;
}

static void any_text(Rng *rng, int32_t ids[TEXT], real logits[WORDS]) {
  for (int i = 0; i < TEXT; i++) ids[i] = (int32_t)rng_below(rng, WORDS);
  for (int j = 0; j < WORDS; j++) logits[j] = (real)(2 * rng_normal(rng));
}

static void filters_follow_their_equations(void **state) {
  (void)state;
  const double tolerance = REAL_IS_DOUBLE ? 1e-12 : 1e-5; /* adjusted logits and p are reals */
  Sampler sampler;
  Rng rng;
  rng_init(&rng, 11, 0);
  assert_int_equal(sampler_init(&sampler, WORDS + 4), STATUS_OK);
  for (int round = 0; round < 512; round++) {
    const Sampling how = any_sampling(&rng, round);
    int32_t ids[TEXT], id;
    real logits[WORDS], p[WORDS];
    double expected[WORDS];
    any_text(&rng, ids, logits);
    assert_int_equal(sampler_start(&sampler, &how, ids, TEXT), STATUS_OK);
    Candidates from;
    assert_int_equal(find_candidates(&sampler, logits, &from), STATUS_OK);
    memset(p, 0, sizeof p);
    for (int64_t i = from.first; i < from.first + from.count; i++)
      p[sampler.order[i]] = (real)(sampler.weight[sampler.order[i]] / from.sum);
    plain_distribution(&how, logits, ids, TEXT, expected);
    for (int j = 0; j < WORDS; j++)
      if (!(fabs((double)p[j] - expected[j]) <= tolerance))
        fail_msg("round %d: p of %d is %g, not %g", round, j, (double)p[j], expected[j]);
    assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
    assert_true(expected[id] > 0);
    Sampling greedy = how;
    greedy.temperature = 0;
    assert_int_equal(sampler_start(&sampler, &greedy, ids, TEXT), STATUS_OK);
    assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
    for (int j = 0; j < WORDS; j++) assert_true(expected[id] >= expected[j]);
  }
  sampler_release(&sampler);
}

/* Penalties of 1 and 0, a bias of 0: the same draws as without, though another path leads there. */
static void what_penalises_nothing_changes_nothing(void **state) {
  (void)state;
  Sampler plain, other;
  Rng rng;
  const Sampling off = {.max = 1, .vocabulary = WORDS, .temperature = 0.9, .top_p = 0.9, .top_k = 17, .seed = 3};
  Sampling nothing = off;
  nothing.biases = 1, nothing.repetition_penalty = 1;
  rng_init(&rng, 12, 0);
  assert_int_equal(sampler_init(&plain, WORDS), STATUS_OK);
  assert_int_equal(sampler_init(&other, WORDS), STATUS_OK);
  assert_int_equal(sampler_start(&plain, &off, NULL, 0), STATUS_OK);
  assert_int_equal(sampler_start(&other, &nothing, NULL, 0), STATUS_OK);
  assert_true(other.penalised && !plain.penalised);
  for (int i = 0; i < 200; i++) {
    int32_t ids[TEXT], a, b;
    real logits[WORDS];
    any_text(&rng, ids, logits);
    assert_int_equal(sampler_pick(&plain, logits, &a), STATUS_OK);
    assert_int_equal(sampler_pick(&other, logits, &b), STATUS_OK);
    assert_int_equal(a, b);
  }
  sampler_release(&plain);
  sampler_release(&other);
}

/* 20,000 draws with every filter on: chi square of the tokens that are left, below its 99.9th percentile for at most 22 degrees of freedom.
 */
static void draws_have_the_distribution(void **state) {
  (void)state;
  enum { MANY = 20000 };
  const Sampling how = {.max = 1, .vocabulary = WORDS, .temperature = 1.1, .top_p = 0.97, .top_k = 20, .min_p = 0.01, .seed = 8};
  Sampler sampler;
  Rng rng;
  int32_t ids[TEXT], id;
  real logits[WORDS];
  double p[WORDS], chi = 0;
  int64_t counts[WORDS] = {0};
  rng_init(&rng, 13, 0);
  any_text(&rng, ids, logits);
  plain_distribution(&how, logits, ids, TEXT, p);
  assert_int_equal(sampler_init(&sampler, WORDS), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, &how, ids, TEXT), STATUS_OK);
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
    counts[id]++;
  }
  for (int j = 0; j < WORDS; j++) {
    if (p[j] == 0) assert_int_equal(counts[j], 0);
    if (p[j] > 0) chi += ((double)counts[j] - MANY * p[j]) * ((double)counts[j] - MANY * p[j]) / (MANY * p[j]);
  }
  if (chi > 48.3) fail_msg("chi square is %g", chi);
  sampler_release(&sampler);
}

/* ---- many tokens: what is left out of the heap is never missed ---- */

enum { MANY_WORDS = 50257 };

static const double *sorted_weight;

static int by_sorted_weight(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return sorted_weight[x] != sorted_weight[y] ? (sorted_weight[x] < sorted_weight[y] ? 1 : -1) : x - y;
}

/* The next draw of `rng` from all of the sampler's weights in their order. */
static int32_t drawn_from_all(const Sampler *s, double sum, Rng *rng) {
  static int32_t order[MANY_WORDS];
  const int64_t k = s->sampling.top_k > 0 && s->sampling.top_k < MANY_WORDS ? s->sampling.top_k : MANY_WORDS;
  double whole = k < MANY_WORDS ? 0 : sum, held = 0;
  int64_t count = 0;
  int32_t id = 0;
  for (int32_t i = 0; i < MANY_WORDS; i++) order[i] = i;
  sorted_weight = s->weight;
  qsort(order, MANY_WORDS, sizeof *order, by_sorted_weight);
  for (int64_t i = 0; k < MANY_WORDS && i < k; i++) whole += s->weight[order[i]];
  if (s->sampling.top_p >= 1) held = whole, count = k;
  while (count < k && held < s->sampling.top_p * whole) held += s->weight[order[count++]];
  double left = rng_uniform(rng) * held;
  for (int64_t i = 0; i < count && s->weight[order[i]] > 0; i++) {
    left -= s->weight[id = order[i]];
    if (left < 0) break;
  }
  return id;
}

/* Of many sizes of logits, some of them equal, for a few k and p: the same ids as from a list that is sorted as a whole. */
static void many_tokens_are_drawn_as_from_a_sorted_list(void **state) {
  (void)state;
  static const double shares[] = {1e-6, 0.5, 0.9, 0.99, 1 - 1e-7, 1 - 1e-15};
  static const int64_t limits[] = {0, 1, 40, 20000, MANY_WORDS - 1};
  static real logits[MANY_WORDS];
  Sampler sampler;
  Rng rng;
  rng_init(&rng, 15, 0);
  assert_int_equal(sampler_init(&sampler, MANY_WORDS), STATUS_OK);
  for (int round = 0; round < 30; round++) {
    const double size = round % 3 == 0 ? 0.01 : round % 3 == 1 ? 2 : 8;
    const Sampling how = {.max = 1,
                          .vocabulary = MANY_WORDS,
                          .temperature = 1,
                          .top_p = shares[round % 6],
                          .top_k = limits[round / 6],
                          .min_p = round % 4 == 3 ? 0.01 : 0,
                          .seed = (uint64_t)round};
    for (int i = 0; i < MANY_WORDS; i++) logits[i] = (real)(floor(16 * size * rng_normal(&rng)) / 16);
    assert_int_equal(sampler_start(&sampler, &how, NULL, 0), STATUS_OK);
    for (int draw = 0; draw < 3; draw++) {
      Rng again = sampler.rng;
      int32_t id;
      double sum = 0;
      assert_int_equal(sampler_pick(&sampler, logits, &id), STATUS_OK);
      for (int i = 0; i < MANY_WORDS; i++) sum += sampler.weight[i];
      assert_int_equal(id, drawn_from_all(&sampler, sum, &again));
    }
  }
  sampler_release(&sampler);
}

/* Of logits that are as far apart as a model's, the heap holds a hundredth. */
static void the_heap_holds_few(void **state) {
  (void)state;
  static real logits[MANY_WORDS];
  Sampler sampler;
  Rng rng;
  rng_init(&rng, 16, 0);
  for (int i = 0; i < MANY_WORDS; i++) logits[i] = (real)(4 * rng_normal(&rng));
  assert_int_equal(sampler_init(&sampler, MANY_WORDS), STATUS_OK);
  for (int few = 0; few < 2; few++) {
    const Sampling how = {.max = 1, .vocabulary = MANY_WORDS, .temperature = 1, .top_p = few ? 1 : 0.9, .top_k = few ? 40 : 0, .seed = 1};
    Candidates from;
    double sum = 0;
    assert_int_equal(sampler_start(&sampler, &how, NULL, 0), STATUS_OK);
    assert_int_equal(find_candidates(&sampler, logits, &from), STATUS_OK);
    for (int i = 0; i < MANY_WORDS; i++) sum += sampler.weight[i];
    const int64_t held = build_heap(&sampler, least_weight(&sampler, few == 1, sum));
    assert_true(held >= from.count);
    assert_in_range(held, 1, MANY_WORDS / 100);
  }
  sampler_release(&sampler);
}

/* ---- a text that goes on elsewhere ---- */

static void a_text_goes_on_elsewhere(void **state) {
  (void)state;
  enum { PROMPT = 4, NEW = 11, MOVED = 6 };
  Sampling how = {
      .max = NEW, .vocabulary = WORDS, .temperature = 1.3, .top_p = 1, .frequency_penalty = 0.7, .repetition_penalty = 1.2, .seed = 4};
  Sampler sampler;
  Rng rng;
  int32_t ids[PROMPT + NEW] = {3, 9, 3, 1}, id;
  real logits[NEW][WORDS];
  rng_init(&rng, 14, 0);
  for (int i = 0; i < NEW; i++)
    for (int j = 0; j < WORDS; j++) logits[i][j] = (real)rng_normal(&rng);
  assert_int_equal(sampler_init(&sampler, WORDS), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, &how, ids, PROMPT), STATUS_OK);
  for (int i = 0; i < NEW; i++) {
    if (i == MOVED) how.drawn = sampler.drawn;
    assert_int_equal(sampler_pick(&sampler, logits[i], &ids[PROMPT + i]), STATUS_OK);
  }
  sampler_release(&sampler);
  how.made = MOVED;
  assert_true(how.drawn == MOVED);
  assert_int_equal(sampler_init(&sampler, WORDS), STATUS_OK);
  assert_int_equal(sampler_start(&sampler, &how, ids, PROMPT + MOVED), STATUS_OK);
  for (int i = MOVED; i < NEW; i++) {
    assert_int_equal(sampler_pick(&sampler, logits[i], &id), STATUS_OK);
    assert_int_equal(id, ids[PROMPT + i]);
  }
  assert_int_equal(sampler_start(&sampler, &how, ids, MOVED - 1), STATUS_BAD_VALUE);
  sampler_release(&sampler);
}

/* ---- log-probabilities ---- */

static void log_probabilities_are_the_models(void **state) {
  (void)state;
  real logits[COUNT];
  SamplerCandidate top[SAMPLER_TOP];
  float logprob;
  fill(logits);
  for (int i = 0; i < SAMPLER_TOP; i++) top[i].id = -7;
  assert_int_equal(sampler_logprobs(logits, COUNT, 3, &logprob, 4, top), 4);
  assert_int_equal(top[4].id, -7); /* there is room for four */
  assert_true(fabs((double)logprob - log(0.15)) < 1e-5);
  const int32_t order[COUNT] = {0, 2, 3, 4, 1, 5}; /* 1 and 5 are equal */
  for (int i = 0; i < 4; i++) {
    assert_int_equal(top[i].id, order[i]);
    assert_true(fabs((double)top[i].logprob - log(share[order[i]])) < 1e-5);
  }
  logits[1] = logits[5];
  assert_int_equal(sampler_logprobs(logits, COUNT, -1, NULL, SAMPLER_TOP, top), COUNT);
  for (int i = 0; i < COUNT; i++) assert_int_equal(top[i].id, order[i]);
  logits[0] = (real)NAN, logits[2] = (real)-INFINITY; /* 0.35 are left */
  assert_int_equal(sampler_logprobs(logits, COUNT, 3, &logprob, SAMPLER_TOP, top), COUNT - 2);
  assert_int_equal(top[0].id, 3);
  assert_true(fabs((double)logprob - log(0.15 / 0.35)) < 1e-5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_as_often_as_they_are_likely),
                                     cmocka_unit_test(only_the_likeliest_k),
                                     cmocka_unit_test(only_the_nucleus),
                                     cmocka_unit_test(only_ids_of_the_vocabulary),
                                     cmocka_unit_test(the_same_seed_the_same_draws),
                                     cmocka_unit_test(the_likeliest_without_a_temperature),
                                     cmocka_unit_test(numbers_that_are_none_are_never_drawn),
                                     cmocka_unit_test(ends_are_told),
                                     cmocka_unit_test(filters_follow_their_equations),
                                     cmocka_unit_test(what_penalises_nothing_changes_nothing),
                                     cmocka_unit_test(draws_have_the_distribution),
                                     cmocka_unit_test(many_tokens_are_drawn_as_from_a_sorted_list),
                                     cmocka_unit_test(the_heap_holds_few),
                                     cmocka_unit_test(a_text_goes_on_elsewhere),
                                     cmocka_unit_test(log_probabilities_are_the_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
