/* See listener.h. Leaves out: what a session does (device_session.c). */
#include "infer/cluster/listener.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/checkpoint_fetch.h"
#include "infer/cluster/device_session.h"
#include "infer/cluster/discovery.h"
#include "infer/cluster/fair_slots.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/loop.h"
#include "infer/notify.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CALLERS = 8192, MAX_HANDSHAKES = 256, MAX_PENDING = LISTENER_MAX_QUEUE + 64, MAX_TEXT = 128, ACCEPTS_AT_ONCE = 64 };
static const double caller_seconds = 5, handshake_seconds = 10; /* time limits */
static const double busy_seconds = 1, refused_seconds = 2;      /* between two BUSY messages; before a refused leader is closed */
static const double tick_seconds = 0.25, reap_seconds = 0.01;   /* between two checks of what is due; of a session that ends */
static const double full_seconds = 1;                           /* before the next accept, when descriptors have run out */
static const double unread_seconds = 30;                        /* before a waiting leader that does not read is closed */

/* ---- connections, the session, and the listener */

struct Listener;

/* An unidentified connection, or one that was refused. */
typedef struct Caller {
  LoopWatch watch;
  struct Listener *listener;
  size_t got;
  uint8_t bytes[HELLO_BYTES];
  bool refused; /* its input is discarded: closing with unread input would lose the answer */
} Caller;

typedef enum PendingState { PENDING_FREE, PENDING_HANDSHAKE, PENDING_WAITS, PENDING_REFUSED } PendingState;

/* A leader that has the key. */
typedef struct Pending {
  PendingState state;
  LoopWatch watch;
  struct Listener *listener;
  Connection *connection;
  char caller[ADDRESS_TEXT]; /* for messages */
  uint8_t session[HELLO_SESSION];
  uint64_t turn; /* first come, first served */
  double until;  /* PENDING_WAITS: when the next BUSY is due; PENDING_REFUSED: when it is closed */
  uint8_t message[WIRE_HEADER + MAX_TEXT];
  size_t size, sent; /* of the message being sent */
} Pending;

/* The session being served. */
typedef struct Session {
  pid_t pid;       /* 0: none */
  LoopWatch watch; /* of the socket for passing descriptors; fd -1: its other end is closed, the session is ending */
  double began;
  char caller[ADDRESS_TEXT];
  uint8_t session[HELLO_SESSION];
} Session;

/* Rejected callers: each is told why; the log gets one line per second. */
typedef struct Rejections {
  double last;
  uint64_t unsaid;
} Rejections;

typedef struct Listener {
  const ListenerOptions *options;
  Fingerprints fingerprints;
  Loop loop;
  LoopWatch sockets[ADDRESS_SOCKETS];
  int socket_count;
  FairSlots caller_slots, handshake_slots;
  Caller *callers; /* [caller_slots.capacity] */
  Pending handshakes[MAX_HANDSHAKES];
  Pending pending[MAX_PENDING];
  Session served;
  Rejections rejected;
  uint64_t turns;
  pid_t announcer;     /* 0: none */
  bool was_served;     /* at least one session has ended */
  bool lacks;          /* the weights: the session fetches them */
  bool fetched;        /* they are there, and not loaded yet */
  double closed_until; /* clock_now: no connection is accepted before */
  double next_tick;
  double next_alive; /* sign of life for the service manager */
} Listener;

/* ---- closing connections */

static void close_watch(Listener *l, LoopWatch *watch) {
  int fd = watch->fd;
  loop_unwatch(&l->loop, watch);
  if (fd >= 0) close(fd);
}

static void drop_caller(Listener *l, int slot) {
  close_watch(l, &l->callers[slot].watch);
  fair_slots_give(&l->caller_slots, slot);
}

static void drop_pending(Listener *l, Pending *pending) {
  loop_unwatch(&l->loop, &pending->watch);
  connection_free(pending->connection);
  if (pending->state == PENDING_HANDSHAKE) fair_slots_give(&l->handshake_slots, (int)(pending - l->handshakes));
  pending->connection = NULL;
  pending->state = PENDING_FREE;
}

