/* Training with predictions (--prediction): gradients of the whole loss against finite differences, of texts whose first block is exact, of
 * images with means of positions, and without either, at both sites; what has no codebook; that as long as nothing is quantised the
 * basis and the means change nothing; what is known of tokens in bf16; that K-means leaves less to quantise. */
#include "autograd/narrow.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_text.h"
#include <math.h>

static TrainOptions predicting(ModelKind kind, Site site, bool plain_prediction) {
  TrainOptions options = kind == MODEL_VIT ? tiny_options() : tiny_text_options(kind);
  options.site = (int)site;
  options.rotation = options.prediction = true;
  options.plain_prediction = plain_prediction;
  return options;
}

/* ---- gradients */

typedef struct Loss {
  double value;
  uint64_t codes; /* digest of all codes: a step that changes one cannot be compared */
} Loss;

/* Task and commitment, on three devices; with `back` their gradients. */
static Loss loss_of(Session *session, const TaskBatch *batch, bool back) {
  TaskScore score = {0};
  Emulation *emulation = &session->emulation;
  tiny_check(device_map_place(&session->layout, session->config, batch->tokens, 3, session->order));
  emulate_begin_step(emulation, true);
  tape_record(session->tape, true);
  param_refresh_shadows(model_params(session->model), false);
  Tensor *task = session->task->head->loss(session, batch, &session->layout, &emulation->exchange, &score);
  Tensor *loss = op_add_scaled(session->tape, task, emulation->carried[EMULATE_COMMITMENT], 0.05);
  if (loss == NULL) fail_msg("%s", status_message());
  Loss result = {.value = (double)loss->value[0]};
  for (int i = 0; i < emulate_sites(emulation); i++) {
    const EmulateSite *site = &emulation->site[i];
    result.codes = 31 * result.codes + safe_digest_of(site->codes, (size_t)(site->rows * site->book.groups) * sizeof *site->codes);
  }
  if (back) tiny_check(tape_backward(session->tape, loss));
  tape_clear(session->tape);
  return result;
}

/* Without a gradient through the quantisation, whose derivative is none, the loss is a smooth function as long as no code changes. */
static void compare_gradients(TrainOptions options) {
  const double step = REAL_IS_DOUBLE ? 1e-5 : 1e-2;
  TaskBatch batch;
  Session session;
  options.gradient = QUANTISE_NONE;
  options.noise = 0;
  tiny_open(&session, &options);
  assert_true(config_plain_prediction(&session.config->astra) == options.plain_prediction);
  ParamSet *set = model_params(session.model);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(set);
  const Loss here = loss_of(&session, &batch, true);
  int compared = 0, predictions = 0, means = 0;
  for (size_t i = 0; i < set->count; i++) {
    const Param *param = &set->list[i];
    const int64_t count = tensor_count(&param->tensor), places[] = {0, count / 3, count - 1};
    for (int p = 0; p < 3; p++) {
      real *at = &param->tensor.value[places[p]];
      const real before = *at;
      *at = (real)((double)before + step);
      const Loss up = loss_of(&session, &batch, false);
      *at = (real)((double)before - step);
      const Loss down = loss_of(&session, &batch, false);
      *at = before;
      if (up.codes != here.codes || down.codes != here.codes) continue;
      const double slope = (up.value - down.value) / (2 * step), gradient = (double)param->tensor.grad[places[p]];
      const double allowed = REAL_IS_DOUBLE ? 1e-8 + 1e-5 * fabs(slope) : 4e-3 + 4e-2 * fabs(slope);
      if (!(fabs(gradient - slope) <= allowed)) fail_msg("%s [%lld]: %g, not %g", param->name, (long long)places[p], gradient, slope);
      compared++;
      predictions += strstr(param->name, ".prediction") != NULL && gradient != 0;
      means += strstr(param->name, ".position_mean") != NULL && gradient != 0;
    }
  }
  assert_true(compared > (int)set->count);
  assert_true(predictions > 0 && (means > 0) == session.config->astra.position_mean);
  session_close(&session);
}

