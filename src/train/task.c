/* The three tasks, their heads and their reports, and the teacher that a head may learn from: see task.h. */
#include "train/task.h"
#include "autograd/kernels/kernels.h"
#include "data/text/text_labels.h"
#include "data/text/text_source.h"
#include "train/ranks.h"
#include "train/session.h"
#include <math.h>
#include <string.h>

ModelInput task_input(Tape *tape, const TaskBatch *batch, const ModelConfig *config) {
  if (batch->ids != NULL) return (ModelInput){.ids = batch->ids, .batch = batch->count};
  int64_t shape[] = {batch->count, config->channels, config->image, config->image};
#if REAL_IS_DOUBLE
  Tensor *pixels = tape_tensor(tape, 4, shape);
  for (int64_t i = 0; pixels != NULL && i < tensor_count(pixels); i++) pixels->value[i] = batch->pixels[i];
#else
  Tensor *pixels = tape_constant(tape, 4, shape, batch->pixels);
#endif
  return (ModelInput){.pixels = pixels};
}

Status task_lay_plain(Session *session, int64_t tokens) {
  if (session->plain_layout.tokens == tokens) return STATUS_OK;
  return layout_build_plain(&session->plain_layout, tokens, session->task->source->texts ? CLASS_NONE : CLASS_DISTRIBUTED);
}

/* ---- Mixup and CutMix ---- */

/* Mixup (Zhang et al., 2018): each image is blended with another of its batch, and so are their labels. CutMix (Yun et al., 2019): a box
 * of the other is pasted into it, and labels are blended by areas. */

typedef struct Blend {
  const real *from;
  real *to, share;
  int64_t count, size; /* images, numbers in one */
} Blend;

static void blend_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Blend *blend = context;
  for (int64_t i = begin; i < end; i++) {
    real *to = blend->to + i * blend->size;
    memset(to, 0, (size_t)blend->size * sizeof *to);
    kernels()->axpy(blend->size, blend->share, blend->from + i * blend->size, to);
    kernels()->axpy(blend->size, 1 - blend->share, blend->from + (blend->count - 1 - i) * blend->size, to);
  }
}

/* The box [left, right) x [top, bottom) of each channel comes from the other image. */
typedef struct Paste {
  const real *from;
  real *to;
  int64_t count, channels, height, width;
  int64_t left, right, top, bottom;
} Paste;

static void paste_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Paste *paste = context;
  int64_t plane = paste->height * paste->width, size = paste->channels * plane;
  size_t bytes = (size_t)(paste->right - paste->left) * sizeof *paste->to;
  for (int64_t i = begin; i < end; i++) {
    real *to = paste->to + i * size;
    const real *other = paste->from + (paste->count - 1 - i) * size;
    memcpy(to, paste->from + i * size, (size_t)size * sizeof *to);
    for (int64_t row = 0; row < paste->channels * paste->height; row++) {
      int64_t at = row * paste->width + paste->left, y = row % paste->height;
      if (y >= paste->top && y < paste->bottom) memcpy(to + at, other + at, bytes);
    }
  }
}

static int64_t within(int64_t value, int64_t max) { return value < 0 ? 0 : value > max ? max : value; }

/* A box of (1 - share) of the image about a uniform centre, cut off at the borders; returns the share that is left of the own image. */
static double draw_box(Rng *rng, double share, Paste *paste) {
  double side = sqrt(1 - share);
  int64_t w = (int64_t)(side * (double)paste->width), h = (int64_t)(side * (double)paste->height);
  int64_t x = (int64_t)rng_below(rng, (uint64_t)paste->width) - w / 2, y = (int64_t)rng_below(rng, (uint64_t)paste->height) - h / 2;
  paste->left = within(x, paste->width), paste->right = within(x + w, paste->width);
  paste->top = within(y, paste->height), paste->bottom = within(y + h, paste->height);
  double pasted = (double)((paste->right - paste->left) * (paste->bottom - paste->top));
  return 1 - pasted / (double)(paste->width * paste->height);
}

/* One of options.mixup and options.cutmix that is above 0; where both are, each batch takes either half of the time. One share for the
 * batch, from Beta(alpha, alpha), and one box; image i is mixed with image count - 1 - i (batches are shuffled). Fills target->other
 * and target->mix. */
