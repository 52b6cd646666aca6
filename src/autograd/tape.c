/* The tape: arena-backed records in a backward-linked list, sticky errors, recycled gradients.
 * Invariant: everything a step allocates lies in the arena above `floor`, and tape_clear releases to it. */
#include "autograd/tape.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/threads.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILL_GRAIN = 4096 };

typedef struct TapeRecord TapeRecord;
struct TapeRecord {
  const OpKind *op;
  void *data;
  Tensor *output;
  TapeRecord *before;
};

/* A gradient array that no tensor uses any more. */
typedef struct TapeFreeGrad TapeFreeGrad;
struct TapeFreeGrad {
  void *data;
  size_t bytes;
  TapeFreeGrad *next;
};

/* The records and gradients of a pass; a segment has its own. */
typedef struct TapeRun {
  Arena *arena;
  TapeRecord *last;
  TapeFreeGrad *free_grads, *spare_nodes;
  bool recording;
} TapeRun;

struct Tape {
  TapeRun run;
  size_t floor;
  bool planning, bf16, narrow;
  Status status;
  TapeProfiler *profiler;
  void *profiler_context;
  const TapeWatcher *watcher;
  Arena *inner;   /* of segments; NULL: nothing is computed twice */
  TapeRun *outer; /* while a segment runs: the run that it interrupts */
  bool again;     /* it runs for the second time */
};

Tape *tape_new(Arena *arena) {
  Tape *tape = calloc(1, sizeof *tape);
  if (tape == NULL) return NULL;
  tape->run.arena = arena;
  tape->floor = arena_mark(arena);
  return tape;
}

void tape_free(Tape *tape) {
  if (tape == NULL) return;
  arena_release(tape->run.arena, tape->floor);
  free(tape);
}

void tape_record(Tape *tape, bool recording) { tape->run.recording = recording; }
bool tape_recording(const Tape *tape) { return tape->run.recording; }
void tape_plan(Tape *tape, bool planning) { tape->planning = planning; }
bool tape_planning(const Tape *tape) { return tape->planning; }
void tape_use_bf16(Tape *tape, bool use) { tape->bf16 = use; }
bool tape_uses_bf16(const Tape *tape) { return tape->bf16; }
bool tape_is_narrow(const Tape *tape) { return tape->narrow; }

bool tape_narrow(Tape *tape, bool narrow) {
  const bool before = tape->narrow;
  tape->narrow = narrow && tape->bf16;
  return before;
}

Status tape_status(const Tape *tape) { return tape->status; }
size_t tape_peak_bytes(const Tape *tape) { return arena_peak(tape->run.arena) - tape->floor + (tape->inner ? arena_peak(tape->inner) : 0); }

/* ---------------------------------------------------------------- profiling */

void tape_profile(Tape *tape, TapeProfiler *profiler, void *context) {
  tape->profiler = profiler;
  tape->profiler_context = context;
}

double tape_clock(const Tape *tape) { return tape->profiler ? clock_now() : 0; }

void tape_note(Tape *tape, const char *name, TapePhase phase, double begun) {
  if (tape->profiler) tape->profiler(tape->profiler_context, name, phase, clock_now() - begun);
}

/* ---------------------------------------------------------------- records */

void tape_clear(Tape *tape) {
  arena_release(tape->run.arena, tape->floor);
  tape->status = STATUS_OK;
  tape->run.last = NULL;
  tape->run.free_grads = tape->run.spare_nodes = NULL;
  tape->narrow = false;
}

Status tape_fail(Tape *tape, Status code, const char *format, ...) {
  if (tape->status != STATUS_OK) return tape->status;
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  tape->status = status_set(code, "%s", text);
  return code;
}

