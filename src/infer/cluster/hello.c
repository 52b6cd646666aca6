/* Encoding, proving and checking of HELLO, WELCOME, PROBE and PROFILE. */
#include "infer/cluster/hello.h"
#include "base/printable.h"
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

enum { SIGNED = HELLO_BYTES - HELLO_PROOF };
static const char purpose[] = "astra hello"; /* distinguishes this use of the key from all others */

/* ---- HELLO */

/* HMAC(key, purpose | header | payload without the proof). */
static bool prove(const KeyFile *key, const uint8_t bytes[SIGNED], uint8_t proof[HELLO_PROOF]) {
  uint8_t text[sizeof purpose + SIGNED];
  const KeyFile open = key_file_open();
  memcpy(text, purpose, sizeof purpose);
  memcpy(text + sizeof purpose, bytes, SIGNED);
  return HMAC(EVP_sha256(), key ? key->bytes : open.bytes, KEY_FILE_BYTES, text, sizeof text, proof, NULL) != NULL;
}

static bool has_key(const KeyFile *key) { return key && !key->open; }

static void fields(ByteCursor c, Hello *hello, uint8_t nonce[HELLO_NONCE]) {
  uint8_t zero[6] = {0};
  BYTE_CURSOR_FIELD(&c, 8, hello->role);
  BYTE_CURSOR_FIELD(&c, 8, hello->keyed);
  byte_cursor_bytes(&c, zero, sizeof zero);
  byte_cursor_bytes(&c, hello->session, HELLO_SESSION);
  byte_cursor_bytes(&c, nonce, HELLO_NONCE);
}

Status hello_pack(const Hello *hello, const KeyFile *key, uint8_t bytes[HELLO_BYTES]) {
  Hello packed = *hello;
  uint8_t nonce[HELLO_NONCE];
  if (RAND_bytes(nonce, sizeof nonce) != 1) return status_set(STATUS_IO, "no random numbers from the system");
  wire_pack(&(WireHeader){.kind = WIRE_HELLO, .bytes = HELLO_PAYLOAD}, bytes);
  packed.keyed = has_key(key);
  fields(byte_cursor_to(bytes + WIRE_HEADER), &packed, nonce);
  return prove(key, bytes, bytes + SIGNED) ? STATUS_OK : status_set(STATUS_IO, "OpenSSL has no HMAC with SHA-256");
}

HelloResult hello_read(const uint8_t *bytes, size_t got, const KeyFile *key, Hello *hello) {
  uint8_t magic[4], proof[HELLO_PROOF], nonce[HELLO_NONCE];
  WireHeader header;
  wire_put_u32(magic, WIRE_MAGIC);
  if (memcmp(bytes, magic, got < sizeof magic ? got : sizeof magic) != 0) return HELLO_NONE;
  if (got < WIRE_HEADER) return HELLO_INCOMPLETE;
  if (bytes[4] != WIRE_VERSION) return HELLO_OTHER_VERSION;
  if (got < HELLO_BYTES) return HELLO_INCOMPLETE;
  if (wire_parse(bytes, HELLO_PAYLOAD, &header) != STATUS_OK) return HELLO_NONE;
  const uint8_t *at = bytes + WIRE_HEADER, role = at[0], keyed = at[1];
  bool clean = header.kind == WIRE_HELLO && header.bytes == HELLO_PAYLOAD && !header.sender && !header.block && !header.flags &&
               !header.request && !header.count && byte_cursor_is_zero(at + 2, at + 8);
  if (!clean || role < HELLO_LEADER || role > HELLO_PEER || keyed > 1) return HELLO_NONE;
  fields(byte_cursor_from(at), hello, nonce);
  if (!prove(key, bytes, proof)) return HELLO_NONE;
  bool proven = CRYPTO_memcmp(proof, bytes + SIGNED, HELLO_PROOF) == 0;
  if (hello->keyed != has_key(key)) return hello->keyed ? HELLO_NEEDS_NO_KEY : HELLO_NEEDS_KEY;
  return proven ? HELLO_LET_IN : HELLO_OTHER_KEY;
}

