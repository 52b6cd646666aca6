/* Tokenizers from the metadata of GGUF files: the published ids of GPT-2 and Llama-3, the same ids as tokN.bin for a scored vocabulary,
 * with special tokens and without, and refusal of what is not understood. limit: 240 */
#include "tokenizer_testing.h"
#include "unit/gguf_tokenizer.h"

static Status read_written(GgufWriter *writer, Tokenizer **tokenizer) {
  GgufFile file;
  uint8_t *data = gguf_writer_parse(writer, &file);
  Status status = tokenizer_llama_gguf(tokenizer, &file);
  gguf_close(&file);
  free(data);
  return status;
}

static Tokenizer *converted(const Tokenizer *original) {
  GgufWriter writer;
  Tokenizer *tokenizer;
  gguf_writer_init(&writer);
  gguf_tokenizer_write(&writer, original);
  if (read_written(&writer, &tokenizer) != STATUS_OK) fail_msg("%s", status_message());
  return tokenizer;
}

static void gpt2_is_the_same(void **state) {
  (void)state;
  testing_unpack_all();
  Tokenizer *files = testing_tokenizer(testing_path("gpt2")), *gguf = converted(files);
  assert_vectors(gguf, "gpt2");
  assert_string_equal(tokenizer_fingerprint(gguf), tokenizer_fingerprint(files));
  assert_int_equal(tokenizer_end(gguf), 50256);
  tokenizer_close(files);
  tokenizer_close(gguf);
}

static void llama3_gives_the_published_ids(void **state) {
  (void)state;
  Tokenizer *files = testing_tokenizer(testing_path("llama3")), *gguf = converted(files);
  assert_vectors(gguf, "llama3");
  assert_true(tokenizer_begin(gguf) == 128000 && tokenizer_end(gguf) == 128001 && tokenizer_count(gguf) == 128256);
  assert_encodes(gguf, "<|eot_id|>a", true, 128009, 64);
  tokenizer_close(files);
  tokenizer_close(gguf);
}

static void a_scored_vocabulary_is_the_same(void **state) {
  (void)state;
  static const char *const texts[] = {"", "Once upon a time, there was a little girl named Lily.", "  two  spaces ", "\xc3\xa9\xff\n\t0x0A",
                                      "a\xe2\x82\xac"};
  Tokenizer *file = testing_tokenizer(TOKENIZERS "stories260K/tok512.bin"), *gguf = converted(file);
  assert_true(tokenizer_begin(gguf) == 1 && tokenizer_end(gguf) == 2 && tokenizer_count(gguf) == 512);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    TokenList expected = {0}, ids = {0};
    assert_ok(tokenizer_encode(file, texts[i], strlen(texts[i]), false, &expected));
    assert_ok(tokenizer_encode(gguf, texts[i], strlen(texts[i]), true, &ids));
    assert_ids(&ids, expected.ids, expected.count);
    assert_round_trip(gguf, texts[i], strlen(texts[i]), true);
    token_list_release(&expected);
    token_list_release(&ids);
  }
  tokenizer_close(file);
  tokenizer_close(gguf);
}

/* Ids 1 and 2, which chat templates write as their names; they have no text, and what stands behind one begins a text. */
static void begin_and_end_of_a_scored_vocabulary_are_special(void **state) {
  (void)state;
  Tokenizer *file = testing_tokenizer(TOKENIZERS "stories260K/tok512.bin"), *gguf = converted(file);
  static const int32_t ids[] = {1, 403, 407, 261, 378, 2};
  char *text;
  size_t bytes;
  assert_encodes(gguf, "<s>Once upon a time</s>", true, 1, 403, 407, 261, 378, 2);
  assert_encodes(gguf, "<unk>", true, 0);
  assert_ok(tokenizer_decode(gguf, ids, sizeof ids / sizeof *ids, &text, &bytes));
  assert_string_equal(text, "Once upon a time");
  free(text);
  assert_round_trip(gguf, "<s>Once upon a time</s>", 23, false);
  assert_ok(tokenizer_save(gguf, testing_path("saved")));
  Tokenizer *saved = testing_tokenizer(testing_path("saved/tok512.bin"));
  assert_encodes(saved, "<s>Once upon a time</s>", true, 1, 403, 407, 261, 378, 2);
  assert_string_equal(tokenizer_fingerprint(saved), tokenizer_fingerprint(gguf));
  tokenizer_close(saved);
  tokenizer_close(file);
  tokenizer_close(gguf);
}