static void gradients_are_those_of_the_loss(void **state) {
  (void)state;
  for (int plain = 0; plain < 2; plain++) {
    compare_gradients(predicting(MODEL_GPT2, SITE_X, plain));
    compare_gradients(predicting(MODEL_LLAMA, SITE_KV, plain));
    compare_gradients(predicting(MODEL_VIT, SITE_X, plain));
    compare_gradients(predicting(MODEL_VIT, SITE_KV, plain));
  }
}

/* ---- the first block */

/* Its tokens have no codes, and so neither a codebook nor a basis. */
static void an_exact_block_has_no_codebook(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = predicting((ModelKind)kind, kind == MODEL_GPT2 ? SITE_X : SITE_KV, false);
    Session session;
    tiny_open(&session, &options);
    const ModelConfig *config = session.config;
    assert_int_equal(session.emulation.blocks, config->blocks - 1);
    assert_int_equal(config_codebooks(config), (config->blocks - 1) * config_sites(config));
    const ParamSet *set = model_params(session.model);
    for (size_t i = 0; i < set->count; i++) assert_null(strstr(set->list[i].name, "astra.layers.0."));
    session_close(&session);
  }
}

/* ---- what is handed over */

/* Nothing is quantised: what was shared comes as it is. */
typedef struct Mirror {
  Exchange exchange; /* first */
  Tensor *shared[EXCHANGE_SITES];
} Mirror;

static Status mirror_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)block, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++)
    ((Mirror *)self)->shared[site] = h[site] ? op_gather_rows_wide(tape, h[site], layout->shared_row, layout->shared_rows) : NULL;
  return tape_status(tape);
}

static Status mirror_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)layout, (void)block, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++) rows[site].x = ((Mirror *)self)->shared[site];
  return tape_status(tape);
}

/* The logits of a batch; with an exchange on three devices. */
static void classify(Session *session, Exchange *exchange, real *logits) {
  TaskBatch batch;
  tiny_check(session->task->source->seek(session, TASK_TRAIN, 0, 0));
  tiny_check(session->task->source->next(session, TASK_TRAIN, &batch));
  tiny_check(task_lay_plain(session, batch.tokens));
  tiny_check(device_map_place(&session->layout, session->config, batch.tokens, 3, session->order));
  tape_record(session->tape, false);
  ModelInput input = task_input(session->tape, &batch, session->config);
  Tensor *encoded =
      model_encode(session->model, session->tape, &input, exchange ? &session->layout : &session->plain_layout, exchange, MODEL_ROWS_CLASS);
  Tensor *out = model_classify(session->model, session->tape, encoded);
  if (out == NULL) fail_msg("%s", status_message());
  memcpy(logits, out->value, (size_t)tensor_count(out) * sizeof *logits);
  tape_clear(session->tape);
}

/* The class token is one of device 0, so that the model on one device sees the same keys. */
static void means_are_taken_off_and_put_back(void **state) {
  (void)state;
  for (int site = 0; site < 2; site++) {
    TrainOptions options = predicting(MODEL_VIT, (Site)site, false);
    options.class_token = CLASS_SINGLE;
    Mirror mirror = {.exchange = {.begin = mirror_begin, .finish = mirror_finish}};
    Session session;
    real one[8 * TINY_CLASSES], three[8 * TINY_CLASSES];
    tiny_open(&session, &options);
    classify(&session, NULL, one);
    classify(&session, &mirror.exchange, three);
    for (int i = 0; i < 8 * TINY_CLASSES; i++) assert_float_equal((double)three[i], (double)one[i], 1e-3);
    session_close(&session);
  }
}

/* ---- precision */

/* What is known of a site's tokens: their codewords in full and what is expected, which a product leaves in bf16. `first`: nothing is. */
static void compare_known(const EmulateSite *site, bool first) {
  const int64_t count = site->rows * site->book.width;
  real *words = malloc((size_t)count * sizeof *words);
  assert_non_null(words);
  codebook_lookup(&site->book, site->codes, site->rows, words);
  for (int64_t i = 0; i < count; i++) {
    const float known = (float)site->exact->value[i], word = (float)words[i];
    const float expected = narrow_bfloat_to_float(narrow_bfloat(known - word));
    if (!(fabsf(word + expected - known) <= 1e-6f * fabsf(word)) || (first && known != word))
      fail_msg("number %lld: %.9g of %.9g", (long long)i, (double)known, (double)word);
  }
  free(words);
}

