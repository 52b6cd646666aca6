/* Strategies that divide heads and columns, without processes: the passes of all devices are run again and again, each time with what the
 * others gave in the round before, until nothing changes: a pass of s sums and joins is right after s + 1 rounds. */
#include "nn/strategy.h"
#include "nn/tensor_parallel.h"
#include "unit/float_equal.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdlib.h>

enum { TOKENS = 9, BLOCKS = 3, MAX_DEVICES = 4, WHICH = 2, MAX_NUMBERS = 2 * 12 * SMALL_WIDTH };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 1e-4;

/* ---- sums and joins over rounds */

typedef struct LoopReduce {
  Reduce reduce; /* first */
  real summed[BLOCKS][WHICH][MAX_DEVICES][MAX_NUMBERS], joined[BLOCKS][WHICH][MAX_DEVICES][MAX_NUMBERS];
  int sums, gathers; /* of the pass under way */
  ReduceStep asked[WHICH * BLOCKS];
  int64_t summed_bits;   /* of a whole sum's tensor, over the pass */
  int64_t gathered_bits; /* of this device's share, over the pass */
} LoopReduce;

static Status loop_sum(Reduce *self, Tape *tape, int block, int which, Tensor *partial) {
  (void)tape;
  LoopReduce *loop = (LoopReduce *)self;
  int64_t count = tensor_count(partial);
  assert_true(count <= MAX_NUMBERS && block < BLOCKS && which < WHICH);
  memcpy(loop->summed[block][which][self->self], partial->value, (size_t)count * sizeof(real));
  memset(partial->value, 0, (size_t)count * sizeof(real));
  for (int d = 0; d < self->devices; d++)
    for (int64_t i = 0; i < count; i++) partial->value[i] += loop->summed[block][which][d][i];
  loop->asked[loop->sums + loop->gathers] =
      (ReduceStep){.sum = true, .samples = 1, .rows = tensor_rows(partial), .width = tensor_width(partial)};
  loop->sums++;
  loop->summed_bits += 32 * count;
  return STATUS_OK;
}

static Status loop_gather(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all) {
  LoopReduce *loop = (LoopReduce *)self;
  int64_t batch = own->shape[0], width = own->shape[2], counts[MAX_DEVICES], at = 0;
  layout_even_counts(rows, self->devices, counts);
  assert_int_equal(own->shape[1], counts[self->self]);
  assert_true(tensor_count(own) <= MAX_NUMBERS && block < BLOCKS && which < WHICH);
  memcpy(loop->joined[block][which][self->self], own->value, (size_t)tensor_count(own) * sizeof(real));
  *all = tape_tensor(tape, 3, (int64_t[]){batch, rows, width});
  for (int d = 0; d < self->devices; at += counts[d++])
    for (int64_t b = 0; b < batch; b++)
      memcpy((*all)->value + (b * rows + at) * width, loop->joined[block][which][d] + b * counts[d] * width,
             (size_t)(counts[d] * width) * sizeof(real));
  loop->asked[loop->sums + loop->gathers] = (ReduceStep){.samples = batch, .rows = rows, .width = width};
  loop->gathers++;
  loop->gathered_bits += 32 * tensor_count(own);
  return STATUS_OK;
}

/* ---- a model and its input */

typedef struct Case {
  ModelKind kind;
  int devices;
  int64_t batch;
  ModelRows rows;
} Case;

typedef struct Fixture {
  ModelConfig config;
  Model *model;
  SmallRun run;
  TokenLayout layout;
  int32_t ids[2 * TOKENS];
  real *pixels;
  LoopReduce *loop;
} Fixture;

/* Llama: 3 key heads with 2 query heads each, so that two devices have uneven shares; MLPs that nothing divides. */
static void make_config(ModelConfig *config, ModelKind kind) {
  if (kind == MODEL_VIT) {
    assert_int_equal(config_preset(config, "vit-cifar", 5), STATUS_OK);
    config->image = 12, config->width = SMALL_WIDTH, config->heads = config->kv_heads = 4;
  } else {
    small_config(config, kind, 0);
  }
  if (kind == MODEL_LLAMA) config->kv_heads = 3;
  config->mlp = 41;
  config->blocks = BLOCKS;
}