/* Releases before version 4 read the header as well. */
size_t hello_pack_answer(HelloResult result, uint8_t bytes[HELLO_MAX_ANSWER]) {
  enum { DECRYPT_ERROR = 51, UNKNOWN_PSK_IDENTITY = 115 }; /* RFC 8446, 6: fatal alerts */
  const uint8_t alert[7] = {0x15, 3, 3, 0, 2, 2, result == HELLO_OTHER_KEY ? DECRYPT_ERROR : UNKNOWN_PSK_IDENTITY};
  if (result == HELLO_OTHER_VERSION) {
    wire_pack(&(WireHeader){.kind = WIRE_HELLO}, bytes);
    return WIRE_HEADER;
  }
  memcpy(bytes, alert, sizeof alert);
  return sizeof alert;
}

/* ---- WELCOME */

Status hello_welcome(ByteCursor c, Welcome *welcome) {
  Welcome w = c.parses ? (Welcome){.name = ""} : *welcome;
  size_t length = strnlen(w.name, WELCOME_NAME - 1);
  memset(w.name + length, 0, WELCOME_NAME - length);
  printable_blank(w.name, length); /* a name that is truncated within a character ends in spaces */
  byte_cursor_u64(&c, &w.fingerprints.model);
  byte_cursor_u64(&c, &w.fingerprints.codebook);
  byte_cursor_bytes(&c, w.name, WELCOME_NAME);
  if (!c.parses) return STATUS_OK;
  /* Printable text, then zeroes. */
  length = strnlen(w.name, WELCOME_NAME);
  bool text = length < WELCOME_NAME && printable_is(w.name, length) && byte_cursor_is_zero(c.at - WELCOME_NAME + length, c.at);
  if (!text) return status_set(STATUS_BAD_VALUE, "welcomed its leader with a name that is not printable text");
  *welcome = w;
  return STATUS_OK;
}

/* ---- PROBE and PROFILE */

static const double max_seconds = 1; /* for a floating-point operation, a byte, or a block's fixed cost: far slower than any device */

Status hello_check_probe(const WireHeader *header, int64_t tokens_max) {
  bool compute = header->request == PROBE_COMPUTE && header->bytes == 0 && header->count >= 1 && header->count <= tokens_max;
  bool link = header->request == PROBE_LINK && header->bytes <= PROBE_MAX && header->count <= PROBE_MAX;
  if (compute || link) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "asked for measurement %u of %u with %u bytes, which there is not", header->request, header->count,
                    header->bytes);
}

Status hello_profile(ByteCursor c, DeviceProfile *p) {
  double *lists[] = {p->linear, p->attention, p->assign}, *single[] = {&p->table, &p->byte, &p->fixed};
  for (int i = 0; i < PROFILE_NUMBERS; i++) {
    double *number = i < 3 * PROFILE_SIZES ? &lists[i / PROFILE_SIZES][i % PROFILE_SIZES] : single[i - 3 * PROFILE_SIZES];
    byte_cursor_double(&c, number);
    if (c.parses && !(*number > 0 && *number <= max_seconds))
      return status_set(STATUS_BAD_VALUE, "says that it needs %g s for a unit of work", *number);
  }
  return STATUS_OK;
}

/* ---- comparing */

static Status compare(uint64_t there, uint64_t here, const char *name, const char *what, const char *advice) {
  if (there == here) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s: another %s: %016" PRIx64 " there, %016" PRIx64 " here (%s)", name, what, there, here, advice);
}

Status hello_compare(const Fingerprints *there, const Fingerprints *here, const char *name) {
  static const char checkpoint[] = "--checkpoint, --weights and --precision must be the same on all devices; --precision auto measures "
                                   "each, and may differ: give fp32 or bf16";
  TRY(compare(there->model, here->model, name, "model", checkpoint));
  TRY(compare(there->codebook, here->codebook, name, "codebook", checkpoint));
  if (!there->partition || !here->partition) return STATUS_OK;
  return compare(there->partition, here->partition, name, "partition", "the devices do not agree on who holds which tokens");
}
