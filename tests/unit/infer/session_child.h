/* A session in a child process with the test as its leader: from a socket pair to READY. */
#ifndef TESTS_SESSION_CHILD_H
#define TESTS_SESSION_CHILD_H
#include "infer/cluster/connection.h"
#include "infer/cluster/device_session.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/setup_message.h"
#include "sample_fixture.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct SessionChild {
  pid_t pid;
  int control, passed;
} SessionChild;

static inline bool session_child_read(int fd, void *to, size_t size) {
  for (size_t got = 0; got < size;) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    if (poll(&waiting, 1, 20000) != 1) return false;
    ssize_t n = read(fd, (char *)to + got, size - got);
    if (n <= 0) return false;
    got += (size_t)n;
  }
  return true;
}

static inline bool session_child_send(int fd, WireHeader header, const void *payload) {
  uint8_t *message = malloc(WIRE_HEADER + header.bytes);
  header.sender = WIRE_LEADER;
  wire_pack(&header, message);
  if (payload) memcpy(message + WIRE_HEADER, payload, header.bytes);
  bool sent = write(fd, message, WIRE_HEADER + header.bytes) == (ssize_t)(WIRE_HEADER + header.bytes);
  free(message);
  return sent;
}

/* A header and its payload, of at most `room` bytes. */
static inline bool session_child_receive(int fd, WireHeader *header, void *payload, size_t room) {
  uint8_t bytes[WIRE_HEADER];
  return session_child_read(fd, bytes, sizeof bytes) && wire_parse(bytes, room, header) == STATUS_OK &&
         session_child_read(fd, payload, header->bytes);
}

/* The next message that is no sign of life; *signs (may be NULL): how many of those came before it. */
static inline bool session_child_answer(int fd, WireHeader *header, void *payload, size_t room, int *signs) {
  for (int seen = 0; session_child_receive(fd, header, payload, room); seen++) {
    if (signs) *signs = seen;
    if (header->kind != WIRE_PROGRESS) return true;
  }
  return false;
}

/* Forks it; true when it has said WELCOME. */
static inline bool session_child_start(SessionChild *child, const Weights *weights) {
  Fingerprints own;
  int control[2], passed[2];
  uint8_t bytes[WELCOME_BYTES];
  WireHeader header;
  Welcome welcome;
  if (fingerprint_weights(weights, &own) != STATUS_OK || connection_pair(control) != STATUS_OK || fd_passing_pair(passed) != STATUS_OK)
    return false;
  pid_t parent = getpid();
  child->pid = fork();
  if (child->pid == 0) {
    SessionPlace place = {
        .parent = parent, .weights = weights, .fingerprints = &own, .passed = passed[1], .together = true, .threads = 1, .siblings = 1};
    close(control[0]);
    close(passed[0]);
    _exit(connection_plain(&place.control, control[1]) == STATUS_OK ? device_session_run(&place) : 9);
  }
  close(control[1]);
  close(passed[1]);
  child->control = control[0];
  child->passed = passed[0];
  return session_child_receive(child->control, &header, bytes, sizeof bytes) && header.kind == WIRE_WELCOME &&
         hello_welcome(byte_cursor_from(bytes), &welcome) == STATUS_OK && welcome.fingerprints.model == own.model;
}

/* A cluster of one node: of images with all tokens, or of texts of `tokens_max` tokens. */
static inline ClusterSetup session_child_setup(const Weights *weights, int64_t batch, int64_t tokens_max) {
  ClusterSetup setup = {.epoch = 1,
                        .nodes = 1,
                        .reliability = {.mode = RELIABILITY_STREAM, .timeout = 5},
                        .parts = 1,
                        .class_token = weights->config->astra.class_token,
                        .batch_max = batch,
                        .tokens_max = tokens_max,
                        .tokens = tokens_max ? 0 : config_tokens(weights->config)};
  fingerprint_weights(weights, &setup.fingerprints);
  setup.device[0] = (SetupDevice){.tokens = setup.tokens, .weight = tokens_max ? 1 : 0};
  setup.order = malloc((size_t)(setup.tokens + 1) * sizeof(int32_t));
  for (int32_t i = 0; i < setup.tokens; i++) setup.order[i] = i;
  FingerprintShares shares = {.nodes = 1, .tokens = setup.tokens, .order = setup.order, .weights = (const double[]){1}};
  if (setup.tokens) shares.counts = &setup.device[0].tokens;
  fingerprint_shares(&shares, &setup.fingerprints.partition);
  return setup;
}

/* Sends a SETUP; the answer is in *header and text [WIRE_TEXT]. */
static inline bool session_child_agree(const SessionChild *child, const ClusterSetup *setup, WireHeader *header, char text[WIRE_TEXT + 1]) {
  uint8_t *bytes = malloc(setup_message_bytes(setup));
  memset(text, 0, WIRE_TEXT + 1);
  bool right = setup_message_pack(setup, bytes) == STATUS_OK &&
               session_child_send(child->control,
                                  (WireHeader){.kind = WIRE_SETUP, .count = 1, .bytes = (uint32_t)setup_message_bytes(setup)}, bytes) &&
               session_child_receive(child->control, header, text, WIRE_TEXT);
  free(bytes);
  return right;
}

/* All of it, for a node that takes requests from here on. */
static inline bool session_child_open(SessionChild *child, const Weights *weights, int64_t batch, int64_t tokens_max) {
  char text[WIRE_TEXT + 1];
  WireHeader header;
  if (!session_child_start(child, weights)) return false;
  ClusterSetup setup = session_child_setup(weights, batch, tokens_max);
  bool right = session_child_agree(child, &setup, &header, text) && header.kind == WIRE_READY && header.count == 1;
  free(setup.order);
  return right;
}

/* The process must end by itself within the time limit of the test. */
static inline void session_child_close(SessionChild *child) {
  int ended;
  close(child->control);
  close(child->passed);
  assert_int_equal(waitpid(child->pid, &ended, 0), child->pid);
  assert_true(WIFEXITED(ended));
}

#endif
