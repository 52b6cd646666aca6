/* Files of tokenizers that are not as they should be: what is refused, in which words; names by which a tokenizer is found; tokenizer.json
 * in the spellings that are about. */
#include "data/tokenizer/tokenizer_files.c" /* parsers of bytes in memory */
#include "tokenizer_testing.h"
#include <jansson.h>

/* vocab.json of the 256 bytes alone. */
static json_t *byte_vocab(void) {
  json_t *vocab = json_object();
  for (int id = 0; id < 256; id++) {
    char text[4], byte = (char)bpe_alphabet_byte(id);
    bpe_alphabet_write(&byte, 1, text);
    json_object_set_new(vocab, text, json_integer(id));
  }
  return vocab;
}

static json_t *small_vocab(void) {
  json_t *vocab = byte_vocab();
  json_object_set_new(vocab, "ab", json_integer(256));
  json_object_set_new(vocab, "abc", json_integer(257));
  json_object_set_new(vocab, "xyz", json_integer(258));
  json_object_set_new(vocab, "<|endoftext|>", json_integer(259));
  return vocab;
}

static const char small_merges[] = "#version: 0.2\na b\nab c\n";

/* ---- vocab.json and merges.txt ---- */

/* Takes the vocabulary. */
static Status read_vocab_and_merges(Tokenizer **tokenizer, json_t *vocab, const char *merges) {
  char *text = json_dumps(vocab, JSON_ENCODE_ANY);
  Status status = parse_pair(tokenizer, text, strlen(text), "v.json", merges, strlen(merges), "m.txt");
  if (status != STATUS_OK) assert_null(*tokenizer);
  free(text);
  json_decref(vocab);
  return status;
}

static void assert_bad_merges(const char *merges, const char *says) {
  Tokenizer *tokenizer;
  assert_fails(read_vocab_and_merges(&tokenizer, small_vocab(), merges), STATUS_BAD_FILE, says);
  assert_non_null(strstr(status_message(), "m.txt: line "));
}

static void test_merges(void **state) {
  (void)state;
  Tokenizer *tokenizer;
  assert_ok(read_vocab_and_merges(&tokenizer, small_vocab(), small_merges));
  assert_encodes(tokenizer, "abcxyz", false, 257, 87, 88, 89);
  tokenizer_close(tokenizer);
  assert_ok(read_vocab_and_merges(&tokenizer, small_vocab(), "a b\r\n\r\nab c"));
  assert_encodes(tokenizer, "abc", false, 257);
  tokenizer_close(tokenizer);
  assert_bad_merges("#version: 0.2\na b\nab q\n", "line 3: a merge makes the piece 'abq'");
  assert_bad_merges("ab cd\n", "a merge names the piece 'cd'");
  assert_bad_merges("zz b\n", "a merge names the piece 'zz'");
  assert_bad_merges("a b\na b\n", "line 2: the merge that makes 'ab' is given twice");
  assert_bad_merges("ab\n", "one space");
  assert_bad_merges("a b c\n", "one space");
  assert_bad_merges(" b\n", "empty side");
  assert_bad_merges("a \n", "empty side");
  assert_bad_merges("a \xe4\xb8\xad\n", "stands for no byte");
  assert_fails(read_vocab_and_merges(&tokenizer, small_vocab(), "<|endoftext|> a\n"), STATUS_UNSUPPORTED,
               "m.txt: line 1: a merge names the piece '<|endoftext|>', which is an added token");
}

static void assert_bad_vocab(json_t *vocab, const char *says) {
  Tokenizer *tokenizer;
  assert_fails(read_vocab_and_merges(&tokenizer, vocab, ""), STATUS_BAD_FILE, says);
  assert_non_null(strstr(status_message(), "v.json: "));
}

static json_t *with(json_t *vocab, const char *piece, json_t *id) {
  json_object_set_new(vocab, piece, id);
  return vocab;
}

static json_t *without(json_t *vocab, const char *piece) {
  json_object_del(vocab, piece);
  return vocab;
}

