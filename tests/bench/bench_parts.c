/* A block of a device whose rows are cut into S parts (nn/block.c) against the whole: ViT-Base, four devices of 256 tokens, keys and
 * values of the others' rows by products or ready. No network: what parts cost, not what they hide. Best of several runs in time of one
 * thread; not a test. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "bench_model.h"
#include "nn/model.h"
#include <stdio.h>
#include <stdlib.h>

enum { DEVICES = 4, TOKENS = 1024, BLOCKS = 3, RUNS = 5 };

/* Hands over rows that are always the same; [TOKENS, D] is enough for any part. */
typedef struct Still {
  Exchange exchange; /* first */
  const real *rows;
  int64_t width;
  bool ready;
} Still;

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)self, (void)tape, (void)layout, (void)block, (void)part, (void)h;
  return STATUS_OK;
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  const Still *still = (Still *)self;
  ExchangeRun *run = tape_alloc(tape, DEVICES * sizeof *run);
  int64_t runs = 0, total = 0;
  (void)block;
  if (run == NULL) return tape_status(tape);
  for (int d = 1; d < DEVICES; d++) { /* this one is device 0 */
    int64_t first, tokens;
    layout_part_shared(layout, d, still->exchange.parts, part, &first, &tokens);
    run[runs++] = (ExchangeRun){layout->device_shared[d] - layout->device_shared[1] + first, tokens};
    total += tokens;
  }
  Tensor *given = tape_constant(tape, 3, (int64_t[]){1, total, still->width}, still->rows);
  rows[0] = still->ready ? (ExchangeRows){.runs = runs, .run = run, .k = given, .v = given}
                         : (ExchangeRows){.runs = runs, .run = run, .x = given};
  return tape_status(tape);
}

/* Milliseconds of a block, the fastest run. */
static double time_block(Model *model, Tape *tape, const TokenLayout *layout, Still *still) {
  double best = 1e30;
  for (int run = 0; run <= RUNS; run++) { /* the first one touches the memory */
    Tensor *rows = tape_constant(tape, 3, (int64_t[]){1, layout->rows, still->width}, still->rows);
    double begun = clock_spent();
    model_encode(model, tape, &(ModelInput){.rows = rows, .batch = 1}, layout, &still->exchange, MODEL_ROWS_ALL);
    double taken = clock_spent() - begun;
    must(tape_status(tape));
    if (run > 0 && taken < best) best = taken;
    tape_clear(tape);
  }
  return 1e3 * best / BLOCKS;
}

int main(void) {
  const int64_t counts[DEVICES] = {TOKENS / DEVICES, TOKENS / DEVICES, TOKENS / DEVICES, TOKENS / DEVICES};
  matmul_start();
  Model *model = make_model(BLOCKS);
  int64_t width = model_config(model)->width;
  TokenLayout layout = {0};
  Arena *arena = arena_new((size_t)1 << 32);
  Tape *tape = arena ? tape_new(arena) : NULL;
  real *rows = malloc((size_t)((TOKENS + 1) * width) * sizeof *rows);
  if (tape == NULL || rows == NULL) must(status_set(STATUS_NO_MEMORY, "no memory"));
  must(layout_build(&layout, TOKENS, DEVICES, counts, NULL, CLASS_DISTRIBUTED, 0));
  tape_record(tape, false);
  Rng rng;
  rng_init(&rng, 2, 0);
  for (int64_t i = 0; i < (TOKENS + 1) * width; i++) rows[i] = (real)rng_normal(&rng);
  printf("%6s%14s%10s%16s%10s\n", "parts", "products ms", "of whole", "keys ready ms", "of whole");
  double whole[2] = {0};
  for (int parts = 1; parts <= 8; parts *= 2) {
    printf("%6d", parts);
    for (int ready = 0; ready < 2; ready++) {
      Still still = {.exchange = {.begin = begin, .finish = finish, .parts = parts}, .rows = rows, .width = width, .ready = ready};
      double taken = time_block(model, tape, &layout, &still);
      if (parts == 1) whole[ready] = taken;
      printf("%*.2f%10.2f", ready ? 16 : 14, taken, taken / whole[ready]);
    }
    printf("\n");
  }
  free(rows);
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
  model_free(model);
  return 0;
}