void *tape_alloc(Tape *tape, size_t bytes) {
  if (tape->status != STATUS_OK) return NULL;
  void *block = arena_alloc(tape->run.arena, bytes);
  if (block == NULL)
    tape_fail(tape, STATUS_NO_MEMORY, "the step needs more than the %zu MiB reserved for it; use a smaller batch or image size",
              arena_reserved(tape->run.arena) >> 20);
  return block;
}

static Tensor *new_tensor(Tape *tape, int dims, const int64_t *shape) {
  Tensor *tensor = tape_alloc(tape, sizeof *tensor);
  if (tensor == NULL) return NULL;
  *tensor = (Tensor){.dims = dims};
  memcpy(tensor->shape, shape, (size_t)dims * sizeof *shape);
  return tensor;
}

Tensor *tape_tensor(Tape *tape, int dims, const int64_t *shape) {
  Tensor *tensor = new_tensor(tape, dims, shape);
  if (tensor == NULL) return NULL;
  tensor->value = tape_alloc(tape, (size_t)tensor_count(tensor) * sizeof(real));
  return tensor->value != NULL ? tensor : NULL;
}

static Tensor *narrow_tensor(Tape *tape, int dims, const int64_t *shape) {
  Tensor *tensor = new_tensor(tape, dims, shape);
  if (tensor == NULL) return NULL;
  tensor->narrow_kind = NARROW_BF16;
  tensor->narrow = tape_alloc(tape, (size_t)tensor_count(tensor) * sizeof *tensor->narrow);
  return tensor->narrow != NULL ? tensor : NULL;
}

Tensor *tape_activation(Tape *tape, int dims, const int64_t *shape) {
  return tape->narrow ? narrow_tensor(tape, dims, shape) : tape_tensor(tape, dims, shape);
}

Tensor *tape_tensor_like(Tape *tape, const Tensor *like, int dims, const int64_t *shape) {
  return like->narrow ? narrow_tensor(tape, dims, shape) : tape_tensor(tape, dims, shape);
}

Tensor *tape_constant(Tape *tape, int dims, const int64_t *shape, const real *value) {
  Tensor *tensor = new_tensor(tape, dims, shape);
  if (tensor != NULL) tensor->value = (real *)(uintptr_t)value; /* constants are never written: needs_grad is false */
  return tensor;
}

static void remember(Tape *tape, const OpKind *op, void *data, Tensor *output) {
  TapeRecord *record = tape_alloc(tape, sizeof *record);
  if (record == NULL) return;
  *record = (TapeRecord){op, data, output, tape->run.last};
  tape->run.last = record;
}

Tensor *tape_apply(Tape *tape, const OpKind *op, void *data, Tensor *output) {
  if (tape->status != STATUS_OK) return NULL;
  double begun = tape_clock(tape);
  op->forward(tape, data);
  tape_note(tape, op->name, TAPE_FORWARD, begun);
  if (tape->run.recording && output->needs_grad && tape->status == STATUS_OK) remember(tape, op, data, output);
  return tape->status == STATUS_OK ? output : NULL;
}

/* ---------------------------------------------------------------- gradients */

static size_t grad_bytes(const Tensor *tensor) {
  return (size_t)tensor_count(tensor) * (tensor->narrow ? sizeof *tensor->narrow_grad : sizeof *tensor->grad);
}

static bool has_grad(const Tensor *tensor) { return tensor->grad != NULL || tensor->narrow_grad != NULL; }

void *tape_borrow(Tape *tape, size_t bytes) {
  for (TapeFreeGrad **at = &tape->run.free_grads; *at != NULL; at = &(*at)->next) {
    TapeFreeGrad *found = *at;
    if (found->bytes != bytes) continue;
    *at = found->next;
    found->next = tape->run.spare_nodes;
    tape->run.spare_nodes = found;
    return found->data;
  }
  return tape_alloc(tape, bytes);
}

