/* A worker that a test plays, in a process of its own on a UNIX socket: it welcomes and answers as a worker does, but computes nothing and
 * fails when and how it was told to. */
#ifndef TESTS_FAKE_WORKER_H
#define TESTS_FAKE_WORKER_H
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/setup_message.h"
#include "infer/request.h"
#include "sample_fixture.h"
#include "shake_hands.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct FakeWorker {
  /* How it behaves; zeroes: well. */
  bool refuses;    /* each SETUP, and names no node */
  bool fails;      /* ERROR to each request */
  bool overflows;  /* ERROR to the first request: its numbers are not finite */
  int reports;     /* ERROR to each request in which this node takes part, counted from 1; names it as the one at fault */
  int slow;        /* seconds before it answers a request */
  bool silent;     /* answers neither requests nor CANCEL */
  int deaf;        /* seconds before it answers CANCEL */
  int leaves;      /* the process ends with this request, counted from 1 over all epochs */
  int leaves_done; /* the same behind its answer */
  int hangs_up;    /* behind its answer to this request, and listens to the next leader */
  int strange;     /* so many WELCOMEs behind the first are of another model */
  bool stalls;     /* 30 ms at the first burst of a measurement in either direction */
  int late_trips;  /* so many measurements without bytes are answered 30 ms late */
  int loses;       /* hangs up at so many texts; later ones it computes for ever */
  int gives_up;    /* the first answer says so of this node, counted from 1 */
  /* What comes of it: */
  Address address;
  pid_t pid;
  int *calls; /* shared [2]: leaders that it has welcomed, PINGs that it has got */
} FakeWorker;

typedef struct FakeSession {
  const FakeWorker *worker;
  const Weights *weights;
  Connection *connection;
  ClusterSetup setup;
  int requests, answers, texts; /* of all epochs */
  int trips, bursts[2];         /* of measurements; to this worker, and from it */
  uint8_t payload[PROBE_MAX];
} FakeSession;

static inline bool fake_worker_move(Connection *connection, uint8_t *bytes, size_t size, bool reads) {
  for (size_t at = 0; at < size;) {
    ssize_t n = reads ? connection_read(connection, bytes + at, size - at) : connection_write(connection, bytes + at, size - at);
    struct pollfd waiting = {.fd = connection_fd(connection), .events = connection_events(connection, reads, !reads)};
    if (n > 0)
      at += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR) || poll(&waiting, 1, 60000) != 1)
      return false;
  }
  return true;
}

static inline bool fake_worker_say(FakeSession *s, WireHeader header, const void *payload) {
  uint8_t message[WIRE_HEADER + (1 << 14)];
  header.sender = (uint8_t)s->setup.self;
  wire_pack(&header, message);
  memset(message + WIRE_HEADER, 0, header.bytes);
  if (payload) memcpy(message + WIRE_HEADER, payload, header.bytes);
  return fake_worker_move(s->connection, message, WIRE_HEADER + (size_t)header.bytes, false);
}

static inline bool fake_worker_welcome(FakeSession *s) {
  Welcome welcome = {.name = ""};
  uint8_t bytes[WELCOME_BYTES];
  const int earlier = (*s->worker->calls)++;
  fingerprint_weights(s->weights, &welcome.fingerprints);
  welcome.fingerprints.model ^= earlier > 0 && earlier <= s->worker->strange;
  hello_welcome(byte_cursor_to(bytes), &welcome);
  return fake_worker_say(s, (WireHeader){.kind = WIRE_WELCOME, .bytes = WELCOME_BYTES}, bytes);
}

static inline bool fake_worker_set_up(FakeSession *s, size_t bytes) {
  setup_message_release(&s->setup);
  if (setup_message_parse(s->payload, bytes, s->weights, &s->setup) != STATUS_OK) return false;
  if (s->worker->refuses) return fake_worker_say(s, (WireHeader){.kind = WIRE_REFUSE, .bytes = 9}, "no memory");
  return fake_worker_say(s, (WireHeader){.kind = WIRE_READY, .count = s->setup.epoch}, NULL);
}

/* As a device that needs the same time for everything. */
static inline bool fake_worker_measure(FakeSession *s, const WireHeader *asked) {
  uint8_t message[WIRE_HEADER];
  WireHeader header = {.kind = WIRE_PROFILE, .request = asked->request, .count = asked->count, .bytes = asked->count};
  if (asked->request == PROBE_COMPUTE) {
    DeviceProfile profile = {.table = 1e-9, .byte = 1e-9, .fixed = 1e-9};
    for (int i = 0; i < PROFILE_SIZES; i++) profile.linear[i] = profile.attention[i] = profile.assign[i] = 1e-9;
    hello_profile(byte_cursor_to(s->payload), &profile);
    header.bytes = PROFILE_BYTES;
  } else {
    const bool burst = asked->bytes > 0 || asked->count > 0;
    const bool late = burst ? s->bursts[asked->count > 0]++ == 0 && s->worker->stalls : s->trips++ < s->worker->late_trips;
    if (late) nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  }
  wire_pack(&header, message);
  return fake_worker_move(s->connection, message, sizeof message, false) &&
         fake_worker_move(s->connection, s->payload, header.bytes, false);
}

