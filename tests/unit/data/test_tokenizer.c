/* The real tokenizers: ids of 46 texts for GPT-2 and Llama-3, a generated text of stories260K, special tokens, round trips of any bytes,
 * long pieces in bounded time, saved files, threads. limit: 240 */
#include "data/tokenizer/tokenizer.h"
#include "tokenizer_testing.h"
#include "unit/time_scale.h"
#include <pthread.h>

enum { LONG = 100000 };
static Tokenizer *gpt2, *llama3, *stories;

static int set_up(void **state) {
  if (testing_make_folder(state) != 0) return -1;
  testing_unpack_all();
  gpt2 = testing_tokenizer(testing_path("gpt2"));
  llama3 = testing_tokenizer(testing_path("llama3"));
  stories = testing_tokenizer(TOKENIZERS "stories260K");
  return 0;
}

static int tear_down(void **state) {
  tokenizer_close(gpt2);
  tokenizer_close(llama3);
  tokenizer_close(stories);
  return testing_remove_folder(state);
}

static void test_vectors_of_gpt2(void **state) {
  (void)state;
  assert_vectors(gpt2, "gpt2");
  assert_int_equal(tokenizer_count(gpt2), 50257);
  assert_int_equal(tokenizer_begin(gpt2), -1);
  assert_int_equal(tokenizer_end(gpt2), 50256);
}

static void test_vectors_of_llama3(void **state) {
  (void)state;
  assert_vectors(llama3, "llama3");
  assert_int_equal(tokenizer_count(llama3), 128256);
  assert_int_equal(tokenizer_begin(llama3), 128000);
  assert_int_equal(tokenizer_end(llama3), 128001);
}

static size_t read_ids(const char *path, int32_t *ids, size_t max) {
  char *text;
  size_t size, count = 0;
  assert_ok(files_read(path, 1 << 16, &text, &size));
  for (char *at = text + strspn(text, "[ "); *at && *at != ']' && count < max; at += strspn(at, ", \n"))
    ids[count++] = (int32_t)strtol(at, &at, 10);
  free(text);
  return count;
}

static void test_stories(void **state) {
  (void)state;
  int32_t ids[256];
  char *golden, *text;
  TokenList list = {0};
  size_t golden_size, bytes, count = read_ids(TOKENIZERS "stories260K/golden_ids.json", ids, 256);
  assert_int_equal(count, 201);
  assert_ok(files_read(TOKENIZERS "stories260K/golden_stdout.txt", 1 << 16, &golden, &golden_size));
  assert_ok(tokenizer_decode(stories, ids, count, &text, &bytes));
  assert_int_equal(bytes, golden_size);
  assert_memory_equal(text, golden, bytes);
  assert_ok(tokenizer_encode(stories, golden, golden_size, false, &list));
  assert_int_equal(ids[0], tokenizer_begin(stories));
  assert_ids(&list, ids + 1, count - 1);
  assert_int_equal(tokenizer_count(stories), 512);
  assert_int_equal(tokenizer_end(stories), 2);
  token_list_release(&list);
  free(golden);
  free(text);
}

/* Characters that the vocabulary lacks become bytes, ids 3 to 258; a space stands in front. */
static void test_scored_bytes(void **state) {
  (void)state;
  assert_encodes(stories, "Zo\xc3\xab\xe2\x80\x99s  3 cats!\n\xe2\x82\xac", false, 410, 469, 414, 198, 174, 468, 419, 410, 410, 472, 280,
                 294, 419, 443, 13, 503);
  assert_encodes(stories, "\xff", false, 410, 3 + 0xff);
}

static void test_special_tokens_are_text_unless_asked_for(void **state) {
  (void)state;
  static const char text[] = "a<|endoftext|>b";
  assert_encodes(gpt2, text, true, 64, 50256, 65);
  assert_encodes(gpt2, text, false, 64, 27, 91, 437, 1659, 5239, 91, 29, 65);
  assert_encodes(gpt2, "<|endoftext|><|endoftext|>", true, 50256, 50256);
  assert_encodes(gpt2, "<|endoftext", true, 27, 91, 437, 1659, 5239);
  assert_encodes(llama3, "<|begin_of_text|><|start_header_id|>user<|end_header_id|><|eot_id|>", true, 128000, 128006, 882, 128007, 128009);
  assert_encodes(llama3, "<|eom_id|><|python_tag|><|reserved_special_token_0|><|reserved_special_token_247|>", true, 128008, 128010, 128002,
                 128255);
  TokenList list = {0};
  assert_ok(tokenizer_encode(llama3, "<|eot_id|>", 10, false, &list));
  for (size_t i = 0; i < list.count; i++) assert_true(list.ids[i] < 128000);
  token_list_release(&list);
}

