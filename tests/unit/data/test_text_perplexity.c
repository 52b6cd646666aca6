/* WikiText as lm-evaluation-harness takes it: pages, words, detokenisation by hand, and the rolling windows over its documents. */
#include "data/text/text_perplexity.c" /* pages and windows are inside of it */
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pages ---- */

typedef struct Pages {
  char text[8][256];
  int count;
} Pages;

static Status keep(void *context, const char *text, size_t bytes) {
  Pages *pages = context;
  assert_true(pages->count < 8 && bytes < sizeof pages->text[0]);
  memcpy(pages->text[pages->count], text, bytes);
  pages->text[pages->count++][bytes] = 0;
  return STATUS_OK;
}

static Pages pages_of(const char *text) {
  Pages pages = {.count = 0};
  assert_int_equal(wikitext_pages(text, strlen(text), keep, &pages), STATUS_OK);
  return pages;
}

static void pages_begin_with_titles(void **state) {
  (void)state;
  Pages pages = pages_of(" \n = One = \n \n a = b \n = = Section = = \n c \n = Two = \nd\n");
  assert_int_equal(pages.count, 2);
  assert_string_equal(pages.text[0], " = One = \n \n a = b \n = = Section = = \n c ");
  assert_string_equal(pages.text[1], " = Two = \nd\n");
  pages = pages_of("before\n= One =\n = = = Deep = = = ");
  assert_int_equal(pages.count, 2);
  assert_string_equal(pages.text[0], "before");
  assert_string_equal(pages.text[1], "= One =\n = = = Deep = = = ");
  pages = pages_of("");
  assert_int_equal(pages.count, 1);
  pages = pages_of("= One =\n\xe3\x80\x80= Two =\xc2\xa0"); /* Unicode's white space */
  assert_int_equal(pages.count, 2);
}

static void words_are_parts_between_white_space(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t words;
  } cases[] = {{"", 1},
               {"a", 1},
               {"a b", 2},
               {" a  b\n", 4},
               {" ", 2},
               {"a\xc2\xa0"
                "b\xe2\x80\x83"
                "c",
                3},
               {"\xc3\xa9t\xc3\xa9", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(wikitext_words(cases[i].text, strlen(cases[i].text)), cases[i].words);
}

static void detokenised(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"a 1 @,@ 250 @.@ 5 @-@ mile road , long ; wide : yes . No ! Why ? x", "a 1,250.5-mile road, long; wide: yes. No! Why? x"},
      {"( a ( b ) c ) [ d ] { e } (  )", "(a ( b) c ) [d] {e} ()"},
      {"say \" yes \" and \" no", "say \"yes\" and \" no"},
      {"the boys ' house , Teddy 's and ' so '", "the boys'house, Teddy's and'so'"},
      {" = = = Deep = = = \n = = Section = = \n", " === Deep ===\n== Section ==\n"},
      {"5 \xc2\xb0 C at N 5 and N 6", "5\xc2\xb0"
                                      "C at 1 5 and 1 6"},
      {"/' 5/ and /' x/", "/'[0-9]/ and /' x/"},
      {"a . b . . c", "a. b. . c"},
      {"", ""},
      {"( open [ open \" open", "( open [ open \" open"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *plain;
    size_t bytes;
    assert_int_equal(wikitext_detokenise(cases[i][0], strlen(cases[i][0]), &plain, &bytes), STATUS_OK);
    assert_string_equal(plain, cases[i][1]);
    assert_int_equal(bytes, strlen(plain));
    free(plain);
  }
}

/* Signs that are opened a million times and never closed take no time. */
static void many_open_signs(void **state) {
  (void)state;
  enum { COUNT = 1 << 20 };
  char *text = malloc(COUNT), *plain;
  size_t bytes;
  memset(text, '(', COUNT);
  assert_int_equal(wikitext_detokenise(text, COUNT, &plain, &bytes), STATUS_OK);
  assert_int_equal(bytes, COUNT);
  free(plain);
  free(text);
}

/* ---- windows ---- */

/* Window k of a document of tokens t_1 ... t_n behind the beginning t_0, as the harness makes them: the first predicts the first L; each
 * later one the next L or what is left, from as many tokens as fit before its last. */
static void check_document(const RollingText *rolling, int64_t d, int64_t *window) {
  const int32_t *t = rolling->ids.ids + rolling->first[d];
  int64_t n = rolling->first[d + 1] - rolling->first[d] - 1, context = rolling->context;
  int32_t ids[64], labels[64];
  assert_true(context <= 64);
  for (int64_t predicted = 0; predicted < n; (*window)++) {
    int64_t count = n - predicted < context ? n - predicted : context, end = predicted + count;
    int64_t begin = predicted == 0 ? 0 : end - context, rows = end - begin;
    assert_int_equal(rolling_text_rows(rolling, *window), rows);
    rolling_text_fill(rolling, *window, context, ids, labels);
    for (int64_t i = 0; i < context; i++) {
      assert_int_equal(ids[i], i < rows ? t[begin + i] : 0);
      assert_int_equal(labels[i], i < rows && i >= rows - count ? t[begin + i + 1] : -1);
    }
    predicted = end;
  }
}

static void windows_roll(void **state) {
  (void)state;
  static const char text[] =
      " \n = One = \n\n some words of the first page , enough of them for windows of several sizes . \n = Two = \n short \n";
  char folder[TEMPORARY_PATH], name[TEMPORARY_PATH + 16];
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(name, sizeof name, "text:%s/pages", folder);
  FILE *file = fopen(name + strlen("text:"), "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, sizeof text - 1, file), sizeof text - 1);
  assert_int_equal(fclose(file), 0);
  Tokenizer *tokenizer;
  assert_int_equal(tokenizer_open(&tokenizer, "tests/golden/tokenizers/stories260K/tok512.bin"), STATUS_OK);
  for (int64_t context = 1; context <= 64; context += context < 8 ? 1 : 19) {
    TextSource *source;
    RollingText rolling;
    TextWindows windows;
    int64_t window = 0;
    assert_int_equal(text_source_open(&source, name, NULL, TEXT_WHOLE), STATUS_OK);
    assert_int_equal(rolling_text_read(&rolling, source, tokenizer, context), STATUS_OK);
    text_source_close(source);
    assert_int_equal(rolling.documents, 2);
    assert_int_equal(rolling.ids.ids[rolling.first[1]], tokenizer_begin(tokenizer));
    assert_int_equal(rolling.bytes, (int64_t)sizeof text - 1 - 3); /* but " \n" and the end of the first page's last line */
    assert_int_equal(rolling.tokens, (int64_t)rolling.ids.count - 2);
    for (int64_t d = 0; d < rolling.documents; d++) check_document(&rolling, d, &window);
    text_windows_roll(&windows, &rolling);
    assert_int_equal(window, windows.count);
    assert_int_equal(text_windows_labels(&windows), rolling.tokens);
    rolling_text_release(&rolling);
  }
  tokenizer_close(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pages_begin_with_titles), cmocka_unit_test(words_are_parts_between_white_space),
                                     cmocka_unit_test(detokenised), cmocka_unit_test(many_open_signs), cmocka_unit_test(windows_roll)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
