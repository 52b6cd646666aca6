/* Runs a fuzz target without a fuzzing engine: every seed, then mutations of each, the same ones every time.
 *   replay_NAME [FOLDER]      seeds are in FOLDER, or else in tests/fuzz/seeds/NAME
 * ASTRA_FUZZ_SECONDS goes on mutating for that long; ASTRA_FINDINGS is where an input that crashes is written (default: build).
 * Leaves out: coverage. Prints a summary in cmocka's form, one case a seed. */
#include "base/clock.h"
#include "base/files.h"
#include "base/rng.h"
#include "fuzz/fuzz.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum { MUTATIONS = 300, MAX_BYTES = 1 << 20, ROOM = MAX_BYTES + 4096 };

/* The input under test, for the last words. */
static const uint8_t *current;
static size_t current_size;
static char finding[512];

static void keep_input(void) {
  int file = open(finding, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  bool written = file >= 0 && write(file, current, current_size) == (ssize_t)current_size;
  static const char words[] = "the input that failed is in ", lost[] = "the input that failed could not be written to ";
  (void)!write(STDERR_FILENO, written ? words : lost, (written ? sizeof words : sizeof lost) - 1);
  (void)!write(STDERR_FILENO, finding, strlen(finding));
  (void)!write(STDERR_FILENO, "\n", 1);
}

static void on_signal(int number) {
  keep_input();
  signal(number, SIG_DFL);
  raise(number);
}

static void watch_crashes(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
  if (__sanitizer_set_death_callback) {
    __sanitizer_set_death_callback(keep_input);
    signal(SIGTERM, on_signal); /* a hang, ended by the time limit */
    return;
  }
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], on_signal);
}

/* An exact copy on the heap, so that the address sanitizer sees a read behind the end. */
static void run_input(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) abort();
  memcpy(copy, data, size);
  current = copy;
  current_size = size;
  LLVMFuzzerTestOneInput(copy, size);
  current_size = 0;
  free(copy);
}

static void flip_bit(Rng *rng, uint8_t *data, size_t *size) {
  if (*size) data[rng_below(rng, *size)] ^= (uint8_t)(1 << rng_below(rng, 8));
}

static void set_byte(Rng *rng, uint8_t *data, size_t *size) {
  static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '"', '{', '}', '[', ',', '-', '/', '\n'};
  if (*size) data[rng_below(rng, *size)] = values[rng_below(rng, sizeof values)];
}

static void set_number(Rng *rng, uint8_t *data, size_t *size) { /* little-endian, where lengths and offsets are */
  static const uint64_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0x100000000};
  uint64_t value = values[rng_below(rng, 8)];
  size_t width = (size_t)2 << rng_below(rng, 3);
  if (*size >= width) memcpy(data + rng_below(rng, *size - width + 1), &value, width);
}

static void truncate_end(Rng *rng, uint8_t *data, size_t *size) {
  (void)data;
  if (*size) *size = rng_below(rng, *size);
}

static void remove_piece(Rng *rng, uint8_t *data, size_t *size) {
  if (!*size) return;
  size_t start = rng_below(rng, *size), length = rng_below(rng, *size - start) % 64 + 1;
  memmove(data + start, data + start + length, *size - start - length);
  *size -= length;
}

static void repeat_piece(Rng *rng, uint8_t *data, size_t *size) {
  if (!*size || *size > MAX_BYTES) return;
  size_t start = rng_below(rng, *size), length = rng_below(rng, *size - start) % 64 + 1;
  memmove(data + start + length, data + start, *size - start);
  *size += length;
}

typedef void Mutation(Rng *rng, uint8_t *data, size_t *size);
static Mutation *const mutations[] = {flip_bit, set_byte, set_number, truncate_end, remove_piece, repeat_piece};

/* One to eight mutations; most inputs stay nearly right, so that they get past the first checks. */
static void run_mutation(Rng *rng, const char *seed, size_t seed_size) {
  static uint8_t data[ROOM];
  size_t size = seed_size < MAX_BYTES ? seed_size : MAX_BYTES;
  memcpy(data, seed, size);
  for (uint64_t left = (uint64_t)1 << rng_below(rng, 4); left > 0; left--) {
    mutations[rng_below(rng, sizeof mutations / sizeof *mutations)](rng, data, &size);
  }
  run_input(data, size);
}

static bool run_seed(const char *folder, const char *name, double until) {
  char *path = files_join(folder, name), *seed = NULL;
  size_t size;
  if (!path || files_read(path, MAX_BYTES, &seed, &size) != STATUS_OK) {
    fprintf(stderr, "%s\n", status_message());
    free(path);
    return false;
  }
  Rng rng;
  rng_init(&rng, 42, size);
  run_input((const uint8_t *)seed, size);
  long count = 0;
  for (; count < MUTATIONS || clock_now() < until; count++) run_mutation(&rng, seed, size);
  printf("%s: %ld mutations\n", name, count);
  free(seed);
  free(path);
  return true;
}

int main(int argc, char **argv) {
  const char *slash = strrchr(argv[0], '/'), *own = slash ? slash + 1 : argv[0];
  const char *target = strncmp(own, "replay_", 7) ? own : own + 7;
  const char *findings = getenv("ASTRA_FINDINGS"), *seconds = getenv("ASTRA_FUZZ_SECONDS"), *build = getenv("BUILD");
  char folder[512], **names;
  size_t count, good = 0;
  snprintf(folder, sizeof folder, "%s%s", argc > 1 ? "" : "tests/fuzz/seeds/", argc > 1 ? argv[1] : target);
  snprintf(finding, sizeof finding, "%s/%s-%ld.input", findings ? findings : build ? build : "build", target, (long)getpid());
  watch_crashes();
  run_input((const uint8_t *)"", 0);
  if (files_list(folder, &names, &count) != STATUS_OK || count == 0) {
    fprintf(stderr, "no seeds in %s\n", folder);
    return 1;
  }
  double start = clock_now(), share = seconds ? atof(seconds) / (double)count : 0;
  for (size_t i = 0; i < count; i++) good += run_seed(folder, names[i], seconds ? start + share * (double)(i + 1) : 0);
  files_list_free(names, count);
  printf("[  PASSED  ] %zu test(s).\n", good);
  if (good < count) printf("[  FAILED  ] %zu test(s), listed above:\n", count - good);
  return good < count;
}
