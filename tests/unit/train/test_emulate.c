/* The emulated devices: the order of things in a step, what the losses and averages come to, when there is noise, and the whole forward
 * pass against a plain dense computation in double, for both kinds of class token. */
#include "autograd/ops/ops.h"
#include "unit/float_equal.h"
#include "unit/train/dense_reference.h"
#include "unit/train/tiny_run.h"
#include <math.h>

static TrainOptions emulate_options(void) {
  TrainOptions options = tiny_options();
  options.codebook_decay = 0.5;
  options.dead_below = 0.3;
  return options;
}

/* Tokens dealt out to 3 devices: 0, 1, 2, 2, 1, 0, 0, 1... */
static void build_layout(TokenLayout *layout, ClassToken class_token) {
  static const int deal[6] = {0, 1, 2, 2, 1, 0};
  int32_t order[TINY_TOKENS];
  int64_t counts[3] = {0}, at = 0;
  for (int device = 0; device < 3; device++)
    for (int32_t token = 0; token < TINY_TOKENS; token++)
      if (deal[token % 6] == device) {
        order[at++] = token;
        counts[device]++;
      }
  tiny_check(layout_build(layout, TINY_TOKENS, 3, counts, order, class_token, -1));
}

static Tensor *forward(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange) {
  ModelInput input = task_input(session->tape, batch, session->config);
  Tensor *replicas = model_encode(session->model, session->tape, &input, layout, exchange, MODEL_ROWS_CLASS);
  Tensor *logits = model_classify_replicas(session->model, session->tape, replicas, layout->class_tokens);
  tiny_check(tape_status(session->tape));
  return logits;
}

static Tensor *emulate(Session *session, const TaskBatch *batch, const TokenLayout *layout, bool training) {
  emulate_begin_step(&session->emulation, training);
  return forward(session, batch, layout, &session->emulation.exchange);
}

static void next_batch(Session *session, TaskBatch *batch) { tiny_check(session->task->source->next(session, TASK_TRAIN, batch)); }

static EmulateSite *site_of(Session *session, int block) { return &session->emulation.site[block]; }

static real *copied(const real *from, int64_t count) {
  real *copy = malloc((size_t)count * sizeof *copy);
  assert_non_null(copy);
  memcpy(copy, from, (size_t)count * sizeof *copy);
  return copy;
}

/* ---------------------------------------------------------------- a step */

/* What a site was before a step and what the step saw. */
typedef struct Before {
  real *codewords, *sizes, *sums, *mean, *x;
  int32_t *codes;
  int64_t rows;
} Before;

static void remember_book(Before *before, const EmulateSite *site) {
  const Codebook *book = &site->book;
  before->codewords = copied(book->codewords, book->entries * book->width);
  before->sizes = copied(site->ema.sizes, book->groups * book->entries);
  before->sums = copied(site->ema.sums, book->entries * book->width);
  before->mean = copied(site->navq.mean, book->width);
}

static void remember_step(Before *before, const EmulateSite *site) {
  before->rows = site->rows;
  before->x = copied(site->x, site->rows * site->book.width);
  before->codes = malloc((size_t)(site->rows * site->book.groups) * sizeof *before->codes);
  memcpy(before->codes, site->codes, (size_t)(site->rows * site->book.groups) * sizeof *before->codes);
}

static void forget(Before *before) {
  free(before->codewords);
  free(before->sizes);
  free(before->sums);
  free(before->mean);
  free(before->x);
  free(before->codes);
}

static double distance(int64_t n, const real *a, const real *b) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sum;
}

/* Codes are the nearest of the old codewords. Returns mean |x - q|^2 over the rows. */
static double check_codes(const Before *before, const EmulateSite *site) {
  int64_t groups = site->book.groups, entries = site->book.entries, d = site->book.width / groups;
  double sum = 0;
  for (int64_t row = 0; row < before->rows; row++)
    for (int64_t g = 0; g < groups; g++) {
      const real *x = before->x + row * site->book.width + g * d;
      double got = distance(d, x, before->codewords + (g * entries + before->codes[row * groups + g]) * d);
      for (int64_t k = 0; k < entries; k++)
        assert_true(got <= distance(d, x, before->codewords + (g * entries + k) * d) * (1 + 1e-5) + 1e-9);
      sum += got;
    }
  return sum / (double)before->rows;
}

