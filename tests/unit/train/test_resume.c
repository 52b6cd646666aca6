/* A run that stops and goes on ends with the same bits as one that does not; a state that does not fit is refused before anything is
 * overwritten. How a signal ends the program is tests/cli/astra-train.sh's. */
#include "nn/safetensors.h"
#include "train/interrupt.h"
#include "train/plan.c"
#include "train/state.h"
#include "unit/train/tiny_run.h"
#include "unit/unseal.h"
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

enum { STEPS = 12, VARIANTS = 14 };

/* Each with something else to remember. 12 steps cross the end of an epoch twice (44 images in batches of 8; 2 x 8: five times; 7 x 8:
 * within each step). */
static TrainOptions variant(int number) {
  TrainOptions options = tiny_options();
  options.max_steps = STEPS;
  if (number == 1) options.accumulate = 2;
  if (number == 2) {
    options.mixup = 0.2;
    options.optimizer.average = 0.99;
    options.optimizer.moments = OPTIMIZER_8_BITS;
    options.codebook_decay = 0.5; /* so that codewords die and revival draws random numbers */
    options.dead_below = 0.5;
    options.smoothing = 0.1;
  }
  if (number == 3) {
    options.groups = 1;
    options.class_token = CLASS_SINGLE;
    options.covariance = NOISE_FULL;
    options.gradient = QUANTISE_ROTATION;
    options.accumulate = 2;
    options.mixup = 0.4;
  }
  if (number == 4) {
    options.groups = 0;
    options.patch_drop = 0.5;
    options.crop_min = 0.3;
    options.optimizer.average = 0.9;
  }
  if (number == 5) {
    options.token_loss = "0.2,span:3";
    options.recompute = SESSION_ALL_BLOCKS;
  }
  if (number == 6) {
    options.augment = "trivial";
    options.erase = 0.25;
    options.mixup = 0.8;
    options.cutmix = 1;
    options.drop_path = 0.3;
    options.smoothing = 0.1;
    options.optimizer.average = 0.99;
    options.accumulate = 2;
  }
  if (number == 7) options.optimizer.moments = OPTIMIZER_16_BITS;
  if (number == 8) options.rotation = true;
  if (number == 12) options.optimizer.kind = OPTIMIZER_MUON;
  if (number == 13) options.accumulate = 7;
  if (number == 9) options.prediction = true;
  if (number == 10 || number == 11) memcpy(options.rates, (int64_t[]){8, 1, 4, 8}, 4 * sizeof(int64_t)); /* drawn for each batch */
  if (number == 11) options.prediction = true, options.accumulate = 2;
  return options;
}

static void assert_goes_on(Session *whole, const TrainOptions *options, int64_t stop) {
  Session first, second;
  tiny_open(&first, options);
  tiny_steps_to(&first, stop);
  tiny_check(state_save(&first, options->out));
  session_close(&first);
  tiny_check(session_open(&second, options, SESSION_TRAIN)); /* no K-means, other random states */
  tiny_check(state_load(&second, options->out));
  assert_int_equal(second.step, stop);
  TrainPlan plan; /* as a run makes one before it goes on: it leaves no trace */
  tiny_check(plan_make(&second, &plan));
  tiny_seek(&second);
  tiny_steps_to(&second, STEPS);
  tiny_assert_same(whole, &second);
  assert_memory_equal(&whole->map_rng, &second.map_rng, sizeof(Rng));
  assert_memory_equal(&whole->revive_rng, &second.revive_rng, sizeof(Rng));
  assert_memory_equal(&whole->mixup_rng, &second.mixup_rng, sizeof(Rng));
  session_close(&second);
}

/* Interrupted after its first step, before its last and at one in between, another for each variant. */
static void going_on_gives_the_same_bits(void **state) {
  (void)state;
  for (int number = 0; number < VARIANTS; number++) {
    TrainOptions options = variant(number);
    const int64_t stops[] = {1, 2 + number * 4 % (STEPS - 3), STEPS - 1};
    Session whole;
    tiny_open(&whole, &options);
    tiny_steps_to(&whole, STEPS);
    if (number == 2) assert_true(whole.emulation.revived > 0);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
      print_message("variant %d is interrupted after step %lld\n", number, (long long)stops[i]);
      assert_goes_on(&whole, &options, stops[i]);
    }
    session_close(&whole);
  }
}