static void test_encoding_appends(void **state) {
  (void)state;
  TokenList list = {0};
  assert_ok(tokenizer_encode(gpt2, "a", 1, false, &list));
  assert_ok(tokenizer_encode(gpt2, "", 0, true, &list));
  assert_ok(tokenizer_encode(gpt2, "b", 1, false, &list));
  assert_ids(&list, (const int32_t[]){64, 65}, 2);
  token_list_release(&list);
}

/* Bytes of several kinds, so that valid and invalid UTF-8, spaces and runs all occur. */
static size_t random_text(Rng *rng, char *text, size_t max) {
  static const char *const parts[] = {"\xc3\xa4", "\xf0\x9f\x9a\x80", "  ",       "\r\n",         "'s", "'LL",
                                      "the",      "\xe1\xa0\x8e",     "\xc5\xbf", "<|endoftext|>"};
  size_t size = 0, wanted = rng_below(rng, max - 16);
  while (size < wanted) {
    uint64_t kind = rng_below(rng, 4);
    const char *part = parts[rng_below(rng, sizeof parts / sizeof *parts)];
    if (kind == 0) text[size++] = (char)rng_below(rng, 256);
    if (kind == 1) text[size++] = (char)(32 + rng_below(rng, 95));
    if (kind == 2) size += (size_t)sprintf(text + size, "%s", part);
    if (kind == 3 && size > 0) text[size] = text[size - 1], size++;
  }
  return size;
}

static void test_round_trip_of_any_bytes(void **state) {
  (void)state;
  Tokenizer *const all[] = {gpt2, llama3, stories};
  char text[400];
  Rng rng;
  rng_init(&rng, 42, 0);
  for (int i = 0; i < 3000; i++) {
    size_t size = random_text(&rng, text, sizeof text);
    for (int j = 0; j < 3; j++) assert_round_trip(all[j], text, size, i % 2);
  }
  for (int byte = 0; byte < 256; byte++) {
    char one[] = {(char)byte};
    for (int j = 0; j < 3; j++) assert_round_trip(all[j], one, 1, false);
  }
  for (int j = 0; j < 3; j++) assert_round_trip(all[j], "", 0, true);
}

static double allowed_seconds(void) { return 2 * time_scale(); }

/* A merge that looked through the piece each time would take minutes. */
static void test_long_pieces_take_no_time(void **state) {
  (void)state;
  Tokenizer *const all[] = {gpt2, llama3, stories};
  static const char letters[] = "ea \n7.\xff=";
  char *text = malloc(LONG);
  assert_non_null(text);
  for (const char *letter = letters; *letter; letter++) {
    memset(text, *letter, LONG);
    for (int j = 0; j < 3; j++) {
      const double started = clock_spent();
      assert_round_trip(all[j], text, LONG, false);
      const double seconds = clock_spent() - started;
      if (seconds > allowed_seconds()) fail_msg("100 KB of 0x%02x took %.1f s of a processor", (unsigned char)*letter, seconds);
    }
  }
  free(text);
}

static void test_ids_out_of_range(void **state) {
  (void)state;
  char *text;
  size_t bytes = 7;
  assert_fails(tokenizer_decode(gpt2, (const int32_t[]){1, 50257}, 2, &text, &bytes), STATUS_BAD_VALUE, "token 2 of 2 has id 50257");
  assert_null(text);
  assert_int_equal(bytes, 0);
  assert_fails(tokenizer_decode(gpt2, (const int32_t[]){-1}, 1, &text, &bytes), STATUS_BAD_VALUE, "0 to 50256");
  assert_null(tokenizer_piece(gpt2, 50257, &bytes));
  assert_null(tokenizer_piece(gpt2, -1, &bytes));
}

static void test_pieces(void **state) {
  (void)state;
  size_t bytes;
  assert_string_equal(tokenizer_piece(gpt2, 262, &bytes), " the");
  assert_int_equal(bytes, 4);
  assert_string_equal(tokenizer_piece(gpt2, 50256, &bytes), "<|endoftext|>");
  assert_string_equal(tokenizer_piece(llama3, 128009, &bytes), "<|eot_id|>");
  assert_string_equal(tokenizer_piece(stories, 3 + 'a', &bytes), "a");
  for (int32_t id = 0; id < 3; id++) assert_string_equal(tokenizer_piece(stories, id, &bytes), "");
  assert_int_equal(bytes, 0);
}

