/* See membership.h. */
#include "infer/cluster/membership.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/device_session.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include <errno.h>
#include <math.h>
#include <openssl/rand.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double call_seconds = 5;                         /* for a connection, and for its handshake */
static const double again_soon = 0.02, again_max_soon = 1;    /* to a worker that hung up before WELCOME */
static const double again_seconds = 1, again_max = 30;        /* between calls to a lost worker */
static const double useless_seconds = 60, useless_max = 3600; /* to a worker that answers but fails every time */
static const double explain_seconds = 0.5;                    /* for the system to tell which child has died */
static const double stop_seconds = 2;                         /* for children to exit by themselves */
static const double slice_seconds = 0.02;
static const double load_seconds = 300, load_slice = 0.25; /* for a worker to load what it has fetched; between two calls meanwhile */

const char *membership_worker(const LeaderDevice *device, char text[MEMBERSHIP_WORKER]) {
  char address[ADDRESS_TEXT];
  address_text(&device->address, address);
  snprintf(text, MEMBERSHIP_WORKER, "%s%s%s", device->name, device->name[0] ? " at " : "", address);
  return text;
}

const char *membership_name(const Membership *membership, int m, char text[MEMBERSHIP_NAME]) {
  const LeaderDevice *device = &membership->devices[m];
  char worker[MEMBERSHIP_WORKER];
  if (device->forked)
    snprintf(text, MEMBERSHIP_NAME, "node %d (pid %d)", m, (int)device->pid);
  else
    snprintf(text, MEMBERSHIP_NAME, "node %d (worker %s)", m, membership_worker(device, worker));
  return text;
}

static void become(LeaderDevice *device, DeviceState state) {
  device->state = state;
  device->since = clock_now();
}

/* ---- processes of this machine */

static void close_passed(LeaderDevice *device) {
  if (device->passed >= 0) close(device->passed);
  device->passed = -1;
}

/* In child m. Closes its copies of the parent's sockets. */
static void run_child(Membership *membership, int m, int control, int passed, pid_t parent) {
  SessionPlace place = {.weights = membership->weights,
                        .fingerprints = membership->fingerprints,
                        .parent = parent,
                        .passed = passed,
                        .together = membership->cluster->peer_count == 0,
                        .key = membership->cluster->key,
                        .threads = membership->threads,
                        .number = m,
                        .siblings = membership->cluster->local};
  memcpy(place.session, membership->session, HELLO_SESSION);
  for (int i = 0; i <= m; i++) {
    connection_close(&membership->devices[i].connection);
    close_passed(&membership->devices[i]);
  }
  if (connection_plain(&place.control, control) == STATUS_OK) _exit(device_session_run(&place));
  log_warning("node %d: %s", m, status_message()); /* nobody else can say it */
  _exit(1);
}

static Status fork_one(Membership *membership, int m, pid_t parent) {
  LeaderDevice *device = &membership->devices[m];
  int control[2] = {-1, -1}, passed[2] = {-1, -1};
  Status status = connection_pair(control);
  if (status == STATUS_OK) status = fd_passing_pair(passed);
  if (status == STATUS_OK)
    status = connection_open(&device->connection, control[0]);
  else if (control[0] >= 0)
    close(control[0]);
  device->passed = passed[0];
  pid_t pid = status == STATUS_OK ? fork() : -1;
  if (pid == 0) run_child(membership, m, control[1], passed[1], parent);
  if (pid < 0 && status == STATUS_OK)
    status = status_set(STATUS_IO, "cannot start process %d of %d: %s", m + 1, membership->cluster->local, strerror(errno));
  if (pid > 0) device->pid = pid;
  if (control[1] >= 0) close(control[1]);
  if (passed[1] >= 0) close(passed[1]);
  TRY(status);
  connection_receive(&device->connection, m, &membership->sink);
  become(device, DEVICE_GREETED);
  return STATUS_OK;
}