/* Steps of more batches than an epoch has take one batch after the other, epoch after epoch, and none twice. */
static void long_steps_take_each_batch_once(void **state) {
  (void)state;
  enum { PARTS = 7, TURNS = 5 };
  TrainOptions options = tiny_options();
  options.accumulate = PARTS;
  options.max_steps = 0;
  options.epochs = 7;
  Session session;
  TaskBatch batch;
  float seen[PARTS * TURNS];
  tiny_open(&session, &options);
  assert_int_equal(session.total_steps, TURNS); /* 7 epochs of 5 batches */
  assert_true(session_epochs(&session, TURNS) == 7);
  for (int i = 0; i < PARTS * TURNS; i++) {
    tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
    seen[i] = batch.pixels[0] + batch.pixels[100] + batch.pixels[1000];
    if (i > 0) assert_true(seen[i] != seen[i - 1]);
  }
  for (session.step = 0; session.step < TURNS; session.step++) {
    tiny_check(session_seek_step(&session));
    for (int i = 0; i < PARTS; i++) {
      tiny_check(session.task->source->next(&session, TASK_TRAIN, &batch));
      assert_true(batch.pixels[0] + batch.pixels[100] + batch.pixels[1000] == seen[session.step * PARTS + i]);
    }
  }
  session_close(&session);
}

/* Loading what was saved and saving it again changes nothing; so every entry of the file is read into its place. */
static void a_state_goes_there_and_back(void **state) {
  (void)state;
  TrainOptions options = variant(2);
  Session session, other;
  tiny_open(&session, &options);
  tiny_steps_to(&session, 3);
  tiny_check(state_save(&session, tiny_path("once")));
  tiny_steps_to(&session, 5);
  tiny_check(session_open(&other, &options, SESSION_TRAIN));
  tiny_check(state_load(&other, tiny_path("once")));
  tiny_check(state_save(&other, tiny_path("twice")));
  tiny_assert_same_files(tiny_path("once/training/state.safetensors"), tiny_path("twice/training/state.safetensors"));
  session_close(&session);
  session_close(&other);
}

static void assert_refused(const TrainOptions *options, const char *directory, Status expected, const char *word) {
  Session session;
  tiny_check(session_open(&session, options, SESSION_TRAIN));
  size_t bytes = (size_t)model_params(session.model)->total * sizeof(real);
  real *before = malloc(bytes);
  assert_non_null(before);
  memcpy(before, model_params(session.model)->values, bytes);
  Status status = state_load(&session, directory);
  if (status != expected) fail_msg("status %s, expected %s: %s", status_text(status), status_text(expected), status_message());
  if (strstr(status_message(), word) == NULL) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
  assert_memory_equal(before, model_params(session.model)->values, bytes);
  assert_int_equal(session.step, 0);
  free(before);
  session_close(&session);
}

static void a_state_that_does_not_fit_is_refused_whole(void **state) {
  (void)state;
  TrainOptions options = variant(0), other;
  Session session;
  tiny_open(&session, &options);
  tiny_steps_to(&session, 1);
  tiny_check(state_save(&session, tiny_path("fits")));
  session_close(&session);
  other = options;
  other.entries = 16;
  assert_refused(&other, tiny_path("fits"), STATUS_BAD_FILE, "site.0.codewords");
  other = options;
  other.optimizer.average = 0.9;
  assert_refused(&other, tiny_path("fits"), STATUS_BAD_FILE, "optimizer.average");
  other = options;
  other.optimizer.moments = OPTIMIZER_16_BITS;
  assert_refused(&other, tiny_path("fits"), STATUS_BAD_FILE, "--optimizer-bits");
  other = options;
  other.covariance = NOISE_DIAGONAL;
  assert_refused(&other, tiny_path("fits"), STATUS_BAD_FILE, "noise_covariance");
  other = options;
  other.image_size = 16;
  assert_refused(&other, tiny_path("fits"), STATUS_BAD_FILE, "params");
  assert_refused(&options, tiny_path("nowhere"), STATUS_NOT_FOUND, "state.safetensors");
}

