/* Packing, checking and comparing of greetings. */
#include "infer/control/greeting.h"
#include "base/printable.h"
#include "infer/control/byte_cursor.h"
#include <inttypes.h>

/* ---- greetings */

void greeting_pack(const Greeting *greeting, uint8_t bytes[GREETING_BYTES]) {
  uint8_t *at = bytes;
  memset(bytes, 0, GREETING_BYTES);
  byte_cursor_put_u16(&at, greeting->version);
  at += 6;
  byte_cursor_put_u64(&at, greeting->fingerprints.model);
  byte_cursor_put_u64(&at, greeting->fingerprints.codebook);
  byte_cursor_put_u64(&at, greeting->fingerprints.partition);
  byte_cursor_put(&at, greeting->session, GREETING_SESSION);
}

Status greeting_parse(const uint8_t bytes[GREETING_BYTES], Greeting *greeting) {
  const uint8_t *at = bytes;
  Greeting g = {.version = byte_cursor_get_u16(&at)};
  bool zero = byte_cursor_is_zero(at, at + 6);
  at += 6;
  g.fingerprints.model = byte_cursor_get_u64(&at);
  g.fingerprints.codebook = byte_cursor_get_u64(&at);
  g.fingerprints.partition = byte_cursor_get_u64(&at);
  byte_cursor_get(&at, g.session, GREETING_SESSION);
  if (!zero || !byte_cursor_is_zero(at, bytes + GREETING_BYTES))
    return status_set(STATUS_BAD_VALUE, "sent a greeting with reserved bytes set");
  *greeting = g;
  return STATUS_OK;
}

void greeting_pack_hello(const Hello *hello, uint8_t bytes[HELLO_BYTES]) {
  uint8_t *at = bytes;
  memset(bytes, 0, HELLO_BYTES);
  byte_cursor_put_u16(&at, hello->version);
  byte_cursor_put_u16(&at, hello->carriers);
  byte_cursor_put_u16(&at, hello->port);
  byte_cursor_put_u16(&at, hello->cores);
  byte_cursor_put_u64(&at, hello->fingerprints.model);
  byte_cursor_put_u64(&at, hello->fingerprints.codebook);
  for (int i = 0; i < HELLO_FACTS; i++, at += 4) wire_put_u32(at, hello->facts[i]);
  byte_cursor_put_u64(&at, hello->memory);
  size_t length = strnlen(hello->name, HELLO_NAME - 1);
  memcpy(at, hello->name, length);
  printable_blank((char *)at, length);
}

/* Text that does nothing to a terminal, and zeroes behind it. */
static bool is_name(const char name[HELLO_NAME]) {
  char shown[HELLO_NAME];
  size_t length = strnlen(name, HELLO_NAME);
  memcpy(shown, name, sizeof shown);
  return length < HELLO_NAME && !printable_blank(shown, length) &&
         byte_cursor_is_zero((const uint8_t *)name + length, (const uint8_t *)name + HELLO_NAME);
}

Status greeting_parse_hello(const uint8_t bytes[HELLO_BYTES], Hello *hello) {
  const uint8_t *at = bytes;
  Hello h = {.version = byte_cursor_get_u16(&at)};
  h.carriers = byte_cursor_get_u16(&at);
  h.port = byte_cursor_get_u16(&at);
  h.cores = byte_cursor_get_u16(&at);
  h.fingerprints.model = byte_cursor_get_u64(&at);
  h.fingerprints.codebook = byte_cursor_get_u64(&at);
  for (int i = 0; i < HELLO_FACTS; i++, at += 4) h.facts[i] = wire_get_u32(at);
  h.memory = byte_cursor_get_u64(&at);
  byte_cursor_get(&at, h.name, HELLO_NAME);
  if (h.carriers & ~HELLO_CARRIERS || !byte_cursor_is_zero(at, bytes + HELLO_BYTES))
    return status_set(STATUS_BAD_VALUE, "said hello with unknown carriers or reserved bytes set");
  if (!is_name(h.name)) return status_set(STATUS_BAD_VALUE, "said hello with a name that is no text");
  *hello = h;
  return STATUS_OK;
}

void greeting_facts(const ModelConfig *config, uint32_t facts[HELLO_FACTS]) {
  const int64_t of[HELLO_FACTS] = {config->kind,
                                   config->blocks,
                                   config->width,
                                   config->heads,
                                   config->kv_heads,
                                   config->astra.groups,
                                   config->astra.codebook_size,
                                   config_sites(config),
                                   config_tokens(config),
                                   config->vocabulary};
  for (int i = 0; i < HELLO_FACTS; i++) facts[i] = (uint32_t)of[i];
}

/* ---- comparing */

static Status compare(uint64_t there, uint64_t here, const char *name, const char *what, const char *advice) {
  if (there == here) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s: another %s: %016" PRIx64 " there, %016" PRIx64 " here (%s)", name, what, there, here, advice);
}

Status greeting_compare(uint16_t version, const Fingerprints *there, const Fingerprints *here, const char *name) {
  static const char checkpoint[] = "--checkpoint, --weights and --precision must be the same on all devices";
  if (version != WIRE_VERSION)
    return status_set(STATUS_BAD_VALUE,
                      "%s: another protocol version: %d there, %d here (install the same release of astra on all devices)", name, version,
                      WIRE_VERSION);
  TRY(compare(there->model, here->model, name, "model", checkpoint));
  TRY(compare(there->codebook, here->codebook, name, "codebook", checkpoint));
  if (!there->partition || !here->partition) return STATUS_OK;
  return compare(there->partition, here->partition, name, "partition", "the devices do not agree on who holds which tokens");
}
