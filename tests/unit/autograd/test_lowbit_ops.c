/* Operations with weights of 8 and 4 bits, against the same operations with the numbers that those stand for: parts, transposed shapes,
 * fused beginnings and ends, tables of tokens, keys of remote rows, and what is refused. */
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/op_common.h"
#include "autograd/param.h"
#include "base/threads.h"
#include "unit/autograd/tape_fixture.h"
#include <stdio.h>

enum { OUT = 72, IN = 96, ROWS = 21 };
static const LowbitKind KINDS[] = {LOWBIT_INT8, LOWBIT_Q8_0, LOWBIT_Q4_0};
enum { KIND_COUNT = 3 };

/* A weight in both forms; the float one may be stored the other way round. */
typedef struct Weight {
  LowbitMatrix matrix;
  uint8_t numbers[OUT * IN * 2];
  float scale[OUT];
  Tensor low, wide;
  real value[OUT * IN];
} Weight;

static void weight_open(Weight *w, Fixture *f, LowbitKind kind, bool transposed) {
  w->matrix = (LowbitMatrix){kind, OUT, IN, w->numbers, kind == LOWBIT_INT8 ? w->scale : NULL};
  for (size_t i = 0; i < sizeof w->numbers; i++) w->numbers[i] = (uint8_t)rng_next(&f->rng);
  for (int o = 0; o < OUT; o++) w->scale[o] = (float)(0.001 + 0.002 * rng_uniform(&f->rng));
  const size_t block = kind == LOWBIT_Q8_0 ? 34 : 18;
  for (size_t at = 0; at + block <= sizeof w->numbers && kind != LOWBIT_INT8; at += block) {
    const uint16_t half = (uint16_t)(0x1400 + rng_below(&f->rng, 0x400)); /* 2^-10 to 2^-9 */
    memcpy(w->numbers + at, &half, sizeof half);
  }
  for (int o = 0; o < OUT; o++) {
    real row[IN];
    lowbit_widen(&w->matrix, o, 0, IN, row);
    for (int i = 0; i < IN; i++) w->value[transposed ? i * OUT + o : o * IN + i] = row[i];
  }
  w->wide = (Tensor){.dims = 2, .shape = {transposed ? IN : OUT, transposed ? OUT : IN}, .value = w->value};
  w->low = w->wide;
  w->low.value = NULL;
  w->low.lowbit = &w->matrix;
}

/* Rounding of activations to 8 bits: 1/254 of the row's largest, at most, each; together a few parts in a thousand of the result. */
static void assert_near(const Tensor *have, const Tensor *want, double part) {
  assert_non_null(have);
  assert_non_null(want);
  assert_int_equal(tensor_count(have), tensor_count(want));
  double error = 0, size = 0;
  for (int64_t i = 0; i < tensor_count(want); i++) {
    error += pow((double)have->value[i] - (double)want->value[i], 2);
    size += pow((double)want->value[i], 2);
  }
  assert_true(size > 0 && sqrt(error / size) < part);
}

typedef struct Form {
  bool transposed, bias, residual;
  Activation activation;
  int64_t first, count, first_in, in;
} Form;

static const Form FORMS[] = {
    {false, true, false, ACTIVATION_GELU, 0, OUT, 0, IN},    {true, true, false, ACTIVATION_NONE, 24, 40, 0, IN},
    {false, false, true, ACTIVATION_NONE, 0, OUT, 32, 64},   {true, true, true, ACTIVATION_NONE, 0, OUT, 64, 32},
    {true, true, false, ACTIVATION_GELU_TANH, 5, 33, 0, IN}, {false, false, false, ACTIVATION_NONE, 0, OUT, 0, IN}};

static void linear_gives_what_float_weights_do(void **state) {
  (void)state;
  for (int k = 0; k < KIND_COUNT; k++)
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
      for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
        const Form *form = &FORMS[i];
        Fixture f;
        Weight w;
        fixture_open(&f, 3);
        tape_record(f.tape, false);
        weight_open(&w, &f, KINDS[k], form->transposed);
        Tensor *x = fixture_leaf(&f, false, rows, form->in, 0, 0), *y[2];
        Tensor *bias = form->bias ? fixture_leaf(&f, false, OUT, 0, 0, 0) : NULL;
        Tensor *residual = form->residual ? fixture_leaf(&f, false, rows, form->count, 0, 0) : NULL;
        const LinearPart part = {form->first, form->count, form->transposed};
        for (int low = 0; low < 2; low++) {
          Tensor *weight = low ? &w.low : &w.wide;
          y[low] = form->in < IN ? op_linear_columns(f.tape, x, weight, bias, &part, form->first_in, residual)
                                 : op_linear_part(f.tape, x, weight, bias, &part, form->activation, residual);
        }
        assert_near(y[1], y[0], 0.02);
        fixture_close(&f);
      }
}

