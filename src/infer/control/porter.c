/* See porter.h. What a session does is device_session.c's; what a child says while it waits, porter_guest.c's. */
#include "infer/control/porter.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/control/handed.h"
#include "infer/control/porter_guest.h"
#include "infer/control/preamble.h"
#include "infer/processes.h"
#include "infer/wire.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGERS = 16, HANDSHAKES = 8, GUESTS = PORTER_QUEUE_MOST + HANDSHAKES + 2 };
static const double preamble_seconds = 2; /* to say who one is */
static const double slice_seconds = 0.5, reap_seconds = 0.01;
static const double full_seconds = 1; /* before another look, when the system gives no more descriptors */

/* A connection that has not said who it is. */
typedef struct Stranger {
  int fd; /* -1: free */
  double since;
  PreambleTaken taken;
} Stranger;

typedef enum GuestState { GUEST_NONE, GUEST_SHAKING /* has not shown the key */, GUEST_WAITS, GUEST_SERVED, GUEST_LEAVES } GuestState;

/* A child with a leader's connection. */
typedef struct Guest {
  GuestState state;
  pid_t pid;
  int socket; /* to the child; -1: it has closed */
  uint64_t turn;
  double began;              /* clock_now: it is served since */
  char caller[ADDRESS_TEXT]; /* for people */
  uint8_t session[HANDED_SESSION];
} Guest;

typedef struct Porter {
  const PorterOptions *options;
  Fingerprints fingerprints;
  int sockets[ADDRESS_SOCKETS], socket_count;
  Stranger strangers[STRANGERS];
  Guest guests[GUESTS];
  uint64_t turns;      /* guests so far */
  int served;          /* leaders that have been */
  double closed_until; /* clock_now: no connection is taken before */
} Porter;

/* ---- guests */

static int count(const Porter *porter, GuestState state) {
  int n = 0;
  for (int i = 0; i < GUESTS; i++) n += porter->guests[i].state == state;
  return n;
}

static Guest *find(Porter *porter, GuestState state) {
  Guest *first = NULL;
  for (int i = 0; i < GUESTS; i++) {
    Guest *guest = &porter->guests[i];
    if (guest->state == state && (!first || guest->turn < first->turn)) first = guest;
  }
  return first;
}

static void tell(const Guest *guest, HandedKind kind, int number) {
  if (guest->socket >= 0) handed_send(guest->socket, &(Handed){.kind = kind, .number = (uint16_t)number, .fd = -1});
}

/* Those that wait learn their places; the first is served when nobody is. */
static void call_next(Porter *porter) {
  Guest *next = find(porter, GUEST_WAITS);
  if (next && count(porter, GUEST_SERVED) == 0) {
    next->state = GUEST_SERVED;
    next->began = clock_now();
    tell(next, HANDED_START, 0);
    log_info("serving the leader at %s (session pid %d)", next->caller, (int)next->pid);
  }
  for (int i = 0; i < GUESTS; i++) {
    int place = 1;
    for (int j = 0; j < GUESTS; j++) place += porter->guests[j].state == GUEST_WAITS && porter->guests[j].turn < porter->guests[i].turn;
    if (porter->guests[i].state == GUEST_WAITS) tell(&porter->guests[i], HANDED_WAIT, place);
  }
}

static void seat(Porter *porter, Guest *guest, const Handed *handed) {
  memcpy(guest->session, handed->session, sizeof guest->session);
  bool room = count(porter, GUEST_SERVED) == 0 || count(porter, GUEST_WAITS) < porter->options->queue;
  guest->state = room ? GUEST_WAITS : GUEST_LEAVES;
  if (!room) tell(guest, HANDED_REFUSE, 0);
  call_next(porter);
}

static void hear_guest(Porter *porter, Guest *guest) {
  Handed handed;
  bool any;
  if (handed_receive(guest->socket, &handed, &any) != STATUS_OK) {
    close(guest->socket); /* its process ends */
    guest->socket = -1;
    return;
  }
  if (any && handed.fd >= 0) close(handed.fd);
  if (any && handed.kind == HANDED_GREETED && guest->state == GUEST_SHAKING) seat(porter, guest, &handed);
}

static void describe_end(const Guest *guest, int ended) {
  if (guest->state != GUEST_SERVED) return;
  if (WIFSIGNALED(ended))
    log_warning("session pid %d of %s died: signal %d (%s)", (int)guest->pid, guest->caller, WTERMSIG(ended), strsignal(WTERMSIG(ended)));
  else
    log_info("session pid %d of %s is over after %.1f s", (int)guest->pid, guest->caller, clock_now() - guest->began);
}

