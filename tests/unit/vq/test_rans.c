/* Entropy coding: round trips for all sizes of alphabets, exact bytes, the size against the entropy, no room, and hostile bytes. */
#include "base/rng.h"
#include "unit/vq/vq_check.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* counts of code k: 1 / (k + 1)^steepness, in another order in each group. */
static double count_of(int64_t group, int64_t k, int64_t entries, double steepness) {
  return pow((double)((k * 7 + group * 3) % entries + 1), -steepness) * 1e6;
}

typedef struct Book {
  int64_t groups, entries;
  double *counts;
  uint16_t *frequencies;
  RansTable *tables;
} Book;

/* What rans_tables_new takes: each code can be sent, and all slots belong to one. */
static void check_frequencies(const uint16_t *frequencies, int64_t entries) {
  int64_t sum = 0;
  for (int64_t k = 0; k < entries; k++) {
    assert_true(frequencies[k] > 0);
    sum += frequencies[k];
  }
  assert_int_equal(sum, RANS_TOTAL);
}

static void open(Book *book, int64_t groups, int64_t entries, double steepness) {
  size_t numbers = (size_t)(groups * entries);
  *book = (Book){groups, entries, malloc(numbers * sizeof(double)), malloc(numbers * sizeof(uint16_t)), NULL};
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t k = 0; k < entries; k++) book->counts[g * entries + k] = floor(count_of(g, k, entries, steepness));
    assert_int_equal(code_frequencies_fit(book->counts + g * entries, entries, book->frequencies + g * entries), STATUS_OK);
    check_frequencies(book->frequencies + g * entries, entries);
  }
  assert_int_equal(rans_tables_new(&book->tables, book->frequencies, groups, entries), STATUS_OK);
}

static void close(Book *book) {
  free(book->counts), free(book->frequencies);
  rans_tables_free(book->tables);
}

/* A code drawn by the book's own frequencies. */
static int32_t draw(const Book *book, int64_t group, Rng *rng) {
  uint32_t slot = (uint32_t)rng_below(rng, RANS_TOTAL);
  int32_t k = 0;
  while (book->tables[group].start[k + 1] <= slot) k++;
  return k;
}

static void check_trip(const Book *book, int64_t tokens, const int32_t *codes) {
  size_t room = (size_t)(tokens * book->groups) * 2 + 8;
  uint8_t *bytes = malloc(room);
  int32_t *back = malloc((size_t)(tokens * book->groups + 1) * sizeof *back);
  size_t size = rans_encode(book->tables, codes, tokens, book->groups, bytes, room);
  assert_true(size >= RANS_STATE);
  uint8_t *exact = malloc(size); /* so that a sanitizer sees a byte too many */
  assert_int_equal(rans_encode(book->tables, codes, tokens, book->groups, exact, size), size);
  assert_memory_equal(exact, bytes, size);
  assert_int_equal(rans_encode(book->tables, codes, tokens, book->groups, bytes, size - 1), 0);
  assert_int_equal(rans_decode(book->tables, tokens, book->groups, exact, size, back), STATUS_OK);
  assert_memory_equal(back, codes, (size_t)(tokens * book->groups) * sizeof *back);
  assert_int_equal(rans_decode(book->tables, tokens, book->groups, exact, size - 1, back), STATUS_BAD_VALUE);
  free(bytes), free(back), free(exact);
}

static void round_trips(void **state) {
  (void)state;
  static const int64_t entries[] = {2, 3, 5, 256, 1000, 1024, 16384}, groups[] = {1, 3, 32};
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int e = 0; e < 7; e++)
    for (int g = 0; g < 3; g++)
      for (double steepness = 0; steepness < 3; steepness += 1.1) {
        Book book;
        open(&book, groups[g], entries[e], steepness);
        int32_t *codes = malloc((size_t)(40 * groups[g]) * sizeof *codes);
        for (int64_t i = 0; i < 40 * groups[g]; i++)
          codes[i] = i % 3 == 0 ? (int32_t)rng_below(&rng, (uint64_t)entries[e]) : draw(&book, i % groups[g], &rng);
        for (int64_t tokens = 0; tokens <= 40; tokens += 13) check_trip(&book, tokens, codes);
        free(codes);
        close(&book);
      }
}

/* Any code alone, also the rarest. */
static void every_code(void **state) {
  (void)state;
  Book book;
  open(&book, 1, 1024, 2.5);
  for (int32_t code = 0; code < 1024; code++) check_trip(&book, 1, &code);
  close(&book);
}

/* The same bytes on every machine: worked out by hand for frequencies 49,152 and 16,384 (3/4 and 1/4). */
static void known_bytes(void **state) {
  (void)state;
  const uint16_t frequencies[] = {49152, 16384};
  const int32_t codes[] = {0, 1, 0, 0};
  RansTable *tables;
  uint8_t bytes[8];
  assert_int_equal(rans_tables_new(&tables, frequencies, 1, 2), STATUS_OK);
  /* backwards from 0x800000: 0 -> 170 * 65536 + 32768 = 11173888; 0 -> 227 * 65536 + 16384 = 14893056;
   * 1 -> 909 * 65536 + 0 + 49152 = 59621376; 0 -> 1213 * 65536 + 0 = 79495168 = 0x04bd0000 */
  const uint8_t wanted[] = {0x00, 0x00, 0xbd, 0x04};
  assert_int_equal(rans_encode(tables, codes, 4, 1, bytes, sizeof bytes), 4);
  assert_memory_equal(bytes, wanted, 4);
  rans_tables_free(tables);
}