static Tensor *mixup(Session *session, Tape *tape, const TaskBatch *batch, const Tensor *pixels, CrossEntropy *target) {
  const TrainOptions *options = &session->options;
  Rng *rng = &session->mixup_rng;
  bool paste = options->cutmix > 0 && (options->mixup == 0 || rng_next(rng) >> 63);
  double alpha = paste ? options->cutmix : options->mixup, a = rng_gamma(rng, alpha), b = rng_gamma(rng, alpha);
  double share = a + b > 0 ? a / (a + b) : (double)(rng_next(rng) >> 63); /* both underflow where alpha is small: it is 0 or 1 */
  if (pixels == NULL) return NULL;
  Tensor *mixed = tape_tensor(tape, pixels->dims, pixels->shape);
  int32_t *other = tape_alloc(tape, (size_t)batch->count * sizeof *other);
  real *mix = tape_alloc(tape, (size_t)batch->count * sizeof *mix);
  if (mixed == NULL || other == NULL || mix == NULL) return NULL;
  if (paste) {
    Paste job = {pixels->value, mixed->value, batch->count, pixels->shape[1], pixels->shape[2], pixels->shape[3], 0, 0, 0, 0};
    share = draw_box(rng, share, &job);
    tape_for(tape, batch->count, 1, paste_body, &job);
  } else {
    Blend job = {pixels->value, mixed->value, (real)share, batch->count, tensor_count(pixels) / batch->count};
    tape_for(tape, batch->count, 1, blend_body, &job);
  }
  for (int i = 0; i < batch->count; i++) {
    other[i] = batch->labels[batch->count - 1 - i];
    mix[i] = (real)share;
  }
  target->other = other;
  target->mix = mix;
  return mixed;
}

/* A text's class is told by the row of its last token: [B, T, D] -> [B, 1, D]. NULL of NULL. */
static Tensor *last_rows(Tape *tape, Tensor *encoded, const TaskBatch *batch) {
  int32_t *last = tape_alloc(tape, (size_t)batch->count * sizeof *last);
  if (last == NULL || encoded == NULL) return NULL;
  for (int i = 0; i < batch->count && !tape_planning(tape); i++) last[i] = batch->lengths[i] - 1;
  return op_select_rows(tape, encoded, last);
}

/* ---- Distillation ---- */

/* Whether this pass learns from a teacher: there is one, and the tape records. */
static bool is_taught(const Session *session) { return session->teacher.model != NULL && tape_recording(session->tape); }

/* Rows after a block: the teacher's are kept, while the tape does not record, and the student's compared with them. */
static void take_rows(BlockOutputs *self, Tape *tape, int block, Tensor *x) {
  TeacherStates *states = (TeacherStates *)self;
  if (tape_recording(tape)) {
    Tensor *error = op_row_error(tape, x, states->rows[block], states->count, states->match, states->power ? &states->power[block] : NULL);
    states->error = states->error ? op_add(tape, states->error, error) : error;
  } else if (!tape_planning(tape)) {
    tensor_read(x, 0, tensor_count(x), states->rows[block]);
  }
}

/* Room for the teacher's rows of a batch, and which of them the student's, laid out as `layout` says, are compared with: of the same token,
 * and of each class token. Returns the receiver of both passes' rows; NULL: none is wanted, or no memory, which fails the tape. */
static BlockOutputs *follow_rows(Session *session, const TaskBatch *batch, const TokenLayout *layout) {
  Tape *tape = session->tape;
  const ModelConfig *config = session->config;
  TeacherStates *states = &session->teacher.states;
  const int32_t first = config_is_decoder(config) ? 0 : 1;
  const int64_t blocks = config->blocks - 1;
  if (session->options.distill_hidden == 0) return NULL;
  *states = (TeacherStates){.outputs = {take_rows}, .count = first + batch->tokens, .compared = layout->rows};
  states->rows = tape_alloc(tape, (size_t)(blocks + 1) * sizeof *states->rows);
  states->match = tape_alloc(tape, (size_t)layout->rows * sizeof *states->match);
  if (states->rows == NULL || states->match == NULL) return NULL;
  for (int64_t block = 0; block < blocks; block++)
    states->rows[block] = tape_alloc(tape, (size_t)(batch->count * states->count * config->width) * sizeof(real));
  for (int64_t row = 0; row < layout->rows && !tape_planning(tape); row++)
    states->match[row] = layout->row_token[row] < 0 ? 0 : first + layout->row_token[row];
  return tape_status(tape) == STATUS_OK ? &states->outputs : NULL;
}