/* The reason is status_message(). */
static void log_rejected(Listener *l, const char *who, const char *caller) {
  double now = clock_now();
  if (now - l->rejected.last < 1) {
    l->rejected.unsaid++;
    return;
  }
  log_warning("%s at %s was turned away: %s", who, caller, status_message());
  l->rejected.last = now;
}

/* ---- the session that is served */

/* In the child. Closes its copies of the listener's descriptors. */
static void run_session(Listener *l, Pending *pending, const int pair[2], pid_t parent) {
  const ListenerOptions *options = l->options;
  SessionPlace place = {.parent = parent,
                        .weights = options->weights,
                        .fingerprints = &l->fingerprints,
                        .control = pending->connection,
                        .passed = pair[1],
                        .key = options->key,
                        .name = options->name,
                        .leader = pending->caller,
                        .idle_timeout = options->idle_timeout,
                        .threads = options->threads,
                        .siblings = 1};
  memcpy(place.session, pending->session, HELLO_SESSION);
  loop_close(&l->loop); /* the listener's stays as it is */
  for (int i = 0; i < l->socket_count; i++) close(l->sockets[i].fd);
  for (int i = 0; i < l->caller_slots.capacity; i++) {
    if (l->callers[i].watch.fd >= 0) close(l->callers[i].watch.fd);
  }
  for (int i = 0; i < MAX_HANDSHAKES; i++) {
    if (l->handshakes[i].watch.fd >= 0) close(l->handshakes[i].watch.fd);
  }
  for (int i = 0; i < MAX_PENDING; i++) {
    int fd = l->pending[i].watch.fd;
    if (fd >= 0 && fd != connection_fd(pending->connection)) close(fd);
  }
  close(pair[0]);
  if (!l->lacks) _exit(device_session_run(&place));
  close(pair[1]);
  _exit(checkpoint_fetch_run(&(FetchPlace){.parent = parent,
                                           .control = pending->connection,
                                           .directory = options->fetch->directory,
                                           .leader = pending->caller,
                                           .idle_timeout = options->idle_timeout}));
}

static void session_ready(void *context, short events) {
  Listener *l = context;
  PassedFd passed;
  bool any = true;
  (void)events;
  if (fd_passing_receive(l->served.watch.fd, &passed, &any) == STATUS_OK && !any) return;
  close_watch(l, &l->served.watch);
}

/* Hands the connection over to a new session process. */
static void start_session(Listener *l, Pending *pending) {
  Session *served = &l->served;
  pid_t parent = getpid(), pid = -1;
  int pair[2] = {-1, -1};
  Status status = fd_passing_pair(pair);
  for (int spared = 0; status != STATUS_OK && l->caller_slots.used > 0 && spared < 4; spared++) { /* descriptors have run out */
    drop_caller(l, fair_slots_any_victim(&l->caller_slots));
    status = fd_passing_pair(pair);
  }
  if (status == STATUS_OK) {
    pid = fork();
    if (pid == 0) run_session(l, pending, pair, parent);
    if (pid < 0) status = status_set(STATUS_IO, "%s", strerror(errno));
    close(pair[1]);
  }
  if (status == STATUS_OK) status = loop_watch(&l->loop, &served->watch, pair[0], POLLIN, session_ready, l);
  if (status != STATUS_OK) {
    log_warning("cannot start a session: %s", status_message());
    if (pid > 0) kill(pid, SIGKILL);
    if (pair[0] >= 0) close(pair[0]);
  }
  if (pid > 0) {
    served->pid = pid;
    served->began = clock_now();
    memcpy(served->caller, pending->caller, sizeof served->caller);
    memcpy(served->session, pending->session, HELLO_SESSION);
    loop_unwatch(&l->loop, &pending->watch); /* closing alone would leave it on the loop: the session has it open */
    connection_forget(pending->connection);
    pending->connection = NULL;
    log_info("serving the leader at %s (session pid %d)", served->caller, (int)pid);
    notify_send("STATUS=serves the leader at %s", served->caller);
  }
  drop_pending(l, pending);
}

