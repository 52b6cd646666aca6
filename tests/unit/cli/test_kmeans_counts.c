/* Counting of codes: how many there are, that a second look counts the same, what frequencies and bits follow, and what follows
 * from the averages of training. */
int astra_kmeans_main(int argc, char **argv);
#define main astra_kmeans_main
#include "cli/astra-kmeans.c" /* counting is inside of it */
#undef main
#include "unit/float_equal.h"
#include "unit/train/tiny_run.h"
#include "vq/rans.h"
#include <math.h>

enum { GROUPS = 4, ENTRIES = 8, BITS = 3, SITES = TINY_BLOCKS, NUMBERS = SITES * GROUPS * ENTRIES };

static const int64_t *counts_of(const Session *session, int table) {
  return session->emulation.site[table / GROUPS].usage.counts + table % GROUPS * ENTRIES;
}

static void keep_counts(const Session *session, int64_t *counts) {
  for (int table = 0; table < SITES * GROUPS; table++)
    memcpy(counts + table * ENTRIES, counts_of(session, table), ENTRIES * sizeof *counts);
}

static void every_token_is_counted_once(void **state) {
  (void)state;
  static int64_t some[NUMBERS], all[NUMBERS], again[NUMBERS];
  static uint16_t frequencies[NUMBERS];
  TrainOptions options = tiny_options();
  Session session;
  tiny_open(&session, &options);
  tiny_check(count_frequencies(&session, TASK_TEST, 5, frequencies));
  keep_counts(&session, some);
  tiny_check(count_frequencies(&session, TASK_TEST, 0, frequencies)); /* what was counted before is forgotten */
  keep_counts(&session, all);
  tiny_check(count_frequencies(&session, TASK_TEST, 1000, frequencies));
  keep_counts(&session, again);
  assert_memory_equal(again, all, sizeof all);
  for (int table = 0; table < SITES * GROUPS; table++) {
    int64_t few = 0, many = 0;
    for (int k = 0; k < ENTRIES; k++) {
      few += some[table * ENTRIES + k], many += all[table * ENTRIES + k];
      assert_true(some[table * ENTRIES + k] <= all[table * ENTRIES + k]);
    }
    assert_int_equal(few, 5 * TINY_TOKENS);
    assert_int_equal(many, TINY_TEST * TINY_TOKENS);
  }
  session_close(&session);
}

/* As many bits as the definition says: the mean of log2(2^16 / frequency), summed over groups and sites. */
static double bits_of(const Session *session, const uint16_t *frequencies) {
  double bits = 0;
  for (int table = 0; table < SITES * GROUPS; table++) {
    double sum = 0, total = 0;
    for (int k = 0; k < ENTRIES; k++) {
      sum += (double)counts_of(session, table)[k] * log2(65536.0 / frequencies[table * ENTRIES + k]);
      total += (double)counts_of(session, table)[k];
    }
    bits += sum / total;
  }
  return bits;
}

static void frequencies_follow_the_counts(void **state) {
  (void)state;
  static uint16_t frequencies[NUMBERS], even[NUMBERS];
  TrainOptions options = tiny_options();
  Session session;
  tiny_open(&session, &options);
  tiny_check(count_frequencies(&session, TASK_TRAIN, 0, frequencies));
  for (int table = 0; table < SITES * GROUPS; table++) {
    const int64_t *counts = counts_of(&session, table);
    const uint16_t *f = frequencies + table * ENTRIES;
    int sum = 0;
    for (int k = 0; k < ENTRIES; k++) {
      assert_true(f[k] > 0);
      sum += f[k];
      double share = (double)(counts[k] + 1) / (TINY_TRAIN * TINY_TOKENS + ENTRIES); /* one more of each */
      assert_float_equal(f[k] / 65536.0, share, 2e-4);
    }
    assert_int_equal(sum, RANS_TOTAL);
  }
  for (int i = 0; i < NUMBERS; i++) even[i] = 65536 / ENTRIES;
  double bits, packed;
  tiny_check(count_bits(&session, TASK_TRAIN, 0, frequencies, &bits));
  assert_float_equal(bits, bits_of(&session, frequencies), 1e-9);
  assert_true(bits < SITES * GROUPS * BITS);
  tiny_check(count_bits(&session, TASK_TRAIN, 0, even, &packed));
  assert_float_equal(packed, SITES * GROUPS * BITS, 1e-9);
  assert_float_equal(config_bits_per_token(session.config), SITES * GROUPS * BITS, 1e-9);
  session_close(&session);
}

static void training_gives_those_of_the_averages(void **state) {
  (void)state;
  static uint16_t fitted[NUMBERS], want[NUMBERS];
  TrainOptions options = tiny_options();
  Session session;
  tiny_open(&session, &options);
  tiny_steps(&session, 3);
  tiny_check(codebooks_frequencies(&session, true, fitted));
  for (int table = 0; table < SITES * GROUPS; table++) {
    double sizes[ENTRIES];
    for (int k = 0; k < ENTRIES; k++) sizes[k] = (double)session.emulation.site[table / GROUPS].ema.sizes[table % GROUPS * ENTRIES + k];
    assert_int_equal(code_frequencies_fit(sizes, ENTRIES, want + table * ENTRIES), STATUS_OK);
  }
  assert_memory_equal(fitted, want, sizeof want);
  session_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_token_is_counted_once), cmocka_unit_test(frequencies_follow_the_counts),
                                     cmocka_unit_test(training_gives_those_of_the_averages)};
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
