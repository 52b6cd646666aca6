/* /v1/completions and /v1/chat/completions over real connections, with a scripted engine (fake_engine.h) behind them: forms of the answers,
 * log-probabilities, characters that come in pieces, stop strings, full queues, failures, clients that leave or read slowly, and the end of
 * the service. */
#include "unit/serve/service_fixture.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* As lm-eval's client asks: ids, echo, one new token that it throws away. */
static void echoes_with_logprobs(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  json_t *v = post(f, "/v1/completions",
                   "{\"prompt\": [[75, 76, 198], [90]], \"max_tokens\": 1, \"logprobs\": 2, \"echo\": true, \"temperature\": 0}", 200);
  check_part(v, "choices.0.text",
             "\"HI\xef\xbf\xbd"
             "a\"");
  check_part(v, "choices.0.logprobs.tokens", "[\"H\",\"I\",\"bytes:\\\\xc3\",\"a\"]");
  check_part(v, "choices.0.logprobs.token_logprobs", "[null,-0.76,-1.98,-1.0]");
  check_part(v, "choices.0.logprobs.top_logprobs.0", "null");
  check_part(v, "choices.0.logprobs.top_logprobs.1", "{\"I\":-0.76,\"J\":-0.77}");
  check_part(v, "choices.0.logprobs.text_offset", "[0,1,2,3]");
  check_part(v, "choices.1.logprobs.tokens", "[\"W\",\"a\"]");
  check_part(v, "choices.1.index", "1");
  check_part(v, "usage.prompt_tokens", "4");
  check_part(v, "usage.completion_tokens", "2");
  json_decref(v);
  v = post(f, "/v1/completions", "{\"prompt\": \"HI\", \"max_tokens\": 0, \"logprobs\": 0, \"echo\": true}", 200);
  check_part(v, "choices.0.finish_reason", "\"length\"");
  check_part(v, "usage.prompt_tokens", "3"); /* the beginning of a text is one */
  check_part(v, "usage.completion_tokens", "0");
  check_part(v, "choices.0.text", "\"HI\"");
  json_decref(v);
  finish(f);
}

/* The first word of a text has lost the space that its token begins with: it is one token all the same. */
static void first_words_are_listed_once(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  json_t *v = post(f, "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 0, \"logprobs\": 2, \"echo\": true}", 200);
  check_part(v, "choices.0.logprobs.tokens", "[\"\",\"Once\"]");
  check_part(v, "choices.0.logprobs.top_logprobs.1", "{\"Once\":-4.03,\" ne\":-4.04}");
  json_decref(v);
  finish(f);
}

/* What was predicted has a log-probability, the end token too: clients that rate texts take their lists of prompt and one token apart by
 * its place. It is no text and no new token, and of a chat no part of the message. */