static bool session_ends(const Listener *l) { return l->served.pid && l->served.watch.fd < 0; }

static void end_session(Listener *l) {
  close_watch(l, &l->served.watch);
  l->served.pid = 0;
}

static void tell_waiting(const Listener *l, const char *first) {
  notify_send("%sSTATUS=%s", first, l->lacks ? "waits for a leader, to fetch its checkpoint" : "waits for leaders");
}

static void reap(Listener *l) {
  int ended;
  if (!l->served.pid || waitpid(l->served.pid, &ended, WNOHANG) != l->served.pid) return;
  if (WIFSIGNALED(ended))
    log_warning("session pid %d of %s died: signal %d (%s)", (int)l->served.pid, l->served.caller, WTERMSIG(ended),
                strsignal(WTERMSIG(ended)));
  else
    log_info("session pid %d of %s is over after %.1f s", (int)l->served.pid, l->served.caller, clock_now() - l->served.began);
  l->fetched = l->lacks && WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
  l->was_served = !l->lacks;
  end_session(l);
  tell_waiting(l, "");
}

/* ---- waiting leaders */

static int place_of(const Listener *l, const Pending *pending) {
  int place = 1;
  for (int i = 0; i < MAX_PENDING; i++) place += l->pending[i].state == PENDING_WAITS && l->pending[i].turn < pending->turn;
  return place;
}

static void make_busy(const Listener *l, Pending *pending, int place) {
  const char *refusal = l->options->queue > 0 ? "its queue is full" : "no other may wait (--busy refuse)";
  char text[MAX_TEXT];
  int length = place ? snprintf(text, sizeof text, "is busy with another leader; this run is number %d in its queue", place)
                     : snprintf(text, sizeof text, "is busy with another leader, and %s", refusal);
  wire_pack(&(WireHeader){.kind = WIRE_BUSY, .count = (uint32_t)place, .bytes = (uint32_t)length}, pending->message);
  memcpy(pending->message + WIRE_HEADER, text, (size_t)length);
  pending->size = WIRE_HEADER + (size_t)length;
  pending->sent = 0;
}

/* Nothing is read from a waiting leader: its messages are for the session. Only a hang-up is noticed. */
static void send_some(Listener *l, Pending *pending) {
  bool blocked = false;
  while (pending->sent < pending->size && !blocked) {
    ssize_t n = connection_write(pending->connection, pending->message + pending->sent, pending->size - pending->sent);
    blocked = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (n < 0 && errno != EINTR && !blocked) {
      drop_pending(l, pending);
      return;
    }
    if (n > 0) pending->sent += (size_t)n;
  }
  loop_expect(&l->loop, &pending->watch, (short)(POLLRDHUP | (blocked ? POLLOUT : 0)));
}

static void pending_ready(void *context, short events) {
  Pending *pending = context;
  Listener *l = pending->listener;
  if (events & (POLLRDHUP | POLLHUP | POLLERR))
    drop_pending(l, pending);
  else
    send_some(l, pending);
}

static Pending *find_pending(Listener *l, PendingState state) {
  Pending *first = NULL;
  for (int i = 0; i < MAX_PENDING; i++) {
    Pending *pending = &l->pending[i];
    if (pending->state == state && (!first || pending->turn < first->turn)) first = pending;
  }
  return first;
}

/* Serves the first waiting leader if no session runs, of those that have read what was sent to them: a message must be sent completely
 * before, or its TLS stream would break. */
static void call_next(Listener *l) {
  Pending *next = NULL;
  for (int i = 0; i < MAX_PENDING && !l->served.pid && !l->fetched; i++) {
    Pending *pending = &l->pending[i];
    const bool ready = pending->state == PENDING_WAITS && pending->sent == pending->size;
    if (ready && (!next || pending->turn < next->turn)) next = pending;
  }
  if (next) start_session(l, next);
}