/* The noise's mean follows the residuals from the OLD codewords. */
static void check_noise_mean(const Before *before, const EmulateSite *site) {
  int64_t groups = site->book.groups, entries = site->book.entries, d = site->book.width / groups;
  for (int64_t column = 0; column < site->book.width; column++) {
    int64_t g = column / d;
    double mean = 0;
    for (int64_t row = 0; row < before->rows; row++) {
      real q = before->codewords[(g * entries + before->codes[row * groups + g]) * d + column % d];
      mean += ((double)before->x[row * site->book.width + column] - (double)q) / (double)before->rows;
    }
    double expected = site->navq.decay * (double)before->mean[column] + (1 - site->navq.decay) * mean;
    assert_float_equal((double)site->navq.mean[column], expected, 1e-6);
  }
}

static bool is_a_sample(const Before *before, int64_t width, int64_t offset, int64_t d, const real *codeword) {
  for (int64_t row = 0; row < before->rows; row++)
    if (memcmp(before->x + row * width + offset, codeword, (size_t)d * sizeof(real)) == 0) return true;
  return false;
}

/* One cluster after the step: averaged, then, if it has faded, revived. Returns whether it was. */
static bool check_cluster(const Before *before, const EmulateSite *site, const EmaOptions *options, int64_t g, int64_t k, double total) {
  int64_t groups = site->book.groups, entries = site->book.entries, d = site->book.width / groups, at = g * entries + k;
  const real *codeword = site->book.codewords + at * d;
  double count = 0, share = (double)before->rows / (double)entries, gain = 1 - options->decay;
  for (int64_t row = 0; row < before->rows; row++) count += before->codes[row * groups + g] == k;
  double size = options->decay * (double)before->sizes[at] + gain * count;
  bool dead = size < options->dead_below * share;
  double smoothed = (size + options->smoothing) / (total + (double)entries * options->smoothing) * total;
  assert_float_equal((double)site->ema.sizes[at], dead ? share : size, 1e-4);
  for (int64_t j = 0; j < d; j++) {
    double sum = options->decay * (double)before->sums[at * d + j];
    for (int64_t row = 0; row < before->rows; row++)
      if (before->codes[row * groups + g] == k) sum += gain * (double)before->x[row * site->book.width + g * d + j];
    if (!dead) assert_float_equal((double)site->ema.sums[at * d + j], sum, 1e-4);
    if (!dead) assert_float_equal((double)codeword[j], sum / smoothed, 1e-4);
    if (dead) assert_float_equal((double)site->ema.sums[at * d + j], (double)codeword[j] * share, 1e-4);
  }
  if (dead) assert_true(is_a_sample(before, site->book.width, g * d, d, codeword));
  assert_float_equal((double)site->book.half_norms[at], distance(d, codeword, (const real[TINY_WIDTH]){0}) / 2, 1e-4);
  return dead;
}

static int64_t check_averages(const Before *before, const EmulateSite *site, const EmaOptions *options) {
  int64_t revived = 0, entries = site->book.entries;
  for (int64_t g = 0; g < site->book.groups; g++) {
    double total = (1 - options->decay) * (double)before->rows;
    for (int64_t k = 0; k < entries; k++) total += options->decay * (double)before->sizes[g * entries + k];
    for (int64_t k = 0; k < entries; k++) revived += check_cluster(before, site, options, g, k, total);
  }
  return revived;
}