static void end_tokens_have_logprobs(void **state) {
  (void)state;
  Fixture *f = start(letters, 0);
  f->engine.script_rounds = 1;
  f->engine.end = ENGINE_STOP;
  f->engine.end_token = 2;
  json_t *v =
      post(f, "/v1/completions", "{\"prompt\": [75, 76], \"max_tokens\": 1, \"logprobs\": 1, \"echo\": true, \"temperature\": 0}", 200);
  check_part(v, "choices.0.text", "\"HI\"");
  check_part(v, "choices.0.finish_reason", "\"stop\"");
  check_part(v, "choices.0.logprobs.tokens", "[\"H\",\"I\",\"\"]");
  check_part(v, "choices.0.logprobs.token_logprobs", "[null,-0.76,-0.02]");
  check_part(v, "choices.0.logprobs.top_logprobs.2", "{\"\":-0.02}");
  check_part(v, "choices.0.logprobs.text_offset", "[0,1,2]");
  check_part(v, "usage.completion_tokens", "0");
  json_decref(v);
  f->engine.script_count = 2;
  Answer answer = client_post(f->port, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 5, \"logprobs\": 0, \"stream\": true}");
  json_t *events = events_of(answer.body), *last = json_array_get(events, json_array_size(events) - 1);
  size_t tokens = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *choice = json_array_get(json_object_get(json_array_get(events, i), "choices"), 0);
    tokens += json_array_size(json_object_get(json_object_get(choice, "logprobs"), "tokens"));
  }
  assert_int_equal(tokens, 3);
  check_part(last, "choices.0.finish_reason", "\"stop\"");
  json_decref(events);
  answer_release(&answer);
  v = post(f, "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 5, \"logprobs\": true}",
           200);
  check_part(v, "choices.0.message.content", "\"ab\"");
  assert_int_equal(
      json_array_size(json_object_get(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs"), "content")), 2);
  check_part(v, "usage.completion_tokens", "2");
  json_decref(v);
  finish(f);
}

static void gives_logprobs_of_chats(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  const char asked[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 2, \"logprobs\": true, \"top_logprobs\": 1}";
  json_t *v = post(f, "/v1/chat/completions", asked, 200);
  check_part(v, "choices.0.message", "{\"content\":\"ab\",\"role\":\"assistant\"}");
  check_part(v, "choices.0.logprobs.content.1",
             "{\"token\":\"b\",\"logprob\":-1.01,\"bytes\":[98],\"top_logprobs\":[{\"token\":\"b\",\"logprob\":-1.01,\"bytes\":[98]}]}");
  check_part(v, "object", "\"chat.completion\"");
  json_decref(v);
  finish(f);
}

/* The bytes of a character are tokens of their own: none is shown before the last. What is no character becomes U+FFFD. */
static void streams_whole_characters(void **state) {
  (void)state;
  static const int32_t script[] = {BYTE + 0xe2, BYTE + 0x82, BYTE + 0xac, BYTE + 'x', BYTE + 0xff, BYTE + 0xc3};
  Fixture *f = start(script, 6);
  f->engine.script_rounds = 1;
  f->engine.end = ENGINE_STOP;
  Answer answer = client_post(f->port, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 20, \"stream\": true}");
  assert_int_equal(answer.status, 200);
  assert_non_null(strstr(answer.head, "text/event-stream"));
  json_t *events = events_of(answer.body);
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *choice = json_array_get(json_object_get(json_array_get(events, i), "choices"), 0);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", json_string_value(json_object_get(choice, "text")));
  }
  assert_string_equal(text, "\xe2\x82\xacx\xef\xbf\xbd\xef\xbf\xbd");
  check_part(json_array_get(events, json_array_size(events) - 1), "choices.0.finish_reason", "\"stop\"");
  assert_non_null(strstr(answer.body, "data: [DONE]\n\n"));
  json_decref(events);
  answer_release(&answer);
  finish(f);
}

/* So are those of a prompt, wherever its tokens are when a chunk is made; the last of them may end among the new tokens. */
static void echoes_whole_characters(void **state) {
  (void)state;
  enum { PIECES = 5 };
  static const int32_t script[] = {BYTE + 0xac, BYTE + 'x'};
  for (int held = 1; held <= PIECES; held++) {
    static char text[1 << 16];
    char joined[64] = "";
    Fixture *f = start(script, 2);
    f->engine.hold = true;
    f->engine.hold_echo = held;
    int fd = client_connect(f->port, 0);
    client_send_post(fd, "/v1/completions",
                     "{\"prompt\": [229, 133, 175, 229, 133], \"echo\": true, \"max_tokens\": 2, \"stream\": true}"); /* E2 82 AC E2 82 */
    wait_until(&f->engine.count, 1);
    client_sleep(0.1); /* for a chunk of what is there */
    fake_engine_set(&f->engine, false);
    for (size_t used = 0; !strstr(text, "[DONE]"); text[used] = 0) {
      ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
      assert_true(got > 0);
      used += (size_t)got;
    }
    json_t *events = events_of(text), *event;
    size_t i;
    json_array_foreach(events, i, event) {
      const char *piece = json_string_value(json_object_get(json_array_get(json_object_get(event, "choices"), 0), "text"));
      strncat(joined, piece, sizeof joined - 1 - strlen(joined));
      assert_true(piece[0] || i + 1 == json_array_size(events)); /* nothing new is no chunk */
    }
    assert_string_equal(joined, "\xe2\x82\xac\xe2\x82\xacx");
    json_decref(events);
    text[0] = 0;
    close(fd);
    finish(f);
  }
}

/* All chunks have the time of the request, and where usage is asked for, one has it and the others say that they have not. */
static void chunks_belong_together(void **state) {
  (void)state;
  static char text[1 << 16];
  for (int usage = 0; usage < 2; usage++) {
    Fixture *f = start(letters, 4);
    f->engine.hold = true;
    f->engine.hold_after = 1;
    int fd = client_connect(f->port, 0);
    client_send_post(fd, "/v1/completions",
                     usage ? "{\"prompt\": \"H\", \"max_tokens\": 2, \"stream\": true, \"stream_options\": {\"include_usage\": true}}"
                           : "{\"prompt\": \"H\", \"max_tokens\": 2, \"stream\": true}");
    wait_until(&f->engine.count, 1);
    client_sleep(1.1); /* times are whole seconds */
    fake_engine_set(&f->engine, false);
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used + 1 < sizeof text && !(used > 0 && strstr(text, "[DONE]")); used += (size_t)(got > 0 ? got : 0)) {
      got = recv(fd, text + used, sizeof text - 1 - used, 0);
      text[used + (size_t)(got > 0 ? got : 0)] = 0;
    }
    json_t *events = events_of(text);
    const size_t count = json_array_size(events);
    assert_true(count >= 2);
    for (size_t i = 0; i < count; i++) {
      const json_t *event = json_array_get(events, i), *its = json_object_get(event, "usage");
      assert_true(json_equal(json_object_get(event, "created"), json_object_get(json_array_get(events, 0), "created")));
      if (usage && i + 1 == count)
        check_part(event, "usage.completion_tokens", "2");
      else
        assert_true(usage ? json_is_null(its) : !its);
    }
    json_decref(events);
    close(fd);
    finish(f);
  }
}

/* It is found across tokens, nothing of it is shown, and the engine need not go on. */
static void stops_at_a_stop_string(void **state) {
  (void)state;
  for (int stream = 0; stream < 2; stream++) {
    Fixture *f = start(letters, 4);
    f->engine.hold = true;
    f->engine.hold_after = 8;
    char asked[256];
    snprintf(asked, sizeof asked, "{\"prompt\": \"H\", \"max_tokens\": 50, \"stop\": [\"cda\", \"zz\"], \"stream\": %s}",
             stream ? "true" : "false");
    Answer answer = client_post(f->port, "/v1/completions", asked);
    if (stream) {
      static const char piece[] = "\"text\":\""; /* not anywhere in the body: an id may have these letters, too */
      for (const char *at = answer.body; (at = strstr(at, piece)) != NULL;) {
        at += sizeof piece - 1;
        assert_true(strcspn(at, "c") > strcspn(at, "\""));
      }
      assert_non_null(strstr(answer.body, "\"finish_reason\":\"stop\""));
      answer_release(&answer);
    } else {
      json_t *v = parse(&answer, 200);
      check_part(v, "choices.0.text", "\"ab\"");
      check_part(v, "choices.0.finish_reason", "\"stop\"");
      json_decref(v);
    }
    wait_until(&f->engine.ended, 1); /* the answer need not wait for the engine */
    assert_int_equal(f->engine.enough, 1);
    assert_int_equal(f->engine.cancelled, 0);
    answer = client_get(f->port, "/metrics"); /* a text like those that the model ends */
    assert_non_null(strstr(answer.body, "\nastra_generation_seconds_count 1\n"));
    answer_release(&answer);
    finish(f);
  }
}

static void passes_sampling_on(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  json_t *v =
      post(f, "/v1/completions",
           "{\"prompt\": \"H\", \"max_tokens\": 1000, \"n\": 2, \"temperature\": 0.5, \"top_p\": 0.25, \"top_k\": 7, \"min_p\": 0.125, "
           "\"repetition_penalty\": 1.5, \"frequency_penalty\": -1, \"presence_penalty\": 2, \"logit_bias\": {\"5\": -100}, \"seed\": 9}",
           200);
  const Sampling *s = &f->engine.jobs[1].text.sampling;
  assert_true(s->temperature == 0.5 && s->top_p == 0.25 && s->top_k == 7 && s->min_p == 0.125 && s->repetition_penalty == 1.5);
  assert_true(s->frequency_penalty == -1 && s->presence_penalty == 2 && s->seed == 9 && s->stream == 1);
  assert_true(s->biases == 1 && s->bias[0].id == 5 && s->bias[0].add == -100);
  assert_int_equal(s->max, CONTEXT - f->engine.jobs[1].text.count); /* no more than there is room for */
  assert_int_equal(s->vocabulary, VOCABULARY_SIZE);
  assert_true(s->ends > 0 && f->engine.jobs[1].text.top == -1);
  json_decref(v);
  finish(f);
}

/* What the service says can be sent back to it: no request may hold a NUL. */
static void answers_hold_no_nul(void **state) {
  (void)state;
  static const int32_t ids[] = {BYTE + 'a', BYTE, BYTE + 'b'};
  Fixture *f = start(ids, 3);
  json_t *v = post(f, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 3, \"temperature\": 0, \"logprobs\": 1}", 200);
  check_part(v, "choices.0.text",
             "\"a\xef\xbf\xbd"
             "b\"");
  check_part(v, "choices.0.logprobs.tokens", "[\"a\",\"bytes:\\\\x00\",\"b\"]");
  json_decref(v);
  v = post(f, "/detokenize", "{\"tokens\": [100, 3]}", 200);
  check_part(v, "prompt", "\"a\xef\xbf\xbd\"");
  json_decref(v);
  finish(f);
}

/* null is as if a field were not there, as in all requests. */
static void fields_of_tokenize_may_be_null(void **state) {
  (void)state;
  static const struct {
    const char *body, *tokens, *param; /* one of them */
  } cases[] = {
      {"{\"prompt\": \"a\"}", "[1,261]", NULL},
      {"{\"prompt\": \"a\", \"messages\": null, \"add_special_tokens\": null, \"add_special\": null, \"parse_special\": null}", "[1,261]",
       NULL},
      {"{\"prompt\": null, \"content\": null, \"text\": \"a\"}", "[1,261]", NULL},
      {"{\"content\": \"a\", \"add_special_tokens\": null}", "[261]", NULL},
      {"{\"content\": \"a\", \"add_special_tokens\": null, \"add_special\": true}", "[1,261]", NULL},
      {"{\"prompt\": \"a\", \"add_special_tokens\": false, \"add_special\": true}", "[261]", NULL},
      {"{\"prompt\": \"a\", \"add_special_tokens\": 1}", NULL, "\"add_special_tokens\""},
      {"{\"content\": \"a\", \"add_special\": \"yes\"}", NULL, "\"add_special\""},
      {"{\"prompt\": \"a\", \"parse_special\": 0}", NULL, "\"parse_special\""},
      {"{\"prompt\": null, \"parse_special\": true}", NULL, "\"prompt\""},
      {"{\"content\": 5}", NULL, "\"prompt\""},
  };
  Fixture *f = start(letters, 4);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *v = post(f, "/tokenize", cases[i].body, cases[i].tokens ? 200 : 400);
    check_part(v, cases[i].tokens ? "tokens" : "error.param", cases[i].tokens ? cases[i].tokens : cases[i].param);
    json_decref(v);
  }
  finish(f);
}

