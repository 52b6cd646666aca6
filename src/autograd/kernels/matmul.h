/* Matrix products: the only interface to BLAS and oneDNN. Row-major. The pool's threads divide the work in fixed pieces, each a
 * single-threaded call. Products are counted, so that a step's share inside BLAS and its FLOPs can be reported. */
#ifndef AUTOGRAD_MATMUL_H
#define AUTOGRAD_MATMUL_H
#include "autograd/kernels/nearest_packed.h"
#include "autograd/kernels/numbers.h"
#include "base/status.h"
#include <stdbool.h>
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
 * in full or both in bf16. One after another on the calling thread, counted as one: by kernels()->product and kernels_product_bf16, where
 * these have vectors, which need no call into a library. */
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

/* Counting only (planning mode): adds what matmul would count, except its time. */
void matmul_count_only(int64_t m, int64_t n, int64_t k);

MatmulCount matmul_counted(void); /* since the last reset, all threads' calls and FLOPs */
void matmul_reset_count(void);

/* Which library multiplies: chosen by the processor, or by name ("auto", "openblas", "onednn", "onednn-int8"; NULL: as the environment's
 * ASTRA_BACKEND says, or auto). Call before the first product. BAD_USAGE: no such library, in this build or for this processor. */
typedef enum MatmulBackend { MATMUL_OPENBLAS, MATMUL_ONEDNN } MatmulBackend;
Status matmul_choose_backend(const char *name);
MatmulBackend matmul_backend(void);
const char *matmul_backend_name(void);

/* oneDNN multiplies many rows with int8 weights, too: where it is the backend and the processor has AMX, or as "onednn-int8" asks with any
 * 8-bit dot products. The results are the same bits as those of our own kernels. */
bool matmul_int8_in_onednn(void);

/* Products in bf16 run on instructions of the processor (otherwise they are widened and slower than float); and whether one of a usual size
 * is faster than in float, as measured once, in about 10 ms. */
bool matmul_bf16_is_native(void);
bool matmul_bf16_is_faster(void);

/* Makes BLAS allocate its work buffers, one for each thread of the pool. It would allocate them one by one, whenever more threads than ever
 * before are inside a product at once: at any time in a run. Call after threads_start. */
void matmul_reserve(void);

/* The name of the kernels that BLAS runs with ("SkylakeX", "Haswell"), which decide its speed (what matmul_describe says). */
const char *matmul_core(void);

/* "kernels avx512, oneDNN 2.6.3, BLAS kernels Cooperlake (OpenBLAS 0.3.21)": what runs, for people. text [KERNELS_TEXT]. */
void matmul_describe(char *text, size_t size);

/* Makes the calling thread the one whose time in products is counted. BLAS itself is single-threaded from the program's start: the pool
 * shares the work out. Call first in main. OPENBLAS_CORETYPE in the environment overrides the kernels that OpenBLAS picks for the CPU, for
 * better or worse (matmul_core tells). */
void matmul_start(void);

/* ---- for products in other files (matmul_packed.c, matmul_lowbit.c, vq/codebook.c) ---- */

enum { MATMUL_POOLED_MIN = 256 * 1024 /* multiply-adds under which waking the pool costs more than it saves */ };

/* Around a product of [m, n, k] that is to be counted. */
double matmul_count_begin(void);
void matmul_count_end(int64_t m, int64_t n, int64_t k, double begun);

static inline int64_t matmul_lesser(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