/* Assign with the old codebook, loss, noise moments, averages, revival: in this order. */
static void a_step_goes_in_the_stated_order(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  options.dead_below = 0.7;
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  Before before[TINY_BLOCKS] = {{0}};
  tiny_open(&session, &options);
  tiny_steps(&session, 3);
  int64_t revived_before = session.emulation.revived, revived = 0;
  uint64_t step = session.emulation.step;
  for (int block = 0; block < TINY_BLOCKS; block++) remember_book(&before[block], site_of(&session, block));
  next_batch(&session, &batch);
  build_layout(&layout, CLASS_DISTRIBUTED);
  tape_record(session.tape, true);
  param_zero_grads(model_params(session.model));
  Tensor *logits = emulate(&session, &batch, &layout, true);
  Tensor *loss = op_add_scaled(session.tape, op_cross_entropy(session.tape, logits, &(CrossEntropy){.labels = batch.labels}),
                               session.emulation.carried[EMULATE_COMMITMENT], options.commitment_weight);
  double commitment = 0;
  for (int block = 0; block < TINY_BLOCKS; block++) {
    assert_int_equal(site_of(&session, block)->rows, 8 * TINY_TOKENS);
    remember_step(&before[block], site_of(&session, block));
    commitment += check_codes(&before[block], site_of(&session, block));
  }
  assert_float_equal((double)session.emulation.carried[EMULATE_COMMITMENT]->value[0], commitment, 1e-5 * commitment);
  tiny_check(tape_backward(session.tape, loss));
  for (int block = 0; block < TINY_BLOCKS; block++) { /* nothing has moved so far */
    const Codebook *book = &site_of(&session, block)->book;
    assert_memory_equal(book->codewords, before[block].codewords, (size_t)(book->entries * book->width) * sizeof(real));
  }
  tiny_check(emulate_update(&session.emulation, session.tape, &session.revive_rng));
  assert_int_equal(session.emulation.step, step + 1);
  for (int block = 0; block < TINY_BLOCKS; block++) {
    check_noise_mean(&before[block], site_of(&session, block));
    revived += check_averages(&before[block], site_of(&session, block), &session.emulation.options.ema);
    forget(&before[block]);
  }
  assert_int_equal(session.emulation.revived - revived_before, revived);
  assert_true(revived > 0); /* so that revival was looked at, too */
  tape_clear(session.tape);
  layout_release(&layout);
  session_close(&session);
}

/* ---------------------------------------------------------------- noise */

/* What a site's tokens differ by from their codewords: [rows, W], on the tape. */
static real *noise_of(Session *session, int block) {
  EmulateSite *site = site_of(session, block);
  int64_t count = site->rows * site->book.width;
  real *noise = tape_alloc(session->tape, (size_t)count * sizeof *noise);
  codebook_lookup(&site->book, site->codes, site->rows, noise);
  for (int64_t i = 0; i < count; i++) noise[i] = site->remote->value[i] - noise[i];
  return noise;
}

static double noise_power(Session *session, int block) {
  EmulateSite *site = site_of(session, block);
  real *noise = noise_of(session, block);
  double sum = 0;
  for (int64_t i = 0; i < site->rows * site->book.width; i++) sum += (double)noise[i] * (double)noise[i];
  return sum / (double)site->rows;
}

/* Of one forward pass in each mode. */
static double noise_when(Session *session, const TaskBatch *batch, const TokenLayout *layout, bool training, double lambda) {
  session->emulation.options.noise = lambda;
  tape_record(session->tape, training);
  emulate(session, batch, layout, training);
  double power = noise_power(session, 0) + noise_power(session, 1);
  tape_clear(session->tape);
  return power;
}

static void noise_is_for_training_only(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  tiny_open(&session, &options);
  build_layout(&layout, CLASS_DISTRIBUTED);
  next_batch(&session, &batch);
  assert_true(noise_when(&session, &batch, &layout, true, 1) == 0); /* no moments yet */
  session.emulation.options.noise = 1;
  tiny_steps(&session, 3);
  next_batch(&session, &batch);
  assert_true(noise_when(&session, &batch, &layout, true, 1) > 0);
  assert_true(noise_when(&session, &batch, &layout, true, 0) == 0);
  assert_true(noise_when(&session, &batch, &layout, false, 1) == 0);
  layout_release(&layout);
  session_close(&session);
}

/* Its power is that of the tracked residuals; lambda scales it, and so does its warm-up. */
static void noise_has_the_tracked_moments(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  tiny_open(&session, &options);
  build_layout(&layout, CLASS_DISTRIBUTED);
  tiny_step(&session); /* the first update sets the moments and factorises them */
  next_batch(&session, &batch);
  double expected = 0;
  for (int block = 0; block < TINY_BLOCKS; block++) {
    const Navq *navq = &site_of(&session, block)->navq;
    int64_t d = navq->width / navq->groups;
    assert_int_equal(navq->updates, 1);
    for (int64_t i = 0; i < navq->width; i++)
      expected += (double)navq->mean[i] * (double)navq->mean[i] + (double)navq->covariance[i / d * d * d + i % d * (d + 1)];
  }
  double power = noise_when(&session, &batch, &layout, true, 1);
  if (!(fabs(power / expected - 1) <= 0.15)) fail_msg("noise of power %g, residuals of %g", power, expected);
  assert_float_equal(noise_when(&session, &batch, &layout, true, 3), 9 * power, 1e-3 * power);
  session.emulation.options.noise_warmup = 4; /* after one step: a quarter of lambda */
  assert_float_equal(noise_when(&session, &batch, &layout, true, 1), power / 16, 1e-3 * power);
  session.emulation.options.noise_warmup = 1;
  assert_float_equal(noise_when(&session, &batch, &layout, true, 1), power, 1e-6 * power);
  layout_release(&layout);
  session_close(&session);
}

