/* Fields of requests: what each becomes, its default, and which name is given where its type or value is wrong. */
#include "serve/completion_request.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text) {
  json_t *root;
  if (completion_request_json(text, strlen(text), &root) != STATUS_OK) fail_msg("%s: %s", text, status_message());
  return root;
}

static void check_refused(bool chat, const char *text, const char *name) {
  CompletionRequest request;
  char param[REQUEST_PARAM];
  json_t *root = parse(text);
  Status status = completion_request_read(&request, root, chat, param);
  if (status != STATUS_BAD_VALUE) fail_msg("%s is accepted", text);
  if (strcmp(param, name) != 0) fail_msg("%s: %s is named, not %s", text, param, name);
  completion_request_release(&request);
  json_decref(root);
}

static void check_accepted(bool chat, const char *text, void (*check)(const CompletionRequest *request)) {
  CompletionRequest request;
  char param[REQUEST_PARAM];
  json_t *root = parse(text);
  if (completion_request_read(&request, root, chat, param) != STATUS_OK) fail_msg("%s: %s", text, status_message());
  if (check) check(&request);
  completion_request_release(&request);
  json_decref(root);
}

static void check_defaults(const CompletionRequest *r) {
  assert_true(r->n == 1 && r->max_tokens == 16 && r->top == -1 && r->stop_count == 0 && !r->stream && !r->echo && !r->special &&
              !r->seeded && !r->model);
  assert_true(r->sampling.temperature == 1 && r->sampling.top_p == 1 && r->sampling.top_k == 0 && r->sampling.min_p == 0);
  assert_true(r->sampling.repetition_penalty == 1 && r->sampling.frequency_penalty == 0 && r->sampling.presence_penalty == 0);
  assert_true(r->sampling.biases == 0 && r->prompt_count == 1 && strcmp(r->prompts[0].text, "a") == 0);
}

static void check_all(const CompletionRequest *r) {
  assert_true(r->n == 3 && r->max_tokens == 7 && r->top == 5 && r->stop_count == 2 && r->stream && r->include_usage && r->echo &&
              r->special && r->seeded);
  assert_string_equal(r->model, "m");
  assert_string_equal(r->stops[1], "y");
  assert_true(r->sampling.temperature == 0 && r->sampling.top_p == 0.5 && r->sampling.top_k == 0 && r->sampling.seed == (uint64_t)-4);
  assert_true(r->prompt_count == 2 && r->prompts[1].count == 2 && r->prompts[1].ids[1] == 4);
}

static void check_chat(const CompletionRequest *r) {
  assert_true(r->chat && r->max_tokens == 9 && r->top == 0 && json_array_size(r->messages) == 2);
}

static void reads_fields(void **state) {
  (void)state;
  check_accepted(false, "{\"prompt\": \"a\"}", check_defaults);
  check_accepted(false,
                 "{\"prompt\": \"a\", \"n\": null, \"stop\": null, \"temperature\": null, \"logit_bias\": null, \"logprobs\": null, "
                 "\"stream_options\": null, "
                 "\"tools\": null, \"tool_choice\": null, \"modalities\": null, \"web_search_options\": null, \"suffix\": null, \"user\": "
                 "\"me\", \"unknown\": [{}], \"model\": null, \"echo\": null, \"best_of\": 1}",
                 check_defaults);
  check_accepted(false,
                 "{\"prompt\": [[1, 2], [3, 4]], \"n\": 3, \"best_of\": 3, \"max_tokens\": 7, \"logprobs\": 5, \"stop\": [\"x\", \"\", "
                 "\"y\"], \"stream\": "
                 "true, \"stream_options\": {\"include_usage\": true}, \"echo\": true, \"parse_special\": true, \"seed\": -4, \"model\": "
                 "\"m\", \"temperature\": 0, "
                 "\"top_p\": 0.5, "
                 "\"top_k\": -1, \"tools\": [], \"tool_choice\": \"none\", \"function_call\": \"auto\", \"modalities\": [\"text\"], "
                 "\"suffix\": \"\", \"response_format\": {\"type\": \"text\"}}",
                 check_all);
  check_accepted(true,
                 "{\"messages\": [{\"role\": \"system\", \"content\": null}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                 "\"text\": \"a\"}]}], "
                 "\"max_tokens\": 5, \"max_completion_tokens\": 9, \"logprobs\": true}",
                 check_chat);
  check_accepted(false, "{\"prompt\": \"\", \"max_tokens\": 0, \"logprobs\": false, \"n\": 2.0}", NULL);
  check_accepted(false, "{\"prompt\": [\"a\", \"b\"]}", NULL);
}

