/* astra-bench kmeans: iterations of K-means on random samples. */
#ifndef CLI_BENCH_KMEANS_H
#define CLI_BENCH_KMEANS_H
#include "base/status.h"

Status bench_kmeans_run(int argc, char **argv);

#endif
