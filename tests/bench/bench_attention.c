/* bench_attention [bf16] [WORD]: microseconds of op_attention, forward and backward, for one sample on one thread, at the shapes of the
 * presets: whole sequences, the emulation of several devices, one node of several. GFLOP/s count the pairs of a query and a key that it
 * sees: 4 d forward, 10 d backward. Processor time, the fastest of several runs; a word chooses the shapes whose names contain it. Not a
 * test. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/ops/ops.h"
#include "base/clock.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SECONDS 0.15 /* of runs: caches, branches and the clock rate settle */
enum { RUNS = 7, MAX_SPANS = 8, INPUTS = 5 };

typedef struct Case {
  const char *name;
  int64_t batch;
  int heads, kv_heads;
  int64_t head_width;
  bool causal;
  int replicas; /* rows of a span that are not shared: a class token */
  int self;     /* -1: all spans in one process; else this one's node */
  int spans;    /* 1: a plain model */
  int64_t tokens[MAX_SPANS];
} Case;

static const Case cases[] = {
    {"vit-cifar", 32, 3, 3, 64, false, 1, -1, 1, {64}},
    {"vit-cifar, 2 devices", 32, 3, 3, 64, false, 1, -1, 2, {32, 32}},
    {"vit-cifar, 4 devices", 32, 3, 3, 64, false, 1, -1, 4, {16, 16, 16, 16}},
    {"vit-cifar, 4 uneven devices", 32, 3, 3, 64, false, 1, -1, 4, {5, 29, 9, 21}},
    {"vit-cifar, 8 devices", 32, 3, 3, 64, false, 1, -1, 8, {8, 8, 8, 8, 8, 8, 8, 8}},
    {"heads of 48, 4 devices", 32, 4, 4, 48, false, 1, -1, 4, {16, 16, 16, 16}},
    {"vit-base", 4, 12, 12, 64, false, 1, -1, 1, {196}},
    {"vit-base, 4 devices", 4, 12, 12, 64, false, 1, -1, 4, {49, 49, 49, 49}},
    {"vit-base, node 1 of 4", 1, 12, 12, 64, false, 1, 1, 4, {49, 49, 49, 49}},
    {"encoder of 1,024", 1, 12, 12, 64, false, 0, -1, 1, {1024}},
    {"gpt2, 64 tokens", 4, 12, 12, 64, true, 0, -1, 1, {64}},
    {"gpt2, 256 tokens", 4, 12, 12, 64, true, 0, -1, 1, {256}},
    {"gpt2, 1,024 tokens", 1, 12, 12, 64, true, 0, -1, 1, {1024}},
    {"gpt2, 1,024, 4 devices", 1, 12, 12, 64, true, 0, -1, 4, {256, 256, 256, 256}},
    {"gpt2, 1,024, node 2 of 4", 1, 12, 12, 64, true, 0, 2, 4, {256, 256, 256, 256}},
    {"gpt2, 64, 4 devices", 4, 12, 12, 64, true, 0, -1, 4, {16, 16, 16, 16}},
    {"llama-mini, 512 tokens", 1, 8, 4, 32, true, 0, -1, 1, {512}},
};

typedef struct Bench {
  const Case *c;
  Tape *tape;
  Tensor input[INPUTS]; /* q, k, v, remote k, remote v */
  AttentionSpan span[MAX_SPANS];
  int spans;
  bool narrow;
  double pairs; /* of a query and a key that it sees, of one head */
} Bench;

static void lay_out(Bench *bench, int64_t *rows, int64_t *remote) {
  const Case *c = bench->c;
  int64_t shared = 0;
  *rows = 0;
  bench->spans = 0, bench->pairs = 0;
  for (int s = 0; s < c->spans; s++) {
    const int64_t own = c->tokens[s], count = own + c->replicas;
    const bool here = c->self < 0 || c->self == s;
    /* A node holds the others' rows alone, so its own part of them is empty. */
    const AttentionSpan span = {*rows, count, shared, c->self < 0 && c->spans > 1 ? own : 0};
    if (here) {
      bench->span[bench->spans++] = span;
      *rows += count;
    }
    shared += own;
  }
  *remote = c->spans == 1 ? 0 : c->self < 0 ? shared : shared - c->tokens[c->self];
  for (int s = 0; s < bench->spans; s++) {
    const AttentionSpan *span = &bench->span[s];
    if (c->spans == 1) bench->span[s].own = 0;
    const double seen = (double)(c->causal ? span->own : *remote - span->own_count), local = (double)span->count;
    bench->pairs += local * (seen + (c->causal ? (local + 1) / 2 : local));
  }
}

/* The same numbers in bf16. */
static void make_narrow(Tensor *input) {
  const int64_t count = tensor_count(input);
  input->narrow = malloc((size_t)count * sizeof *input->narrow + 1);
  if (input->narrow == NULL) exit(1);
  kernels()->narrow(count, input->value, input->narrow);
  input->narrow_kind = NARROW_BF16;
  free(input->value);
  input->value = NULL;
}

