/* The command peak: the figures at the head of every other benchmark, for each number of threads. */
#include "cli/bench_machine.h"
#include "base/threads.h"
#include "cli/bench_peak.h"
#include "cli/bench_run.h"
#include "nn/json_build.h"

static const BenchUsage USAGE = {"astra-bench peak [--threads N] [--json]",
                                 "Peak rates of matrix products and of memory, with 1, 2, 4... threads of the pool."};

enum { MAX_ROWS = 16 };

typedef struct MachineRow {
  int threads;
  BenchPeak peak;
} MachineRow;

static Status measure(int threads, MachineRow *row) {
  TRY(threads_start(threads));
  *row = (MachineRow){.threads = threads};
  TRY(bench_peak_memory(&row->peak));
  TRY(bench_peak_measure(&row->peak));
  return bench_peak_measure(&row->peak);
}

static Status print_text(const MachineRow *row, int rows) {
  bench_peak_print(&row[rows - 1].peak);
  printf("\n%8s", "threads");
  for (int i = 0; i < PEAK_NUMBERS; i++)
    if (row[0].peak.products[i].one > 0) printf("%8s GFLOP/s", bench_peak_numbers_name((PeakNumbers)i));
  printf("%12s%12s\n", "read GB/s", "copy GB/s");
  for (int r = 0; r < rows; r++) {
    const BenchPeak *peak = &row[r].peak;
    printf("%8d", row[r].threads);
    for (int i = 0; i < PEAK_NUMBERS; i++)
      if (row[0].peak.products[i].one > 0) printf("%16.1f", peak->products[i].all / 1e9);
    printf("%12.1f%12.1f\n", peak->read.all / 1e9, peak->copy.all / 1e9);
  }
  return STATUS_OK;
}

static json_t *row_json(const MachineRow *row) {
  json_t *object =
      json_pack("{s:i, s:f, s:f}", "threads", row->threads, "read", row->peak.read.all / 1e9, "copy", row->peak.copy.all / 1e9);
  for (int i = 0; object && i < PEAK_NUMBERS; i++)
    if (row->peak.products[i].one > 0)
      json_object_set_new(object, bench_peak_numbers_name((PeakNumbers)i), json_real(row->peak.products[i].all / 1e9));
  return object;
}

static Status print_json(const MachineRow *row, int rows) {
  json_t *object = json_object(), *list = json_array();
  if (object) bench_peak_json(&row[rows - 1].peak, object);
  for (int r = 0; r < rows; r++) json_build_append(&list, row_json(&row[r]));
  json_build_put(&object, "rates", list);
  return json_build_print(object);
}

Status bench_machine_run(int argc, char **argv) {
  const Option own[] = {{OPTION_GROUP, .help = "Measuring"}, {.kind = OPTION_GROUP}};
  BenchRun run;
  bool helped;
  TRY(bench_run_parse(&run, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(bench_run_start(&run));
  MachineRow row[MAX_ROWS];
  int rows = 0, all = threads_count();
  Status status = STATUS_OK;
  for (int threads = 1; threads < all && status == STATUS_OK; threads *= 2) status = measure(threads, &row[rows++]);
  if (status == STATUS_OK) status = measure(all, &row[rows++]);
  if (status == STATUS_OK) status = run.json ? print_json(row, rows) : print_text(row, rows);
  threads_stop();
  return status;
}