static void open(Fixture *f, const Case *c) {
  *f = (Fixture){.loop = calloc(1, sizeof *f->loop), .pixels = calloc(2 * 3 * 12 * 12, sizeof(real))};
  make_config(&f->config, c->kind);
  f->model = small_model(&f->config, false);
  small_open(&f->run);
  small_ids(f->ids, 2 * TOKENS);
  for (int i = 0; i < 2 * 3 * 12 * 12; i++) f->pixels[i] = (real)sin(i * i);
  assert_int_equal(layout_build_plain(&f->layout, TOKENS, c->kind == MODEL_VIT ? CLASS_DISTRIBUTED : CLASS_NONE), STATUS_OK);
  f->loop->reduce = (Reduce){.devices = c->devices, .sum = loop_sum, .gather = loop_gather};
}

static void close(Fixture *f) {
  layout_release(&f->layout);
  small_close(&f->run);
  model_free(f->model);
  config_release(&f->config);
  free(f->pixels);
  free(f->loop);
}

static ModelInput input_of(Fixture *f, const Case *c) {
  if (c->kind != MODEL_VIT) return (ModelInput){.ids = f->ids, .batch = c->batch};
  return (ModelInput){.pixels = tape_constant(f->run.tape, 4, (int64_t[]){c->batch, 3, 12, 12}, f->pixels)};
}

static Tensor *plain(Fixture *f, const Case *c) {
  ModelInput input = input_of(f, c);
  Tensor *x = model_encode(f->model, f->run.tape, &input, &f->layout, NULL, c->rows);
  if (x == NULL) fail_msg("%s", status_message());
  return x;
}

static Tensor *pass(Fixture *f, const Case *c, const TensorParallel *how, int device) {
  ModelInput input = input_of(f, c);
  f->loop->reduce.self = device;
  f->loop->sums = f->loop->gathers = 0;
  f->loop->summed_bits = f->loop->gathered_bits = 0;
  Tensor *x = tensor_parallel_encode(f->model, f->run.tape, &input, &f->layout, how, c->rows);
  if (x == NULL) fail_msg("%s", status_message());
  return x;
}

/* What was asked for is what was said before. */
static void check_steps(Fixture *f, const Case *c, const TensorParallel *how) {
  ReduceStep steps[WHICH * BLOCKS];
  int count = tensor_parallel_steps(&f->config, how, c->batch, &f->layout, c->rows, NULL);
  assert_int_equal(count, f->loop->sums + f->loop->gathers);
  assert_int_equal(tensor_parallel_steps(&f->config, how, c->batch, &f->layout, c->rows, steps), count);
  for (int i = 0; i < count; i++) {
    const ReduceStep *asked = &f->loop->asked[i], *said = &steps[i];
    assert_true(said->sum == asked->sum && said->samples == asked->samples && said->rows == asked->rows && said->width == asked->width);
  }
}

/* The last round's outputs, which all devices have in equal bits. */
static Tensor *run(Fixture *f, const Case *c, Strategy strategy, int retained) {
  const TensorParallel how = {strategy, retained, &f->loop->reduce};
  Tensor *x = NULL, *first = NULL;
  for (int round = 0; round <= 2 * BLOCKS; round++)
    for (int d = 0; d < c->devices; d++) {
      x = pass(f, c, &how, d);
      check_steps(f, c, &how);
      if (d == 0) first = x;
      if (round == 2 * BLOCKS) assert_memory_equal(x->value, first->value, (size_t)tensor_count(x) * sizeof(real));
    }
  return x;
}

static ModelRows few_rows(ModelKind kind) { return kind == MODEL_VIT ? MODEL_ROWS_CLASS : MODEL_ROWS_LAST; }

static void each_case(void (*check)(const Case *c)) {
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (int devices = 1; devices <= (kind == MODEL_LLAMA ? 3 : 4); devices++)
      for (int flags = 0; flags < 4; flags++)
        check(&(Case){(ModelKind)kind, devices, 1 + (flags & 1), flags & 2 ? few_rows((ModelKind)kind) : MODEL_ROWS_ALL});
}

/* ---- tp */