/* Many nodes, and the clients of a service, need more descriptors than the usual soft limit. */
static void raise_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static Status fork_local(Membership *membership) {
  pid_t parent = getpid();
  raise_limit();
  if (membership->cluster->local == 0) return STATUS_OK;
  fflush(NULL);             /* or each child would print what is still buffered */
  signal(SIGCHLD, SIG_DFL); /* or children could not be waited for, if the parent ignored it */
  for (int m = 0; m < membership->cluster->local; m++) TRY(fork_one(membership, m, parent));
  return STATUS_OK;
}

/* True: it has ended, or was never started. */
static bool reap(LeaderDevice *device, int flags) {
  if (device->reaped || !device->pid) return true;
  pid_t ended;
  do ended = waitpid(device->pid, &device->ended, flags);
  while (ended < 0 && errno == EINTR);
  return device->reaped = ended != 0;
}

static void pause_a_moment(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* SIGKILL also ends a stopped process. */
static void end_child(LeaderDevice *device) {
  if (device->pid && !device->reaped) kill(device->pid, SIGKILL);
  reap(device, 0);
  device->gone = true;
  close_passed(device);
}

bool membership_has_ended(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  return device->pid && !device->gone && reap(device, WNOHANG);
}

int membership_find_dead(Membership *membership, char *text, size_t room) {
  int found = -1;
  for (int m = 0; m < membership->cluster->local; m++) {
    LeaderDevice *device = &membership->devices[m];
    if (!membership_has_ended(membership, m)) continue;
    if (found < 0 || (WIFSIGNALED(device->ended) && !WIFSIGNALED(membership->devices[found].ended))) found = m;
  }
  if (found < 0) return found;
  int ended = membership->devices[found].ended;
  if (WIFSIGNALED(ended))
    snprintf(text, room, "died: signal %d (%s)", WTERMSIG(ended), strsignal(WTERMSIG(ended)));
  else
    snprintf(text, room, "ended with exit status %d", WEXITSTATUS(ended));
  return found;
}

/* A signal that interrupts this process may have ended children as well; that is no failure of theirs. */
Status membership_explain(Membership *membership, Status status, bool patient, bool *known) {
  char text[128];
  int dead;
  *known = true;
  if (membership->stop && *membership->stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  double until = clock_now() + (patient && membership->cluster->local > 0 ? explain_seconds : 0);
  while ((dead = membership_find_dead(membership, text, sizeof text)) < 0 && clock_now() < until) pause_a_moment();
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)membership->devices[dead].pid, text);
  *known = false;
  return status;
}

/* ---- joining and leaving */

/* Doubles the pause: at least `min`, at most `max`, unless it is longer already. */
static void put_off(LeaderDevice *device, double min, double max) {
  device->pause = fmin(fmax(2 * device->pause, min), fmax(device->pause, max));
  device->next = clock_now() + device->pause;
}

void membership_drop(Membership *membership, int m, bool useless) {
  LeaderDevice *device = &membership->devices[m];
  connection_close(&device->connection);
  device->node = -1;
  device->asked = false;
  if (device->forked) end_child(device);
  become(device, DEVICE_LOST);
  put_off(device, again_seconds, again_max);
  if (useless || device->refused) put_off(device, useless_seconds, useless_max);
  device->refused = false;
}

static bool is_address(const Address *address, const Address *other) {
  return address->on_disk == other->on_disk && address->port == other->port && strcmp(address->name, other->name) == 0;
}

static bool is_known(const Membership *membership, const Address *address) {
  for (int m = membership->cluster->local; m < membership->count; m++) {
    const LeaderDevice *device = &membership->devices[m];
    if (is_address(&device->address, address) || is_address(&device->reached, address)) return true;
  }
  return false;
}

/* A device whose place can be taken; count: none. */
static int free_place(const Membership *membership, const Address *found, int count) {
  for (int m = membership->cluster->local; m < membership->count; m++) {
    const LeaderDevice *device = &membership->devices[m];
    bool there = false;
    for (int i = 0; i < count && !there; i++) there = is_address(&device->address, &found[i]);
    if (device->added && device->state == DEVICE_LOST && !there) return m;
  }
  return membership->count;
}