static void allow_long(HttpOptions *options) { options->max_body = 1 << 20; }

/* Cutting a long text into tokens takes time and 44 bytes of memory for each of its own: what cannot fit into the context is not cut. */
static void long_texts_are_not_encoded(void **state) {
  (void)state;
  enum { MOST = 512 * CONTEXT + 511, MESSAGES = 6 * 512 * (CONTEXT + 1) };
  static const char *const paths[] = {"/tokenize", "/v1/completions"};
  Fixture *f = start_with(letters, 4, allow_long);
  char *body = malloc(MESSAGES + 256), *text = malloc(MESSAGES + 1);
  memset(text, 'a', MESSAGES);
  for (int i = 0; i < 2; i++) {
    snprintf(body, MESSAGES + 256, "{\"prompt\": \"%.*s\"}", MOST + 1, text);
    json_t *v = post(f, paths[i], body, 400);
    check_part(v, "error.code", "\"context_length_exceeded\"");
    check_part(v, "error.param", "\"prompt\"");
    json_decref(v);
  }
  snprintf(body, MESSAGES + 256, "{\"content\": \"%.*s\"}", MOST, text); /* tokens are bytes here, and may be more than the context has */
  json_t *v = post(f, "/tokenize", body, 200);
  assert_true(json_array_size(json_object_get(v, "tokens")) > CONTEXT);
  json_decref(v);
  snprintf(body, MESSAGES + 256, "{\"messages\": [{\"role\": \"user\", \"content\": \"%.*s\"}]}", MESSAGES, text);
  v = post(f, "/tokenize", body, 400);
  check_part(v, "error.code", "\"context_length_exceeded\"");
  check_part(v, "error.param", "\"messages\"");
  json_decref(v);
  free(text);
  free(body);
  finish(f);
}

