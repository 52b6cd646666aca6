/* A model whose tokens are exchanged in another basis: as long as nothing is quantised it computes what the plain one does. */
#include "nn/checkpoint.h"
#include "unit/float_equal.h"
#include "unit/nn/scratch.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdlib.h>

enum { TOKENS = 14, DEVICES = 3 };

/* Hands over what was shared, as it is. */
typedef struct Mirror {
  Exchange exchange; /* first */
  Tensor *shared[SMALL_BLOCKS][EXCHANGE_SITES];
} Mirror;

static Status mirror_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++)
    ((Mirror *)self)->shared[block][site] = h[site] ? op_gather_rows(tape, h[site], layout->shared_row, layout->shared_rows) : NULL;
  return tape_status(tape);
}

static Status mirror_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)layout, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++) rows[site].x = ((Mirror *)self)->shared[block][site];
  return tape_status(tape);
}

/* to and its inverse: a product of shears, so that both are exact. */
static void make_basis(int n, double *to, double *from, double *mean) {
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

static void set_rotations(Model *model, const double *to, const double *from, const double *mean) {
  for (int block = 0; block < SMALL_BLOCKS; block++)
    for (int site = 0; site < config_sites(model_config(model)); site++)
      assert_int_equal(model_set_rotation(model, block, site, to, from, mean), STATUS_OK);
}

/* turned = to (x - mean), rows of n numbers each. */
static void assert_turned(const Tensor *x, const Tensor *turned, int n, const double *to, const double *mean) {
  const int64_t rows = tensor_count(x) / n;
  assert_true(rows > 1 && x->shape[x->dims - 1] == n && tensor_count(turned) == rows * n);
  for (int64_t row = 0; row < rows; row++)
    for (int i = 0; i < n; i++) {
      double want = 0;
      for (int j = 0; j < n; j++) want += to[i * n + j] * ((double)x->value[row * n + j] - mean[j]);
      assert_float_equal((double)turned->value[row * n + i], want, REAL_IS_DOUBLE ? 1e-11 : 2e-5);
    }
}

static void it_computes_the_same(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    const ModelKind kind = variant % 2 ? MODEL_LLAMA : MODEL_GPT2;
    ModelConfig config;
    SmallRun run;
    Mirror mirror = {.exchange = {.begin = mirror_begin, .finish = mirror_finish}};
    double to[SMALL_WIDTH * SMALL_WIDTH], from[SMALL_WIDTH * SMALL_WIDTH], mean[SMALL_WIDTH];
    int32_t ids[TOKENS];
    small_config(&config, kind, 0);
    config.astra.groups = 4;
    config.astra.site = variant < 2 ? SITE_X : SITE_KV;
    config.astra.rotation = true;
    Model *model = small_model(&config, false);
    const int n = (int)config_site_width(&config);
    make_basis(n, to, from, mean);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) {
        double product = 0;
        for (int k = 0; k < n; k++) product += from[i * n + k] * to[k * n + j];
        assert_float_equal(product, i == j, 1e-12);
      }
    double same[SMALL_WIDTH * SMALL_WIDTH], nothing[SMALL_WIDTH] = {0};
    for (int i = 0; i < n * n; i++) same[i] = i / n == i % n;
    small_open(&run);
    small_ids(ids, TOKENS);
    set_rotations(model, same, same, nothing);
    encode(model, &run, DEVICES, &mirror.exchange, ids);
    const Tensor *x = mirror.shared[0][0];
    set_rotations(model, to, from, mean);
    const Tensor *plain = encode(model, &run, 1, NULL, ids), *rotated = encode(model, &run, DEVICES, &mirror.exchange, ids);
    small_assert_close(rotated->value, plain->value, TOKENS * SMALL_WIDTH, REAL_IS_DOUBLE ? 1e-11 : 2e-4);
    assert_turned(x, mirror.shared[0][0], n, to, mean);
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
  assert_int_equal(model_rotation_metric(model, 1, 0, metric), STATUS_OK);
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

static const real *weight_of(Model *model, const char *name) {
  ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++)
    if (strcmp(set->list[i].name, name) == 0) return set->list[i].tensor.value;
  fail_msg("no parameter %s", name);
  return NULL;
}

/* Site kv of a Llama with grouped queries: M of values is the squared change of the output projection's inputs; of keys the mean, over
 * angles of the rotary positions, of the squared change of scores. */
