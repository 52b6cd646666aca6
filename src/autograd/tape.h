/* The tape: runs operations as they are called and remembers them, to run their gradients in reverse.
 *
 * An operation is a row (name, forward, backward) with both functions side by side in one file under ops/. Its public function
 * checks shapes, allocates outputs and a record from the tape's arena and hands the record to tape_apply. An operation with two
 * outputs applies two records. While planning, forward and backward are called all the same: they allocate what they need, count
 * their products (matmul_count_only) and leave numbers alone; tape_for and tape_matmul do so by themselves.
 *
 * Modes: recording (training), not recording (inference: nothing is kept for backward), planning (everything is allocated and every
 * product counted, nothing is computed: exact memory and FLOPs of a step, without touching the memory).
 *
 * Errors are sticky: an operation that cannot go on (shapes, memory) sets the tape's status and returns NULL, and every operation
 * given NULL where a tensor is required returns NULL; the caller looks at the end (tape_status).
 *
 * Memory: values and records live in the arena until tape_clear. Gradients are recycled: as soon as an operation's backward has run,
 * its outputs' gradient arrays serve the operations before it. */
#ifndef AUTOGRAD_TAPE_H
#define AUTOGRAD_TAPE_H
#include "autograd/tensor.h"
#include "base/arena.h"
#include "base/status.h"
#include "base/threads.h"
#include <stddef.h>

typedef struct Tape Tape;

typedef struct OpKind {
  const char *name;
  void (*forward)(Tape *tape, void *record);
  void (*backward)(Tape *tape, void *record); /* adds to the inputs' gradients */
} OpKind;

Tape *tape_new(Arena *arena); /* the arena stays the caller's and must outlive the tape */
void tape_free(Tape *tape);   /* accepts NULL */

void tape_record(Tape *tape, bool recording);
bool tape_recording(const Tape *tape);
bool tape_learning(const Tape *tape); /* recording, or in a segment of a pass that is, which it is not while it runs for the first time */
void tape_plan(Tape *tape, bool planning);
bool tape_planning(const Tape *tape);

/* Precision. tape_use_bf16: products with weights run in bf16, with sums in float (matmul_bf16); parameters, their gradients, reductions,
 * softmax, norms and the residual stream stay reals. tape_narrow: from here on activations between operations are kept in bf16, too, where
 * an operation supports it; returns the previous setting. Only a tape that uses bf16 can be narrow. */
void tape_use_bf16(Tape *tape, bool use);
bool tape_uses_bf16(const Tape *tape);
bool tape_narrow(Tape *tape, bool narrow);
bool tape_is_narrow(const Tape *tape);

/* Forgets all records and tensors and releases the arena to its state at tape_new. */
void tape_clear(Tape *tape);