static void open_case(Bench *bench) {
  const Case *c = bench->c;
  int64_t rows, remote;
  Rng rng;
  rng_init(&rng, 1, 0);
  lay_out(bench, &rows, &remote);
  for (int i = 0; i < INPUTS; i++) {
    const int64_t width = c->head_width * (i == 0 ? c->heads : c->kv_heads);
    bench->input[i] = (Tensor){.dims = 3, .shape = {c->batch, i < 3 ? rows : remote, width}, .needs_grad = true};
    bench->input[i].value = malloc((size_t)tensor_count(&bench->input[i]) * sizeof(real) + 1);
    if (bench->input[i].value == NULL) exit(1);
    for (int64_t n = 0; n < tensor_count(&bench->input[i]); n++) bench->input[i].value[n] = (real)rng_normal(&rng);
    if (bench->narrow) make_narrow(&bench->input[i]);
  }
}

/* A loss that weighs the output with fixed numbers; its backward notes when that of attention begins. */
typedef struct Weigh {
  Tensor *y, *loss;
  double begun;
} Weigh;

static void weigh_forward(Tape *tape, void *record) {
  (void)tape;
  ((Weigh *)record)->loss->value[0] = 1;
}

static void weigh_backward(Tape *tape, void *record) {
  Weigh *job = record;
  bool add;
  const Numbers dy = tape_grad_numbers(tape, job->y, &add);
  for (int64_t i = 0; i < tensor_count(job->y); i++) {
    if (dy.wide)
      dy.wide[i] = (real)(i % 7 - 3);
    else
      dy.narrow[i] = narrow_bfloat((float)(i % 7 - 3));
  }
  job->begun = clock_spent();
}

static const OpKind WEIGH = {"weigh", weigh_forward, weigh_backward};

/* Seconds of forward, and of backward. */
static void run_once(Bench *bench, double seconds[2]) {
  const Case *c = bench->c;
  const AttentionOptions options = {
      .heads = c->heads, .kv_heads = c->kv_heads, .causal = c->causal, .spans = bench->spans, .span = bench->span};
  Tensor *in = bench->input, *remote_k = in[3].shape[1] ? &in[3] : NULL, *remote_v = remote_k ? &in[4] : NULL;
  for (int i = 0; i < INPUTS; i++) in[i].grad = NULL, in[i].narrow_grad = NULL, in[i].grad_filled = false;
  tape_clear(bench->tape);
  const double begun = clock_spent();
  Tensor *y = op_attention(bench->tape, &in[0], &in[1], &in[2], remote_k, remote_v, &options);
  seconds[0] = clock_spent() - begun;
  Tensor *loss = tape_tensor(bench->tape, 1, (int64_t[]){1});
  if (y == NULL || loss == NULL) exit(1);
  Weigh weigh = {y, loss, 0};
  loss->needs_grad = true;
  tape_apply(bench->tape, &WEIGH, &weigh, loss);
  if (tape_backward(bench->tape, loss) != STATUS_OK) exit(1);
  seconds[1] = clock_spent() - weigh.begun;
}

static void measure(Tape *tape, const Case *c, bool narrow) {
  Bench bench = {.c = c, .tape = tape, .narrow = narrow};
  double best[2] = {1e30, 1e30};
  open_case(&bench);
  const double begun = clock_spent();
  for (int run = 0; run < RUNS || clock_spent() - begun < MIN_SECONDS; run++) {
    double seconds[2];
    run_once(&bench, seconds);
    for (int i = 0; i < 2; i++) best[i] = seconds[i] < best[i] ? seconds[i] : best[i];
  }
  const double flops = bench.pairs * c->heads * (double)c->head_width, scale = 1e6 / (double)c->batch;
  printf("%-28s%12.1f%10.1f%14.1f%10.1f\n", c->name, best[0] * scale, 4e-3 * flops / (best[0] * scale), best[1] * scale,
         10e-3 * flops / (best[1] * scale));
  for (int i = 0; i < INPUTS; i++) free(bench.input[i].value), free(bench.input[i].narrow);
}

int main(int count, char **arguments) {
  const bool narrow = count > 1 && strcmp(arguments[1], "bf16") == 0;
  const int word = narrow ? 2 : 1;
  matmul_start();
  Arena *arena = arena_new((size_t)1 << 30);
  Tape *tape = arena ? tape_new(arena) : NULL;
  if (tape == NULL) return 1;
  tape_record(tape, true);
  printf("%-28s%12s%10s%14s%10s\n", "us a sample", "forward", "GFLOP/s", "backward", "GFLOP/s");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (word >= count || strstr(cases[i].name, arguments[word])) measure(tape, &cases[i], narrow);
  tape_free(tape);
  arena_free(arena);
  return 0;
}
