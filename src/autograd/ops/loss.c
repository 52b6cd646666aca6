/* Losses: cross-entropies of given logits, and fused with the product that computes them; rows against constant ones. */
#include "autograd/ops/op_common.h"

/* ---------------------------------------------------------------- of logits */

/* Softmax cross-entropy with label smoothing and mixup targets: the softmax is fused with its loss and kept for backward, where
 * d logits = (p - q) / counted rows. Row losses are kept and added in order, so the sum does not depend on the thread count. */
typedef struct Loss {
  Tensor *logits, *y;
  CrossEntropy options;
  real *probabilities; /* [M, V] */
  double *row_loss;    /* [M] */
  int64_t rows, classes, counted;
} Loss;

static double mean_logit(int64_t n, const real *logits) {
  double sum = 0;
  for (int64_t v = 0; v < n; v++) sum += (double)logits[v];
  return sum / (double)n;
}

static double expected_logit(int64_t n, const real *probabilities, const real *logits) {
  double sum = 0;
  for (int64_t v = 0; v < n; v++) sum += (double)probabilities[v] * (double)logits[v];
  return sum;
}

static void loss_rows_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Loss *job = context;
  const CrossEntropy *options = &job->options;
  const int64_t classes = job->classes;
  for (int64_t row = begin; row < end; row++) {
    const real *logits = job->logits->value + row * classes;
    real *p = job->probabilities + row * classes;
    job->row_loss[row] = 0;
    if (options->labels[row] < 0) continue;
    memcpy(p, logits, (size_t)classes * sizeof(real));
    const double lse = (double)kernels()->softmax(classes, 1, p), mix = options->mix ? (double)options->mix[row] : 1;
    double target = mix * (double)logits[options->labels[row]];
    if (options->mix) target += (1 - mix) * (double)logits[options->other[row]];
    if (options->smoothing != 0) target = (1 - options->smoothing) * target + options->smoothing * mean_logit(classes, logits);
    if (options->teacher)
      target = (1 - options->teaching) * target + options->teaching * expected_logit(classes, options->teacher + row * classes, logits);
    job->row_loss[row] = lse - target; /* the targets sum to one */
  }
}

/* The label's logit is the largest, and the first of those that are. A NaN is larger than any. */
static bool is_hit(int64_t n, const real *logits, int32_t label) {
  const real own = logits[label];
  int beaten = 0;
  for (int64_t v = 0; v < label; v++) beaten |= !(logits[v] < own);
  for (int64_t v = label; v < n; v++) beaten |= !(logits[v] <= own);
  return !beaten;
}

static void loss_forward(Tape *tape, void *record) {
  Loss *job = record;
  if (tape_planning(tape)) return;
  threads_for(job->rows, 1, loss_rows_body, job);
  double sum = 0;
  for (int64_t row = 0; row < job->rows; row++) sum += job->row_loss[row];
  job->y->value[0] = (real)(job->counted ? sum / (double)job->counted : 0);
  if (job->options.correct == NULL) return;
  *job->options.correct = 0;
  for (int64_t row = 0; row < job->rows; row++) {
    const int32_t label = job->options.labels[row];
    *job->options.correct += label >= 0 && is_hit(job->classes, job->logits->value + row * job->classes, label);
  }
}

typedef struct LossBackward {
  const Loss *job;
  real *dlogits, scale;
  bool add;
} LossBackward;

static void loss_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const LossBackward *work = context;
  const Loss *job = work->job;
  const CrossEntropy *options = &job->options;
  const double labelled = options->teacher ? 1 - options->teaching : 1; /* the share of what the labels say */
  const real flat = (real)(labelled * options->smoothing / (double)job->classes), peak = (real)(labelled * (1 - options->smoothing));
  for (int64_t row = begin; row < end; row++) {
    real *d = work->dlogits + row * job->classes;
    const real *p = job->probabilities + row * job->classes;
    if (!work->add) memset(d, 0, (size_t)job->classes * sizeof(real));
    if (options->labels[row] < 0) continue;
    for (int64_t v = 0; v < job->classes; v++) d[v] += work->scale * (p[v] - flat);
    if (options->teacher) kernels()->axpy(job->classes, -work->scale * (real)options->teaching, options->teacher + row * job->classes, d);
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
  threads_for(job->rows, 1, loss_backward_body, &work);
}