/* Of malloc; not known, and 0, with sanitizers and other libraries than glibc 2.33 and later. */
static size_t memory_in_use(void) {
#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
  return mallinfo2().uordblks;
#endif
#endif
  return 0;
}

/* What a body became, fields that nobody knows among it, is not kept while the request waits: many times the memory of the body, of which
 * alone there is a limit. Stop strings are. */
static void requests_that_wait_hold_no_json(void **state) {
  (void)state;
  enum { OBJECTS = 15000, WAITING = 4 };
  static char body[4 * OBJECTS + 200], text[sizeof body + 200], answer[4000];
  Fixture *f = start(letters, 4);
  int fds[WAITING];
  f->engine.hold = true;
  int used = snprintf(body, sizeof body, "{\"prompt\": \"H\", \"max_tokens\": 8, \"stop\": [\"zz\", \"da\"], \"unknown\": [{}");
  for (int i = 0; i < OBJECTS; i++) used += snprintf(body + used, sizeof body - (size_t)used, ",{}");
  snprintf(body + used, sizeof body - (size_t)used, "]}");
  snprintf(
      text, sizeof text,
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
      strlen(body), body);
  const size_t before = memory_in_use();
  for (int i = 0; i < WAITING; i++) {
    fds[i] = client_connect(f->port, 0);
    client_send(fds[i], text);
    wait_until(&f->engine.count, i + 1);
  }
  const size_t after = memory_in_use(); /* the bodies, of up to 128 KB each */
  if (after > before + (size_t)WAITING * 300000) fail_msg("%zu bytes", after - before);
  fake_engine_set(&f->engine, false);
  for (int i = 0; i < WAITING; i++) {
    client_drain(fds[i], answer, sizeof answer);
    if (!strstr(answer, "\"text\":\"abc\"") || !strstr(answer, "\"finish_reason\":\"stop\"")) fail_msg("%s", answer);
    close(fds[i]);
  }
  finish(f);
}

