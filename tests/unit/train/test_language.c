/* Next tokens as a task: the loss is that of the windows, perplexities count what they say, devices hold contiguous spans, a run goes on
 * bit for bit and leaves a whole checkpoint, and what does not belong together is refused. */
#include "data/text/text_perplexity.h"
#include "nn/safetensors.h"
#include "train/task_windows.h"
#include "train/validate.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_text.h"
#include <math.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the loss */

/* -ln p(label) from whole logits, in double. */
static double row_loss(const real *logits, int64_t classes, int32_t label) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < classes; i++) max = fmax(max, (double)logits[i]);
  for (int64_t i = 0; i < classes; i++) sum += exp((double)logits[i] - max);
  return max + log(sum) - (double)logits[label];
}

/* Tokens of the test part, as its description ends: "NAME, 123 tokens". */
static int64_t tokens_of_test(const Session *session) {
  const char *number = strrchr(session->data.about[TASK_TEST], ',');
  long long tokens = 0;
  assert_true(number != NULL && sscanf(number, ", %lld tokens", &tokens) == 1);
  return tokens;
}

/* The test text's tokens, windows and logits without any of the task's code but its batches of ids. */
static double text_loss(Session *session, int64_t *counted) {
  TaskBatch batch;
  double sum = 0;
  tiny_check(session->task->source->seek(session, TASK_TEST, 0, 0));
  tape_record(session->tape, false);
  *counted = 0;
  for (int64_t done = 0; done < session->data.count[TASK_TEST]; done += batch.count) {
    tiny_check(session->task->source->next(session, TASK_TEST, &batch));
    ModelInput input = {.ids = batch.ids, .batch = batch.count};
    tiny_check(task_lay_plain(session, batch.tokens));
    Tensor *encoded = model_encode(session->model, session->tape, &input, &session->plain_layout, NULL, MODEL_ROWS_ALL);
    Tensor *logits = model_logits(session->model, session->tape, encoded);
    assert_non_null(logits);
    for (int64_t row = 0; row < batch.count * batch.tokens; row++) {
      if (batch.labels[row] < 0) continue;
      sum += row_loss(logits->value + row * TEXT_PIECES, TEXT_PIECES, batch.labels[row]);
      ++*counted;
    }
    tape_clear(session->tape);
  }
  return sum;
}

static void the_loss_is_that_of_every_token_but_the_first(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++)
    for (int64_t stride = TEXT_CONTEXT; stride >= 7; stride -= 17) {
      TrainOptions options = tiny_text_options(kind);
      Session session;
      Validation result;
      int64_t counted;
      options.groups = 0;
      options.stride = stride;
      tiny_check(session_open(&session, &options, SESSION_EVALUATE));
      tiny_check(validate_run(&session, 0, 0, &result));
      double expected = text_loss(&session, &counted);
      assert_int_equal(counted, tokens_of_test(&session) - 1);
      assert_int_equal(result.score.items, counted);
      assert_float_equal(result.score.loss, expected, 1e-5 * expected);
      assert_float_equal(result.loss, expected / (double)counted, 1e-5 * result.loss);
      session_close(&session);
    }
}

/* More context can only be seen with overlapping windows: the same text, other losses. */
static void a_shorter_stride_sees_more(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  options.groups = 0;
  int64_t windows[2];
  for (int i = 0; i < 2; i++) {
    options.stride = i == 0 ? 0 : 8;
    tiny_check(session_open(&session, &options, SESSION_EVALUATE));
    windows[i] = session.data.count[TASK_TEST];
    session_close(&session);
  }
  assert_true(windows[1] > 2 * windows[0]);
}

/* ---------------------------------------------------------------- perplexity */