bool membership_add(Membership *membership, const Address *address, const Address *found, int count, int *place) {
  const int m = free_place(membership, found, count);
  *place = -1;
  if (is_known(membership, address)) return true;
  if (m == membership->room) return false;
  if (m < membership->count) address_search_leave(&membership->devices[m].search);
  membership->devices[m] = (LeaderDevice){.passed = -1, .node = -1, .address = *address, .added = true};
  connection_init(&membership->devices[m].connection);
  if (m == membership->count) membership->count++;
  *place = m;
  return true;
}

/* ---- workers: from connecting to WELCOME, step by step */

/* Connects to the next address of the worker. */
static Status call(Membership *membership, LeaderDevice *device) {
  Status status = STATUS_OK;
  if (device->number_count == 0) TRY(address_numbers(&device->address, device->numbers, &device->number_count));
  become(device, DEVICE_CALLED);
  device->answered = device->fetches = false;
  do {
    status =
        connection_dial(&device->connection, &device->numbers[device->turn], HELLO_LEADER, membership->session, membership->cluster->key);
    if (status != STATUS_OK) device->turn = (device->turn + 1) % device->number_count;
  } while (status != STATUS_OK && device->turn > 0);
  return status;
}

static Status step_handshake(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  Connection *connection = &device->connection;
  char text[ADDRESS_TEXT];
  bool done;
  if (!connection_is_open(connection)) return clock_now() < device->next ? STATUS_OK : call(membership, device);
  Status status = connection_step(connection, &done);
  bool calling = connection->calling;
  if (status == STATUS_OK && !calling && !device->answered) {
    device->answered = true;
    device->since = clock_now(); /* the time limit of the handshake starts */
    status = address_of_peer(connection_fd(connection), &device->address, &device->reached);
    /* A worker serves one connection at a time: a second one would wait for the first forever. */
    for (int b = membership->cluster->local; b < membership->count && status == STATUS_OK; b++) {
      const Address *other = &membership->devices[b].reached, *own = &device->reached;
      if (b != m && connection_is_open(&membership->devices[b].connection) && other->on_disk == own->on_disk && other->port == own->port &&
          strcmp(other->name, own->name) == 0)
        status = status_set(STATUS_BAD_VALUE, "node %d is the same worker, at %s: name each one once", b, address_text(own, text));
    }
  }
  if (status == STATUS_OK && !done && clock_now() - device->since >= call_seconds) {
    address_text(&device->numbers[device->turn], text);
    status = device->answered ? status_set(STATUS_TIMEOUT, "did not answer within %g s", call_seconds)
                              : status_set(STATUS_TIMEOUT, "%s: no answer within %g s", text, call_seconds);
  }
  if (status != STATUS_OK && calling) { /* the next address */
    connection_close(connection);
    device->turn = (device->turn + 1) % device->number_count;
    return device->turn > 0 ? call(membership, device) : status;
  }
  if (status != STATUS_OK || !done) return status;
  connection_receive(connection, m, &membership->sink);
  connection->nameless = true; /* errors get membership_name */
  become(device, DEVICE_GREETED);
  return connections_step(&connection, 1, 0);
}

/* The connection goes to a thread that sends the checkpoint. */
static Status start_offer(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  char name[MEMBERSHIP_NAME];
  device->fetches = false;
  membership_name(membership, m, name);
  device->refused = membership->catalogue == NULL;
  if (device->refused)
    return status_set(STATUS_BAD_VALUE, "%s fetches its checkpoint, and this command offers none; start the worker with --checkpoint",
                      name);
  TRY(offer_start(&device->offer, membership->catalogue, &device->connection, name));
  become(device, DEVICE_FETCHES);
  return STATUS_OK;
}

/* Once the thread has ended: the worker is called again while it loads. */
static Status step_offer(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  char name[MEMBERSHIP_NAME];
  Status status = offer_end(&device->offer, false);
  if (device->offer) return STATUS_OK;
  device->refused = status == STATUS_BAD_VALUE;
  device->patient = clock_now() + (status == STATUS_OK ? load_seconds : membership->cluster->wait);
  membership_name(membership, m, name);
  if (device->refused) return status_wrap(status, "%s", name);
  if (status != STATUS_OK) log_info("%s has not fetched all of the checkpoint: it %s", name, status_message());
  TRY(status);
  become(device, DEVICE_CALLED);
  device->next = clock_now() + load_slice;
  return STATUS_OK;
}

