/* Corpora: which files a path means, documents, parts that share nothing and lose nothing, .gz, and bad text; how often each byte is looked
 * at. */
#include "data/text/text_source.c" /* the reader of one file is inside of it */
#include "data/text/text_source.h"
#include "text_testing.h"
#include <sys/stat.h>

/* The C library's, but counting the bytes that they look at. */
static int64_t looked_at;

void *memchr(const void *text, int byte, size_t size) {
  const unsigned char *at = text;
  size_t i = 0;
  while (i < size && at[i] != (unsigned char)byte) i++;
  looked_at += (int64_t)(i < size ? i + 1 : size);
  return i < size ? (void *)(uintptr_t)(at + i) : NULL;
}

void *memrchr(const void *text, int byte, size_t size) {
  const unsigned char *at = text;
  size_t i = size;
  while (i > 0 && at[i - 1] != (unsigned char)byte) i--;
  looked_at += (int64_t)(i > 0 ? size - i + 1 : size);
  return i > 0 ? (void *)(uintptr_t)(at + i - 1) : NULL;
}

static int set_up(void **state) {
  if (testing_make_folder(state) != 0) return -1;
  setenv("ASTRA_HOME", testing_path("home"), 1);
  setenv("HOME", testing_path("user"), 1);
  return 0;
}

/* All documents of a part, each followed by '|'; freed by the caller. NULL: the failure is in *status. */
static char *documents(const char *name, TextPart part, bool whole, Status *status) {
  TextSource *source;
  TextBlock block;
  char *text = NULL;
  size_t size;
  if ((*status = text_source_open(&source, name, NULL, part)) != STATUS_OK) return NULL;
  FILE *stream = open_memstream(&text, &size);
  text_source_start(source, whole);
  for (bool more = true; more;) {
    if ((*status = text_source_next(source, &block, &more)) != STATUS_OK) break;
    fwrite(block.text, 1, block.bytes, stream);
    if (block.ends) fputc('|', stream);
  }
  fclose(stream);
  text_source_close(source);
  if (*status == STATUS_OK) return text;
  free(text);
  return NULL;
}

static void assert_documents(const char *name, TextPart part, const char *expected) {
  Status status;
  char *text = documents(name, part, false, &status);
  if (!text) fail_msg("%s: %s", name, status_message());
  assert_string_equal(text, expected);
  free(text);
}

