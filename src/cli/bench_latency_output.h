/* A latency figure as files and as lines of text. */
#ifndef CLI_BENCH_LATENCY_OUTPUT_H
#define CLI_BENCH_LATENCY_OUTPUT_H
#include "cli/bench_latency_figures.h"

/* DIR/latency-NAME.csv with every simulated case and DIR/latency-NAME.png; both written beside and renamed. */
Status bench_latency_output_save(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory);

/* What is to be said about a row: that its strategy is a latency baseline, loss that is not modelled, a core that others shared, doubts
 * about the paper's number. Without commas; "": nothing. */
enum { BENCH_LATENCY_NOTE = 240 };
const char *bench_latency_output_note(const LatencyPlan *plan, const LatencyRow *row, char text[BENCH_LATENCY_NOTE]);

/* The figure's table; of a trace its means. */
void bench_latency_output_print(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows);

#endif
