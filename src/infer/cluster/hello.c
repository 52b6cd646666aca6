/* Encoding, proving and checking of HELLO, WELCOME, PROBE and PROFILE. */
#include "infer/cluster/hello.h"
#include "base/printable.h"
#include "infer/cluster/byte_cursor.h"
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

Status hello_pack(const Hello *hello, const KeyFile *key, uint8_t bytes[HELLO_BYTES]) {
  uint8_t *at = bytes + WIRE_HEADER, nonce[HELLO_NONCE];
  if (RAND_bytes(nonce, sizeof nonce) != 1) return status_set(STATUS_IO, "the system gives no random numbers");
  wire_pack(&(WireHeader){.kind = WIRE_HELLO, .bytes = HELLO_PAYLOAD}, bytes);
  byte_cursor_put_u8(&at, (uint8_t)hello->role);
  byte_cursor_put_u8(&at, has_key(key));
  byte_cursor_put_u16(&at, 0);
  byte_cursor_put_u32(&at, 0);
  byte_cursor_put(&at, hello->session, HELLO_SESSION);
  byte_cursor_put(&at, nonce, HELLO_NONCE);
  return prove(key, bytes, at) ? STATUS_OK : status_set(STATUS_IO, "OpenSSL has no HMAC with SHA-256");
}

HelloResult hello_read(const uint8_t *bytes, size_t got, const KeyFile *key, Hello *hello) {
  uint8_t magic[4], proof[HELLO_PROOF];
  WireHeader header;
  wire_put_u32(magic, WIRE_MAGIC);
  if (memcmp(bytes, magic, got < sizeof magic ? got : sizeof magic) != 0) return HELLO_NONE;
  if (got < WIRE_HEADER) return HELLO_INCOMPLETE;
  if (bytes[4] != WIRE_VERSION) return HELLO_OTHER_VERSION;
  if (got < HELLO_BYTES) return HELLO_INCOMPLETE;
  if (wire_parse(bytes, HELLO_PAYLOAD, &header) != STATUS_OK) return HELLO_NONE;
  const uint8_t *at = bytes + WIRE_HEADER;
  uint8_t role = byte_cursor_get_u8(&at), keyed = byte_cursor_get_u8(&at);
  bool clean = header.kind == WIRE_HELLO && header.bytes == HELLO_PAYLOAD && !header.sender && !header.block && !header.flags &&
               !header.request && !header.count && byte_cursor_is_zero(at, at + 6);
  if (!clean || role < HELLO_LEADER || role > HELLO_PEER || keyed > 1) return HELLO_NONE;
  at += 6;
  *hello = (Hello){.role = (HelloRole)role, .keyed = keyed};
  byte_cursor_get(&at, hello->session, HELLO_SESSION);
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

/* A name that is truncated within a character ends in spaces. */
void hello_pack_welcome(const Welcome *welcome, uint8_t bytes[WELCOME_BYTES]) {
  uint8_t *at = bytes;
  memset(bytes, 0, WELCOME_BYTES);
  byte_cursor_put_u64(&at, welcome->fingerprints.model);
  byte_cursor_put_u64(&at, welcome->fingerprints.codebook);
  size_t length = strnlen(welcome->name, WELCOME_NAME - 1);
  memcpy(at, welcome->name, length);
  printable_blank((char *)at, length);
}

Status hello_parse_welcome(const uint8_t bytes[WELCOME_BYTES], Welcome *welcome) {
  const uint8_t *at = bytes;
  Welcome w = {.name = ""};
  w.fingerprints.model = byte_cursor_get_u64(&at);
  w.fingerprints.codebook = byte_cursor_get_u64(&at);
  byte_cursor_get(&at, w.name, WELCOME_NAME);
  /* Printable text, then zeroes. */
  char shown[WELCOME_NAME];
  size_t length = strnlen(w.name, WELCOME_NAME);
  memcpy(shown, w.name, sizeof shown);
  bool text = length < WELCOME_NAME && !printable_blank(shown, length) && byte_cursor_is_zero(at - WELCOME_NAME + length, at);
  if (!text) return status_set(STATUS_BAD_VALUE, "welcomed its leader with a name that is no text");
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

/* In the order of the message. */
static void list_numbers(DeviceProfile *profile, double *numbers[PROFILE_NUMBERS]) {
  for (int i = 0; i < PROFILE_SIZES; i++) {
    numbers[i] = &profile->linear[i];
    numbers[PROFILE_SIZES + i] = &profile->attention[i];
    numbers[2 * PROFILE_SIZES + i] = &profile->assign[i];
  }
  numbers[3 * PROFILE_SIZES] = &profile->table;
  numbers[3 * PROFILE_SIZES + 1] = &profile->byte;
  numbers[3 * PROFILE_SIZES + 2] = &profile->fixed;
}

void hello_pack_profile(const DeviceProfile *profile, uint8_t bytes[PROFILE_BYTES]) {
  DeviceProfile copy = *profile;
  double *numbers[PROFILE_NUMBERS];
  list_numbers(&copy, numbers);
  for (int i = 0; i < PROFILE_NUMBERS; i++) wire_put_double(bytes + 8 * i, *numbers[i]);
}

Status hello_parse_profile(const uint8_t bytes[PROFILE_BYTES], DeviceProfile *profile) {
  double *numbers[PROFILE_NUMBERS];
  list_numbers(profile, numbers);
  for (int i = 0; i < PROFILE_NUMBERS; i++) {
    *numbers[i] = wire_get_double(bytes + 8 * i);
    if (!(*numbers[i] > 0 && *numbers[i] <= max_seconds))
      return status_set(STATUS_BAD_VALUE, "says that it needs %g s for a unit of work", *numbers[i]);
  }
  return STATUS_OK;
}

/* ---- comparing */

static Status compare(uint64_t there, uint64_t here, const char *name, const char *what, const char *advice) {
  if (there == here) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s: another %s: %016" PRIx64 " there, %016" PRIx64 " here (%s)", name, what, there, here, advice);
}

Status hello_compare(const Fingerprints *there, const Fingerprints *here, const char *name) {
  static const char checkpoint[] = "--checkpoint, --weights and --precision must be the same on all devices";
  TRY(compare(there->model, here->model, name, "model", checkpoint));
  TRY(compare(there->codebook, here->codebook, name, "codebook", checkpoint));
  if (!there->partition || !here->partition) return STATUS_OK;
  return compare(there->partition, here->partition, name, "partition", "the devices do not agree on who holds which tokens");
}