/* A handshake is done: the leader is served, queued, or refused. */
static void admit(Listener *l, Pending *handshake) {
  Pending *pending = find_pending(l, PENDING_FREE);
  if (!pending) pending = find_pending(l, PENDING_REFUSED); /* it was told already; there are more slots than leaders may wait */
  int waiting = 0;
  for (int i = 0; i < MAX_PENDING; i++) waiting += l->pending[i].state == PENDING_WAITS;
  bool room = waiting < l->options->queue + !l->served.pid; /* one of them is served next */
  /* As many wait as there are slots. */
  if (!pending) {
    drop_pending(l, handshake);
    return;
  }
  if (pending->state == PENDING_REFUSED) drop_pending(l, pending);
  memcpy(pending->caller, handshake->caller, sizeof pending->caller);
  memcpy(pending->session, handshake->session, HELLO_SESSION);
  pending->connection = handshake->connection;
  handshake->connection = NULL;
  drop_pending(l, handshake);
  pending->state = room ? PENDING_WAITS : PENDING_REFUSED;
  pending->turn = ++l->turns;
  pending->size = pending->sent = 0;
  pending->until = clock_now() + (room ? busy_seconds : refused_seconds);
  if (loop_watch(&l->loop, &pending->watch, connection_fd(pending->connection), POLLRDHUP, pending_ready, pending) != STATUS_OK)
    drop_pending(l, pending);
  call_next(l);
  if (pending->state == PENDING_FREE) return;
  make_busy(l, pending, room ? place_of(l, pending) : 0);
  send_some(l, pending);
}

/* ---- TLS handshakes of leaders that have the key */

static void handshake_ready(void *context, short events) {
  Pending *handshake = context;
  Listener *l = handshake->listener;
  bool done;
  (void)events;
  if (connection_step(handshake->connection, &done) != STATUS_OK) {
    log_rejected(l, "a leader", handshake->caller);
    drop_pending(l, handshake);
  } else if (done) {
    admit(l, handshake);
  } else {
    loop_expect(&l->loop, &handshake->watch, connection_events(handshake->connection, true, false));
  }
}

/* What shares slots: an IPv4 address, a /64 of IPv6, and all UNIX sockets. */
static uint64_t address_of(const FairSlots *slots, const struct sockaddr_storage *from) {
  if (from->ss_family == AF_INET) return fair_slots_address(slots, &((const struct sockaddr_in *)from)->sin_addr, 4);
  if (from->ss_family == AF_INET6) return fair_slots_address(slots, &((const struct sockaddr_in6 *)from)->sin6_addr, 8);
  return fair_slots_address(slots, "local", 5);
}

/* Takes ownership of the descriptor. */
static void begin_handshake(Listener *l, int fd, const Hello *hello) {
  struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
  socklen_t bytes = sizeof from;
  getpeername(fd, (struct sockaddr *)&from, &bytes);
  uint64_t address = address_of(&l->handshake_slots, &from);
  int victim = fair_slots_victim(&l->handshake_slots, address);
  if (victim >= 0) drop_pending(l, &l->handshakes[victim]);
  Pending *handshake = &l->handshakes[fair_slots_take(&l->handshake_slots, address, clock_now())];
  handshake->state = PENDING_HANDSHAKE;
  handshake->listener = l;
  memcpy(handshake->session, hello->session, HELLO_SESSION);
  address_caller(fd, handshake->caller);
  address_limit_silence(fd, true);
  Status status = connection_tls(&handshake->connection, fd, CONNECTION_ANSWERS, l->options->key);
  if (status == STATUS_OK) handshake->connection->limited = true; /* until it is sent a message */
  if (status == STATUS_OK) status = loop_watch(&l->loop, &handshake->watch, fd, POLLIN, handshake_ready, handshake);
  if (status == STATUS_OK) {
    handshake_ready(handshake, POLLIN); /* its first bytes may have come with the HELLO */
  } else {
    log_rejected(l, "a leader", handshake->caller);
    drop_pending(l, handshake);
  }
}

/* ---- unidentified connections */