static void clear(Guest *guest) {
  if (guest->socket >= 0) close(guest->socket);
  *guest = (Guest){.socket = -1};
}

static void reap(Porter *porter) {
  for (int i = 0; i < GUESTS; i++) {
    Guest *guest = &porter->guests[i];
    int ended;
    if (guest->state == GUEST_NONE || waitpid(guest->pid, &ended, WNOHANG) != guest->pid) continue;
    describe_end(guest, ended);
    porter->served += guest->state == GUEST_SERVED;
    clear(guest);
    call_next(porter);
  }
}

static void send_away(Guest *guest) {
  kill(guest->pid, SIGKILL);
  while (waitpid(guest->pid, NULL, 0) < 0 && errno == EINTR) continue;
  clear(guest);
}

/* Whoever has the key shows it within a few round trips, so that the handshake that has lasted longest is the least likely to be one. */
static void make_room(Porter *porter) {
  if (count(porter, GUEST_SHAKING) >= HANDSHAKES) send_away(find(porter, GUEST_SHAKING));
}

/* ---- leaders and peers */

static void close_all_but(Porter *porter, int keep, int other) {
  for (int i = 0; i < porter->socket_count; i++) close(porter->sockets[i]);
  for (int i = 0; i < STRANGERS; i++) {
    if (porter->strangers[i].fd >= 0 && porter->strangers[i].fd != keep) close(porter->strangers[i].fd);
  }
  for (int i = 0; i < GUESTS; i++) {
    if (porter->guests[i].socket >= 0) close(porter->guests[i].socket);
  }
  close(other);
}

static void run_guest(Porter *porter, int fd, const int pair[2], const uint8_t session[HANDED_SESSION], const char *caller, pid_t parent) {
  const PorterOptions *options = porter->options;
  PorterGuest guest = {.place = {.weights = options->weights,
                                 .fingerprints = &porter->fingerprints,
                                 .handed = pair[1],
                                 .key = options->key,
                                 .name = options->name,
                                 .leader = caller,
                                 .threads = options->threads,
                                 .siblings = 1},
                       .fd = fd};
  memcpy(guest.session, session, HANDED_SESSION);
  processes_become_child(parent);
  close_all_but(porter, fd, pair[0]);
  _exit(porter_guest_run(&guest));
}

/* The descriptor goes to the child. */
static void take_leader(Porter *porter, int fd, const Preamble *preamble) {
  make_room(porter);
  Guest *guest = find(porter, GUEST_NONE);
  char caller[ADDRESS_TEXT];
  int pair[2];
  address_caller(fd, caller);
  if (!guest || handed_pair(pair) != STATUS_OK) return;
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) run_guest(porter, fd, pair, preamble->session, caller, parent);
  close(pair[1]);
  if (pid < 0) {
    log_warning("cannot start a session: %s", strerror(errno));
    close(pair[0]);
    return;
  }
  *guest = (Guest){.state = GUEST_SHAKING, .pid = pid, .socket = pair[0], .turn = ++porter->turns};
  memcpy(guest->caller, caller, sizeof caller);
}

static void take_peer(Porter *porter, int fd, const Preamble *preamble) {
  Guest *guest = find(porter, GUEST_SERVED);
  bool known = guest && guest->socket >= 0 && memcmp(guest->session, preamble->session, HANDED_SESSION) == 0;
  if (known) handed_send(guest->socket, &(Handed){.kind = HANDED_CALL, .fd = fd});
}

/* A caller of another version is told this one's, to name both. */
static void answer_other_version(int fd) {
  const uint8_t nobody[GREETING_SESSION] = {0};
  preamble_send(fd, PREAMBLE_LEADER, nobody);
}

/* ---- strangers */

static void let_go(Stranger *stranger) {
  close(stranger->fd);
  stranger->fd = -1;
}

static void hear_stranger(Porter *porter, Stranger *stranger) {
  Preamble preamble;
  bool done;
  Status status = preamble_take(stranger->fd, &stranger->taken, &preamble, &done);
  if (status == STATUS_OK && !done) return;
  if (status == STATUS_OK && preamble.version != WIRE_VERSION)
    answer_other_version(stranger->fd);
  else if (status == STATUS_OK && preamble.role == PREAMBLE_LEADER)
    take_leader(porter, stranger->fd, &preamble);
  else if (status == STATUS_OK && preamble.role == PREAMBLE_PEER)
    take_peer(porter, stranger->fd, &preamble);
  let_go(stranger);
}

