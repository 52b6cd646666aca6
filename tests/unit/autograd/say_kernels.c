/* Prints which kernels of OpenBLAS and which of ours run: "Haswell avx2". For tests/kernels.sh; not a test. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include <stdio.h>

int main(void) { return printf("%s %s\n", matmul_core(), kernels()->name) < 0; }
