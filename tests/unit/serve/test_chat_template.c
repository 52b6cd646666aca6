/* Chat templates beside a checkpoint: which one is taken, the tokens it may name, contents in parts, ChatML without one, and messages that
 * are refused. The language itself: test_jinja.c. */
#include "base/files.h"
#include "serve/chat_template.h"
#include "unit/gguf_writer.h"
#include "unit/nn/failing_json.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static char folder[TEMPORARY_PATH];

static void write_file(const char *name, const char *text) {
  char *path = files_join(folder, name);
  assert_int_equal(files_write(path, text, strlen(text)), STATUS_OK);
  free(path);
}

static int set_up(void **state) {
  (void)state;
  return make_temporary_folder(folder);
}

static int tear_down(void **state) {
  (void)state;
  return remove_tree(folder);
}

/* The text of messages in JSON; NULL where they are refused. The caller frees it. */
static char *render(const ChatTemplate *template, const char *json, bool prompt) {
  json_t *messages = json_loads(json, 0, NULL);
  char *text;
  assert_non_null(messages);
  (void)!chat_template_render(template, messages, prompt, &text, &(size_t){0});
  json_decref(messages);
  return text;
}

static void check_text(const char *name, const char *json, bool prompt, const char *wanted) {
  ChatTemplate *template;
  if (chat_template_open(&template, folder, name) != STATUS_OK) fail_msg("%s", status_message());
  char *text = render(template, json, prompt);
  if (!text) fail_msg("%s", status_message());
  assert_string_equal(text, wanted);
  free(text);
  chat_template_free(template);
}

