/* Segments: see tape_segment.h. Invariant: outside of tape_segment and its backward, the tape's run is the outer one and `inner` is empty.
 */
#include "autograd/tape_segment.h"
#include "autograd/kernels/kernels.h"
#include "autograd/tape_parts.h"
#include <string.h>

enum { GRAIN = 4096 };

typedef struct SegmentRecord {
  TapeSegment segment;
  Tensor *output[TAPE_SEGMENT_ENDS];
} SegmentRecord;

void tape_segment_use(Tape *tape, Arena *inner) { tape->inner = inner; }
bool tape_segment_inside(const Tape *tape) { return tape->outer != NULL; }
bool tape_segment_again(const Tape *tape) { return tape->again; }

/* ---------------------------------------------------------------- in and out */

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

typedef struct CopyJob {
  const real *from;
  real *to;
  bool add;
} CopyJob;

static void copy_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const CopyJob *job = context;
  if (job->add)
    kernels()->add(end - begin, job->from + begin, job->to + begin);
  else
    memcpy(job->to + begin, job->from + begin, (size_t)(end - begin) * sizeof(real));
}

static void copy(Tape *tape, const real *from, real *to, int64_t count, bool add) {
  if (from != NULL && to != NULL) tape_for(tape, count, GRAIN, copy_body, &(CopyJob){from, to, add});
}

/* ---------------------------------------------------------------- forward */

/* The same values outside. */
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
  tape_remember(tape, &SEGMENT, record, output[0]);
}

/* ---------------------------------------------------------------- backward */

/* The same values inside, with a gradient of their own. */
static Tensor *hand_in(Tape *tape, const Tensor *outside) {
  if (outside == NULL) return NULL;
  Tensor *inside = tape_constant(tape, outside->dims, outside->shape, outside->value);
  if (inside != NULL) inside->needs_grad = outside->needs_grad;
  return inside;
}

/* Inside's gradient begins as outside's. */
static void seed(Tape *tape, Tensor *inside, const Tensor *outside) {
  bool add;
  if (inside == NULL || outside == NULL || outside->grad == NULL) return;
  real *grad = tape_grad(tape, inside, &add);
  copy(tape, outside->grad, grad, tensor_count(inside), add);
}

static void run_again(Tape *tape, const SegmentRecord *record, Tensor **input) {
  const TapeSegment *segment = &record->segment;
  Tensor *output[TAPE_SEGMENT_ENDS] = {NULL};
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) input[i] = hand_in(tape, segment->input[i]);
  tape->again = true;
  segment->run(tape, segment->context, input, output);
  tape->again = false;
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) seed(tape, output[i], record->output[i]);
  tape_run_records(tape);
}

static void segment_backward(Tape *tape, void *data) {
  const SegmentRecord *record = data;
  Tensor *input[TAPE_SEGMENT_ENDS] = {NULL};
  TapeRun outer;
  size_t mark = arena_mark(tape->inner);
  enter(tape, &outer, true);
  run_again(tape, record, input);
  leave(tape);
  for (int i = 0; i < TAPE_SEGMENT_ENDS; i++) {
    bool add;
    if (input[i] == NULL || input[i]->grad == NULL) continue;
    real *grad = tape_grad(tape, record->segment.input[i], &add);
    copy(tape, input[i]->grad, grad, tensor_count(input[i]), add);
  }
  arena_release(tape->inner, mark);
}
