#include "autograd/kernels/lowbit_kernels.h"
const LowbitKernels *lowbit_neon(void) { return NULL; }