static const OpKind CROSS_ENTROPY = {"cross_entropy", loss_forward, loss_backward};

Tensor *op_cross_entropy(Tape *tape, Tensor *logits, const CrossEntropy *options) {
  OP_REQUIRE(logits, options, options->labels);
  if ((logits = op_widen(tape, logits)) == NULL) return NULL;
  int64_t rows = tensor_rows(logits), classes = tensor_width(logits), counted = 0;
  OP_CHECK((options->other == NULL) == (options->mix == NULL), "cross_entropy: mixup needs both labels and shares");
  for (int64_t row = 0; row < rows && !tape_planning(tape); row++) {
    int32_t label = options->labels[row];
    OP_CHECK(label >= -1 && label < classes, "label %d of row %lld is neither in [0, %lld) nor -1 (none)", (int)label, (long long)row,
             (long long)classes);
    OP_CHECK(!options->other || (options->other[row] >= 0 && options->other[row] < classes),
             "the second label, %d, of row %lld is outside [0, %lld)", (int)options->other[row], (long long)row, (long long)classes);
    counted += label >= 0;
  }
  Tensor *y = tape_tensor(tape, 1, (int64_t[]){1});
  Loss *job = tape_alloc(tape, sizeof *job);
  real *probabilities = tape_alloc(tape, (size_t)(rows * classes) * sizeof(real));
  double *row_loss = tape_alloc(tape, (size_t)rows * sizeof(double));
  if (y == NULL || job == NULL || probabilities == NULL || row_loss == NULL) return NULL;
  *job = (Loss){logits, y, *options, probabilities, row_loss, rows, classes, counted};
  y->needs_grad = tape_recording(tape) && op_wants(logits);
  return tape_apply(tape, &CROSS_ENTROPY, job, y);
}

/* ---------------------------------------------------------------- of rows against constant ones */

/* Sums of each row are kept and added in order, so the result does not depend on the thread count. */
typedef struct RowError {
  Tensor *x, *y;
  const real *target;
  const int32_t *rows;
  int64_t batch, count, target_rows, width;
  double *error, *power; /* [batch count] */
  const double *given;   /* in place of sum t^2; NULL: none */
  double scale;          /* 1 / sum t^2, or what is given */
} RowError;

static const real *target_of(const RowError *job, int64_t row) {
  return job->target + (row / job->count * job->target_rows + job->rows[row % job->count]) * job->width;
}

static void row_error_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  RowError *job = context;
  for (int64_t row = begin; row < end; row++) {
    const real *x = job->x->value + row * job->width, *t = target_of(job, row);
    double error = 0;
    for (int64_t i = 0; i < job->width; i++) error += ((double)x[i] - (double)t[i]) * ((double)x[i] - (double)t[i]);
    job->error[row] = error;
    job->power[row] = job->given != NULL ? 0 : kernels()->sum_squares(job->width, t);
  }
}

static void row_error_forward(Tape *tape, void *record) {
  RowError *job = record;
  if (tape_planning(tape)) return;
  threads_for(job->batch * job->count, 16, row_error_body, job);
  double error = 0, power = 0;
  for (int64_t row = 0; row < job->batch * job->count; row++) error += job->error[row], power += job->power[row];
  if (job->given != NULL) power = *job->given;
  job->scale = power > 0 ? 1 / power : 0;
  job->y->value[0] = (real)(error * job->scale);
}

typedef struct RowErrorBackward {
  const RowError *job;
  real *dx, scale;
  bool add;
} RowErrorBackward;

