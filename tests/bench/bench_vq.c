/* Milliseconds and GFLOP/s of vector quantisation at the shapes of ViT-Base and vit-cifar: assignment, moving averages, noise, one K-means
 * iteration and a k-means++ start. The median of several runs; not a test. GFLOP/s count the products alone: 2 rows W K for an
 * assignment, 2 rows W W/G for noise and for its moments. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/threads.h"
#include "vq/ema.h"
#include "vq/kmeans.c" /* its parts are timed one by one */
#include "vq/navq.h"
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 9 };

typedef struct Bench {
  int64_t rows, width, groups, entries;
  Codebook book;
  CodebookEma ema;
  Navq navq;
  KmeansStep step;
  Rng rng;
  real *x, *q; /* [rows, W] */
  int32_t *codes;
  void *scratch;
} Bench;

typedef void Body(Bench *bench);

static void require_ok(Status status) {
  if (status == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(1);
}

static void assign(Bench *b) { codebook_assign(&b->book, b->x, b->rows, b->codes, NULL, b->scratch); }

static void assign_distortion(Bench *b) {
  double distortion;
  codebook_assign(&b->book, b->x, b->rows, b->codes, &distortion, b->scratch);
}

static void lookup(Bench *b) { codebook_lookup(&b->book, b->codes, b->rows, b->q); }

static void ema(Bench *b) {
  const EmaOptions options = {0.99, 1e-5, 0.01};
  ema_update(&b->ema, &b->book, b->x, b->codes, b->rows, &options, &b->rng);
}

static void noise(Bench *b) { navq_sample(&b->navq, 1, 1, 1, b->rows, b->q, b->scratch); }

/* With the moments of one row, which cost next to nothing. */
static void factorise(Bench *b) {
  b->navq.refresh = 1;
  navq_update(&b->navq, b->x, b->q, 1, b->scratch);
}

static void moments(Bench *b) {
  b->navq.updates = 1, b->navq.refresh = 16; /* not one that factorises */
  navq_update(&b->navq, b->x, b->q, b->rows, b->scratch);
}

/* Lloyd's iteration without its empty clusters, whose repair depends on the points. */
static void iterate(Bench *b) {
  double distortion;
  kmeans_step_clear(&b->step);
  kmeans_step_move(&b->step, b->x, b->codes, b->rows, false);
  codebook_assign(&b->book, b->x, b->rows, b->codes, &distortion, b->scratch);
}

static void start(Bench *b) { require_ok(start_centres(&b->book, b->x, b->rows, KMEANS_GREEDY, 1, 0)); }

static int ascending(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

static void measure(Bench *b, const char *name, Body *body, double flops) {
  double seconds[RUNS];
  body(b);
  for (int i = 0; i < RUNS; i++) {
    double begun = clock_now();
    body(b);
    seconds[i] = clock_now() - begun;
  }
  qsort(seconds, RUNS, sizeof *seconds, ascending);
  double median = seconds[RUNS / 2];
  printf("  %-24s %9.2f ms", name, median * 1e3);
  if (flops > 0) printf("  %7.1f GFLOP/s", flops / median * 1e-9);
  printf("\n");
}

static void fill(real *x, int64_t count, Rng *rng) {
  for (int64_t i = 0; i < count; i++) x[i] = (real)rng_normal(rng);
}

static void run(int64_t rows, int64_t width, int64_t groups, int64_t entries) {
  Bench b = {.rows = rows, .width = width, .groups = groups, .entries = entries};
  rng_init(&b.rng, 1, 1);
  require_ok(codebook_init(&b.book, groups, entries, width, NULL));
  require_ok(navq_init(&b.navq, groups, width, NOISE_FULL));
  size_t assign_bytes = codebook_assign_scratch(&b.book, rows), noise_bytes = navq_scratch(&b.navq, rows);
  b.x = malloc((size_t)(rows * width) * sizeof *b.x);
  b.q = malloc((size_t)(rows * width) * sizeof *b.q);
  b.codes = malloc((size_t)(rows * groups) * sizeof *b.codes);
  b.scratch = malloc(assign_bytes > noise_bytes ? assign_bytes : noise_bytes);
  if (!b.x || !b.q || !b.codes || !b.scratch) require_ok(status_set(STATUS_NO_MEMORY, "no memory"));
  fill(b.x, rows * width, &b.rng);
  fill(b.book.codewords, entries * width, &b.rng);
  codebook_refresh(&b.book);
  require_ok(ema_init(&b.ema, &b.book, (double)rows / (double)entries));
  require_ok(kmeans_step_init(&b.step, &b.book, rows));
  printf("%d rows, width %d, %d groups, %d entries, %d threads\n", (int)rows, (int)width, (int)groups, (int)entries, threads_count());
  double products = 2.0 * (double)(rows * width) * (double)entries, small = 2.0 * (double)(rows * width) * (double)(width / groups);
  measure(&b, "assign", assign, products);
  measure(&b, "assign + distortion", assign_distortion, products);
  measure(&b, "lookup", lookup, 0);
  measure(&b, "ema update", ema, 0);
  measure(&b, "noise moments", moments, small);
  measure(&b, "noise factorisation", factorise, 0);
  measure(&b, "noise sample", noise, small);
  measure(&b, "K-means iteration", iterate, products);
  measure(&b, "k-means++ start", start, 0);
  free(b.x);
  free(b.q);
  free(b.codes);
  free(b.scratch);
  kmeans_step_release(&b.step);
  ema_release(&b.ema);
  navq_release(&b.navq);
  codebook_release(&b.book);
}

int main(void) {
  matmul_start();
  require_ok(threads_start(0));
  run(1576, 768, 1, 1024);
  run(1576, 768, 16, 1024);
  run(1576, 768, 32, 1024);
  run(8192, 192, 8, 1024);
  threads_stop();
  return 0;
}
