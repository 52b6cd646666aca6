/* Parameters: their descriptions, and one block of memory each for all values and all gradients, and one for the values of frozen ones.
 *
 *   values | p0 ........ pad | p1 ... pad | p2 ................ |      each parameter starts on a cache line (16 floats)
 *
 * Leaves out what a parameter is for: the model describes, the optimizer steps, the checkpoint reads and writes.
 * Invariant: after param_allocate every tensor points into the blocks at the running sum of param_padded. */
#include "autograd/param.h"
#include "autograd/kernels/kernels.h"
#include "base/array.h"
#include "base/memory.h"
#include "base/threads.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAD = 16, CACHE_LINE = 64 };
static const size_t HUGE_PAGE = (size_t)2 << 20;
static const int64_t MAX_NUMBERS = (int64_t)1 << 48; /* of one parameter and of a set: byte counts stay far from overflow */

int64_t param_padded(const Param *param) { return (tensor_count(&param->tensor) + PAD - 1) / PAD * PAD; }

int64_t param_offset(const ParamSet *set, size_t index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index; i++)
    if (set->list[i].frozen == set->list[index].frozen) offset += param_padded(&set->list[i]);
  return offset;
}

int param_add(ParamSet *set, ParamInit init, bool decay, int dims, const int64_t *shape, const char *name_format, ...) {
  int64_t count = dims >= 1 && dims <= TENSOR_DIMS; /* 0: out of range */
  for (int i = 0; count > 0 && i < dims; i++) count = shape[i] < 1 || shape[i] > MAX_NUMBERS / count ? 0 : count * shape[i];
  if (count == 0 || ARRAY_RESERVE(set->list, set->count, 1, set->capacity, "parameters") != STATUS_OK) return -1;
  Param *param = &set->list[set->count];
  memset(param, 0, sizeof *param);
  va_list arguments;
  va_start(arguments, name_format);
  int length = vsnprintf(param->name, sizeof param->name, name_format, arguments);
  va_end(arguments);
  if (length < 1 || length >= PARAM_NAME) return -1;
  param->init = init;
  param->decay = decay;
  param->tensor.dims = dims;
  memcpy(param->tensor.shape, shape, (size_t)dims * sizeof *shape);
  return (int)set->count++;
}

/* Zeroed, on a cache line. Large blocks come from the system untouched: a set that is described wrongly large costs nothing until it is
 * filled, and huge pages make the first touch four times as fast. */
static void *block_new(size_t bytes) {
  if (bytes >= HUGE_PAGE) {
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return NULL;
    (void)madvise(block, bytes, MADV_HUGEPAGE); /* advice: a kernel without huge pages refuses, which does no harm */
    return block;
  }
  void *block = NULL;
  if (posix_memalign(&block, CACHE_LINE, bytes) != 0) return NULL;
  return memset(block, 0, bytes);
}

static void block_free(const ParamSet *set, void *block, size_t bytes) {
  if (block && (set->reserved || bytes >= HUGE_PAGE))
    munmap(block, bytes);
  else
    free(block);
}

static void free_blocks(ParamSet *set) {
  size_t bytes = (size_t)set->total * sizeof(real);
  block_free(set, set->values, bytes);
  block_free(set, set->grads, bytes);
  set->values = set->grads = NULL;
  set->total = 0;
}

static void free_frozen(ParamSet *set) {
  block_free(set, set->frozen_values, (size_t)set->frozen_total * sizeof(real));
  set->frozen_values = NULL;
  set->frozen_total = 0;
}

static void free_shadows(ParamSet *set) {
  block_free(set, set->shadows, (size_t)set->shadow_total * sizeof *set->shadows);
  set->shadows = NULL;
  for (size_t i = 0; i < set->count; i++) set->list[i].tensor.shadow = NULL;
}

/* Frees all blocks that are only address space: those allocated from now on have memory. */
static void leave_reserved(ParamSet *set) {
  if (!set->reserved) return;
  free_shadows(set);
  free_blocks(set);
  free_frozen(set);
  set->reserved = false;
}

