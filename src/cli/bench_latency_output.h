/* A latency figure as files and as lines of text. */
#ifndef CLI_BENCH_LATENCY_OUTPUT_H
#define CLI_BENCH_LATENCY_OUTPUT_H
#include "cli/bench_latency_figures.h"

/* DIR/latency-NAME.csv with every simulated case and DIR/latency-NAME.png; both written beside and renamed. */
Status bench_latency_output_save(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory);

/* The figure's table; of a trace its means. */
void bench_latency_output_print(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows);

#endif
