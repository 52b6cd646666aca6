/* The K-means start: which embeddings it is made from, that it repeats itself, how codebooks are read back, and what is said of them. */
#include "train/codebooks.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_run.h"
#include <math.h>

enum { STRIDE = 1 + TINY_TOKENS, BATCH = 8 };

/* The plain model's activations of one batch, of all blocks: [blocks][B, 1 + T, W]. */
typedef struct Activations {
  Exchange exchange;
  real *rows[TINY_BLOCKS];
} Activations;

static Status keep(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const sites[EXCHANGE_SITES]) {
  Activations *activations = (Activations *)self;
  const Tensor *h = sites[0];
  assert_true(part == 0 && sites[1] == NULL);
  assert_int_equal(h->shape[1], layout->rows);
  size_t bytes = (size_t)tensor_count(h) * sizeof(real);
  activations->rows[block] = malloc(bytes);
  assert_non_null(activations->rows[block]);
  memcpy(activations->rows[block], h->value, bytes);
  return tape_status(tape);
}

static void watch_next(Session *session, TaskPart part, Activations *activations) {
  TaskBatch batch;
  tiny_check(session->task->source->next(session, part, &batch));
  *activations = (Activations){.exchange = {.begin = keep, .whole_rows = true}};
  tape_record(session->tape, false);
  model_watch(session->model, &activations->exchange);
  ModelInput input = task_input(session->tape, &batch, session->config);
  model_encode(session->model, session->tape, &input, &session->plain_layout, NULL, MODEL_ROWS_CLASS);
  model_watch(session->model, NULL);
  tiny_check(tape_status(session->tape));
  tape_clear(session->tape);
}

static void let_go(Activations *activations) {
  for (int block = 0; block < TINY_BLOCKS; block++) free(activations->rows[block]);
}

static const real *codewords_of(const Session *session, int block) { return session->emulation.site[block].book.codewords; }

