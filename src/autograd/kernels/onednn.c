/* See onednn.h. A thread keeps its primitives in a hash table by shape; where no place is free, a newer shape replaces an older one. Which
 * library multiplies a shape depends only on the shape, so that the same seed gives the same bits. */
#include "autograd/kernels/onednn.h"
#include <stddef.h>

#ifdef ASTRA_ONEDNN
#include <dnnl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PLACES bounds what a process keeps to which texts of all lengths come: a primitive takes about 45 kB, and 0.4 ms to be made.
 * SHARED: of the library's own cache, by which threads that multiply the same shape at a time share what was generated. */
enum { PLACES = 128, SHARED = 32, PROBES = 8, ARGUMENTS = 5, ALIGNMENT = 64 };
enum { A, B, C, SCRATCH, BIAS }; /* the arguments' places; a product may be without the last */

void omp_set_num_threads(int threads); /* clang does not find omp.h where gcc alone has it */

/* What a primitive depends on: a product without its addresses. Zeroed before it is filled, because it is compared as bytes. */
typedef struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  uint8_t transpose_a, transpose_b, add, bias, inputs, output, used;
} Shape;

typedef struct Made {
  Shape shape;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[ARGUMENTS]; /* their data is set in each call */
  size_t scratch;                  /* bytes */
  bool holds_signals;              /* no handler may run on the stack of this one */
} Made;

typedef struct OwnTable {
  dnnl_stream_t stream;
  void *scratch; /* as much as the largest that one of its primitives needs */
  size_t scratch_bytes;
  Made place[PLACES];
} OwnTable;

static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static pthread_key_t table_key;
static _Thread_local OwnTable *own_table;

static void release(Made *made) {
  for (int i = 0; i < ARGUMENTS; i++)
    if (made->memory[i] != NULL) dnnl_memory_destroy(made->memory[i]);
  if (made->primitive != NULL) dnnl_primitive_destroy(made->primitive);
  *made = (Made){.primitive = NULL};
}

static void release_table(void *pointer) {
  OwnTable *table = pointer;
  for (int i = 0; i < PLACES; i++) release(&table->place[i]);
  dnnl_stream_destroy(table->stream);
  free(table->scratch);
  free(table);
}

static void make_engine(void) {
  if (pthread_key_create(&table_key, release_table) != 0 || dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
  dnnl_set_primitive_cache_capacity(SHARED);
}

/* Debian's oneDNN is built with OpenMP, whose number of threads is a setting of the calling thread. */
static OwnTable *table_of_thread(void) {
  if (own_table != NULL) return own_table;
  pthread_once(&engine_once, make_engine);
  if (engine == NULL) return NULL;
  omp_set_num_threads(1);
  OwnTable *table = calloc(1, sizeof *table);
  if (table == NULL) return NULL;
  if (dnnl_stream_create(&table->stream, engine, dnnl_stream_default_flags) != dnnl_success) return free(table), NULL;
  pthread_setspecific(table_key, table);
  return own_table = table;
}

/* ---- primitives */

/* A matrix [rows, columns] whose stored rows, or for a transposed one columns, are `stride` numbers apart. */
static bool describe(dnnl_memory_desc_t *matrix, int64_t rows, int64_t columns, dnnl_data_type_t type, bool transposed, int64_t stride) {
  dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : stride, transposed ? stride : 1};
  return dnnl_memory_desc_init_by_strides(matrix, 2, dims, type, strides) == dnnl_success;
}