/* Where there is none, that of whoever has been silent for longest. */
static Stranger *find_place(Porter *porter) {
  Stranger *oldest = &porter->strangers[0];
  for (int i = 0; i < STRANGERS; i++) {
    Stranger *stranger = &porter->strangers[i];
    if (stranger->fd < 0) return stranger;
    if (stranger->since < oldest->since) oldest = stranger;
  }
  let_go(oldest);
  return oldest;
}

/* The caller may have gone meanwhile; anything else passes, or would be found again at once. */
static void note_failure(Porter *porter) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED) return;
  log_warning("cannot take a connection: %s", strerror(errno));
  porter->closed_until = clock_now() + full_seconds;
}

static void accept_at(Porter *porter, int socket) {
  int fd = accept4(socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    note_failure(porter);
    return;
  }
  if (!porter->options->listen.on_disk) address_prepare(fd);
  *find_place(porter) = (Stranger){.fd = fd, .since = clock_now()};
}

static void dismiss_silent(Porter *porter) {
  double now = clock_now();
  for (int i = 0; i < STRANGERS; i++) {
    if (porter->strangers[i].fd >= 0 && now - porter->strangers[i].since > preamble_seconds) let_go(&porter->strangers[i]);
  }
}

/* ---- the loop */

/* Whether a child has closed its socket and is about to be reaped. */
static bool someone_ends(const Porter *porter) {
  for (int i = 0; i < GUESTS; i++) {
    if (porter->guests[i].state != GUEST_NONE && porter->guests[i].socket < 0) return true;
  }
  return false;
}

static void step(Porter *porter) {
  struct pollfd waiting[ADDRESS_SOCKETS + STRANGERS + GUESTS];
  nfds_t n = 0;
  bool open = clock_now() >= porter->closed_until;
  for (int i = 0; i < porter->socket_count; i++) waiting[n++] = (struct pollfd){.fd = open ? porter->sockets[i] : -1, .events = POLLIN};
  for (int i = 0; i < STRANGERS; i++) waiting[n++] = (struct pollfd){.fd = porter->strangers[i].fd, .events = POLLIN};
  for (int i = 0; i < GUESTS; i++) waiting[n++] = (struct pollfd){.fd = porter->guests[i].socket, .events = POLLIN};
  if (poll(waiting, n, (int)((someone_ends(porter) ? reap_seconds : slice_seconds) * 1000)) > 0) {
    const struct pollfd *at = waiting + porter->socket_count;
    for (int i = 0; i < STRANGERS; i++, at++) {
      if (at->revents) hear_stranger(porter, &porter->strangers[i]);
    }
    for (int i = 0; i < GUESTS; i++, at++) {
      if (at->revents && at->fd == porter->guests[i].socket) hear_guest(porter, &porter->guests[i]);
    }
    for (int i = 0; i < porter->socket_count; i++) {
      if (waiting[i].revents & POLLIN) accept_at(porter, porter->sockets[i]);
    }
  }
  dismiss_silent(porter);
  reap(porter);
}

/* ---- beginning and end */

Status porter_check(const PorterOptions *options) {
  char text[ADDRESS_TEXT];
  if ((options->key && !options->key->open) || address_is_local(&options->listen)) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--listen %s needs --key-file: without a key anybody could use this device",
                    address_text(&options->listen, text));
}

static void say_where(const Porter *porter) {
  Address address = porter->options->listen;
  char text[ADDRESS_TEXT];
  if (!address.on_disk) address.port = address_port(porter->sockets[0]);
  log_info("listening on %s", address_text(&address, text));
}

static void dismiss_all(Porter *porter) {
  for (int i = 0; i < STRANGERS; i++) {
    if (porter->strangers[i].fd >= 0) let_go(&porter->strangers[i]);
  }
  for (int i = 0; i < GUESTS; i++) {
    Guest *guest = &porter->guests[i];
    if (guest->state != GUEST_NONE) send_away(guest);
  }
}

Status porter_run(const PorterOptions *options) {
  Porter porter = {.options = options};
  for (int i = 0; i < STRANGERS; i++) porter.strangers[i].fd = -1;
  for (int i = 0; i < GUESTS; i++) porter.guests[i].socket = -1;
  processes_become_parent();
  TRY(porter_check(options));
  TRY(fingerprint_weights(options->weights, &porter.fingerprints));
  TRY(address_listen(&options->listen, porter.sockets, &porter.socket_count));
  say_where(&porter);
  Status status = STATUS_OK;
  while (status == STATUS_OK && !*options->stop && !(options->once && porter.served > 0)) {
    step(&porter);
    status = weights_unchanged(options->weights);
  }
  dismiss_all(&porter);
  address_close(&options->listen, porter.sockets, porter.socket_count);
  return status;
}