/* Sums of squares over the teacher's rows that a sample is compared with, after one block. */
typedef struct Power {
  const TeacherStates *states;
  const real *rows; /* [B, count, D] */
  int64_t width;
  double *sums; /* [B] */
} Power;

static void power_body(void *context, int64_t begin, int64_t end, int thread) {
  const Power *job = context;
  const TeacherStates *states = job->states;
  (void)thread;
  for (int64_t sample = begin; sample < end; sample++) {
    job->sums[sample] = 0;
    for (int64_t row = 0; row < states->compared; row++)
      job->sums[sample] += kernels()->sum_squares(job->width, job->rows + (sample * states->count + states->match[row]) * job->width);
  }
}

/* In a job of several ranks errors are relative to the rows of the whole batch, as in one process: P = sum over ranks of sum t^2. As the
 * loss of a share of n of N samples counts n / N, its error E is divided by P n / N, and the ranks' losses sum to sum E / P. Once the
 * teacher's rows are there; waits for the other ranks. */
static void share_power(Session *session, const TaskBatch *batch) {
  Tape *tape = session->tape;
  TeacherStates *states = &session->teacher.states;
  const int64_t blocks = session->config->blocks - 1;
  Power job = {.states = states, .width = session->config->width};
  if (session->parallel == NULL) return;
  states->power = tape_alloc(tape, (size_t)(blocks + 1) * sizeof *states->power);
  job.sums = tape_alloc(tape, (size_t)batch->count * sizeof *job.sums);
  if (tape_status(tape) != STATUS_OK || tape_planning(tape)) return;
  for (int64_t block = 0; block < blocks; block++) {
    job.rows = states->rows[block];
    tape_for(tape, batch->count, 1, power_body, &job);
    states->power[block] = 0;
    for (int64_t sample = 0; sample < batch->count; sample++) states->power[block] += job.sums[sample];
  }
  ranks_sum(states->power, (int)blocks);
  for (int64_t block = 0; block < blocks; block++) states->power[block] *= (double)batch->count / (double)batch->whole;
}

/* The teacher's rows: all of a text, the class token of an image. */
static Tensor *teacher_rows(Session *session, const TaskBatch *batch, Tensor *pixels, BlockOutputs *outputs) {
  ModelInput input = {.pixels = pixels, .ids = batch->ids, .batch = batch->count, .outputs = outputs};
  if (task_lay_plain(session, batch->tokens) != STATUS_OK) return NULL;
  Tensor *rows = model_encode(session->teacher.model, session->tape, &input, &session->plain_layout, NULL,
                              batch->ids ? MODEL_ROWS_ALL : MODEL_ROWS_CLASS);
  if (rows != NULL && outputs != NULL) share_power(session, batch);
  return rows;
}

/* The teacher's probabilities [B, classes] for the batch, whose pixels, if it has any, are `pixels` [B, C, H, W], into the target: on the
 * tape, not recorded. */
static void teach_classes(Session *session, const TaskBatch *batch, Tensor *pixels, BlockOutputs *outputs, CrossEntropy *target) {
  Tape *tape = session->tape;
  tape_record(tape, false);
  Tensor *encoded = teacher_rows(session, batch, pixels, outputs);
  if (batch->ids != NULL) encoded = last_rows(tape, encoded, batch);
  const bool answers = encoded != NULL && session->options.distill > 0; /* or its rows alone teach */
  Tensor *logits = answers ? model_classify(session->teacher.model, tape, encoded) : NULL;
  tape_record(tape, true);
  if (logits == NULL) return;
  const int64_t classes = tensor_width(logits);
  for (int64_t row = 0; !tape_planning(tape) && row < batch->count; row++) kernels()->softmax(classes, 1, logits->value + row * classes);
  target->teacher = logits->value;
  target->teaching = session->options.distill;
}

/* ---- The head of classes ---- */

/* Mean cross-entropy of logits [B, classes], smoothed while the tape records. Answers are counted where two classes are told apart, and
 * where a confusion matrix is asked for; ties go to the first, as op_cross_entropy counts them. */
