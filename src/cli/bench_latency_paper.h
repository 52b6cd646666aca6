/* Numbers that the paper prints about the encoder of 12 blocks and width 768, for charts beside ours. Mesh links; a GPU on which the single
 * device takes 99.9 ms for 1,024 tokens. */
#ifndef CLI_BENCH_LATENCY_PAPER_H
#define CLI_BENCH_LATENCY_PAPER_H
#include "infer/wire/link_model.h"
#include "nn/strategy.h"

/* What was run. */
typedef struct PaperRun {
  int64_t width, blocks, heads, entries, tokens, retained;
  double single; /* seconds that computation was scaled to */
  const LinkOptions *links;
} PaperRun;

/* Whether it is what the paper measured, so that its numbers may stand beside: everything but what each figure varies. */
bool bench_latency_paper_applies(const PaperRun *run);

/* Speedup over the single device; 0: not printed. */
double bench_latency_paper_speedup(Strategy strategy, int groups, int devices, int64_t tokens, double mbit);

/* What is to be said about that number; "": nothing. */
const char *bench_latency_paper_note(Strategy strategy, int groups, int devices, int64_t tokens, double mbit);

/* Milliseconds of ASTRA on four devices, 1,024 tokens, K codewords; 0: not printed. */
double bench_latency_paper_milliseconds(int groups, int64_t entries, double mbit);

/* Speedup of ASTRA with one group over another strategy on four devices, 1,024 tokens; 0: not printed. */
double bench_latency_paper_over(Strategy strategy, double mbit);

#endif
