/* Matrix products: the only interface to BLAS and oneDNN. Row-major. The pool's threads divide the work in fixed pieces, each a
 * single-threaded call. Products are counted, so that a step's share inside BLAS and its FLOPs can be reported. */
#ifndef AUTOGRAD_MATMUL_H
#define AUTOGRAD_MATMUL_H
#include "autograd/kernels/numbers.h"
#include "autograd/kernels/product_packed.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MatmulCount {
  int64_t calls;
  double flops;   /* 2 M N K each */
  double seconds; /* spent in products on thread 0 (wall time of pooled products; time of its own single-threaded ones) */
} MatmulCount;

/* C [M, N] = alpha op(A) op(B) + beta C, over the pool. op(A) is [M, K], op(B) is [K, N]; lda, ldb, ldc are the row strides as stored.
 * beta 0 does not read C. */
void matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda, const real *b,
            int64_t ldb, real beta, real *c, int64_t ldc);

/* The same on the calling thread alone: for use inside a threads_for body. */
void matmul_single(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, real alpha, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc);

/* C [m, n] = op(A) op(B), added to C or not, for each of some products of up to some hundred rows and columns; m, n, k >= 1, A and B both
 * in full or both in bf16. One after another on the calling thread, counted as one: by kernels()->product and
 * kernels_native()->product_bf16, where these have vectors, which need no call into a library. */
typedef struct MatmulSmall {
  bool transpose_a, transpose_b, add;
  int64_t m, n, k;
  Numbers a;
  int64_t lda;
  Numbers b;
  int64_t ldb;
  real *c;
  int64_t ldc;
} MatmulSmall;
void matmul_small(int count, const MatmulSmall *product);

/* C [M, N] = A op(B), added to C or not, over the pool, with B in 16 bits: widened panel by panel into scratch, each number once, or, for a
 * few rows of A, in registers. op(B) is [K, N], K > 0; lda, ldb and ldc as in matmul. scratch [matmul_narrow_scratch()] may serve
 * all threads of the pool at once: inside a threads_for body the product runs on the calling thread. */
void matmul_narrow(bool transpose_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, NarrowKind kind, const uint16_t *b,
                   int64_t ldb, bool add, real *c, int64_t ldc, real *scratch);
int64_t matmul_narrow_scratch(void); /* numbers, for all threads of the pool together */

/* C [M, N] = op(A) op(B) + bias, added to C or not, over the pool, with A and B in bf16 and C in either width: sums are in float, and a C
 * in bf16 is rounded once. bias [N] or NULL. Where the processor has no bf16 instructions, or oneDNN is not there, panels are widened and
 * multiplied in float: equal except for the order of the sums. Inside a threads_for body on the calling thread alone. */
void matmul_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b,
                 int64_t ldb, const real *bias, bool add, Numbers c, int64_t ldc);

/* ---- products with a weight that was packed once, because it does not change: inference. A product copies and transposes nothing of it,
 * and is fast for any number of rows. ---- */

/* A weight of [outputs, inputs], however it was stored: words [strips, words of an output, PACKED_STRIP]. The words of PACKED_STRIP
 * outputs lie together; a word is a float, two inputs in bf16, or four in int8. */
typedef struct PackedMatrix {
  int64_t outputs, inputs;
  bool bf16; /* an even number of inputs */
  bool int8; /* zeros fill the last words of an output, up to a multiple of LOWBIT_PIECE inputs; multiplied by matmul_lowbit */
  uint32_t *words;
  size_t bytes;           /* of words: matmul_packed_bytes */
  ProductPacked *product; /* except of int8 */
  int32_t *offset_sums;   /* int8: of each output, up to a whole strip, 128 times the sum of its numbers; after the words */
} PackedMatrix;

/* Of matrix->words, which the caller allocates, from the matrix's shape. 0: such a weight is not faster packed, with this processor and
 * backend. In int8 it is where MatmulBackend.int8 is. */
size_t matmul_packed_bytes(const PackedMatrix *matrix);

