/* Chooses the table of kernels for this CPU, once. Leaves the kernels themselves to kernels_*.c. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/kernels_tables.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names_fastest_first[] = {"avx512", "avx2", "portable"};
enum { NAMES = sizeof names_fastest_first / sizeof *names_fastest_first };

#if defined(__x86_64__)
#include <cpuid.h>

/* Asked of the CPU itself: not every compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static const Kernels *avx2_if_supported(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() ? kernels_avx2() : NULL;
}

static const Kernels *avx512_if_supported(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? kernels_avx512()
             : NULL;
}
#else
static const Kernels *avx2_if_supported(void) { return NULL; }
static const Kernels *avx512_if_supported(void) { return NULL; }
#endif

const Kernels *kernels_named(const char *name) {
  if (!strcmp(name, "portable")) return kernels_portable();
  if (!strcmp(name, "avx2")) return avx2_if_supported();
  if (!strcmp(name, "avx512")) return avx512_if_supported();
  return NULL;
}

static const Kernels *fastest(void) {
  for (int i = 0; i < NAMES; i++) {
    const Kernels *table = kernels_named(names_fastest_first[i]);
    if (table) return table;
  }
  return NULL; /* not reached: the portable table always exists */
}

Status kernels_check(void) {
  const char *wanted = getenv("ASTRA_KERNELS");
  if (!wanted || kernels_named(wanted)) return STATUS_OK;
  char accepted[64] = "";
  for (int i = 0; i < NAMES; i++) {
    if (!kernels_named(names_fastest_first[i])) continue;
    if (accepted[0]) strcat(accepted, ", ");
    strcat(accepted, names_fastest_first[i]);
  }
  return status_set(STATUS_BAD_USAGE, "environment variable ASTRA_KERNELS=%s: this machine and build have %s; unset it for the fastest",
                    wanted, accepted);
}

const Kernels *kernels(void) {
  static _Atomic(const Kernels *) chosen;
  const Kernels *table = atomic_load_explicit(&chosen, memory_order_acquire);
  if (table) return table;
  const char *wanted = getenv("ASTRA_KERNELS");
  table = wanted ? kernels_named(wanted) : NULL;
  if (!table) table = fastest();
  atomic_store_explicit(&chosen, table, memory_order_release); /* every thread finds the same one */
  return table;
}
