/* The Jinja interpreter against Jinja itself: every case of chat_cases.json (made by make_chat_cases.py) gives the text that Jinja 3 gives
 * with transformers' settings, or is refused as it is there. Then what hostile templates may take, and messages with their lines. */
#include "base/files.h"
#include "serve/jinja.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *load_cases(void) {
  char *data;
  size_t size;
  json_error_t error;
  assert_int_equal(files_read("tests/unit/serve/chat_cases.json", 64 << 20, &data, &size), STATUS_OK);
  json_t *all = json_loadb(data, size, JSON_ALLOW_NUL, &error);
  if (!all) fail_msg("chat_cases.json:%d: %s", error.line, error.text);
  free(data);
  return all;
}

static Status render(const char *source, size_t bytes, const json_t *variables, const JinjaLimits *limits, char **text, size_t *size) {
  Jinja *template;
  *text = NULL;
  Status status = jinja_parse(&template, "test", source, bytes);
  if (status == STATUS_OK) status = jinja_render(template, variables, limits, text, size);
  jinja_free(template);
  return status;
}

/* The template of a case: its own, one of those that several share ("of"), or its name. */
static const json_t *source_of(const json_t *all, const json_t *row) {
  const json_t *own = json_object_get(row, "template"), *of = json_object_get(row, "of");
  return own ? own : of ? json_object_get(json_object_get(all, "templates"), json_string_value(of)) : json_object_get(row, "name");
}

static bool case_holds(const json_t *all, const json_t *row) {
  const json_t *source = source_of(all, row), *variables = json_object_get(all, "variables"), *own = json_object_get(row, "variables"),
               *wanted = json_object_get(row, "text");
  const char *name = json_string_value(json_object_get(row, "name"));
  char *text;
  size_t size = 0;
  Status status = render(json_string_value(source), json_string_length(source), own ? own : variables, &jinja_limits, &text, &size);
  bool right = wanted ? status == STATUS_OK && size == json_string_length(wanted) && memcmp(text, json_string_value(wanted), size) == 0
                      : status != STATUS_OK && strncmp(status_message(), "test, line ", 11) == 0;
  if (!right) {
    print_error("%s\n  wanted: %s\n  is:     %s\n", name,
                wanted ? json_string_value(wanted) : json_string_value(json_object_get(row, "refused")),
                status == STATUS_OK ? text : status_message());
  }
  free(text);
  return right;
}

static void cases_are_as_jinja_has_them(void **state) {
  (void)state;
  json_t *all = load_cases(), *row;
  size_t i, wrong = 0, count = json_array_size(json_object_get(all, "cases"));
  json_array_foreach(json_object_get(all, "cases"), i, row) wrong += !case_holds(all, row);
  json_decref(all);
  assert_true(count > 400);
  assert_int_equal(wrong, 0);
}

/* Renders without variables; the message of the failure, or NULL. */
static const char *refusal(const char *source, Status wanted) {
  json_t *none = json_object();
  char *text;
  size_t size;
  Status status = render(source, strlen(source), none, &jinja_limits, &text, &size);
  json_decref(none);
  free(text);
  assert_int_equal(status, wanted);
  return status == STATUS_OK ? NULL : status_message();
}

static void messages_name_line_and_word(void **state) {
  (void)state;
  assert_string_equal(refusal("a\n{% if true %}\n{{ 'x' | frobnicate }}{% endif %}", STATUS_UNSUPPORTED),
                      "test, line 3: the filter \"frobnicate\" is not supported");
  assert_string_equal(refusal("\n\n{% include 'x' %}", STATUS_UNSUPPORTED), "test, line 3: the tag \"include\" is not supported");
  assert_string_equal(refusal("{{ 1 is prime }}", STATUS_UNSUPPORTED), "test, line 1: the test \"prime\" is not supported");
  assert_string_equal(refusal("x\n{{ 'a'.encode() }}", STATUS_UNSUPPORTED),
                      "test, line 2: a string has no method \"encode\" that is supported");
  assert_string_equal(refusal("x\n{{ raise_exception('Roles must alternate') }}", STATUS_BAD_VALUE), "test, line 2: Roles must alternate");
  assert_string_equal(refusal("{{ 'a' | tojson(true) }}", STATUS_UNSUPPORTED),
                      "test, line 1: tojson with ensure_ascii=true is not supported; it writes all characters as they are");
  assert_string_equal(refusal("{{ [] | tojson(separators=',') }}", STATUS_BAD_VALUE),
                      "test, line 1: the separators of tojson are two strings, as in (', ', ': ')");
  assert_string_equal(refusal("{% for i in [1] %}\n\n{{ i.x.y }}{% endfor %}", STATUS_BAD_VALUE),
                      "test, line 3: \"x\" is undefined, so it has no \"y\"");
  assert_string_equal(refusal("{% if 1 %}\n{% for i in [] %}", STATUS_BAD_FILE),
                      "test, line 2: the template ends before \"else\" (opened in line 2)");
}

