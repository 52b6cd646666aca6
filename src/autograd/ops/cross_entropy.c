/* Softmax cross-entropy with label smoothing and mixup targets: the softmax is fused with its loss and kept for backward, where
 * d logits = (p - q) / counted rows. Row losses are kept and added in order, so the sum does not depend on the thread count. */
#include "autograd/ops/op_common.h"

typedef struct Loss {
  Tensor *logits, *y;
  CrossEntropy options;
  real *probabilities; /* [M, V] */
  double *row_loss;    /* [M] */
  int64_t rows, classes, counted;
} Loss;

static double target_sum(const Loss *job, int64_t row, const real *logits) {
  const CrossEntropy *options = &job->options;
  double mix = options->mix ? (double)options->mix[row] : 1;
  double sum = mix * (double)logits[options->labels[row]];
  if (options->mix) sum += (1 - mix) * (double)logits[options->other[row]];
  if (options->smoothing == 0) return sum;
  double mean = 0;
  for (int64_t v = 0; v < job->classes; v++) mean += (double)logits[v];
  return (1 - options->smoothing) * sum + options->smoothing * mean / (double)job->classes;
}

static void rows_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Loss *job = context;
  for (int64_t row = begin; row < end; row++) {
    const real *logits = job->logits->value + row * job->classes;
    real *p = job->probabilities + row * job->classes;
    job->row_loss[row] = 0;
    if (job->options.labels[row] < 0) continue;
    memcpy(p, logits, (size_t)job->classes * sizeof(real));
    double lse = (double)kernels()->softmax(job->classes, 1, p);
    job->row_loss[row] = lse - target_sum(job, row, logits); /* the targets sum to one */
  }
}

static int64_t count_correct(const Loss *job) {
  int64_t correct = 0;
  for (int64_t row = 0; row < job->rows; row++) {
    const real *logits = job->logits->value + row * job->classes;
    int64_t best = 0;
    for (int64_t v = 1; v < job->classes; v++)
      if (logits[v] > logits[best]) best = v;
    correct += best == job->options.labels[row];
  }
  return correct;
}

static void loss_forward(Tape *tape, void *record) {
  Loss *job = record;
  if (tape_planning(tape)) return;
  threads_for(job->rows, 1, rows_body, job);
  double sum = 0;
  for (int64_t row = 0; row < job->rows; row++) sum += job->row_loss[row];
  job->y->value[0] = (real)(job->counted ? sum / (double)job->counted : 0);
  if (job->options.correct) *job->options.correct = count_correct(job);
}

typedef struct LossBackward {
  const Loss *job;
  real *dlogits, scale;
  bool add;
} LossBackward;

static void rows_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const LossBackward *work = context;
  const Loss *job = work->job;
  const CrossEntropy *options = &job->options;
  real flat = (real)(options->smoothing / (double)job->classes), peak = (real)(1 - options->smoothing);
  for (int64_t row = begin; row < end; row++) {
    real *d = work->dlogits + row * job->classes;
    const real *p = job->probabilities + row * job->classes;
    if (!work->add) memset(d, 0, (size_t)job->classes * sizeof(real));
    if (options->labels[row] < 0) continue;
    for (int64_t v = 0; v < job->classes; v++) d[v] += work->scale * (p[v] - flat);
    real mix = options->mix ? options->mix[row] : 1;
    d[options->labels[row]] -= work->scale * peak * mix;
    if (options->mix) d[options->other[row]] -= work->scale * peak * (1 - mix);
  }
}

static void loss_backward(Tape *tape, void *record) {
  Loss *job = record;
  LossBackward work = {.job = job};
  work.dlogits = tape_grad(tape, job->logits, &work.add);
  if (work.dlogits == NULL || tape_planning(tape)) return;
  work.scale = job->counted ? job->y->grad[0] / (real)job->counted : 0;
  threads_for(job->rows, 1, rows_backward_body, &work);
}

static const OpKind CROSS_ENTROPY = {"cross_entropy", loss_forward, loss_backward};

static bool label_fits(int32_t label, int64_t classes) { return label >= -1 && label < classes; }

Tensor *op_cross_entropy(Tape *tape, Tensor *logits, const CrossEntropy *options) {
  OP_REQUIRE(logits, options, options->labels);
  int64_t rows = tensor_rows(logits), classes = tensor_width(logits), counted = 0;
  OP_CHECK((options->other == NULL) == (options->mix == NULL), "cross_entropy: mixup needs both labels and shares");
  for (int64_t row = 0; row < rows && !tape_planning(tape); row++) {
    int32_t label = options->labels[row];
    OP_CHECK(label_fits(label, classes) && (!options->other || (options->other[row] >= 0 && options->other[row] < classes)),
             "label %d of row %lld is outside [0, %lld)", (int)label, (long long)row, (long long)classes);
    counted += label >= 0;
  }
  Tensor *y = tape_tensor(tape, 1, (int64_t[]){1});
  Loss *job = tape_alloc(tape, sizeof *job);
  real *probabilities = tape_alloc(tape, (size_t)(rows * classes) * sizeof(real));
  double *row_loss = tape_alloc(tape, (size_t)rows * sizeof(double));
  if (y == NULL || job == NULL || probabilities == NULL || row_loss == NULL) return NULL;
  *job = (Loss){logits, y, *options, probabilities, row_loss, rows, classes, counted};
  y->needs_grad = tape_recording(tape) && op_wants(logits);
  tape_apply(tape, &CROSS_ENTROPY, job, y);
  return y;
}