static void perplexities_count_what_they_say(void **state) {
  (void)state;
  static const char text[] = "Lily sees  a ball.\nTom likes\tcake. \nThe cat finds her mom. A bird sees the sun. Tom finds the big tree.\n";
  enum { WORDS = 22, LINES = 3, BYTES = sizeof text - 1 };
  FILE *file = fopen(tiny_path("counted.txt"), "wb");
  assert_int_equal(fwrite(text, 1, BYTES, file), BYTES);
  assert_int_equal(fclose(file), 0);
  TrainOptions options = tiny_text_options(MODEL_LLAMA);
  char dataset[300];
  snprintf(dataset, sizeof dataset, "text:%s", tiny_path("counted.txt"));
  options.eval_dataset = dataset; /* whole, and not the last part of it */
  options.groups = 0;
  Session session;
  Validation result;
  tiny_check(session_open(&session, &options, SESSION_EVALUATE));
  tiny_check(validate_run(&session, 0, 0, &result));
  int64_t tokens = tokens_of_test(&session);
  /* The first token is Llama's begin of text, so every byte is predicted; a space that this tokenizer puts in front is no byte of it. */
  const struct {
    PerplexityUnit unit;
    int64_t units;
  } cases[] = {{PERPLEXITY_TOKEN, tokens - 1}, {PERPLEXITY_WORD, WORDS}, {PERPLEXITY_GPT2_PAPER, WORDS + LINES}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Perplexity perplexity;
    tiny_check(task_windows_perplexity(&session, &result.score, cases[i].unit, &perplexity));
    assert_int_equal(perplexity.units, cases[i].units);
    assert_float_equal(log(perplexity.value), result.score.loss / (double)cases[i].units, 1e-9);
  }
  Perplexity bytes;
  double measures[TASK_MEASURES];
  tiny_check(task_windows_perplexity(&session, &result.score, PERPLEXITY_BYTE, &bytes));
  assert_int_equal(bytes.units, BYTES);
  session.task->report->measure(&result.score, measures);
  assert_float_equal(measures[0], exp(result.loss), 1e-9 * measures[0]);
  assert_float_equal(measures[1], log2(bytes.value), 1e-9);
  session_close(&session);
}

static void words_need_the_whole_text(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  Validation result;
  Perplexity perplexity;
  options.groups = 0;
  options.eval_samples = 2;
  options.perplexity = PERPLEXITY_WORD;
  tiny_check(session_open(&session, &options, SESSION_EVALUATE));
  assert_int_equal(task_windows_perplexity_check(&session), STATUS_BAD_USAGE); /* nothing was evaluated for it */
  session.options.perplexity = PERPLEXITY_BYTE;
  tiny_check(task_windows_perplexity_check(&session));
  tiny_check(validate_run(&session, 0, 2, &result));
  assert_int_equal(task_windows_perplexity(&session, &result.score, PERPLEXITY_WORD, &perplexity), STATUS_BAD_USAGE);
  assert_int_equal(task_windows_perplexity(&session, &result.score, PERPLEXITY_BYTE, &perplexity), STATUS_OK);
  session_close(&session);
}

/* ---------------------------------------------------------------- devices */

static void assert_contiguous(const TokenLayout *layout) {
  int64_t next = 0;
  assert_int_equal(layout->rows, TEXT_CONTEXT);
  for (int64_t row = 0; row < layout->rows; row++) assert_int_equal(layout->row_token[row], row);
  for (int span = 0; span < layout->spans; span++) {
    assert_int_equal(layout->span[span].begin, next);
    assert_true(layout->span[span].count >= 1);
    next += layout->span[span].count;
  }
  assert_int_equal(next, TEXT_CONTEXT);
}