static void assert_refused(const char *name, TextPart part, Status code, const char *words) {
  Status status;
  assert_null(documents(name, part, false, &status));
  assert_int_equal(status, code);
  if (!strstr(status_message(), words)) fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

static void test_files_and_lines(void **state) {
  (void)state;
  text_testing_put("a.txt", "\xef\xbb\xbf one\n<|endoftext|>\r\n\n two");
  assert_documents(text_testing_name("text", "a.txt"), TEXT_WHOLE, " one\n<|endoftext|>\r\n\n two|");
  assert_documents(text_testing_name("text-lines", "a.txt"), TEXT_WHOLE, " one|<|endoftext|>| two|");
  text_testing_pack("b.txt.gz", "packed\ntext\n");
  assert_documents(text_testing_name("text", "b.txt.gz"), TEXT_WHOLE, "packed\ntext\n|");
  char both[700];
  snprintf(both, sizeof both, "text:%s,%s", testing_path("b.txt.gz"), testing_path("a.txt"));
  assert_documents(both, TEXT_WHOLE, "packed\ntext\n| one\n<|endoftext|>\r\n\n two|");
  text_testing_put("with,comma", "x");
  assert_documents(text_testing_name("text", "with,comma"), TEXT_WHOLE, "x|");
}

static void test_folders(void **state) {
  (void)state;
  text_testing_put("all/b.txt", "b");
  text_testing_put("all/a/z.txt", "az");
  text_testing_pack("all/c.txt.gz", "c");
  text_testing_put("all/.hidden.txt", "hidden");
  text_testing_put("all/notes.md", "notes");
  text_testing_put("all/empty.txt", "");
  assert_documents(text_testing_name("text", "all"), TEXT_WHOLE, "az|b|c|");
  text_testing_put("home/datasets/corpus/inner/wiki.train.tokens", "train");
  text_testing_put("home/datasets/corpus/inner/wiki.test.tokens", "test");
  text_testing_pack("home/datasets/corpus/inner/wiki.valid.tokens.gz", "valid");
  assert_documents("text:corpus", TEXT_TRAIN, "train|"); /* by its name, through the only folder in it */
  assert_documents("text:corpus", TEXT_VALID, "valid|");
  assert_documents("text:corpus", TEXT_TEST, "test|");
  assert_documents("text:corpus", TEXT_WHOLE, "train|valid|test|");
}

static void test_parts_by_name(void **state) {
  (void)state;
  text_testing_put("n/train.txt", "t");
  text_testing_put("n/other.txt", "o");
  text_testing_put("n/test.txt", "e");
  assert_documents(text_testing_name("text", "n"), TEXT_TRAIN, "t|");
  assert_documents(text_testing_name("text", "n"), TEXT_VALID, "e|"); /* there is no other */
  text_testing_put("m/valid.txt", "v");
  assert_documents(text_testing_name("text", "m"), TEXT_TEST, "v|");
  assert_refused(text_testing_name("text", "m"), TEXT_TRAIN, STATUS_NOT_FOUND, "has valid.txt but no training text");
  text_testing_put("e/a.txt", "a\nb\n");
  text_testing_put("e/test.txt", "e"); /* is not trained on, whatever lies beside it */
  assert_refused(text_testing_name("text", "e"), TEXT_TRAIN, STATUS_NOT_FOUND, "has test.txt but no training text");
  assert_documents(text_testing_name("text", "e"), TEXT_VALID, "e|");
}

/* What the two parts hold together is the whole, in order, cut at the beginning of a line, about a twentieth of it behind the cut. */
static void assert_divides(const char *path, const char *expected, size_t min, size_t max) {
  Status status;
  char name[600];
  snprintf(name, sizeof name, "text:%s", path);
  char *train = documents(name, TEXT_TRAIN, false, &status), *valid = documents(name, TEXT_VALID, false, &status);
  if (!train || !valid) fail_msg("%s: %s", name, status_message());
  size_t head = strcspn(train, "|"), tail = strcspn(valid, "|");
  assert_int_equal(head + tail, strlen(expected));
  assert_memory_equal(train, expected, head);
  assert_memory_equal(valid, expected + head, tail);
  assert_int_equal(expected[head - 1], '\n');
  assert_in_range(tail, min, max);
  free(train);
  free(valid);
}

static void test_last_twentieth(void **state) {
  (void)state;
  static char text[200001];
  for (int i = 0; i < 200000; i++) text[i] = i % 50 == 49 ? '\n' : (char)('a' + i % 7);
  assert_divides(text_testing_put("big.txt", text), text, 10000, 10049);
  assert_divides(text_testing_pack("big.gz", text), text, 10000, 10049);
  assert_divides(text_testing_put("small.txt", "a\nb\nc\n"), "a\nb\nc\n", 2, 2);
  assert_divides(text_testing_put("tail.txt", "a\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
                 "a\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", 44, 44);
  assert_refused(text_testing_name("text", "one-line"), TEXT_WHOLE, STATUS_NOT_FOUND, "one-line");
  text_testing_put("one-line", "all in one line");
  assert_refused(text_testing_name("text", "one-line"), TEXT_VALID, STATUS_BAD_FILE, "train.txt and valid.txt");
}

/* Over several files the cut falls into one of them; files before and behind it belong to one part alone. */
static void test_twentieth_of_a_folder(void **state) {
  (void)state;
  char text[1001];
  for (int i = 0; i < 1000; i++) text[i] = i % 10 == 9 ? '\n' : 'x';
  text[1000] = 0;
  text_testing_put("f/1.txt", text);
  text_testing_put("f/2.txt", text);
  text_testing_put("f/3.txt", "short\n");
  Status status;
  char *train = documents(text_testing_name("text", "f"), TEXT_TRAIN, false, &status);
  char *valid = documents(text_testing_name("text", "f"), TEXT_VALID, false, &status);
  assert_non_null(train);
  assert_non_null(valid);
  assert_int_equal(strlen(train), 1000 + 1 + 900 + 1); /* 5% of 2006 is 101 */
  assert_int_equal(strlen(valid), 100 + 1 + 6 + 1);
  free(train);
  free(valid);
}

/* Long documents come in blocks that a space and a letter follow, and together they are the document. */
static void test_blocks(void **state) {
  (void)state;
  size_t size = 5 * 1000 * 1000;
  char *text = malloc(size + 1);
  assert_non_null(text);
  for (size_t i = 0; i < size; i++) text[i] = "ab 12  c\n"[i % 9];
  text[size] = 0;
  text_testing_put("long.txt", text);
  TextSource *source;
  TextBlock block;
  bool more;
  size_t at = 0;
  int blocks = 0;
  assert_ok(text_source_open(&source, text_testing_name("text", "long.txt"), NULL, TEXT_WHOLE));
  text_source_start(source, false);
  for (;;) {
    assert_ok(text_source_next(source, &block, &more));
    if (!more) break;
    assert_memory_equal(block.text, text + at, block.bytes);
    at += block.bytes;
    blocks++;
    assert_int_equal(block.ends, at == size);
    if (!block.ends) assert_memory_equal(text + at, " c\n", 3);
  }
  assert_int_equal(at, size);
  assert_true(blocks > 3);
  text_source_start(source, true); /* from the beginning, in one piece */
  assert_ok(text_source_next(source, &block, &more));
  assert_int_equal(block.bytes, size);
  assert_true(block.ends);
  text_source_close(source);
  free(text);
}

/* Reads `name` to its end: how many bytes came in how many blocks, and how many were looked at for each that came. */
static double looks_for_each(const char *name, size_t expected, int blocks) {
  TextSource *source;
  TextBlock block;
  size_t bytes = 0;
  looked_at = 0;
  assert_ok(text_source_open(&source, name, NULL, TEXT_WHOLE));
  text_source_start(source, false);
  for (bool more = true; more; bytes += block.bytes, blocks -= more) assert_ok(text_source_next(source, &block, &more));
  text_source_close(source);
  assert_int_equal(bytes, expected);
  assert_int_equal(blocks, 0);
  return (double)looked_at / (double)bytes;
}

/* Without a place to cut at nothing is looked at again after every further megabyte: once for that place, and twice by the reader, which
 * looks for NUL bytes and counts lines. */
static void test_long_ways_to_a_cut(void **state) {
  (void)state;
  enum { LONG_WAY = 12 << 20 };
  char *text = malloc(LONG_WAY + 3);
  assert_non_null(text);
  memset(text, '7', LONG_WAY);
  for (int i = 0; i < LONG_WAY; i += 10) text[i] = ' ';
  strcpy(text + LONG_WAY, "\nx");
  text_testing_put("digits.txt", text);
  double looks = looks_for_each(text_testing_name("text", "digits.txt"), LONG_WAY + 2, 1);
  if (looks > 3.1) fail_msg("a text without a letter: each byte is looked at %.1f times", looks);
  looks = looks_for_each(text_testing_name("text-lines", "digits.txt"), LONG_WAY + 1, 2);
  if (looks > 3.1) fail_msg("a long line: each byte is looked at %.1f times", looks);
  free(text);
}

/* Words that begin with no Latin letter, in alphabets from U+00C0 on. */
static void test_cuts_of_other_alphabets(void **state) {
  (void)state;
  enum { MEGABYTE = 1 << 20 };
  const char *const letters[] = {"\xC3\x89", "\xD0\x96", "\xD7\x90", "\xD8\xA8"};
  char *text = malloc(2 * MEGABYTE + 1);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
    memset(text, '7', 2 * MEGABYTE);
    text[MEGABYTE / 2] = ' ';
    memcpy(text + MEGABYTE / 2 + 1, letters[i], 2);
    text[2 * MEGABYTE] = 0;
    text_testing_put("letters.txt", text);
    looks_for_each(text_testing_name("text", "letters.txt"), 2 * MEGABYTE, 2);
  }
  free(text);
}

/* A space that ends what was looked at is a place to cut at when a letter comes. */
static void test_cut_between_reads(void **state) {
  (void)state;
  enum { MEGABYTE = 1 << 20 };
  char *text = malloc(2 * MEGABYTE + 1);
  assert_non_null(text);
  memset(text, '7', 2 * MEGABYTE);
  memcpy(text + MEGABYTE - 1, " x", 2);
  text[2 * MEGABYTE] = 0;
  text_testing_put("between.txt", text);
  looks_for_each(text_testing_name("text", "between.txt"), 2 * MEGABYTE, 2);
  free(text);
}

static void test_counts(void **state) {
  (void)state;
  TextSource *source;
  TextFacts facts = {0};
  TextBlock block;
  text_testing_put("c/1.txt", " two\twords\n\n");
  text_testing_put("c/2.txt", "three more words");
  assert_ok(text_source_open(&source, text_testing_name("text", "c"), NULL, TEXT_WHOLE));
  text_source_start(source, false);
  for (bool more = true; more;) {
    assert_ok(text_source_next(source, &block, &more));
    if (more) text_source_count(source, &facts, &block);
  }
  text_source_close(source);
  assert_int_equal(facts.documents, 2);
  assert_int_equal(facts.bytes, 12 + 16);
  assert_int_equal(facts.words, 5);
  assert_int_equal(facts.lines, 2);
}

static void test_bad_text(void **state) {
  (void)state;
  testing_write("nul.txt", "a\nb\0c", 5);
  assert_refused(text_testing_name("text", "nul.txt"), TEXT_WHOLE, STATUS_BAD_FILE, "nul.txt, line 2: a NUL byte");
  text_testing_put("none.txt", "\n\r\n");
  assert_refused(text_testing_name("text-lines", "none.txt"), TEXT_WHOLE, STATUS_BAD_FILE, "no text");
  text_testing_put("none.txt", "");
  for (TextPart part = TEXT_TRAIN; part <= TEXT_WHOLE; part++)
    assert_refused(text_testing_name("text", "none.txt"), part, STATUS_BAD_FILE, "none.txt: no text in it");
  text_testing_put("blank/a.txt", "");
  text_testing_put("blank/b.txt", "");
  assert_refused(text_testing_name("text", "blank"), TEXT_VALID, STATUS_BAD_FILE, "blank: no text in it");
  text_testing_put("folder/x.md", "");
  assert_refused(text_testing_name("text", "folder"), TEXT_WHOLE, STATUS_NOT_FOUND, "no *.txt");
  assert_refused("text:", TEXT_WHOLE, STATUS_BAD_VALUE, "text:PATH");
  assert_refused("text:a,,b", TEXT_WHOLE, STATUS_NOT_FOUND, "a");
  assert_refused("words:x", TEXT_WHOLE, STATUS_BAD_VALUE, "text-lines:PATH");
  TextReader *reader;
  assert_ok(files_make_dirs(testing_path("folder/dir.txt")));
  assert_fails(text_reader_open(&reader, testing_path("folder/dir.txt")), STATUS_BAD_FILE, "is a directory");
  assert_int_equal(mkfifo(testing_path("pipe"), 0600), 0);
  assert_fails(text_reader_open(&reader, testing_path("pipe")), STATUS_BAD_FILE, "a pipe");
}

static void test_broken_archives(void **state) {
  (void)state;
  static char text[100001];
  for (int i = 0; i < 100000; i++) text[i] = (char)(' ' + (i * 7919 >> 5) % 90);
  char *packed;
  size_t size;
  assert_ok(files_read(text_testing_pack("whole.gz", text), 1 << 20, &packed, &size));
  testing_write("cut.gz", packed, size / 2);
  assert_refused(text_testing_name("text", "cut.gz"), TEXT_WHOLE, STATUS_BAD_FILE, "cut.gz, after line");
  size_t begin = 10 + strlen(packed + 10) + 1; /* behind the file's name */
  packed[begin] = 0x07;                        /* a kind of block that deflate does not have */
  testing_write("bad.gz", packed, size);
  assert_refused(text_testing_name("text", "bad.gz"), TEXT_WHOLE, STATUS_BAD_FILE, "bad.gz");
  free(packed);
  text_testing_put("plain.gz", "no archive at all");
  assert_refused(text_testing_name("text", "plain.gz"), TEXT_WHOLE, STATUS_BAD_FILE, "not packed by gzip");
  text_testing_pack("empty.gz", "");
  assert_refused(text_testing_name("text", "empty.gz"), TEXT_WHOLE, STATUS_BAD_FILE, "no text");
}

/* The text of a file read in slices, in *text; what the reader says of it. */
static Status read_slices(const char *path, size_t slice, char *text, size_t room, size_t *size) {
  TextReader *reader;
  *size = 0;
  TRY(text_reader_open(&reader, path));
  Status status = STATUS_OK;
  for (size_t got = 1; status == STATUS_OK && got > 0; *size += got) {
    assert_true(*size + slice <= room);
    status = text_reader_read(reader, text + *size, slice, &got);
  }
  text_reader_close(reader);
  return status;
}

enum { DAMAGED = 3000, SLICES = 3 };

/* The file is refused, however it is read, or means what it meant before it was damaged. */
static void assert_noticed(const char *what, size_t at, const char *text) {
  static const size_t slices[SLICES] = {7, 512, 1 << 16};
  static char back[DAMAGED + 2 * (1 << 16)];
  for (int i = 0; i < SLICES; i++) {
    size_t size;
    Status status = read_slices(testing_path("damaged.gz"), slices[i], back, sizeof back, &size);
    bool same = status == STATUS_OK && size == strlen(text) && memcmp(back, text, size) == 0;
    if (status != STATUS_BAD_FILE && !same) fail_msg("%s at byte %zu, slices of %zu: status %d", what, at, slices[i], (int)status);
  }
  char name[600];
  snprintf(name, sizeof name, "text:%s", testing_path("damaged.gz"));
  Status part; /* whose last bytes are not read */
  char *train = documents(name, TEXT_TRAIN, false, &part);
  if (part != STATUS_BAD_FILE && (part != STATUS_OK || strncmp(train, text, strcspn(train, "|"))))
    fail_msg("%s at byte %zu: its training part is taken", what, at);
  free(train);
}

/* Two members; every byte of header, data, checksum and length in turn, every length, and something behind the end. */
static void test_damaged_archives(void **state) {
  (void)state;
  static char text[DAMAGED + 1];
  char *packed, command[1200];
  size_t size, refused = 0;
  for (int i = 0; i < DAMAGED; i++) text[i] = (i * 7919 >> 5) % 60 == 0 ? '\n' : (char)(' ' + (i * 7919 >> 5) % 90);
  char first[DAMAGED + 1], path[512];
  snprintf(first, sizeof first, "%.*s", DAMAGED / 2, text);
  snprintf(path, sizeof path, "%s", text_testing_pack("first.gz", first));
  snprintf(command, sizeof command, "cat '%s' '%s' > '%s/two.gz'", path, text_testing_pack("second.gz", text + DAMAGED / 2),
           testing_folder);
  assert_int_equal(system(command), 0);
  assert_ok(files_read(testing_path("two.gz"), 1 << 20, &packed, &size));
  testing_write("damaged.gz", packed, size);
  assert_noticed("nothing", 0, text);
  for (size_t at = 0; at < size; at++) {
    packed[at] ^= (char)(1 << at % 8);
    testing_write("damaged.gz", packed, size);
    packed[at] ^= (char)(1 << at % 8);
    assert_noticed("a flipped bit", at, text);
    char *whole = NULL;
    size_t bytes;
    refused += text_source_read_file(testing_path("damaged.gz"), 1 << 20, &whole, &bytes) != STATUS_OK;
    free(whole);
  }
  assert_true(refused > size - 60); /* all but what headers say of the time, the system and the name */
  for (size_t length = 0; length<size; length += length + 20> size ? 1 : 13) {
    testing_write("damaged.gz", packed, length);
    char *whole;
    size_t bytes;
    assert_int_equal(text_source_read_file(testing_path("damaged.gz"), 1 << 20, &whole, &bytes), STATUS_BAD_FILE);
    assert_noticed("an end", length, text);
  }
  packed = realloc(packed, size + 3);
  memcpy(packed + size, "\0\0", 3);
  testing_write("damaged.gz", packed, size + 2);
  assert_noticed("zeroes", size, text);
  packed[size + 1] = 1;
  testing_write("damaged.gz", packed, size + 2);
  assert_fails(text_source_read_file(testing_path("damaged.gz"), 1 << 20, &(char *){NULL}, &(size_t){0}), STATUS_BAD_FILE,
               "not a whole .gz file");
  free(packed);
}

static void test_reads_whole(void **state) {
  (void)state;
  char *text;
  size_t size;
  assert_ok(text_source_read_file(text_testing_pack("w.gz", "whole"), 5, &text, &size));
  assert_int_equal(size, 5);
  assert_string_equal(text, "whole");
  free(text);
  assert_fails(text_source_read_file(testing_path("w.gz"), 4, &text, &size), STATUS_BAD_FILE, "more than 4 bytes");
  assert_null(text);
}

static void test_real_corpus(void **state) {
  (void)state;
  char name[600];
  snprintf(name, sizeof name, "text:%s", testing_shared("data/enwiki"));
  TextSource *source;
  TextBlock block;
  for (TextPart part = TEXT_TRAIN; part <= TEXT_VALID; part++) {
    TextFacts facts = {0};
    assert_ok(text_source_open(&source, name, NULL, part));
    text_source_start(source, false);
    for (bool more = true; more;) {
      assert_ok(text_source_next(source, &block, &more));
      if (more) text_source_count(source, &facts, &block);
    }
    assert_int_equal(facts.documents, 1);
    assert_int_equal(facts.bytes, part == TEXT_TRAIN ? 13996580 : 1025174);
    assert_int_equal(facts.lines, part == TEXT_TRAIN ? 43328 : 3988);
    text_source_close(source);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files_and_lines),
                                     cmocka_unit_test(test_folders),
                                     cmocka_unit_test(test_parts_by_name),
                                     cmocka_unit_test(test_last_twentieth),
                                     cmocka_unit_test(test_twentieth_of_a_folder),
                                     cmocka_unit_test(test_blocks),
                                     cmocka_unit_test(test_long_ways_to_a_cut),
                                     cmocka_unit_test(test_cuts_of_other_alphabets),
                                     cmocka_unit_test(test_cut_between_reads),
                                     cmocka_unit_test(test_counts),
                                     cmocka_unit_test(test_bad_text),
                                     cmocka_unit_test(test_broken_archives),
                                     cmocka_unit_test(test_damaged_archives),
                                     cmocka_unit_test(test_reads_whole),
                                     cmocka_unit_test(test_real_corpus)};
  return cmocka_run_group_tests(tests, set_up, testing_remove_folder);
}
