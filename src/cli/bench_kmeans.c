/* The command kmeans: the iterations of a K-means fit (vq/kmeans.h), timed one by one from its reports, and the search for the nearest
 * codewords alone. Samples are random: normal numbers around random centres, so that clusters are of different sizes and none is empty by
 * construction, and iterations do not end before they are wanted. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "nn/json_build.h"
#include "vq/kmeans.h"
#include <stdlib.h>
#include <string.h>

static const BenchUsage USAGE = {"astra-bench kmeans [--samples N] [--width D] [--entries K] [--groups G] [options]",
                                 "Times the iterations of K-means on random samples, and the search for nearest codewords alone."};

enum { MAX_ITERATIONS = 10000, SEARCHES = 5 };

typedef struct KmeansCommand {
  int64_t samples, width, entries, groups, iterations;
  const char *data;
  BenchRun run;
} KmeansCommand;

typedef struct KmeansBench {
  const KmeansCommand *command;
  Codebook book;
  real *samples;   /* [N, D] */
  double *seconds; /* [iterations]: of each */
  int64_t count;
  double begun, start; /* the iteration under way; seconds of the start, which ends with the first assignment */
  BenchTiming iteration, search;
  double distortion, resident;
  BenchPeak peak;
} KmeansBench;

/* ---------------------------------------------------------------- samples */

static Status draw_samples(KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  Rng rng;
  rng_init(&rng, (uint64_t)c->run.seed, 0);
  real *centres = malloc((size_t)(c->entries * c->width) * sizeof *centres);
  if (centres == NULL) return status_no_memory(NULL, "random centres");
  for (int64_t i = 0; i < c->entries * c->width; i++) centres[i] = (real)rng_normal(&rng);
  for (int64_t n = 0; n < c->samples; n++) {
    const real *centre = centres + (int64_t)rng_below(&rng, (uint64_t)c->entries) * c->width;
    for (int64_t i = 0; i < c->width; i++) bench->samples[n * c->width + i] = centre[i] + (real)rng_normal(&rng);
  }
  free(centres);
  return STATUS_OK;
}

/* float32, row-major, [samples, width]: what another program has drawn. */
static Status read_samples(KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  size_t count = (size_t)(c->samples * c->width);
  FILE *file = fopen(c->data, "rb");
  if (file == NULL) return status_set(STATUS_NOT_FOUND, "%s: cannot be read", c->data);
  bool whole = fread(bench->samples, sizeof *bench->samples, count, file) == count && fgetc(file) == EOF;
  fclose(file);
  if (whole) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: not %lld x %lld numbers of 4 bytes, as --samples and --width say", c->data, (long long)c->samples,
                    (long long)c->width);
}

static Status open_bench(KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  TRY(codebook_init(&bench->book, c->groups, c->entries, c->width, NULL));
  bench->samples = malloc((size_t)(c->samples * c->width) * sizeof *bench->samples);
  bench->seconds = calloc((size_t)c->iterations, sizeof *bench->seconds);
  if (!bench->samples || !bench->seconds) return status_set(STATUS_NO_MEMORY, "no memory for %lld samples", (long long)c->samples);
  return c->data ? read_samples(bench) : draw_samples(bench);
}

static void close_bench(KmeansBench *bench) {
  codebook_release(&bench->book);
  free(bench->samples);
  free(bench->seconds);
}

/* ---------------------------------------------------------------- measuring */

static void note_iteration(void *context, int restart, int iteration, double distortion) {
  KmeansBench *bench = context;
  double now = clock_now();
  (void)restart;
  if (iteration == 0)
    bench->start = now - bench->begun;
  else if (bench->count < bench->command->iterations)
    bench->seconds[bench->count++] = now - bench->begun;
  bench->distortion = distortion;
  bench->begun = now;
}

static Status measure_fit(KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  KmeansOptions options;
  KmeansResult result;
  kmeans_defaults(&options);
  options.start = KMEANS_RANDOM;
  options.iterations = (int)c->iterations;
  options.seed = (uint64_t)c->run.seed;
  options.report = note_iteration;
  options.context = bench;
  bench->begun = clock_now();
  TRY(kmeans_fit(&bench->book, bench->samples, c->samples, &options, &result));
  if (bench->count == 0) return status_set(STATUS_BAD_VALUE, "K-means had converged before an iteration; take more samples");
  bench->iteration = bench_timing_of(bench->seconds, bench->count);
  return STATUS_OK;
}

static Status measure_search(KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  double seconds[SEARCHES];
  int32_t *codes = malloc((size_t)(c->samples * c->groups) * sizeof *codes);
  void *scratch = malloc(codebook_assign_scratch(&bench->book, c->samples));
  bool room = codes && scratch;
  codebook_refresh(&bench->book);
  for (int i = -1; room && i < SEARCHES; i++) { /* the first touches memory */
    double begun = clock_now();
    codebook_assign(&bench->book, bench->samples, c->samples, codes, NULL, scratch);
    if (i >= 0) seconds[i] = clock_now() - begun;
  }
  free(codes);
  free(scratch);
  if (!room) return status_no_memory(NULL, "codes");
  bench->search = bench_timing_of(seconds, SEARCHES);
  return STATUS_OK;
}

