/* GPT-2 and Llama without golden files: what many devices compute when quantisation changes nothing, the last row alone, heads, causality,
 * and inputs that do not fit. */
#include "unit/float_equal.h"
#include "unit/nn/small_decoder.h"
#include "unit/param_named.h"
#include <math.h>
#include <stdlib.h>

enum { BATCH = 2, TOKENS = 11, SITES = 2 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 2e-5;

/* ---- an exchange that delivers the activations of a plain pass as they were */

typedef struct Oracle {
  Exchange exchange; /* first */
  real *kept[SMALL_BLOCKS][SITES];
  int64_t width;
  bool keeps;
} Oracle;

static Status oracle_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Oracle *oracle = (Oracle *)self;
  (void)tape, (void)part;
  if (!oracle->keeps) return STATUS_OK;
  assert_int_equal(layout->rows, TOKENS);
  oracle->width = tensor_width(h[0]);
  for (int site = 0; site < SITES && h[site] != NULL; site++) {
    oracle->kept[block][site] = malloc((size_t)tensor_count(h[site]) * sizeof(real));
    memcpy(oracle->kept[block][site], h[site]->value, (size_t)tensor_count(h[site]) * sizeof(real));
  }
  return STATUS_OK;
}

static Status oracle_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  Oracle *oracle = (Oracle *)self;
  (void)part;
  for (int site = 0; site < SITES && oracle->kept[block][site] != NULL; site++) {
    rows[site].x = tape_tensor(tape, 3, (int64_t[]){BATCH, layout->remote, oracle->width});
    for (int64_t i = 0; i < BATCH * layout->remote; i++)
      memcpy(rows[site].x->value + i * oracle->width,
             oracle->kept[block][site] + (i / layout->remote * TOKENS + layout->remote_token[i % layout->remote]) * oracle->width,
             (size_t)oracle->width * sizeof(real));
  }
  return STATUS_OK;
}

static void oracle_release(Oracle *oracle) {
  for (int block = 0; block < SMALL_BLOCKS; block++)
    for (int site = 0; site < SITES; site++) free(oracle->kept[block][site]);
}

/* x [B, rows, D] against the plain pass's rows of the same tokens. */
static void assert_rows(const Tensor *x, const Tensor *plain, const int32_t *token, int64_t rows) {
  assert_int_equal(x->shape[1], rows);
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t i = 0; i < rows; i++)
      small_assert_close(x->value + (b * rows + i) * SMALL_WIDTH, plain->value + (b * TOKENS + token[i]) * SMALL_WIDTH, SMALL_WIDTH, CLOSE);
}

/* One process with all devices (self -1) or node `self`: the plain rows, all of them or the last. */
static void assert_same_as_plain(Model *model, SmallRun *run, Oracle *oracle, const int32_t *ids, const Tensor *plain, int self) {
  static const int64_t counts[] = {3, 1, 7};
  ModelInput input = {.ids = ids, .batch = BATCH};
  TokenLayout layout = {0};
  assert_int_equal(layout_build(&layout, TOKENS, 3, counts, NULL, CLASS_NONE, self), STATUS_OK);
  Tensor *all = model_encode(model, run->tape, &input, &layout, &oracle->exchange, MODEL_ROWS_ALL);
  assert_non_null(all);
  assert_rows(all, plain, layout.row_token, layout.rows);
  Tensor *last = model_encode(model, run->tape, &input, &layout, &oracle->exchange, MODEL_ROWS_LAST);
  assert_int_equal(tape_status(run->tape), STATUS_OK);
  assert_int_equal(last != NULL, self < 0 || self == 2);
  if (last) assert_rows(last, plain, (int32_t[]){TOKENS - 1}, 1);
  layout_release(&layout);
}

static void devices_equal_one_without_quantisation(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    for (int site = SITE_X; site <= SITE_KV; site++) {
      ModelConfig config;
      small_config(&config, (ModelKind)kind, 0);
      config.astra.site = (Site)site;
      Model *model = small_model(&config, false);
      SmallRun run;
      Oracle oracle = {.exchange = {.begin = oracle_begin, .finish = oracle_finish}, .keeps = true};
      int32_t ids[BATCH * TOKENS];
      small_ids(ids, BATCH * TOKENS);
      small_open(&run);
      model_watch(model, &oracle.exchange);
      Tensor *plain = small_encode(model, &run, ids, BATCH, TOKENS, MODEL_ROWS_ALL);
      model_watch(model, NULL);
      assert_non_null(plain);
      oracle.keeps = false;
      assert_int_equal(oracle.width, config_site_width(&config));
      assert_int_equal(oracle.kept[0][1] != NULL, site == SITE_KV);
      for (int self = -1; self < 3; self++) assert_same_as_plain(model, &run, &oracle, ids, plain, self);
      oracle_release(&oracle);
      small_close(&run);
      model_free(model);
      config_release(&config);
    }
  }
}

static void the_last_row_alone(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    SmallRun run;
    int32_t ids[BATCH * TOKENS];
    small_ids(ids, BATCH * TOKENS);
    small_open(&run);
    Tensor *all = small_encode(model, &run, ids, BATCH, TOKENS, MODEL_ROWS_ALL);
    Tensor *last = small_encode(model, &run, ids, BATCH, TOKENS, MODEL_ROWS_LAST);
    assert_rows(last, all, (int32_t[]){TOKENS - 1}, 1);
    Tensor *logits = model_logits(model, run.tape, last);
    assert_true(logits->shape[0] == BATCH && logits->shape[1] == 1 && logits->shape[2] == SMALL_VOCABULARY);
    small_close(&run);
    model_free(model);
  }
}

