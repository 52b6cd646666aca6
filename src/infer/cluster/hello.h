/* What two devices say before anything else (docs/FORMATS.md).
 *
 * HELLO is the first thing on a connection to a worker, in clear, before TLS: who calls, for which run, and a proof that the caller has the
 * cluster's key (HMAC-SHA256 over all of it, of which a random number is a part). So a listener tells those who have the key from those
 * who have not after 96 bytes and one hash, without a process, a handshake or memory of its own for them. Whoever overhears a HELLO can
 * repeat it, and gets a TLS handshake for it which it cannot end.
 * A listener that does not let a caller in says so where TLS would begin: with a header of its own where the caller is of another version,
 * else with the alert that TLS has for a key that does not fit.
 *
 * WELCOME is the first message inside TLS, from a device to its leader: which model it has. */
#ifndef INFER_HELLO_H
#define INFER_HELLO_H
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
  uint8_t session[HELLO_SESSION]; /* random, of the leader's run */
} Hello;

/* What somebody who has called is, by its first bytes. */
typedef enum HelloResult {
  HELLO_INCOMPLETE,
  HELLO_NONE, /* something else than a device */
  HELLO_LET_IN,
  HELLO_OTHER_VERSION,
  HELLO_OTHER_KEY,
  HELLO_NEEDS_KEY,
  HELLO_NEEDS_NO_KEY,
  HELLO_RESULTS
} HelloResult;

/* With a fresh random number; key NULL: the open one. IO: the system has no random numbers. */
Status hello_pack(const Hello *hello, const KeyFile *key, uint8_t bytes[HELLO_BYTES]);

/* Of the first `got` bytes of a connection, at most HELLO_BYTES: *hello is set when they are a whole one of this version. */
HelloResult hello_read(const uint8_t *bytes, size_t got, const KeyFile *key, Hello *hello);

/* What a caller that is not let in is told. */
size_t hello_pack_answer(HelloResult result, uint8_t bytes[HELLO_MAX_ANSWER]); /* returns its size */

typedef struct Welcome {
  Fingerprints fingerprints; /* without a partition */
  char name[WELCOME_NAME];   /* of the device, for people; ends with a NUL */
} Welcome;

/* Of the name what fits, control characters and what is no UTF-8 as spaces. */
void hello_pack_welcome(const Welcome *welcome, uint8_t bytes[WELCOME_BYTES]);
Status hello_parse_welcome(const uint8_t bytes[WELCOME_BYTES], Welcome *welcome); /* BAD_VALUE: a name that is no text */

enum { PROBE_COMPUTE = 1, PROBE_LINK = 2 };
enum { PROBE_MAX = WIRE_PROBE_BYTES /* either way */, PROFILE_NUMBERS = 3 * PROFILE_SIZES + 3, PROFILE_BYTES = 8 * PROFILE_NUMBERS };

/* BAD_VALUE: a PROBE that asks for what there is not, or for more than `tokens_max` tokens or PROBE_MAX bytes. */
Status hello_check_probe(const WireHeader *header, int64_t tokens_max);

void hello_pack_profile(const DeviceProfile *profile, uint8_t bytes[PROFILE_BYTES]);
Status hello_parse_profile(const uint8_t bytes[PROFILE_BYTES], DeviceProfile *profile); /* BAD_VALUE: a speed that none can have */

/* Model, codebook and, where both know one, partition, in this order. BAD_VALUE names the first that differs with both values, and what to
 * do; `name` is the other device's, for the message. */
Status hello_compare(const Fingerprints *there, const Fingerprints *here, const char *name);

#endif