/* The loss of a page on four devices with codebooks of `books`, of a session for this context; *length: its tokens. */
static double page_loss(const char *page, int64_t context, const char *books, int64_t *length) {
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  Validation result;
  char dataset[300];
  FILE *file = fopen(tiny_path("page.txt"), "wb");
  assert_true(file != NULL && fputs(page, file) >= 0);
  assert_int_equal(fclose(file), 0);
  snprintf(dataset, sizeof dataset, "text:%s", tiny_path("page.txt"));
  options.eval_dataset = dataset;
  options.perplexity = PERPLEXITY_LM_EVAL;
  options.context = context;
  tiny_check(session_open(&session, &options, SESSION_EVALUATE));
  tiny_check(codebooks_read(&session, books));
  tiny_check(validate_run(&session, 4, 0, &result));
  *length = result.score.items;
  session_close(&session);
  return result.loss;
}

/* Padding would leave it to the first device, which would have nothing to exchange. */
static void devices_share_out_a_short_page(void **state) {
  (void)state;
  static const char page[] = "Lily sees a ball. The cat finds her mom.";
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  int64_t length, again;
  tiny_open(&session, &options);
  tiny_check(files_make_dirs(tiny_path("books")));
  tiny_check(checkpoint_save_codebooks(session.config, tiny_path("books"), session.emulation.codewords, SAFE_F32));
  session_close(&session);
  const double loss = page_loss(page, 2 * TEXT_CONTEXT, tiny_path("books"), &length);
  assert_in_range(length, 8, TEXT_CONTEXT);
  assert_float_equal(page_loss(page, length, tiny_path("books"), &again), loss, 1e-9);
  assert_int_equal(again, length);
  page_loss("A", TEXT_CONTEXT, tiny_path("books"), &length); /* each device has a token, if only of padding */
  assert_in_range(length, 1, 3);
}

/* Dirichlet unless asked otherwise: lengths differ from batch to batch, and so does their number. */
static void devices_hold_contiguous_spans(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  tiny_open(&session, &options);
  assert_int_equal(session.options.map, COUNTS_DIRICHLET);
  int64_t first = session.layout.spans > 0 ? session.layout.span[0].count : 0;
  bool seen[5] = {false}, lengths_differ = false;
  for (int step = 0; step < 24; step++) {
    tiny_step(&session);
    assert_contiguous(&session.layout);
    assert_in_range(session.layout.spans, 2, 4);
    seen[session.layout.spans] = true;
    lengths_differ = lengths_differ || session.layout.span[0].count != first;
    first = session.layout.span[0].count;
  }
  assert_true(seen[2] && seen[3] && seen[4] && lengths_differ);
  session_close(&session);
  options.map = COUNTS_FIXED;
  options.counts = "3,14,7";
  options.devices[0] = options.devices[1] = 3;
  tiny_open(&session, &options);
  tiny_step(&session);
  assert_contiguous(&session.layout);
  assert_int_equal(session.layout.span[1].count, 14);
  session_close(&session);
}

/* The site is the architecture's, or the option's. */
static void either_site_is_for_either_model(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++)
    for (int site = 0; site <= SESSION_SITE_AUTO; site++) {
      TrainOptions options = tiny_text_options(kind);
      Session session;
      options.site = site;
      tiny_open(&session, &options);
      Site expected = site == SESSION_SITE_AUTO ? (kind == MODEL_LLAMA ? SITE_KV : SITE_X) : (Site)site;
      assert_int_equal(session.config->astra.site, expected);
      assert_int_equal(session.emulation.block_sites, expected == SITE_KV ? 2 : 1);
      tiny_step(&session);
      session_close(&session);
    }
}

/* ---------------------------------------------------------------- learning */

static double test_loss(Session *session) {
  Validation result;
  tiny_check(validate_run(session, 0, 0, &result));
  return result.loss;
}

static void a_grammar_is_learnt(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  options.groups = 0;
  options.max_steps = 80;
  options.optimizer.rate = 1e-2;
  Session session;
  tiny_open(&session, &options);
  double before = test_loss(&session);
  tiny_steps(&session, 80);
  double after = test_loss(&session);
  if (!(after < 0.4 * before)) fail_msg("the loss on the test text went from %g to %g", before, after);
  session_close(&session);
}