static const char hello[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";

static void chatml_stands_in(void **state) {
  (void)state;
  ChatTemplate *template;
  check_text(NULL, hello, true, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  check_text(NULL, hello, false, "<|im_start|>user\nHi<|im_end|>\n");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  assert_string_equal(chat_template_stop(template), "<|im_end|>");
  chat_template_free(template);
  write_file("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": null}");
  check_text(NULL, hello, false, "<|im_start|>user\nHi<|im_end|>\n");
}

static void developers_speak_as_the_system(void **state) {
  (void)state;
  static const char developer[] =
      "[{\"role\": \"developer\", \"content\": \"Be brief\"}, {\"role\": \"user\", \"content\": \"developer\"}]";
  check_text(NULL, developer, false, "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\ndeveloper<|im_end|>\n");
  write_file("chat_template.jinja", "{# of a developer #}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
  check_text(NULL, developer, false, "system:Be brief;user:developer;");
  write_file("chat_template.jinja", "{% for m in messages if m.role == 'developer' %}{{ m.role }}:{{ m.content }};{% endfor %}");
  check_text(NULL, developer, false, "developer:Be brief;");
  write_file("chat_template.jinja", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
  check_text(NULL,
             "[{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]",
             false, "system:a\nb;");
}

static void template_names_tokens(void **state) {
  (void)state;
  ChatTemplate *template;
  write_file("tokenizer_config.json",
             "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"special\": true}, \"chat_template\":"
             "\"{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}"
             "{{ '>' if add_generation_prompt }}{{ tools is none }}{{ unk_token is defined }}\"}");
  check_text(NULL, hello, true, "<s>user:Hi</s>>TrueFalse");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  assert_null(chat_template_stop(template));
  chat_template_free(template);
}

static void named_templates_are_chosen(void **state) {
  (void)state;
  ChatTemplate *template;
  write_file("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", \"template\": \"tools\"}]}");
  check_text(NULL, hello, true, "plain");
  check_text("tool_use", hello, true, "tools");
  assert_int_equal(chat_template_open(&template, folder, "rag"), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "it has no chat template of the name rag: neither a file additional_chat_templates/NAME.jinja, "
                                           "nor one in chat_template of tokenizer_config.json"));
  assert_null(template);
  write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"only\", \"template\": \"one\"}]}");
  check_text(NULL, hello, true, "one");
}

/* transformers writes int(1e30) for a tokenizer without a limit, which fits no integer of 64 bits. */
static void a_length_without_a_limit_is_accepted(void **state) {
  (void)state;
  write_file("tokenizer_config.json",
             "{\"model_max_length\": 1000000000000000019884624838656, \"bos_token\": \"<s>\", \"chat_template\": \"{{ bos_token }}x\"}");
  check_text(NULL, hello, true, "<s>x");
}

static void file_of_its_own_comes_first(void **state) {
  (void)state;
  write_file("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": \"old\"}");
  write_file("chat_template.jinja", "{{ bos_token }}new\n");
  check_text(NULL, hello, true, "<s>new");
  check_text("default", hello, true, "<s>new");
}

/* As transformers saves them today; a list in tokenizer_config.json is of an earlier version. */
static void named_files_come_first(void **state) {
  (void)state;
  ChatTemplate *template;
  char *more = files_join(folder, "additional_chat_templates");
  assert_int_equal(files_make_dirs(more), STATUS_OK);
  free(more);
  write_file("tokenizer_config.json",
             "{\"bos_token\": \"<s>\", \"chat_template\": [{\"name\": \"default\", \"template\": \"old\"}, "
             "{\"name\": \"tools\", \"template\": \"old tools\"}, {\"name\": \"rag\", \"template\": \"old rag\"}]}");
  write_file("additional_chat_templates/tools.jinja", "{{ bos_token }}tools");
  write_file("additional_chat_templates/default.jinja", "another default");
  check_text(NULL, hello, true, "another default");
  write_file("chat_template.jinja", "{{ bos_token }}new");
  check_text(NULL, hello, true, "<s>new");
  check_text("default", hello, true, "<s>new");
  check_text("tools", hello, true, "<s>tools");
  check_text("rag", hello, true, "old rag");
  static const char *const paths[] = {"../chat_template", "/tools", "sub/tools", ".tools", "..", ""};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    assert_int_equal(chat_template_open(&template, folder, paths[i]), paths[i][0] ? STATUS_BAD_VALUE : STATUS_NOT_FOUND);
    assert_null(template);
  }
  assert_int_equal(chat_template_open(&template, folder, "../chat_template"), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "chat template ../chat_template: a name is wanted, no path"));
  write_file("additional_chat_templates/tools.jinja", "\n{% if %}");
  assert_int_equal(chat_template_open(&template, folder, "tools"), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "additional_chat_templates/tools.jinja: chat template, line 2: an expression is expected"));
}

static void gguf_files_have_their_own(void **state) {
  (void)state;
  static const char *const tokens[] = {"<unk>", "<s>", "</s>"};
  GgufWriter writer;
  ChatTemplate *template;
  char path[TEMPORARY_PATH + 16];
  gguf_writer_init(&writer);
  gguf_add_text(&writer, "tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}");
  gguf_add_text(&writer, "tokenizer.chat_template.rag", "rag");
  gguf_add_array(&writer, "tokenizer.ggml.tokens", 8, 3);
  for (int i = 0; i < 3; i++) gguf_put_text(&writer.entries, tokens[i], strlen(tokens[i]));
  gguf_add_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
  gguf_add_u32(&writer, "tokenizer.ggml.eos_token_id", 2);
  gguf_add_u32(&writer, "tokenizer.ggml.padding_token_id", 3); /* out of range */
  snprintf(path, sizeof path, "%s/model.gguf", folder);
  assert_true(gguf_writer_save(&writer, path));
  gguf_writer_release(&writer);
  assert_int_equal(chat_template_open(&template, path, NULL), STATUS_OK);
  char *text = render(template, hello, true);
  assert_string_equal(text, "<s>Hi</s>False");
  free(text);
  chat_template_free(template);
  assert_int_equal(chat_template_open(&template, path, "rag"), STATUS_OK);
  chat_template_free(template);
  assert_int_equal(chat_template_open(&template, path, "tools"), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "model.gguf: it has no chat template of the name tools"));
  gguf_writer_init(&writer);
  gguf_add_text(&writer, "tokenizer.chat_template", "a\xff");
  assert_true(gguf_writer_save(&writer, path));
  gguf_writer_release(&writer);
  assert_int_equal(chat_template_open(&template, path, NULL), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "model.gguf: a chat template or its name is not UTF-8"));
}

