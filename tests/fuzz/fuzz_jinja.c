/* Chat templates: any bytes as a template, parsed and, where that succeeds, rendered with a short conversation, under small limits. */
#include "fuzz/fuzz.h"
#include "serve/jinja.h"
#include <stdlib.h>

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be brief. \"}, {\"role\": \"user\", \"content\": \"H\\u00e9llo, 'w\\\"orld\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"abcdefghi\", \"function\": {\"name\": \"f\", \"arguments\": "
    "{\"x\": 1.5, \"y\": [true, null]}}}]}, {\"role\": \"assistant\", \"content\": \"It is 7.\"}, {\"role\": \"user\", \"content\": "
    "\"Bye\"}],"
    "\"tools\": null, \"bos_token\": \"<s>\","
    "\"eos_token\": \"</s>\", \"add_generation_prompt\": true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const JinjaLimits limits = {20000, 1 << 20, 1 << 16};
  json_t *variables = json_loads(conversation, 0, NULL);
  Jinja *template;
  if (!variables) abort();
  if (jinja_parse(&template, "fuzz", (const char *)data, size) == STATUS_OK) {
    char *text;
    size_t length;
    if (jinja_render(template, variables, &limits, &text, &length) == STATUS_OK && (length > limits.output || text[length] != '\0'))
      abort();
    free(text);
  }
  jinja_free(template);
  json_decref(variables);
  return 0;
}