static Status step_call(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  Connection *connection = &device->connection;
  if (device->state == DEVICE_FETCHES) return step_offer(membership, m);
  if (device->state != DEVICE_GREETED) return step_handshake(membership, m);
  TRY(connections_step(&connection, 1, 0));
  return device->fetches ? start_offer(membership, m) : STATUS_OK;
}

/* A device that is called, or whose connection a thread has. */
static bool is_joining(const LeaderDevice *device) {
  return device->state == DEVICE_FETCHES || device->state == DEVICE_CALLED || device->state == DEVICE_GREETED;
}

static bool is_calling(const Membership *membership) {
  for (int m = 0; m < membership->count; m++) {
    const LeaderDevice *device = &membership->devices[m];
    if (device->state == DEVICE_CALLED || device->state == DEVICE_GREETED || device->yields) return true;
  }
  return false;
}

void membership_ping(Membership *membership) {
  double now = clock_now();
  if (now < membership->next_ping) return;
  membership->next_ping = now + MEMBERSHIP_PING_SECONDS;
  wire_pack(&(WireHeader){.kind = WIRE_PING, .sender = WIRE_LEADER}, membership->ping);
  for (int m = membership->cluster->local; m < membership->count; m++) {
    if (membership->devices[m].state >= DEVICE_HERE) connection_ping(&membership->devices[m].connection, membership->ping);
  }
}

/* Whether the numbers of a lost worker are there, *status OK, or it is known why not. Its name is resolved again after calls have failed
 * for long; meanwhile others are served: a name server can take its time. If it does not know the name any more, the numbers stay. */
static bool finds_numbers(LeaderDevice *device, Status *status) {
  Address numbers[ADDRESS_SOCKETS];
  int count;
  *status = STATUS_OK;
  if (!device->search) {
    if (device->number_count > 0 && (device->turn > 0 || device->pause < again_max)) return true;
    *status = address_search(&device->search, &device->address);
    return *status != STATUS_OK;
  }
  if (!address_search_ended(&device->search, numbers, &count, status)) return false;
  if (*status == STATUS_OK) {
    memcpy(device->numbers, numbers, (size_t)count * sizeof *numbers);
    device->number_count = count;
    device->turn = 0;
  }
  if (device->number_count > 0) *status = STATUS_OK;
  return true;
}

/* That a lost worker is still lost is not logged, nor that it still refuses for the same reason. */
bool membership_poll(Membership *membership) {
  double now = clock_now();
  for (int m = 0; m < membership->count; m++) {
    LeaderDevice *device = &membership->devices[m];
    Status status = STATUS_OK;
    const bool due = device->state == DEVICE_LOST && !device->forked && now >= device->next;
    if (due && finds_numbers(device, &status) && status == STATUS_OK) status = call(membership, device);
    if (is_joining(device)) status = status == STATUS_OK ? step_call(membership, m) : status;
    if (status == STATUS_OK) continue;
    if (device->refused && strcmp(device->refusal, status_message()) != 0) {
      log_warning("%s", status_message());
      snprintf(device->refusal, sizeof device->refusal, "%s", status_message());
    }
    membership_drop(membership, m, false);
  }
  return is_calling(membership);
}

/* ---- start */

/* A worker that cannot be reached, or is silent, is left out until it answers a later call (membership.h), if the cluster may continue
 * without failed devices. A worker that refuses, or is busy for too long, is an error. */
static Status miss(Membership *membership, int m, Status status) {
  LeaderDevice *device = &membership->devices[m];
  bool out_of_reach = status == STATUS_NOT_FOUND || status == STATUS_TIMEOUT || status == STATUS_PEER || status == STATUS_IO;
  bool found = membership->cluster->discovered && status != STATUS_INTERRUPTED && status != STATUS_NO_MEMORY;
  bool needed = membership->cluster->on_failure == ON_FAILURE_ABORT || device->place > 0 || !out_of_reach;
  if (device->forked || (needed && !found)) return status;
  if (device->refused) snprintf(device->refusal, sizeof device->refusal, "%s", status_message()); /* not to be told again */
  log_warning("%s; going on without it", status_message());
  membership_drop(membership, m, false);
  return STATUS_OK;
}