static void broken_templates_name_file_and_line(void **state) {
  (void)state;
  ChatTemplate *template;
  write_file("tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_BAD_FILE);
  assert_non_null(strstr(status_message(), "tokenizer_config.json: chat template, line 2: an expression is expected"));
  write_file("tokenizer_config.json", "{\"chat_template\": 5}");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_BAD_FILE);
  write_file("tokenizer_config.json", "{");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_BAD_FILE);
  assert_null(template);
}

static void parts_are_joined(void **state) {
  (void)state;
  check_text(NULL,
             "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]},"
             "{\"role\": \"assistant\", \"content\": null}]",
             false, "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n");
}

static void messages_of_another_form_are_refused(void **state) {
  (void)state;
  static const char *const bad[][2] = {
      {"[]", "at least one message"},
      {"{}", "at least one message"},
      {"[5]", "messages[0]: a message is an object"},
      {"[{\"content\": \"x\"}]", "messages[0]: a message is an object"},
      {"[{\"role\": 5, \"content\": \"x\"}]", "messages[0]: a message is an object"},
      {"[{\"role\": \"user\", \"content\": 5}]", "messages[0].content: a string"},
      {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}]", "messages[0].content[0]: only parts"}};
  ChatTemplate *template;
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *messages = json_loads(bad[i][0], 0, NULL);
    char *text;
    assert_int_equal(chat_template_render(template, messages, true, &text, &(size_t){0}), STATUS_BAD_VALUE);
    assert_null(text);
    if (!strstr(status_message(), bad[i][1])) fail_msg("%s: %s", bad[i][0], status_message());
    json_decref(messages);
  }
  chat_template_free(template);
}

/* Whichever allocation fails, that is said: the messages are right, and no text without a part of them is made. */
static void a_lack_of_memory_is_said(void **state) {
  (void)state;
  ChatTemplate *template;
  write_file("tokenizer_config.json",
             "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ bos_token }}{{ messages[0].role }}:{{ messages[0].content }}\"}");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  json_t *messages = json_loads("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}]", 0, NULL);
  bool failed = true;
  for (long allocations = 0; failed; allocations++) {
    char *text;
    failing_json_start(allocations);
    const Status status = chat_template_render(template, messages, true, &text, &(size_t){0});
    failed = failing_json_stop();
    assert_int_equal(status, failed ? STATUS_NO_MEMORY : STATUS_OK);
    if (text) assert_string_equal(text, "<s>user:Hi");
    free(text);
  }
  json_decref(messages);
  chat_template_free(template);
}

static void templates_refuse_messages(void **state) {
  (void)state;
  ChatTemplate *template;
  write_file("chat_template.jinja", "{% if messages[0].role != 'user' %}{{ raise_exception('A user begins') }}{% endif %}x");
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  char *text = render(template, "[{\"role\": \"assistant\", \"content\": \"Hi\"}]", true);
  assert_null(text);
  assert_string_equal(status_message(), "chat template, line 1: A user begins");
  chat_template_free(template);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(chatml_stands_in, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(developers_speak_as_the_system, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(template_names_tokens, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(named_templates_are_chosen, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(a_length_without_a_limit_is_accepted, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(file_of_its_own_comes_first, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(named_files_come_first, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(gguf_files_have_their_own, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(broken_templates_name_file_and_line, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(parts_are_joined, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(messages_of_another_form_are_refused, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(a_lack_of_memory_is_said, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(templates_refuse_messages, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