static void refuse(Listener *l, Caller *caller, HelloResult result) {
  static const char *const reasons[HELLO_RESULTS] = {[HELLO_OTHER_VERSION] = "it is of another release of astra",
                                                     [HELLO_OTHER_KEY] = "it has another key",
                                                     [HELLO_NEEDS_KEY] = "it has no key",
                                                     [HELLO_NEEDS_NO_KEY] = "it has a key, and this device has none"};
  uint8_t answer[HELLO_MAX_ANSWER];
  char from[ADDRESS_TEXT];
  ssize_t sent = send(caller->watch.fd, answer, hello_pack_answer(result, answer), MSG_NOSIGNAL | MSG_DONTWAIT);
  status_set(STATUS_BAD_VALUE, "%s", reasons[result]);
  log_rejected(l, "a caller", address_caller(caller->watch.fd, from));
  caller->refused = true;
  if (sent < 0) drop_caller(l, (int)(caller - l->callers));
}

/* A leader goes on to its TLS handshake; a peer of the session that is served is passed to it. */
static void let_in(Listener *l, Caller *caller, const Hello *hello) {
  const Session *served = &l->served;
  int fd = caller->watch.fd;
  loop_unwatch(&l->loop, &caller->watch);
  fair_slots_give(&l->caller_slots, (int)(caller - l->callers));
  if (hello->role == HELLO_LEADER) {
    begin_handshake(l, fd, hello);
    return;
  }
  bool known = served->pid && served->watch.fd >= 0 && memcmp(served->session, hello->session, HELLO_SESSION) == 0;
  if (known) fd_passing_send(served->watch.fd, &(PassedFd){.kind = FD_CONNECTION, .fd = fd});
  close(fd);
}

/* Reads no further than the HELLO, except from a refused caller. */
static void caller_ready(void *context, short events) {
  Caller *caller = context;
  Listener *l = caller->listener;
  uint8_t rest[512];
  Hello hello;
  (void)events;
  ssize_t n = caller->refused ? recv(caller->watch.fd, rest, sizeof rest, MSG_DONTWAIT)
                              : recv(caller->watch.fd, caller->bytes + caller->got, HELLO_BYTES - caller->got, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n > 0 && caller->refused) return;
  caller->got += n > 0 ? (size_t)n : 0;
  HelloResult result = n > 0 ? hello_read(caller->bytes, caller->got, l->options->key, &hello) : HELLO_NONE;
  if (result == HELLO_NONE)
    drop_caller(l, (int)(caller - l->callers));
  else if (result == HELLO_LET_IN)
    let_in(l, caller, &hello);
  else if (result != HELLO_INCOMPLETE)
    refuse(l, caller, result);
}

/* After a failed accept. True: try again at once. */
static bool note_failure(Listener *l) {
  if (errno == EINTR || errno == ECONNABORTED) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (full && l->caller_slots.used > 0) {
    drop_caller(l, fair_slots_any_victim(&l->caller_slots));
    return true;
  }
  log_warning("cannot take a connection: %s", strerror(errno));
  l->closed_until = clock_now() + full_seconds;
  for (int i = 0; i < l->socket_count; i++) loop_expect(&l->loop, &l->sockets[i], 0);
  return false;
}

static void take_caller(Listener *l, int fd, const struct sockaddr_storage *from) {
  uint64_t address = address_of(&l->caller_slots, from);
  int victim = fair_slots_victim(&l->caller_slots, address);
  if (victim >= 0) drop_caller(l, victim);
  int slot = fair_slots_take(&l->caller_slots, address, clock_now());
  Caller *caller = &l->callers[slot];
  caller->listener = l;
  caller->got = 0;
  caller->refused = false;
  if (loop_watch(&l->loop, &caller->watch, fd, POLLIN, caller_ready, caller) == STATUS_OK) {
    caller_ready(caller, POLLIN); /* usually its HELLO is there by now */
  } else {
    close(fd);
    fair_slots_give(&l->caller_slots, slot);
  }
}