static ChatTemplate *template_of(const char *source) {
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 32];
  ChatTemplate *template;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
  assert_int_equal(files_write(path, source, strlen(source)), STATUS_OK);
  assert_int_equal(chat_template_open(&template, folder, NULL), STATUS_OK);
  return template;
}

/* It is the client's to send less. */
static void chats_beyond_the_template_are_refused(void **state) {
  (void)state;
  static const char source[] =
      "{% for m in messages %}{% for a in m.content %}{% for b in m.content %}{% endfor %}{% endfor %}{% endfor %}";
  static const char *const paths[] = {"/tokenize", "/v1/chat/completions"};
  enum { LENGTH = 3000 };
  char body[LENGTH + 128];
  ChatTemplate *quadratic = template_of(source);
  Fixture *f = start(letters, 4);
  f->service.models[0].chat = quadratic;
  snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"%0*d\"}]}", (int)LENGTH, 0);
  for (int i = 0; i < 2; i++) {
    json_t *v = post(f, paths[i], body, 400);
    check_part(v, "error.code", "\"invalid_value\"");
    check_part(v, "error.param", "\"messages\"");
    json_decref(v);
  }
  finish(f);
  chat_template_free(quadratic);
}

/* A template may write many times what it is given. */
static void long_chats_are_not_encoded(void **state) {
  (void)state;
  static const char source[] = "{% for i in range(100) %}{{ messages[0].content }}{% endfor %}";
  static const char *const paths[] = {"/tokenize", "/v1/chat/completions"};
  enum { LENGTH = 400, MOST = (512 * CONTEXT + 511) / 100 };
  char body[LENGTH + 128];
  ChatTemplate *longer = template_of(source);
  Fixture *f = start(letters, 4);
  f->service.models[0].chat = longer;
  snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"%0*d\"}]}", (int)LENGTH, 0);
  for (int i = 0; i < 2; i++) {
    json_t *v = post(f, paths[i], body, 400);
    check_part(v, "error.code", "\"context_length_exceeded\"");
    check_part(v, "error.param", "\"messages\"");
    check_part(v, "error.message",
               "\"messages, as the chat template writes them: a text of 40000 bytes; the context has room for 64 tokens\"");
    json_decref(v);
  }
  snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"%0*d\"}]}", (int)MOST, 0);
  json_decref(post(f, "/tokenize", body, 200)); /* tokens may have that many bytes */
  finish(f);
  chat_template_free(longer);
}

/* Each id may stand for many bytes: as many as the context has are decoded, and no more. */
static void long_lists_are_not_decoded(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  char body[8 * CONTEXT], wanted[CONTEXT + 3] = "\"";
  memset(wanted + 1, 'a', CONTEXT);
  wanted[CONTEXT + 1] = '"';
  for (int count = CONTEXT; count <= CONTEXT + 1; count++) {
    const bool fits = count <= CONTEXT;
    int used = snprintf(body, sizeof body, "{\"tokens\": [%d", BYTE + 'a');
    for (int i = 1; i < count; i++) used += snprintf(body + used, sizeof body - (size_t)used, ", %d", BYTE + 'a');
    snprintf(body + used, sizeof body - (size_t)used, "]}");
    json_t *v = post(f, "/detokenize", body, fits ? 200 : 400);
    check_part(v, fits ? "prompt" : "error.code", fits ? wanted : "\"context_length_exceeded\"");
    check_part(v, fits ? "content" : "error.param", fits ? wanted : "\"tokens\"");
    json_decref(v);
  }
  finish(f);
}

static void a_full_queue_refuses(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.queue_max = 0;
  for (int deserted = 0; deserted < 2; deserted++) {
    f->engine.state.deserted = deserted;
    for (int stream = 0; stream < 2; stream++) {
      Answer answer = client_post(f->port, "/v1/completions", stream ? "{\"prompt\": \"H\", \"stream\": true}" : "{\"prompt\": \"H\"}");
      assert_non_null(strstr(answer.head, "Retry-After: 7"));
      json_t *v = parse(&answer, 503);
      check_part(v, "error.code", deserted ? "\"no_device\"" : "\"queue_full\"");
      json_decref(v);
    }
  }
  finish(f);
}