/* Numbers in the block of the frozen ones, or of the others; -1: more than can be addressed. */
static int64_t count_block(const ParamSet *set, bool frozen) {
  int64_t total = 0;
  for (size_t i = 0; i < set->count; i++) {
    if (set->list[i].frozen == frozen) total += param_padded(&set->list[i]);
    if (total > MAX_NUMBERS) return -1;
  }
  return total;
}

static Status too_many(void) { return status_set(STATUS_BAD_VALUE, "the model has more parameters than can be addressed"); }

/* Every tensor of that kind points into its block. */
static void place(ParamSet *set, bool frozen, real *values, real *grads) {
  int64_t offset = 0;
  for (size_t i = 0; i < set->count; i++) {
    Tensor *tensor = &set->list[i].tensor;
    if (set->list[i].frozen != frozen) continue;
    tensor->value = values + offset;
    tensor->grad = grads ? grads + offset : NULL;
    tensor->needs_grad = grads != NULL;
    tensor->grad_filled = false;
    tensor->narrow = NULL;
    tensor->narrow_kind = NARROW_NONE;
    tensor->lowbit = NULL;
    offset += param_padded(&set->list[i]);
  }
}

Status param_allocate(ParamSet *set, bool with_grads) {
  leave_reserved(set);
  free_blocks(set);
  int64_t total = count_block(set, false);
  if (total < 0) return too_many();
  if (total == 0) return STATUS_OK;
  set->total = total;
  size_t bytes = (size_t)total * sizeof(real);
  /* Without room the system gives addresses all the same, and ends the process once they are used. */
  const bool room = (with_grads ? 2.0 : 1.0) * (double)bytes <= memory_available();
  if (room) set->values = block_new(bytes);
  if (room && with_grads) set->grads = block_new(bytes);
  if (!set->values || (with_grads && !set->grads)) {
    free_blocks(set);
    return status_set(STATUS_NO_MEMORY, "no memory for the model's parameters: %.1f MB%s", (double)bytes / 1e6,
                      with_grads ? " and as much for their gradients; --lora RANK trains few of them, or choose a smaller model"
                                 : "; choose a smaller model");
  }
  place(set, false, set->values, set->grads);
  return STATUS_OK;
}

Status param_allocate_frozen(ParamSet *set) {
  leave_reserved(set);
  free_frozen(set);
  int64_t total = count_block(set, true);
  if (total < 0) return too_many();
  if (total == 0) return STATUS_OK;
  size_t bytes = (size_t)total * sizeof(real);
  set->frozen_values = block_new(bytes);
  if (!set->frozen_values)
    return status_set(STATUS_NO_MEMORY, "no memory for the model's frozen parameters: %.1f MB; choose a smaller model",
                      (double)bytes / 1e6);
  set->frozen_total = total;
  place(set, true, set->frozen_values, NULL);
  return STATUS_OK;
}