static void socket_ready(void *context, short events) {
  Listener *l = context;
  (void)events;
  for (int s = 0; s < l->socket_count && clock_now() >= l->closed_until; s++) {
    bool more = true;
    for (int i = 0; i < ACCEPTS_AT_ONCE && more; i++) {
      struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
      socklen_t bytes = sizeof from;
      int fd = accept4(l->sockets[s].fd, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0)
        take_caller(l, fd, &from);
      else
        more = note_failure(l);
    }
  }
}

/* ---- time limits and periodic work */

static Status load(Listener *l) {
  notify_send("STATUS=loads the checkpoint");
  notify_busy(true);
  TRY(l->options->fetch->load(l->options->fetch->context));
  TRY(fingerprint_weights(l->options->weights, &l->fingerprints));
  l->lacks = l->fetched = false;
  notify_busy(false);
  tell_waiting(l, "");
  log_info("the checkpoint is loaded");
  return STATUS_OK;
}

static Status tick(Listener *l) {
  double now = clock_now();
  if (session_ends(l)) reap(l);
  if (l->fetched) TRY(load(l));
  call_next(l);
  if (now < l->next_tick) return STATUS_OK;
  l->next_tick = now + tick_seconds;
  if (notify_interval() > 0 && now >= l->next_alive) {
    notify_send("WATCHDOG=1");
    l->next_alive = now + notify_interval();
  }
  if (l->announcer > 0 && !*l->options->stop && waitpid(l->announcer, NULL, WNOHANG) == l->announcer) {
    log_warning("the process that announces this worker has ended: leaders find it by its address alone; start it again to announce it");
    l->announcer = 0;
  }
  reap(l);
  if (l->fetched) return STATUS_OK; /* loaded in the next one */
  call_next(l);
  for (int i = 0; i < l->caller_slots.capacity; i++) {
    const FairSlot *slot = &l->caller_slots.slots[i];
    if (slot->bucket >= 0 && now - slot->since > caller_seconds) drop_caller(l, i);
  }
  for (int i = 0; i < MAX_HANDSHAKES; i++) {
    const FairSlot *slot = &l->handshake_slots.slots[i];
    if (slot->bucket >= 0 && now - slot->since > handshake_seconds) drop_pending(l, &l->handshakes[i]);
  }
  for (int i = 0; i < MAX_PENDING; i++) {
    Pending *pending = &l->pending[i];
    const bool deaf = pending->state == PENDING_WAITS && pending->sent < pending->size && now > pending->until + unread_seconds;
    if (deaf || (pending->state == PENDING_REFUSED && now > pending->until)) drop_pending(l, pending);
    if (pending->state != PENDING_WAITS || now < pending->until || pending->sent < pending->size) continue;
    make_busy(l, pending, place_of(l, pending));
    pending->until = now + busy_seconds;
    send_some(l, pending);
  }
  if (l->rejected.unsaid && now - l->rejected.last >= 1) {
    log_warning("%llu more callers were turned away", (unsigned long long)l->rejected.unsaid);
    l->rejected = (Rejections){.last = now};
  }
  for (int i = 0; i < l->socket_count && now >= l->closed_until; i++) loop_expect(&l->loop, &l->sockets[i], POLLIN);
  return l->lacks ? STATUS_OK : weights_unchanged(l->options->weights);
}

/* ---- beginning and end */

Status listener_check(const ListenerOptions *options) {
  char text[ADDRESS_TEXT];
  if (options->announce && address_is_local(&options->listen))
    return status_set(STATUS_BAD_USAGE,
                      "--announce: others cannot reach --listen %s; give an address of the network, as in --listen 0.0.0.0:7433",
                      address_text(&options->listen, text));
  if ((options->key && !options->key->open) || options->listen.on_disk) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE,
                    "--listen %s needs --key-file (astra-infer keygen makes one): without a key all users who can reach it could use this "
                    "device; UNIX sockets (--listen local, or unix:PATH) need none",
                    address_text(&options->listen, text));
}