static void row_error_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const RowErrorBackward *work = context;
  const int64_t width = work->job->width;
  for (int64_t row = begin; row < end; row++) {
    const real *x = work->job->x->value + row * width, *t = target_of(work->job, row);
    real *dx = work->dx + row * width;
    for (int64_t i = 0; i < width; i++) dx[i] = (work->add ? dx[i] : 0) + work->scale * (x[i] - t[i]);
  }
}

static void row_error_backward(Tape *tape, void *record) {
  RowError *job = record;
  RowErrorBackward work = {.job = job};
  work.dx = tape_grad(tape, job->x, &work.add);
  if (work.dx == NULL || tape_planning(tape)) return;
  work.scale = (real)(2 * job->scale * (double)job->y->grad[0]);
  threads_for(job->batch * job->count, 16, row_error_backward_body, &work);
}

static const OpKind ROW_ERROR = {"row_error", row_error_forward, row_error_backward};

Tensor *op_row_error(Tape *tape, Tensor *x, const real *target, int64_t target_rows, const int32_t *rows, const double *power) {
  OP_REQUIRE(x, target, rows);
  OP_CHECK(x->dims == 3, "row_error: x has %d dimensions, not 3", x->dims);
  x = op_widen(tape, x);
  if (x == NULL) return NULL;
  const int64_t count = x->shape[1];
  for (int64_t s = 0; s < count && !tape_planning(tape); s++)
    OP_CHECK(rows[s] >= 0 && rows[s] < target_rows, "row_error: row %d of %lld", (int)rows[s], (long long)target_rows);
  Tensor *y = tape_tensor(tape, 1, (int64_t[]){1});
  RowError *job = tape_alloc(tape, sizeof *job);
  double *sums = tape_alloc(tape, (size_t)(2 * x->shape[0] * count) * sizeof *sums);
  if (y == NULL || job == NULL || sums == NULL) return NULL;
  *job = (RowError){x, y, target, rows, x->shape[0], count, target_rows, x->shape[2], sums, sums + x->shape[0] * count, power, 0};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &ROW_ERROR, job, y);
}

/* ---------------------------------------------------------------- of a vocabulary */

/* Softmax cross-entropy fused with the product that makes its logits, in slices of rows: a slice's logits become its probabilities, then
 * its d logits, in one scratch array, and are gone.
 *
 * The gradients are computed in the forward pass, while the slice's d logits exist: d x [rows, D] and, when the table is trained, d table
 * [V, D] are kept, without the gradient that arrives at the loss, and scaled by it in backward. Measured against computing the logits again
 * in backward (512 rows, V 50257, D 768): three products of 0.4 s instead of four, for 154 MB and 15 ms of adding; with a frozen table it
 * costs no memory except that of d x, which is needed anyway, since x takes that array over.
 *
 * Row losses are added in order, so the sum does not depend on the thread count. */
typedef struct VocabJob {
  Tensor *x, *table, *y;
  VocabLoss options;
  int64_t rows, width, entries, counted; /* M, D, V */
  int64_t slice_rows;                    /* at most this many in a slice */
  real *dx, *dtable;                     /* kept for backward; NULL where no gradient is wanted */
  bool filled;                           /* dtable holds the slices before this one */
  bool bf16;
} VocabJob;

/* A slice at work: rows [first, first + count), all of which count. */
typedef struct Slice {
  const VocabJob *job;
  int64_t first, count;
  real *logits;      /* [count, V]: logits, then probabilities, then d logits, which in bf16 are the first half of each row */
  const uint16_t *x; /* [M, D] and its table, where products run in bf16 */
  const uint16_t *table;
  int64_t stride;
  real *taught;            /* [count, V]: the teacher's logits, then its probabilities; NULL: there is none */
  const uint16_t *teacher; /* its rows and table, where its products run in bf16 */
  const uint16_t *teacher_table;
  int64_t teacher_stride;
  double *loss; /* [M] */
  uint8_t *hit; /* [M] */
} Slice;

