/* Fuzz target: the first words of another device, a HELLO and a WELCOME. Holds: only what this program's key has made is let in; a welcome
 * that is accepted packs to the same bytes, and its name ends and does nothing to a terminal. */
#include "fuzz/fuzz.h"
#include "infer/cluster/hello.h"
#include <string.h>

static void check_hello(const uint8_t *data) {
  const KeyFile key = {.bytes = "only this process has this key.", .open = false};
  Hello hello;
  HelloResult result = hello_read(data, HELLO_BYTES, &key, &hello);
  if (result == HELLO_NONE || result == HELLO_OTHER_VERSION) return;
  need(result == HELLO_OTHER_KEY || result == HELLO_NEEDS_KEY);
  need(hello.role == HELLO_LEADER || hello.role == HELLO_PEER);
}

static void check_welcome(const uint8_t *data) {
  Welcome welcome;
  uint8_t again[WELCOME_BYTES];
  if (hello_welcome(byte_cursor_from(data), &welcome) != STATUS_OK) return;
  hello_welcome(byte_cursor_to(again), &welcome);
  need(memcmp(again, data, WELCOME_BYTES) == 0);
  need(memchr(welcome.name, 0, WELCOME_NAME) != NULL);
  for (const char *c = welcome.name; *c; c++) need((unsigned char)*c >= ' ' && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size >= HELLO_BYTES) check_hello(data);
  if (size >= WELCOME_BYTES) check_welcome(data);
  return 0;
}