/* Avoids deadlock: of two leaders that want the same workers, each could hold one and wait for the other. So a leader that waits for a
 * worker releases those after it, and calls them again when it has that one. The order is by address, the same for all leaders. */
static Status keep_order(Membership *membership) {
  for (int m = membership->cluster->local; m < membership->count; m++) {
    LeaderDevice *device = &membership->devices[m];
    char own[ADDRESS_TEXT], earlier[ADDRESS_TEXT];
    bool waits = false;
    address_text(&device->reached, own);
    for (int b = membership->cluster->local; b < membership->count && !waits; b++) {
      const LeaderDevice *busy = &membership->devices[b];
      waits = b != m && busy->state == DEVICE_GREETED && busy->place > 0 && strcmp(address_text(&busy->reached, earlier), own) < 0;
    }
    if (waits && device->state == DEVICE_HERE) {
      membership_drop(membership, m, false);
      device->yields = true;
    } else if (!waits && device->yields) {
      device->yields = false;
      Status status = call(membership, device);
      if (status != STATUS_OK) TRY(miss(membership, m, status));
    }
  }
  return STATUS_OK;
}

/* A worker that accepted the connection and hung up or fell silent, before WELCOME or BUSY, may have too many callers: it is called again,
 * for as long as --wait. */
static bool try_again(Membership *membership, int m, Status status) {
  LeaderDevice *device = &membership->devices[m];
  char name[MEMBERSHIP_NAME];
  double now = clock_now();
  bool hung_up = status == STATUS_PEER || status == STATUS_IO || status == STATUS_TIMEOUT;
  bool loads = now < device->patient;
  bool patient = device->answered && now - membership->began <= membership->cluster->wait;
  if (!(loads || patient) || !hung_up || device->refused || device->place > 0) return false;
  if (device->tries++ == 0 && !loads)
    log_info("%s %s before it said who it is; calling it again, for as long as --wait %g", membership_name(membership, m, name),
             status == STATUS_TIMEOUT ? "fell silent" : "hung up", membership->cluster->wait);
  connection_close(&device->connection);
  become(device, DEVICE_CALLED);
  double share = (double)(now * 1e6 - floor(now * 1e6)); /* jitter, so that leaders do not all call again at the same time */
  device->next = now + fmin(again_max_soon, again_soon * (double)(1U << (device->tries < 8 ? device->tries : 8))) * (0.5 + share);
  return true;
}