static void test_vocabularies(void **state) {
  (void)state;
  assert_bad_vocab(json_array(), "not a JSON object");
  assert_bad_vocab(json_string("x"), "line 1");
  assert_bad_vocab(json_object(), "0 pieces");
  assert_bad_vocab(with(byte_vocab(), "ab", json_integer(257)), "'ab' has id 257; with 257 pieces ids are 0 to 256");
  assert_bad_vocab(with(byte_vocab(), "ab", json_integer(-1)), "has id -1");
  assert_bad_vocab(with(byte_vocab(), "ab", json_integer(INT64_MAX)), "has id 9223372036854775807");
  assert_bad_vocab(with(byte_vocab(), "ab", json_integer(7)), "id 7 is given twice");
  assert_bad_vocab(with(byte_vocab(), "ab", json_real(256)), "'ab' is not a whole number");
  assert_bad_vocab(with(byte_vocab(), "ab", json_string("256")), "'ab' is not a whole number");
  assert_bad_vocab(with(byte_vocab(), "", json_integer(256)), "piece of 0 bytes");
  assert_bad_vocab(with(byte_vocab(), "a b", json_integer(256)), "stands for no byte");
  assert_bad_vocab(with(without(byte_vocab(), "a"), "ab", json_integer(64)), "byte 0x61 alone");
  Tokenizer *tokenizer;
  static const char twice[] = "{\"a\": 0, \"a\": 1}";
  assert_fails(parse_pair(&tokenizer, twice, sizeof twice - 1, "v.json", "", 0, "m.txt"), STATUS_BAD_FILE, "duplicate");
}

/* ---- tokenizer.json ---- */

static json_t *small_json(void) {
  json_t *root = json_pack("{s:{s:s, s:b}, s:{s:s, s:o, s:[s, [s, s]]}, s:[{s:i, s:s, s:b}]}", "pre_tokenizer", "type", "ByteLevel",
                           "add_prefix_space", 0, "model", "type", "BPE", "vocab", small_vocab(), "merges", "a b", "ab", "c",
                           "added_tokens", "id", 259, "content", "<|endoftext|>", "special", 1);
  assert_non_null(root);
  return root;
}

/* Takes the object. */
static Status read_root(Tokenizer **tokenizer, json_t *root) {
  char *text = json_dumps(root, 0);
  Status status = parse_json(tokenizer, text, strlen(text), "t.json");
  if (status != STATUS_OK) assert_null(*tokenizer);
  free(text);
  json_decref(root);
  return status;
}

/* small_json with the value (taken) at object.name, or at name where object is NULL. */
static json_t *changed(const char *object, const char *name, json_t *value) {
  json_t *root = small_json();
  json_object_set_new(object ? json_object_get(root, object) : root, name, value);
  return root;
}

static void assert_bad_json(json_t *root, Status status, const char *says) {
  Tokenizer *tokenizer;
  assert_fails(read_root(&tokenizer, root), status, says);
  assert_non_null(strstr(status_message(), "t.json: "));
}

static json_t *llama3_pre(const char *regex) {
  return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
                   "Regex", regex, "behavior", "Isolated", "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
}

static void test_json(void **state) {
  (void)state;
  Tokenizer *json, *vocab;
  assert_ok(read_root(&json, small_json()));
  assert_ok(read_vocab_and_merges(&vocab, small_vocab(), small_merges));
  assert_string_equal(tokenizer_fingerprint(json), tokenizer_fingerprint(vocab));
  assert_encodes(json, "abcxyz", false, 257, 87, 88, 89);
  tokenizer_close(json);
  tokenizer_close(vocab);
}

/* Pieces without a merge are found whole; Llama-3's expression; added tokens behind the vocabulary. Saved, it is tokenizer.json alone. */
static void test_json_of_llama3(void **state) {
  (void)state;
  Tokenizer *tokenizer;
  json_t *root = changed("model", "ignore_merges", json_true());
  json_object_set_new(root, "pre_tokenizer", llama3_pre(bpe_split_published(BPE_PATTERN_LLAMA3)));
  json_array_append_new(json_object_get(root, "added_tokens"), json_pack("{s:i, s:s}", "id", 261, "content", "<|end_of_text|>"));
  json_array_append_new(json_object_get(root, "added_tokens"), json_pack("{s:i, s:s}", "id", 260, "content", "<|begin_of_text|>"));
  assert_ok(read_root(&tokenizer, root));
  assert_encodes(tokenizer, "xyz", false, 258);
  assert_encodes(tokenizer, "xyz xyz", false, 258, 220, 87, 88, 89);
  assert_encodes(tokenizer, "<|begin_of_text|>xyz<|end_of_text|>", true, 260, 258, 261);
  assert_int_equal(tokenizer_begin(tokenizer), 260);
  assert_int_equal(tokenizer_end(tokenizer), 261);
  assert_ok(tokenizer_save(tokenizer, testing_path("llama3-json")));
  assert_false(files_exists(testing_path("llama3-json/vocab.json")));
  Tokenizer *again = testing_tokenizer(testing_path("llama3-json"));
  assert_string_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(tokenizer));
  tokenizer_close(again);
  tokenizer_close(tokenizer);
}