static void names_what_is_wrong(void **state) {
  (void)state;
  static const struct {
    const char *text, *name;
  } texts[] = {{"{}", "prompt"},
               {"{\"prompt\": {}}", "prompt"},
               {"{\"prompt\": []}", "prompt"},
               {"{\"prompt\": [[]]}", "prompt"},
               {"{\"prompt\": [1, \"a\"]}", "prompt"},
               {"{\"prompt\": [\"a\", 1]}", "prompt"},
               {"{\"prompt\": [-1]}", "prompt"},
               {"{\"prompt\": [1, 3000000000]}", "prompt"},
               {"{\"prompt\": \"a\", \"model\": 5}", "model"},
               {"{\"prompt\": \"a\", \"max_tokens\": -1}", "max_tokens"},
               {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens"},
               {"{\"prompt\": \"a\", \"max_tokens\": \"5\"}", "max_tokens"},
               {"{\"prompt\": \"a\", \"temperature\": -0.1}", "temperature"},
               {"{\"prompt\": \"a\", \"temperature\": true}", "temperature"},
               {"{\"prompt\": \"a\", \"top_p\": 1.1}", "top_p"},
               {"{\"prompt\": \"a\", \"temperature\": 100.1}", "temperature"},
               {"{\"prompt\": \"a\", \"top_k\": -2}", "top_k"},
               {"{\"prompt\": \"a\", \"top_k\": 2147483648}", "top_k"},
               {"{\"prompt\": \"a\", \"min_p\": 1}", "min_p"},
               {"{\"prompt\": \"a\", \"repetition_penalty\": 0}", "repetition_penalty"},
               {"{\"prompt\": \"a\", \"frequency_penalty\": 3}", "frequency_penalty"},
               {"{\"prompt\": \"a\", \"presence_penalty\": -3}", "presence_penalty"},
               {"{\"prompt\": \"a\", \"logit_bias\": []}", "logit_bias"},
               {"{\"prompt\": \"a\", \"logit_bias\": {\"-1\": 1}}", "logit_bias"},
               {"{\"prompt\": \"a\", \"logit_bias\": {\"1\": 101}}", "logit_bias"},
               {"{\"prompt\": \"a\", \"logit_bias\": {\"1\": null}}", "logit_bias"},
               {"{\"prompt\": \"a\", \"seed\": 0.5}", "seed"},
               {"{\"prompt\": \"a\", \"n\": 0}", "n"},
               {"{\"prompt\": \"a\", \"n\": 257}", "n"},
               {"{\"prompt\": [\"a\", \"b\"], \"n\": 200}", "n"},
               {"{\"prompt\": \"a\", \"best_of\": 2}", "best_of"},
               {"{\"prompt\": \"a\", \"stop\": 5}", "stop"},
               {"{\"prompt\": \"a\", \"stop\": [5]}", "stop"},
               {"{\"prompt\": \"a\", \"logprobs\": 21}", "logprobs"},
               {"{\"prompt\": \"a\", \"logprobs\": true}", "logprobs"},
               {"{\"prompt\": \"a\", \"echo\": 1}", "echo"},
               {"{\"prompt\": \"a\", \"stream\": \"yes\"}", "stream"},
               {"{\"prompt\": \"a\", \"stream_options\": true}", "stream_options"},
               {"{\"prompt\": \"a\", \"stream_options\": {\"include_usage\": 1}}", "include_usage"},
               {"{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix"},
               {"{\"prompt\": \"a\", \"tools\": [{}]}", "tools"},
               {"{\"prompt\": \"a\", \"tool_choice\": \"required\"}", "tool_choice"},
               {"{\"prompt\": \"a\", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}", "tool_choice"},
               {"{\"prompt\": \"a\", \"function_call\": {\"name\": \"f\"}}", "function_call"},
               {"{\"prompt\": \"a\", \"web_search_options\": {}}", "web_search_options"},
               {"{\"prompt\": \"a\", \"modalities\": [\"text\", \"audio\"]}", "modalities"},
               {"{\"prompt\": \"a\", \"modalities\": [\"audio\"]}", "modalities"},
               {"{\"prompt\": \"a\", \"modalities\": \"text\"}", "modalities"},
               {"{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\"}}", "response_format"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_refused(false, texts[i].text, texts[i].name);
  check_refused(true, "{\"prompt\": \"a\"}", "messages");
  check_refused(true, "{\"messages\": []}", "messages");
  check_refused(true, "{\"messages\": {}}", "messages");
  check_refused(true, "{\"messages\": [5]}", "messages[0]");
  check_refused(true, "{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content");
  check_refused(true, "{\"messages\": [{\"content\": \"a\"}]}", "messages[0].role");
  check_refused(true, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": 5}]}",
                "messages[1].content");
  check_refused(true, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", "messages[0].content");
  check_refused(true, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 1}", "top_logprobs");
  check_refused(true, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": 1}", "logprobs");
  check_refused(true, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 0}", "max_tokens");
}

static void check_no_json(const char *text, size_t bytes) {
  json_t *root = (json_t *)&root;
  assert_int_equal(completion_request_json(text, bytes, &root), STATUS_BAD_VALUE);
  assert_null(root);
}

/* What is wrong, in words of this service and not of its library. */
static void says_what_is_wrong(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"{\"a\": \"b\\u0000\"}", "a NUL"},
                                         {"{\"a\\u0000\": 1}", "a NUL"},
                                         {"{\"a\": {\"b\": 1, \"b\": 2}}", "two fields of the same name"},
                                         {"{\"a\": 99999999999999999999}", "64 bits"},
                                         {"{\"a\": 1e999}", "64 bits"},
                                         {"null", "must be a JSON object"},
                                         {"5", "must be a JSON object"},
                                         {"nil", "is not JSON"},
                                         {"{\"a\": \"\\ud800\"}", "is not JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_no_json(cases[i][0], strlen(cases[i][0]));
    const bool called_none = strstr(status_message(), "not JSON") != NULL, library = strstr(status_message(), "JSON_") != NULL;
    if (!strstr(status_message(), cases[i][1]) || called_none != (i >= 7) || library) fail_msg("%s: %s", cases[i][0], status_message());
  }
}

static void bounds_json(void **state) {
  (void)state;
  static char text[4 << 20];
  check_no_json("", 0);
  check_no_json("[]", 2);
  check_no_json("{\"a\": 1, \"a\": 2}", 16);
  check_no_json("{\"a\": \"\xff\"}", 10);
  check_no_json("{\"a\": \"\\u0000\"}", 15);
  check_no_json("{} x", 4);
  memset(text, '[', sizeof text);
  check_no_json(text, sizeof text);
  assert_non_null(strstr(status_message(), "32 levels"));
  memcpy(text, "{\"a\":[", 6);
  for (size_t i = 6; i + 2 < sizeof text; i += 2) text[i] = '1', text[i + 1] = ',';
  check_no_json(text, sizeof text);
  assert_non_null(strstr(status_message(), "values"));
  /* What takes more memory counts more, and ids of as many tokens as any context has do not count more than one. */
  static const struct {
    const char *value;
    int count;
  } most[] = {{"1,", 1 << 20}, {"\"\",", 1 << 19}, {"[],", (1 << 20) / 3}, {"{},", (1 << 20) / 5}, {"{\"\":1},", (1 << 20) / 7}};
  for (size_t k = 0; k < sizeof most / sizeof *most; k++) {
    for (int more = 0; more < 2; more++) {
      const size_t length = strlen(most[k].value);
      size_t used = (size_t)sprintf(text, "{\"a\":[");
      for (int i = -10; i < (more ? 10 : -20) + most[k].count; i++, used += length) memcpy(text + used, most[k].value, length);
      used += (size_t)sprintf(text + used, "0]}");
      json_t *root = NULL;
      const Status status = completion_request_json(text, used, &root);
      if (status != (more ? STATUS_BAD_VALUE : STATUS_OK)) fail_msg("%s: %s", most[k].value, status_message());
      json_decref(root);
    }
  }
  /* Brackets and commas in a string are none. */
  memset(text, '[', 100000);
  memcpy(text, "{\"a\":\"\\\"", 8);
  memcpy(text + 99998, "\"}", 2);
  json_t *root;
  assert_int_equal(completion_request_json(text, 100000, &root), STATUS_OK);
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_fields), cmocka_unit_test(names_what_is_wrong),
                                     cmocka_unit_test(says_what_is_wrong), cmocka_unit_test(bounds_json)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