/* Fills words and product, over the pool; weight: real numbers or, with a kind, such of 16 bits, [outputs, inputs] or, transposed, [inputs,
 * outputs], rounded to bf16 for a bf16 matrix. For an int8 matrix: int8_t numbers [outputs, inputs]; their float scales stay where they
 * are. */
void matmul_pack(PackedMatrix *matrix, const void *weight, NarrowKind kind, bool transposed);

/* Called for pieces of C, [rows, columns] from (row, column) on, by the thread that computes them: before, and after while they are in its
 * cache. */
typedef void MatmulPackedPiece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns);

typedef struct MatmulPacked {
  const PackedMatrix *weight;
  int64_t first_output, outputs; /* of the matrix; the first is a multiple of PACKED_STRIP */
  int64_t first_input, inputs;   /* of the matrix; in bf16 even numbers */
  int64_t rows;
  const void *x;                     /* [rows, inputs] floats, or in bf16, contiguous */
  const real *bias;                  /* [outputs], or NULL */
  bool add;                          /* to what C holds (after `before`); C in full, no bias */
  Numbers c;                         /* [rows, outputs], contiguous */
  MatmulPackedPiece *before, *after; /* or NULL */
  void *context;                     /* of both */
} MatmulPacked;

/* C = X W^T + bias, over the pool, or on the calling thread inside a threads_for body. A row's result depends neither on the other rows nor
 * on the number of threads. */
void matmul_packed(const MatmulPacked *product);

/* ---- counting ---- */

/* Counting only (planning mode): adds what matmul would count, except its time. */
void matmul_count_only(int64_t m, int64_t n, int64_t k);

MatmulCount matmul_counted(void); /* since the last reset, all threads' calls and FLOPs */
void matmul_reset_count(void);

/* ---- what multiplies ---- */

/* Which library multiplies: chosen by the processor, or by name ("auto", "openblas", "onednn", "onednn-int8"; NULL: as the environment's
 * ASTRA_BACKEND says, or auto). Call before the first product. BAD_USAGE: no such library, in this build or for this processor. */
Status matmul_choose_backend(const char *name);

typedef struct MatmulBackend {
  const char *name; /* "openblas", "onednn" or "onednn-int8" */
  bool onednn;      /* else OpenBLAS */
  bool bf16;        /* products in bf16 run on instructions of the processor; otherwise they are widened, and slower than float */
  /* oneDNN multiplies many rows with int8 weights, too: it is the backend and the processor has AMX, or "onednn-int8" asked for it with any
   * 8-bit dot products. The results are the same bits as those of our own kernels. */
  bool int8;
} MatmulBackend;
MatmulBackend matmul_backend(void);

/* Whether a product of a usual size is faster in bf16 than in float, as measured by this call, in about 10 ms. */
bool matmul_bf16_is_faster(void);

/* Makes BLAS allocate its work buffers, one for each thread of the pool. It would allocate them one by one, whenever more threads than ever
 * before are inside a product at once: at any time in a run. Call after threads_start. */
void matmul_reserve(void);

/* The name of the kernels that BLAS runs with ("SkylakeX", "Haswell"), which decide its speed (what matmul_describe says). */
const char *matmul_core(void);
bool matmul_core_is_picked(void); /* as the program starts, of several sets of kernels: OPENBLAS_CORETYPE can name another */

/* "kernels avx512, oneDNN 2.6.3, BLAS kernels Cooperlake (OpenBLAS 0.3.21)": what runs, for people. text [KERNELS_TEXT]. */
void matmul_describe(char *text, size_t size);

/* Makes the calling thread the one whose time in products is counted. BLAS itself is single-threaded from the program's start: the pool
 * shares the work out. Call first in main. OPENBLAS_CORETYPE in the environment overrides the kernels that OpenBLAS picks for the CPU, for
 * better or worse (matmul_core tells). */
void matmul_start(void);

/* ---- for products in other files (matmul_lowbit.c, vq/codebook.c) ---- */

enum { MATMUL_POOLED_MIN = 256 * 1024 /* multiply-adds under which waking the pool costs more than it saves */ };

/* Around a product of [m, n, k] that is to be counted. */
double matmul_count_begin(void);
void matmul_count_end(int64_t m, int64_t n, int64_t k, double begun);

#endif
