/* See bench_run.h. */
#include "cli/bench_run.h"
#include "autograd/kernels/matmul.h"
#include "base/threads.h"
#include "cli/cli.h"
#include <string.h>

enum { DEFAULT_SEED = 42 };

Status bench_run_parse(BenchRun *run, const Option *own, const BenchUsage *usage, int argc, char **argv, bool *helped) {
  *run = (BenchRun){.seed = DEFAULT_SEED};
  const Option shared[] = {
      {OPTION_INT, "seed", 's', &run->seed, "N", .least = 0, .most = INT32_MAX, .help = "of random weights and inputs"},
      {OPTION_INT, "threads", 't', &run->threads, "N", .least = 0, .most = 256, .help = "compute threads; 0: one per core"},
      {OPTION_TEXT, "backend", 0, &run->backend, "NAME", .help = CLI_BACKEND_HELP},
      {OPTION_FLAG, "json", 'j', &run->json, .help = "one JSON object on stdout, and nothing else there"},
      {.kind = OPTION_GROUP}};
  Option options[CLI_OPTIONS_MOST];
  size_t count = 0;
  while (own[count].kind != OPTION_GROUP || own[count].help != NULL) count++;
  memcpy(options, own, count * sizeof *own);
  memcpy(options + count, shared, sizeof shared);
  *helped = cli_help_wanted(options, argc, argv);
  if (!*helped) return cli_parse(options, argc, argv);
  options_help(options, usage->line, usage->about, stdout);
  return STATUS_OK;
}

Status bench_run_start(const BenchRun *run) {
  TRY(cli_check_kernels(run->backend));
  TRY(threads_start((int)run->threads));
  matmul_reserve();
  return STATUS_OK;
}