/* Within 1% and the state of what the frequencies promise, which is near the entropy of the counts. */
static void size_is_the_entropy(void **state) {
  (void)state;
  enum { TOKENS = 4000, GROUPS = 4, ENTRIES = 1024 };
  static int32_t codes[TOKENS * GROUPS];
  static uint8_t bytes[TOKENS * GROUPS * 2];
  for (double steepness = 0.3; steepness < 2; steepness += 0.6) {
    Book book;
    Rng rng;
    rng_init(&rng, 2, 0);
    open(&book, GROUPS, ENTRIES, steepness);
    double promised = 0, entropy = 0, total = 0;
    for (int i = 0; i < TOKENS * GROUPS; i++) {
      codes[i] = draw(&book, i % GROUPS, &rng);
      promised += RANS_BITS - log2((double)book.frequencies[i % GROUPS * ENTRIES + codes[i]]);
    }
    size_t size = rans_encode(book.tables, codes, TOKENS, GROUPS, bytes, sizeof bytes);
    assert_true((double)size <= promised / 8 * 1.01 + RANS_STATE && (double)size >= promised / 8 * 0.99);
    for (int k = 0; k < ENTRIES; k++) total += book.counts[k];
    for (int k = 0; k < ENTRIES; k++) entropy -= book.counts[k] / total * log2(book.counts[k] / total);
    assert_true(code_frequencies_bits(book.counts, book.frequencies, ENTRIES) < entropy * 1.02);
    assert_true(code_frequencies_bits(book.counts, book.frequencies, ENTRIES) >= entropy * (1 - 1e-9));
    close(&book);
  }
}

/* Every byte changed: refused, or another stream that is the only form of its codes. */
static void damaged_bytes(void **state) {
  (void)state;
  enum { TOKENS = 12, GROUPS = 3 };
  Book book;
  Rng rng;
  int32_t codes[TOKENS * GROUPS], back[TOKENS * GROUPS];
  uint8_t bytes[200], again[200];
  rng_init(&rng, 3, 0);
  open(&book, GROUPS, 100, 1);
  for (int i = 0; i < TOKENS * GROUPS; i++) codes[i] = draw(&book, i % GROUPS, &rng);
  size_t size = rans_encode(book.tables, codes, TOKENS, GROUPS, bytes, sizeof bytes);
  int refused = 0;
  for (size_t at = 0; at < size; at++)
    for (int change = 1; change < 256; change++) {
      bytes[at] ^= (uint8_t)change;
      if (rans_decode(book.tables, TOKENS, GROUPS, bytes, size, back) == STATUS_OK) {
        assert_int_equal(rans_encode(book.tables, back, TOKENS, GROUPS, again, sizeof again), size);
        assert_memory_equal(again, bytes, size);
      } else {
        refused++;
      }
      bytes[at] ^= (uint8_t)change;
    }
  assert_true(refused > (int)size * 200);
  bytes[size] = 0;
  assert_int_equal(rans_decode(book.tables, TOKENS, GROUPS, bytes, size + 1, back), STATUS_BAD_VALUE);
  for (size_t less = 0; less < size; less++)
    assert_int_equal(rans_decode(book.tables, TOKENS, GROUPS, bytes, less, back), STATUS_BAD_VALUE);
  close(&book);
}

static void frequencies(void **state) {
  (void)state;
  uint16_t f[4], many[16384];
  const double none[4] = {0}, one[4] = {0, 7, 0, 0}, third[3] = {1, 1, 1}, bad[2] = {1, -1}, endless[2] = {1, INFINITY};
  assert_int_equal(code_frequencies_fit(none, 4, f), STATUS_OK);
  for (int k = 0; k < 4; k++) assert_int_equal(f[k], 16384);
  assert_int_equal(code_frequencies_fit(one, 4, f), STATUS_OK);
  assert_true(f[0] == 1 && f[1] == 65533 && f[2] == 1 && f[3] == 1);
  assert_int_equal(code_frequencies_fit(third, 3, f), STATUS_OK);
  assert_true(f[0] == 21846 && f[1] == 21845 && f[2] == 21845);
  assert_int_equal(code_frequencies_fit(bad, 2, f), STATUS_BAD_VALUE);
  assert_int_equal(code_frequencies_fit(endless, 2, f), STATUS_BAD_VALUE);
  assert_int_equal(code_frequencies_fit(none, 16385, many), STATUS_BAD_VALUE);
  assert_int_equal(code_frequencies_fit(none, 1, many), STATUS_BAD_VALUE);
  assert_true(code_frequencies_possible(16384) && !code_frequencies_possible(16385) && !code_frequencies_possible(1));
  assert_true(code_frequencies_bits(none, f, 3) == 0);
  const uint16_t uneven[3] = {32768, 16384, 16384};
  assert_true(code_frequencies_bits(NULL, uneven, 3) == 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),         cmocka_unit_test(every_code),    cmocka_unit_test(known_bytes),
      cmocka_unit_test(size_is_the_entropy), cmocka_unit_test(damaged_bytes), cmocka_unit_test(frequencies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