/* What stands in front of a text as post_processor says, rather than by its name. */
static void test_begin_of_a_template(void **state) {
  (void)state;
  static const char in_front[] = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"S\", \"type_id\": 0}},"
                                 "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"S\": {\"id\": \"S\","
                                 "\"ids\": [%d], \"tokens\": [\"S\"]}}}";
  static const char none[] = "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
                             "\"special_tokens\": {}}";
  Tokenizer *tokenizer;
  char text[512];
  snprintf(text, sizeof text, in_front, 258);
  assert_ok(read_root(&tokenizer, changed(NULL, "post_processor", json_loads(text, 0, NULL))));
  assert_true(tokenizer_begin(tokenizer) == 258 && tokenizer_end(tokenizer) == 259);
  tokenizer_close(tokenizer);
  json_t *sequence = json_pack("{s:s, s:[{s:s}, o]}", "type", "Sequence", "processors", "type", "ByteLevel", json_loads(text, 0, NULL));
  assert_ok(read_root(&tokenizer, changed(NULL, "post_processor", sequence)));
  assert_int_equal(tokenizer_begin(tokenizer), 258);
  tokenizer_close(tokenizer);
  json_t *root = changed(NULL, "post_processor", json_loads(none, 0, NULL));
  json_array_append_new(json_object_get(root, "added_tokens"), json_pack("{s:i, s:s}", "id", 260, "content", "<|begin_of_text|>"));
  assert_ok(read_root(&tokenizer, root));
  assert_int_equal(tokenizer_begin(tokenizer), -1);
  tokenizer_close(tokenizer);
  for (int id = -1; id <= 260; id += 261) {
    snprintf(text, sizeof text, in_front, id);
    assert_bad_json(changed(NULL, "post_processor", json_loads(text, 0, NULL)), STATUS_BAD_FILE, "the special token 'S'");
  }
  snprintf(text, sizeof text, in_front, 258);
  root = json_loads(text, 0, NULL);
  json_object_set_new(root, "special_tokens", json_object());
  assert_bad_json(changed(NULL, "post_processor", root), STATUS_BAD_FILE, "the special token 'S'");
}

#define TEXT(name) "{\"Sequence\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TOKEN      "{\"SpecialToken\": {\"id\": \"S\", \"type_id\": 0}}"
#define TEMPLATE(list)                                                                                                                     \
  "{\"type\": \"TemplateProcessing\", \"single\": [" list "], \"pair\": [" TEXT("A") ", " TOKEN ", " TEXT("B") "], " LISTED "}"
#define LISTED         "\"special_tokens\": {\"S\": {\"id\": \"S\", \"ids\": [258], \"tokens\": [\"S\"]}}"
#define BYTE_LEVEL     "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false}"
#define SEQUENCE(list) "{\"type\": \"Sequence\", \"processors\": [" list "]}"

static json_t *with_post(const char *post) {
  json_t *value = json_loads(post, JSON_DECODE_ANY, NULL);
  assert_non_null(value);
  return changed(NULL, "post_processor", value);
}

