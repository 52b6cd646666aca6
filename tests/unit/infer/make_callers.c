/* Callers of a worker, in three roles:
 *
 *   make_callers flood ADDRESS RATE SECONDS [SOURCES]
 *     Callers without a key: RATE connections a second, in turns silent, with noise, with half a HELLO, with one of another key,
 *     and with one of another release. They stay until the worker hangs up or descriptors run out. SOURCES: the number of source
 *     addresses, 127.1.0.1, 127.1.0.2... Prints "calls N".
 *
 *   make_callers lead ADDRESS KEY COUNT SECONDS
 *     COUNT leaders that have the key, all at once: each sends HELLO, completes its TLS handshake, and waits for the worker's
 *     first message, as astra-infer does; one that is hung up on calls again. Prints "connected N of COUNT, slowest S s, calls C",
 *     and fails if some were not connected within SECONDS.
 *
 *   make_callers delay ADDRESS TARGET ROUND-TRIP
 *     A proxy to TARGET that adds a round trip of that many seconds: a connection is established after one and a half of them,
 *     with the first bytes, as over a network. Prints "listening on ADDRESS". */
#include "base/clock.h"
#include "base/rng.h"
#include "infer/cluster/address.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "shake_hands.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_OPEN = 16000, KINDS = 5 };
static Rng rng;

static int open_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur > MAX_OPEN + 100 ? MAX_OPEN : (int)limit.rlim_cur - 100;
}

/* ---- callers without a key */

typedef struct Caller {
  int fd, kind;
} Caller;

static int loop; /* epoll's */
static Caller callers[MAX_OPEN];

/* Without a word: no TIME_WAIT is left behind, or ports would run out. */
static void hang_up(Caller *caller) {
  const struct linger now = {.l_onoff = 1, .l_linger = 0};
  if (caller->fd < 0) return;
  setsockopt(caller->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(caller->fd);
  caller->fd = -1;
}

static void say_something(Caller *caller) {
  uint8_t bytes[HELLO_BYTES];
  KeyFile wrong = {.open = false};
  Hello hello = {.role = HELLO_LEADER};
  size_t size = sizeof bytes;
  hello_pack(&hello, &wrong, bytes);
  if (caller->kind == 0) return;
  if (caller->kind == 1) memset(bytes, 'x', sizeof bytes);
  if (caller->kind == 2) size /= 2;
  if (caller->kind == 4) bytes[4] = 3;
  if (send(caller->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) hang_up(caller);
}

static void watch(int what, Caller *caller, uint32_t events) {
  epoll_ctl(loop, what, caller->fd, &(struct epoll_event){.events = events, .data.ptr = caller});
}

static void caller_ready(Caller *caller, uint32_t events) {
  char rest[256];
  if (caller->fd < 0) return;
  if (events & (EPOLLERR | EPOLLHUP)) {
    hang_up(caller);
  } else if (events & EPOLLOUT) {
    watch(EPOLL_CTL_MOD, caller, EPOLLIN);
    say_something(caller);
  } else if (recv(caller->fd, rest, sizeof rest, MSG_DONTWAIT) == 0) {
    hang_up(caller);
  }
}

static bool call_from(const Address *address, int source, int *fd) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address->port)}, from = {.sin_family = AF_INET};
  if (source < 0) return address_call(address, fd) == STATUS_OK;
  from.sin_addr.s_addr = htonl(0x7f010001U + (unsigned)source);
  inet_pton(AF_INET, address->name, &to.sin_addr);
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (*fd < 0) return false;
  setsockopt(*fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &(int){1}, sizeof(int));
  if (bind(*fd, (struct sockaddr *)&from, sizeof from) == 0 &&
      (connect(*fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS))
    return true;
  close(*fd);
  return false;
}

