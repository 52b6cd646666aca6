/* What two devices exchange before the first epoch (docs/FORMATS.md).
 *
 * HELLO is the first message on a connection to a worker, in clear, before TLS: the caller's role, the run it belongs to, and a proof that
 * it has the cluster's key (HMAC-SHA256 over the whole message, which includes a random number). So a listener can tell callers with the
 * key from others after 96 bytes and one hash, without spending a process, a TLS handshake or per-caller memory. A replayed HELLO gets a
 * TLS handshake that cannot be completed without the key. A rejected caller is answered where TLS would begin: with a HELLO header if it is
 * of another version, else with the TLS alert for a key that does not fit.
 *
 * WELCOME is the first message inside TLS, from a device to its leader: which model it has.
 *
 * PROBE and PROFILE measure devices and the connections to them. The header's `request` says what is measured:
 *   PROBE_COMPUTE: `count` is the number of tokens of an input; the device measures itself (plan/probe.h) and answers with its profile.
 *   PROBE_LINK: the payload has no meaning, and the answer is `count` bytes without meaning: the leader measures the time. */
#ifndef INFER_HELLO_H
#define INFER_HELLO_H
#include "infer/byte_cursor.h"
#include "infer/cluster/fingerprint.h"
#include "infer/cluster/key_file.h"
#include "infer/plan/probe.h"
#include "infer/wire.h"

enum { HELLO_SESSION = 16, HELLO_NONCE = 16, HELLO_PROOF = 32, HELLO_PAYLOAD = 8 + HELLO_SESSION + HELLO_NONCE + HELLO_PROOF };
enum { HELLO_BYTES = WIRE_HEADER + HELLO_PAYLOAD, HELLO_MAX_ANSWER = WIRE_HEADER };
enum { WELCOME_NAME = 48, WELCOME_BYTES = WIRE_WELCOME_BYTES };

typedef enum HelloRole { HELLO_LEADER = 1, HELLO_PEER } HelloRole;

typedef struct Hello {
  HelloRole role;
  bool keyed;                     /* the caller has a key */
  uint8_t session[HELLO_SESSION]; /* random number of the leader's run */
} Hello;

/* The first bytes of a caller. */
typedef enum HelloResult {
  HELLO_INCOMPLETE,
  HELLO_NONE, /* no HELLO */
  HELLO_LET_IN,
  HELLO_OTHER_VERSION,
  HELLO_OTHER_KEY,
  HELLO_NEEDS_KEY,
  HELLO_NEEDS_NO_KEY,
  HELLO_RESULTS
} HelloResult;

/* With a fresh random number; key NULL: the open key. IO: the system has no random numbers. */
Status hello_pack(const Hello *hello, const KeyFile *key, uint8_t bytes[HELLO_BYTES]);

/* Parses the first `got` bytes of a connection, at most HELLO_BYTES. *hello is set if they are a complete HELLO of this version. */
HelloResult hello_read(const uint8_t *bytes, size_t got, const KeyFile *key, Hello *hello);

/* The answer to a caller that is rejected. */
size_t hello_pack_answer(HelloResult result, uint8_t bytes[HELLO_MAX_ANSWER]); /* returns its size */

typedef struct Welcome {
  Fingerprints fingerprints; /* without a partition */
  char name[WELCOME_NAME];   /* of the device, for people; ends with a NUL */
} Welcome;

/* Packed, the name is truncated to fit, and control characters and invalid UTF-8 become spaces. Parsed: BAD_VALUE, the name is no text. */
Status hello_welcome(ByteCursor cursor, Welcome *welcome);

enum { PROBE_COMPUTE = 1, PROBE_LINK = 2 };
enum {
  PROBE_MAX = WIRE_PROBE_BYTES /* in either direction */,
  PROFILE_NUMBERS = 3 * PROFILE_SIZES + 3,
  PROFILE_BYTES = 8 * PROFILE_NUMBERS
};

/* BAD_VALUE: an unknown measurement, or more than `tokens_max` tokens or PROBE_MAX bytes. */
Status hello_check_probe(const WireHeader *header, int64_t tokens_max);

Status hello_profile(ByteCursor cursor, DeviceProfile *profile); /* parsed: BAD_VALUE, an impossible speed */

/* Compares model, codebook and, if both are known, partition, in this order. BAD_VALUE names the first that differs, both values, and what
 * to do; `name` is the other device's, for the message. */
Status hello_compare(const Fingerprints *there, const Fingerprints *here, const char *name);

#endif
