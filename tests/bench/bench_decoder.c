/* What decoders spend their time on: products with 16-bit weights beside those with floats (one row: GB/s of weights read), and the
 * next-token loss, and the attention of one token over codes. Best of several runs; not a test. */
#include "autograd/kernels/matmul.h"
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/threads.h"
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 5 };

static void *make(size_t count, size_t size) {
  void *block = calloc(count, size);
  if (block) return block;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

static real *make_numbers(int64_t count) {
  real *numbers = make((size_t)count, sizeof *numbers);
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int64_t i = 0; i < count; i++) numbers[i] = (real)(rng_uniform(&rng) - 0.5);
  return numbers;
}

/* ---- one weight in both forms ---- */

typedef struct Product {
  int64_t m, n, k;
  real *a, *b, *c, *scratch;
  uint16_t *narrow;
} Product;

/* Seconds of the fastest run; kind NARROW_NONE: floats. */
static double seconds(const Product *p, NarrowKind kind, bool transpose) {
  const int64_t ldb = transpose ? p->k : p->n;
  double best = 1e30;
  for (int run = 0; run < RUNS; run++) {
    const double begun = clock_now();
    if (kind == NARROW_NONE)
      matmul(false, transpose, p->m, p->n, p->k, 1, p->a, p->k, p->b, ldb, 0, p->c, p->n);
    else
      matmul_narrow(transpose, p->m, p->n, p->k, p->a, p->k, kind, p->narrow, ldb, false, p->c, p->n, p->scratch);
    const double taken = clock_now() - begun;
    best = taken < best ? taken : best;
  }
  return best;
}

static void print_product(const Product *p, bool transpose) {
  const double matrix = 1e-9 * (double)p->n * (double)p->k;
  printf("%4d x %5d x %5d %s", (int)p->m, (int)p->n, (int)p->k, transpose ? "W^T" : "W  ");
  for (int kind = NARROW_NONE; kind <= NARROW_BF16; kind++) {
    const double taken = seconds(p, (NarrowKind)kind, transpose);
    printf("%10.1f%8.1f", 2 * (double)p->m * matrix / taken, (kind == NARROW_NONE ? sizeof(real) : 2) * matrix / taken);
  }
  printf("\n");
}

static void print_products(void) {
  static const int64_t shapes[][3] = {{1, 2304, 768},  {1, 4096, 4096},  {1, 14336, 4096}, {4, 4096, 4096},
                                      {8, 4096, 4096}, {16, 4096, 4096}, {64, 4096, 4096}, {256, 4096, 4096}};
  printf("%-24s%18s%18s%18s\n%24s", "products, pool", "float", "half", "bfloat", "");
  for (int i = 0; i < 3; i++) printf("%10s%8s", "GFLOP/s", "GB/s");
  printf("\n");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Product p = {.m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2]};
    p.a = make_numbers(p.m * p.k), p.b = make_numbers(p.n * p.k), p.c = make_numbers(p.m * p.n);
    p.scratch = make_numbers(matmul_narrow_scratch());
    p.narrow = make((size_t)(p.n * p.k), sizeof *p.narrow);
    for (int transpose = 1; transpose >= 0; transpose--) print_product(&p, transpose);
    free(p.a), free(p.b), free(p.c), free(p.scratch), free(p.narrow);
  }
}

/* ---- a step of the loss, forward and backward ---- */

typedef struct Loss {
  Tensor x, table;
  int32_t *labels;
} Loss;

static double step(Tape *tape, Loss *loss) {
  const double begun = clock_now();
  Tensor *y = op_vocab_loss(tape, &loss->x, &loss->table, &(VocabLoss){.labels = loss->labels});
  if (y == NULL || (tape_recording(tape) && tape_backward(tape, y) != STATUS_OK)) {
    fprintf(stderr, "%s\n", status_message());
    exit(1);
  }
  const double taken = clock_now() - begun;
  tape_clear(tape);
  loss->x.grad = NULL, loss->x.grad_filled = false;
  return taken;
}