/* What other programs put around a text is put there here, too, or the file is refused. */
static void test_post_processors(void **state) {
  (void)state;
  static const struct {
    const char *post;
    int begin;
  } accepted[] = {{"null", -1},
                  {BYTE_LEVEL, -1},
                  {TEMPLATE(TEXT("A")), -1},
                  {TEMPLATE(TOKEN ", " TEXT("A")), 258},
                  {SEQUENCE(""), -1},
                  {SEQUENCE(BYTE_LEVEL ", " TEMPLATE(TOKEN ", " TEXT("A"))), 258},
                  {SEQUENCE(SEQUENCE(TEMPLATE(TOKEN ", " TEXT("A"))) ", " BYTE_LEVEL), 258}};
  for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
    Tokenizer *tokenizer;
    assert_ok(read_root(&tokenizer, with_post(accepted[i].post)));
    assert_int_equal(tokenizer_begin(tokenizer), accepted[i].begin);
    assert_int_equal(tokenizer_end(tokenizer), 259);
    tokenizer_close(tokenizer);
  }
  static const char *const singles[] = {TEMPLATE(TEXT("A") ", " TOKEN),
                                        TEMPLATE(TOKEN ", " TEXT("A") ", " TOKEN),
                                        TEMPLATE(TOKEN ", " TOKEN ", " TEXT("A")),
                                        TEMPLATE(TEXT("A") ", " TEXT("A")),
                                        TEMPLATE(TEXT("B")),
                                        TEMPLATE(TOKEN),
                                        TEMPLATE(""),
                                        SEQUENCE(BYTE_LEVEL ", " TEMPLATE(TEXT("A") ", " TOKEN)),
                                        "{\"type\": \"TemplateProcessing\", \"single\": \"$A\", " LISTED "}"};
  for (size_t i = 0; i < sizeof singles / sizeof *singles; i++)
    assert_bad_json(with_post(singles[i]), STATUS_UNSUPPORTED, "post_processor: \"single\" is not $A");
  static const char *const types[][2] = {
      {"{\"type\": \"RobertaProcessing\", \"sep\": [\"S\", 258], \"cls\": [\"S\", 258]}", "post_processor: the type RobertaProcessing is"},
      {SEQUENCE("{\"type\": \"BertProcessing\", \"sep\": [\"S\", 258], \"cls\": [\"S\", 258]}"),
       "the type BertProcessing is not supported"},
      {"{}", "the type (none) is not supported; supported are ByteLevel, one TemplateProcessing"},
      {SEQUENCE(TEMPLATE(TEXT("A")) ", " TEMPLATE(TOKEN ", " TEXT("A"))), "a second step of type TemplateProcessing is not supported"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) assert_bad_json(with_post(types[i][0]), STATUS_UNSUPPORTED, types[i][1]);
}

static void test_json_that_is_not_understood(void **state) {
  (void)state;
  assert_bad_json(changed("model", "type", json_string("Unigram")), STATUS_UNSUPPORTED, "not BPE");
  assert_bad_json(changed("model", "dropout", json_real(0.1)), STATUS_UNSUPPORTED, "dropout");
  assert_bad_json(changed("model", "byte_fallback", json_true()), STATUS_UNSUPPORTED, "byte_fallback");
  assert_bad_json(changed("model", "end_of_word_suffix", json_string("</w>")), STATUS_UNSUPPORTED, "end_of_word_suffix");
  assert_bad_json(changed(NULL, "normalizer", json_pack("{s:s}", "type", "NFC")), STATUS_UNSUPPORTED, "normalizer");
  assert_bad_json(changed("pre_tokenizer", "add_prefix_space", json_true()), STATUS_UNSUPPORTED, "add_prefix_space");
  assert_bad_json(changed("pre_tokenizer", "use_regex", json_false()), STATUS_UNSUPPORTED, "no expression");
  assert_bad_json(changed(NULL, "pre_tokenizer", json_null()), STATUS_UNSUPPORTED, "ByteLevel");
  assert_bad_json(changed(NULL, "pre_tokenizer", llama3_pre("\\w+")), STATUS_UNSUPPORTED, "\\w+");
  json_t *root = small_json(), *token = json_array_get(json_object_get(root, "added_tokens"), 0);
  json_object_set_new(token, "lstrip", json_true());
  assert_bad_json(root, STATUS_UNSUPPORTED, "lstrip");
}

/* With two more added tokens: <one>, which is special or not, and `other`, which is not. */
static Tokenizer *with_added(bool special, const char *other) {
  Tokenizer *tokenizer;
  json_t *root = small_json(), *added = json_object_get(root, "added_tokens");
  json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", 260, "content", "<one>", "special", (int)special));
  json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", 261, "content", other, "special", 0));
  assert_ok(read_root(&tokenizer, root));
  return tokenizer;
}

/* As Hugging Face's tokenizers do where special tokens are to be text: the other added ones are not. */
static void test_added_tokens_that_are_not_special(void **state) {
  (void)state;
  Tokenizer *tokenizer = with_added(true, "<one>>"), *other = with_added(false, "<one>>");
  assert_encodes(tokenizer, "a<one>a<one>>", false, 64, 27, 78, 77, 68, 29, 64, 261);
  assert_encodes(tokenizer, "a<one>a<one>>", true, 64, 260, 64, 261);
  assert_encodes(other, "a<one>a<one>>", false, 64, 260, 64, 261);
  assert_encodes(other, "<|endoftext|>", true, 259);
  assert_round_trip(tokenizer, "a<one>a<one>>", 13, false);
  assert_string_not_equal(tokenizer_fingerprint(tokenizer), tokenizer_fingerprint(other));
  assert_ok(tokenizer_save(tokenizer, testing_path("added")));
  Tokenizer *again = testing_tokenizer(testing_path("added"));
  assert_string_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(tokenizer));
  assert_encodes(again, "a<one>a<one>>", false, 64, 27, 78, 77, 68, 29, 64, 261);
  tokenizer_close(again);
  tokenizer_close(other);
  tokenizer_close(tokenizer);
}

