/* Sums by name and phase: see bench_profile.h. */
#include "train/bench_profile.h"
#include "autograd/kernels/matmul.h"
#include <string.h>

static void add_part(void *context, const char *name, TapePhase phase, double seconds) {
  BenchProfile *profile = context;
  BenchPart *part = profile->part, *end = part + profile->parts;
  while (part < end && (part->phase != phase || strcmp(part->name, name) != 0)) part++;
  if (part == end && profile->parts == BENCH_PARTS) return;
  if (part == end) *part = (BenchPart){.name = name, .phase = phase}, profile->parts++;
  double products = matmul_counted().seconds;
  part->seconds += seconds;
  part->product_seconds += products - profile->products_before;
  part->calls++;
  profile->products_before = products;
}

void bench_profile_watch(BenchProfile *profile, Tape *tape) { tape_profile(tape, profile ? add_part : NULL, profile); }
void bench_profile_restart(BenchProfile *profile) { profile->products_before = matmul_counted().seconds; }
void bench_profile_clear(BenchProfile *profile) { profile->parts = 0; }