static void check_tp(const Case *c) {
  Fixture f;
  open(&f, c);
  const Tensor *want = plain(&f, c), *x = run(&f, c, STRATEGY_TP, 0);
  assert_int_equal(tensor_count(x), tensor_count(want));
  small_assert_close(x->value, want->value, tensor_count(x), CLOSE);
  assert_int_equal(f.loop->sums, 2 * BLOCKS);
  assert_int_equal(f.loop->gathers, 0);
  if (c->rows == MODEL_ROWS_ALL && c->devices > 1) { /* a reduce-scatter and a gather of each sum's share */
    const DeviceCost cost = device_cost(&f.config, STRATEGY_TP, &(DeviceShare){.devices = c->devices, .tokens = TOKENS}, false);
    assert_float_equal((double)c->batch * BLOCKS * cost.sent_bits, 2.0 * (double)f.loop->summed_bits / c->devices, 1e-6);
  }
  close(&f);
}

static void tp_is_the_plain_model(void **state) {
  (void)state;
  each_case(check_tp);
}

/* ---- bp */

/* With all blocks retained the streams are one, and it is the plain model. */
static void check_retained(const Case *c) {
  for (int s = STRATEGY_BP_AG; s <= STRATEGY_BP_SP; s++) {
    Fixture f;
    open(&f, c);
    const Tensor *want = plain(&f, c), *x = run(&f, c, (Strategy)s, BLOCKS);
    assert_int_equal(tensor_count(x), tensor_count(want));
    small_assert_close(x->value, want->value, tensor_count(x), CLOSE);
    assert_int_equal(f.loop->sums, 0);
    assert_int_equal(f.loop->gathers, (s == STRATEGY_BP_SP ? 2 : 1) * BLOCKS);
    close(&f);
  }
}

static void bp_with_all_blocks_retained_is_the_plain_model(void **state) {
  (void)state;
  each_case(check_retained);
}

/* With one retained block it exchanges in that one alone, and computes something else than the plain model. */
static void bp_decouples(void **state) {
  (void)state;
  for (int s = STRATEGY_BP_AG; s <= STRATEGY_BP_SP; s++) {
    const Case c = {MODEL_VIT, 2, 1, MODEL_ROWS_ALL};
    Fixture f;
    open(&f, &c);
    const Tensor *want = plain(&f, &c), *x = run(&f, &c, (Strategy)s, 1);
    double max = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) {
      assert_true(isfinite((double)x->value[i]));
      max = fmax(max, fabs((double)x->value[i] - (double)want->value[i]));
    }
    assert_true(max > 0.01);
    assert_int_equal(f.loop->gathers, s == STRATEGY_BP_SP ? 2 : 1);
    const DeviceShare share = {.devices = 2, .tokens = TOKENS};
    const DeviceCost cost = device_cost_all(&f.config, (Strategy)s, &share, 1);
    assert_float_equal(cost.sent_bits, (double)f.loop->gathered_bits, 1e-6);
    close(&f);
  }
}

/* The two forms of bp are two ways to compute the same. */
static void both_forms_of_bp_agree(void **state) {
  (void)state;
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (int retained = 1; retained <= BLOCKS; retained++) {
      const Case c = {(ModelKind)kind, 3, 1, MODEL_ROWS_ALL};
      Fixture f;
      open(&f, &c);
      const Tensor *ag = run(&f, &c, STRATEGY_BP_AG, retained), *sp = run(&f, &c, STRATEGY_BP_SP, retained);
      small_assert_close(ag->value, sp->value, tensor_count(ag), CLOSE);
      close(&f);
    }
}

/* ---- sp: the blocks of nodes, with rows in full */

/* A node's exchange that delivers what the plain model had after each first norm. */
typedef struct Plain {
  Exchange exchange; /* first */
  real *h[BLOCKS];
} Plain;

static Status watch(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)tape, (void)layout;
  Plain *p = (Plain *)self;
  assert_true(part == 0 && h[1] == NULL);
  p->h[block] = malloc((size_t)tensor_count(h[0]) * sizeof(real));
  for (int64_t i = 0; i < tensor_count(h[0]); i++) p->h[block][i] = h[0]->value[i];
  return STATUS_OK;
}

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)tape, (void)layout, (void)block;
  assert_true(part == 0 && h[0]->shape[2] == SMALL_WIDTH && h[1] == NULL);
  return STATUS_OK;
}