static double distance(const real *a, const real *b) {
  double sum = 0;
  for (int i = 0; i < TINY_WIDTH; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sum;
}

/* With as many codewords as samples, the codewords are the samples: content tokens of the first images, each once. */
static void samples_are_content_tokens_of_the_plain_model(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 1;
  options.entries = options.kmeans_samples = 2 * TINY_TOKENS;
  Session session;
  Activations activations;
  tiny_open(&session, &options); /* fits, and goes back to the first batch */
  watch_next(&session, TASK_TRAIN, &activations);
  for (int block = 0; block < TINY_BLOCKS; block++) {
    bool taken[BATCH * STRIDE] = {false};
    for (int64_t k = 0; k < options.entries; k++) {
      int found = -1;
      for (int row = 0; row < BATCH * STRIDE; row++)
        if (!taken[row] && distance(codewords_of(&session, block) + k * TINY_WIDTH, activations.rows[block] + row * TINY_WIDTH) < 1e-9) {
          found = row;
          break;
        }
      if (found < 0) fail_msg("block %d: codeword %d is no embedding", block, (int)k);
      taken[found] = true;
    }
    for (int image = 0; image < BATCH; image++) {
      assert_false(taken[image * STRIDE]); /* the class token is never sent */
      for (int token = 1; token < STRIDE; token++) assert_int_equal(taken[image * STRIDE + token], image < 2);
    }
  }
  let_go(&activations);
  session_close(&session);
}

/* A single class token is sent as tokens are: it is one of the rows that codewords are made of, and counts in the averages' sizes. */
static void a_single_class_token_is_a_sample(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.groups = 1;
  options.class_token = CLASS_SINGLE;
  options.entries = options.kmeans_samples = 2 * TINY_TOKENS; /* of two images and a part of their 2 T + 2 rows */
  Session session;
  Activations activations;
  tiny_open(&session, &options);
  watch_next(&session, TASK_TRAIN, &activations);
  assert_float_equal((double)session.emulation.site[0].ema.sizes[0], (double)BATCH * STRIDE / (double)options.entries, 1e-6);
  int classes = 0; /* whose rows are alike in the first block */
  for (int64_t k = 0; k < options.entries; k++)
    for (int image = 0; image < 2; image++)
      classes += distance(codewords_of(&session, 1) + k * TINY_WIDTH, activations.rows[1] + image * STRIDE * TINY_WIDTH) < 1e-9;
  assert_in_range(classes, 1, 2);
  let_go(&activations);
  session_close(&session);
}

static void the_same_seed_gives_the_same_codebooks(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session first, second, other;
  tiny_open(&first, &options);
  tiny_open(&second, &options);
  options.seed++;
  tiny_open(&other, &options);
  size_t bytes = tiny_codeword_count(&first) * sizeof(real);
  assert_memory_equal(first.emulation.codewords, second.emulation.codewords, bytes);
  assert_memory_not_equal(first.emulation.codewords, other.emulation.codewords, bytes);
  session_close(&first);
  session_close(&second);
  session_close(&other);
}

/* n = rows of a batch / K and m = e n, with which the averages start. */
static void averages_start_from_the_codebooks(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  tiny_open(&session, &options);
  double size = (double)BATCH * TINY_TOKENS / (double)options.entries;
  for (int block = 0; block < TINY_BLOCKS; block++) {
    const EmulateSite *site = &session.emulation.site[block];
    for (int64_t i = 0; i < options.groups * options.entries; i++) assert_float_equal((double)site->ema.sizes[i], size, 1e-6);
    for (int64_t i = 0; i < options.entries * TINY_WIDTH; i++)
      assert_float_equal((double)site->ema.sums[i], (double)site->book.codewords[i] * size, 1e-4);
  }
  session_close(&session);
}

/* Where there are fewer images than --batch asks for, a batch is all of them. */
static void averages_start_from_the_images_that_there_are(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  options.batch = 3 * TINY_TRAIN;
  tiny_open(&session, &options);
  assert_float_equal((double)session.emulation.site[0].ema.sizes[0], (double)TINY_TRAIN * TINY_TOKENS / (double)options.entries, 1e-6);
  session_close(&session);
}

/* A basis and predictions are fitted after the optimizer was made. */
static void averaged_weights_start_from_the_fitted_ones(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  options.prediction = true;
  options.optimizer.average = 0.9;
  tiny_open(&session, &options);
  const ParamSet *params = model_params(session.model);
  assert_memory_equal(session.optimizer.average, params->values, (size_t)params->total * sizeof(real));
  session_close(&session);
}

static void more_codewords_than_samples_are_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.entries = 5000; /* of 44 images of 16 tokens an epoch takes five batches of eight: 640 */
  options.kmeans_samples = 0;
  Session session;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_int_equal(codebooks_fit(&session, NULL), STATUS_BAD_USAGE);
  if (!strstr(status_message(), "5000") || !strstr(status_message(), "640")) fail_msg("it says: %s", status_message());
  session_close(&session);
  options.entries = 512;
  options.kmeans_samples = 100;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  assert_int_equal(codebooks_fit(&session, NULL), STATUS_BAD_USAGE);
  if (!strstr(status_message(), "512") || !strstr(status_message(), "100")) fail_msg("it says: %s", status_message());
  session_close(&session);
}

static void codebooks_are_read_back(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  char out[256];
  tiny_set_out(&options, out, "books");
  Session session, other;
  tiny_open(&session, &options);
  tiny_check(tiny_save(&session));
  tiny_check(session_open(&other, &options, SESSION_TRAIN));
  tiny_check(codebooks_read(&other, out));
  for (size_t i = 0; i < tiny_codeword_count(&session); i++)
    assert_float_equal((double)session.emulation.codewords[i], (double)other.emulation.codewords[i], 1e-6);
  for (int64_t i = 0; i < options.entries * options.groups; i++) /* ready for use: norms are those of the new codewords */
    assert_float_equal((double)session.emulation.site[1].book.half_norms[i], (double)other.emulation.site[1].book.half_norms[i], 1e-4);
  session_close(&other);
  options.entries = 16;
  tiny_check(session_open(&other, &options, SESSION_TRAIN));
  assert_int_equal(codebooks_read(&other, out), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "codebook"));
  assert_int_equal(codebooks_read(&other, tiny_path("model")), STATUS_NOT_FOUND); /* a plain model */
  session_close(&other);
  session_close(&session);
}

static void refuse(const TrainOptions *options, const char *books, const char *told) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  assert_int_equal(codebooks_read(&session, books), STATUS_BAD_USAGE);
  if (!strstr(status_message(), told) || !strstr(status_message(), books)) fail_msg("it says: %s", status_message());
  session_close(&session);
}