/* Small slices make BLAS pack the whole table again and again (GPT-2's, 512 rows: all products together take 1.6 times as long in slices of
 * 64 as in one, 1.07 times in slices of 256), whether or not the logits fit a cache. Tables of more than 64k entries get smaller slices. */
enum { SLICE_ROWS = 256, SLICE_BYTES = 64 << 20 };

/* probabilities -> d logits = (p - target) / counted rows, in place; in bf16 a piece at a time, so that none is overwritten unread.
 * taught [V]: the teacher's probabilities, or NULL */
static void softmax_gradient(const VocabJob *job, int32_t label, const real *taught, real *p) {
  const double labelled = taught ? 1 - job->options.teaching : 1;
  const real share = (real)(1 / (double)job->counted), flat = (real)(labelled * job->options.smoothing / (double)job->entries);
  uint16_t *narrow = (uint16_t *)(void *)p;
  real stage[OP_PIECE];
  for (int64_t at = 0; at < job->entries; at += OP_PIECE) {
    const int64_t count = job->entries - at < OP_PIECE ? job->entries - at : OP_PIECE;
    real *d = job->bf16 ? stage : p + at;
    for (int64_t v = 0; v < count; v++) d[v] = share * (p[at + v] - flat);
    if (taught) kernels()->axpy(count, -share * (real)job->options.teaching, taught + at, d);
    if (label >= at && label < at + count) d[label - at] -= share * (real)(labelled * (1 - job->options.smoothing));
    if (job->bf16) kernels()->narrow(count, stage, narrow + at);
  }
}

static void rows_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Slice *slice = context;
  const VocabJob *job = slice->job;
  for (int64_t i = begin; i < end; i++) {
    real *logits = slice->logits + i * job->entries;
    const int64_t row = slice->first + i;
    const int32_t label = job->options.labels[row];
    const double own = (double)logits[label], smoothing = job->options.smoothing;
    double target = smoothing == 0 ? own : (1 - smoothing) * own + smoothing * mean_logit(job->entries, logits);
    real *taught = slice->taught ? slice->taught + i * job->entries : NULL;
    if (taught) {
      kernels()->softmax(job->entries, 1, taught);
      target = (1 - job->options.teaching) * target + job->options.teaching * expected_logit(job->entries, taught, logits);
    }
    slice->hit[row] = job->options.correct && is_hit(job->entries, logits, label);
    const double lse = (double)kernels()->softmax(job->entries, 1, logits);
    slice->loss[row] = lse - target; /* the targets sum to one */
    if (job->options.row_loss) job->options.row_loss[row] = (real)(lse - own);
    if (job->dx || job->dtable) softmax_gradient(job, label, taught, logits);
  }
}

static void teacher_logits(Tape *tape, const VocabJob *job, const Slice *slice) {
  const VocabLoss *options = &job->options;
  if (slice->taught == NULL) return;
  const int64_t width = tensor_width(options->teacher), at = slice->first * width;
  if (slice->teacher_table)
    op_matmul_bf16(tape, false, true, slice->count, job->entries, width, slice->teacher + at, width, slice->teacher_table,
                   slice->teacher_stride, NULL, false, (Numbers){.wide = slice->taught}, job->entries);
  else
    op_matmul_weight(tape, true, slice->count, job->entries, width, options->teacher->value + at, width, options->teacher_table, 0, false,
                     slice->taught, job->entries);
}