/* NULL for 0 numbers, or when there is no address space. */
static void *block_reserve(int64_t numbers) {
  if (numbers == 0) return NULL;
  void *block = mmap(NULL, (size_t)numbers * sizeof(real), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return block == MAP_FAILED ? NULL : block;
}

Status param_reserve(ParamSet *set, bool with_grads) {
  free_shadows(set);
  free_blocks(set);
  free_frozen(set);
  int64_t total = count_block(set, false), frozen = count_block(set, true);
  if (total < 0 || frozen < 0) return too_many();
  set->reserved = true;
  set->total = total;
  set->frozen_total = frozen;
  set->values = block_reserve(total);
  set->grads = with_grads ? block_reserve(total) : NULL;
  set->frozen_values = block_reserve(frozen);
  bool whole = (set->values || total == 0) && (set->grads || total == 0 || !with_grads) && (set->frozen_values || frozen == 0);
  if (!whole) {
    free_blocks(set);
    free_frozen(set);
    return status_set(STATUS_NO_MEMORY, "no address space for the model's parameters: %.1f MB",
                      (double)(total + frozen) * sizeof(real) / 1e6);
  }
  place(set, false, set->values, set->grads);
  place(set, true, set->frozen_values, NULL);
  return STATUS_OK;
}

/* ---- shadows */

/* Of bf16 products take the numbers as they are. A head in fp16 stays it, multiplied in fp32: its logits are what answers rest on. */
static bool can_be_rounded(const Param *param) {
  return param->tensor.value != NULL || (param->tensor.narrow_kind == NARROW_F16 && param->hidden);
}

static bool wants_shadow(const Param *param) {
  enum { CONVOLUTION = 4 }; /* its operation multiplies with patches */
  const bool packed = param->tensor.packed != NULL && param->tensor.packed->bf16;
  const bool multiplied = (param->narrow && !param->looked_up) || param->tensor.dims == CONVOLUTION;
  return can_be_rounded(param) && !packed && multiplied;
}

Status param_make_shadows(ParamSet *set) {
  int64_t total = 0;
  for (size_t i = 0; i < set->count; i++) total += wants_shadow(&set->list[i]) ? param_padded(&set->list[i]) : 0;
  if (total == 0 || set->shadows != NULL) return STATUS_OK;
  const size_t bytes = (size_t)total * sizeof *set->shadows;
  set->shadows = set->reserved ? block_reserve((total + 1) / 2) : block_new(bytes); /* two to a real */
  if (set->shadows == NULL) return status_set(STATUS_NO_MEMORY, "no memory for the weights in bf16: %.1f MB", (double)bytes / 1e6);
  set->shadow_total = total;
  int64_t offset = 0;
  for (size_t i = 0; i < set->count; i++) {
    if (!wants_shadow(&set->list[i])) continue;
    set->list[i].tensor.shadow = set->shadows + offset;
    offset += param_padded(&set->list[i]);
  }
  if (!set->reserved) param_refresh_shadows(set, true);
  return STATUS_OK;
}

static void round_halves(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  enum { PIECE = 1024 };
  const Tensor *tensor = context;
  real stage[PIECE];
  for (int64_t at = begin; at < end; at += PIECE) {
    const int64_t count = end - at < PIECE ? end - at : PIECE;
    tensor_read(tensor, at, count, stage);
    kernels()->narrow(count, stage, tensor->shadow + at);
  }
}

void param_refresh_shadows(ParamSet *set, bool frozen) {
  for (size_t i = 0; set->shadows != NULL && !set->reserved && i < set->count; i++) {
    Tensor *tensor = &set->list[i].tensor;
    if (tensor->shadow == NULL || (!frozen && set->list[i].frozen)) continue;
    if (tensor->value != NULL)
      tensor_narrow(NARROW_BF16, tensor_count(tensor), tensor->value, tensor->shadow);
    else
      threads_for(tensor_count(tensor), 4096, round_halves, tensor);
  }
}

/* ---- packed matrices */

Status param_pack(ParamSet *set, size_t index, bool bf16) {
  Param *param = &set->list[index];
  const Tensor *tensor = &param->tensor;
  const bool int8 = tensor->lowbit != NULL && tensor->lowbit->kind == LOWBIT_INT8;
  const bool numbers = int8 || (bf16 ? can_be_rounded(param) : tensor->value != NULL);
  if (!param->narrow || tensor->dims != 2 || !numbers || tensor->packed != NULL || set->reserved) return STATUS_OK;
  PackedMatrix matrix = {.outputs = param_outputs(param), .inputs = param_inputs(param)};
  matrix.int8 = int8;
  matrix.bf16 = bf16 && !int8;
  matrix.bytes = matmul_packed_bytes(&matrix);
  if (matrix.bytes == 0) return STATUS_OK;
  matrix.words = block_new(matrix.bytes);
  if (matrix.words == NULL) return status_set(STATUS_NO_MEMORY, "no memory for packed weights: %.1f MB", (double)matrix.bytes / 1e6);
  const void *from = int8 ? tensor->lowbit->numbers : tensor->value != NULL ? (const void *)tensor->value : tensor->narrow;
  matmul_pack(&matrix, from, tensor->narrow_kind, param->transposed);
  param->packed = matrix;
  set->packed_bytes += (int64_t)matrix.bytes;
  param->tensor.packed = &param->packed;
  return STATUS_OK;
}

/* Normal numbers have a standard deviation of 0.02 and are cut at two deviations, as ViT, GPT-2 and Llama start. */
void param_initialise_one(Param *param, Rng *rng) {
  const int64_t count = tensor_count(&param->tensor);
  const real constant = param->init == PARAM_ONES ? 1 : 0;
  for (int64_t i = 0; i < count; i++) {
    double z = param->init == PARAM_NORMAL ? rng_normal(rng) : 0;
    while (z < -2.0 || z > 2.0) z = rng_normal(rng);
    param->tensor.value[i] = param->init == PARAM_NORMAL ? (real)(0.02 * z) : constant;
  }
}

typedef struct Initialise {
  ParamSet *set;
  uint64_t seed;
} Initialise;

/* Each parameter has a stream of its own, so that the values depend neither on the threads nor on the parameters before it. */
static void initialise_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Initialise *work = context;
  for (int64_t i = begin; i < end; i++) {
    Rng rng;
    rng_init(&rng, work->seed, (uint64_t)i);
    if (work->set->list[i].tensor.value) param_initialise_one(&work->set->list[i], &rng);
  }
}

