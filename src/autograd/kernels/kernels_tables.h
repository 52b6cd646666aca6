/* The tables that kernels.c chooses from, one a file. Each function returns NULL where its file was compiled to nothing: double builds,
 * other architectures. Whether the CPU can run a table is not their business. */
#ifndef AUTOGRAD_KERNELS_TABLES_H
#define AUTOGRAD_KERNELS_TABLES_H
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/nearest_packed.h"
#include "autograd/kernels/product_packed.h"

const Kernels *kernels_portable(void);
const Kernels *kernels_avx2(void);
const Kernels *kernels_avx512(void);
const NearestPacked *nearest_packed_vnni(void);
ProductBf16 *product_bf16_native(void); /* kernels()->product_bf16 of processors with AVX-512's bf16 instructions */
ProductPacked *product_packed_native(bool bf16);

#endif