/* Two more tokens, as chat models have; texts between them are texts of their own, each with a space in front, as llama.cpp does it. */
static void special_tokens_of_a_scored_vocabulary(void **state) {
  (void)state;
  Tokenizer *file = testing_tokenizer(TOKENIZERS "stories260K/tok512.bin"), *gguf;
  GgufWriter writer, more;
  gguf_writer_init(&writer);
  gguf_writer_init(&more);
  gguf_tokenizer_add_tokens(&more, file);
  gguf_add_text(&writer, "tokenizer.ggml.model", "llama");
  gguf_add_array(&writer, "tokenizer.ggml.tokens", 8, 514);
  const uint8_t *at = more.entries.data + 8 + strlen("tokenizer.ggml.tokens") + 16;
  for (int i = 0; i < 512; i++) {
    GgufText text = gguf_next_text(&at);
    gguf_put_text(&writer.entries, text.bytes, text.size);
  }
  gguf_put_text(&writer.entries, "<|im_start|>", 12);
  gguf_put_text(&writer.entries, "<|im_end|>", 10);
  gguf_add_array(&writer, "tokenizer.ggml.token_type", 5, 514);
  for (int32_t id = 0; id < 514; id++)
    gguf_put_u32(&writer.entries, id < 512 ? (uint32_t)gguf_tokenizer_type(file, id) : id == 512 ? GT_USER : GT_CONTROL);
  gguf_add_array(&writer, "tokenizer.ggml.scores", 6, 514);
  gguf_put(&writer.entries, file->scores, 512 * sizeof(float));
  gguf_put(&writer.entries, (float[2]){0}, 8);
  gguf_add_u32(&writer, "tokenizer.ggml.eos_token_id", 513);
  gguf_add_flag(&writer, "tokenizer.ggml.add_bos_token", false);
  assert_ok(read_written(&writer, &gguf));
  assert_true(tokenizer_begin(gguf) == -1 && tokenizer_end(gguf) == 513);
  static const char text[] = "<|im_start|>Once upon<|im_end|> a time", apart[] = "<|im_start|><|im_end|>a time";
  TokenList ids = {0}, plain = {0}, inner = {0};
  assert_ok(tokenizer_encode(gguf, text, strlen(text), true, &ids));
  assert_ok(tokenizer_encode(gguf, text, strlen(text), false, &plain));
  assert_ok(tokenizer_encode(file, " a time", 7, false, &inner));
  assert_int_equal(ids.ids[0], 512);
  size_t end = 1;
  while (end < ids.count && ids.ids[end] != 513) end++;
  assert_ids(&(TokenList){.ids = ids.ids + end + 1, .count = ids.count - end - 1}, inner.ids, inner.count);
  assert_encodes(gguf, apart, true, 512, 513, 261, 378);
  assert_int_equal(plain.ids[0], 512); /* a user's token, which is no control token */
  size_t sum = 0;
  for (size_t i = 1; i < plain.count; i++) assert_true(plain.ids[i] < 512);
  for (size_t i = 0; i < plain.count; i++) sum += tokenizer_text_bytes(gguf, i > 0 ? plain.ids[i - 1] : -1, plain.ids[i]);
  assert_int_equal(sum, strlen(text));
  assert_round_trip(gguf, apart, strlen(apart), true);
  assert_round_trip(gguf, text, strlen(text), true);
  assert_round_trip(gguf, text, strlen(text), false);
  assert_int_equal(tokenizer_save(gguf, testing_path("nowhere")), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "2 more special tokens"));
  assert_false(files_exists(testing_path("nowhere/tok514.bin")));
  token_list_release(&ids);
  token_list_release(&plain);
  token_list_release(&inner);
  gguf_writer_release(&more);
  tokenizer_close(gguf);
  tokenizer_close(file);
}

