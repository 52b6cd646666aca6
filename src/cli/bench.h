/* What the commands of astra-bench share: options and start of a run, times of repetitions, what the machine does at best, profiles as
 * tables; and the commands themselves. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H
#include "autograd/tape.h"
#include "autograd/tensor.h"
#include "base/options.h"
#include "base/rng.h"
#include "base/status.h"
#include "cli/cli.h"
#include "nn/lowbit_weights.h"
#include "nn/model.h"
#include "train/session.h"
#include <jansson.h>
#include <stdint.h>

/* How a benchmark runs: the options that all commands of astra-bench share, and the start of what they ask for. */

typedef struct BenchRun {
  int64_t seed, threads;
  const char *backend;
  bool json;
} BenchRun;

enum { BENCH_REPEATS_MAX = 100000 };

typedef enum BenchWeights { BENCH_FP32, BENCH_INT8, BENCH_INT4 } BenchWeights;

/* A model whose inference is timed, and how. --model is a row of the command's own, which names those that it is for. */
typedef struct BenchModel {
  const char *name;       /* a preset, or a checkpoint's path; NULL: not given */
  int weights, precision; /* BenchWeights, TrainPrecision */
  bool profile;
} BenchModel;

typedef struct BenchInference {
  Model *model;
  LowbitWeights *lowbit; /* NULL: weights in float */
  Arena *arena;
  Tape *tape; /* does not record */
} BenchInference;

typedef struct BenchUsage {
  const char *line, *about; /* of --help */
} BenchUsage;

/* Parses argv by the rows `own` (ends with an entry whose kind is OPTION_GROUP and help is NULL) and, behind them, those of `model`
 * (--precision, --weights and --profile; NULL: the command runs no model) and of `run`, which is set to its defaults first: --seed,
 * --threads, --backend and --json. BAD_USAGE where the model has no name. *helped: --help was asked for and is printed; nothing is left to
 * do. */
Status bench_run_parse(BenchRun *run, BenchModel *model, const Option *own, const BenchUsage *usage, int argc, char **argv, bool *helped);

/* Checks the kernels, chooses the library of products and starts the pool; threads_stop ends it. */
Status bench_run_start(const BenchRun *run);

/* The configuration of options->name; a preset of a language model is to predict tokens, and not classes. For config_release. */
Status bench_model_config(const BenchModel *options, ModelConfig *config);

/* Random weights of that configuration, of the numbers that are asked for. close is fine on a zeroed one, and needed after a failure. */
Status bench_model_open(BenchInference *inference, const BenchModel *options, const ModelConfig *config, int64_t seed);
void bench_model_close(BenchInference *inference);

/* Chooses the precision of products and activations, and packs the weights for it, as a session of astra-train does. */
Status bench_model_pack(BenchInference *inference, const BenchModel *options);

const char *bench_weights_name(const BenchModel *options);

/* [count], from a normal distribution; to be freed. NULL when out of memory. */
real *bench_random_numbers(int64_t count, Rng *rng);

/* Times of repetitions of the same work, summed up. */

typedef struct BenchTiming {
  double median, min; /* seconds */
  double spread;      /* half the range of the middle half, as a part of the median */
} BenchTiming;

/* seconds [count >= 1] are sorted. */
BenchTiming bench_timing_of(double *seconds, int64_t count);

/* As milliseconds, milliseconds_min and spread_percent. */
void bench_timing_json(const BenchTiming *timing, json_t *object);

/* What this machine does at best, measured in the same run as whatever is compared with it: the rate of matrix products of the sizes that a
 * vision transformer has, and the rate of memory beyond the caches. */

typedef enum PeakNumbers { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_NUMBERS } PeakNumbers;

typedef struct PeakRate {
  double one, all; /* on the calling thread alone; on the whole pool */
} PeakRate;

typedef struct BenchPeak {
  PeakRate products[PEAK_NUMBERS]; /* FLOP/s, a multiply-add counts as two; 0: there are no such products here */
  PeakRate read, copy;             /* bytes/s; a copied byte counts twice, as it is read and written */
} BenchPeak;

/* Raises the rates of products to the best of some runs: measure before and after a benchmark, as a shared machine changes its speed. */
Status bench_peak_measure(BenchPeak *peak);
/* Likewise of memory, for which 128 MiB are touched and given back; memory_peak (base/memory.h) starts anew, so call it first. */
Status bench_peak_memory(BenchPeak *peak);

/* The larger of `one` and `all`; that of float where there are no such products, since they run as float then. */
double bench_peak_products(const BenchPeak *peak, PeakNumbers numbers);
const char *bench_peak_numbers_name(PeakNumbers numbers); /* "fp32" */

/* The head of a table: threads, kernels, peak rates; two lines that begin with "machine:" and "memory:". */
void bench_peak_print(const BenchPeak *peak);
/* The same as members of a JSON object: threads, kernels, blas, peak_gflops... */
void bench_peak_json(const BenchPeak *peak, json_t *object);

/* Sessions whose samples are drawn. */

/* Random tokens for train->model; or images of the size that it takes, so that no time goes into resizing them, and whose `name`, kept by
 * the caller, is the data set's. Weights are random. */
enum { BENCH_NAME = 96 };
Status bench_session_samples(TrainOptions *train, char name[BENCH_NAME]);

/* A session for steps, or forward passes alone: random weights; codebooks of random normal numbers, which is how activations after a
 * LayerNorm lie. The options name a synthetic data set or say `drawn`. Close it with session_close, after the benches; nothing is open
 * after a failure. */
Status bench_session_open(Session *session, const TrainOptions *options, bool forward);

/* Where the time of repeated work on a tape goes, by kind of operation and phase, and how much of each is matrix products; as a table and
 * as JSON. */

/* The time of one kind of operation in one phase, over all repetitions. */
typedef struct BenchPart {
  const char *name;
  TapePhase phase;
  double seconds, product_seconds; /* in all; inside matrix products */
  int64_t calls;
} BenchPart;

enum { BENCH_PARTS = 64 };

typedef struct BenchProfile {
  BenchPart part[BENCH_PARTS]; /* [parts] */
  int parts;                   /* set to 0 to forget what was added, as it belongs to a warm-up */
  double products_before;      /* matmul_counted().seconds when the last operation ended */
} BenchProfile;

/* Every operation of the tape is added from here on, until the next call; NULL: none is. To be called after the count of
 * products was reset. The profile must not be moved meanwhile. */
void bench_profile_watch(BenchProfile *profile, Tape *tape);

/* `step`: seconds of the mean repetition, of which the shares are; peak_part: rate of the products over the machine's best. Sorts the parts
 * by time. */
void profile_table_print(BenchProfile *profile, const char *title, int64_t repetitions, double step, double peak_part);

json_t *profile_table_json(const BenchProfile *profile, int64_t repetitions);

/* The commands that have files of their own. fpar and class-token check claims of the paper on a trained checkpoint, latency draws its
 * figures in virtual time. */
extern const CliCommand bench_step_command, bench_forward_command, bench_decode_command, bench_kmeans_command, bench_op_command,
    bench_quantize_command, bench_peak_command, bench_scaling_command, bench_accuracy_command, bench_fpar_command,
    bench_class_token_command, bench_latency_command;

#endif