static int flood(const Address *address, double rate, double seconds, int sources) {
  int room = open_files();
  long calls = 0, failed = 0;
  double began = clock_now();
  for (int i = 0; i < room; i++) callers[i].fd = -1;
  for (double now = began; now - began < seconds; now = clock_now()) {
    for (int burst = 0; calls < rate * (now - began) && burst < 200; burst++, calls++) {
      Caller *caller = &callers[calls % room];
      hang_up(caller);
      caller->kind = (int)(rng_next(&rng) % KINDS);
      if (call_from(address, sources ? (int)(calls % sources) : -1, &caller->fd))
        watch(EPOLL_CTL_ADD, caller, EPOLLOUT);
      else
        failed++, caller->fd = -1;
    }
    struct epoll_event ready[256];
    int count = epoll_wait(loop, ready, 256, 1);
    for (int i = 0; i < count; i++) caller_ready(ready[i].data.ptr, ready[i].events);
  }
  printf("calls %ld failed %ld in %.1f s\n", calls, failed, clock_now() - began);
  return 0;
}

/* ---- leaders with the key */

typedef struct Leader {
  Connection *connection;
  double next;      /* when to call again */
  double connected; /* seconds; 0: not yet */
  int calls;
  size_t got;
  bool begun;
} Leader;

static Status step(Leader *leader, const Address *address, const KeyFile *key) {
  static const uint8_t session[HELLO_SESSION] = "fifteen letters";
  uint8_t first[WIRE_HEADER];
  if (!leader->connection) {
    leader->calls++;
    TRY(shake_hands_call(&leader->connection, address, HELLO_LEADER, session, key));
  }
  if (!leader->begun) TRY(connection_step(leader->connection, &leader->begun));
  if (!leader->begun) return STATUS_OK;
  ssize_t n = connection_read(leader->connection, first + leader->got, sizeof first - leader->got);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return status_set(STATUS_PEER, "hung up");
  leader->got += n > 0 ? (size_t)n : 0;
  return STATUS_OK;
}

static void start_again(Leader *leader, double now) {
  connection_free(leader->connection);
  double pause = fmin(1, 0.02 * (double)(1 << (leader->calls < 6 ? leader->calls : 6))) * (0.5 + rng_uniform(&rng));
  *leader = (Leader){.next = now + pause, .calls = leader->calls};
}

static int lead(const Address *address, const char *key_path, int count, double seconds) {
  Leader *leaders = calloc((size_t)count, sizeof *leaders);
  struct pollfd *waiting = calloc((size_t)count, sizeof *waiting);
  KeyFile key;
  int connected = 0, calls = 0;
  double began = clock_now(), slowest = 0;
  if (key_file_read(&key, key_path) != STATUS_OK) {
    fprintf(stderr, "make_callers: %s\n", status_message());
    exit(1);
  }
  open_files();
  for (double now = began; connected < count && now - began < seconds; now = clock_now()) {
    for (int i = 0; i < count; i++) {
      Leader *leader = &leaders[i];
      waiting[i] = (struct pollfd){.fd = -1};
      if (leader->connected > 0 || now < leader->next) continue;
      if (step(leader, address, &key) != STATUS_OK) start_again(leader, now);
      if (leader->got == WIRE_HEADER) {
        leader->connected = clock_now() - began;
        slowest = fmax(slowest, leader->connected);
        connected++;
        connection_free(leader->connection); /* the next one's turn, where this one's had come */
        leader->connection = NULL;
      } else if (leader->connection) {
        waiting[i] = (struct pollfd){.fd = connection_fd(leader->connection), .events = connection_events(leader->connection, true, false)};
      }
    }
    poll(waiting, (nfds_t)count, 10);
  }
  for (int i = 0; i < count; i++) {
    calls += leaders[i].calls;
    connection_free(leaders[i].connection);
  }
  free(leaders);
  free(waiting);
  printf("connected %d of %d, slowest %.2f s, calls %d\n", connected, count, slowest, calls);
  return connected == count ? 0 : 1;
}

/* ---- a path with a delay */

enum { MAX_WAYS = 512, MAX_CHUNKS = 64, CHUNK = 4096 };

typedef struct Chunk {
  double due;
  size_t size; /* 0: the end */
  uint8_t bytes[CHUNK];
} Chunk;

typedef struct Path {
  int fd[2];        /* of the caller, and of the target once it is called; -1 */
  double opened;    /* when a connection would have come out; 0: free */
  Chunk *chunks[2]; /* [MAX_CHUNKS] to the target, and to the caller */
  int first[2], count[2];
  bool ended[2]; /* this side says no more */
} Path;

