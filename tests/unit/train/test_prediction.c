/* Training with predictions (--prediction): gradients of the whole loss against finite differences, of texts whose first block is exact and
 * of those whose is not, at both sites; what the emulation hands over; that K-means leaves less to quantise. */
#include "unit/train/tiny_text.h"
#include <math.h>

static TrainOptions predicting(ModelKind kind, Site site, bool code_first) {
  TrainOptions options = tiny_text_options(kind);
  options.site = (int)site;
  options.rotation = options.prediction = true;
  options.code_first = code_first;
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
  for (int i = 0; i < emulation->blocks * emulation->sites; i++) {
    const EmulateSite *site = &emulation->site[i];
    result.codes = 31 * result.codes + safe_digest_of(site->codes, (size_t)(site->rows * site->book.groups) * sizeof *site->codes);
  }
  if (back) tiny_check(tape_backward(session->tape, loss));
  tape_clear(session->tape);
  return result;
}

/* Without a gradient through the quantisation, whose derivative is none, the loss is a smooth function as long as no code changes. */
static void compare_gradients(ModelKind kind, Site site, bool code_first) {
  const double step = REAL_IS_DOUBLE ? 1e-5 : 1e-2;
  TrainOptions options = predicting(kind, site, code_first);
  TaskBatch batch;
  Session session;
  options.gradient = QUANTISE_NONE;
  options.noise = 0;
  tiny_open(&session, &options);
  assert_true(session.config->astra.exact_first == !code_first);
  ParamSet *set = model_params(session.model);
  tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
  param_zero_grads(set);
  const Loss here = loss_of(&session, &batch, true);
  int compared = 0, predictions = 0;
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
    }
  }
  assert_true(compared > (int)set->count);
  assert_true(predictions > 0);
  session_close(&session);
}

static void gradients_are_those_of_the_loss(void **state) {
  (void)state;
  compare_gradients(MODEL_GPT2, SITE_X, false);
  compare_gradients(MODEL_GPT2, SITE_X, true);
  compare_gradients(MODEL_LLAMA, SITE_KV, false);
  compare_gradients(MODEL_LLAMA, SITE_KV, true);
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

/* ---- K-means */

static double distortions(TrainOptions options) {
  Session session;
  CodebookReport reports[2 * TINY_BLOCKS];
  double sum = 0;
  tiny_open(&session, &options);
  tiny_check(codebooks_fit(&session, reports));
  const int last = session.emulation.blocks * session.emulation.sites;
  assert_int_equal(reports[last - 1].block, TINY_BLOCKS - 1);
  for (int i = last - session.emulation.sites; i < last; i++) sum += reports[i].usage.distortion; /* of the last block */
  session_close(&session);
  return sum;
}

static void less_is_left_to_quantise(void **state) {
  (void)state;
  for (int site = 0; site < 2; site++) {
    TrainOptions options = predicting(site ? MODEL_LLAMA : MODEL_GPT2, (Site)site, false);
    options.entries = 16;
    const double exact = distortions(options);
    options.code_first = true;
    const double coded = distortions(options);
    options.prediction = false;
    const double rotated = distortions(options);
    print_message("site %d: %g with the first block exact, %g with predictions, %g without\n", site, exact, coded, rotated);
    assert_true(exact < 0.5 * rotated && coded < 0.5 * rotated && (site == 1 || exact < 0.5 * coded));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_those_of_the_loss), cmocka_unit_test(an_exact_block_has_no_codebook),
                                     cmocka_unit_test(less_is_left_to_quantise)};
  return cmocka_run_group_tests(tests, tiny_text_make, tiny_remove);
}
