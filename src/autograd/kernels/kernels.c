/* Chooses the tables of kernels for this CPU, once, and says what runs and whether it could be faster. Leaves the kernels themselves to
 * kernels_*.c, and to lowbit_*.c those for weights of 8 and 4 bits. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/kernels_tables.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "base/text.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static const char *const names_fastest_first[] = {"avx512", "avx2", "portable"};
enum { NAMES = sizeof names_fastest_first / sizeof *names_fastest_first };

#if defined(__x86_64__)
#include <cpuid.h>

/* F16C is asked of the CPU itself: not every compiler's __builtin_cpu_supports knows the name. */
static const Kernels *avx2_if_supported(void) {
  unsigned a, b, c, d;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kernels_avx2() : NULL;
}

static const Kernels *avx512_if_supported(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? kernels_avx512()
             : NULL;
}

static bool has_avx(void) { return __builtin_cpu_supports("avx"); }
static bool has_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
static bool has_bf16(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}
#else
static bool has_avx(void) { return false; }
static bool has_vnni(void) { return false; }
static bool has_bf16(void) { return false; }
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

const Kernels *kernels(void) {
  static _Atomic(const Kernels *) chosen;
  const Kernels *table = atomic_load_explicit(&chosen, memory_order_acquire);
  if (table) return table;
  const char *wanted = text_environment("ASTRA_KERNELS");
  table = wanted ? kernels_named(wanted) : NULL;
  if (!table) table = fastest();
  atomic_store_explicit(&chosen, table, memory_order_release); /* every thread finds the same one */
  return table;
}

/* ---- weights of 8 and 4 bits ---- */

#if defined(__aarch64__) && defined(__linux__)
static bool has_dot_products(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
static bool has_dot_products(void) { return false; }
#endif

const LowbitKernels *lowbit_kernels_named(const char *name) {
  if (!strcmp(name, "portable")) return lowbit_portable();
  if (!strcmp(name, "avx2")) return kernels_named("avx2") ? lowbit_avx2() : NULL;
  if (!strcmp(name, "vnni")) return kernels_named("avx512") && has_vnni() ? lowbit_vnni() : NULL;
  if (!strcmp(name, "neon")) return has_dot_products() ? lowbit_neon() : NULL;
  return NULL;
}

/* On arm64 the table of kernels() is the portable one: there only the
 * environment says whether it is wanted here. */
static const LowbitKernels *fastest_lowbit(void) {
  const char *wanted = text_environment("ASTRA_KERNELS"), *name = kernels()->name;
  const LowbitKernels *table = NULL;
  if (!strcmp(name, "avx512")) table = lowbit_kernels_named("vnni");
  if (!table && strncmp(name, "avx", 3) == 0) table = lowbit_kernels_named("avx2");
  if (!table && !(wanted && !strcmp(wanted, "portable"))) table = lowbit_kernels_named("neon");
  return table ? table : lowbit_portable();
}

const LowbitKernels *lowbit_kernels(void) {
  static _Atomic(const LowbitKernels *) chosen;
  const LowbitKernels *table = atomic_load_explicit(&chosen, memory_order_acquire);
  if (table) return table;
  table = fastest_lowbit();
  atomic_store_explicit(&chosen, table, memory_order_release); /* every thread finds the same one */
  return table;
}

/* ---- natively ---- */

static NativeKernels native;

static void find_native(void) {
  const bool whole = kernels() == kernels_avx512(), bf16 = whole && has_bf16();
  if (bf16) native.product_bf16 = product_bf16_native();
  if (native.product_bf16 == NULL) native.product_bf16 = kernels()->product_bf16;
  if (whole) native.product_packed = product_packed_native(false);
  if (bf16) native.product_packed_bf16 = product_packed_native(true);
  if (whole && has_vnni()) native.nearest_packed = nearest_packed_vnni();
}

/* Asked once: under a hypervisor CPUID alone takes as long as many products. */
const NativeKernels *kernels_native(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_native);
  return &native;
}