static void print_loss(int64_t rows, int64_t width, int64_t entries) {
  Arena *arena = arena_new((size_t)2 << 30);
  Tape *tape = arena ? tape_new(arena) : NULL;
  if (!tape) exit(1);
  Loss loss = {.x = {.dims = 2, .shape = {rows, width}, .value = make_numbers(rows * width), .needs_grad = true},
               .table = {.dims = 2, .shape = {entries, width}, .value = make_numbers(entries * width), .needs_grad = true}};
  loss.table.grad = make_numbers(entries * width), loss.table.grad_filled = true;
  loss.labels = make((size_t)rows, sizeof *loss.labels);
  double best[2] = {1e30, 1e30};
  for (int recording = 0; recording < 2; recording++)
    for (int run = 0; run < 2; run++) {
      tape_record(tape, recording);
      const double taken = step(tape, &loss);
      best[recording] = taken < best[recording] ? taken : best[recording];
    }
  const double product = 2e-9 * (double)rows * (double)width * (double)entries;
  printf("%5d rows, [%6d, %4d]  loss %7.1f ms %6.1f GFLOP/s   with gradients %7.1f ms %6.1f GFLOP/s   %5.0f MiB\n", (int)rows, (int)entries,
         (int)width, 1e3 * best[0], product / best[0], 1e3 * best[1], 3 * product / best[1], (double)tape_peak_bytes(tape) / (1 << 20));
  free(loss.x.value), free(loss.table.value), free(loss.table.grad), free(loss.labels);
  tape_free(tape);
  arena_free(arena);
}

/* ---- one token's attention ---- */

typedef struct Decoder {
  const char *name;
  int heads, kv_heads;
  int64_t head, in, groups; /* in 0: site kv */
} Decoder;

static double decode(Tape *tape, Tensor *q, const DecodeAttention *options) {
  double best = 1e30;
  for (int run = 0; run < 4 * RUNS; run++) {
    const double begun = clock_now();
    if (op_decode_attention(tape, q, options) == NULL) exit(1);
    const double taken = clock_now() - begun;
    best = taken < best ? taken : best;
    tape_clear(tape);
  }
  return best;
}

static void print_decode(const Decoder *d, int64_t rows, int64_t remote) {
  enum { ENTRIES = 1024 };
  Arena *arena = arena_new((size_t)256 << 20);
  Tape *tape = arena ? tape_new(arena) : NULL;
  if (!tape) exit(1);
  const int64_t kv = d->kv_heads * d->head, width = d->in ? d->in : kv;
  Tensor weight = {.dims = 2, .shape = {2 * kv, width}, .value = make_numbers(2 * kv * width)};
  Tensor q = {.dims = 3, .shape = {1, 1, d->heads * d->head}, .value = make_numbers(d->heads * d->head)};
  real *keys = make_numbers(rows * kv), *values = make_numbers(rows * kv), *book = make_numbers(ENTRIES * width);
  int32_t *codes = make((size_t)(remote * d->groups), sizeof *codes);
  for (int64_t i = 0; i < remote * d->groups; i++) codes[i] = (int32_t)(i * 7919 % ENTRIES);
  const DecodeCodes source = {.codes = codes, .codebook = book, .groups = d->groups, .entries = ENTRIES};
  DecodeAttention options = {.heads = d->heads, .kv_heads = d->kv_heads, .keys = keys, .values = values, .rows = rows, .remote = remote};
  if (d->in) {
    options.x = source;
    options.key = (DecodeProjection){&weight, NULL, {0, kv, false}};
    options.value = (DecodeProjection){&weight, NULL, {kv, kv, false}};
  } else {
    options.k = options.v = source;
  }
  printf("%-20s%6d rows%6d as codes%10.0f us\n", d->name, (int)rows, (int)remote, 1e6 * decode(tape, &q, &options));
  free(weight.value), free(q.value), free(keys), free(values), free(book), free(codes);
  tape_free(tape);
  arena_free(arena);
}

int main(void) {
  static const Decoder gpt2_x = {"GPT-2, site x", 12, 12, 64, 768, 32}, gpt2_kv = {"GPT-2, site kv", 12, 12, 64, 0, 32},
                       llama_kv = {"Llama-3-8B, site kv", 32, 8, 128, 0, 32};
  matmul_start();
  if (threads_start(0) != STATUS_OK) return 1;
  print_products();
  printf("\nnext-token loss, pool\n");
  print_loss(1024, 256, 4096);
  print_loss(256, 768, 50257);
  print_loss(512, 768, 50257);
  printf("\nattention of one token\n");
  print_decode(&gpt2_x, 1024, 0), print_decode(&gpt2_x, 256, 768);
  print_decode(&gpt2_kv, 256, 768), print_decode(&llama_kv, 256, 768);
  threads_stop();
  return 0;
}
