/* Llama-3's tokenizer.json in the form that it is published in (merges as text in the order of ranks, its own expression, whole pieces
 * first, 256 special tokens outside of the vocabulary), made here from the pieces of tokenizer.model. limit: 240 */
#include "data/tokenizer/tokenizer_internal.h"
#include "tokenizer_testing.h"
#include <jansson.h>

enum { PIECES = 128000, SPECIALS = 256, MERGES = 280147 /* lines of the published file */, LONGEST = 256 };

static const char expression[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static void spell(const char *bytes, size_t size, char *text) {
  assert_in_range(size, 1, LONGEST);
  bpe_alphabet_write(bytes, size, text);
}

static json_t *vocab_of(const Tokenizer *ranks) {
  json_t *vocab = json_object();
  for (int32_t id = 0; id < PIECES; id++) {
    char text[2 * LONGEST + 1];
    size_t size;
    const char *bytes = tokenizer_piece(ranks, id, &size);
    spell(bytes, size, text);
    assert_int_equal(json_object_set_new(vocab, text, json_integer(id)), 0);
  }
  assert_int_equal(json_object_size(vocab), PIECES);
  return vocab;
}

typedef struct Split {
  int32_t left, right;
  size_t at;
} Split;

static int by_ids(const void *a, const void *b) {
  const Split *x = a, *y = b;
  return x->left != y->left ? (x->left > y->left) - (x->left < y->left) : (x->right > y->right) - (x->right < y->right);
}

/* Both ways in two that are pieces, the lower left id first. */
static void add_splits(json_t *merges, const Tokenizer *ranks, int32_t id) {
  Split splits[LONGEST];
  size_t size, count = 0;
  const char *bytes = tokenizer_piece(ranks, id, &size);
  for (size_t at = 1; at < size; at++) {
    Split split = {bpe_pieces_find(&ranks->pieces, bytes, at), bpe_pieces_find(&ranks->pieces, bytes + at, size - at), at};
    if (split.left >= 0 && split.right >= 0) splits[count++] = split;
  }
  qsort(splits, count, sizeof *splits, by_ids);
  for (size_t i = 0; i < count; i++) {
    char left[2 * LONGEST + 1], right[2 * LONGEST + 1];
    spell(bytes, splits[i].at, left);
    spell(bytes + splits[i].at, size - splits[i].at, right);
    json_array_append_new(merges, json_sprintf("%s %s", left, right));
  }
}

static json_t *merges_of(const Tokenizer *ranks) {
  json_t *merges = json_array();
  for (int32_t id = 0; id < PIECES; id++) add_splits(merges, ranks, id);
  return merges;
}

static json_t *added_of(const Tokenizer *ranks) {
  json_t *added = json_array();
  for (int32_t id = PIECES; id < PIECES + SPECIALS; id++) {
    size_t size;
    const char *text = tokenizer_piece(ranks, id, &size);
    json_array_append_new(added, json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", text, size, "single_word", 0,
                                           "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
  }
  return added;
}

static json_t *byte_level(bool prefix, bool regex) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", (int)prefix, "trim_offsets", 1, "use_regex",
                   (int)regex);
}

static json_t *published(const Tokenizer *ranks) {
  json_t *merges = merges_of(ranks);
  assert_int_equal(json_array_size(merges), MERGES);
  json_t *pre = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
                          "Regex", expression, "behavior", "Isolated", "invert", 0, byte_level(false, false));
  json_t *model =
      json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 1, "vocab", vocab_of(ranks), "merges", merges);
  json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                           added_of(ranks), "normalizer", "pre_tokenizer", pre, "post_processor", byte_level(true, false), "decoder",
                           byte_level(true, true), "model", model);
  assert_non_null(root);
  return root;
}

static Tokenizer *ranks, *json;

static int set_up(void **state) {
  if (testing_make_folder(state) != 0) return -1;
  testing_unpack("llama3/tokenizer.model.gz", "llama3/tokenizer.model");
  ranks = testing_tokenizer(testing_path("llama3"));
  json_t *root = published(ranks);
  testing_write("published/config.json", "{}", 2);
  if (json_dump_file(root, testing_path("published/tokenizer.json"), JSON_INDENT(2)) != 0) return -1;
  json_decref(root);
  json = testing_tokenizer(testing_path("published"));
  return 0;
}

static int tear_down(void **state) {
  tokenizer_close(ranks);
  tokenizer_close(json);
  return testing_remove_folder(state);
}

static void test_vectors(void **state) {
  (void)state;
  assert_vectors(json, "llama3");
  assert_int_equal(tokenizer_count(json), PIECES + SPECIALS);
  assert_int_equal(tokenizer_begin(json), 128000);
  assert_int_equal(tokenizer_end(json), 128001);
  assert_encodes(json, "<|begin_of_text|>Hello world<|eot_id|>", true, 128000, 9906, 1917, 128009);
}

/* Both files give the same ids for real text, and its bytes back. */
static void test_same_as_ranks(void **state) {
  (void)state;
  char *text;
  size_t size;
  assert_ok(files_read("datasets/enwiki-sample/train.txt", 1 << 24, &text, &size));
  TokenList a = {0}, b = {0};
  assert_ok(tokenizer_encode(ranks, text, size, false, &a));
  assert_ok(tokenizer_encode(json, text, size, false, &b));
  assert_ids(&b, a.ids, a.count);
  assert_round_trip(json, text, size, false);
  token_list_release(&a);
  token_list_release(&b);
  free(text);
}

static void test_saved(void **state) {
  (void)state;
  assert_ok(tokenizer_save(json, testing_path("saved")));
  Tokenizer *again = testing_tokenizer(testing_path("saved"));
  assert_string_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(json));
  assert_vectors(again, "llama3");
  tokenizer_close(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_same_as_ranks), cmocka_unit_test(test_saved)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
