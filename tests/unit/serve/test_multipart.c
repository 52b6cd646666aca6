/* Forms: parts with their names, files and types, as browsers and curl write them; what is malformed or cut off. */
#include "serve/multipart.h"
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const char type[] = "multipart/form-data; charset=utf-8; boundary=\"A b\"";

static void check_refused(const char *content_type, const char *body) {
  MultipartPart parts[4];
  int count;
  if (multipart_parse(content_type, body, strlen(body), parts, 4, &count) != STATUS_BAD_VALUE) fail_msg("%s is accepted", body);
}

static void reads_parts(void **state) {
  (void)state;
  static const char body[] =
      "a preamble\r\n--A b\r\ncontent-disposition: form-data; name=\"a; name=b\"; filename=\"q\\\"u.png\"\r\nContent-Type: image/png; "
      "x\r\n\r\n"
      "data\r\n--A\r\n\r\n--A b \t\r\nContent-Disposition: form-data; filename=x; name=top\r\n\r\n\r\n--A b\r\n\r\n--\r\n--A b--\r\nan end";
  MultipartPart parts[4];
  int count;
  assert_int_equal(multipart_parse(type, body, sizeof body - 1, parts, 4, &count), STATUS_OK);
  assert_int_equal(count, 3);
  assert_string_equal(parts[0].name, "a; name=b");
  assert_string_equal(parts[0].file, "q\"u.png");
  assert_string_equal(parts[0].type, "image/png");
  assert_int_equal(parts[0].bytes, 11);
  assert_memory_equal(parts[0].data, "data\r\n--A\r\n", 11);
  assert_string_equal(parts[1].name, "top");
  assert_string_equal(parts[1].file, "x");
  assert_int_equal(parts[1].bytes, 0);
  assert_string_equal(parts[2].name, "");
  assert_int_equal(parts[2].bytes, 2);
}

static void reads_a_form_without_parts(void **state) {
  (void)state;
  MultipartPart parts[1];
  int count;
  assert_int_equal(multipart_parse(type, "--A b--", 7, parts, 1, &count), STATUS_OK);
  assert_int_equal(count, 0);
}

/* Nothing stands behind the last boundary, and no blank between parameters. */
static void reads_a_form_to_its_last_byte(void **state) {
  (void)state;
  static const char body[] = "--A\r\nContent-Disposition:form-data;name=n;filename=f\r\n\r\n1\r\n--A\r\n\r\n2\r\n--A--";
  MultipartPart parts[2];
  int count;
  assert_int_equal(multipart_parse("multipart/form-data;boundary=A", body, sizeof body - 1, parts, 2, &count), STATUS_OK);
  assert_int_equal(count, 2);
  assert_string_equal(parts[0].name, "n");
  assert_string_equal(parts[0].file, "f");
  for (int i = 0; i < 2; i++) assert_true(parts[i].bytes == 1 && parts[i].data[0] == '1' + i);
  for (size_t bytes = 0; bytes < sizeof body - 1; bytes++)
    assert_int_equal(multipart_parse("multipart/form-data;boundary=A", body, bytes, parts, 2, &count), STATUS_BAD_VALUE);
}

static void refuses_what_is_none(void **state) {
  (void)state;
  MultipartPart parts[2];
  int count;
  check_refused(type, "");
  check_refused(type, "--A b");
  check_refused(type, "--A b\r\n");
  check_refused(type, "--A b\r\nX: y\r\n");
  check_refused(type, "--A b\r\n\r\ndata");
  check_refused(type, "--A b\r\n\r\ndata\r\n--A b");
  check_refused(type, "--A bX\r\n\r\ndata\r\n--A b--");
  check_refused(type, "--A\r\n\r\ndata\r\n--A--");
  check_refused(NULL, "--A b--");
  check_refused("text/plain; boundary=A", "--A--");
  check_refused("multipart/form-data", "--A--");
  check_refused("multipart/form-data; boundary=", "----");
  check_refused("multipart/form-data; boundary=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                "--a--");
  static const char three[] = "--A b\r\n\r\n1\r\n--A b\r\n\r\n2\r\n--A b\r\n\r\n3\r\n--A b--";
  assert_int_equal(multipart_parse(type, three, sizeof three - 1, parts, 2, &count), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "more than 2 parts"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_parts), cmocka_unit_test(reads_a_form_without_parts),
                                     cmocka_unit_test(reads_a_form_to_its_last_byte), cmocka_unit_test(refuses_what_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