static void going_on_gives_the_same_bits(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_text_options(kind);
    Session whole;
    tiny_open(&whole, &options);
    int64_t epoch = session_epoch_steps(&whole);
    tiny_steps_to(&whole, 2 * epoch + 3); /* across two epochs */
    tiny_assert_goes_on(&whole, &options, epoch + 2);
    session_close(&whole);
  }
}

/* ---------------------------------------------------------------- adapters */

static TrainOptions adapter_options(ModelKind kind) {
  TrainOptions options = tiny_text_options(kind);
  options.lora_rank = 3;
  options.optimizer.rate = 1e-2;
  return options;
}

static void adapters_alone_learn(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = adapter_options(kind), plain = tiny_text_options(kind);
    Session session, base;
    tiny_check(session_open(&base, &plain, SESSION_EVALUATE));
    tiny_open(&session, &options);
    assert_float_equal(test_loss(&session), test_loss(&base), 1e-6); /* they begin as nothing */
    double before = test_loss(&session);
    tiny_steps(&session, 12);
    assert_true(test_loss(&session) < before - 0.1);
    const ParamSet *params = model_params(session.model), *whole = model_params(base.model);
    assert_true(params->count > whole->count);
    for (size_t i = 0; i < whole->count; i++) {
      assert_true(params->list[i].frozen);
      assert_memory_equal(params->list[i].tensor.value, whole->list[i].tensor.value,
                          (size_t)tensor_count(&whole->list[i].tensor) * sizeof(real));
    }
    session_close(&session);
    session_close(&base);
  }
}

/* What is exported is a model like any other, and computes what the one with adapters does; a state holds the adapters. */
static void adapters_are_folded_in_and_go_on(void **state) {
  (void)state;
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = adapter_options(kind), exported = tiny_text_options(kind);
    Session whole, again;
    Validation folded;
    char out[256];
    tiny_set_out(&options, out, kind == MODEL_GPT2 ? "folded-gpt2" : "folded-llama");
    tiny_open(&whole, &options);
    tiny_steps_to(&whole, 6);
    tiny_assert_goes_on(&whole, &options, 3);

    tiny_check(tiny_save(&whole));
    exported.model = out;
    tiny_check(session_open(&again, &exported, SESSION_EVALUATE));
    assert_int_equal(again.report.unused, 0);
    tiny_check(validate_run(&again, 0, 0, &folded));
    assert_float_equal(folded.loss, test_loss(&whole), 1e-5);
    session_close(&whole);
    session_close(&again);
  }
}

/* ---------------------------------------------------------------- the checkpoint */

static const SafeTensor *find(const SafeFile *file, const char *name, int dims, const int64_t *shape) {
  const SafeTensor *tensor = safetensors_find(file, name);
  if (tensor == NULL) fail_msg("the self-test has no %s", name);
  assert_int_equal(tensor->dims, dims);
  for (int i = 0; i < dims; i++) assert_int_equal(tensor->shape[i], shape[i]);
  return tensor;
}

