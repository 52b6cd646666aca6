/* Each kind of work by itself, through the operations that a block uses. */
#include "infer/plan/probe.h"
#include "autograd/kernels/kernels.h"
#include "autograd/ops/ops.h"
#include "base/clock.h"
#include "vq/codebook.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  RUNS = 3,
  NORMS = 12 /* about as many small operations as a block has */,
  TABLE_GROUPS = 8 /* rows that are summed for a token; seconds are of a byte, whatever their number */
};
static const double ENOUGH = 0.06; /* seconds of one kind of work after which it is not run again */

/* A model's weights come from memory, not from a cache: a block's products take those of another block each time. */
enum { COPIES_MAX = 16 };
static const size_t WEIGHT_BYTES = (size_t)160 << 20; /* of all copies, more than a core's share of any cache */

typedef struct Probe {
  const ModelConfig *config;
  int64_t tokens, rows;
  ProbeConditions conditions;
  Arena *arena;
  Tape *tape;
  Rng rng;
  Codebook book;
  void *scratch;
  int32_t *codes;
  int copies, turn;                          /* of the weights; which one is next */
  Tensor *up[COPIES_MAX], *down[COPIES_MAX]; /* [mlp, width], [width, mlp] */
} Probe;

static Tensor *drawn(Probe *probe, int dims, const int64_t *shape) {
  Tensor *tensor = tape_tensor(probe->tape, dims, shape);
  for (int64_t i = 0; tensor && i < tensor_count(tensor); i++) tensor->value[i] = (real)(rng_uniform(&probe->rng) - 0.5);
  return tensor;
}

/* Work to be timed; the inputs are made by `prepare`. Gives its floating-point operations, or bytes. */
typedef struct Work {
  double (*prepare)(Probe *probe, Tensor *inputs[4]);
  void (*run)(Probe *probe, Tensor *inputs[4]);
} Work;

/* As many blocks as the model has, or as make up WEIGHT_BYTES. */
static int copies_of(const ModelConfig *config) {
  size_t each = 2 * (size_t)(config->width * config->mlp) * sizeof(real);
  int64_t max = config->blocks < COPIES_MAX ? config->blocks : COPIES_MAX;
  int64_t enough = (int64_t)((WEIGHT_BYTES + each - 1) / each);
  return (int)(enough < max ? enough : max);
}

/* All alike, in places of their own. */
static Tensor *copy_of(Probe *probe, const Tensor *first, int64_t rows, int64_t columns) {
  Tensor *tensor = tape_tensor(probe->tape, 2, (int64_t[]){rows, columns});
  if (tensor && first) memcpy(tensor->value, first->value, (size_t)(rows * columns) * sizeof(real));
  return tensor;
}

static double linear_operations(const ModelConfig *config, int64_t rows) {
  return 4.0 * (double)rows * (double)config->width * (double)config->mlp;
}

static double prepare_linear(Probe *probe, Tensor *inputs[4]) {
  int64_t width = probe->config->width, mlp = probe->config->mlp;
  inputs[0] = drawn(probe, 2, (int64_t[]){probe->rows, width});
  probe->copies = copies_of(probe->config), probe->turn = 0;
  for (int i = 0; i < probe->copies; i++) {
    probe->up[i] = i == 0 ? drawn(probe, 2, (int64_t[]){mlp, width}) : copy_of(probe, probe->up[0], mlp, width);
    probe->down[i] = i == 0 ? drawn(probe, 2, (int64_t[]){width, mlp}) : copy_of(probe, probe->down[0], width, mlp);
  }
  return linear_operations(probe->config, probe->rows);
}

static void run_linear(Probe *probe, Tensor *inputs[4]) {
  int turn = probe->turn;
  probe->turn = (turn + 1) % probe->copies;
  Tensor *inner = op_linear(probe->tape, inputs[0], probe->up[turn], NULL, ACTIVATION_GELU, NULL);
  op_linear(probe->tape, inner, probe->down[turn], NULL, ACTIVATION_NONE, inputs[0]);
}

/* A short input has fewer keys than the products measured have rows. */
static int64_t keys_of(const Probe *probe) { return probe->tokens > probe->rows ? probe->tokens : probe->rows; }

static double attention_operations(const ModelConfig *config, int64_t rows, int64_t keys) {
  return 4.0 * (double)rows * (double)keys * (double)config->width;
}

static double prepare_attention(Probe *probe, Tensor *inputs[4]) {
  const ModelConfig *c = probe->config;
  int64_t kv = config_kv_width(c), keys = keys_of(probe);
  inputs[0] = drawn(probe, 3, (int64_t[]){1, probe->rows, c->width});
  inputs[1] = drawn(probe, 3, (int64_t[]){1, keys, kv});
  inputs[2] = drawn(probe, 3, (int64_t[]){1, keys, kv});
  return attention_operations(c, probe->rows, keys);
}