static Status step_device(Membership *membership, int m) {
  LeaderDevice *device = &membership->devices[m];
  char name[MEMBERSHIP_NAME];
  bool known;
  if (membership->stop && *membership->stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  Status status = step_call(membership, m);
  if (status != STATUS_OK && !device->forked && try_again(membership, m, status)) return STATUS_OK;
  if (status != STATUS_OK && device->forked) return membership_explain(membership, status, status == STATUS_PEER, &known);
  if (status == STATUS_TIMEOUT && device->tries > 0 && device->patient == 0)
    status_set(status, "did not answer within %.0f s, in %d calls; --wait sets for how long a worker is called",
               clock_now() - membership->began, device->tries + 1);
  membership_name(membership, m, name);
  if (status != STATUS_OK && !device->refused) status_wrap(status, "%s", name); /* the message of a refusal names it already */
  if (status != STATUS_OK) return miss(membership, m, status);
  /* Time limit for WELCOME; a worker that has queued this leader gets --wait. */
  double waited = clock_now() - device->since, max = device->place ? membership->cluster->wait : fmax(membership->timeout, call_seconds);
  if (device->state != DEVICE_GREETED || waited <= max) return STATUS_OK;
  if (device->place)
    status = status_set(STATUS_TIMEOUT,
                        "%s is busy with another leader, and after %g s this run is number %u in its queue; --wait gives it longer", name,
                        max, device->place);
  else
    status = status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer", name, max);
  return miss(membership, m, status);
}

/* Whether to wait for those that fetch the checkpoint: others could begin without them. */
static bool awaits_fetch(const Membership *membership) {
  bool any = false, others = false;
  for (int m = 0; m < membership->count; m++) {
    any |= membership->devices[m].state == DEVICE_FETCHES;
    others |= membership->devices[m].state >= DEVICE_HERE;
  }
  return any && (!others || membership->cluster->await_fetch || membership->cluster->on_failure == ON_FAILURE_ABORT);
}

Status membership_open(Membership *membership) {
  membership->began = clock_now();
  membership->devices = calloc((size_t)membership->room, sizeof *membership->devices);
  if (!membership->devices) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", membership->count);
  for (int m = 0; m < membership->count; m++) {
    LeaderDevice *device = &membership->devices[m];
    *device = (LeaderDevice){.forked = m < membership->cluster->local, .passed = -1, .node = -1};
    if (!device->forked) device->address = membership->cluster->peers[m - membership->cluster->local];
    connection_init(&device->connection);
  }
  if (RAND_bytes(membership->session, sizeof membership->session) != 1) return status_set(STATUS_IO, "no random numbers from the system");
  TRY(fork_local(membership));
  const char *checkpoint = membership->room > membership->cluster->local ? membership->cluster->checkpoint : NULL;
  if (checkpoint != NULL) TRY(offer_catalogue_open(&membership->catalogue, checkpoint));
  for (int m = membership->cluster->local; m < membership->count; m++) {
    Status status = call(membership, &membership->devices[m]);
    if (status != STATUS_OK) TRY(miss(membership, m, status));
  }
  while (is_calling(membership) || awaits_fetch(membership)) {
    for (int m = 0; m < membership->count; m++) {
      if (is_joining(&membership->devices[m])) TRY(step_device(membership, m));
    }
    TRY(keep_order(membership));
    membership_ping(membership);
    Connection *waiting[WIRE_NODES];
    int count = 0;
    for (int m = 0; m < membership->count; m++) {
      LeaderDevice *device = &membership->devices[m];
      if (device->state == DEVICE_CALLED || device->state == DEVICE_GREETED) waiting[count++] = &device->connection;
    }
    if (is_calling(membership) || awaits_fetch(membership)) connections_wait(waiting, count, -1, slice_seconds);
  }
  return STATUS_OK;
}

/* ---- stop */

/* Idle nodes exit after BYE; those that compute or hang are killed, or notice that their leader is gone. Failures here must not replace the
 * message that says why the cluster ends. */
void membership_close(Membership *membership, bool idle) {
  char said[1024];
  if (!membership->devices) return;
  snprintf(said, sizeof said, "%s", status_message());
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, membership->bye);
  for (int m = 0; m < membership->count; m++) {
    if (membership->devices[m].offer) offer_end(&membership->devices[m].offer, true);
    address_search_leave(&membership->devices[m].search);
    Connection *connection = &membership->devices[m].connection;
    bool told = idle && connection_is_open(connection) && connection_send(connection, membership->bye, WIRE_HEADER) == STATUS_OK;
    if (told) connections_step(&connection, 1, 0);
    connection_close(connection);
  }
  /* Kills children that have not exited within a grace period. */
  double until = clock_now() + (idle ? stop_seconds : 0);
  for (bool all = false; !all;) {
    all = true;
    for (int m = 0; m < membership->cluster->local; m++) all &= reap(&membership->devices[m], WNOHANG);
    if (clock_now() >= until) break;
    if (!all) pause_a_moment();
  }
  for (int m = 0; m < membership->cluster->local; m++) end_child(&membership->devices[m]);
  offer_catalogue_free(membership->catalogue);
  membership->catalogue = NULL;
  free(membership->devices);
  membership->devices = NULL;
  status_set(STATUS_OK, "%s", said); /* the failure that led here, not one of saying BYE */
}