/* Rows before a token do not see it. */
static void later_tokens_change_nothing_before(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    SmallRun run;
    int32_t ids[TOKENS], other[TOKENS];
    small_ids(ids, TOKENS);
    memcpy(other, ids, sizeof ids);
    other[6] = (ids[6] + 1) % SMALL_VOCABULARY;
    small_open(&run);
    Tensor *a = small_encode(model, &run, ids, 1, TOKENS, MODEL_ROWS_ALL), *b = small_encode(model, &run, other, 1, TOKENS, MODEL_ROWS_ALL);
    small_assert_close(a->value, b->value, 6 * SMALL_WIDTH, CLOSE);
    for (int64_t row = 6; row < TOKENS; row++)
      assert_memory_not_equal(a->value + row * SMALL_WIDTH, b->value + row * SMALL_WIDTH, SMALL_WIDTH * sizeof(real));
    small_close(&run);
    model_free(model);
  }
}

/* Texts of different lengths in one batch: each by its own last token, whatever the padding is. */
static void a_text_is_classified_by_its_last_token(void **state) {
  (void)state;
  static const int32_t last[BATCH] = {4, TOKENS - 1};
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    small_config(&config, (ModelKind)kind, 3);
    Model *model = small_model(&config, false);
    SmallRun run;
    int32_t ids[BATCH * TOKENS];
    small_ids(ids, BATCH * TOKENS);
    small_open(&run);
    Tensor *all = small_encode(model, &run, ids, BATCH, TOKENS, MODEL_ROWS_ALL);
    Tensor *both = model_classify(model, run.tape, op_select_rows(run.tape, all, last));
    Tensor *alone = model_classify(model, run.tape, small_encode(model, &run, ids, 1, 5, MODEL_ROWS_LAST));
    assert_true(both->dims == 2 && both->shape[0] == BATCH && both->shape[1] == 3);
    small_assert_close(both->value, alone->value, 3, CLOSE);
    assert_null(model_classify(model, run.tape, all)); /* which row? */
    tape_clear(run.tape);
    assert_null(model_logits(model, run.tape, small_encode(model, &run, ids, 1, 5, MODEL_ROWS_ALL)));
    assert_non_null(strstr(status_message(), "classifies"));
    small_close(&run);
    model_free(model);
    config_release(&config);
  }
}

static void inputs_that_do_not_fit(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    Model *model = small_decoder((ModelKind)kind, false);
    SmallRun run;
    TokenLayout layout = {0};
    int32_t ids[SMALL_CONTEXT + 1];
    small_ids(ids, SMALL_CONTEXT + 1);
    small_open(&run);
    assert_non_null(small_encode(model, &run, ids, 1, SMALL_CONTEXT, MODEL_ROWS_LAST));
    assert_null(small_encode(model, &run, ids, 1, SMALL_CONTEXT + 1, MODEL_ROWS_LAST));
    assert_non_null(strstr(status_message(), "25 tokens is longer than the model's context of 24"));
    tape_clear(run.tape);
    ids[2] = SMALL_VOCABULARY;
    assert_null(small_encode(model, &run, ids, 1, 4, MODEL_ROWS_ALL));
    assert_non_null(strstr(status_message(), "37"));
    tape_clear(run.tape);
    ids[2] = 0;
    assert_null(small_encode(model, &run, ids, 1, 4, MODEL_ROWS_CLASS));
    tape_clear(run.tape);
    assert_null(small_encode(model, &run, NULL, 1, 4, MODEL_ROWS_ALL));
    tape_clear(run.tape);
    assert_int_equal(layout_build_plain(&layout, 4, CLASS_DISTRIBUTED), STATUS_OK);
    assert_null(model_encode(model, run.tape, &(ModelInput){.ids = ids, .batch = 1}, &layout, NULL, MODEL_ROWS_ALL));
    tape_clear(run.tape);
    assert_null(model_classify(model, run.tape, small_encode(model, &run, ids, 1, 4, MODEL_ROWS_LAST)));
    assert_non_null(strstr(status_message(), "predicts tokens"));
    layout_release(&layout);
    small_close(&run);
    model_free(model);
  }
}

static double deviation(Model *model, const char *name) {
  const Tensor *tensor = &param_named(model_params(model), name)->tensor;
  double sum = 0;
  for (int64_t i = 0; i < tensor_count(tensor); i++) sum += (double)tensor->value[i] * (double)tensor->value[i];
  return sqrt(sum / (double)tensor_count(tensor));
}

/* Of a normal distribution that is cut at two deviations, 0.88 of the deviation is left. */
static void initial_weights(void **state) {
  (void)state;
  ModelConfig config;
  Model *model;
  Rng rng;
  rng_init(&rng, 5, 0);
  assert_int_equal(config_preset(&config, "gpt2-mini", 0), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  model_initialise(model, &rng);
  assert_float_equal(deviation(model, "transformer.wte.weight"), 0.0176, 2e-4);
  assert_float_equal(deviation(model, "transformer.h.0.attn.c_attn.weight"), 0.0176, 2e-4);
  assert_float_equal(deviation(model, "transformer.h.5.attn.c_proj.weight"), 0.0176 / sqrt(12), 1e-4);
  assert_float_equal(deviation(model, "transformer.h.5.mlp.c_proj.weight"), 0.0176 / sqrt(12), 1e-4);
  assert_true(deviation(model, "transformer.ln_f.weight") == 1 && deviation(model, "transformer.ln_f.bias") == 0);
  model_free(model);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_equal_one_without_quantisation),
      cmocka_unit_test(the_last_row_alone),
      cmocka_unit_test(later_tokens_change_nothing_before),
      cmocka_unit_test(a_text_is_classified_by_its_last_token),
      cmocka_unit_test(inputs_that_do_not_fit),
      cmocka_unit_test(initial_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
