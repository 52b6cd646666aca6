/* Answers of a classifier: losses at every temperature against their equation, the temperature that labels were drawn with is found again,
 * rows are those that were added, and nothing, one class and logits that are no numbers do no harm. */
#include "base/rng.h"
#include "infer/class_scores.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 7, ANSWERS = 4000 };

static double scaled_loss(const real *z, int64_t classes, int32_t label, double temperature) {
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) sum += exp(((double)z[c] - (double)z[label]) / temperature);
  return log(sum);
}

static void draw_logits(Rng *rng, real *z) {
  for (int c = 0; c < CLASSES; c++) z[c] = (real)(3 * rng_normal(rng));
}

/* A label as likely as softmax(z / temperature) says. */
static int32_t draw_label(Rng *rng, const real *z, double temperature) {
  double left = rng_uniform(rng);
  for (int32_t c = 0; c < CLASSES - 1; c++)
    if ((left -= exp(-scaled_loss(z, CLASSES, c, temperature))) < 0) return c;
  return CLASSES - 1;
}

static int best_class(const real *z) {
  int best = 0;
  for (int c = 1; c < CLASSES; c++)
    if (z[c] > z[best]) best = c;
  return best;
}

static void losses_follow_their_equation(void **state) {
  (void)state;
  ClassScores scores;
  Rng rng;
  double sums[CLASS_TEMPERATURES] = {0}, loss = 0;
  int64_t correct1 = 0, correct5 = 0;
  rng_init(&rng, 11, 0);
  class_scores_init(&scores, CLASSES, false);
  for (int i = 0; i < 50; i++) {
    real z[CLASSES];
    int32_t label = (int32_t)rng_below(&rng, CLASSES), best;
    int above = 0;
    draw_logits(&rng, z);
    assert_int_equal(class_scores_add(&scores, i, z, label, &best), STATUS_OK);
    assert_int_equal(best, best_class(z));
    for (int c = 0; c < CLASSES; c++) above += z[c] > z[label];
    correct1 += above == 0;
    correct5 += above < 5;
    loss += scaled_loss(z, CLASSES, label, 1);
    for (int t = 0; t < CLASS_TEMPERATURES; t++) sums[t] += scaled_loss(z, CLASSES, label, 1 / (0.5 + 0.025 * t));
  }
  int least = 0;
  for (int t = 1; t < CLASS_TEMPERATURES; t++)
    if (sums[t] < sums[least]) least = t;
  ClassSummary summary = class_scores_summary(&scores);
  assert_int_equal(summary.samples, 50);
  assert_int_equal(summary.correct1, correct1);
  assert_int_equal(summary.correct5, correct5);
  assert_float_equal(summary.loss, loss / 50, 1e-9);
  assert_float_equal(summary.temperature, 1 / (0.5 + 0.025 * least), 1e-12);
  assert_float_equal(summary.tempered_loss, sums[least] / 50, 1e-9);
  class_scores_free(&scores);
}

/* Also 1, where both losses are one, and beyond the range, where its end is the best. */
static void the_temperature_of_the_labels_is_found(void **state) {
  (void)state;
  static const double drawn[] = {0.7, 1, 1.6, 4};
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
    ClassScores scores;
    Rng rng;
    rng_init(&rng, 12, i);
    class_scores_init(&scores, CLASSES, false);
    for (int n = 0; n < ANSWERS; n++) {
      real z[CLASSES];
      draw_logits(&rng, z);
      assert_int_equal(class_scores_add(&scores, n, z, draw_label(&rng, z, drawn[i]), NULL), STATUS_OK);
    }
    ClassSummary summary = class_scores_summary(&scores);
    double expected = fmin(drawn[i], 2);
    assert_true(fabs(summary.temperature / expected - 1) < 0.1);
    assert_true(summary.tempered_loss <= summary.loss + 1e-12);
    class_scores_free(&scores);
  }
}

static void rows_are_those_added(void **state) {
  (void)state;
  ClassScores scores;
  char *text;
  size_t size;
  static const real z[2][3] = {{1, 3, 2}, {0, -1, 4}};
  static const int32_t labels[] = {1, 0};
  class_scores_init(&scores, 3, true);
  for (int i = 0; i < 2; i++) assert_int_equal(class_scores_add(&scores, 8 - i, z[i], labels[i], NULL), STATUS_OK);
  double temperature = class_scores_summary(&scores).temperature;
  FILE *stream = open_memstream(&text, &size);
  assert_non_null(stream);
  class_scores_write(&scores, stream);
  assert_int_equal(fclose(stream), 0);
  const char head[] = "sample,items,correct,loss,tempered_loss\n", *row = text + strlen(head);
  assert_memory_equal(text, head, strlen(head));
  for (int i = 0; i < 2; i++) {
    int sample, items, correct, read = 0;
    double loss, tempered;
    assert_int_equal(sscanf(row, "%d,%d,%d,%lf,%lf\n%n", &sample, &items, &correct, &loss, &tempered, &read), 5);
    assert_int_equal(sample, 8 - i);
    assert_int_equal(items, 1);
    assert_int_equal(correct, i == 0);
    assert_float_equal(loss, scaled_loss(z[i], 3, labels[i], 1), 1e-6);
    assert_float_equal(tempered, scaled_loss(z[i], 3, labels[i], temperature), 1e-6);
    row += read;
  }
  assert_string_equal(row, "");
  free(text);
  class_scores_free(&scores);
}

static void what_is_nothing_does_no_harm(void **state) {
  (void)state;
  ClassScores scores;
  const real one = 5, none[2] = {(real)NAN, (real)NAN};
  class_scores_init(&scores, 1, false);
  ClassSummary summary = class_scores_summary(&scores);
  assert_true(summary.samples == 0 && summary.loss == 0 && summary.tempered_loss == 0 && summary.temperature == 1);
  assert_int_equal(class_scores_add(&scores, 0, &one, 0, NULL), STATUS_OK);
  summary = class_scores_summary(&scores);
  assert_true(summary.correct1 == 1 && summary.correct5 == 1 && fabs(summary.loss) < 1e-12 && fabs(summary.tempered_loss) < 1e-12);
  class_scores_free(&scores);
  class_scores_init(&scores, 2, false);
  assert_int_equal(class_scores_add(&scores, 0, none, 1, NULL), STATUS_OK);
  summary = class_scores_summary(&scores);
  assert_true(isnan(summary.loss) && isnan(summary.tempered_loss) && isfinite(summary.temperature));
  class_scores_free(&scores);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(losses_follow_their_equation),
                                     cmocka_unit_test(the_temperature_of_the_labels_is_found), cmocka_unit_test(rows_are_those_added),
                                     cmocka_unit_test(what_is_nothing_does_no_harm)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