/* As many callers as half of the available descriptors; the rest is for everything else. */
static Status start(Listener *l) {
  struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  int callers = limit.rlim_cur / 2 < MAX_CALLERS ? (int)(limit.rlim_cur / 2) : MAX_CALLERS;
  if (callers < 2) callers = 2;
  TRY(fair_slots_init(&l->caller_slots, callers, callers / 2));
  TRY(fair_slots_init(&l->handshake_slots, MAX_HANDSHAKES, MAX_HANDSHAKES / 2));
  if (!(l->callers = calloc((size_t)callers, sizeof *l->callers))) return status_set(STATUS_NO_MEMORY, "no memory for %d callers", callers);
  for (int i = 0; i < callers; i++) l->callers[i].watch.fd = -1;
  for (int i = 0; i < MAX_HANDSHAKES; i++) l->handshakes[i].watch.fd = -1;
  for (int i = 0; i < MAX_PENDING; i++) l->pending[i] = (Pending){.watch.fd = -1, .listener = l};
  for (int i = 0; i < ADDRESS_SOCKETS; i++) l->sockets[i].fd = -1;
  l->served.watch.fd = -1;
  TRY(loop_open(&l->loop));
  l->lacks = l->options->fetch != NULL;
  if (!l->lacks) TRY(fingerprint_weights(l->options->weights, &l->fingerprints));
  Address address = l->options->listen;
  char text[ADDRESS_TEXT];
  int sockets[ADDRESS_SOCKETS];
  TRY(address_listen(&address, sockets, &l->socket_count));
  for (int i = 0; i < l->socket_count; i++) TRY(loop_watch(&l->loop, &l->sockets[i], sockets[i], POLLIN, socket_ready, l));
  if (!address.on_disk) address.port = address_port(sockets[0]);
  log_info("listening on %s", address_text(&address, text));
  if (!l->options->announce) return STATUS_OK;
  const Announcement announcement = {.name = l->options->name, .listen = &address, .port = address.port, .key = l->options->key};
  return discovery_announce(&announcement, &l->announcer);
}

static void release(Listener *l) {
  int sockets[ADDRESS_SOCKETS];
  for (int i = 0; l->callers && i < l->caller_slots.capacity; i++) {
    if (l->callers[i].watch.fd >= 0) drop_caller(l, i);
  }
  for (int i = 0; i < MAX_HANDSHAKES; i++) {
    if (l->handshakes[i].state != PENDING_FREE) drop_pending(l, &l->handshakes[i]);
  }
  for (int i = 0; i < MAX_PENDING; i++) {
    if (l->pending[i].state != PENDING_FREE) drop_pending(l, &l->pending[i]);
  }
  if (l->served.pid) {
    kill(l->served.pid, SIGKILL);
    while (waitpid(l->served.pid, NULL, 0) < 0 && errno == EINTR) continue;
    end_session(l);
  }
  discovery_end(l->announcer);
  for (int i = 0; i < l->socket_count; i++) sockets[i] = l->sockets[i].fd;
  address_close(&l->options->listen, sockets, l->socket_count);
  loop_close(&l->loop);
  fair_slots_release(&l->caller_slots);
  fair_slots_release(&l->handshake_slots);
  free(l->callers);
}

Status listener_run(const ListenerOptions *options) {
  Listener *l = calloc(1, sizeof *l);
  if (!l) return status_no_memory(NULL, "a listener");
  l->options = options;
  l->loop.fd = -1;
  signal(SIGCHLD, SIG_DFL); /* or sessions could not be waited for, if the parent ignored it */
  Status status = listener_check(options);
  if (status == STATUS_OK) status = start(l);
  if (status == STATUS_OK) tell_waiting(l, "READY=1\n");
  while (status == STATUS_OK && !*options->stop && !(options->once && l->was_served)) {
    status = loop_step(&l->loop, session_ends(l) ? reap_seconds : tick_seconds);
    if (status == STATUS_OK) status = tick(l);
  }
  notify_send("STOPPING=1");
  release(l);
  free(l);
  return status;
}