/* A byte-level one of the 256 bytes, which texts are split by as `pre` says, and two tokens of such a type, ids 256 and 257. */
static Tokenizer *bytes_and_two_of(uint32_t type, const char *pre, const char *begin, const char *end, bool add_begin) {
  Tokenizer *tokenizer;
  GgufWriter writer;
  gguf_writer_init(&writer);
  gguf_add_text(&writer, "tokenizer.ggml.model", "gpt2");
  gguf_add_text(&writer, "tokenizer.ggml.pre", pre);
  gguf_add_array(&writer, "tokenizer.ggml.tokens", 8, 258);
  for (int id = 0; id < 256; id++) {
    char text[4], byte = (char)bpe_alphabet_byte(id);
    gguf_put_text(&writer.entries, text, bpe_alphabet_write(&byte, 1, text));
  }
  gguf_put_text(&writer.entries, begin, strlen(begin));
  gguf_put_text(&writer.entries, end, strlen(end));
  gguf_add_array(&writer, "tokenizer.ggml.token_type", 5, 258);
  for (int id = 0; id < 258; id++) gguf_put_u32(&writer.entries, id < 256 ? GT_NORMAL : type);
  gguf_add_array(&writer, "tokenizer.ggml.merges", 8, 0);
  gguf_add_u32(&writer, "tokenizer.ggml.bos_token_id", 256);
  gguf_add_u32(&writer, "tokenizer.ggml.eos_token_id", 257);
  gguf_add_flag(&writer, "tokenizer.ggml.add_bos_token", add_begin);
  assert_ok(read_written(&writer, &tokenizer));
  return tokenizer;
}

static Tokenizer *bytes_and_two(const char *pre, const char *begin, const char *end, bool add_begin) {
  return bytes_and_two_of(GT_CONTROL, pre, begin, end, add_begin);
}

/* They are recognised in any text, and stay so where they are saved. */
static void tokens_of_the_user_are_no_text(void **state) {
  (void)state;
  Tokenizer *control = bytes_and_two("llama-bpe", "<one>", "<two>", true),
            *gguf = bytes_and_two_of(GT_USER, "llama-bpe", "<one>", "<two>", true);
  assert_encodes(control, "<one>", false, 27, 78, 77, 68, 29);
  assert_encodes(gguf, "a<two><one>b", false, 64, 257, 256, 65);
  assert_string_not_equal(tokenizer_fingerprint(gguf), tokenizer_fingerprint(control));
  assert_ok(tokenizer_save(gguf, testing_path("users")));
  Tokenizer *saved = testing_tokenizer(testing_path("users"));
  assert_encodes(saved, "a<two><one>b", false, 64, 257, 256, 65);
  assert_string_equal(tokenizer_fingerprint(saved), tokenizer_fingerprint(gguf));
  tokenizer_close(saved);
  tokenizer_close(gguf);
  tokenizer_close(control);
}

