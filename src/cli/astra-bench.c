/* astra-bench: measurements of our own. Its commands are in files of their own (bench.h). */
#include "autograd/kernels/matmul.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include <stdio.h>

static const CliCommand *const COMMANDS[] = {&bench_step_command,
                                             &bench_forward_command,
                                             &bench_decode_command,
                                             &bench_kmeans_command,
                                             &bench_op_command,
                                             &bench_quantize_command,
                                             &bench_peak_command,
                                             &bench_scaling_command,
                                             &bench_accuracy_command,
                                             &bench_fpar_command,
                                             &bench_class_token_command,
                                             &bench_latency_command,
                                             NULL};

static void help(FILE *stream) {
  fputs("usage: astra-bench COMMAND [options]\nMeasures this toolkit on this machine.\n\nCommands\n", stream);
  cli_commands_help(COMMANDS, stream);
  fputs("\n'astra-bench COMMAND --help' prints its options.\n", stream);
}

int main(int argc, char **argv) {
  matmul_start();
  return cli_run(argc, argv, &(CliProgram){.name = "astra-bench", .commands = COMMANDS, .help = help});
}