/* Hugging Face's tokenizers let a token be both. */
static void test_added_tokens_that_are_pieces(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
    int id;
  } cases[] = {{"abc", "merge 1: a merge makes the piece 'abc', which is an added token; a piece that is both is not supported", 257},
               {"ab", "merge 0: a merge makes the piece 'ab', which is an added token", 256},
               {"\u0120a", "merge 0: a merge makes the piece ' a', which is an added token", 260},
               {"a", "merge 0: a merge names the piece 'a', which is an added token", 64},
               {"q", "any text needs the piece 'q', which is an added token", 80}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *root = small_json(), *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    if (cases[i].id == 260) { /* a piece with a blank is spelled as GPT-2's files do */
      json_object_set_new(vocab, cases[i].text, json_integer(260));
      json_array_insert_new(json_object_get(model, "merges"), 0, json_pack("[s, s]", "\u0120", "a"));
    }
    json_array_append_new(json_object_get(root, "added_tokens"), json_pack("{s:i, s:s}", "id", cases[i].id, "content", cases[i].text));
    assert_bad_json(root, STATUS_UNSUPPORTED, cases[i].says);
  }
}

/* Where one added token begins as another one does, or is within it: the longest of those that are wanted, as a plain search finds it. */
static void test_longest_added_token_is_taken(void **state) {
  (void)state;
  static const char *const texts[] = {"<b", "<a", "<<a", "<ab", "<abba", "<abbb", "aa", "aab<", "bbb", "<<<<<"};
  enum { ADDED = sizeof texts / sizeof *texts, LENGTH = 40 };
  Tokenizer *tokenizer, *plain;
  json_t *root = small_json(), *added = json_object_get(root, "added_tokens");
  for (int i = 0; i < ADDED; i++)
    json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", 260 + i, "content", texts[i], "special", i % 3 > 0));
  assert_ok(read_root(&tokenizer, root));
  assert_ok(read_root(&plain, small_json()));
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int round = 0; round < 2000; round++) {
    const bool special = round % 2;
    char text[LENGTH];
    TokenList got = {0}, wanted = {0};
    size_t begun = 0;
    for (int i = 0; i < LENGTH; i++) text[i] = "<ab"[rng_below(&rng, 3)];
    for (size_t at = 0; at < LENGTH;) {
      int best = -1;
      for (int i = 0; i < ADDED; i++)
        if ((special || i % 3 == 0) && strlen(texts[i]) <= LENGTH - at && memcmp(text + at, texts[i], strlen(texts[i])) == 0 &&
            (best < 0 || strlen(texts[i]) > strlen(texts[best])))
          best = i;
      if (best >= 0) {
        assert_ok(tokenizer_encode(plain, text + begun, at - begun, false, &wanted));
        assert_ok(token_list_add(&wanted, 260 + best));
      }
      at += best >= 0 ? strlen(texts[best]) : 1;
      if (best >= 0) begun = at;
    }
    assert_ok(tokenizer_encode(plain, text + begun, LENGTH - begun, false, &wanted));
    assert_ok(tokenizer_encode(tokenizer, text, LENGTH, special, &got));
    assert_ids(&got, wanted.ids, wanted.count);
    token_list_release(&got);
    token_list_release(&wanted);
  }
  tokenizer_close(plain);
  tokenizer_close(tokenizer);
}

/* Seconds of a processor for 1 MB of the beginning of special tokens, of which there are so many. */
static double seconds_of_beginnings(int specials, const char *beginning) {
  enum { BYTES = 1 << 20 };
  Tokenizer *tokenizer;
  TokenList ids = {0};
  json_t *root = small_json(), *added = json_object_get(root, "added_tokens");
  for (int i = 0; i < specials; i++)
    json_array_append_new(added, json_pack("{s:i, s:o, s:b}", "id", 260 + i, "content", json_sprintf("<|reserved_%d|>", i), "special", 1));
  assert_ok(read_root(&tokenizer, root));
  char *text = malloc(BYTES);
  for (size_t i = 0, length = strlen(beginning); i < BYTES; i++) text[i] = beginning[i % length];
  const double started = clock_spent();
  assert_ok(tokenizer_encode(tokenizer, text, BYTES, true, &ids));
  const double seconds = clock_spent() - started;
  assert_int_equal(ids.count, BYTES);
  free(text);
  token_list_release(&ids);
  tokenizer_close(tokenizer);
  return seconds;
}