void param_initialise(ParamSet *set, Rng *rng) {
  Initialise work = {set, rng_next(rng)};
  threads_for((int64_t)set->count, 1, initialise_range, &work);
}

static void zero_range(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  memset((real *)context + begin, 0, (size_t)(end - begin) * sizeof(real));
}

void param_zero_grads(ParamSet *set) {
  if (!set->grads) return;
  threads_for(set->total, 4096, zero_range, set->grads);
  for (size_t i = 0; i < set->count; i++) set->list[i].tensor.grad_filled = set->list[i].tensor.grad != NULL;
}

void param_empty_grads(ParamSet *set) {
  for (size_t i = 0; i < set->count; i++) set->list[i].tensor.grad_filled = false;
}

void param_fill_grads(ParamSet *set) {
  for (size_t i = 0; i < set->count; i++) {
    Tensor *tensor = &set->list[i].tensor;
    if (tensor->grad == NULL || tensor->grad_filled) continue;
    threads_for(tensor_count(tensor), 4096, zero_range, tensor->grad);
    tensor->grad_filled = true;
  }
}

void param_trim_grads(ParamSet *set) {
  size_t bytes = (size_t)set->total * sizeof(real);
  if (set->grads && !set->reserved && bytes >= HUGE_PAGE) (void)madvise(set->grads, bytes, MADV_DONTNEED);
}

int64_t param_count_numbers(const ParamSet *set) {
  int64_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += tensor_count(&set->list[i].tensor);
  return count;
}

int64_t param_count_trainable(const ParamSet *set) {
  int64_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += set->list[i].frozen ? 0 : tensor_count(&set->list[i].tensor);
  return count;
}

int64_t param_outputs(const Param *param) { return param->tensor.shape[param->transposed ? 1 : 0]; }
int64_t param_inputs(const Param *param) { return param->tensor.shape[param->transposed ? 0 : 1]; }

const char *param_not_finite(const ParamSet *set) {
  for (size_t i = 0; i < set->count; i++)
    if (!set->list[i].frozen && !tensor_is_finite(&set->list[i].tensor)) return set->list[i].name;
  return NULL;
}

void param_release(ParamSet *set) {
  for (size_t i = 0; i < set->count; i++) {
    const PackedMatrix *packed = &set->list[i].packed;
    if (packed->words != NULL) block_free(set, packed->words, packed->bytes);
  }
  free_shadows(set);
  free_blocks(set);
  free_frozen(set);
  free(set->list);
  memset(set, 0, sizeof *set);
}