static void the_metrics_of_keys_and_values_that_travel(void **state) {
  (void)state;
  enum { HEADS = 6, SHARED = 3, HEAD = SMALL_WIDTH / HEADS, KV = SMALL_WIDTH / SHARED, ANGLES = 16 };
  ModelConfig config;
  small_config(&config, MODEL_LLAMA, 0);
  config.astra.groups = 4;
  config.astra.site = SITE_KV;
  Model *model = small_model(&config, false);
  assert_int_equal(config_site_width(&config), KV);
  double metric[KV * KV], sum = 0, want = 0, e[KV];
  for (int i = 0; i < KV; i++) e[i] = 0.3 * i - 1 + (i % 3);
  assert_int_equal(model_rotation_metric(model, 1, 1, metric), STATUS_OK);
  for (int i = 0; i < KV * KV; i++) sum += e[i / KV] * metric[i] * e[i % KV];
  const real *output = weight_of(model, "model.layers.1.self_attn.o_proj.weight"); /* [D, heads d] */
  for (int h = 0; h < HEADS; h++)
    for (int o = 0; o < SMALL_WIDTH; o++) {
      double change = 0;
      for (int i = 0; i < HEAD; i++) change += (double)output[o * SMALL_WIDTH + h * HEAD + i] * e[h / SHARED * HEAD + i];
      want += change * change;
    }
  assert_float_equal(sum, want, 1e-5 * want);

  assert_int_equal(model_rotation_metric(model, 1, 0, metric), STATUS_OK);
  sum = want = 0;
  for (int i = 0; i < KV * KV; i++) sum += e[i / KV] * metric[i] * e[i % KV];
  const real *query = weight_of(model, "model.layers.1.self_attn.q_proj.weight"), /* [heads d, D] */
      *norm = weight_of(model, "model.layers.1.input_layernorm.weight");
  for (int a = 0; a < ANGLES * ANGLES; a++) /* an angle for each of a head's two pairs */
    for (int h = 0; h < HEADS; h++)
      for (int n = 0; n < SMALL_WIDTH; n++) {
        double change = 0;
        for (int i = 0; i < HEAD / 2; i++) {
          const double angle = 6.283185307179586 * (i == 0 ? a / ANGLES : a % ANGLES) / ANGLES;
          const double x = e[h / SHARED * HEAD + i], y = e[h / SHARED * HEAD + i + HEAD / 2];
          change += (double)query[(h * HEAD + i) * SMALL_WIDTH + n] * (cos(angle) * x - sin(angle) * y);
          change += (double)query[(h * HEAD + i + HEAD / 2) * SMALL_WIDTH + n] * (sin(angle) * x + cos(angle) * y);
        }
        change *= (double)norm[n];
        want += change * change / (ANGLES * ANGLES);
      }
  assert_float_equal(sum, want, 1e-5 * want);
  model_free(model);
  config_release(&config);
}

/* Tensors of a basis are parameters, although their names begin as those of codebooks do, which may lie in a file of their own. */
static void its_tensors_are_no_codebooks(void **state) {
  (void)state;
  ModelConfig config;
  small_config(&config, MODEL_GPT2, 0);
  config.astra.groups = 4;
  config.astra.rotation = true;
  Model *model = small_model(&config, false), *back = small_model(&config, false);
  CheckpointReport report;
  assert_int_equal(checkpoint_save(model, scratch_path("turned"), NULL, NULL, SAFE_REAL), STATUS_OK);
  assert_int_equal(checkpoint_load_params(back, scratch_path("turned"), NULL, &report), STATUS_OK);
  assert_int_equal(report.unused, 0);
  const size_t numbers = (size_t)(config_codebooks(&config) * config.astra.codebook_size * config_site_width(&config));
  real *books = calloc(numbers, sizeof *books), *read = calloc(numbers, sizeof *read);
  for (size_t i = 0; i < numbers; i++) books[i] = (real)(i % 7) - 3;
  assert_int_equal(checkpoint_load_codebooks(&config, scratch_path("turned"), read), STATUS_NOT_FOUND);
  assert_int_equal(checkpoint_save_codebooks(&config, scratch_path("books"), books, SAFE_REAL), STATUS_OK);
  assert_int_equal(rename(scratch_path("books/codebooks.safetensors"), scratch_path("turned/codebooks.safetensors")), 0);
  assert_int_equal(checkpoint_load_codebooks(&config, scratch_path("turned"), read), STATUS_OK);
  assert_memory_equal(read, books, numbers * sizeof *books);
  free(books);
  free(read);
  model_free(model);
  model_free(back);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(it_computes_the_same), cmocka_unit_test(the_metric_is_that_of_keys_and_values),
                                     cmocka_unit_test(the_metrics_of_keys_and_values_that_travel),
                                     cmocka_unit_test(its_tensors_are_no_codebooks)};
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