/* Codewords of tokens as they are say nothing of rotated ones, nor of what a prediction leaves, and the other way round. */
static void codebooks_of_another_basis_are_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  char plain[256], predicted[256], another[256], weights[300];
  Session session;
  tiny_set_out(&options, plain, "plain");
  tiny_open(&session, &options);
  tiny_check(tiny_save(&session));
  session_close(&session);
  options.prediction = true;
  tiny_set_out(&options, predicted, "predicted");
  tiny_open(&session, &options);
  tiny_check(tiny_save(&session));
  session_close(&session);
  snprintf(weights, sizeof weights, "%s/model.safetensors", predicted);
  options.seed++; /* a basis of the same kind, fitted to other samples */
  tiny_set_out(&options, another, "another");
  tiny_open(&session, &options);
  tiny_check(tiny_save(&session));
  session_close(&session);

  options.prediction = false;
  refuse(&options, predicted, "rotation (there true, here false), prediction (there true, here false), position_mean");
  refuse(&options, weights, "prediction (there true, here false)"); /* a file: what lies beside it */
  options.model = predicted, options.prediction = true;
  refuse(&options, plain, "rotation (there false, here true)");
  refuse(&options, another, "both were fitted, to other samples or other weights");
  options.plain_prediction = true; /* as an earlier version computes with the same weights */
  refuse(&options, predicted, "position_mean (there true, here false)");
  options.plain_prediction = false;
  tiny_check(session_open(&session, &options, SESSION_TRAIN));
  tiny_check(codebooks_read(&session, predicted));
  tiny_check(codebooks_read(&session, weights));
  session_close(&session);
}

/* ---------------------------------------------------------------- judging */

/* Distortion and variance of the test part's content tokens, the plain way: [12 images of which the loader gives 8 and 4]. */
static void check_plain(Session *session, int block, double *distortion, double *variance) {
  const Codebook *book = &session->emulation.site[block].book;
  int64_t d = book->width / book->groups;
  double mean[TINY_WIDTH] = {0}, squares = 0;
  *distortion = *variance = 0;
  tiny_check(session->task->source->seek(session, TASK_TEST, 0, 0));
  for (int images = BATCH; images > 0; images = images == BATCH ? TINY_TEST - BATCH : 0) {
    Activations activations;
    watch_next(session, TASK_TEST, &activations);
    for (int row = 0; row < images * STRIDE; row++) {
      const real *x = activations.rows[block] + row * TINY_WIDTH;
      if (row % STRIDE == 0) continue;
      for (int64_t i = 0; i < TINY_WIDTH; i++) mean[i] += (double)x[i] / (TINY_TEST * TINY_TOKENS);
      for (int64_t i = 0; i < TINY_WIDTH; i++) squares += (double)x[i] * (double)x[i] / (TINY_TEST * TINY_TOKENS);
      for (int64_t g = 0; g < book->groups; g++) {
        double min = INFINITY;
        for (int64_t k = 0; k < book->entries; k++) {
          double sum = 0;
          for (int64_t i = 0; i < d; i++) {
            double difference = (double)x[g * d + i] - (double)book->codewords[(g * book->entries + k) * d + i];
            sum += difference * difference;
          }
          min = fmin(min, sum);
        }
        *distortion += min / (TINY_TEST * TINY_TOKENS);
      }
    }
    let_go(&activations);
  }
  for (int i = 0; i < TINY_WIDTH; i++) squares -= mean[i] * mean[i];
  *variance = squares;
}

static void a_report_says_what_is_so(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  Session session;
  CodebookReport reports[TINY_BLOCKS];
  tiny_open(&session, &options);
  tiny_check(codebooks_evaluate(&session, 0, false, reports));
  for (int block = 0; block < TINY_BLOCKS; block++) {
    double distortion, variance;
    check_plain(&session, block, &distortion, &variance);
    const UsageSummary *usage = &reports[block].usage;
    assert_int_equal(reports[block].block, block);
    assert_float_equal(usage->distortion, distortion, 1e-4 * distortion);
    assert_float_equal(reports[block].variance, variance, 1e-3 * variance);
    assert_true(usage->distortion < variance); /* better than one codeword for all */
    assert_true(usage->perplexity > 1 && usage->perplexity <= (double)options.entries);
    assert_float_equal(usage->used + usage->dead, 1, 1e-12);
    assert_int_equal(session.emulation.site[block].usage.rows, 0); /* looking leaves no trace */
  }
  session_close(&session);
}

