/* What a run teaches its model: to classify images, to predict the next token, to classify texts. A Task is three small tables: where the
 * samples come from (TaskSource), what the model computes of them (TaskHead) and how its answers are reported (TaskReport). Trainer,
 * validation, K-means, plan and self-test go through them and know no other difference between images and texts. */
#ifndef TRAIN_TASK_H
#define TRAIN_TASK_H
#include "nn/model.h"

typedef struct Session Session;

typedef enum TaskPart { TASK_TRAIN, TASK_TEST, TASK_PARTS } TaskPart;

/* A micro-batch. The arrays are the source's own until the next batch of the same part. */
typedef struct TaskBatch {
  int count;              /* B: images, windows of text, texts; of a rank's share, which has 0 of a batch of fewer samples than ranks */
  int first, whole;       /* where the share begins in the whole batch, and its number of samples; 0 and count for a process by itself */
  int64_t tokens;         /* T of this batch, at most session->tokens */
  int64_t units;          /* speed is reported in these: images, tokens, texts */
  float *pixels;          /* [B, 3, H, W]; NULL for texts */
  const int32_t *ids;     /* [B, T]; NULL for images */
  const int32_t *lengths; /* [B] tokens that are not padding; NULL: all T */
  int32_t *labels;        /* classes [B], or next tokens [B, T]; -1: not counted */
} TaskBatch;

/* ---- Where samples come from */

/* What a source says of its data: from `open` on where it is known by then, all of it after `start`. */
typedef struct TaskData {
  const char *about[TASK_PARTS]; /* one line for people */
  int64_t count[TASK_PARTS];     /* samples of the part that are used; 0 until it is known */
  int64_t steps;                 /* batches in an epoch of training */
  size_t bytes;                  /* memory of batches, and data that is mapped */
  int64_t digest[TASK_PARTS];    /* of what the samples are, wherever they lie, for training/state.safetensors; 0: of no run that trains */
} TaskData;

typedef struct TaskSource {
  struct {
    const char *units, *samples, *sample; /* "images", "images", "image": of speed, of what is evaluated */
    const char *test;                     /* what columns call the part that is not learnt from: "test" */
  } name;
  struct {
    int64_t batch, epochs;
    int64_t min_steps; /* of a run whose length the options leave open */
  } defaults;          /* where the options say none: see session.h */
  bool texts;          /* for language models, and only these */

  /* Opening, in this order. open: data, or what is needed of it to choose a configuration; sets session->classes. configure: what the model
   * has to be for this data, into config; sets session->tokens. start: batches, once the model is there. close: whatever was opened. */
  Status (*open)(Session *session);
  Status (*configure)(Session *session, ModelConfig *config);
  Status (*start)(Session *session);
  void (*close)(Session *session);

  Status (*seek)(Session *session, TaskPart part, int64_t epoch, int64_t step);
  Status (*next)(Session *session, TaskPart part, TaskBatch *batch); /* epoch after epoch, without end */

  /* Rows of blocks that the part's samples hold, if each gives at most `max`; NULL: all samples have session->tokens. */
  int64_t (*rows)(const Session *session, TaskPart part, int64_t max);

  /* --dry-run: the first batch, printed, or drawn into --out unless that is NULL; *shown: where (owned) or NULL. */
  Status (*show)(Session *session, bool json, char **shown);
  void (*finish)(const Session *session); /* warnings at the end of a run; NULL: none */
} TaskSource;

/* Images; windows of a running text; labelled texts. */
extern const TaskSource source_images, source_windows, source_labels;

/* ---- What the model computes of a batch */

/* Sums over the items of a batch, so that those of several batches are added up. */
typedef struct TaskScore {
  double loss;                            /* nats, over all items */
  int64_t samples, items, correct, bytes; /* items: images, texts or predicted tokens; bytes: of text behind the predicted tokens */
  int64_t answers[2][2];                  /* of two classes: [label][answer] */
  uint32_t *confusion;                    /* [classes of the label, of the answer], the caller's, to be added to; NULL: none */
} TaskScore;

typedef struct TaskHead {
  /* The mean loss [1] of a batch through the session's model, on its tape; with the tape recording as it is to be learnt from (smoothing,
   * mixup). *score, zeroed by the caller, is filled unless the tape plans. NULL with the tape failed. */
  Tensor *(*loss)(Session *session, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, TaskScore *score);

  /* What `model` answers: logits [B, classes] or, of the last token, [B, V]. *loss: [1], or NULL where the self-test keeps none. */
  Tensor *(*answer)(Model *model, Tape *tape, const TaskBatch *batch, const TokenLayout *layout, Exchange *exchange, Tensor **loss);
} TaskHead;

/* What model_encode takes of a batch; pixels become a constant tensor on the tape. */
ModelInput task_input(Tape *tape, const TaskBatch *batch, const ModelConfig *config);

/* session->plain_layout, where the plain model has its tokens, for samples of `tokens`, at most session->tokens: allocates nothing once the
 * session is open. */
Status task_lay_plain(Session *session, int64_t tokens);

/* ---- How its answers are reported */

enum { TASK_MEASURES = 3, TASK_TEXT = 96 };

typedef struct TaskReport {
  const char *const *measures;                                           /* NULL-terminated, at most TASK_MEASURES: "accuracy" */
  bool lower_is_better;                                                  /* of the first measure */
  void (*measure)(const TaskScore *score, double values[TASK_MEASURES]); /* in the order of `measures` */
  void (*tell)(const TaskScore *score, char text[TASK_TEXT]);            /* "accuracy 71.20%" */
} TaskReport;

/* Of what TaskReport.tell wrote, what stands behind the measure's name: "71.20%". */
const char *task_value(const char *text);

/* 0 without items. */
static inline double task_mean_loss(const TaskScore *score) { return score->items > 0 ? score->loss / (double)score->items : 0; }
static inline double task_accuracy(const TaskScore *score) { return score->items > 0 ? (double)score->correct / (double)score->items : 0; }

/* ---- The three together */

typedef struct Task {
  const TaskSource *source;
  const TaskHead *head;
  const TaskReport *report;
} Task;

/* What so many samples are called: "images", or "image" for 1. */
const char *task_samples(const Task *task, int64_t count);

/* By the data set's name; NULL: windows of random tokens (TrainOptions.drawn). */
const Task *task_find(const char *dataset);

#endif