/* A service encodes what anybody sends. */
static void test_many_special_tokens_cost_little(void **state) {
  (void)state;
  static const char *const beginnings[] = {"<", "<|", "<|reserved_"};
  for (int i = 0; i < 3; i++) {
    const double one = seconds_of_beginnings(1, beginnings[i]), many = seconds_of_beginnings(4096, beginnings[i]);
    if (many > 10 * one)
      fail_msg("1 MB of %s took %.2f s of a processor with 4096 special tokens, %.2f s with one", beginnings[i], many, one);
  }
}

/* A corpus is cut before spaces. */
static void test_added_tokens_with_spaces_are_not_cut(void **state) {
  (void)state;
  static const char *const others[] = {"<two>", "two words"};
  for (int i = 0; i < 2; i++) {
    Tokenizer *tokenizer = with_added(true, others[i]);
    TextEncoder encoder;
    assert_ok(tokenizer_encoder(&encoder, tokenizer));
    assert_true(encoder.cuttable == (i == 0));
    tokenizer_close(tokenizer);
  }
}

static void test_json_of_wrong_shape(void **state) {
  (void)state;
  assert_bad_json(json_array(), STATUS_BAD_FILE, "no object \"model\"");
  assert_bad_json(changed("model", "vocab", json_array()), STATUS_BAD_FILE, "\"vocab\"");
  assert_bad_json(changed("model", "merges", json_string("a b")), STATUS_BAD_FILE, "\"merges\"");
  assert_bad_json(changed("model", "merges", json_pack("[i]", 1)), STATUS_BAD_FILE, "merge 0");
  assert_bad_json(changed("model", "merges", json_pack("[[s]]", "a")), STATUS_BAD_FILE, "merge 0");
  assert_bad_json(changed("model", "merges", json_pack("[s, s]", "a b", "a zz")), STATUS_BAD_FILE, "merge 1: a merge names the piece 'zz'");
  assert_bad_json(changed(NULL, "added_tokens", json_pack("[{s:i, s:s}]", "id", 5, "content", "<|endoftext|>")), STATUS_BAD_FILE,
                  "another id");
  assert_bad_json(
      changed(NULL, "added_tokens", json_pack("[{s:i, s:s}, {s:i, s:s}]", "id", 260, "content", "x1", "id", 261, "content", "x1")),
      STATUS_BAD_FILE, "given twice");
  assert_bad_json(changed(NULL, "added_tokens", json_pack("[{s:s}]", "content", "x1")), STATUS_BAD_FILE, "\"id\"");
  assert_bad_json(changed(NULL, "added_tokens", json_pack("[{s:i, s:s}]", "id", 300, "content", "x1")), STATUS_BAD_FILE, "has id 300");
  assert_bad_json(changed(NULL, "added_tokens", json_pack("[{s:i, s:s}]", "id", 260, "content", "")), STATUS_BAD_FILE, "0 bytes");
  Tokenizer *tokenizer;
  assert_fails(parse_json(&tokenizer, "{\"model\"", 8, "t.json"), STATUS_BAD_FILE, "t.json: line 1");
}

/* ---- tokenizer.model ---- */

static char ranks_text[8192];

/* A line for each byte, and what is given behind them. */
static const char *ranks(const char *more) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *out = ranks_text;
  for (int i = 0; i < 256; i++) out += sprintf(out, "%c%c== %d\n", digits[i >> 2], digits[(i & 3) << 4], i);
  strcpy(out, more);
  return ranks_text;
}

static void assert_bad_ranks(const char *text, const char *says) {
  Tokenizer *tokenizer;
  assert_fails(tokenizer_llama_ranks(&tokenizer, text, strlen(text), "t.model"), STATUS_BAD_FILE, says);
  assert_non_null(strstr(status_message(), "t.model: "));
  assert_null(tokenizer);
}