/* Variance of the test part's content tokens in the basis of a block, from whole activations. */
static double variance_in_basis(Session *session, int block) {
  char name[64];
  const real *basis = NULL;
  double sums[TINY_WIDTH] = {0}, variance = 0;
  const int count = TINY_TEST * TINY_TOKENS;
  snprintf(name, sizeof name, "astra.layers.%d.rotation.weight", block);
  for (size_t i = 0; i < model_params(session->model)->count; i++)
    if (strcmp(model_params(session->model)->list[i].name, name) == 0) basis = model_params(session->model)->list[i].tensor.value;
  assert_non_null(basis);
  tiny_check(session->task->source->seek(session, TASK_TEST, 0, 0));
  for (int images = BATCH; images > 0; images = images == BATCH ? TINY_TEST - BATCH : 0) {
    Activations activations;
    watch_next(session, TASK_TEST, &activations);
    for (int row = 0; row < images * STRIDE; row++) {
      if (row % STRIDE == 0) continue;
      for (int i = 0; i < TINY_WIDTH; i++) {
        double y = 0;
        for (int j = 0; j < TINY_WIDTH; j++) y += (double)basis[i * TINY_WIDTH + j] * (double)activations.rows[block][row * TINY_WIDTH + j];
        sums[i] += y;
        variance += y * y / count;
      }
    }
    let_go(&activations);
  }
  for (int i = 0; i < TINY_WIDTH; i++) variance -= sums[i] / count * (sums[i] / count);
  return variance;
}

/* What is predicted of tokens is not lost either: their variance is that of the tokens themselves, with predictions or without. */
static void predicted_tokens_vary_as_they_do(void **state) {
  (void)state;
  for (int predicts = 0; predicts < 2; predicts++) {
    TrainOptions options = tiny_options();
    Session session;
    CodebookReport fitted[TINY_BLOCKS], reports[TINY_BLOCKS];
    options.rotation = true;
    options.prediction = predicts;
    tiny_check(session_open(&session, &options, SESSION_TRAIN));
    tiny_check(codebooks_fit(&session, fitted));
    tiny_check(codebooks_evaluate(&session, 0, false, reports));
    for (int block = 0; block < TINY_BLOCKS; block++) {
      const double variance = variance_in_basis(&session, block);
      assert_float_equal(reports[block].variance, variance, 1e-3 * variance);
      assert_float_equal(fitted[block].variance, variance, 0.2 * variance); /* of other images */
    }
    session_close(&session);
  }
}

static void more_codewords_lose_less(void **state) {
  (void)state;
  double before = INFINITY;
  for (int64_t entries = 2; entries <= 128; entries *= 8) {
    TrainOptions options = tiny_options();
    options.entries = entries;
    options.kmeans_samples = 0;
    Session session;
    CodebookReport reports[TINY_BLOCKS];
    tiny_open(&session, &options);
    tiny_check(codebooks_evaluate(&session, 0, false, reports));
    assert_true(reports[0].usage.distortion < 0.9 * before);
    before = reports[0].usage.distortion;
    session_close(&session);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_are_content_tokens_of_the_plain_model),
      cmocka_unit_test(a_single_class_token_is_a_sample),
      cmocka_unit_test(the_same_seed_gives_the_same_codebooks),
      cmocka_unit_test(averages_start_from_the_codebooks),
      cmocka_unit_test(averages_start_from_the_images_that_there_are),
      cmocka_unit_test(averaged_weights_start_from_the_fitted_ones),
      cmocka_unit_test(more_codewords_than_samples_are_refused),
      cmocka_unit_test(codebooks_are_read_back),
      cmocka_unit_test(codebooks_of_another_basis_are_refused),
      cmocka_unit_test(a_report_says_what_is_so),
      cmocka_unit_test(predicted_tokens_vary_as_they_do),
      cmocka_unit_test(more_codewords_lose_less),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
