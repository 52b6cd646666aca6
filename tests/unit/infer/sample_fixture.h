/* The small random checkpoint of sample_cluster.h, saved in a temporary directory and loaded again as the nodes load it. */
#ifndef TESTS_SAMPLE_FIXTURE_H
#define TESTS_SAMPLE_FIXTURE_H
#include "infer/weights.h"
#include "sample_cluster.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct SampleFixture {
  char directory[TEMPORARY_PATH];
  SampleCluster sample;
  Weights weights;
} SampleFixture;

/* The directory and the model, which may still be changed before it is saved. `config` is taken: sample.config is a copy. */
static inline void sample_fixture_make(SampleFixture *f, ModelConfig *config) {
  assert_int_equal(make_temporary_folder(f->directory), 0);
  assert_int_equal(sample_open(&f->sample, config, 3), STATUS_OK);
  f->sample.no_ties = true;
  config_release(config);
}

static inline void sample_fixture_save(SampleFixture *f) {
  assert_int_equal(sample_save(&f->sample, f->directory), STATUS_OK);
  if (weights_load(&f->weights, f->directory) != STATUS_OK) fail_msg("%s", status_message());
}

/* Both. */
static inline void sample_fixture_open(SampleFixture *f, ModelConfig *config) {
  sample_fixture_make(f, config);
  sample_fixture_save(f);
}

/* Tables of keys and values within `memory` bytes, whatever they take against products. */
static inline void sample_fixture_tables(SampleFixture *f, size_t memory) {
  const ModelConfig *config = f->weights.config;
  const real *codewords[64];
  for (int i = 0; i < f->weights.book_count; i++) codewords[i] = f->weights.books[i].codewords;
  const KvTablesSetup setup = {
      .codewords = codewords, .groups = config->astra.groups, .entries = config->astra.codebook_size, .memory = memory};
  if (kv_tables_build(&f->weights.keys, f->weights.model, &setup) != STATUS_OK) fail_msg("%s", status_message());
}

static inline void sample_fixture_close(SampleFixture *f) {
  weights_release(&f->weights);
  sample_close(&f->sample);
  assert_int_equal(remove_tree(f->directory), 0);
}

/* As near as `close`, each number; and the largest above `least`, so that there is something to compare. */
static inline void sample_fixture_close_to(const real *actual, const real *expected, int64_t count, double close, double min) {
  double scale = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)actual[i] - (double)expected[i]);
    if (!(difference <= close)) fail_msg("number %d: %.8f, the emulation has %.8f", (int)i, (double)actual[i], (double)expected[i]);
    scale = fmax(scale, fabs((double)expected[i]));
  }
  assert_true(scale > min);
}

/* All processes that this one has started are gone, and have been waited for. */
static inline void sample_fixture_no_children(void) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

static inline void sample_fixture_kill_children(void) {
  char path[64];
  DIR *threads = opendir("/proc/self/task"); /* a child is listed under the thread that has started it */
  for (struct dirent *one; threads && (one = readdir(threads)) != NULL;) {
    int child;
    snprintf(path, sizeof path, "/proc/self/task/%.16s/children", one->d_name);
    FILE *children = fopen(path, "r");
    while (children && fscanf(children, "%d", &child) == 1) kill(child, SIGKILL);
    if (children) fclose(children);
  }
  if (threads) closedir(threads);
}

/* The teardown of a case: processes that it has left, as it failed, would make sample_fixture_no_children of all later ones fail. */
static inline int sample_fixture_end_children(void **state) {
  (void)state;
  for (int i = 0; i < 500 && (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD); i++) {
    sample_fixture_kill_children();
    usleep(10000);
  }
  return 0;
}

#endif