/* Four rows for each dimension of a covariance, as far as the batch has them, and of a large batch a quarter. */
static void moments_have_enough_rows(void **state) {
  (void)state;
  enum { WIDTH = 768, GROUPS = 8 };
  static const struct {
    NoiseCovariance kind;
    int64_t rows, expected;
  } cases[] = {{NOISE_FULL, 5000, 1250},       {NOISE_FULL, 2000, 1024},   {NOISE_DIAGONAL, 2000, 1024},     {NOISE_JOINT, 2000, 2000},
               {NOISE_JOINT, 5000, 4 * WIDTH}, {NOISE_JOINT, 16000, 4000}, {NOISE_RESTORED, 5000, 4 * WIDTH}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    EmulateSite site = {.book = {.groups = GROUPS, .width = WIDTH}};
    int64_t first;
    tiny_check(navq_init(&site.navq, GROUPS, WIDTH, cases[i].kind));
    assert_int_equal(emulate_moment_rows(&(Emulation){.step = 0}, &site, cases[i].rows, &first), cases[i].expected);
    assert_int_equal(first, 0);
    int64_t seen = 0; /* rows from the beginning on that some step has taken */
    for (uint64_t step = 0; step < 16; step++) {
      const int64_t part = emulate_moment_rows(&(Emulation){.step = step}, &site, cases[i].rows, &first);
      assert_true(first >= 0 && first + part <= cases[i].rows);
      if (first <= seen && first + part > seen) seen = first + part;
    }
    assert_int_equal(seen, cases[i].rows);
    navq_release(&site.navq);
  }
}

/* A function of seed, step and site: each has its own. */
static void noise_is_drawn_anew_for_each_step_and_site(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  tiny_open(&session, &options);
  build_layout(&layout, CLASS_DISTRIBUTED);
  tiny_step(&session);
  next_batch(&session, &batch);
  enum { COUNT = 8 * TINY_TOKENS * TINY_WIDTH };
  real *drawn[4];
  for (int draw = 0; draw < 4; draw++) { /* step 1, block 0 and 1; step 1 again; step 2 */
    if (draw == 3) session.emulation.step++;
    emulate(&session, &batch, &layout, true);
    drawn[draw] = copied(noise_of(&session, draw == 1), COUNT);
    tape_clear(session.tape);
  }
  for (int64_t i = 0; i < COUNT; i++) assert_float_equal((double)drawn[0][i], (double)drawn[2][i], 0);
  for (int other = 1; other < 4; other += 2) {
    double product = 0, first = 0, second = 0;
    for (int64_t i = 0; i < COUNT; i++) {
      product += (double)drawn[0][i] * (double)drawn[other][i];
      first += (double)drawn[0][i] * (double)drawn[0][i];
      second += (double)drawn[other][i] * (double)drawn[other][i];
    }
    double correlation = product / sqrt(first * second);
    if (!(fabs(correlation) <= 0.15)) fail_msg("draws 0 and %d are correlated by %g", other, correlation);
  }
  for (int draw = 0; draw < 4; draw++) free(drawn[draw]);
  layout_release(&layout);
  session_close(&session);
}

/* ---------------------------------------------------------------- against other computations */

static void one_device_is_the_plain_model(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  int64_t counts[] = {TINY_TOKENS};
  tiny_open(&session, &options);
  tiny_steps(&session, 2);
  next_batch(&session, &batch);
  for (int kind = CLASS_DISTRIBUTED; kind <= CLASS_SINGLE; kind++) {
    tiny_check(layout_build(&layout, TINY_TOKENS, 1, counts, NULL, (ClassToken)kind, -1));
    Tensor *plain = forward(&session, &batch, &session.plain_layout, NULL);
    for (int training = 0; training <= 1; training++) {
      Tensor *emulated = emulate(&session, &batch, &layout, training);
      assert_int_equal(tensor_count(plain), tensor_count(emulated));
      assert_memory_equal(plain->value, emulated->value, (size_t)tensor_count(plain) * sizeof(real));
    }
    tape_clear(session.tape);
  }
  layout_release(&layout);
  session_close(&session);
}

