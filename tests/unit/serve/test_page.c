/* The page in the program: every file of src/serve/page as it is on disk, with its type; what the page names is there; nothing else is
 * found; no script or style is inline, as the policy wants it. The page at work: tests/network/page.sh. */
#include "base/files.h"
#include "serve/page.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void files_are_those_on_disk(void **state) {
  (void)state;
  char **names;
  size_t count, listed = 0;
  assert_int_equal(files_list("src/serve/page", &names, &count), STATUS_OK);
  for (size_t i = 0; i < count; i++) {
    char path[256], *data, *disk = files_join("src/serve/page", names[i]);
    size_t size;
    snprintf(path, sizeof path, "/%s", names[i]);
    const PageFile *file = page_find(path);
    if (!file) fail_msg("%s is not in the program", path);
    assert_int_equal(files_read(disk, 1 << 20, &data, &size), STATUS_OK);
    assert_int_equal(file->bytes, size);
    assert_memory_equal(file->data, data, size);
    free(data);
    free(disk);
  }
  files_list_free(names, count);
  while (page_files[listed].path) listed++;
  assert_int_equal(listed, count);
}

static void page_is_at_the_root(void **state) {
  (void)state;
  const PageFile *page = page_find("/");
  assert_non_null(page);
  assert_ptr_equal(page, page_find("/index.html"));
  assert_string_equal(page->type, "text/html; charset=utf-8");
  assert_string_equal(page_find("/page.js")->type, "text/javascript; charset=utf-8");
  assert_string_equal(page_find("/page.css")->type, "text/css; charset=utf-8");
  assert_string_equal(page_find("/icon.svg")->type, "image/svg+xml");
}

static void other_paths_are_not_there(void **state) {
  (void)state;
  static const char *const paths[] = {"", "//", "/page.js/", "/page", "page.js", "/../Makefile", "/page.js?x", "/PAGE.JS", "/index.htm"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) assert_null(page_find(paths[i]));
}

/* Every src="/..." and href="/..." of the page, and every import from "/..." of its scripts. */
static void named_files_exist(void **state) {
  (void)state;
  static const char *const marks[] = {"src=\"", "href=\"", "from \""};
  int found = 0;
  for (const PageFile *file = page_files; file->path; file++) {
    for (size_t i = 0; i < 3; i++) {
      const char *mark = marks[i], *at = (const char *)file->data;
      while ((at = strstr(at, mark)) != NULL) { /* a NUL stands behind the data */
        char path[64] = "";
        at += strlen(mark);
        if (*at != '/') continue;
        sscanf(at, "%63[^\"#]", path);
        if (!page_find(path)) fail_msg("%s names %s, which is not there", file->path, path);
        found++;
      }
    }
  }
  assert_true(found >= 6);
}

static void nothing_is_inline(void **state) {
  (void)state;
  static const char *const forbidden[] = {"<style", " style=\"", " onclick=", " onload=", "javascript:", "http://", "https://"};
  const char *html = (const char *)page_find("/")->data;
  for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) assert_null(strstr(html, forbidden[i]));
  for (const char *script = html; (script = strstr(script, "<script")) != NULL; script++) assert_non_null(strstr(script, "src=\"/"));
}

static void tags_differ(void **state) {
  (void)state;
  for (const PageFile *file = page_files; file->path; file++) {
    assert_int_equal(strlen(file->tag), 18);
    for (const PageFile *other = page_files; other != file; other++) assert_string_not_equal(file->tag, other->tag);
  }
}

static void policy_lets_nothing_in(void **state) {
  (void)state;
  const char *policy = NULL;
  for (const char *const *field = page_fields; *field; field += 2) {
    assert_non_null(field[1]);
    if (strcmp(field[0], "Content-Security-Policy") == 0) policy = field[1];
  }
  assert_non_null(policy);
  assert_non_null(strstr(policy, "default-src 'none'"));
  assert_null(strstr(policy, "unsafe"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_those_on_disk),   cmocka_unit_test(page_is_at_the_root),
                                     cmocka_unit_test(other_paths_are_not_there), cmocka_unit_test(named_files_exist),
                                     cmocka_unit_test(nothing_is_inline),         cmocka_unit_test(tags_differ),
                                     cmocka_unit_test(policy_lets_nothing_in)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