static void close_path(Path *path) {
  for (int i = 0; i < 2; i++) {
    if (path->fd[i] >= 0) close(path->fd[i]);
    path->fd[i] = -1;
    free(path->chunks[i]);
  }
  *path = (Path){.fd = {-1, -1}};
}

static void take_in(Path *path, int side, double now, double one_way) {
  Chunk *chunk = &path->chunks[side][(path->first[side] + path->count[side]) % MAX_CHUNKS];
  if (path->ended[side] || path->count[side] == MAX_CHUNKS) return;
  ssize_t n = recv(path->fd[side], chunk->bytes, CHUNK, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  chunk->size = n > 0 ? (size_t)n : 0;
  chunk->due = fmax(now + one_way, path->opened);
  path->ended[side] = n <= 0;
  path->count[side]++;
}

/* False: the path is closed. */
static bool give_out(Path *path, int side, double now) {
  while (path->count[side] > 0) {
    const Chunk *chunk = &path->chunks[side][path->first[side]];
    if (chunk->due > now) return true;
    if (chunk->size == 0) return false; /* an end of one side is one of both here */
    if (send(path->fd[!side], chunk->bytes, chunk->size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)chunk->size) return false;
    path->first[side] = (path->first[side] + 1) % MAX_CHUNKS;
    path->count[side]--;
  }
  return true;
}

static void move_path(Path *path, const Address *target, double now, double one_way) {
  bool open = true;
  take_in(path, 0, now, one_way);
  if (path->fd[1] < 0 && now >= path->opened) open = address_call(target, &path->fd[1]) == STATUS_OK;
  if (path->fd[1] >= 0) {
    bool done = false;
    open = address_called(target, path->fd[1], &done) == STATUS_OK;
    if (open && done) {
      take_in(path, 1, now, one_way);
      open = give_out(path, 0, now) && give_out(path, 1, now);
    }
  }
  if (!open) close_path(path);
}

static int delay(const Address *address, const Address *target, double round_trip) {
  static Path paths[MAX_WAYS];
  int sockets[ADDRESS_SOCKETS], count;
  char text[ADDRESS_TEXT];
  Address here = *address;
  for (int i = 0; i < MAX_WAYS; i++) paths[i] = (Path){.fd = {-1, -1}};
  if (address_listen(address, sockets, &count) != STATUS_OK) return 1;
  here.port = address_port(sockets[0]);
  printf("listening on %s\n", address_text(&here, text));
  fflush(stdout);
  for (;;) {
    double now = clock_now();
    int fd = accept(sockets[0], NULL, NULL);
    for (int i = 0; i < MAX_WAYS; i++) {
      Path *path = &paths[i];
      if (fd >= 0 && path->opened <= 0) {
        *path = (Path){.fd = {fd, -1},
                       .opened = now + 1.5 * round_trip,
                       .chunks = {malloc(MAX_CHUNKS * sizeof(Chunk)), malloc(MAX_CHUNKS * sizeof(Chunk))}};
        fd = -1;
      }
      if (path->opened > 0) move_path(path, target, now, round_trip / 2);
    }
    if (fd >= 0) close(fd);
    poll(&(struct pollfd){.fd = sockets[0], .events = POLLIN}, 1, 1);
  }
}

int main(int argc, char **argv) {
  Address address, target;
  bool floods = argc >= 5 && argc <= 6 && strcmp(argv[1], "flood") == 0, leads = argc == 6 && strcmp(argv[1], "lead") == 0;
  bool delays = argc == 5 && strcmp(argv[1], "delay") == 0 && address_parse(argv[3], &target) == STATUS_OK;
  if ((!floods && !leads && !delays) || address_parse(argv[2], &address) != STATUS_OK || (loop = epoll_create1(EPOLL_CLOEXEC)) < 0) {
    fprintf(
        stderr,
        "usage: make_callers flood ADDRESS RATE SECONDS [SOURCES] | lead ADDRESS KEY COUNT SECONDS | delay ADDRESS TARGET ROUND-TRIP\n");
    return 2;
  }
  rng_init(&rng, (uint64_t)getpid(), 0);
  if (delays) return delay(&address, &target, atof(argv[4]));
  if (floods) return flood(&address, atof(argv[3]), atof(argv[4]), argc > 5 ? atoi(argv[5]) : 0);
  return lead(&address, argv[3], atoi(argv[4]), atof(argv[5]));
}
