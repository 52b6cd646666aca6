/* The first words on a control channel: GREET from the leader, HELLO from the worker (docs/FORMATS.md), fixed in size. They say who speaks,
 * and what both must have in common; nothing is agreed on before it is compared. */
#ifndef INFER_GREETING_H
#define INFER_GREETING_H
#include "infer/control/fingerprint.h"

enum { GREETING_BYTES = 64, HELLO_BYTES = 136, GREETING_SESSION = 16, HELLO_NAME = 48, HELLO_FACTS = 10 };
enum { HELLO_STREAM = 1, HELLO_UDP = 2, HELLO_CARRIERS = 3 /* carriers, as bits */ };

typedef struct Greeting {
  uint16_t version;
  Fingerprints fingerprints;
  uint8_t session[GREETING_SESSION]; /* random, of the leader's run */
} Greeting;

typedef struct Hello {
  uint16_t version, carriers, port /* of datagrams; 0: none */, cores;
  Fingerprints fingerprints;   /* without a partition */
  uint32_t facts[HELLO_FACTS]; /* kind, blocks, width, heads, kv heads, G, K, sites, T or context, vocabulary */
  uint64_t memory;             /* bytes that are free */
  char name[HELLO_NAME];       /* of the device, for people; ends with a NUL */
} Hello;

void greeting_pack(const Greeting *greeting, uint8_t bytes[GREETING_BYTES]);
/* Of the name what fits, control characters and what is no UTF-8 as spaces. */
void greeting_pack_hello(const Hello *hello, uint8_t bytes[HELLO_BYTES]);

/* BAD_VALUE: reserved bytes or unknown bits of carriers that are set, a name that is no UTF-8 or has control
 * characters). Another version is no fault here: greeting_compare names both. */
Status greeting_parse(const uint8_t bytes[GREETING_BYTES], Greeting *greeting);
Status greeting_parse_hello(const uint8_t bytes[HELLO_BYTES], Hello *hello);

/* The facts of a model. */
void greeting_facts(const ModelConfig *config, uint32_t facts[HELLO_FACTS]);

/* Version, model, codebook and, where both know one, partition, in this order. BAD_VALUE names the first that differs with both values, and
 * what to do; `name` is the other device's, for the message. */
Status greeting_compare(uint16_t version, const Fingerprints *there, const Fingerprints *here, const char *name);

#endif