/* Whatever they are called, and where texts have none in front, what is saved begins and ends texts as before. */
static void begin_and_end_are_saved(void **state) {
  (void)state;
  static const struct {
    const char *pre, *begin, *end;
    bool add_begin;
  } cases[] = {{"llama-bpe", "<bos>", "<eos>", true},
               {"llama-bpe", "<bos>", "<eos>", false},
               {"llama-bpe", "<|begin_of_text|>", "<|end_of_text|>", true},
               {"llama-bpe", "<|begin_of_text|>", "<|end_of_text|>", false},
               {"gpt-2", "<bos>", "<|endoftext|>", true},
               {"gpt-2", "<bos>", "<eos>", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char folder[32];
    snprintf(folder, sizeof folder, "ends-%zu", i);
    Tokenizer *gguf = bytes_and_two(cases[i].pre, cases[i].begin, cases[i].end, cases[i].add_begin);
    assert_int_equal(tokenizer_begin(gguf), cases[i].add_begin ? 256 : -1);
    assert_int_equal(tokenizer_end(gguf), 257);
    assert_ok(tokenizer_save(gguf, testing_path(folder)));
    Tokenizer *saved = testing_tokenizer(testing_path(folder));
    assert_int_equal(tokenizer_begin(saved), tokenizer_begin(gguf));
    assert_int_equal(tokenizer_end(saved), tokenizer_end(gguf));
    assert_string_equal(tokenizer_fingerprint(saved), tokenizer_fingerprint(gguf));
    tokenizer_close(saved);
    tokenizer_close(gguf);
  }
}

/* JSON has no place for them; that is found before the work. */
static void special_tokens_that_are_not_text_are_not_saved(void **state) {
  (void)state;
  Tokenizer *gguf = bytes_and_two("gpt-2", "<s>", "\xff", true);
  assert_encodes(gguf, "a\xff", true, 64, 257);
  assert_fails(tokenizer_save_check(gguf, testing_path("bytes")), STATUS_UNSUPPORTED, "the special token of id 257 is not UTF-8");
  assert_fails(tokenizer_save(gguf, testing_path("bytes")), STATUS_UNSUPPORTED, "id 257");
  assert_false(files_exists(testing_path("bytes/vocab.json")));
  tokenizer_close(gguf);
}

/* Of two special tokens, or of one and a piece of the text, a file would keep one, and its ids would have a gap. */
static void tokens_of_one_text_are_not_saved(void **state) {
  (void)state;
  static const struct {
    const char *begin, *message;
  } cases[] = {{"<two>", "twins: the tokens of ids 256 and 257 have the same text, '<two>'"},
               {"b", "twins: the tokens of ids 65 and 256 have the same text, 'b'"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tokenizer *gguf = bytes_and_two("gpt-2", cases[i].begin, "<two>", true);
    assert_fails(tokenizer_save_check(gguf, testing_path("twins")), STATUS_UNSUPPORTED, cases[i].message);
    assert_fails(tokenizer_save(gguf, testing_path("twins")), STATUS_UNSUPPORTED, cases[i].message);
    assert_false(files_exists(testing_path("twins/vocab.json")));
    tokenizer_close(gguf);
  }
}

/* tokN.bin has no place for other ends than ids 1 and 2. */
static void a_scored_vocabulary_without_a_begin_is_not_saved(void **state) {
  (void)state;
  Tokenizer *file = testing_tokenizer(TOKENIZERS "stories260K/tok512.bin"), *gguf;
  GgufWriter writer;
  gguf_writer_init(&writer);
  gguf_tokenizer_write(&writer, file);
  gguf_add_flag(&writer, "tokenizer.ggml.add_bos_token", false);
  assert_ok(read_written(&writer, &gguf));
  assert_int_equal(tokenizer_begin(gguf), -1);
  assert_fails(tokenizer_save(gguf, testing_path("beginless")), STATUS_UNSUPPORTED, "begin");
  assert_false(files_exists(testing_path("beginless/tok512.bin")));
  tokenizer_close(file);
  tokenizer_close(gguf);
}

static void files_are_opened_by_path(void **state) {
  (void)state;
  Tokenizer *file = testing_tokenizer(TOKENIZERS "stories260K/tok512.bin");
  GgufWriter writer;
  gguf_writer_init(&writer);
  gguf_tokenizer_write(&writer, file);
  assert_true(gguf_writer_save(&writer, testing_path("model.gguf")));
  gguf_writer_release(&writer);
  Tokenizer *gguf = testing_tokenizer(testing_path("model.gguf"));
  assert_encodes(gguf, "Once upon a time", false, 403, 407, 261, 378);
  tokenizer_close(gguf);
  tokenizer_close(file);
}

/* ---- refusals */

typedef struct Case {
  const char *model, *pre, *flag;
  bool value;
  Status status;
  const char *message;
} Case;

static void what_is_not_understood_is_refused(void **state) {
  (void)state;
  static const Case cases[] = {
      {NULL, NULL, NULL, false, STATUS_NOT_FOUND, "tokenizer.ggml.model is missing"},
      {"bert", NULL, NULL, false, STATUS_UNSUPPORTED,
       "sample: a tokenizer of model 'bert' (tokenizer.ggml.model); supported are llama and gpt2"},
      {"gpt2", "qwen2", NULL, false, STATUS_UNSUPPORTED, "split as 'qwen2' does (tokenizer.ggml.pre); supported are llama-bpe and gpt-2"},
      {"gpt2", NULL, NULL, false, STATUS_UNSUPPORTED, "split as '' does"},
      {"gpt2", "gpt-2", NULL, false, STATUS_BAD_FILE, "sample: no piece for the byte 0x00 alone"},
      {"llama", NULL, "tokenizer.ggml.add_space_prefix", false, STATUS_UNSUPPORTED, "add_space_prefix is false; only true"},
      {"llama", NULL, "tokenizer.ggml.remove_extra_whitespaces", true, STATUS_UNSUPPORTED, "remove_extra_whitespaces is true; only false"},
      {"llama", NULL, NULL, false, STATUS_BAD_FILE, "2 pieces; three without text and 256 bytes come first"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    GgufWriter writer;
    Tokenizer *tokenizer;
    gguf_writer_init(&writer);
    if (c->model) gguf_add_text(&writer, "tokenizer.ggml.model", c->model);
    if (c->pre) gguf_add_text(&writer, "tokenizer.ggml.pre", c->pre);
    if (c->flag) gguf_add_flag(&writer, c->flag, c->value);
    gguf_add_array(&writer, "tokenizer.ggml.tokens", 8, 2);
    gguf_put_text(&writer.entries, "a", 1);
    gguf_put_text(&writer.entries, "b", 1);
    gguf_add_array(&writer, "tokenizer.ggml.scores", 6, 2);
    gguf_put(&writer.entries, (float[2]){0}, 8);
    gguf_add_array(&writer, "tokenizer.ggml.merges", 8, 0);
    assert_int_equal(read_written(&writer, &tokenizer), c->status);
    assert_null(tokenizer);
    if (!strstr(status_message(), c->message)) fail_msg("%s", status_message());
  }
}

static void counts_and_ids_must_agree(void **state) {
  (void)state;
  static const struct {
    const char *key;
    uint32_t element, value;
    const char *message;
  } cases[] = {{"tokenizer.ggml.token_type", 5, 0, "1 types for 2 tokens"},
               {"tokenizer.ggml.scores", 6, 0, "1 scores for 2 tokens"},
               {"tokenizer.ggml.scores", 4, 0, "scores must hold an array of type f32"},
               {"tokenizer.ggml.bos_token_id", 99, 2, "bos_token_id is 2; the ids are 0 to 1"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    GgufWriter writer;
    Tokenizer *tokenizer;
    gguf_writer_init(&writer);
    gguf_add_text(&writer, "tokenizer.ggml.model", "llama");
    gguf_add_array(&writer, "tokenizer.ggml.tokens", 8, 2);
    gguf_put_text(&writer.entries, "a", 1);
    gguf_put_text(&writer.entries, "b", 1);
    if (cases[i].element == 99) {
      gguf_add_u32(&writer, cases[i].key, cases[i].value);
    } else {
      gguf_add_array(&writer, cases[i].key, cases[i].element, 1);
      gguf_put_u32(&writer.entries, cases[i].value);
    }
    assert_int_equal(read_written(&writer, &tokenizer), STATUS_BAD_FILE);
    if (!strstr(status_message(), cases[i].message)) fail_msg("%s", status_message());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2_is_the_same),
                                     cmocka_unit_test(llama3_gives_the_published_ids),
                                     cmocka_unit_test(a_scored_vocabulary_is_the_same),
                                     cmocka_unit_test(begin_and_end_of_a_scored_vocabulary_are_special),
                                     cmocka_unit_test(special_tokens_of_a_scored_vocabulary),
                                     cmocka_unit_test(tokens_of_the_user_are_no_text),
                                     cmocka_unit_test(begin_and_end_are_saved),
                                     cmocka_unit_test(special_tokens_that_are_not_text_are_not_saved),
                                     cmocka_unit_test(tokens_of_one_text_are_not_saved),
                                     cmocka_unit_test(a_scored_vocabulary_without_a_begin_is_not_saved),
                                     cmocka_unit_test(files_are_opened_by_path),
                                     cmocka_unit_test(what_is_not_understood_is_refused),
                                     cmocka_unit_test(counts_and_ids_must_agree)};
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