/* However slow the server is to fill the queue, the engine does not empty it before: it goes on when the queue is full, or after 10 s. */
static void *release_when_full(void *argument) {
  Engine *engine = argument;
  for (int i = 0; i < 1000 && engine->max_queued < engine->queue_max; i++) client_sleep(0.01);
  fake_engine_set(engine, false);
  return NULL;
}

/* More texts than the queue takes: each goes to the engine when another one has ended. */
static void large_requests_take_turns(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.queue_max = 3;
  f->engine.hold = true;
  pthread_t thread;
  pthread_create(&thread, NULL, release_when_full, &f->engine);
  json_t *v = post(f, "/v1/completions", "{\"prompt\": [\"H\", \"I\"], \"n\": 40, \"max_tokens\": 5}", 200);
  assert_int_equal(json_array_size(json_object_get(v, "choices")), 80);
  pthread_join(thread, NULL);
  check_part(v, "choices.79.text", "\"abcda\"");
  check_part(v, "usage.completion_tokens", "400");
  assert_int_equal(f->engine.max_queued, 3);
  json_decref(v);
  wait_until(&f->engine.ended, 80); /* the answer may be there before the engine has noted the last one's end */
  f->engine.queue_max = FAKE_JOBS;
  f->engine.max_queued = 0;
  fake_engine_set(&f->engine, true);
  f->engine.hold_after = 0;
  int fd = client_connect(f->port, 0);
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"n\": 100, \"max_tokens\": 5}");
  wait_until(&f->engine.max_queued, COMPLETION_JOBS);
  client_sleep(0.1);
  assert_int_equal(f->engine.max_queued, COMPLETION_JOBS);
  close(fd);
  wait_until(&f->engine.cancelled, 1);
  finish(f);
}

static void *ask_for_texts(void *context) {
  Fixture *f = context;
  Answer *answer = malloc(sizeof *answer);
  *answer = client_post(f->port, "/v1/completions", "{\"prompt\": \"H\", \"n\": 3, \"max_tokens\": 2}");
  return answer;
}

/* The queue is for requests that are new: one that was let in goes on, however long others make it. */
static void what_was_let_in_goes_on(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  pthread_t thread;
  void *answer;
  f->engine.queue_max = 1;
  f->engine.hold = true;
  pthread_create(&thread, NULL, ask_for_texts, f);
  wait_until(&f->engine.count, 1);
  f->engine.queue_max = 0;
  json_decref(post(f, "/v1/completions", "{\"prompt\": \"H\"}", 503));
  fake_engine_set(&f->engine, false);
  pthread_join(thread, &answer);
  json_t *v = parse(answer, 200);
  check_part(v, "usage.completion_tokens", "6");
  json_decref(v);
  free(answer);
  finish(f);
}

static void failures_are_told(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.failure = "device 1 is gone";
  json_t *v = post(f, "/v1/completions", "{\"prompt\": \"H\"}", 500);
  check_part(v, "error.message", "\"device 1 is gone\"");
  json_decref(v);
  f->engine.hold = true;
  f->engine.hold_after = 2;
  int fd = client_connect(f->port, 0);
  static char text[1 << 16];
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"stream\": true}");
  size_t used = 0;
  while (used + 1 < sizeof text) {
    ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
    if (got <= 0) break;
    text[used += (size_t)got] = 0;
    if (strstr(text, "200 OK")) fake_engine_set(&f->engine, false); /* the stream has begun */
    if (strstr(text, "[DONE]")) break;
  }
  assert_non_null(strstr(text, "200 OK"));
  assert_non_null(strstr(text, "device 1 is gone"));
  close(fd);
  finish(f);
}

/* It may pass: the client is told to come back, or to ask for less. */
static void lack_of_memory_may_pass(void **state) {
  (void)state;
  static const char wanted[] = "\"the service is short of memory: try again later, or ask for less at once: no memory for another job\"";
  Fixture *f = start(letters, 4);
  char bytes[128];
  const char *fields[] = {"Content-Type: image/x-portable-pixmap", NULL};
  f->engine.no_memory = f->images.no_memory = true;
  for (int i = 0; i < 3; i++) {
    static const char *const body[] = {"{\"prompt\": \"H\"}", "{\"prompt\": \"H\", \"stream\": true}"};
    Answer answer = i < 2 ? client_post(f->port, "/v1/completions", body[i])
                          : client_ask(f->port, NULL, "/v1/images/classify", fields, bytes, make_image(10, bytes, sizeof bytes));
    assert_non_null(strstr(answer.head, "Retry-After: 7"));
    json_t *v = parse(&answer, 503);
    check_part(v, "error.message", wanted);
    json_decref(v);
  }
  f->engine.no_memory = false;
  json_decref(post(f, "/v1/completions", "{\"prompt\": \"H\"}", 200));
  finish(f);
}

