/* What astra-bench latency draws: measured cases (bench_latency_cases.c), of which each (strategy, groups, devices, tokens, parts) is
 * measured once, on one core, and then simulated on any network at any speed; the paper's numbers (bench_latency_paper.c); and
 * what becomes of the rows of a figure (bench_latency_output.c). */
#ifndef CLI_BENCH_LATENCY_INTERNAL_H
#define CLI_BENCH_LATENCY_INTERNAL_H
#include "infer/plan/probe.h"
#include "infer/sim/measure.h"
#include "infer/sim/packet_work.h"
#include "infer/sim/simulate.h"
#include "infer/transport/netem.h"
#include "infer/weights.h"
#include "nn/kv_tables.h"
#include "nn/strategy.h"
#include <jansson.h>

/* The encoder that latency figures are about (12 blocks, width 768 as in the paper), with weights and codewords drawn at random: values do
 * not change the time. */

typedef struct LatencyModel {
  ModelConfig config;
  Weights weights; /* without codebooks */
  Codebook *books; /* [blocks] of the groups asked for last */
  int groups, entries;
  KvTables *tables; /* of those, where they fit; NULL */
} LatencyModel;

typedef struct LatencySize {
  int64_t width, blocks, heads, entries; /* MLP 4 times as wide; K */
  int64_t exchange_blocks;               /* AstraConfig */
} LatencySize;

Status bench_latency_model_open(LatencyModel *model, const LatencySize *size);

typedef struct LatencyCase {
  Strategy strategy;
  int groups;   /* 0 but for astra */
  int entries;  /* K, likewise */
  int devices;  /* 1 of single */
  int retained; /* blocks of bp-ag and bp-sp that devices compute together; 0 of others */
  int parts;
  int64_t tokens;
} LatencyCase;

/* The device alone, which every speedup is over and by which computation is calibrated: measured before all others and behind them. */
typedef struct LatencySingle {
  double first, last; /* seconds; last 0: not yet */
  double spread;      /* of the runs of either */
  double share;       /* of a core, the least that it had */
} LatencySingle;

typedef struct LatencyBench {
  LatencyModel model;
  int repeats, min_packets;
  Arena *arena;          /* of all measurements; owned */
  PacketWork work;       /* counted as computation */
  DeviceProfile profile; /* by which parts are chosen */
  bool measure_all;      /* each device by itself, also those that are alike */
  double table_bytes;
  const Reliability *reliability;     /* of codes */
  LinkOptions links;                  /* rate and overhead are set for each simulation */
  struct LatencyPredicted *predicted; /* owned; NULL: nothing was predicted yet */
  MeasureQuality quality;             /* the worst so far */
  int measured;                       /* devices */
  LatencySingle single;               /* at the number of tokens asked for first */
  int64_t warm_tokens; /* of the largest input that a single device was measured with: others take no more memory, and need no run
                        * for it to be touched */
  void (*progress)(const LatencyCase *wanted);
  struct LatencyMeasured *list; /* [count] */
  int count;
  size_t capacity;
} LatencyBench;

void bench_latency_cases_release(LatencyBench *bench); /* accepts a zeroed one; the model with it */

/* Seconds that one device takes by itself. again: it is measured once more, into bench->single.last, and takes the mean of both from now
 * on.
 */
Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, bool again, double *seconds);

/* trace NULL: at so many bits a second; else from `start` on in the trace. */
typedef struct LatencyLink {
  double bits_per_second;
  const LinkTrace *trace;
  double start;
} LatencyLink;

/* Measures what has not been measured. wanted->parts 0: they are chosen here, into as many as a node would cut its codes there, as plans
 * choose it (planner.h), from 1, 2, 4, 8; 1 where others than codes travel. *share: the least share of a core that the case's devices had
 * while they were measured. */
Status bench_latency_cases_run(LatencyBench *bench, LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result,
                               double *share);

/* The same for llama-3-8b, whose weights are too many to measure whole blocks: predicted (planner.h) from the speed of this device at the
 * products of its shapes. wanted->parts is chosen here, likewise. */
Status bench_latency_cases_predict(LatencyBench *bench, LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result);

/* Numbers that the paper prints about the encoder of 12 blocks and width 768, for charts beside ours. Mesh links; a GPU on which the single
 * device takes 99.9 ms for 1,024 tokens. */

