/* Labelled texts as a source of samples (task.h). A batch is as wide as its longest text; what is shorter is padded on the right, where a
 * causal model does not look. Training batches hold texts of similar lengths, those of the test part texts of one length alone, so that the
 * emulated devices share out each text as they would if it came alone. */
#include "base/hash.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "data/text/text_labels.h"
#include "data/text/text_loader.h"
#include "train/task_source_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  POOL = 16,          /* batches of training texts that are sorted by length among each other */
  SHOWN_OF_TEXT = 200 /* bytes */
};

/* The state of source_labels. */
typedef struct Texts {
  LabelledText *set[TASK_PARTS];
  TextLoader *loader[TASK_PARTS];
  int32_t *ids[TASK_PARTS]; /* [B, T] */
} Texts;

static Status open_labels(Session *session) {
  const TrainOptions *options = &session->options;
  Texts *texts = session->source = calloc(1, sizeof *texts);
  if (texts == NULL) return status_no_memory(NULL, "labelled texts");
  TRY(task_source_refuse_image_options(options));
  const char *wrong = task_source_option_of_windows(options), *name = options->dataset, *directory = options->data_dir;
  if (wrong != NULL) return status_set(STATUS_BAD_USAGE, "--%s is for text:PATH; --dataset %s holds texts to classify", wrong, name);
  TRY(task_source_open_tokenizer(session));
  const TrainShare learnt = {options->train_part, options->validation_part}, held_out = {.of = options->validation_part};
  TRY(task_source_check_parts(options));
  TRY(text_labels_open_share(&texts->set[TASK_TRAIN], name, directory, learnt));
  TRY(held_out.of > 0 ? text_labels_open_share(&texts->set[TASK_TEST], name, directory, held_out)
                      : text_labels_open(&texts->set[TASK_TEST], name, directory, DATASET_TEST));
  session->classes = text_labels_classes(texts->set[TASK_TRAIN]);
  for (int part = 0; part < TASK_PARTS; part++) {
    session->data.about[part] = text_labels_describe(texts->set[part]);
    session->data.count[part] = text_labels_count(texts->set[part]);
  }
  return STATUS_OK;
}

static Status open_batches(Session *session, int64_t context, TaskPart part) {
  const TrainOptions *options = &session->options;
  Texts *texts = session->source;
  bool learning = part == TASK_TRAIN;
  TextEncoder encoder;
  TextLoaderOptions batching = {.context = context,
                                .batch = (int)options->batch,
                                .shuffle = learning,
                                .pool = learning ? POOL : 0,
                                .one_length = !learning,
                                .max = learning ? 0 : options->eval_samples,
                                .drop_last = learning && task_source_drops_last(session, text_labels_count(texts->set[part])),
                                .seed = (uint64_t)options->seed};
  TRY(tokenizer_encoder(&encoder, session->tokenizer));
  TRY(text_loader_labelled(&texts->loader[part], texts->set[part], &encoder, &batching));
  const TextLoaderFacts *facts = text_loader_facts(texts->loader[part]);
  if (facts->cut > 0)
    log_warning("%lld of %lld text%s %s longer than the context of %lld tokens; %s cut off", (long long)facts->cut,
                (long long)text_labels_count(texts->set[part]), text_plural(text_labels_count(texts->set[part])),
                facts->cut == 1 ? "is" : "are", (long long)context, facts->cut == 1 ? "its end is" : "their ends are");
  if (facts->width > session->tokens) session->tokens = facts->width;
  session->data.count[part] = facts->samples;
  if (learning) session->data.steps = facts->steps;
  return STATUS_OK;
}

static Status configure_labels(Session *session, ModelConfig *config) {
  const LabelledText *set = ((Texts *)session->source)->set[TASK_TRAIN];
  int64_t context;
  TRY(task_source_configure_tokens(session, config));
  TRY(config_set_labels(config, text_labels_names(set), session->classes));
  TRY(task_source_choose_context(session, config, &context));
  for (int part = 0; part < TASK_PARTS; part++) TRY(open_batches(session, context, (TaskPart)part));
  return STATUS_OK;
}

static Status start_labels(Session *session) {
  Texts *texts = session->source;
  size_t numbers = (size_t)(session->options.batch * session->tokens);
  for (int part = 0; part < TASK_PARTS; part++) {
    if ((texts->ids[part] = malloc(numbers * sizeof(int32_t))) == NULL) return status_no_memory(NULL, "a batch of texts");
    if (session->use == SESSION_TRAIN) session->data.digest[part] = hash_signed(text_labels_digest(texts->set[part]));
  }
  session->data.bytes = 4 * numbers * sizeof(int32_t); /* given and padded, of both parts */
  return STATUS_OK;
}

static void close_labels(Session *session) {
  Texts *texts = session->source;
  if (texts == NULL) return;
  for (int part = 0; part < TASK_PARTS; part++) {
    text_loader_free(texts->loader[part]);
    text_labels_close(texts->set[part]);
    free(texts->ids[part]);
  }
  free(texts);
}

static Status seek_labels(Session *session, TaskPart part, int64_t epoch, int64_t step) {
  TextLoader *loader = ((Texts *)session->source)->loader[part];
  text_loader_share(loader, session->share);
  return text_loader_seek(loader, epoch, step);
}

/* Behind its end a text begins again. No answer depends on what is there, but codebooks, commitment and the teacher's rows are those of all
 * rows of a batch, padding included: these are to be rows of texts, not of one and the same token. */
static void repeat_text(int32_t *ids, int64_t length, int64_t width) {
  for (int64_t t = length; t < width; t++) ids[t] = ids[t - length];
}

static Status next_labels(Session *session, TaskPart part, TaskBatch *batch) {
  Texts *texts = session->source;
  TextBatch given;
  text_loader_next(texts->loader[part], &given);
  int64_t from = text_loader_facts(texts->loader[part])->width, to = task_source_width(session, given.longest),
          both = from < to ? from : to;
  int32_t *ids = texts->ids[part];
  for (int i = 0; i < given.count; i++) {
    memcpy(ids + i * to, given.ids + i * from, (size_t)both * sizeof *ids);
    repeat_text(ids + i * to, given.lengths[i], to);
  }
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

static int64_t rows_of_labels(const Session *session, TaskPart part, int64_t max) {
  return text_loader_tokens(((const Texts *)session->source)->loader[part], max);
}

static Status show_text(Session *session, bool json, char **shown) {
  int32_t label;
  const LabelledText *set = ((Texts *)session->source)->set[TASK_TRAIN];
  const char *text = text_labels_text(set, 0, &label), *pair = text_labels_pair(set, 0);
  *shown = NULL;
  if (json) return STATUS_OK;
  TRY(task_source_show_excerpt("first text", text, strlen(text), SHOWN_OF_TEXT));
  if (pair != NULL) TRY(task_source_show_excerpt("  and its pair", pair, strlen(pair), SHOWN_OF_TEXT));
  printf("  is %s; %lld tokens hold the longest\n", printable(text_labels_names(set)[label]), (long long)session->tokens);
  return STATUS_OK;
}

const TaskSource source_labels = {.name = {.units = "texts", .samples = "texts", .sample = "text", .test = "test"},
                                  .defaults = {.batch = 16, .epochs = 3, .min_steps = 300},
                                  .texts = true,
                                  .open = open_labels,
                                  .configure = configure_labels,
                                  .start = start_labels,
                                  .close = close_labels,
                                  .seek = seek_labels,
                                  .next = next_labels,
                                  .rows = rows_of_labels,
                                  .show = show_text};