static void check_selftest(const char *directory, int64_t batch, const char *const *sites) {
  char *path = files_join(directory, "selftest.safetensors");
  SafeFile file = {0};
  tiny_check(safetensors_open(&file, path));
  const SafeTensor *ids = find(&file, "ids", 2, (int64_t[]){batch, TEXT_CONTEXT});
  const SafeTensor *labels = find(&file, "labels", 2, (int64_t[]){batch, TEXT_CONTEXT});
  const SafeTensor *device_of = find(&file, "device_of", 1, (int64_t[]){TEXT_CONTEXT});
  find(&file, "logits", 2, (int64_t[]){batch, TEXT_PIECES});
  find(&file, "loss", 1, (int64_t[]){1});
  int32_t id[4 * TEXT_CONTEXT], label[4 * TEXT_CONTEXT], device[TEXT_CONTEXT];
  memcpy(id, ids->data, ids->bytes);
  memcpy(label, labels->data, labels->bytes);
  memcpy(device, device_of->data, device_of->bytes);
  for (int64_t row = 0; row < batch * TEXT_CONTEXT; row++) assert_in_range(id[row], 0, TEXT_PIECES - 1);
  for (int64_t row = 0; row < batch * TEXT_CONTEXT; row++)
    if ((row + 1) % TEXT_CONTEXT != 0) assert_int_equal(label[row], id[row + 1]);
  for (int64_t t = 0; t < TEXT_CONTEXT; t++) assert_int_equal(device[t], t / (TEXT_CONTEXT / 4)); /* 4 devices, even spans */
  for (int block = 0; block < TINY_BLOCKS; block++)
    for (int site = 0; sites[site] != NULL; site++) {
      char name[64];
      snprintf(name, sizeof name, "codes.astra.layers.%d.%s", block, sites[site]);
      const SafeTensor *codes = find(&file, name, 3, (int64_t[]){batch, TEXT_CONTEXT, 4});
      for (int64_t i = 0; i < codes->count; i++) {
        int32_t code;
        memcpy(&code, codes->data + (size_t)i * sizeof code, sizeof code);
        assert_in_range(code, 0, 7);
      }
    }
  safetensors_close(&file);
  free(path);
}

static void a_run_leaves_a_whole_checkpoint(void **state) {
  (void)state;
  static const char *const x[] = {"x", NULL}, *const kv[] = {"k", "v", NULL};
  for (ModelKind kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    TrainOptions options = tiny_text_options(kind);
    TrainResult result;
    Session session;
    char out[256];
    tiny_set_out(&options, out, kind == MODEL_GPT2 ? "whole-gpt2" : "whole-llama");
    options.dtype = SAFE_F16;
    tiny_open(&session, &options);
    tiny_check(trainer_run(&session, &result));
    assert_int_equal(result.steps, 8);
    assert_int_equal(result.plain.score.items, tokens_of_test(&session) - 1);
    assert_true(result.emulated.samples > 0);
    session_close(&session);
    check_selftest(out, 3, kind == MODEL_GPT2 ? x : kv);

    /* Everything comes from the directory now, the tokenizer included. */
    TrainOptions again = tiny_text_options(kind);
    Validation emulated;
    again.model = out;
    again.tokenizer = NULL;
    tiny_check(session_open(&session, &again, SESSION_EVALUATE));
    tiny_check(codebooks_read(&session, out));
    tiny_check(validate_run(&session, session.config->astra.devices, 0, &emulated));
    assert_float_equal(emulated.loss, result.emulated.loss, 0.01); /* weights in half precision */
    session_close(&session);
  }
}

/* ---------------------------------------------------------------- what is refused */

static void refuse(const TrainOptions *options, Status expected, const char *word) {
  Session session;
  Status status = session_open(&session, options, SESSION_TRAIN);
  if (status != expected) fail_msg("%s, expected %s: %s", status_text(status), status_text(expected), status_message());
  if (strstr(status_message(), word) == NULL) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
}