void tape_give_back(Tape *tape, void *array, size_t bytes) {
  TapeFreeGrad *node = tape->run.spare_nodes;
  if (array == NULL) return;
  if (node != NULL)
    tape->run.spare_nodes = node->next;
  else
    node = tape_alloc(tape, sizeof *node);
  if (node == NULL) return;
  *node = (TapeFreeGrad){array, bytes, tape->run.free_grads};
  tape->run.free_grads = node;
}

static void drop_grad(Tape *tape, Tensor *tensor) {
  tape_give_back(tape, tensor->narrow_grad ? (void *)tensor->narrow_grad : tensor->grad, grad_bytes(tensor));
  tensor->grad = NULL;
  tensor->narrow_grad = NULL;
  tensor->grad_filled = false;
}

Numbers tensor_grad(const Tensor *output) { return (Numbers){.wide = output->grad, .narrow = output->narrow_grad}; }

Numbers tape_grad_numbers(Tape *tape, Tensor *input, bool *add) {
  *add = false;
  if (input == NULL || !input->needs_grad) return (Numbers){.wide = NULL};
  if (input->narrow != NULL && input->narrow_grad == NULL) input->narrow_grad = tape_borrow(tape, grad_bytes(input));
  if (input->narrow == NULL && input->grad == NULL) input->grad = tape_borrow(tape, grad_bytes(input));
  if (!has_grad(input)) return (Numbers){.wide = NULL};
  *add = input->grad_filled;
  input->grad_filled = true;
  if (tape->watcher && input->narrow == NULL) tape->watcher->asked(tape->watcher->context, input);
  return tensor_grad(input);
}

real *tape_grad(Tape *tape, Tensor *input, bool *add) {
  *add = false;
  if (input != NULL && input->needs_grad && input->narrow != NULL)
    return tape_fail(tape, STATUS_BAD_VALUE, "the gradient of an activation in bf16 is in bf16"), NULL;
  return tape_grad_numbers(tape, input, add).wide;
}

static void zero_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  memset((char *)context + begin, 0, (size_t)(end - begin));
}

Numbers tape_grad_numbers_zeroed(Tape *tape, Tensor *input) {
  bool add;
  const Numbers grad = tape_grad_numbers(tape, input, &add);
  void *array = grad.wide ? (void *)grad.wide : grad.narrow;
  if (array != NULL && !add) tape_for(tape, (int64_t)grad_bytes(input), FILL_GRAIN * (int64_t)sizeof(real), zero_body, array);
  return grad;
}

real *tape_grad_zeroed(Tape *tape, Tensor *input) {
  bool unused;
  if (input != NULL && input->narrow != NULL) return tape_grad(tape, input, &unused); /* which fails */
  return tape_grad_numbers_zeroed(tape, input).wide;
}

typedef struct AddJob {
  Numbers from, to;
  bool add;
} AddJob;

/* to = from, or to += from, each of either width, in pieces that stay in the first-level cache. */
static void add_body(void *context, int64_t begin, int64_t end, int thread) {
  enum { PIECE = 1024 };
  (void)thread;
  const AddJob *job = context;
  real from_stage[PIECE], to_stage[PIECE];
  for (int64_t at = begin; at < end; at += PIECE) {
    const int64_t count = end - at < PIECE ? end - at : PIECE;
    const real *from = numbers_read(job->from, at, count, from_stage);
    real *to = numbers_place(job->to, at, to_stage);
    if (!job->add) {
      memcpy(to, from, (size_t)count * sizeof *to);
    } else {
      numbers_read(job->to, at, count, to_stage);
      kernels()->add(count, from, to);
    }
    numbers_written(job->to, at, count, to_stage);
  }
}

void tape_pass_grad(Tape *tape, Tensor *output, Tensor *input) {
  if (input == NULL || !input->needs_grad) return;
  if (!has_grad(input) && (input->narrow != NULL) == (output->narrow_grad != NULL)) {
    input->grad = output->grad;
    input->narrow_grad = output->narrow_grad;
    input->grad_filled = true;
    output->grad = NULL;
    output->narrow_grad = NULL;
    output->grad_filled = false;
    return;
  }
  AddJob job = {.from = tensor_grad(output)};
  job.to = tape_grad_numbers(tape, input, &job.add);
  if (numbers_exist(job.to)) tape_for(tape, tensor_count(input), FILL_GRAIN, add_body, &job);
}

