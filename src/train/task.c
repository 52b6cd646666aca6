/* What the tasks share: see task.h. */
#include "train/task.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include "train/session.h"

const Task *task_find(const char *dataset) {
  if (text_source_knows(dataset)) return &task_language;
  return text_labels_knows(dataset) ? &task_texts : &task_images;
}

static Tensor *pixels_of(Tape *tape, const TaskBatch *batch, const ModelConfig *config) {
  int64_t shape[] = {batch->count, config->channels, config->image, config->image};
#if REAL_IS_DOUBLE
  Tensor *pixels = tape_tensor(tape, 4, shape);
  for (int64_t i = 0; pixels != NULL && i < tensor_count(pixels); i++) pixels->value[i] = batch->pixels[i];
  return pixels;
#else
  return tape_constant(tape, 4, shape, batch->pixels);
#endif
}

ModelInput task_input(Tape *tape, const TaskBatch *batch, const ModelConfig *config) {
  if (batch->ids != NULL) return (ModelInput){.ids = batch->ids, .batch = batch->count};
  return (ModelInput){.pixels = pixels_of(tape, batch, config)};
}

void task_add(TaskScore *sum, const TaskScore *part) {
  sum->loss += part->loss;
  sum->samples += part->samples;
  sum->items += part->items;
  sum->correct += part->correct;
  sum->bytes += part->bytes;
  for (int label = 0; label < 2; label++)
    for (int answer = 0; answer < 2; answer++) sum->answers[label][answer] += part->answers[label][answer];
}

double task_mean_loss(const TaskScore *score) { return score->items > 0 ? score->loss / (double)score->items : 0; }
double task_accuracy(const TaskScore *score) { return score->items > 0 ? (double)score->correct / (double)score->items : 0; }

/* Which of two classes each logit row answers; ties go to the first, as op_cross_entropy counts them. */
static void count_answers(const TaskBatch *batch, const Tensor *logits, TaskScore *score) {
  for (int i = 0; tensor_width(logits) == 2 && i < batch->count; i++) {
    int answer = logits->value[2 * i + 1] > logits->value[2 * i];
    score->answers[batch->labels[i] != 0][answer]++;
  }
}

static void count_confusion(Session *session, const TaskBatch *batch, const Tensor *logits) {
  int64_t classes = session->confusion.classes;
  for (int i = 0; classes > 0 && i < batch->count; i++) {
    const real *row = logits->value + i * classes;
    int64_t answer = 0;
    for (int64_t c = 1; c < classes; c++)
      if (row[c] > row[answer]) answer = c;
    confusion_add(&session->confusion, batch->labels[i], answer);
  }
}

Tensor *task_class_loss(Session *session, const TaskBatch *batch, Tensor *logits, CrossEntropy *target, TaskScore *score) {
  target->labels = batch->labels;
  target->correct = &score->correct;
  target->smoothing = tape_recording(session->tape) ? session->options.smoothing : 0;
  Tensor *loss = op_cross_entropy(session->tape, logits, target);
  if (loss == NULL || tape_planning(session->tape)) return loss;
  score->samples = score->items = batch->count;
  score->loss = (double)loss->value[0] * batch->count;
  count_answers(batch, logits, score);
  if (!tape_recording(session->tape)) count_confusion(session, batch, logits);
  return loss;
}
