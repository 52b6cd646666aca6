/* Fuzz target: the first words of another device, a greeting and a hello. Holds: what is accepted packs to the same bytes, and its name
 * ends and does nothing to a terminal. */
#include "infer/control/greeting.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int holds) {
  if (!holds) abort();
}

static void check_greeting(const uint8_t *data) {
  Greeting greeting;
  uint8_t again[GREETING_BYTES];
  if (greeting_parse(data, &greeting) != STATUS_OK) return;
  greeting_pack(&greeting, again);
  need(memcmp(again, data, GREETING_BYTES) == 0);
}

static void check_hello(const uint8_t *data) {
  Hello hello;
  uint8_t again[HELLO_BYTES];
  if (greeting_parse_hello(data, &hello) != STATUS_OK) return;
  greeting_pack_hello(&hello, again);
  need(memcmp(again, data, HELLO_BYTES) == 0);
  need(memchr(hello.name, 0, HELLO_NAME) != NULL);
  for (const char *c = hello.name; *c; c++) need((unsigned char)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size >= GREETING_BYTES) check_greeting(data);
  if (size >= HELLO_BYTES) check_hello(data);
  return 0;
}
