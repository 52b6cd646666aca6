/* Fuzz target: the body of a request to /v1/completions and /v1/chat/completions. Holds: what is accepted is in range, whatever it says;
 * what is refused names a field, or is no JSON. */
#include "fuzz/fuzz.h"
#include "serve/completion_request.h"
#include <math.h>
#include <string.h>

static void check(const CompletionRequest *r) {
  const Sampling *s = &r->sampling;
  need(r->n >= 1 && r->n <= REQUEST_JOBS && r->max_tokens >= -1 && r->max_tokens <= INT32_MAX && r->top >= -1 && r->top <= REQUEST_TOP);
  need(isfinite(s->temperature) && s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p < 1 && s->top_k >= 0);
  need(s->repetition_penalty > 0 && isfinite(s->frequency_penalty) && isfinite(s->presence_penalty));
  need(s->biases >= 0 && s->biases <= SAMPLING_BIASES && r->stop_count >= 0 && r->stop_count <= REQUEST_STOPS);
  for (int i = 0; i < s->biases; i++) need(s->bias[i].id >= 0 && fabsf(s->bias[i].add) <= 100);
  for (int i = 0; i < r->stop_count; i++) need(r->stops[i][0] && strlen(r->stops[i]) <= REQUEST_STOP_BYTES);
  if (r->chat) {
    need(json_array_size(r->messages) > 0);
    return;
  }
  need(r->prompt_count >= 1 && (int64_t)r->prompt_count * r->n <= REQUEST_JOBS);
  for (int p = 0; p < r->prompt_count; p++) {
    const CompletionPrompt *prompt = &r->prompts[p];
    need(prompt->text ? strlen(prompt->text) == prompt->bytes : prompt->count > 0);
    for (int64_t i = 0; i < prompt->count; i++) need(prompt->ids[i] >= 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  json_t *root;
  if (completion_request_json((const char *)data, size, &root) != STATUS_OK) {
    need(root == NULL);
    return 0;
  }
  for (int chat = 0; chat < 2; chat++) {
    CompletionRequest request;
    char param[REQUEST_PARAM] = "";
    Status status = completion_request_read(&request, root, chat, param);
    if (status == STATUS_OK)
      check(&request);
    else
      need(status == STATUS_BAD_VALUE && param[0]);
    completion_request_release(&request);
  }
  json_decref(root);
  return 0;
}
