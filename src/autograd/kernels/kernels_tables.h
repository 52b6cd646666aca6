/* The tables that kernels.c chooses from, one a file, for this folder alone. Each function returns NULL where its file was compiled to
 * nothing: double builds, other architectures. Whether the CPU can run a table is not their business. */
#ifndef AUTOGRAD_KERNELS_TABLES_H
#define AUTOGRAD_KERNELS_TABLES_H
#include "autograd/kernels/kernels.h"

const Kernels *kernels_portable(void);
const Kernels *kernels_avx2(void);
const Kernels *kernels_avx512(void);

/* Of NativeKernels; product_packed_native: of floats, or of bf16. */
const NearestPacked *nearest_packed_vnni(void);
ProductBf16 *product_bf16_native(void);
ProductPacked *product_packed_native(bool bf16);

#endif
