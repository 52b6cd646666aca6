/* A model whose tokens are exchanged in another basis: as long as nothing is quantised it computes what the plain one does. */
#include "unit/nn/small_decoder.h"

enum { TOKENS = 14, DEVICES = 3 };

/* Hands over what was shared, as it is. */
typedef struct Mirror {
  Exchange exchange; /* first */
  Tensor *shared[SMALL_BLOCKS];
} Mirror;

static Status mirror_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)part;
  ((Mirror *)self)->shared[block] = op_gather_rows(tape, h[0], layout->shared_row, layout->shared_rows);
  return tape_status(tape);
}

static Status mirror_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)layout, (void)part;
  rows[0].x = ((Mirror *)self)->shared[block];
  return tape_status(tape);
}

/* to and its inverse: a product of shears, so that both are exact. */
static void make_basis(double *to, double *from, double *mean) {
  const int n = SMALL_WIDTH;
  for (int i = 0; i < n * n; i++) to[i] = from[i] = i / n == i % n;
  for (int i = 0; i + 1 < n; i++) /* row i + 1 gains half of row i; undone in the opposite order */
    for (int j = 0; j < n; j++) to[(i + 1) * n + j] += 0.5 * to[i * n + j];
  for (int i = n - 2; i >= 0; i--)
    for (int j = 0; j < n; j++) from[(i + 1) * n + j] -= 0.5 * from[i * n + j];
  for (int i = 0; i < n; i++) mean[i] = 0.1 * i - 1;
}

static Tensor *encode(Model *model, SmallRun *run, int devices, Exchange *exchange, const int32_t *ids) {
  static const int64_t counts[DEVICES] = {5, 3, 6};
  TokenLayout layout = {0};
  if (devices == 1)
    assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_NONE), STATUS_OK);
  else
    assert_int_equal(layout_build(&layout, TOKENS, DEVICES, counts, NULL, CLASS_NONE, -1), STATUS_OK);
  Tensor *x = model_encode(model, run->tape, &(ModelInput){.ids = ids, .batch = 1}, &layout, exchange, MODEL_ROWS_ALL);
  if (x == NULL) fail_msg("%s", status_message());
  layout_release(&layout);
  return x;
}

static void it_computes_the_same(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    SmallRun run;
    Mirror mirror = {.exchange = {.begin = mirror_begin, .finish = mirror_finish}};
    double to[SMALL_WIDTH * SMALL_WIDTH], from[SMALL_WIDTH * SMALL_WIDTH], mean[SMALL_WIDTH];
    int32_t ids[TOKENS];
    small_config(&config, kind, 0);
    config.astra.groups = 4;
    config.astra.site = SITE_X;
    config.astra.rotation = true;
    Model *model = small_model(&config, false);
    make_basis(to, from, mean);
    for (int i = 0; i < SMALL_WIDTH; i++)
      for (int j = 0; j < SMALL_WIDTH; j++) {
        double product = 0;
        for (int k = 0; k < SMALL_WIDTH; k++) product += from[i * SMALL_WIDTH + k] * to[k * SMALL_WIDTH + j];
        assert_float_equal(product, i == j, 1e-12);
      }
    for (int block = 0; block < SMALL_BLOCKS; block++) assert_int_equal(model_set_rotation(model, block, to, from, mean), STATUS_OK);
    small_open(&run);
    small_ids(ids, TOKENS);
    const Tensor *plain = encode(model, &run, 1, NULL, ids), *rotated = encode(model, &run, DEVICES, &mirror.exchange, ids);
    small_assert_close(rotated->value, plain->value, TOKENS * SMALL_WIDTH, REAL_IS_DOUBLE ? 1e-11 : 2e-4);
    double differ = 0;
    for (int i = 0; i < TOKENS * SMALL_WIDTH; i++) differ += (double)(mirror.shared[0]->value[i] != 0);
    assert_true(differ > 0);
    small_close(&run);
    model_free(model);
    config_release(&config);
  }
}

/* The metric's quadratic form is the squared change of keys and values. */
static void the_metric_is_that_of_keys_and_values(void **state) {
  (void)state;
  ModelConfig config;
  small_config(&config, MODEL_GPT2, 0);
  Model *model = small_model(&config, false);
  double metric[SMALL_WIDTH * SMALL_WIDTH], sum = 0, want = 0, e[SMALL_WIDTH];
  assert_int_equal(model_key_value_metric(model, 1, metric), STATUS_OK);
  for (int i = 0; i < SMALL_WIDTH; i++) e[i] = 0.3 * i - 2;
  for (int i = 0; i < SMALL_WIDTH * SMALL_WIDTH; i++) sum += e[i / SMALL_WIDTH] * metric[i] * e[i % SMALL_WIDTH];
  ParamSet *set = model_params(model);
  const Param *attention = NULL;
  for (size_t i = 0; i < set->count; i++)
    if (strcmp(set->list[i].name, "transformer.h.1.attn.c_attn.weight") == 0) attention = &set->list[i];
  assert_non_null(attention);
  for (int o = SMALL_WIDTH; o < 3 * SMALL_WIDTH; o++) { /* [in, 3 D]: queries, keys, values */
    double change = 0;
    for (int i = 0; i < SMALL_WIDTH; i++) change += (double)attention->tensor.value[i * 3 * SMALL_WIDTH + o] * e[i];
    want += change * change;
  }
  assert_float_equal(sum, want, 1e-6 * want);
  model_free(model);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_computes_the_same), cmocka_unit_test(the_metric_is_that_of_keys_and_values)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
