/* Classes of texts, told by the row of a text's last token: see task.h. A batch is as wide as its longest text; what is shorter is padded
 * on the right, where a causal model does not look. Training batches hold texts of similar lengths. Those of the test part hold texts of
 * one length alone, so that the emulated devices share out each text as they would if it came alone. */
#include "base/log.h"
#include "base/printable.h"
#include "data/text/text_loader.h"
#include "train/session.h"
#include "train/task_language.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 16 }; /* batches of training texts that are sorted by length among each other */

typedef struct Texts {
  Tokenizer *tokenizer;
  LabelledText *set[TASK_PARTS];
  TextLoader *loader[TASK_PARTS];
  int32_t *ids[TASK_PARTS]; /* [B, T] */
} Texts;

static Texts *own(const Session *session) { return session->data; }

/* ---------------------------------------------------------------- opening */

static Status open_sets(Session *session) {
  const TrainOptions *options = &session->options;
  Texts *texts = session->data = calloc(1, sizeof *texts);
  if (texts == NULL) return status_set(STATUS_NO_MEMORY, "no memory");
  TRY(task_tokenizer_refuse_images(options));
  const char *wrong = task_language_option(options);
  if (wrong != NULL)
    return status_set(STATUS_BAD_USAGE, "--%s is for text:PATH; --dataset %s holds texts to classify", wrong, options->dataset);
  TRY(task_tokenizer_open(session, &texts->tokenizer));
  const char *name = options->dataset, *directory = options->data_dir;
  int64_t held_out = options->validation_part;
  TRY(text_labels_open_held_out(&texts->set[TASK_TRAIN], name, directory, false, held_out));
  TRY(held_out > 0 ? text_labels_open_held_out(&texts->set[TASK_TEST], name, directory, true, held_out)
                   : text_labels_open(&texts->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = text_labels_classes(texts->set[TASK_TRAIN]);
  return STATUS_OK;
}

static Status open_batches(Session *session, int64_t context, TaskPart part) {
  const TrainOptions *options = &session->options;
  Texts *texts = own(session);
  bool learning = part == TASK_TRAIN;
  TextEncoder encoder;
  TextLoaderOptions batching = {.context = context,
                                .batch = (int)options->batch,
                                .shuffle = learning,
                                .pool = learning ? POOL : 0,
                                .one_length = !learning,
                                .max = learning ? 0 : options->eval_samples,
                                .drop_last = learning && text_labels_count(texts->set[part]) >= options->batch,
                                .seed = (uint64_t)options->seed};
  TRY(tokenizer_encoder(&encoder, texts->tokenizer));
  TRY(text_loader_labelled(&texts->loader[part], texts->set[part], &encoder, &batching));
  const TextLoaderFacts *facts = text_loader_facts(texts->loader[part]);
  if (facts->cut > 0)
    log_warning("%lld of %lld texts are longer than the context of %lld tokens; their ends are cut off", (long long)facts->cut,
                (long long)text_labels_count(texts->set[part]), (long long)context);
  if (facts->width > session->tokens) session->tokens = facts->width;
  return STATUS_OK;
}

static Status configure(Session *session, ModelConfig *config) {
  const LabelledText *set = own(session)->set[TASK_TRAIN];
  int64_t context;
  TRY(task_tokenizer_configure(session, own(session)->tokenizer, config));
  TRY(config_set_labels(config, text_labels_names(set), session->classes));
  TRY(task_tokenizer_context(session, config, &context));
  for (int part = 0; part < TASK_PARTS; part++) TRY(open_batches(session, context, (TaskPart)part));
  return STATUS_OK;
}

static Status start(Session *session) {
  size_t numbers = (size_t)(session->options.batch * session->tokens);
  for (int part = 0; part < TASK_PARTS; part++)
    if ((own(session)->ids[part] = malloc(numbers * sizeof(int32_t))) == NULL)
      return status_set(STATUS_NO_MEMORY, "no memory for a batch of texts");
  return STATUS_OK;
}

static void close_sets(Session *session) {
  Texts *texts = own(session);
  if (texts == NULL) return;
  for (int part = 0; part < TASK_PARTS; part++) {
    text_loader_free(texts->loader[part]);
    text_labels_close(texts->set[part]);
    free(texts->ids[part]);
  }
  tokenizer_close(texts->tokenizer);
  free(texts);
}

/* ---------------------------------------------------------------- batches */

static const char *describe(const Session *session, TaskPart part) { return text_labels_describe(own(session)->set[part]); }
static int64_t count(const Session *session, TaskPart part) {
  const Texts *texts = own(session);
  return texts->loader[part] ? text_loader_facts(texts->loader[part])->samples : text_labels_count(texts->set[part]);
}
static int64_t steps(const Session *session) { return text_loader_facts(own(session)->loader[TASK_TRAIN])->steps; }

static Status seek(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  text_loader_share(own(session)->loader[part], session->share);
  return text_loader_seek(own(session)->loader[part], epoch, step);
}

/* T of a batch: its longest text, in all ranks that share it. A plan is for the longest of all; fixed counts of tokens are for these as
 * well, in training, while an evaluation shares each text out evenly; and each device needs a token. */
static int64_t width_of(const Session *session, TaskPart part, const TextBatch *batch) {
  bool fixed = part == TASK_TRAIN && session->options.map == COUNTS_FIXED;
  int64_t width = session->options.groups > 0 ? session->options.devices[1] : 1;
  if (tape_planning(session->tape) || fixed) return session->tokens;
  return batch->longest > width ? batch->longest : width;
}

static Status next(Session *session, TaskPart part, TaskBatch *batch) {
  Texts *texts = own(session);
  TextBatch given;
  text_loader_next(texts->loader[part], &given);
  int64_t from = text_loader_facts(texts->loader[part])->width, to = width_of(session, part, &given), both = from < to ? from : to;
  int32_t *ids = texts->ids[part];
  memset(ids, 0, (size_t)(given.count * to) * sizeof *ids);
  for (int i = 0; i < given.count; i++) memcpy(ids + i * to, given.ids + i * from, (size_t)both * sizeof *ids);
  *batch = (TaskBatch){.count = given.count,
                       .first = given.first,
                       .whole = given.whole,
                       .tokens = to,
                       .units = given.count,
                       .ids = ids,
                       .lengths = given.lengths,
                       .labels = given.labels};
  return STATUS_OK;
}

static size_t bytes(const Session *session) {
  return 4 * (size_t)(session->options.batch * session->tokens) * sizeof(int32_t); /* given and padded, of both parts */
}

/* ---------------------------------------------------------------- the model */

static Tensor *logits_of(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange) {
  ModelInput input = task_input(tape, batch, model_config(model));
  int32_t *last = tape_alloc(tape, (size_t)batch->count * sizeof *last);
  Tensor *encoded = model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
  if (last == NULL || encoded == NULL) return NULL;
  for (int i = 0; i < batch->count && !tape_planning(tape); i++) last[i] = batch->lengths[i] - 1;
  return model_classify(model, tape, op_select_rows(tape, encoded, last));
}

static Tensor *loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  CrossEntropy target = {0};
  return task_class_loss(session, batch, logits_of(session->model, session->tape, batch, layout, exchange), &target, score);
}

static Tensor *answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, Tensor **kept) {
  *kept = NULL;
  return logits_of(model, tape, batch, layout, exchange);
}