/* On a narrow tape what comes out is the same, rounded to bf16. */
static void outputs_may_be_narrow(void **state) {
  (void)state;
  for (int k = 0; k < KIND_COUNT; k++)
    for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_GELU_TANH; activation++) {
      Fixture f;
      Weight w;
      fixture_open(&f, 6);
      tape_record(f.tape, false);
      weight_open(&w, &f, KINDS[k], false);
      Tensor *x = fixture_leaf(&f, false, ROWS, IN, 0, 0), *bias = fixture_leaf(&f, false, OUT, 0, 0, 0);
      Tensor *wide = op_linear(f.tape, x, &w.low, bias, (Activation)activation, NULL);
      tape_use_bf16(f.tape, true);
      tape_narrow(f.tape, true);
      Tensor *narrow = op_linear(f.tape, x, &w.low, bias, (Activation)activation, NULL);
      assert_true(wide && narrow && narrow->narrow);
      for (int64_t i = 0; i < tensor_count(wide); i++) assert_int_equal(narrow->narrow[i], narrow_bfloat((float)wide->value[i]));
      fixture_close(&f);
    }
}

/* op_mlp gives the bits of the two maps, on a narrow tape, too, where the rows between them are in bf16. */
static void an_mlp_gives_the_bits_of_two_maps(void **state) {
  (void)state;
  const LinearPart part = {.count = OUT};
  for (int k = 0; k < 2 * KIND_COUNT; k++) {
    const bool narrow = k >= KIND_COUNT;
    Fixture f;
    Weight up, down;
    fixture_open(&f, 8);
    tape_record(f.tape, false);
    weight_open(&up, &f, KINDS[k % KIND_COUNT], false);
    weight_open(&down, &f, KINDS[k % KIND_COUNT], false);
    down.matrix.inputs = down.low.shape[1] = OUT;
    Tensor *x = fixture_leaf(&f, false, ROWS, IN, 0, 0), *bias = fixture_leaf(&f, false, OUT, 0, 0, 0);
    Tensor *residual = fixture_leaf(&f, false, ROWS, OUT, 0, 0);
    tape_use_bf16(f.tape, narrow);
    tape_narrow(f.tape, narrow);
    Tensor *hidden = op_linear_part(f.tape, x, &up.low, bias, &part, ACTIVATION_GELU, NULL);
    const Tensor *want = op_linear_part(f.tape, hidden, &down.low, NULL, &part, ACTIVATION_NONE, residual);
    const LinearMap first = {&up.low, bias, &part}, second = {&down.low, NULL, &part};
    const Tensor *have = op_mlp(f.tape, x, &first, ACTIVATION_GELU, &second, residual);
    assert_true(want != NULL && have != NULL && (hidden->narrow != NULL) == narrow);
    assert_memory_equal(have->value, want->value, (size_t)tensor_count(want) * sizeof(real));
    fixture_close(&f);
  }
}

/* As the model packs them; zeros in their place show that many rows take the packed numbers. */
static void packed_int8_weights_give_the_same_bits(void **state) {
  (void)state;
  if (matmul_choose_backend("onednn-int8") != STATUS_OK ||
      matmul_packed_bytes(&(PackedMatrix){.outputs = OUT, .inputs = IN, .int8 = true}) == 0) {
    printf("skipped: this processor, build or table of kernels multiplies int8 in its own kernels alone\n");
    skip();
  }
  Fixture f;
  Weight w;
  ParamSet set = {0};
  fixture_open(&f, 7);
  tape_record(f.tape, false);
  weight_open(&w, &f, LOWBIT_INT8, false);
  assert_int_equal(param_add(&set, PARAM_NORMAL, true, 2, w.low.shape, "weight"), 0);
  set.list[0].narrow = true;
  set.list[0].tensor.lowbit = &w.matrix;
  Tensor *x = fixture_leaf(&f, false, ROWS, IN, 0, 0), *bias = fixture_leaf(&f, false, OUT, 0, 0, 0), *weight = &set.list[0].tensor;
  const Tensor *plain = op_linear(f.tape, x, weight, bias, ACTIVATION_GELU, NULL);
  assert_int_equal(param_pack(&set, 0, true), STATUS_OK);
  assert_true(weight->packed && weight->packed->int8 && !weight->packed->bf16);
  assert_int_equal(set.packed_bytes, 128 * (128 + (int)sizeof(int32_t))); /* whole strips of 64 outputs, 64 inputs */
  const Tensor *packed = op_linear(f.tape, x, weight, bias, ACTIVATION_GELU, NULL);
  memset(weight->packed->words, 0, (size_t)set.packed_bytes);
  const Tensor *empty = op_linear(f.tape, x, weight, bias, ACTIVATION_NONE, NULL);
  assert_true(plain && packed && empty);
  assert_memory_equal(packed->value, plain->value, (size_t)tensor_count(plain) * sizeof *plain->value);
  for (int64_t i = 0; i < tensor_count(empty); i++) assert_true(empty->value[i] == bias->value[i % OUT]);
  param_release(&set);
  fixture_close(&f);
}