/* ---- what the environment asks for, and whether it could be faster ---- */

/* The vector instructions that OpenBLAS's kernels for x86-64 use; those not named here have 16 bytes a vector, or belong to other CPUs. */
typedef enum VectorLevel { VECTOR_SSE, VECTOR_AVX, VECTOR_AVX2, VECTOR_AVX512 } VectorLevel;
static const char *const level_names[] = {"SSE", "AVX", "AVX2", "AVX-512"};
static const struct {
  const char *core;
  VectorLevel level;
} core_levels[] = {{"Sandybridge", VECTOR_AVX},   {"Bulldozer", VECTOR_AVX},        {"Piledriver", VECTOR_AVX}, {"Steamroller", VECTOR_AVX},
                   {"Excavator", VECTOR_AVX2},    {"Haswell", VECTOR_AVX2},         {"Zen", VECTOR_AVX2},       {"SkylakeX", VECTOR_AVX512},
                   {"Cooperlake", VECTOR_AVX512}, {"SapphireRapids", VECTOR_AVX512}};

static VectorLevel processor_level(void) {
  return avx512_if_supported() ? VECTOR_AVX512 : avx2_if_supported() ? VECTOR_AVX2 : has_avx() ? VECTOR_AVX : VECTOR_SSE;
}

static Status no_such_table(const char *wanted) {
  char accepted[64] = "";
  for (int i = 0; i < NAMES; i++) {
    if (!kernels_named(names_fastest_first[i])) continue;
    if (accepted[0]) strcat(accepted, ", ");
    strcat(accepted, names_fastest_first[i]);
  }
  return status_set(STATUS_BAD_USAGE, "environment variable ASTRA_KERNELS=%s: this machine and build have %s; unset it for the fastest",
                    wanted, accepted);
}

/* Of a name that is not in the list: SSE. */
static VectorLevel level_of_core(const char *core) {
  for (size_t i = 0; i < sizeof core_levels / sizeof *core_levels; i++)
    if (strcasecmp(core, core_levels[i].core) == 0) return core_levels[i].level;
  return VECTOR_SSE;
}

/* On arm64 products with weights of 8 and 4 bits alone have faster kernels than the portable ones. */
static bool has_neon(void) { return lowbit_kernels_named("neon") != NULL; }

Status kernels_check(const char *blas_core, char *warning, size_t size) {
  const char *own = text_environment("ASTRA_KERNELS"), *core = text_environment("OPENBLAS_CORETYPE");
  warning[0] = '\0';
  if (own && !kernels_named(own)) return no_such_table(own);
  bool own_slow = own && (kernels_named(own) != fastest() || has_neon()); /* arm64 has no other name than portable */
  /* A name that OpenBLAS does not know, or an OpenBLAS with one set of kernels, changes nothing. */
  bool core_slow = core && strcasecmp(core, blas_core) == 0 && level_of_core(core) < processor_level();
  if (!own_slow && !core_slow) return STATUS_OK;
  snprintf(warning, size, "the environment forces slower kernels than this processor's %s: %s%s%s%s%s; unset %s for full speed",
           has_neon() ? "dot products" : level_names[processor_level()], own_slow ? "ASTRA_KERNELS=" : "", own_slow ? own : "",
           own_slow && core_slow ? " and " : "", core_slow ? "OPENBLAS_CORETYPE=" : "", core_slow ? core : "",
           own_slow && core_slow ? "them" : "it");
  return STATUS_OK;
}

void kernels_check_core(const char *blas_core, char *warning, size_t size) {
  const VectorLevel level = processor_level();
  warning[0] = '\0';
  if (text_environment("OPENBLAS_CORETYPE") || level < VECTOR_AVX2 || level_of_core(blas_core) >= VECTOR_AVX) return;
  snprintf(warning, size,
           "OpenBLAS does not know this processor and takes its kernels for %s; OPENBLAS_CORETYPE=%s in the environment is several times "
           "as fast",
           blas_core, level == VECTOR_AVX512 ? "SkylakeX" : "Haswell");
}