/* The rates of its figures, Mbit/s. */
enum { LATENCY_RATES = 6 };
extern const double bench_latency_rates[LATENCY_RATES];

/* What was run. */
typedef struct PaperRun {
  int64_t width, blocks, heads, entries, tokens;
  double single; /* seconds that computation was scaled to */
  const LinkOptions *links;
} PaperRun;

/* Whether they are the paper's: a mesh of links that have a rate and nothing else. */
bool bench_latency_paper_links(const LinkOptions *links);

/* Whether it is what the paper measured, so that its numbers may stand beside: everything but what each figure varies. */
bool bench_latency_paper_applies(const PaperRun *run);

/* Of bp-* with one retained block. Speedup over the single device; 0: not printed. *note: what is to be said about it; "": nothing. */
double bench_latency_paper_speedup(Strategy strategy, int groups, int devices, int64_t tokens, double mbit, const char **note);

/* Milliseconds of ASTRA on four devices, 1,024 tokens, K codewords, and what of these it prints as communication; 0: not printed. */
double bench_latency_paper_milliseconds(int groups, int64_t entries, double mbit, double *sending);

/* Milliseconds of Llama-3-8B on four devices, 1,024 tokens; retained: of bp-ag, 4 or 8; 0: not printed. */
double bench_latency_paper_llama(Strategy strategy, int groups, int retained, double mbit);

/* Speedup of ASTRA with one group over another strategy on four devices, 1,024 tokens; 0: not printed. */
double bench_latency_paper_over(Strategy strategy, double mbit);

/* ---- Figures, and their rows ---- */

#define LATENCY_FIGURES(X) X(bandwidth) X(devices) X(tokens) X(breakdown) X(codebook) X(baselines) X(trace) X(llama)
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
  double latency, compute, wait, hidden; /* seconds, of the device that ends last; a share (simulate_hidden) */
  double kilobytes;                      /* that it sent; of Llama the device that sends most */
  double sending;                        /* seconds in which the busiest direction of its links carried packets; likewise */
  double value;                          /* what the figure draws: a speedup, milliseconds, requests */
  double paper;                          /* the same as the paper prints it; 0: it does not */
  double paper_sending;                  /* milliseconds of that which it says are communication; 0: it does not */
  double single;                         /* seconds that one device takes for as many tokens */
  double share;                          /* of a core, the least that these measurements had */
  const char *note;                      /* about the paper's number; NULL */
} LatencyRow;

typedef struct LatencyRows {
  LatencyRow *list; /* [count], owned */
  int count;
  size_t capacity;
} LatencyRows;

/* Strategies that codes are compared with. */
typedef struct Baseline {
  Strategy strategy;
  int retained;
} Baseline;

typedef struct LatencyPlan {
  LatencyBench *bench;
  Baseline others[2 * STRATEGY_COUNT]; /* each at most with few and with many retained blocks */
  int other_count;
  double calibrated; /* scale of computation with which one device takes as long as asked for; NaN: none was measured */
  double mbit;       /* of figures that draw something else than bandwidth */
  int64_t tokens;    /* likewise; 1,024 */
  int devices;       /* 4 */
  int parts;         /* 0: as a node would choose them */
  bool quick;        /* fewer devices, tokens and codebooks */
  bool paper;        /* model and links are the paper's: its numbers stand beside */
  uint64_t seed;     /* of the trace */
} LatencyPlan;

extern const char *const bench_latency_figures[LATENCY_FIGURE_COUNT]; /* their names */

/* Rates, devices, tokens and times of what is drawn, beside those of the options. */
enum {
  LATENCY_FAST_MBIT = 200, /* printed beside the rate asked for */
  LATENCY_PAPER_DEVICES = 4,
  LATENCY_LLAMA_TOKENS = 1024,
  LATENCY_LLAMA_MILLISECONDS = 4578 /* of one device of the paper */
};

/* DIR/latency-NAME.csv with every simulated case, DIR/latency-NAME.png and, where rows are of all rates, DIR/latency-NAME-bandwidth.png
 * against these; all written beside and renamed. */
Status bench_latency_output_save(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, const char *directory);

/* The figure's table; of a trace its means. Below it what is to be said about the paper's numbers, and about links that lose packets. */
void bench_latency_output_print(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows);

/* Appends an object for each row to the list; nothing of a trace. */
void bench_latency_output_rows(const LatencyPlan *plan, LatencyFigure figure, const LatencyRows *rows, json_t *list);

#endif