void tape_watch(Tape *tape, const TapeWatcher *watcher) { tape->watcher = watcher; }

static void run_records(Tape *tape) {
  for (TapeRecord *record = tape->run.last; record != NULL && tape->status == STATUS_OK; record = record->before) {
    if (!has_grad(record->output)) continue; /* it has no influence on the loss */
    double begun = tape_clock(tape);
    record->op->backward(tape, record->data);
    if (record->op->forward != NULL) tape_note(tape, record->op->name, TAPE_BACKWARD, begun); /* what a segment runs notes itself */
    if (tape->watcher) tape->watcher->ran(tape->watcher->context);
    if (has_grad(record->output)) drop_grad(tape, record->output);
  }
}

Status tape_backward(Tape *tape, Tensor *loss) { return tape_backward_from(tape, loss, 1); }

Status tape_backward_from(Tape *tape, Tensor *loss, real from) {
  if (tape->status != STATUS_OK) return tape->status;
  if (loss == NULL || tensor_count(loss) != 1) return tape_fail(tape, STATUS_BAD_VALUE, "backward starts from one number");
  bool add;
  real *seed = tape_grad(tape, loss, &add);
  if (seed == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "the loss does not depend on any parameter");
  *seed = from;
  run_records(tape);
  return tape->status;
}

/* ---------------------------------------------------------------- work and scratch */

void tape_for(Tape *tape, int64_t items, int64_t grain, ThreadsBody *body, void *context) {
  if (!tape->planning) threads_for(items, grain, body, context);
}