static void test_ranks(void **state) {
  (void)state;
  Tokenizer *tokenizer;
  const char *good = ranks("YWI= 256\nYWJj 257\neHl6 258"); /* ab, abc, xyz; no end of line behind */
  assert_ok(tokenizer_llama_ranks(&tokenizer, good, strlen(good), "t.model"));
  assert_int_equal(tokenizer_count(tokenizer), 259 + 256);
  assert_encodes(tokenizer, "abcxyz abab", false, 257, 'x', 'y', 'z', ' ', 256, 256);
  assert_encodes(tokenizer, "xyz", false, 258);
  assert_int_equal(tokenizer_begin(tokenizer), 259);
  tokenizer_close(tokenizer);
  assert_bad_ranks("", "byte 0x00");
  assert_bad_ranks(ranks("YWI= 257\n"), "line 257: rank 257; a file of 257 lines has ranks 0 to 256");
  assert_bad_ranks(ranks("YWI= 5\n"), "id 5 is given twice");
  assert_bad_ranks(ranks("YQ== 256\n"), "'a' is given twice");
  assert_bad_ranks(ranks("YWI 256\n"), "base64");
  assert_bad_ranks(ranks("Y=I= 256\n"), "base64");
  assert_bad_ranks(ranks("==== 256\n"), "base64");
  assert_bad_ranks(ranks(" 256\n"), "base64");
  assert_bad_ranks(ranks("YWI= -1\n"), "base64");
  assert_bad_ranks(ranks("YWI= \n"), "base64");
  assert_bad_ranks(ranks("YWI= 99999999999\n"), "base64");
  assert_bad_ranks(ranks("\n"), "line 257");
  assert_bad_ranks("\n\x0e\n\x05<unk>", "sentencepiece");
}

/* ---- tok512.bin ---- */

static void test_scores(void **state) {
  (void)state;
  Tokenizer *tokenizer;
  char *data;
  size_t size;
  assert_ok(files_read(TOKENIZERS "stories260K/tok512.bin", 1 << 16, &data, &size));
#define assert_bad_scores(bytes, says) assert_fails(tokenizer_llama_scores(&tokenizer, data, bytes, "tok.bin"), STATUS_BAD_FILE, says)
  assert_bad_scores(0, "longest piece");
  assert_bad_scores(4, "0 pieces");
  assert_bad_scores(9, "within the entry of id 0");
  assert_bad_scores(14, "id 0 extends past the end of the file");
  assert_bad_scores(size - 1, "id 511 extends past the end of the file");
  memcpy(data + 4, "\0\0\xc0\x7f", 4); /* not a number */
  assert_bad_scores(size, "score of id 0");
  memset(data + 4, 0, 4);
  char *byte = memmem(data, size, "<0x41>", 6);
  byte[4] = '2';
  assert_bad_scores(size, "id 68 is not <0x41>");
  byte[4] = '1';
  memcpy(data + 8, "\xff\xff\xff\xff", 4);
  assert_bad_scores(size, "id 0 extends past the end of the file");
  free(data);
}

/* ---- Names ---- */

static void test_missing_files(void **state) {
  (void)state;
  Tokenizer *tokenizer;
  assert_fails(tokenizer_open(&tokenizer, testing_path("nowhere")), STATUS_NOT_FOUND, "nowhere");
  assert_null(tokenizer);
  testing_write("empty/config.json", "{}", 2);
  assert_fails(tokenizer_open(&tokenizer, testing_path("empty")), STATUS_NOT_FOUND, "tokenizer.json, vocab.json with merges.txt");
  testing_write("half/vocab.json", "{}", 2);
  assert_fails(tokenizer_open(&tokenizer, testing_path("half")), STATUS_BAD_FILE, "merges.txt"); /* not as if there were none */
  assert_fails(tokenizer_open(&tokenizer, testing_write("odd/words.txt", "a", 1)), STATUS_BAD_VALUE, "words.txt");
  testing_write("two/tok1.bin", "", 0);
  testing_write("two/tok2.bin", "", 0);
  assert_fails(tokenizer_open(&tokenizer, testing_path("two")), STATUS_BAD_FILE, "2 files fit tok*.bin");
  assert_fails(tokenizer_open(&tokenizer, testing_path("two/tok1.bin")), STATUS_BAD_FILE, "tok1.bin: has no length");
}

/* One table says what belongs to a tokenizer, what is looked for and in which words. */
static void test_names_of_files(void **state) {
  (void)state;
  static const char *const of_one[] = {"tokenizer.json", "vocab.json",      "merges.txt", "encoder.json",
                                       "vocab.bpe",      "tokenizer.model", "tok.bin",    "tok32000.bin"},
                           *const others[] = {
                               "config.json", "tokenizer_config.json", "tokenizer.bin.gz", "merges", "pytorch_model.bin", "a-tok1.bin", ""};
  for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++) assert_true(tokenizer_is_file(of_one[i]));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(tokenizer_is_file(others[i]));
  Tokenizer *tokenizer;
  assert_ok(files_make_dirs(testing_path("nothing")));
  assert_fails(tokenizer_open(&tokenizer, testing_path("nothing")), STATUS_NOT_FOUND,
               "looked for tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, tokenizer.model or tok*.bin");
}