/* In bf16 x, the table and d logits are rounded; logits and gradients are not. */
static void run_slice(Tape *tape, VocabJob *job, Slice *slice) {
  const int64_t at = slice->first * job->width, n = slice->count, entries = job->entries, width = job->width;
  const uint16_t *dlogits = (const uint16_t *)(const void *)slice->logits;
  const int64_t stride = entries * (int64_t)(sizeof(real) / sizeof *dlogits);
  const Numbers dx = {.wide = job->dx ? job->dx + at : NULL}, dtable = {.wide = job->dtable};
  if (job->bf16)
    op_matmul_bf16(tape, false, true, n, entries, width, slice->x + at, width, slice->table, slice->stride, NULL, false,
                   (Numbers){.wide = slice->logits}, entries);
  else
    op_matmul_weight(tape, true, n, entries, width, job->x->value + at, width, job->table, 0, false, slice->logits, entries);
  teacher_logits(tape, job, slice);
  tape_for(tape, n, 1, rows_body, slice);
  if (job->dx && job->bf16)
    op_matmul_bf16(tape, false, false, n, width, entries, dlogits, stride, slice->table, slice->stride, NULL, false, dx, width);
  else if (job->dx)
    op_matmul_weight(tape, false, n, width, entries, slice->logits, entries, job->table, 0, false, dx.wide, width);
  if (job->dtable && job->bf16)
    op_matmul_bf16(tape, true, false, entries, width, n, dlogits, stride, slice->x + at, width, NULL, job->filled, dtable, width);
  else if (job->dtable)
    tape_matmul(tape, true, false, entries, width, n, slice->logits, entries, job->x->value + at, width, job->filled ? 1 : 0, dtable.wide,
                width);
  job->filled = true;
}

/* A run of rows that count, divided evenly. */
static void run_slices(Tape *tape, VocabJob *job, Slice *slice, int64_t first, int64_t end) {
  for (int64_t slices = (end - first + job->slice_rows - 1) / job->slice_rows; slices > 0; slices--) {
    slice->first = first;
    slice->count = (end - first + slices - 1) / slices;
    run_slice(tape, job, slice);
    first += slice->count;
  }
}

static void all_rows(Tape *tape, VocabJob *job, Slice *slice) {
  const int32_t *labels = job->options.labels;
  for (int64_t first = 0, end; first < job->rows; first = end) {
    for (end = first + 1; end < job->rows && (labels[end] < 0) == (labels[first] < 0); end++) {}
    if (labels[first] >= 0) {
      run_slices(tape, job, slice, first, end);
      continue;
    }
    const size_t count = (size_t)(end - first); /* rows that do not count: no loss, no gradient */
    memset(slice->loss + first, 0, count * sizeof *slice->loss);
    memset(slice->hit + first, 0, count);
    if (job->options.row_loss) memset(job->options.row_loss + first, 0, count * sizeof(real));
    if (job->dx) memset(job->dx + first * job->width, 0, count * (size_t)job->width * sizeof(real));
  }
  if (job->dtable && !job->filled) memset(job->dtable, 0, (size_t)tensor_count(job->table) * sizeof(real));
  double sum = 0;
  int64_t correct = 0;
  for (int64_t row = 0; row < job->rows; row++) {
    sum += slice->loss[row];
    correct += slice->hit[row];
  }
  job->y->value[0] = (real)(job->counted ? sum / (double)job->counted : 0);
  if (job->options.correct) *job->options.correct = correct;
}

static void vocab_forward(Tape *tape, void *record) {
  VocabJob *job = record;
  size_t mark = tape_scratch_begin(tape);
  Slice slice = {.job = job};
  slice.logits = tape_alloc(tape, (size_t)(job->slice_rows * job->entries) * sizeof(real));
  slice.loss = tape_alloc(tape, (size_t)job->rows * sizeof(double));
  slice.hit = tape_alloc(tape, (size_t)job->rows);
  if (job->bf16) {
    slice.x = op_in_bf16(tape, tensor_numbers(job->x), job->rows, job->width);
    slice.table = op_weight_in_bf16(tape, job->table, 0, job->entries, job->width, &slice.stride);
  }
  if (job->options.teacher) slice.taught = tape_alloc(tape, (size_t)(job->slice_rows * job->entries) * sizeof(real));
  if (job->options.teacher && op_weight_is_bf16(tape, job->options.teacher_table)) {
    const int64_t width = tensor_width(job->options.teacher);
    slice.teacher = op_in_bf16(tape, tensor_numbers(job->options.teacher), job->rows, width);
    slice.teacher_table = op_weight_in_bf16(tape, job->options.teacher_table, 0, job->entries, width, &slice.teacher_stride);
  }
  if (slice.logits == NULL || slice.loss == NULL || slice.hit == NULL || tape_status(tape) != STATUS_OK) return;
  if (tape_planning(tape)) /* without labels: all rows count */
    run_slices(tape, job, &slice, 0, job->rows);
  else
    all_rows(tape, job, &slice);
  tape_scratch_end(tape, mark);
}