static void clients_that_leave_cancel(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.hold = true;
  f->engine.hold_after = 3;
  for (int i = 0; i < 4; i++) {
    int fd = client_connect(f->port, 0);
    client_send_post(fd, "/v1/completions",
                     i % 2 ? "{\"prompt\": \"H\", \"max_tokens\": 40}" : "{\"prompt\": \"H\", \"max_tokens\": 40, \"stream\": true}");
    wait_until(&f->engine.count, i + 1);
    client_sleep(0.05);
    close(fd);
    wait_until(&f->engine.cancelled, i + 1);
  }
  for (int i = 0; i < 300 && http_counts(f->service.http).requests > 0; i++) client_sleep(0.01);
  assert_int_equal(http_counts(f->service.http).requests, 0);
  finish(f);
}

static void late_answers_end(void **state) {
  (void)state;
  Fixture *f = start_with(letters, 4, limit_time);
  f->engine.hold = true;
  f->engine.hold_after = 3;
  json_t *v = post(f, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 40}", 503);
  json_decref(v);
  Answer answer = client_post(f->port, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 40, \"stream\": true}");
  assert_int_equal(answer.status, 200);
  assert_non_null(strstr(answer.body, "request-timeout"));
  answer_release(&answer);
  wait_until(&f->engine.cancelled, 2);
  finish(f);
}

/* Of a client that reads nothing the tokens that wait are limited; what came meanwhile is one event when it reads on. */
static void slow_readers_get_it_in_one(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->service.models[0].tokens_max = 100000;
  f->engine.hold = true;
  f->engine.hold_after = 1;
  static char text[1 << 20];
  int fd = client_connect(f->port, 2048);
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 90000, \"stream\": true}");
  wait_until(&f->engine.count, 1);
  fake_engine_set(&f->engine, false);
  wait_until(&f->engine.ended, 1);
  size_t used = 0;
  while (used + 1 < sizeof text) {
    ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
    if (got <= 0) break;
    text[used += (size_t)got] = 0;
    if (used > 6 && strstr(text + (used > 4096 + (size_t)got ? used - 4096 - (size_t)got : 0), "[DONE]")) break;
  }
  int events = 0, found = 0;
  for (const char *at = text; (at = strstr(at, "data: {")); at++) events++;
  for (const char *at = text; *at; at++) found += *at == 'b' && at[1] == 'c';
  assert_true(found > 20000); /* all of it came (chunks cut some) */
  assert_true(events < 45000);
  close(fd);
  finish(f);
}

static void drains(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.hold = true;
  f->engine.hold_after = 1;
  int fd = client_connect(f->port, 0), other = client_connect(f->port, 0);
  static char text[1 << 16];
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 4}");
  client_send(other, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
  assert_true(recv(other, text, sizeof text, 0) > 0);
  assert_non_null(strstr(text, "200 OK"));
  wait_until(&f->engine.count, 1);
  http_drain(f->service.http);
  client_send_post(other, "/v1/completions", "{\"prompt\": \"H\"}");
  assert_true(client_drain(other, text, sizeof text) > 0);
  assert_non_null(strstr(text, "503"));
  assert_int_equal(client_connect(f->port, 0), -1);
  fake_engine_set(&f->engine, false);
  client_drain(fd, text, sizeof text);
  assert_non_null(strstr(text, "200 OK"));
  assert_non_null(strstr(text, "\"abcd\""));
  close(fd);
  close(other);
  finish(f);
}

/* A service that drains gives requests their time: that it was too short is not the shutdown's doing. */
static void late_answers_while_draining_are_late(void **state) {
  (void)state;
  static char text[1 << 16];
  Fixture *f = start_with(letters, 4, limit_time);
  f->engine.hold = true;
  f->engine.hold_after = 1;
  int fd = client_connect(f->port, 0);
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 4, \"stream\": true}");
  wait_until(&f->engine.count, 1);
  http_drain(f->service.http);
  client_drain(fd, text, sizeof text);
  assert_non_null(strstr(text, "the answer was not complete within --request-timeout"));
  assert_null(strstr(text, "shutting down"));
  close(fd);
  finish(f);
}