static bool describe_product(dnnl_memory_desc_t matrix[ARGUMENTS], const Shape *s) {
  static const dnnl_data_type_t factors[] = {dnnl_f32, dnnl_bf16, dnnl_u8}, results[] = {dnnl_f32, dnnl_bf16, dnnl_s32};
  dnnl_dims_t bias_dims = {1, s->n}, b_dims = {s->k, s->n};
  const bool packed = s->inputs == ONEDNN_INT8;
  return describe(&matrix[A], s->m, s->k, factors[s->inputs], s->transpose_a, s->lda) &&
         (packed ? dnnl_memory_desc_init_by_tag(&matrix[B], 2, b_dims, dnnl_s8, dnnl_BA16a64b4a) == dnnl_success
                 : describe(&matrix[B], s->k, s->n, factors[s->inputs], s->transpose_b, s->ldb)) &&
         describe(&matrix[C], s->m, s->n, results[s->output], false, s->ldc) &&
         dnnl_memory_desc_init_by_tag(&matrix[BIAS], 2, bias_dims, dnnl_f32, dnnl_ab) == dnnl_success;
}

static bool add_to_result(dnnl_primitive_attr_t attributes) {
  dnnl_post_ops_t after;
  if (dnnl_post_ops_create(&after) != dnnl_success) return false;
  const bool done =
      dnnl_post_ops_append_sum(after, 1) == dnnl_success && dnnl_primitive_attr_set_post_ops(attributes, after) == dnnl_success;
  dnnl_post_ops_destroy(after);
  return done;
}

/* oneDNN's generated float gemm ("gemm:jit", of 2.6.3) keeps numbers further below the stack pointer than the 128 bytes that the ABI
 * grants. A handler's frame replaces them, and the product is then wrong or written somewhere on the heap. The batch-reduce kernels
 * ("brg:...") do not on Zen 4, and are trusted; no other is. */
static bool uses_free_stack(const_dnnl_primitive_desc_t description) {
  const char *name = NULL;
  return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) != dnnl_success || strncmp(name, "brg:", 4) != 0;
}

/* All but the signals that a fault of the program itself raises: blocked, those would end it. */
static void hold_signals(sigset_t *before) {
  static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t held;
  sigfillset(&held);
  for (size_t i = 0; i < sizeof own_faults / sizeof *own_faults; i++) sigdelset(&held, own_faults[i]);
  pthread_sigmask(SIG_BLOCK, &held, before);
}

/* Scratch is the caller's: oneDNN's own would be bound to the thread without our knowledge. */
static bool make_primitive(Made *made, const Shape *s, dnnl_memory_desc_t matrix[ARGUMENTS]) {
  dnnl_matmul_desc_t operation;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_primitive_desc_t description = NULL;
  bool done = dnnl_matmul_desc_init(&operation, &matrix[A], &matrix[B], s->bias ? &matrix[BIAS] : NULL, &matrix[C]) == dnnl_success &&
              dnnl_primitive_attr_create(&attributes) == dnnl_success &&
              dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success;
  if (done && s->add) done = add_to_result(attributes);
  done = done && dnnl_primitive_desc_create(&description, &operation, attributes, engine, NULL) == dnnl_success &&
         dnnl_primitive_create(&made->primitive, description) == dnnl_success;
  const dnnl_memory_desc_t *scratch = done ? dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0) : NULL;
  done = scratch != NULL;
  if (done) matrix[SCRATCH] = *scratch, made->scratch = dnnl_memory_desc_get_size(scratch);
  if (done) made->holds_signals = uses_free_stack(description);
  if (s->inputs == ONEDNN_INT8 && made->holds_signals) done = false; /* what is no "brg:" takes strips a number at a time */
  if (description != NULL) dnnl_primitive_desc_destroy(description);
  if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
  return done;
}

static bool make(Made *made, const Shape *s) {
  dnnl_memory_desc_t matrix[ARGUMENTS];
  bool done = describe_product(matrix, s) && make_primitive(made, s, matrix);
  for (int i = 0; i < ARGUMENTS && done; i++)
    done = dnnl_memory_create(&made->memory[i], &matrix[i], engine, DNNL_MEMORY_NONE) == dnnl_success;
  if (done)
    made->shape = *s;
  else
    release(made);
  return done;
}