typedef struct ScaleJob {
  real *numbers, factor;
} ScaleJob;

static void scale_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const ScaleJob *work = context;
  for (int64_t i = begin; i < end; i++) work->numbers[i] *= work->factor;
}

/* Passes the kept gradient to the input, as that of an output of the same shape. */
static void give(Tape *tape, const VocabJob *job, real *kept, Tensor *input) {
  if (kept == NULL) return;
  Tensor output = *input;
  output.grad = kept;
  if (!tape_planning(tape) && job->y->grad[0] != 1)
    threads_for(tensor_count(input), OP_ROW_GRAIN, scale_body, &(ScaleJob){kept, job->y->grad[0]});
  tape_pass_grad(tape, &output, input);
}

static void vocab_backward(Tape *tape, void *record) {
  VocabJob *job = record;
  give(tape, job, job->dx, job->x);
  give(tape, job, job->dtable, job->table);
}

static const OpKind VOCAB_LOSS = {"vocab_loss", vocab_forward, vocab_backward};

Tensor *op_vocab_loss(Tape *tape, Tensor *x, Tensor *table, const VocabLoss *options) {
  OP_REQUIRE(x, table, options, options->labels);
  if ((x = op_widen(tape, x)) == NULL) return NULL;
  int64_t rows = tensor_rows(x), width = tensor_width(x), entries = table->shape[0], counted = 0;
  OP_CHECK(table->dims == 2 && table->shape[1] == width, "vocab_loss: x has %lld columns, the table %lld", (long long)width,
           (long long)tensor_width(table));
  VocabLoss taught = *options;
  if (options->teacher) {
    OP_CHECK(options->teacher_table && tensor_rows(options->teacher) == rows && options->teacher_table->shape[0] == entries &&
                 options->teacher_table->shape[1] == tensor_width(options->teacher),
             "vocab_loss: a teacher needs as many rows, and a table of as many entries");
    if ((taught.teacher = op_widen(tape, options->teacher)) == NULL) return NULL;
  }
  for (int64_t row = 0; row < rows && !tape_planning(tape); row++) {
    int32_t label = options->labels[row];
    OP_CHECK(label >= -1 && label < entries, "label %d of row %lld is outside [-1, %lld)", (int)label, (long long)row, (long long)entries);
    counted += label >= 0;
  }
  int64_t slice_rows = SLICE_BYTES / (entries * (int64_t)sizeof(real));
  slice_rows = slice_rows < 1 ? 1 : slice_rows > SLICE_ROWS ? SLICE_ROWS : slice_rows;
  Tensor *y = tape_tensor(tape, 1, (int64_t[]){1});
  VocabJob *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (VocabJob){.x = x,
                    .table = table,
                    .y = y,
                    .options = taught,
                    .rows = rows,
                    .width = width,
                    .entries = entries,
                    .counted = counted,
                    .bf16 = op_weight_is_bf16(tape, table),
                    .slice_rows = rows < slice_rows ? rows : slice_rows};
  y->needs_grad = tape_recording(tape) && (op_wants(x) || op_wants(table));
  if (y->needs_grad && op_wants(x)) job->dx = tape_alloc(tape, (size_t)tensor_count(x) * sizeof(real));
  if (y->needs_grad && op_wants(table)) job->dtable = tape_alloc(tape, (size_t)tensor_count(table) * sizeof(real));
  return tape_apply(tape, &VOCAB_LOSS, job, y);
}