static void check_against_dense(ClassToken class_token) {
  TrainOptions options = emulate_options();
  options.class_token = class_token;
  Session session;
  TaskBatch batch;
  TokenLayout layout = {0};
  tiny_open(&session, &options);
  tiny_steps(&session, 2);
  next_batch(&session, &batch);
  build_layout(&layout, class_token);
  bool single = class_token == CLASS_SINGLE;
  assert_int_equal(layout.class_rows, single ? 1 : 3);
  assert_int_equal(layout.rows, TINY_TOKENS + (single ? 1 : 3));
  assert_int_equal(layout.shared, TINY_TOKENS + single);
  assert_int_equal(layout.shared_rows, layout.shared);
  for (int64_t i = 0; single && i < layout.shared; i++) assert_int_equal(layout.shared_row[i], i); /* every row is shared */
  tape_record(session.tape, false);
  Tensor *logits = emulate(&session, &batch, &layout, false);
  assert_int_equal(session.emulation.site[0].rows, 8 * layout.shared);
  double plain_difference = 0, tolerance = REAL_IS_DOUBLE ? 1e-9 : 2e-4;
  Tensor *plain = forward(&session, &batch, &session.plain_layout, NULL);
  for (int image = 0; image < 3; image++) {
    double expected[TINY_CLASSES];
    dense_logits(&session, batch.pixels + (int64_t)image * 3 * TINY_SIDE * TINY_SIDE, &layout, expected);
    for (int i = 0; i < TINY_CLASSES; i++) {
      double got = (double)logits->value[image * TINY_CLASSES + i];
      assert_true(isfinite(got));
      if (!(fabs(got - expected[i]) <= tolerance)) fail_msg("image %d, class %d: %g, expected %g", image, i, got, expected[i]);
      plain_difference = fmax(plain_difference, fabs(got - (double)plain->value[image * TINY_CLASSES + i]));
    }
  }
  assert_true(plain_difference > 1e-2); /* quantisation makes a difference here */
  tape_clear(session.tape);
  layout_release(&layout);
  session_close(&session);
}

static void distributed_class_tokens_agree_with_a_dense_computation(void **state) {
  (void)state;
  check_against_dense(CLASS_DISTRIBUTED);
}

static void a_single_class_token_agrees_with_a_dense_computation(void **state) {
  (void)state;
  check_against_dense(CLASS_SINGLE);
}

/* ---------------------------------------------------------------- usage */

static void usage_counts_every_code(void **state) {
  (void)state;
  TrainOptions options = emulate_options();
  Session session;
  tiny_open(&session, &options);
  emulate_clear_usage(&session.emulation);
  tiny_steps(&session, 2);
  for (int block = 0; block < TINY_BLOCKS; block++) {
    const EmulateSite *site = site_of(&session, block);
    int64_t sum = 0;
    for (int64_t i = 0; i < site->book.groups * site->book.entries; i++) sum += site->usage.counts[i];
    assert_int_equal(site->usage.rows, 2 * 8 * TINY_TOKENS);
    assert_int_equal(sum, 2 * 8 * TINY_TOKENS * site->book.groups);
    assert_true(site->usage.distortion > 0);
  }
  emulate_clear_usage(&session.emulation);
  assert_int_equal(site_of(&session, 0)->usage.rows, 0);
  assert_int_equal(session.emulation.revived, 0);
  session_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_goes_in_the_stated_order),
      cmocka_unit_test(noise_is_for_training_only),
      cmocka_unit_test(noise_has_the_tracked_moments),
      cmocka_unit_test(moments_have_enough_rows),
      cmocka_unit_test(noise_is_drawn_anew_for_each_step_and_site),
      cmocka_unit_test(one_device_is_the_plain_model),
      cmocka_unit_test(distributed_class_tokens_agree_with_a_dense_computation),
      cmocka_unit_test(a_single_class_token_agrees_with_a_dense_computation),
      cmocka_unit_test(usage_counts_every_code),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