static void a_cut_state_is_refused(void **state) {
  (void)state;
  TrainOptions options = variant(0);
  size_t size;
  char *data = tiny_read(tiny_path("fits/training/state.safetensors"), &size);
  tiny_check(files_make_dirs(tiny_path("cut/training")));
  for (int part = 0; part < 8; part++) {
    tiny_check(files_write(tiny_path("cut/training/state.safetensors"), data, size * (size_t)part / 8));
    assert_refused(&options, tiny_path("cut"), STATUS_BAD_FILE, "state.safetensors");
  }
  free(data);
}

/* Damage that leaves the file's shape alone: numbers that no run can have written. */
static void a_damaged_state_is_refused(void **state) {
  (void)state;
  static const int64_t negative = -1, seven = 7, zeros[4] = {0};
  static const real nan_number = (real)NAN, infinite = (real)INFINITY;
  static const struct {
    const char *name;
    size_t at, bytes;
    const void *numbers;
  } damages[] = {{"counters", 0, sizeof negative, &negative},          /* the step */
                 {"counters", sizeof seven, sizeof seven, &seven},     /* the optimizer's */
                 {"counters", 4 * sizeof *zeros, sizeof zeros, zeros}, /* a generator */
                 {"params", 5 * sizeof(real), sizeof(real), &nan_number},
                 {"site.1.sums", 3 * sizeof(real), sizeof(real), &infinite}};
  TrainOptions options = variant(0);
  SafeFile file;
  size_t size;
  const char *path = tiny_path("fits/training/state.safetensors");
  char *whole = tiny_read(path, &size);
  tiny_check(safetensors_open(&file, path));
  tiny_check(files_make_dirs(tiny_path("damaged/training")));
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    char *image = malloc(size);
    const SafeTensor *tensor = safetensors_find(&file, damages[i].name);
    assert_true(image != NULL && tensor != NULL);
    memcpy(image, whole, size);
    unseal(image, size);
    memcpy(image + (tensor->data - file.map.data) + damages[i].at, damages[i].numbers, damages[i].bytes);
    tiny_check(files_write(tiny_path("damaged/training/state.safetensors"), image, size));
    assert_refused(&options, tiny_path("damaged"), STATUS_BAD_FILE, damages[i].name);
    free(image);
  }
  safetensors_close(&file);
  free(whole);
}

/* The state before stays where numbers have run away. */
static void a_state_that_none_could_load_is_not_saved(void **state) {
  (void)state;
  for (int number = 0; number <= 2; number += 2) { /* moments of 32 and of 8 bits */
    TrainOptions options = variant(number);
    Session session;
    size_t size, after;
    tiny_open(&session, &options);
    tiny_steps_to(&session, 1);
    tiny_check(state_save(&session, tiny_path("kept")));
    char *before = tiny_read(tiny_path("kept/training/state.safetensors"), &size);
    tiny_steps_to(&session, 2);
    if (number == 0)
      ((real *)session.optimizer.second.numbers)[5] = (real)INFINITY;
    else
      session.optimizer.second.scales[0] = INFINITY;
    assert_int_equal(state_save(&session, tiny_path("kept")), STATUS_NUMERIC);
    assert_non_null(strstr(status_message(), "after step 2 optimizer.second"));
    char *now = tiny_read(tiny_path("kept/training/state.safetensors"), &after);
    assert_true(after == size && memcmp(now, before, size) == 0);
    free(before);
    free(now);
    session_close(&session);
  }
}

