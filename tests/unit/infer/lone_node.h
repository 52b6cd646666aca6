/* A node process by itself, of a cluster of one, with the test as its leader. */
#ifndef TESTS_LONE_NODE_H
#define TESTS_LONE_NODE_H
#include "infer/link.h"
#include "infer/node.h"
#include <cmocka.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct LoneNode {
  pid_t pid;
  int control; /* the test's end of the stream */
} LoneNode;

/* False where the stream ends. */
static inline bool lone_node_read(const LoneNode *node, void *to, size_t size) {
  for (size_t got = 0; got < size;) {
    struct pollfd waiting = {.fd = node->control, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    ssize_t n = read(node->control, (char *)to + got, size - got);
    if (n <= 0) return false;
    got += (size_t)n;
  }
  return true;
}

/* Comes back when the node has said hello. */
static inline void lone_node_start(LoneNode *node, const NodeSetup *setup) {
  int pair[2];
  uint8_t hello[WIRE_HEADER];
  WireHeader header;
  assert_int_equal(link_pair(pair), STATUS_OK);
  node->pid = fork();
  if (node->pid == 0) {
    close(pair[0]);
    _exit(node_run(setup, 0, pair[1], (int[]){-1}));
  }
  close(pair[1]);
  node->control = pair[0];
  assert_true(lone_node_read(node, hello, sizeof hello));
  assert_int_equal(wire_parse(hello, 0, &header), STATUS_OK);
  assert_int_equal(header.kind, WIRE_HELLO);
}

/* Closes the stream: the process must end by itself within the time limit of the test. */
static inline void lone_node_end(LoneNode *node) {
  int ended;
  close(node->control);
  assert_int_equal(waitpid(node->pid, &ended, 0), node->pid);
  assert_true(WIFEXITED(ended));
}

#endif