/* In bf16, too, a block's tokens are expected of those that devices have. */
static void known_rows_have_codewords_in_full(void **state) {
  (void)state;
  for (int run = 0; run < 6 && !REAL_IS_DOUBLE; run++) {
    const bool images = run % 3 == 0, training = run >= 3;
    TrainOptions options = predicting(images ? MODEL_VIT : MODEL_LLAMA, run % 3 == 2 ? SITE_KV : SITE_X, false);
    TaskScore score = {0};
    TaskBatch batch;
    Session session;
    options.precision = PRECISION_BF16;
    tiny_open(&session, &options);
    tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
    tiny_check(device_map_place(&session.layout, session.config, batch.tokens, 3, session.order));
    emulate_begin_step(&session.emulation, training);
    if (session.task->head->loss(&session, &batch, &session.layout, &session.emulation.exchange, &score) == NULL)
      fail_msg("%s", status_message());
    for (int i = 0; i < emulate_sites(&session.emulation); i++)
      compare_known(&session.emulation.site[i], images && i < session.emulation.block_sites);
    tape_clear(session.tape);
    session_close(&session);
  }
}

/* ---- K-means */

static double distortions(TrainOptions options) {
  Session session;
  CodebookReport reports[2 * TINY_BLOCKS];
  double sum = 0;
  tiny_open(&session, &options);
  tiny_check(codebooks_fit(&session, reports));
  const int last = emulate_sites(&session.emulation);
  assert_int_equal(reports[last - 1].block, TINY_BLOCKS - 1);
  for (int i = last - session.emulation.block_sites; i < last; i++) sum += reports[i].usage.distortion; /* of the last block */
  session_close(&session);
  return sum;
}

static void less_is_left_to_quantise(void **state) {
  (void)state;
  for (int site = 0; site < 2; site++) {
    TrainOptions options = predicting(site ? MODEL_LLAMA : MODEL_GPT2, (Site)site, false);
    options.entries = 16;
    const double exact = distortions(options);
    options.plain_prediction = true;
    const double coded = distortions(options);
    options.prediction = false;
    const double rotated = distortions(options);
    print_message("site %d: %g with the first block exact, %g with predictions, %g without\n", site, exact, coded, rotated);
    assert_true(exact < 0.5 * rotated && coded < 0.5 * rotated && (site == 1 || exact < 0.5 * coded));
  }
}

/* A part of the tokens' variance, which is not left to quantise. */
static void means_of_positions_leave_less(void **state) {
  (void)state;
  for (int site = 0; site < 2; site++) {
    TrainOptions options = predicting(MODEL_VIT, (Site)site, false);
    CodebookReport reports[2 * TINY_BLOCKS];
    Session session;
    double told = 0;
    tiny_open(&session, &options);
    tiny_check(codebooks_fit(&session, reports));
    const real *means = model_position_mean(session.model, 0, 0);
    const int64_t numbers = TINY_TOKENS * config_site_width(session.config);
    for (int64_t i = 0; i < numbers; i++) told += (double)means[i] * (double)means[i] / TINY_TOKENS;
    print_message("site %d: variance %g, of which means of positions are %g\n", site, reports[0].variance, told);
    assert_true(told > 0.05 * reports[0].variance);
    session_close(&session);
  }
}

static int make_all(void **state) {
  int failed = tiny_make(state);
  if (failed == 0) tiny_text_files();
  return failed;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(means_are_taken_off_and_put_back),  cmocka_unit_test(means_of_positions_leave_less),
                                     cmocka_unit_test(gradients_are_those_of_the_loss),   cmocka_unit_test(an_exact_block_has_no_codebook),
                                     cmocka_unit_test(known_rows_have_codewords_in_full), cmocka_unit_test(less_is_left_to_quantise)};
  return cmocka_run_group_tests(tests, make_all, tiny_remove);
}