static Tensor *class_loss(Session *session, const TaskBatch *batch, Tensor *logits, CrossEntropy *target, TaskScore *score) {
  target->labels = batch->labels;
  target->correct = &score->correct;
  target->smoothing = tape_recording(session->tape) ? session->options.smoothing : 0;
  Tensor *loss = op_cross_entropy(session->tape, logits, target);
  if (loss == NULL || tape_planning(session->tape)) return loss;
  for (int i = 0; i < batch->count; i++) score->items += batch->labels[i] >= 0;
  score->samples = score->items;
  score->loss = (double)loss->value[0] * (double)score->items;
  int64_t classes = tensor_width(logits);
  for (int i = 0; (classes == 2 || score->confusion != NULL) && i < batch->count; i++) {
    if (batch->labels[i] < 0) continue; /* not counted; op_cross_entropy has refused one above the classes */
    const real *row = logits->value + i * classes;
    int64_t answer = 0;
    for (int64_t c = 1; c < classes; c++)
      if (row[c] > row[answer]) answer = c;
    if (classes == 2) score->answers[batch->labels[i] != 0][answer]++;
    if (score->confusion != NULL) score->confusion[batch->labels[i] * classes + answer]++;
  }
  return loss;
}

static Tensor *image_loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  Tape *tape = session->tape;
  CrossEntropy target = {0};
  ModelInput input = task_input(tape, batch, session->config);
  if (tape_recording(tape) && (session->options.mixup > 0 || session->options.cutmix > 0))
    input.pixels = mixup(session, tape, batch, input.pixels, &target);
  if (is_taught(session)) {
    input.outputs = follow_rows(session, batch, layout);
    teach_classes(session, batch, input.pixels, input.outputs, &target);
  }
  Tensor *encoded = model_encode(session->model, tape, &input, layout, exchange, MODEL_ROWS_CLASS);
  return class_loss(session, batch, model_classify_replicas(session->model, tape, encoded, layout->class_tokens), &target, score);
}

static Tensor *image_answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange,
                            Tensor **kept) {
  ModelInput input = task_input(tape, batch, model_config(model));
  *kept = NULL;
  Tensor *replicas = model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_CLASS);
  return model_classify_replicas(model, tape, replicas, layout->class_tokens);
}

static Tensor *classify_text(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange,
                             BlockOutputs *outputs) {
  ModelInput input = task_input(tape, batch, model_config(model));
  input.outputs = outputs;
  Tensor *rows = last_rows(tape, model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_ALL), batch);
  return rows != NULL ? model_classify(model, tape, rows) : NULL;
}

static Tensor *text_answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, Tensor **kept) {
  *kept = NULL;
  return classify_text(model, tape, batch, layout, exchange, NULL);
}

static Tensor *text_loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  CrossEntropy target = {0};
  BlockOutputs *outputs = is_taught(session) ? follow_rows(session, batch, layout) : NULL;
  if (is_taught(session)) teach_classes(session, batch, NULL, outputs, &target);
  Tensor *logits = classify_text(session->model, session->tape, batch, layout, exchange, outputs);
  return class_loss(session, batch, logits, &target, score);
}

/* ---- The head of next tokens ---- */