static void blocks_are_cut_between_blocks_only(void **state) {
  (void)state;
  for (int k = 0; k < KIND_COUNT; k++) {
    Fixture f;
    Weight w;
    fixture_open(&f, 4);
    tape_record(f.tape, false);
    weight_open(&w, &f, KINDS[k], false);
    Tensor *x = fixture_leaf(&f, false, 2, 40, 0, 0);
    const LinearPart part = {0, OUT, false};
    Tensor *have = op_linear_columns(f.tape, x, &w.low, NULL, &part, 24, NULL);
    if (KINDS[k] == LOWBIT_INT8) {
      assert_near(have, op_linear_columns(f.tape, x, &w.wide, NULL, &part, 24, NULL), 0.02);
    } else {
      assert_null(have);
      assert_int_equal(tape_status(f.tape), STATUS_UNSUPPORTED);
      assert_non_null(strstr(status_message(), "int8"));
    }
    fixture_close(&f);
  }
}

static void no_gradient_goes_through(void **state) {
  (void)state;
  Fixture f;
  Weight w;
  fixture_open(&f, 5);
  weight_open(&w, &f, LOWBIT_INT8, false);
  assert_null(op_linear(f.tape, fixture_leaf(&f, true, 2, IN, 0, 0), &w.low, NULL, ACTIVATION_NONE, NULL));
  assert_int_equal(tape_status(f.tape), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "inference"));
  fixture_close(&f);
}

static void tokens_are_looked_up_exactly(void **state) {
  (void)state;
  static const int32_t ids[] = {7, 0, OUT - 1, 7};
  for (int k = 0; k < KIND_COUNT; k++) {
    Fixture f;
    Weight w;
    fixture_open(&f, 6);
    tape_record(f.tape, false);
    weight_open(&w, &f, KINDS[k], false);
    Tensor *have = op_token_embed(f.tape, &w.low, NULL, ids, NULL, 1, 4), *want = op_token_embed(f.tape, &w.wide, NULL, ids, NULL, 1, 4);
    assert_memory_equal(have->value, want->value, 4 * IN * sizeof(real));
    fixture_close(&f);
  }
}

static void the_loss_of_a_vocabulary_is_near(void **state) {
  (void)state;
  static const int32_t labels[] = {3, -1, 60, 11, 0};
  for (int k = 0; k < KIND_COUNT; k++) {
    Fixture f;
    Weight w;
    fixture_open(&f, 7);
    tape_record(f.tape, false);
    weight_open(&w, &f, KINDS[k], false);
    Tensor *x = fixture_leaf(&f, false, 5, IN, 0, 0);
    const VocabLoss options = {.labels = labels};
    const Tensor *have = op_vocab_loss(f.tape, x, &w.low, &options), *want = op_vocab_loss(f.tape, x, &w.wide, &options);
    assert_true(fabs((double)(have->value[0] - want->value[0])) < 0.02 * (double)want->value[0]);
    fixture_close(&f);
  }
}

/* Attention over codes uses the weights in float: nothing is rounded but the sums. */
static void remote_keys_are_as_with_float_weights(void **state) {
  (void)state;
  enum { REMOTE = 9, HEADS = 2, HEAD = 16, ENTRIES = 8 };
  static const int32_t codes[REMOTE] = {1, 5, 2, 7, 0, 3, 3, 6, 4};
  for (int k = 0; k < KIND_COUNT; k++)
    for (int transposed = 0; transposed < 2; transposed++) {
      Fixture f;
      Weight w;
      fixture_open(&f, 8);
      tape_record(f.tape, false);
      weight_open(&w, &f, KINDS[k], transposed);
      Tensor *q = fixture_leaf(&f, false, 1, 1, HEADS * HEAD, 0), *own = fixture_leaf(&f, false, 1, 2, HEADS * HEAD, 0);
      const Tensor *book = fixture_leaf(&f, false, ENTRIES, IN, 0, 0);
      Tensor *y[2];
      for (int low = 0; low < 2; low++) {
        const Tensor *weight = low ? &w.low : &w.wide;
        const DecodeAttention options = {.heads = HEADS,
                                         .kv_heads = HEADS,
                                         .keys = own->value,
                                         .values = own->value,
                                         .rows = 2,
                                         .remote = REMOTE,
                                         .x = {.codes = codes, .codebook = book->value, .groups = 1, .entries = ENTRIES},
                                         .key = {(Tensor *)(uintptr_t)weight, NULL, {4, HEADS * HEAD, transposed}},
                                         .value = {(Tensor *)(uintptr_t)weight, NULL, {38, HEADS * HEAD, transposed}}};
        y[low] = op_decode_attention(f.tape, q, &options);
      }
      assert_near(y[1], y[0], 1e-5);
      fixture_close(&f);
    }
}

int main(void) {
  threads_start(2);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_gives_what_float_weights_do),   cmocka_unit_test(outputs_may_be_narrow),
      cmocka_unit_test(an_mlp_gives_the_bits_of_two_maps),    cmocka_unit_test(packed_int8_weights_give_the_same_bits),
      cmocka_unit_test(blocks_are_cut_between_blocks_only),   cmocka_unit_test(no_gradient_goes_through),
      cmocka_unit_test(tokens_are_looked_up_exactly),         cmocka_unit_test(the_loss_of_a_vocabulary_is_near),
      cmocka_unit_test(remote_keys_are_as_with_float_weights)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  threads_stop();
  return failed;
}
