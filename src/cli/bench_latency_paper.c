/* The paper's numbers, see bench_latency_internal.h: its figures of speedup where the text names a value, its tables of milliseconds at 200
 * Mbit/s and of codebook sizes (computing plus communicating), that of speedups over baselines, and that of Llama-3-8B. */
#include "cli/bench_latency_internal.h"
#include <math.h>

bool bench_latency_paper_links(const LinkOptions *links) {
  return links->topology == LINK_MESH && links->latency == 0 && links->jitter == 0 && links->loss == 0;
}

bool bench_latency_paper_applies(const PaperRun *run) {
  bool model = run->width == 768 && run->blocks == 12 && run->heads == 12 && run->entries == 1024;
  return model && bench_latency_paper_links(run->links) && run->tokens == 1024 && fabs(run->single - 0.0999) < 1e-6;
}

typedef struct Printed {
  Strategy strategy;
  int groups, devices;
  int64_t tokens;
  double mbit, speedup;
} Printed;

static const Printed printed[] = {
    {STRATEGY_ASTRA, 1, 4, 1024, 10, 2.65},          {STRATEGY_ASTRA, 16, 4, 1024, 10, 1.26},
    {STRATEGY_BP_SP, 0, 4, 1024, 10, 0.17},          {STRATEGY_ASTRA, 1, 4, 1024, 20, 2.74},
    {STRATEGY_ASTRA, 32, 4, 1024, 20, 1.27},         {STRATEGY_ASTRA, 1, 4, 1024, 200, 99.9 / 36.7},
    {STRATEGY_ASTRA, 16, 4, 1024, 200, 99.9 / 41.0}, {STRATEGY_ASTRA, 32, 4, 1024, 200, 99.9 / 44.5},
    {STRATEGY_ASTRA, 1, 2, 1024, 20, 1.72},          {STRATEGY_ASTRA, 1, 8, 1024, 20, 3.69},
    {STRATEGY_ASTRA, 1, 4, 512, 20, 1.98},           {STRATEGY_BP_AG, 0, 4, 512, 20, 0.25},
};

double bench_latency_paper_speedup(Strategy strategy, int groups, int devices, int64_t tokens, double mbit, const char **note) {
  *note = "";
  for (size_t i = 0; i < sizeof printed / sizeof *printed; i++) {
    const Printed *p = &printed[i];
    if (p->strategy != strategy || p->groups != groups || p->devices != devices || p->tokens != tokens || p->mbit != mbit) continue;
    if (strategy == STRATEGY_BP_SP && mbit == 10) *note = "paper: its text; its table of speedups over baselines implies 0.09";
    return p->speedup;
  }
  return 0;
}

double bench_latency_paper_milliseconds(int groups, int64_t entries, double mbit, double *sending) {
  static const struct {
    int groups, entries;
    double mbit, computing, sending; /* sending 0: both are in computing */
  } table[] = {{1, 1024, 200, 36.7, 0},     {16, 1024, 200, 41.0, 0},     {32, 1024, 200, 44.5, 0},    {32, 256, 100, 38.81, 2.62},
               {32, 512, 100, 38.88, 2.78}, {32, 1024, 100, 40.97, 3.27}, {32, 2048, 100, 45.59, 3.60}};
  *sending = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (table[i].groups != groups || table[i].entries != entries || table[i].mbit != mbit) continue;
    *sending = table[i].sending;
    return table[i].computing + table[i].sending;
  }
  return 0;
}

const double bench_latency_rates[LATENCY_RATES] = {10, 20, 50, 100, 200, 500};

static const double over[STRATEGY_COUNT][LATENCY_RATES] = {
    [STRATEGY_TP] = {342.74, 177.89, 73.14, 37.19, 19.02, 8.05},
    [STRATEGY_SP] = {171.82, 89.41, 37.05, 19.08, 9.99, 4.51},
    [STRATEGY_BP_AG] = {15.25, 8.41, 4.07, 2.58, 1.83, 1.37},
    [STRATEGY_BP_SP] = {29.37, 15.66, 6.95, 3.96, 2.45, 1.53},
};

double bench_latency_paper_over(Strategy strategy, double mbit) {
  for (int i = 0; i < LATENCY_RATES; i++)
    if (bench_latency_rates[i] == mbit) return over[strategy][i];
  return 0;
}

double bench_latency_paper_llama(Strategy strategy, int groups, int retained, double mbit) {
  static const struct {
    Strategy strategy;
    int groups, retained;
    double seconds[LATENCY_RATES];
  } table[] = {{STRATEGY_TP, 0, 0, {430.952, 216.291, 87.449, 44.499, 23.025, 10.140}},
               {STRATEGY_SP, 0, 0, {28.256, 14.939, 6.888, 4.215, 2.857, 2.052}},
               {STRATEGY_BP_AG, 0, 4, {4.642, 3.047, 2.085, 1.753, 1.586, 1.485}},
               {STRATEGY_BP_AG, 0, 8, {8.011, 4.780, 2.773, 2.101, 1.762, 1.561}},
               {STRATEGY_ASTRA, 1, 0, {1.563, 1.549, 1.547, 1.545, 1.541, 1.540}},
               {STRATEGY_ASTRA, 16, 0, {1.661, 1.659, 1.595, 1.572, 1.559, 1.548}},
               {STRATEGY_ASTRA, 32, 0, {1.940, 1.796, 1.661, 1.630, 1.603, 1.583}}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    for (int r = 0; r < LATENCY_RATES; r++)
      if (table[i].strategy == strategy && table[i].groups == groups && table[i].retained == retained && bench_latency_rates[r] == mbit)
        return 1e3 * table[i].seconds[r];
  return 0;
}