static Tensor *token_loss(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score) {
  Tape *tape = session->tape;
  bool learning = tape_recording(tape);
  int64_t rows = batch->count * batch->tokens;
  ModelInput input = task_input(tape, batch, session->config);
  VocabLoss options = {.labels = batch->labels,
                       .smoothing = learning ? session->options.smoothing : 0,
                       .correct = &score->correct,
                       .row_loss = learning ? NULL : tape_alloc(tape, (size_t)rows * sizeof(real)),
                       .teaching = session->options.distill};
  if (is_taught(session)) { /* the teacher's rows [B, T, D'] and the table [V, D'] that makes logits of them */
    input.outputs = follow_rows(session, batch, layout);
    tape_record(tape, false);
    Tensor *taught = teacher_rows(session, batch, NULL, input.outputs);
    if (session->options.distill > 0) { /* or its rows alone teach */
      options.teacher = taught;
      options.teacher_table = model_token_table(session->teacher.model, tape);
    }
    tape_record(tape, true);
    if (tape_status(tape) != STATUS_OK) return NULL;
  }
  Tensor *encoded = model_encode(session->model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
  Tensor *value = model_token_loss(session->model, tape, encoded, &options);
  if (value == NULL || tape_planning(tape)) return value;
  /* Sums over the labels that count, with the bytes of text behind each, of which drawn tokens have none. While training there are no
   * losses of single rows: the mean says enough. */
  score->samples = batch->count;
  for (int64_t row = 0; row < rows; row++) {
    if (batch->labels[row] < 0) continue;
    score->items++;
    if (session->tokenizer != NULL) score->bytes += (int64_t)tokenizer_text_bytes(session->tokenizer, batch->ids[row], batch->labels[row]);
    if (options.row_loss != NULL) score->loss += (double)options.row_loss[row];
  }
  if (options.row_loss == NULL) score->loss = (double)value->value[0] * (double)score->items;
  return value;
}

static Tensor *token_answer(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange,
                            Tensor **kept) {
  ModelInput input = task_input(tape, batch, model_config(model));
  Tensor *encoded = model_encode(model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
  *kept = model_token_loss(model, tape, encoded, &(VocabLoss){.labels = batch->labels});
  return *kept == NULL ? NULL : model_logits(model, tape, op_gather_rows(tape, encoded, layout->last_row, 1));
}

/* ---- Reports ---- */

const char *task_value(const char *text) {
  const char *blank = strchr(text, ' ');
  return blank ? blank + 1 : text;
}

static void measure_accuracy(const TaskScore *score, double values[TASK_MEASURES]) { values[0] = task_accuracy(score); }

static void tell_accuracy(const TaskScore *score, char text[TASK_TEXT]) {
  snprintf(text, TASK_TEXT, "accuracy %.2f%%", 100 * task_accuracy(score));
}

/* Of two classes also Matthews' correlation; NAN of more. */
static void measure_answers(const TaskScore *score, double values[TASK_MEASURES]) {
  const int64_t(*answers)[2] = score->answers;
  bool two = answers[0][0] + answers[0][1] + answers[1][0] + answers[1][1] > 0;
  values[0] = task_accuracy(score);
  values[1] = two ? text_labels_matthews(score->answers) : NAN;
}

static void tell_answers(const TaskScore *score, char text[TASK_TEXT]) {
  double values[TASK_MEASURES];
  measure_answers(score, values);
  int at = snprintf(text, TASK_TEXT, "accuracy %.2f%%", 100 * values[0]);
  if (!isnan(values[1])) snprintf(text + at, TASK_TEXT - (size_t)at, " (Matthews correlation %.3f)", values[1]);
}

static void measure_perplexity(const TaskScore *score, double values[TASK_MEASURES]) {
  values[0] = exp(task_mean_loss(score));
  values[1] = score->bytes > 0 ? score->loss / log(2) / (double)score->bytes : 0;
}

static void tell_perplexity(const TaskScore *score, char text[TASK_TEXT]) {
  double values[TASK_MEASURES];
  measure_perplexity(score, values);
  char value[32]; /* a model that has diverged has one of hundreds of digits */
  snprintf(value, sizeof value, values[0] < 1e9 ? "%.2f" : "%.3g", values[0]);
  snprintf(text, TASK_TEXT, "perplexity %s per token (%.3f bits per byte)", value, values[1]);
}

/* ---- The tasks ---- */

static const TaskHead image_classes = {image_loss, image_answer}, text_classes = {text_loss, text_answer},
                      next_tokens = {token_loss, token_answer};

static const TaskReport accuracy = {(const char *const[]){"accuracy", NULL}, false, measure_accuracy, tell_accuracy},
                        answers = {(const char *const[]){"accuracy", "matthews", NULL}, false, measure_answers, tell_answers},
                        perplexity = {(const char *const[]){"perplexity", "bits_per_byte", NULL}, true, measure_perplexity,
                                      tell_perplexity};

const char *task_samples(const Task *task, int64_t count) { return count == 1 ? task->source->name.sample : task->source->name.samples; }

const Task *task_find(const char *dataset) {
  static const Task images = {&source_images, &image_classes, &accuracy}, labelled = {&source_labels, &text_classes, &answers},
                    language = {&source_windows, &next_tokens, &perplexity};
  if (dataset == NULL || text_source_knows(dataset)) return &language;
  return text_labels_knows(dataset) ? &labelled : &images;
}