/* Some queries see all keys, as a device's do; causal or not, the planner counts what is seen. */
static void run_attention(Probe *probe, Tensor *inputs[4]) {
  const AttentionSpan span = {.count = keys_of(probe)};
  const int64_t queries = probe->rows;
  op_attention(
      probe->tape, inputs[0], inputs[1], inputs[2], NULL, NULL,
      &(AttentionOptions){
          .heads = (int)probe->config->heads, .kv_heads = (int)probe->config->kv_heads, .spans = 1, .span = &span, .queries = &queries});
}

static double prepare_assign(Probe *probe, Tensor *inputs[4]) {
  inputs[0] = drawn(probe, 2, (int64_t[]){probe->rows, probe->book.width});
  return 2.0 * (double)probe->rows * (double)probe->book.width * (double)probe->book.entries;
}

static void run_assign(Probe *probe, Tensor *inputs[4]) {
  if (inputs[0]) codebook_assign(&probe->book, inputs[0]->value, probe->rows, probe->codes, NULL, probe->scratch);
}

/* A norm and a sum of all rows: each reads and writes. */
static double prepare_memory(Probe *probe, Tensor *inputs[4]) {
  int64_t width = probe->config->width;
  inputs[0] = drawn(probe, 2, (int64_t[]){probe->rows, width});
  inputs[1] = drawn(probe, 1, &width);
  return 5.0 * (double)probe->rows * (double)width * sizeof(real);
}

static void run_memory(Probe *probe, Tensor *inputs[4]) {
  op_add(probe->tape, op_layer_norm(probe->tape, inputs[0], inputs[1], inputs[1], 1e-6), inputs[0]);
}

static double prepare_small(Probe *probe, Tensor *inputs[4]) {
  prepare_memory(probe, inputs);
  return 1;
}

static void run_small(Probe *probe, Tensor *inputs[4]) {
  for (int i = 0; i < NORMS; i++) op_layer_norm(probe->tape, inputs[0], inputs[1], inputs[1], 1e-6);
}

/* ---- tables: rows of keys and values in places that no cache knows */

/* Rows of all blocks' tables, or as many as make up WEIGHT_BYTES. */
static double prepare_table(Probe *probe, Tensor *inputs[4]) {
  const ModelConfig *c = probe->config;
  int64_t groups = c->astra.groups > 0 ? c->astra.groups : 1,
          entries = c->astra.codebook_size > 0 ? c->astra.codebook_size : CONFIG_CODEBOOK_SIZE;
  int64_t width = 2 * config_kv_width(c), max = (int64_t)(WEIGHT_BYTES / ((size_t)width * sizeof(real)));
  int64_t rows = config_end_coded(c) * groups * entries;
  inputs[0] = tape_tensor(probe->tape, 2, (int64_t[]){rows < max ? rows : max, width});
  inputs[1] = tape_tensor(probe->tape, 2, (int64_t[]){probe->rows, width});
  for (int i = 0; i < 2; i++)
    if (inputs[i]) memset(inputs[i]->value, 0, (size_t)tensor_count(inputs[i]) * sizeof(real));
  return (double)(probe->rows * TABLE_GROUPS) * (double)width * sizeof(real);
}

/* As kv_tables_sum does it. */
static void run_table(Probe *probe, Tensor *inputs[4]) {
  if (!inputs[0] || !inputs[1]) return;
  int64_t width = inputs[1]->shape[1];
  for (int64_t i = 0; i < probe->rows * TABLE_GROUPS; i++) {
    int64_t row = (int64_t)rng_below(&probe->rng, (uint64_t)inputs[0]->shape[0]);
    kernels()->add(width, inputs[0]->value + row * width, inputs[1]->value + i / TABLE_GROUPS * width);
  }
}

/* ---- timing */

static double clock_of(const Probe *probe) {
  return probe->conditions == PROBE_BY_ITSELF && threads_count() == 1 ? clock_spent() : clock_now();
}

static double run_once(Probe *probe, Work work, Tensor *inputs[4]) {
  size_t mark = tape_scratch_begin(probe->tape);
  double begun = clock_of(probe);
  work.run(probe, inputs);
  double took = clock_of(probe) - begun;
  tape_scratch_end(probe->tape, mark);
  return took;
}