static void expires(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.hold = true;
  static char text[1 << 16];
  int fd = client_connect(f->port, 0), events = client_connect(f->port, 0);
  client_send_post(fd, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 4}");
  client_send(events, "GET /v1/cluster/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  wait_until(&f->engine.count, 1);
  http_drain(f->service.http);
  http_expire(f->service.http);
  client_drain(fd, text, sizeof text);
  assert_non_null(strstr(text, "503"));
  assert_non_null(strstr(text, "shutting down"));
  client_drain(events, text, sizeof text);
  close(fd);
  close(events);
  finish(f);
}

/* ---- for those who operate it */

static void counts_and_tells(void **state) {
  (void)state;
  Fixture *f = start(letters, 4);
  f->engine.state.devices[0].state = ENGINE_DEVICE_JOINING;
  json_decref(post(f, "/v1/completions", "{\"prompt\": \"H\", \"max_tokens\": 3}", 200));
  json_decref(post(f, "/v1/completions", "{\"prompt\": 5}", 400));
  Answer answer = {0};
  for (int i = 0; i < 1000; i++) { /* a request is counted after its client has the answer */
    static const char last[] = "\nastra_http_requests_total{path=\"/v1/completions\",status=\"400\"} 1\n";
    answer_release(&answer);
    answer = client_get(f->port, "/metrics");
    if (strstr(answer.body, last)) break;
    client_sleep(0.01);
  }
  assert_non_null(strstr(answer.body, "\nastra_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n"));
  assert_non_null(strstr(answer.body, "\nastra_http_requests_total{path=\"/v1/completions\",status=\"400\"} 1\n"));
  assert_non_null(strstr(answer.body, "\nastra_time_to_first_token_seconds_bucket{le=\"0.0025\"} 1\n"));
  assert_non_null(strstr(answer.body, "\nastra_time_to_first_token_seconds_bucket{le=\"0.001\"} 0\n"));
  assert_non_null(strstr(answer.body, "\nastra_time_per_output_token_seconds_sum 0.004\n"));
  assert_non_null(strstr(answer.body, "\nastra_device_up{model=\"m\",device=\"0\",address=\"here\"} 0.5\n"));
  assert_non_null(strstr(answer.body, "\nastra_device_up{model=\"m\",device=\"1\",address=\"a\\\"b\\\\c\"} 0\n"));
  assert_non_null(strstr(answer.body, "\nastra_device_bytes_sent_total{model=\"m\",device=\"1\",address=\"a\\\"b\\\\c\"} 12345\n"));
  answer_release(&answer);
  answer = client_get(f->port, "/v1/cluster");
  json_t *v = parse(&answer, 200);
  check_part(v, "models.0.devices.1.state", "\"gone\"");
  check_part(v, "models.0.devices.1.bytes_sent", "12345");
  check_part(v, "models.0.devices.0.state", "\"joining\"");
  json_decref(v);
  f->engine.state.ready = false;
  answer = client_get(f->port, "/ready");
  json_decref(parse(&answer, 503));
  finish(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(echoes_with_logprobs),
                                     cmocka_unit_test(first_words_are_listed_once),
                                     cmocka_unit_test(end_tokens_have_logprobs),
                                     cmocka_unit_test(gives_logprobs_of_chats),
                                     cmocka_unit_test(streams_whole_characters),
                                     cmocka_unit_test(echoes_whole_characters),
                                     cmocka_unit_test(chunks_belong_together),
                                     cmocka_unit_test(stops_at_a_stop_string),
                                     cmocka_unit_test(passes_sampling_on),
                                     cmocka_unit_test(answers_hold_no_nul),
                                     cmocka_unit_test(fields_of_tokenize_may_be_null),
                                     cmocka_unit_test(long_texts_are_not_encoded),
                                     cmocka_unit_test(requests_that_wait_hold_no_json),
                                     cmocka_unit_test(chats_beyond_the_template_are_refused),
                                     cmocka_unit_test(long_chats_are_not_encoded),
                                     cmocka_unit_test(long_lists_are_not_decoded),
                                     cmocka_unit_test(a_full_queue_refuses),
                                     cmocka_unit_test(large_requests_take_turns),
                                     cmocka_unit_test(what_was_let_in_goes_on),
                                     cmocka_unit_test(failures_are_told),
                                     cmocka_unit_test(lack_of_memory_may_pass),
                                     cmocka_unit_test(clients_that_leave_cancel),
                                     cmocka_unit_test(late_answers_end),
                                     cmocka_unit_test(slow_readers_get_it_in_one),
                                     cmocka_unit_test(drains),
                                     cmocka_unit_test(late_answers_while_draining_are_late),
                                     cmocka_unit_test(expires),
                                     cmocka_unit_test(counts_and_tells)};
  return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
