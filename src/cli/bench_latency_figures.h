/* The latency figures of the paper, from measured cases: speedup against bandwidth, devices and tokens, where the time goes, codebook
 * sizes, speedup over other strategies, and requests over a link whose rate changes. */
#ifndef CLI_BENCH_LATENCY_FIGURES_H
#define CLI_BENCH_LATENCY_FIGURES_H
#include "cli/bench_latency_cases.h"

#define LATENCY_FIGURES(X) X(bandwidth) X(devices) X(tokens) X(breakdown) X(codebook) X(baselines) X(trace)
typedef enum LatencyFigure {
#define LATENCY_FIGURE_ENUM(name) LATENCY_FIGURE_##name,
  LATENCY_FIGURES(LATENCY_FIGURE_ENUM)
#undef LATENCY_FIGURE_ENUM
      LATENCY_FIGURE_COUNT
} LatencyFigure;

/* One simulated case. */
typedef struct LatencyRow {
  LatencyCase of;
  bool calibrated;
  double mbit;                           /* of a link; 0: a trace */
  double second;                         /* of a trace: the end of the ten seconds counted */
  double latency, compute, wait, hidden; /* seconds, of the device that ends last; a share */
  double kilobytes;                      /* that it sent */
  double value;                          /* what the figure draws: a speedup, milliseconds, requests */
  double paper;                          /* the same as the paper prints it; 0: it does not */
  double single;                         /* seconds that one device takes for as many tokens */
  double share;                          /* of a core, the least that these measurements had */
  const char *note;                      /* about the paper's number; NULL */
} LatencyRow;

typedef struct LatencyRows {
  LatencyRow *list; /* [count], owned */
  int count, capacity;
} LatencyRows;

typedef struct LatencyPlan {
  LatencyBench *bench;
  double calibrated; /* scale of computation with which one device takes as long as asked for */
  double mbit;       /* of figures that draw something else than bandwidth */
  int64_t tokens;    /* likewise; 1,024 */
  int devices;       /* 4 */
  int parts;         /* 0: as a node would choose them */
  bool quick;        /* fewer devices, tokens and codebooks */
  bool paper;        /* model and links are the paper's: its numbers stand beside */
  uint64_t seed;     /* of the trace */
} LatencyPlan;

const char *bench_latency_figures_name(LatencyFigure figure);

/* Appends the figure's rows. */
Status bench_latency_figures_run(const LatencyPlan *plan, LatencyFigure figure, LatencyRows *rows);
void bench_latency_figures_release(LatencyRows *rows); /* accepts a zeroed one */

#endif