static Made *find(OwnTable *table, const Shape *shape) {
  uint64_t first = 0xcbf29ce484222325u, word; /* FNV-1a, by eight bytes */
  for (size_t i = 0; i + sizeof word <= sizeof *shape; i += sizeof word) {
    memcpy(&word, (const uint8_t *)shape + i, sizeof word);
    first = (first ^ word) * 0x100000001b3u;
    first ^= first >> 29;
  }
  Made *free_place = NULL;
  for (int i = 0; i < PROBES; i++) {
    Made *made = &table->place[(first + (uint64_t)i) % PLACES];
    if (memcmp(&made->shape, shape, sizeof *shape) == 0) return made;
    if (!made->shape.used && free_place == NULL) free_place = made;
  }
  if (free_place == NULL) release(free_place = &table->place[first % PLACES]);
  return make(free_place, shape) ? free_place : NULL;
}

static bool scratch_suffices(OwnTable *table, size_t bytes) {
  if (bytes <= table->scratch_bytes) return true;
  void *scratch = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (scratch == NULL) return false;
  free(table->scratch);
  table->scratch = scratch;
  table->scratch_bytes = bytes;
  return true;
}

bool onednn_product(const OnednnProduct *p) {
  OwnTable *table = table_of_thread();
  if (table == NULL || p->k <= 0) return false;
  Shape shape;
  memset(&shape, 0, sizeof shape);
  shape.m = p->m, shape.n = p->n, shape.k = p->k;
  shape.lda = p->lda, shape.ldb = p->ldb, shape.ldc = p->ldc;
  shape.transpose_a = p->transpose_a, shape.transpose_b = p->transpose_b, shape.add = p->add, shape.bias = p->bias != NULL;
  shape.inputs = (uint8_t)p->inputs, shape.output = (uint8_t)p->output, shape.used = 1;
  Made *made = find(table, &shape);
  if (made == NULL || !scratch_suffices(table, made->scratch)) return false;
  const void *data[ARGUMENTS] = {[A] = p->a, [B] = p->b, [C] = p->c, [SCRATCH] = table->scratch, [BIAS] = p->bias};
  static const int roles[ARGUMENTS] = {
      [A] = DNNL_ARG_SRC, [B] = DNNL_ARG_WEIGHTS, [C] = DNNL_ARG_DST, [SCRATCH] = DNNL_ARG_SCRATCHPAD, [BIAS] = DNNL_ARG_BIAS};
  dnnl_exec_arg_t arguments[ARGUMENTS];
  const int count = p->bias != NULL ? ARGUMENTS : ARGUMENTS - 1;
  for (int i = 0; i < count; i++) {
    if (dnnl_memory_set_data_handle(made->memory[i], (void *)(uintptr_t)data[i]) != dnnl_success) return false;
    arguments[i] = (dnnl_exec_arg_t){roles[i], made->memory[i]};
  }
  sigset_t before;
  if (made->holds_signals) hold_signals(&before); /* 0.8 us */
  const bool done = dnnl_primitive_execute(made->primitive, table->stream, count, arguments) == dnnl_success;
  if (made->holds_signals) pthread_sigmask(SIG_SETMASK, &before, NULL);
  return done;
}

/* The sets of instructions are sets of bits. */
static bool processor_has(unsigned set) { return ((unsigned)dnnl_get_effective_cpu_isa() & set) == set; }

bool onednn_has_float(void) { return processor_has(dnnl_cpu_isa_avx512_core); }
bool onednn_has_bf16(void) { return processor_has(dnnl_cpu_isa_avx512_core_bf16); }
bool onednn_has_int8(void) { return processor_has(dnnl_cpu_isa_avx512_core_vnni); }
bool onednn_has_amx(void) { return processor_has(dnnl_cpu_isa_avx512_core_amx); }

const char *onednn_version(void) {
  static char text[32];
  const dnnl_version_t *version = dnnl_version();
  if (text[0] == 0) snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return text;
}

#else

bool onednn_has_float(void) { return false; }
bool onednn_has_bf16(void) { return false; }
bool onednn_has_int8(void) { return false; }
bool onednn_has_amx(void) { return false; }
bool onednn_product(const OnednnProduct *product) { return (void)product, false; }
const char *onednn_version(void) { return NULL; }

#endif