static void test_names(void **state) {
  (void)state;
  json_t *object = small_vocab();
  char *vocab = json_dumps(object, 0);
  json_decref(object);
  testing_write("names/encoder.json", vocab, strlen(vocab));
  testing_write("names/vocab.bpe", small_merges, sizeof small_merges - 1);
  static const char *const paths[] = {"names", "names/encoder.json", "names/vocab.bpe"};
  for (int i = 0; i < 3; i++) {
    Tokenizer *tokenizer = testing_tokenizer(testing_path(paths[i]));
    assert_encodes(tokenizer, "abc", false, 257);
    tokenizer_close(tokenizer);
  }
  free(vocab);
  const char *text = ranks("");
  Tokenizer *tokenizer = testing_tokenizer(testing_write("names/other.model", text, strlen(text)));
  assert_int_equal(tokenizer_count(tokenizer), 512);
  tokenizer_close(tokenizer);
}

/* Added tokens beside the two files are not overlooked; those of tokenizer.json are in it. */
static void test_added_tokens_beside_a_vocabulary(void **state) {
  (void)state;
  static const struct {
    const char *more;
    Status status;
    const char *says;
  } cases[] = {{"{}", STATUS_OK, NULL},
               {"{\"<|endoftext|>\": 259}", STATUS_OK, NULL},
               {"{\"<|endoftext|>\": 259, \"<pad>\": 260}", STATUS_UNSUPPORTED,
                "the added token '<pad>': added tokens are read from tokenizer.json"},
               {"{\"xyz\": 258}", STATUS_UNSUPPORTED, "the added token 'xyz'"},
               {"{\"<|endoftext|>\": 260}", STATUS_UNSUPPORTED, "'<|endoftext|>'"},
               {"[]", STATUS_BAD_FILE, "is not a JSON object"},
               {"{", STATUS_BAD_FILE, "line 1"}};
  json_t *object = small_vocab();
  char *vocab = json_dumps(object, 0);
  json_decref(object);
  testing_write("more/vocab.json", vocab, strlen(vocab));
  testing_write("more/merges.txt", small_merges, sizeof small_merges - 1);
  free(vocab);
  Tokenizer *tokenizer;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    testing_write("more/added_tokens.json", cases[i].more, strlen(cases[i].more));
    for (int file = 0; file < 2; file++) {
      const char *path = testing_path(file ? "more/merges.txt" : "more");
      if (cases[i].status == STATUS_OK) {
        tokenizer = testing_tokenizer(path);
        assert_encodes(tokenizer, "abc", false, 257);
        tokenizer_close(tokenizer);
        continue;
      }
      assert_fails(tokenizer_open(&tokenizer, path), cases[i].status, cases[i].says);
      assert_non_null(strstr(status_message(), "more/added_tokens.json: "));
      assert_null(tokenizer);
    }
  }
  char *json = json_dumps(object = small_json(), 0);
  json_decref(object);
  testing_write("more/tokenizer.json", json, strlen(json));
  free(json);
  tokenizer_close(testing_tokenizer(testing_path("more")));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_merges),
                                     cmocka_unit_test(test_added_tokens_beside_a_vocabulary),
                                     cmocka_unit_test(test_names_of_files),
                                     cmocka_unit_test(test_vocabularies),
                                     cmocka_unit_test(test_json),
                                     cmocka_unit_test(test_json_of_llama3),
                                     cmocka_unit_test(test_begin_of_a_template),
                                     cmocka_unit_test(test_post_processors),
                                     cmocka_unit_test(test_json_that_is_not_understood),
                                     cmocka_unit_test(test_added_tokens_that_are_not_special),
                                     cmocka_unit_test(test_added_tokens_that_are_pieces),
                                     cmocka_unit_test(test_longest_added_token_is_taken),
                                     cmocka_unit_test(test_many_special_tokens_cost_little),
                                     cmocka_unit_test(test_added_tokens_with_spaces_are_not_cut),
                                     cmocka_unit_test(test_json_of_wrong_shape),
                                     cmocka_unit_test(test_ranks),
                                     cmocka_unit_test(test_scores),
                                     cmocka_unit_test(test_missing_files),
                                     cmocka_unit_test(test_names)};
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