static void check_saved(Tokenizer *tokenizer, const char *folder, const char *const *files) {
  assert_ok(tokenizer_save(tokenizer, testing_path(folder)));
  Tokenizer *whole = testing_tokenizer(testing_path(folder));
  assert_string_equal(tokenizer_fingerprint(whole), tokenizer_fingerprint(tokenizer));
  tokenizer_close(whole);
  for (; *files; files++) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", testing_path(folder), *files);
    Tokenizer *one = testing_tokenizer(path);
    assert_string_equal(tokenizer_fingerprint(one), tokenizer_fingerprint(tokenizer));
    tokenizer_close(one);
  }
}

static void test_saved_files_read_back(void **state) {
  (void)state;
  check_saved(gpt2, "saved-gpt2", (const char *const[]){"vocab.json", "merges.txt", "tokenizer.json", NULL});
  check_saved(llama3, "saved-llama3", (const char *const[]){"tokenizer.model", NULL});
  check_saved(stories, "saved-stories", (const char *const[]){"tok512.bin", NULL});
  Tokenizer *again = testing_tokenizer(testing_path("saved-gpt2/tokenizer.json"));
  assert_vectors(again, "gpt2");
  tokenizer_close(again);
  assert_int_equal(strlen(tokenizer_fingerprint(gpt2)), 64);
  assert_string_not_equal(tokenizer_fingerprint(gpt2), tokenizer_fingerprint(llama3));
}

/* What is saved is what is opened later, or nothing is. */
static void test_saved_beside_another(void **state) {
  (void)state;
  static const struct {
    const char *there;
    bool bars_ranks, bars_scores;
  } cases[] = {{"tokenizer.json", true, true}, {"vocab.json", true, true},   {"encoder.json", true, true}, {"tokenizer.model", false, true},
               {"tok32000.bin", false, true},  {"tok512.bin", false, false}, {".tok1.bin", false, false},  {"vocab.bpe", false, false}};
  Tokenizer *const all[] = {llama3, stories};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int j = 0; j < 2; j++) {
      char folder[64], file[128];
      snprintf(folder, sizeof folder, "beside-%zu-%d", i, j);
      snprintf(file, sizeof file, "%s/%s", folder, cases[i].there);
      testing_write(file, "x", 1);
      if (j == 0 ? cases[i].bars_ranks : cases[i].bars_scores)
        assert_fails(tokenizer_save(all[j], testing_path(folder)), STATUS_BAD_VALUE, cases[i].there);
      else
        check_saved(all[j], folder, (const char *const[]){NULL});
    }
  }
}

typedef struct Job {
  const char *text;
  size_t size;
  TokenList list;
  Status status;
} Job;

static void *encode_job(void *argument) {
  Job *job = argument;
  for (int i = 0; i < 20 && job->status == STATUS_OK; i++) {
    job->list.count = 0;
    job->status = tokenizer_encode(gpt2, job->text, job->size, true, &job->list);
  }
  return NULL;
}

static void test_threads_share_a_tokenizer(void **state) {
  (void)state;
  enum { THREADS = 4 };
  char *text;
  size_t size;
  Job jobs[THREADS + 1] = {0};
  pthread_t threads[THREADS];
  assert_ok(files_read(TOKENIZERS "cases.inp", 1 << 20, &text, &size));
  for (int i = 0; i <= THREADS; i++) jobs[i] = (Job){.text = text, .size = size};
  encode_job(&jobs[THREADS]);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_job, &jobs[i]), 0);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i <= THREADS; i++) {
    assert_int_equal(jobs[i].status, STATUS_OK);
    assert_ids(&jobs[i].list, jobs[THREADS].list.ids, jobs[THREADS].list.count);
  }
  for (int i = 0; i <= THREADS; i++) token_list_release(&jobs[i].list);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors_of_gpt2),
                                     cmocka_unit_test(test_vectors_of_llama3),
                                     cmocka_unit_test(test_stories),
                                     cmocka_unit_test(test_scored_bytes),
                                     cmocka_unit_test(test_special_tokens_are_text_unless_asked_for),
                                     cmocka_unit_test(test_encoding_appends),
                                     cmocka_unit_test(test_round_trip_of_any_bytes),
                                     cmocka_unit_test(test_long_pieces_take_no_time),
                                     cmocka_unit_test(test_ids_out_of_range),
                                     cmocka_unit_test(test_pieces),
                                     cmocka_unit_test(test_saved_files_read_back),
                                     cmocka_unit_test(test_saved_beside_another),
                                     cmocka_unit_test(test_threads_share_a_tokenizer)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