/* Seconds for a unit, behind a first run, which meets cold memory. */
static Status measure(Probe *probe, Work work, int64_t rows, double *seconds) {
  Tensor *inputs[4] = {NULL};
  double best = INFINITY, spent = 0;
  int runs = 0;
  probe->rows = rows;
  double units = work.prepare(probe, inputs);
  run_once(probe, work, inputs);
  /* A mean needs as many runs as a while has room for: within one slice of the system's scheduler a shared device looks free. */
  while (tape_status(probe->tape) == STATUS_OK && (runs < 1 || (spent < ENOUGH && (probe->conditions != PROBE_BY_ITSELF || runs < RUNS)))) {
    double took = run_once(probe, work, inputs);
    spent += took;
    best = fmin(best, took);
    runs++;
  }
  *seconds = (probe->conditions == PROBE_BY_ITSELF ? best : spent / runs) / units;
  Status status = tape_status(probe->tape);
  tape_clear(probe->tape);
  return status;
}

static Status measure_all(Probe *probe, DeviceProfile *profile) {
  static const Work linear = {prepare_linear, run_linear}, attention = {prepare_attention, run_attention},
                    assign = {prepare_assign, run_assign}, memory = {prepare_memory, run_memory}, table = {prepare_table, run_table},
                    small = {prepare_small, run_small};
  const int64_t sizes[PROFILE_SIZES] = {PROFILE_SMALL, PROFILE_MIDDLE, probe->tokens};
  /* A class token makes rows odd, and products of 257 rows take up to 8% more for each row than those of 256. */
  const int64_t more = config_is_decoder(probe->config) ? 0 : 1;
  for (int i = 0; i < PROFILE_SIZES; i++) {
    TRY(measure(probe, linear, sizes[i] + more, &profile->linear[i]));
    TRY(measure(probe, attention, sizes[i] + more, &profile->attention[i]));
    TRY(measure(probe, assign, sizes[i], &profile->assign[i]));
  }
  TRY(measure(probe, memory, probe->tokens, &profile->byte));
  TRY(measure(probe, table, PROFILE_MIDDLE, &profile->table));
  return measure(probe, small, 1, &profile->fixed);
}

/* Codewords at random; a plain model is measured with one group, as it would have them. */
static Status open_codebook(Probe *probe) {
  const AstraConfig *astra = &probe->config->astra;
  int64_t rows = probe->tokens > PROFILE_MIDDLE ? probe->tokens : PROFILE_MIDDLE, groups = astra->groups > 0 ? astra->groups : 1;
  TRY(codebook_init(&probe->book, groups, astra->codebook_size > 0 ? astra->codebook_size : CONFIG_CODEBOOK_SIZE,
                    config_site_width(probe->config), NULL));
  for (int64_t i = 0; i < probe->book.entries * probe->book.width; i++) probe->book.codewords[i] = (real)(rng_uniform(&probe->rng) - 0.5);
  codebook_refresh(&probe->book);
  probe->scratch = malloc(codebook_assign_scratch(&probe->book, rows));
  probe->codes = malloc((size_t)(rows * groups) * sizeof *probe->codes);
  return probe->scratch && probe->codes ? STATUS_OK : status_no_memory(NULL, "measuring this device");
}

Status probe_compute(const ModelConfig *config, int64_t tokens, ProbeConditions conditions, DeviceProfile *profile) {
  Probe probe = {.config = config, .tokens = tokens, .conditions = conditions};
  int64_t rows = tokens > PROFILE_MIDDLE ? tokens : PROFILE_MIDDLE, width = config->width + config_site_width(config) + config->mlp;
  rng_init(&probe.rng, 1, 0);
  probe.arena = arena_new(WEIGHT_BYTES + ((size_t)64 << 20) +
                          sizeof(real) * (size_t)(2 * copies_of(config) * config->width * config->mlp + 16 * rows * width));
  probe.tape = probe.arena ? tape_new(probe.arena) : NULL;
  Status status = probe.tape ? open_codebook(&probe) : status_no_memory(NULL, "measuring this device");
  if (status == STATUS_OK) tape_record(probe.tape, false);
  if (status == STATUS_OK) status = measure_all(&probe, profile);
  codebook_release(&probe.book);
  free(probe.scratch);
  free(probe.codes);
  tape_free(probe.tape);
  arena_free(probe.arena);
  return status;
}

double probe_operations(const ModelConfig *config, int64_t tokens) {
  return 2 * (linear_operations(config, tokens) + attention_operations(config, tokens, tokens)); /* each behind a first run */
}

DeviceProfile device_profile_scaled(const DeviceProfile *profile, double speed) {
  DeviceProfile scaled = *profile;
  for (int i = 0; i < PROFILE_SIZES; i++) scaled.linear[i] /= speed, scaled.attention[i] /= speed, scaled.assign[i] /= speed;
  scaled.table /= speed;
  scaled.byte /= speed;
  scaled.fixed /= speed;
  return scaled;
}