static void what_does_not_fit_together_is_refused(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  options.tokenizer = NULL;
  refuse(&options, STATUS_NOT_FOUND, "--tokenizer");
  options = tiny_text_options(MODEL_GPT2);
  options.model = "gpt2-mini";
  refuse(&options, STATUS_BAD_VALUE, "has 512 tokens, but the model gpt2-mini has a vocabulary of 4096");
  options = tiny_text_options(MODEL_GPT2);
  options.context = 2 * TEXT_CONTEXT + 1;
  refuse(&options, STATUS_BAD_USAGE, "at most 48 tokens");
  options = tiny_text_options(MODEL_GPT2);
  options.stride = TEXT_CONTEXT + 1;
  refuse(&options, STATUS_BAD_USAGE, "--stride 25");
  options = tiny_text_options(MODEL_GPT2);
  options.dataset = "synthetic:8x8:4:16";
  refuse(&options, STATUS_BAD_USAGE, "learns from texts");
  options = tiny_text_options(MODEL_GPT2);
  options.image_size = 32;
  refuse(&options, STATUS_BAD_USAGE, "--image-size is for images");
  options = tiny_text_options(MODEL_GPT2);
  options.eval_dataset = "cola:x";
  refuse(&options, STATUS_BAD_USAGE, "--eval-dataset cola:x");
  options = tiny_text_options(MODEL_GPT2);
  options.batch = 4096; /* no batch can be filled */
  refuse(&options, STATUS_BAD_VALUE, "batch");
  char path[300];
  snprintf(path, sizeof path, "text:%s", tiny_path("text/valid.txt"));
  options = tiny_text_options(MODEL_GPT2);
  options.eval_dataset = path;
  options.context = 2 * TEXT_CONTEXT;
  truncate(tiny_path("text/valid.txt"), 40);
  refuse(&options, STATUS_BAD_VALUE, "--context 48");
}

/* A preset takes the tokenizer's vocabulary and the context that it is trained on. */
static void a_model_from_scratch_is_made_for_its_text(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  options.model = "gpt2-mini";
  options.init = "random";
  options.groups = 0;
  tiny_open(&session, &options);
  assert_int_equal(session.config->vocabulary, TEXT_PIECES);
  assert_int_equal(session.config->context, TEXT_CONTEXT);
  assert_int_equal(session.config->begin_id, 1);
  assert_int_equal(session.config->end_ids, 1);
  assert_int_equal(session.config->end_id[0], 2);
  session_close(&session);
}

/* The number of windows is known once the text is tokens: a batch has no more of them, unless --batch says so. */
static void few_windows_are_one_batch(void **state) {
  (void)state;
  TrainOptions options = tiny_text_options(MODEL_GPT2);
  Session session;
  char few[256];
  options.batch = 0;
  tiny_open(&session, &options);
  assert_int_equal(session.options.batch, 8); /* of 20 and more */
  session_close(&session);
  tiny_check(files_make_dirs(tiny_path("few")));
  tiny_text_write(tiny_path("few/train.txt"), 12, 1);
  tiny_text_write(tiny_path("few/valid.txt"), 21, 2);
  snprintf(few, sizeof few, "text:%s/few", tiny_dir);
  options.dataset = few;
  tiny_open(&session, &options);
  assert_in_range(session.data.count[TASK_TRAIN], 3, 7);
  assert_int_equal(session.options.batch, session.data.count[TASK_TRAIN]);
  assert_int_equal(session.data.steps, 1);
  assert_non_null(strstr(session.chosen, " windows"));
  tiny_steps(&session, 2);
  session_close(&session);
  options.batch = 8;
  assert_int_equal(session_open(&session, &options, SESSION_TRAIN), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "fewer than a batch of 8"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_loss_is_that_of_every_token_but_the_first),
      cmocka_unit_test(a_shorter_stride_sees_more),
      cmocka_unit_test(perplexities_count_what_they_say),
      cmocka_unit_test(words_need_the_whole_text),
      cmocka_unit_test(devices_share_out_a_short_page),
      cmocka_unit_test(devices_hold_contiguous_spans),
      cmocka_unit_test(either_site_is_for_either_model),
      cmocka_unit_test(a_grammar_is_learnt),
      cmocka_unit_test(going_on_gives_the_same_bits),
      cmocka_unit_test(adapters_alone_learn),
      cmocka_unit_test(adapters_are_folded_in_and_go_on),
      cmocka_unit_test(a_run_leaves_a_whole_checkpoint),
      cmocka_unit_test(a_model_from_scratch_is_made_for_its_text),
      cmocka_unit_test(few_windows_are_one_batch),
      cmocka_unit_test(what_does_not_fit_together_is_refused), /* the last: it cuts the test text */
  };
  return cmocka_run_group_tests(tests, tiny_text_make, tiny_remove);
}
