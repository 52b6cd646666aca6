/* make_intruder KEY MODEL ADDRESS CALLS [FIRST]: somebody who has the cluster's key and the model, and breaks the rules behind the
 * handshake. Calls the worker so often, each time with the next of the faults below (from FIRST on), reads what it says until it hangs up
 * or says nothing for a while, and prints how many calls got behind the handshake, how many were answered, and of which the worker said
 * what was wrong.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "infer/cluster/address.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/weights.h"
#include "infer/wire.h"
#include "shake_hands.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOISE = 300 };
static const double handshake_seconds = 5, quiet_seconds = 1;

typedef struct Intruder {
  KeyFile key;
  Address address;
  Fingerprints fingerprints;
  Rng rng;
  Connection *connection;
  long calls, answered, refused;
} Intruder;

/* ---- one call */

static Status dial(Intruder *in, HelloRole role) {
  uint8_t session[HELLO_SESSION];
  for (int i = 0; i < HELLO_SESSION; i++) session[i] = (uint8_t)rng_next(&in->rng);
  TRY(shake_hands_call(&in->connection, &in->address, role, session, &in->key));
  return shake_hands(in->connection, handshake_seconds);
}

static bool wait_for(const Intruder *in, short events) {
  return errno == EAGAIN &&
         poll(&(struct pollfd){.fd = connection_fd(in->connection), .events = events}, 1, (int)(1e3 * quiet_seconds)) > 0;
}

/* As much of it as the worker takes before it hangs up. */
static void say(Intruder *in, const void *bytes, size_t size) {
  const uint8_t *at = bytes;
  while (size > 0) {
    ssize_t sent = connection_write(in->connection, at, size);
    if (sent < 0 && !wait_for(in, POLLOUT)) return;
    if (sent < 0) continue;
    at += sent;
    size -= (size_t)sent;
  }
}

static void say_header(Intruder *in, WireHeader header) {
  uint8_t bytes[WIRE_HEADER];
  header.sender = WIRE_LEADER;
  wire_pack(&header, bytes);
  say(in, bytes, sizeof bytes);
}

static void say_noise(Intruder *in, size_t size) {
  uint8_t bytes[NOISE];
  for (size_t i = 0; i < NOISE; i++) bytes[i] = (uint8_t)rng_next(&in->rng);
  say(in, bytes, size);
}

static void listen_to_it(Intruder *in) {
  uint8_t bytes[4096];
  size_t got = 0;
  bool refused = false;
  for (double until = clock_now() + quiet_seconds; clock_now() < until && got < sizeof bytes;) {
    ssize_t more = connection_read(in->connection, bytes + got, sizeof bytes - got);
    if (more == 0 || (more < 0 && !wait_for(in, POLLIN))) break;
    got += more > 0 ? (size_t)more : 0;
  }
  for (size_t i = 0; i + WIRE_HEADER <= got;) {
    WireHeader header;
    if (wire_parse(bytes + i, sizeof bytes, &header) != STATUS_OK) break;
    refused |= header.kind == WIRE_REFUSE || header.kind == WIRE_ERROR;
    i += WIRE_HEADER + header.bytes;
  }
  in->answered += got > 0;
  in->refused += refused;
}

/* ---- faults */

static void noise(Intruder *in) { say_noise(in, NOISE); }
static void too_long(Intruder *in) { say_header(in, (WireHeader){.kind = WIRE_SETUP, .bytes = UINT32_MAX}); }
static void out_of_turn(Intruder *in) { say_header(in, (WireHeader){.kind = WIRE_CLASSIFY, .request = 1, .count = 1, .bytes = 4}); }
static void cut_short(Intruder *in) {
  say_header(in, (WireHeader){.kind = WIRE_SETUP, .count = 2, .bytes = NOISE});
  say_noise(in, NOISE / 2);
}
static void a_greeting_of_its_own(Intruder *in) {
  say_header(in, (WireHeader){.kind = WIRE_HELLO, .bytes = HELLO_PAYLOAD});
  say_noise(in, HELLO_PAYLOAD);
}
static void noise_for_a_set_up(Intruder *in) {
  say_header(in, (WireHeader){.kind = WIRE_SETUP, .count = 2, .bytes = NOISE});
  say_noise(in, NOISE);
}
static void a_set_up_of_nobody(Intruder *in) { say_header(in, (WireHeader){.kind = WIRE_SETUP, .count = UINT32_MAX, .bytes = 0}); }
static void a_probe_beyond_measure(Intruder *in) { say_header(in, (WireHeader){.kind = WIRE_PROBE, .request = 2, .count = UINT32_MAX}); }
static void an_answer_for_a_leader(Intruder *in) {
  say_header(in, (WireHeader){.kind = WIRE_RESULT, .request = 1, .count = 16, .bytes = WIRE_STATISTICS});
  say_noise(in, WIRE_STATISTICS);
}

typedef struct Fault {
  HelloRole role;
  void (*commit)(Intruder *in);
} Fault;
static const Fault faults[] = {{HELLO_LEADER, noise},
                               {HELLO_LEADER, too_long},
                               {HELLO_LEADER, out_of_turn},
                               {HELLO_LEADER, cut_short},
                               {HELLO_LEADER, a_greeting_of_its_own},
                               {HELLO_LEADER, noise_for_a_set_up},
                               {HELLO_LEADER, a_set_up_of_nobody},
                               {HELLO_LEADER, a_probe_beyond_measure},
                               {HELLO_LEADER, an_answer_for_a_leader},
                               {HELLO_PEER, noise},
                               {HELLO_PEER, cut_short}};

static Status call(Intruder *in, const Fault *fault) {
  Status status = dial(in, fault->role);
  in->calls += status == STATUS_OK;
  if (status == STATUS_OK) fault->commit(in);
  if (status == STATUS_OK) listen_to_it(in);
  connection_free(in->connection);
  in->connection = NULL;
  return fault->role == HELLO_PEER ? STATUS_OK : status; /* a device of no session is hung up on at once */
}

static Status prepare(Intruder *in, char **argv) {
  Weights weights = {0};
  TRY(key_file_read(&in->key, argv[1]));
  TRY(address_parse(argv[3], &in->address));
  Status status = weights_load(&weights, argv[2]);
  if (status == STATUS_OK) status = fingerprint_weights(&weights, &in->fingerprints);
  weights_release(&weights);
  rng_init(&in->rng, 42, 0);
  return status;
}

int main(int argc, char **argv) {
  static Intruder in;
  if (argc < 5 || argc > 6) {
    fprintf(stderr, "usage: make_intruder KEY MODEL ADDRESS CALLS [FIRST]\n");
    return 2;
  }
  Status status = prepare(&in, argv);
  int first = argc > 5 ? atoi(argv[5]) : 0, count = (int)(sizeof faults / sizeof *faults);
  for (int i = 0; status == STATUS_OK && i < atoi(argv[4]); i++) status = call(&in, &faults[(first + i) % count]);
  if (status != STATUS_OK) fprintf(stderr, "make_intruder: %s\n", status_message());
  printf("calls %ld answered %ld refused %ld\n", in.calls, in.answered, in.refused);
  return status == STATUS_OK ? 0 : 1;
}