/* ---------------------------------------------------------------- reports */

static bool of_two(const TaskScore *score) {
  return score->answers[0][0] + score->answers[0][1] + score->answers[1][0] + score->answers[1][1] > 0;
}

static const char *const measures[] = {"accuracy", "matthews", NULL};

static void measure(const TaskScore *score, double values[TASK_MEASURES]) {
  values[0] = task_accuracy(score);
  values[1] = of_two(score) ? text_labels_matthews(score->answers) : NAN;
}

static void tell(const TaskScore *score, char text[TASK_TEXT]) {
  int at = snprintf(text, TASK_TEXT, "accuracy %.2f%%", 100 * task_accuracy(score));
  if (of_two(score)) snprintf(text + at, TASK_TEXT - (size_t)at, " (Matthews correlation %.3f)", text_labels_matthews(score->answers));
}

enum { SHOWN = 200 /* bytes of text */ };

static Status show_one(const char *what, const char *text) {
  char *excerpt = printable_excerpt(text, strlen(text), SHOWN);
  if (excerpt == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the first text");
  printf("%s: \"%s\"\n", what, excerpt);
  free(excerpt);
  return STATUS_OK;
}

static Status show(Session *session, bool json, char **shown) {
  int32_t label;
  const LabelledText *set = own(session)->set[TASK_TRAIN];
  const char *text = text_labels_text(set, 0, &label), *pair = text_labels_pair(set, 0);
  *shown = NULL;
  if (json) return STATUS_OK;
  TRY(show_one("first text", text));
  if (pair != NULL) TRY(show_one("  and its pair", pair));
  printf("  is %s; %lld tokens hold the longest\n", printable(text_labels_names(set)[label]), (long long)session->tokens);
  return STATUS_OK;
}

static Status save(const Session *session, const char *directory) { return tokenizer_save(own(session)->tokenizer, directory); }
static Status check_save(const Session *session, const char *directory) { return tokenizer_save_check(own(session)->tokenizer, directory); }

const Task task_texts = {.unit = "texts",
                         .sample = "texts",
                         .one = "text",
                         .test = "test",
                         .measures = measures,
                         .decoder = true,
                         .batch = 16,
                         .epochs = 3,
                         .min_steps = 300,
                         .open = open_sets,
                         .configure = configure,
                         .start = start,
                         .close = close_sets,
                         .describe = describe,
                         .count = count,
                         .steps = steps,
                         .seek = seek,
                         .next = next,
                         .loss = loss,
                         .answer = answer,
                         .measure = measure,
                         .tell = tell,
                         .show = show,
                         .save = save,
                         .check_save = check_save,
                         .bytes = bytes};