/* Row of a content token, or of the class token (-1), in the plain layout. */
static int64_t plain_row(const TokenLayout *layout, int32_t token) { return token + (layout->class_token != CLASS_NONE); }

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)part;
  rows[0].x = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, SMALL_WIDTH});
  for (int64_t i = 0; i < layout->remote; i++)
    memcpy(rows[0].x->value + i * SMALL_WIDTH, ((Plain *)self)->h[block] + plain_row(layout, layout->remote_token[i]) * SMALL_WIDTH,
           SMALL_WIDTH * sizeof(real));
  return tape_status(tape);
}

static void check_sp(ModelKind kind, Site site) {
  const Case c = {kind, 3, 1, MODEL_ROWS_ALL};
  static const int64_t counts[] = {2, 6, 1};
  Fixture f;
  Plain exchange = {.exchange = {.begin = watch}};
  open(&f, &c);
  Site *site_of_model = &((ModelConfig *)(uintptr_t)model_config(f.model))->astra.site;
  *site_of_model = SITE_X; /* where rows are seen */
  model_watch(f.model, &exchange.exchange);
  const real *want = plain(&f, &c)->value;
  model_watch(f.model, NULL);
  *site_of_model = site;
  exchange.exchange = (Exchange){.begin = begin, .finish = finish, .whole_rows = true};
  for (int self = 0; self < 3; self++) {
    TokenLayout layout = {0};
    assert_int_equal(layout_build(&layout, TOKENS, 3, counts, NULL, kind == MODEL_VIT ? CLASS_SINGLE : CLASS_NONE, self), STATUS_OK);
    ModelInput input = input_of(&f, &c);
    const Tensor *x = model_encode(f.model, f.run.tape, &input, &layout, &exchange.exchange, MODEL_ROWS_ALL);
    if (x == NULL) fail_msg("%s", status_message());
    for (int64_t i = 0; i < layout.rows; i++)
      small_assert_close(x->value + i * SMALL_WIDTH, want + plain_row(&layout, layout.row_token[i]) * SMALL_WIDTH, SMALL_WIDTH, CLOSE);
    layout_release(&layout);
  }
  for (int block = 0; block < BLOCKS; block++) free(exchange.h[block]);
  close(&f);
}

static void sp_is_the_plain_model_at_either_site(void **state) {
  (void)state;
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (int site = SITE_X; site <= SITE_KV; site++) check_sp((ModelKind)kind, (Site)site);
}

/* ---- what is refused */

static void check_refused(Fixture *f, const Case *c, const TensorParallel *how, Status status, const char *word) {
  ModelInput input = input_of(f, c);
  assert_null(tensor_parallel_encode(f->model, f->run.tape, &input, &f->layout, how, c->rows));
  assert_int_equal(tape_status(f->run.tape), status);
  if (!strstr(status_message(), word)) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
  tape_clear(f->run.tape);
}

static void what_is_refused(void **state) {
  (void)state;
  const Case c = {MODEL_LLAMA, 4, 1, MODEL_ROWS_ALL};
  Fixture f;
  open(&f, &c);
  check_refused(&f, &c, &(TensorParallel){STRATEGY_TP, 0, &f.loop->reduce}, STATUS_BAD_VALUE, "up to 3");
  f.loop->reduce.devices = 2;
  check_refused(&f, &c, &(TensorParallel){STRATEGY_SP, 0, &f.loop->reduce}, STATUS_BAD_VALUE, "\"sp\"");
  check_refused(&f, &c, &(TensorParallel){STRATEGY_BP_AG, 0, &f.loop->reduce}, STATUS_BAD_VALUE, "between 1 and 3");
  check_refused(&f, &c, &(TensorParallel){STRATEGY_BP_SP, 4, &f.loop->reduce}, STATUS_BAD_VALUE, "between 1 and 3");
  KvCache cache;
  ModelInput input = {.ids = f.ids, .batch = 1, .cache = &cache};
  assert_null(tensor_parallel_encode(f.model, f.run.tape, &input, &f.layout, &(TensorParallel){STRATEGY_TP, 0, &f.loop->reduce}, c.rows));
  assert_int_equal(tape_status(f.run.tape), STATUS_UNSUPPORTED);
  close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tp_is_the_plain_model),
      cmocka_unit_test(bp_with_all_blocks_retained_is_the_plain_model),
      cmocka_unit_test(bp_decouples),
      cmocka_unit_test(both_forms_of_bp_agree),
      cmocka_unit_test(sp_is_the_plain_model_at_either_site),
      cmocka_unit_test(what_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