/* A replica of zeroes for each image. */
static inline bool fake_worker_answer(FakeSession *s, const WireHeader *asked) {
  const FakeWorker *w = s->worker;
  size_t bytes = WIRE_STATISTICS + (size_t)asked->count * (size_t)s->weights->config->width * 4;
  uint8_t gives_up = (uint8_t)(s->answers++ == 0 ? w->gives_up : 0);
  s->requests++;
  if (w->leaves == s->requests) _exit(0);
  if (w->silent) return true;
  nanosleep(&(struct timespec){.tv_sec = w->slow}, NULL);
  bool reports = w->reports && w->reports <= s->setup.nodes;
  if (w->overflows && s->requests == 1)
    return fake_worker_say(s, (WireHeader){.kind = WIRE_ERROR, .flags = WIRE_FUTILE, .request = asked->request, .bytes = 9}, "overflows");
  if (w->fails || reports) {
    WireHeader header = {.kind = WIRE_ERROR, .request = asked->request, .count = reports ? (uint32_t)w->reports : 0, .bytes = 7};
    return fake_worker_say(s, header, "is lame");
  }
  WireHeader header = {.kind = WIRE_RESULT, .request = asked->request, .count = asked->count, .block = gives_up, .bytes = (uint32_t)bytes};
  bool said = fake_worker_say(s, header, NULL);
  if (w->leaves_done == s->requests) _exit(0);
  return said && w->hangs_up != s->requests;
}

static inline bool fake_worker_step(FakeSession *s) {
  uint8_t bytes[WIRE_HEADER];
  WireHeader header;
  if (!fake_worker_move(s->connection, bytes, sizeof bytes, true) || wire_parse(bytes, sizeof s->payload, &header) != STATUS_OK ||
      !fake_worker_move(s->connection, s->payload, header.bytes, true))
    return false;
  if (header.kind == WIRE_SETUP) return fake_worker_set_up(s, header.bytes);
  if (header.kind == WIRE_PROBE) return fake_worker_measure(s, &header);
  if (header.kind == WIRE_CLASSIFY) return fake_worker_answer(s, &header);
  if (header.kind == WIRE_SEQUENCE) return ++s->texts > s->worker->loses;
  s->worker->calls[1] += header.kind == WIRE_PING;
  if (header.kind != WIRE_CANCEL) return header.kind == WIRE_GONE || header.kind == WIRE_PING;
  if (s->worker->silent) return true;
  nanosleep(&(struct timespec){.tv_sec = s->worker->deaf}, NULL);
  return fake_worker_say(s, (WireHeader){.kind = WIRE_CANCELLED}, NULL);
}

static inline void fake_worker_serve(FakeSession *s, int fd) {
  uint8_t hello[HELLO_BYTES];
  bool begun = recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello;
  if (begun && connection_tls(&s->connection, fd, CONNECTION_ANSWERS, NULL) == STATUS_OK && shake_hands(s->connection, 10) == STATUS_OK &&
      fake_worker_welcome(s)) {
    while (fake_worker_step(s)) {}
  }
  connection_free(s->connection);
  s->connection = NULL;
}

/* Listens before it returns. */
static inline void fake_worker_start(FakeWorker *worker, const SampleFixture *f, int number) {
  int sockets[ADDRESS_SOCKETS], count;
  char where[128];
  pid_t parent = getpid();
  snprintf(where, sizeof where, "unix:%s/worker%d", f->directory, number);
  assert_int_equal(address_parse(where, &worker->address), STATUS_OK);
  assert_int_equal(address_listen(&worker->address, sockets, &count), STATUS_OK);
  worker->calls = mmap(NULL, 2 * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(worker->calls != MAP_FAILED);
  worker->pid = fork();
  if (worker->pid == 0) {
    FakeSession *s = calloc(1, sizeof *s);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    *s = (FakeSession){.worker = worker, .weights = &f->weights};
    for (;;) {
      struct pollfd waiting = {.fd = sockets[0], .events = POLLIN};
      int fd = poll(&waiting, 1, -1) == 1 ? accept(sockets[0], NULL, NULL) : -1;
      if (fd >= 0) fake_worker_serve(s, fd);
    }
  }
  close(sockets[0]);
}

static inline void fake_worker_stop(FakeWorker *worker) {
  kill(worker->pid, SIGKILL);
  assert_int_equal(waitpid(worker->pid, NULL, 0), worker->pid);
  munmap(worker->calls, 2 * sizeof(int));
}

#endif