static Status measure(KmeansBench *bench) {
  TRY(bench_peak_memory(&bench->peak));
  TRY(bench_peak_measure(&bench->peak));
  TRY(open_bench(bench));
  memory_peak_reset();
  TRY(measure_fit(bench));
  bench->resident = memory_peak();
  TRY(measure_search(bench));
  return bench_peak_measure(&bench->peak);
}

/* ---------------------------------------------------------------- what is printed */

/* Of distances as a product: 2 N D K. */
static double flops(const KmeansCommand *c) { return 2.0 * (double)c->samples * (double)c->width * (double)c->entries; }
static double vectors(const KmeansCommand *c) { return (double)c->samples * (double)c->groups; }

static void print_row(const char *name, const KmeansBench *bench, const BenchTiming *timing) {
  const KmeansCommand *c = bench->command;
  double rate = flops(c) / timing->median;
  printf("  %-24s %12.2f %12.2f %8.1f %14.2f %10.1f %8.1f\n", name, 1e3 * timing->median, 1e3 * timing->min, 100 * timing->spread,
         vectors(c) / timing->median / 1e6, rate / 1e9, 100 * rate / bench_peak_products(&bench->peak, PEAK_F32));
}

static Status print_text(const KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  bench_peak_print(&bench->peak);
  printf(
      "K-means: %lld sample%s of width %lld, %lld group%s of %lld codewords, %lld iteration%s after a start of %.1f ms; distortion %.6g\n",
      (long long)c->samples, text_plural(c->samples), (long long)c->width, (long long)c->groups, text_plural(c->groups),
      (long long)c->entries, (long long)bench->count, text_plural(bench->count), 1e3 * bench->start, bench->distortion);
  printf("%-26s %12s %12s %8s %14s %10s %8s\n", "", "ms, median", "ms, min", "+-%", "M vectors/s", "GFLOP/s", "% best");
  print_row("iteration", bench, &bench->iteration);
  print_row("search alone", bench, &bench->search);
  printf("  peak resident MiB        %12.1f\n", bench->resident / 1048576);
  return STATUS_OK;
}

static json_t *timing_json(const KmeansBench *bench, const BenchTiming *timing) {
  const KmeansCommand *c = bench->command;
  json_t *object = json_object();
  if (object == NULL) return NULL;
  bench_timing_json(timing, object);
  json_object_set_new(object, "vectors_per_second", json_real(vectors(c) / timing->median));
  json_object_set_new(object, "gflop_per_second", json_real(flops(c) / timing->median / 1e9));
  return object;
}

static Status print_json(const KmeansBench *bench) {
  const KmeansCommand *c = bench->command;
  json_t *object =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "samples", (json_int_t)c->samples, "width", (json_int_t)c->width, "groups",
                (json_int_t)c->groups, "entries", (json_int_t)c->entries, "iterations", (json_int_t)bench->count, "start_milliseconds",
                1e3 * bench->start, "distortion", bench->distortion, "resident_mib", bench->resident / 1048576);
  if (object) bench_peak_json(&bench->peak, object);
  json_build_put(&object, "iteration", timing_json(bench, &bench->iteration));
  json_build_put(&object, "search", timing_json(bench, &bench->search));
  return json_build_print(object);
}

/* ---------------------------------------------------------------- the command */

static Status run_kmeans(int argc, char **argv) {
  KmeansCommand c = {.samples = 50000, .width = 768, .entries = 1024, .groups = 1, .iterations = 5};
  const Option own[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_INT, "samples", 0, &c.samples, "N", .min = 2, .max = 1e9, .help = "vectors to cluster"},
      {OPTION_INT, "width", 0, &c.width, "D", .min = 1, .max = 65536, .help = "dimension of a vector"},
      {OPTION_INT, "entries", 'k', &c.entries, "K", .min = CODEBOOK_MIN, .max = CODEBOOK_MAX, .help = "centres per group"},
      {OPTION_INT, "groups", 'g', &c.groups, "G", .min = 1, .max = 65536, .help = "groups per vector"},
      {OPTION_INT, "iterations", 0, &c.iterations, "N", .min = 1, .max = MAX_ITERATIONS, .help = "measured iterations"},
      {OPTION_TEXT, "data", 0, &c.data, "FILE", .help = "read samples from a file of float32 instead of drawing them"},
      {OPTION_GROUP, .help = "Measuring"},
      {.kind = OPTION_GROUP}};
  bool helped;
  TRY(bench_run_parse(&c.run, NULL, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  if (c.width % c.groups != 0)
    return status_set(STATUS_BAD_USAGE, "--groups %lld does not divide --width %lld", (long long)c.groups, (long long)c.width);
  if (c.samples < c.entries)
    return status_set(STATUS_BAD_USAGE, "--samples %lld: at least as many as --entries, %lld, are needed", (long long)c.samples,
                      (long long)c.entries);
  TRY(bench_run_start(&c.run));
  KmeansBench bench = {.command = &c};
  Status status = measure(&bench);
  if (status == STATUS_OK) status = c.run.json ? print_json(&bench) : print_text(&bench);
  close_bench(&bench);
  threads_stop();
  return status;
}

const CliCommand bench_kmeans_command = {"kmeans", "time the iterations of K-means", run_kmeans};