/* Where docs/FORMATS.md has them, so that states of other versions are read: saving and loading alike would not tell. */
static void counters_are_where_they_were(void **state) {
  (void)state;
  for (int number = 0; number <= 10; number += 10) { /* one bit rate, and three */
    TrainOptions options = variant(number);
    Session session;
    SafeFile file;
    int64_t counters[16], rates[3];
    tiny_open(&session, &options);
    tiny_steps_to(&session, 2);
    session.emulation.step = 77;
    for (int i = 0; i < emulate_all_sites(&session.emulation); i++)
      session.emulation.all[i].navq.updates = 5 + i / emulate_sites(&session.emulation);
    tiny_check(state_save(&session, tiny_path("places")));
    tiny_check(safetensors_open(&file, tiny_path("places/training/state.safetensors")));
    const SafeTensor *tensor = safetensors_find(&file, "counters"), *updates = safetensors_find(&file, "rates");
    assert_true(tensor != NULL && tensor->bytes == sizeof counters);
    memcpy(counters, tensor->data, sizeof counters);
    assert_memory_equal(counters, ((int64_t[]){2, 2, 77, number == 0 ? 5 : 0}), 4 * sizeof *counters);
    assert_memory_equal(counters + 4, session.map_rng.state, sizeof session.map_rng.state);
    assert_memory_equal(counters + 8, session.revive_rng.state, sizeof session.revive_rng.state);
    assert_memory_equal(counters + 12, session.mixup_rng.state, sizeof session.mixup_rng.state);
    assert_int_equal(updates != NULL, number != 0);
    if (updates != NULL) {
      assert_int_equal(updates->bytes, sizeof rates);
      memcpy(rates, updates->data, sizeof rates);
      assert_memory_equal(rates, ((int64_t[]){5, 6, 7}), sizeof rates);
    }
    safetensors_close(&file);
    session_close(&session);
  }
}

/* A flipped bit anywhere: the digests of header and tensors notice. */
static void a_bent_state_is_refused(void **state) {
  (void)state;
  enum { FLIPS = 20 };
  TrainOptions options = variant(0);
  size_t size;
  char *data = tiny_read(tiny_path("fits/training/state.safetensors"), &size);
  tiny_check(files_make_dirs(tiny_path("bent/training")));
  for (size_t flip = 0; flip < FLIPS; flip++) {
    size_t at = size - 1 - size * flip / FLIPS;
    data[at] ^= (char)(1 << flip % 8);
    tiny_check(files_write(tiny_path("bent/training/state.safetensors"), data, size));
    assert_refused(&options, tiny_path("bent"), STATUS_BAD_FILE, flip < FLIPS / 2 ? "is damaged" : "state.safetensors");
    data[at] ^= (char)(1 << flip % 8);
  }
  free(data);
}

/* trainer_run ends at a signal with everything saved, and its successor at the same bits as an undisturbed run. */
static void an_interrupted_run_leaves_all_it_needs(void **state) {
  (void)state;
  TrainOptions options = variant(2);
  TrainResult result;
  Session whole, first;
  char out[2][256];
  options.max_steps = 7;
  tiny_set_out(&options, out[0], "undisturbed");
  tiny_open(&whole, &options);
  tiny_check(trainer_run(&whole, &result));
  assert_int_equal(result.steps, 7);
  tiny_set_out(&options, out[1], "interrupted");
  tiny_open(&first, &options);
  tiny_steps_to(&first, 3);
  interrupt_catch();
  raise(SIGTERM); /* from here on for the life of this program: this test comes last */
  assert_int_equal(trainer_run(&first, &result), STATUS_INTERRUPTED);
  assert_non_null(strstr(status_message(), "step 3 of 7"));
  assert_non_null(strstr(status_message(), "--resume"));
  session_close(&first);
  Session second;
  tiny_check(session_open(&second, &options, SESSION_TRAIN));
  tiny_check(state_load(&second, options.out));
  tiny_seek(&second);
  tiny_steps_to(&second, 7);
  tiny_assert_same(&whole, &second);
  assert_true(files_exists(tiny_path("interrupted/model.safetensors")));
  assert_true(files_exists(tiny_path("interrupted/selftest.safetensors")));
  session_close(&second);
  session_close(&whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(going_on_gives_the_same_bits),
      cmocka_unit_test(long_steps_take_each_batch_once),
      cmocka_unit_test(a_state_goes_there_and_back),
      cmocka_unit_test(a_state_that_does_not_fit_is_refused_whole),
      cmocka_unit_test(a_cut_state_is_refused),
      cmocka_unit_test(a_damaged_state_is_refused),
      cmocka_unit_test(a_state_that_none_could_load_is_not_saved),
      cmocka_unit_test(a_bent_state_is_refused),
      cmocka_unit_test(counters_are_where_they_were),
      cmocka_unit_test(an_interrupted_run_leaves_all_it_needs),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