static void write_year(char year[8]) {
  time_t now = time(NULL);
  strftime(year, 8, "%Y", localtime(&now));
}

static void today_is_written(void **state) {
  (void)state;
  Jinja *template;
  json_t *none = json_object();
  char *text, before[8], after[8]; /* a year may end in between */
  size_t size;
  assert_int_equal(jinja_parse(&template, "test", "{{ strftime_now('%Y') }}", 24), STATUS_OK);
  write_year(before);
  assert_int_equal(jinja_render(template, none, &jinja_limits, &text, &size), STATUS_OK);
  write_year(after);
  assert_int_equal(size, 4);
  if (strcmp(text, before) != 0) assert_string_equal(text, after);
  free(text);
  jinja_free(template);
  json_decref(none);
}

static void hostile_templates_end(void **state) {
  (void)state;
  static const char *const endless[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
      "{{ ('x' * 1000000) * 1000000 }}",
      "{% set s = 'x' * 100000 %}{% for i in range(2000) %}{{ 'y'.strip(s) }}{% endfor %}",
      "{% set ns = namespace(l=[1, 2]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"};
  for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
    json_t *none = json_object();
    char *text;
    size_t size;
    Status status = render(endless[i], strlen(endless[i]), none, &jinja_limits, &text, &size);
    json_decref(none);
    free(text);
    if (status != STATUS_BAD_VALUE) fail_msg("%s: status %d", endless[i], (int)status);
  }
}

static void nesting_is_limited(void **state) {
  (void)state;
  enum { LEVELS = 20000 };
  static const char *const pieces[][3] = {{"{{ ", "(", "1"},
                                          {"{{ ", "[", "1"},
                                          {"{{ ", "not ", "1 }}"},
                                          {"{{ ", "-", "1 }}"},
                                          {"{{ 1", " + 1", " }}"},
                                          {"{{ m", ".m", " }}"},
                                          {"{{ ", "{'a': ", "1"},
                                          {"", "{% if 1 %}", ""},
                                          {"{{ 1", " ~ 1", " }}"},
                                          {"{{ 1", " if 1", " }}"},
                                          {"{{ 1", " < 1", " }}"},
                                          {"{{ 'a'", "|upper", " }}"},
                                          {"{% if 0 %}", "{% elif 0 %}", "{% endif %}"}};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    size_t size = strlen(pieces[i][0]), unit = strlen(pieces[i][1]);
    char *source = malloc(size + LEVELS * unit + 32), *text;
    memcpy(source, pieces[i][0], size);
    for (int j = 0; j < LEVELS; j++) memcpy(source + size + (size_t)j * unit, pieces[i][1], unit);
    strcpy(source + size + LEVELS * unit, pieces[i][2]);
    json_t *none = json_object();
    Status status = render(source, strlen(source), none, &jinja_limits, &text, &size);
    assert_true(status != STATUS_OK);
    json_decref(none);
    free(source);
  }
}

static void output_has_its_limit(void **state) {
  (void)state;
  json_t *none = json_object();
  JinjaLimits limits = jinja_limits;
  char *text;
  size_t size;
  limits.output = 10;
  assert_int_equal(render("0123456789", 10, none, &limits, &text, &size), STATUS_OK);
  free(text);
  assert_int_equal(render("0123456789x", 11, none, &limits, &text, &size), STATUS_BAD_VALUE);
  assert_null(text);
  json_decref(none);
}

/* What templates ask of a message, its length, a character, its beginning, takes no more than a look at it. */
static void long_texts_are_measured(void **state) {
  (void)state;
  static const char source[] = "{{ m|length }} {{ m[0] }}{{ m[-1] }}{{ m[2:4] }} {{ m[-2:] }}{% if m[4000000:] %}!{% endif %}";
  enum { BYTES = 4000000 };
  char *letters = malloc(BYTES + 1), *text;
  size_t size;
  memset(letters, 'a', BYTES);
  memcpy(letters,
         "\xc3\xa4"
         "bc",
         4);
  memcpy(letters + BYTES - 3, "y\xc3\xa4", 3);
  letters[BYTES] = '\0';
  json_t *variables = json_pack("{s:s}", "m", letters);
  assert_int_equal(render(source, sizeof source - 1, variables, &jinja_limits, &text, &size), STATUS_OK);
  assert_string_equal(text, "3999998 \xc3\xa4\xc3\xa4"
                            "ca y\xc3\xa4");
  free(text);
  json_decref(variables);
  free(letters);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cases_are_as_jinja_has_them), cmocka_unit_test(messages_name_line_and_word), cmocka_unit_test(today_is_written),
      cmocka_unit_test(hostile_templates_end),       cmocka_unit_test(nesting_is_limited),          cmocka_unit_test(output_has_its_limit),
      cmocka_unit_test(long_texts_are_measured)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