Status tape_status(const Tape *tape); /* the first failure since the last clear; its message is in status_message */
Status tape_fail(Tape *tape, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* For operations. Memory lives until tape_clear; NULL (and a failed tape) when the arena is full. */
void *tape_alloc(Tape *tape, size_t bytes);
Tensor *tape_tensor(Tape *tape, int dims, const int64_t *shape);                      /* value uninitialised */
Tensor *tape_constant(Tape *tape, int dims, const int64_t *shape, const real *value); /* wraps: value must outlive the tape's step */

/* As tape_tensor, with values in bf16 while the tape is narrow. */
Tensor *tape_activation(Tape *tape, int dims, const int64_t *shape);

/* The same with values as wide as those of `like`. */
Tensor *tape_tensor_like(Tape *tape, const Tensor *like, int dims, const int64_t *shape);

/* Runs op's forward and, when recording and `output->needs_grad`, remembers it. The output, or NULL where the tape has failed. */
Tensor *tape_apply(Tape *tape, const OpKind *op, void *record, Tensor *output);

/* In a backward function: where to put the gradient of `input`. *add says whether to add to it or to overwrite. NULL when input needs none
 * (or is NULL). After the call the gradient counts as filled. */
real *tape_grad(Tape *tape, Tensor *input, bool *add);

/* The same for an input whose values may be in bf16: its gradient has the same width. No array: it needs none. */
Numbers tape_grad_numbers(Tape *tape, Tensor *input, bool *add);
Numbers tape_grad_numbers_zeroed(Tape *tape, Tensor *input);
Numbers tensor_grad(const Tensor *output); /* in its own backward: the gradient that arrived */

/* Lets `input` take over the gradient array of `output` (same size) when it has none yet: a sum's gradient without a copy.
 * Only as the last thing of output's backward. Falls back to adding. */
void tape_pass_grad(Tape *tape, Tensor *output, Tensor *input);

/* threads_for, and matmul with alpha = 1; while planning nothing is run, and products are counted. */
void tape_for(Tape *tape, int64_t items, int64_t grain, ThreadsBody *body, void *context);
void tape_matmul(Tape *tape, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const real *b,
                 int64_t ldb, real beta, real *c, int64_t ldc);

/* An array for the duration of an operation's forward or backward: one that a gradient no longer needs, or a new one; once given back with
 * its size it serves the operations that follow. NULL: the tape has failed. */
void *tape_borrow(Tape *tape, size_t bytes);
void tape_give_back(Tape *tape, void *array, size_t bytes);

/* The same as tape_grad, of an input in full width, but zero-filled when it was empty, so that the caller can always add. */
real *tape_grad_zeroed(Tape *tape, Tensor *input);

/* Scratch inside forward or backward: freed by releasing to the mark that tape_scratch_begin returned. Ask for gradients
 * (tape_grad) before scratch begins: they live longer. */
size_t tape_scratch_begin(Tape *tape);
void tape_scratch_end(Tape *tape, size_t mark);

/* Runs all gradients in reverse, from d loss = 1; loss must hold one number. */
Status tape_backward(Tape *tape, Tensor *loss);
Status tape_backward_from(Tape *tape, Tensor *loss, real seed); /* from d loss = seed: of a loss that is a part of a mean */

/* For code that waits for gradients to be final: `asked` at each tape_grad of a backward pass, `ran` after each operation's backward, when
 * what it asked for has been written. The same calls come while the tape plans. NULL: none; the watcher must outlive its use. */
typedef struct TapeWatcher {
  void (*asked)(void *context, const Tensor *input);
  void (*ran)(void *context);
  void *context;
} TapeWatcher;
void tape_watch(Tape *tape, const TapeWatcher *watcher);

/* The first recorded output that holds a number that is not finite. */
typedef struct TapeFault {
  const char *op;
  int64_t number, count; /* which of the recorded operations, from 1, and how many there are */
  const Tensor *output;
} TapeFault;
bool tape_find_not_finite(const Tape *tape, TapeFault *fault); /* false: all are finite */

size_t tape_peak_bytes(const Tape *tape); /* peak bytes of the arena, with those of segments, less what it held before tape_new */

/* ---- profiling: how long each operation takes. Costs one branch per operation while no profiler is set. */

typedef enum TapePhase { TAPE_FORWARD, TAPE_BACKWARD, TAPE_AROUND /* work of a step that is no operation */ } TapePhase;
typedef void TapeProfiler(void *context, const char *name, TapePhase phase, double seconds);

void tape_profile(Tape *tape, TapeProfiler *profiler, void *context); /* called after each operation; NULL: none */

/* For work that belongs to a step but is no operation: tape_note(tape, "assign", phase, begun) with begun = tape_clock(tape) taken before.
 */
double tape_clock(const Tape *tape); /* 0 without a profiler */
void tape_note(Tape *tape, const char *name, TapePhase phase, double begun);

/* ---- segments: gradient checkpointing (Chen et al., 2016, "Training deep nets with sublinear memory cost"): a part of the forward pass
 * whose values are not kept but computed again when its gradients are wanted. It costs one more forward pass, and memory for one segment
 * instead of all.
 *
 *   arena   | in | out 1 | out 2 | ...                 what segments hand on, and what they keep
 *   inner   | values of the segment at work ..... |    released when it ends, filled again in backward
 *
 * The second run has the same inputs and does the same in the same order, so that gradients are the same bits as without segments. What a
 * segment does beside its outputs (statistics, draws) must be done only in the first run: tape_segment_again. */
enum { TAPE_SEGMENT_ENDS = 3 };

typedef struct TapeSegment {
  /* Fills output from input, entry by entry; NULL: there is none. Reads no other tensor that needs a gradient, except parameters, whose
   * gradients have memory of their own. */
  void (*run)(Tape *tape, void *context, Tensor *const *input, Tensor **output);
  void *context;                    /* until tape_clear */
  Tensor *input[TAPE_SEGMENT_ENDS]; /* nothing else reads these */
} TapeSegment;

/* From now on segments have their values in `inner`, which stays the caller's and must outlive the tape, and are computed twice while the
 * tape records. NULL, the initial state: segments just run. */
void tape_segment_use(Tape *tape, Arena *inner);

/* There must be an output[0]; no gradient flows only into another output. A segment inside a segment is a part of it. */
void tape_segment(Tape *tape, const TapeSegment *segment, Tensor *output[TAPE_SEGMENT_ENDS]);

bool tape_segment_inside(const Tape *tape);        /* tape_alloc gives memory that goes when the segment ends */
bool tape_segment_again(const Tape *tape);         /* this is the second run */
void *tape_segment_keep(Tape *tape, size_t bytes); /* as tape_alloc, but until tape_clear, inside of a segment as well */

#endif
