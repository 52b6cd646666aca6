/* The first 24 bytes of a connection to a worker, before TLS: who calls and for which run (docs/FORMATS.md). Whoever reads them only
 * learns where the connection belongs; nothing is proven by them. */
#ifndef INFER_PREAMBLE_H
#define INFER_PREAMBLE_H
#include "infer/control/greeting.h"

enum { PREAMBLE_BYTES = 24 };

typedef enum PreambleRole { PREAMBLE_LEADER = 1, PREAMBLE_PEER } PreambleRole;

typedef struct Preamble {
  uint8_t version;
  PreambleRole role;
  uint8_t session[GREETING_SESSION]; /* random, of the leader's run */
} Preamble;

void preamble_pack(const Preamble *preamble, uint8_t bytes[PREAMBLE_BYTES]);

/* BAD_VALUE: no preamble. Another version is none of its faults: whoever compares names both. */
Status preamble_parse(const uint8_t bytes[PREAMBLE_BYTES], Preamble *preamble);

/* On a fresh connection, which has room for it. PEER: it is broken already. */
Status preamble_send(int fd, PreambleRole role, const uint8_t session[GREETING_SESSION]);

/* What has come of one; begins as zeroes. */
typedef struct PreambleTaken {
  uint8_t bytes[PREAMBLE_BYTES];
  size_t got;
} PreambleTaken;

/* Takes from the socket what is there of it, and nothing that follows. *done: it is whole, and preamble is filled in. BAD_VALUE; PEER: the
 * caller went away. */
Status preamble_take(int fd, PreambleTaken *taken, Preamble *preamble, bool *done);

/* A worker of another version answers with a preamble of its own where TLS should begin: BAD_VALUE names both versions. OK: it has not, as
 * far as can be seen. */
Status preamble_check_answer(int fd, const char *name);

#endif