void tape_matmul(Tape *tape, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const real *b,
                 int64_t ldb, real beta, real *c, int64_t ldc) {
  if (tape->planning)
    matmul_count_only(m, n, k);
  else
    matmul(transpose_a, transpose_b, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

size_t tape_scratch_begin(Tape *tape) { return arena_mark(tape->run.arena); }
void tape_scratch_end(Tape *tape, size_t mark) { arena_release(tape->run.arena, mark); }

bool tape_find_not_finite(const Tape *tape, TapeFault *fault) {
  *fault = (TapeFault){0};
  for (const TapeRecord *record = tape->run.last; record != NULL; record = record->before) {
    fault->count++;
    if (tensor_is_finite(record->output)) continue;
    fault->op = record->op->name; /* the list runs backwards: the last found is the first made */
    fault->output = record->output;
    fault->number = fault->count;
  }
  fault->number = fault->count + 1 - fault->number;
  return fault->op != NULL;
}

/* ---------------------------------------------------------------- segments */

/* Outside of tape_segment and its backward the tape's run is the outer one and `inner` is empty. */

typedef struct SegmentRecord {
  TapeSegment segment;
  Tensor *output[TAPE_SEGMENT_ENDS];
} SegmentRecord;

void tape_segment_use(Tape *tape, Arena *inner) { tape->inner = inner; }
bool tape_learning(const Tape *tape) { return tape->run.recording || (tape->outer != NULL && tape->outer->recording); }
bool tape_segment_inside(const Tape *tape) { return tape->outer != NULL; }
bool tape_segment_again(const Tape *tape) { return tape->again; }

static void enter(Tape *tape, TapeRun *outer, bool recording) {
  *outer = tape->run;
  tape->outer = outer;
  tape->run = (TapeRun){.arena = tape->inner, .recording = recording};
}

static void leave(Tape *tape) {
  tape->run = *tape->outer;
  tape->outer = NULL;
}

void *tape_segment_keep(Tape *tape, size_t bytes) {
  if (tape->outer == NULL) return tape_alloc(tape, bytes);
  Arena *inner = tape->run.arena;
  tape->run.arena = tape->outer->arena;
  void *block = tape_alloc(tape, bytes);
  tape->run.arena = inner;
  return block;
}

static void copy(Tape *tape, real *from, real *to, int64_t count, bool add) {
  if (from == NULL || to == NULL) return;
  tape_for(tape, count, FILL_GRAIN, add_body, &(AddJob){.from = {.wide = from}, .to = {.wide = to}, .add = add});
}

/* The same values outside the segment. */
static Tensor *hand_out(Tape *tape, const Tensor *inside) {
  if (inside == NULL) return NULL;
  if (inside->value == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "what leaves a segment is in full width"), NULL;
  Tensor *outside = tape_tensor(tape, inside->dims, inside->shape);
  if (outside == NULL) return NULL;
  outside->needs_grad = tape->run.recording;
  copy(tape, inside->value, outside->value, tensor_count(inside), false);
  return outside;
}

static void segment_backward(Tape *tape, void *data);
static const OpKind SEGMENT = {"recompute", NULL, segment_backward};

void tape_segment(Tape *tape, const TapeSegment *segment, Tensor *output[TAPE_SEGMENT_ENDS]) {
  Tensor *inside[TAPE_SEGMENT_ENDS] = {NULL};
  TapeRun outer;
  memset(output, 0, TAPE_SEGMENT_ENDS * sizeof *output);
  if (tape->status != STATUS_OK) return;
  if (tape->inner == NULL || tape->outer != NULL) {
    segment->run(tape, segment->context, segment->input, output);
    return;
  }
  size_t mark = arena_mark(tape->inner);
  enter(tape, &outer, false);
  segment->run(tape, segment->context, segment->input, inside);
  leave(tape);
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) output[i] = hand_out(tape, inside[i]);
  arena_release(tape->inner, mark);
  if (!tape->run.recording || output[0] == NULL) return;
  SegmentRecord *record = tape_alloc(tape, sizeof *record);
  if (record == NULL) return;
  *record = (SegmentRecord){.segment = *segment};
  memcpy(record->output, output, sizeof record->output);
  remember(tape, &SEGMENT, record, output[0]);
}

/* from's gradient, where it has one, goes to `to`. */
static void copy_grad(Tape *tape, const Tensor *from, Tensor *to) {
  bool add;
  if (from == NULL || to == NULL || from->grad == NULL) return;
  real *grad = tape_grad(tape, to, &add);
  copy(tape, from->grad, grad, tensor_count(from), add);
}

/* Runs the segment again on the same values, whose gradients are its own, with the gradients of its outputs from outside. */
static void segment_backward(Tape *tape, void *data) {
  const SegmentRecord *record = data;
  const TapeSegment *segment = &record->segment;
  Tensor *input[TAPE_SEGMENT_ENDS] = {NULL}, *output[TAPE_SEGMENT_ENDS] = {NULL};
  TapeRun outer;
  size_t mark = arena_mark(tape->inner);
  enter(tape, &outer, true);
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) {
    const Tensor *outside = segment->input[i];
    if (outside == NULL) continue;
    input[i] = tape_constant(tape, outside->dims, outside->shape, outside->value);
    if (input[i] != NULL) input[i]->needs_grad = outside->needs_grad;
  }
  tape->again = true;
  segment->run(tape, segment->context, input, output);
  tape->again = false;
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) copy_grad(tape, record->output[i], output[i]);
  run_records(tape);
  leave(tape);
  for (int i = 1; i < TAPE_SEGMENT_ENDS; i++) /* that of the first is given back by who runs the segment */
    if (record->output[i] != NULL && has_grad(record->output[i])) drop_grad(tape, record->output[i]);
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) copy_grad(tape, input[i], segment->input[i]);
  arena_release(tape->inner, mark);
}
