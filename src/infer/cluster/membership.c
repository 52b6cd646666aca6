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

const char *membership_name(const Membership *membership, int m, char text[MEMBERSHIP_NAME]) {
  const LeaderMember *member = &membership->members[m];
  char address[ADDRESS_TEXT];
  if (member->forked)
    snprintf(text, MEMBERSHIP_NAME, "node %d (pid %d)", m, (int)member->pid);
  else
    snprintf(text, MEMBERSHIP_NAME, "node %d (worker %s)", m, address_text(&member->address, address));
  return text;
}

static void become(LeaderMember *member, MemberState state) {
  member->state = state;
  member->since = clock_now();
}

/* ---- processes of this machine */

static void close_passed(LeaderMember *member) {
  if (member->passed >= 0) close(member->passed);
  member->passed = -1;
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
    connection_close(&membership->members[i].connection);
    close_passed(&membership->members[i]);
  }
  _exit(connection_plain(&place.control, control) == STATUS_OK ? session_run(&place) : 1);
}

static Status fork_one(Membership *membership, int m, pid_t parent) {
  LeaderMember *member = &membership->members[m];
  int control[2] = {-1, -1}, passed[2] = {-1, -1};
  Status status = connection_pair(control);
  if (status == STATUS_OK) status = fd_passing_pair(passed);
  if (status == STATUS_OK)
    status = connection_open(&member->connection, control[0]);
  else if (control[0] >= 0)
    close(control[0]);
  member->passed = passed[0];
  pid_t pid = status == STATUS_OK ? fork() : -1;
  if (pid == 0) run_child(membership, m, control[1], passed[1], parent);
  if (pid < 0 && status == STATUS_OK)
    status = status_set(STATUS_IO, "cannot start process %d of %d: %s", m + 1, membership->cluster->local, strerror(errno));
  if (pid > 0) member->pid = pid;
  if (control[1] >= 0) close(control[1]);
  if (passed[1] >= 0) close(passed[1]);
  TRY(status);
  connection_receive(&member->connection, m, &membership->sink);
  become(member, MEMBER_GREETED);
  return STATUS_OK;
}

static Status fork_local(Membership *membership) {
  struct rlimit limit;
  pid_t parent = getpid();
  if (membership->cluster->local == 0) return STATUS_OK;
  fflush(NULL);             /* or each child would print what is still buffered */
  signal(SIGCHLD, SIG_DFL); /* or children could not be waited for, if the parent ignored it */
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max; /* many nodes need more descriptors than the usual soft limit */
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  for (int m = 0; m < membership->cluster->local; m++) TRY(fork_one(membership, m, parent));
  return STATUS_OK;
}

/* True: it has ended, or was never started. */
static bool reap(LeaderMember *member, int flags) {
  if (member->reaped || !member->pid) return true;
  pid_t ended;
  do ended = waitpid(member->pid, &member->ended, flags);
  while (ended < 0 && errno == EINTR);
  return member->reaped = ended != 0;
}

static void pause_a_moment(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* SIGKILL also ends a stopped process. */
static void end_child(LeaderMember *member) {
  if (member->pid && !member->reaped) kill(member->pid, SIGKILL);
  reap(member, 0);
  member->pid = 0;
  close_passed(member);
}

/* Kills those that have not exited within `grace` seconds. */
static void stop_children(Membership *membership, double grace) {
  double until = clock_now() + grace;
  for (bool all = false; !all;) {
    all = true;
    for (int m = 0; m < membership->cluster->local; m++) all &= reap(&membership->members[m], WNOHANG);
    if (clock_now() >= until) break;
    if (!all) pause_a_moment();
  }
  for (int m = 0; m < membership->cluster->local; m++) end_child(&membership->members[m]);
}

int membership_find_dead(Membership *membership, char *text, size_t room) {
  int found = -1;
  for (int m = 0; m < membership->cluster->local; m++) {
    LeaderMember *member = &membership->members[m];
    if (!member->pid || !reap(member, WNOHANG)) continue;
    if (found < 0 || (WIFSIGNALED(member->ended) && !WIFSIGNALED(membership->members[found].ended))) found = m;
  }
  if (found < 0) return found;
  int ended = membership->members[found].ended;
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
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)membership->members[dead].pid, text);
  *known = false;
  return status;
}

/* ---- joining and leaving */

Status membership_take_welcome(Membership *membership, int m) {
  LeaderMember *member = &membership->members[m];
  char address[ADDRESS_TEXT], name[ADDRESS_TEXT + 8] = "a process of this machine";
  Welcome welcome;
  if (!member->forked) snprintf(name, sizeof name, "worker %s", address_text(&member->address, address));
  TRY(hello_parse_welcome(member->welcome, &welcome));
  memcpy(member->name, welcome.name, sizeof member->name);
  member->place = 0;
  Status status = hello_compare(&welcome.fingerprints, membership->fingerprints, name);
  member->refused = status != STATUS_OK;
  if (status == STATUS_OK) become(member, MEMBER_HERE);
  return status;
}

/* Doubles the pause: at least `min`, at most `max`, unless it is longer already. */
static void put_off(LeaderMember *member, double min, double max) {
  member->pause = fmin(fmax(2 * member->pause, min), fmax(member->pause, max));
  member->next = clock_now() + member->pause;
}

void membership_drop(Membership *membership, int m, bool useless) {
  LeaderMember *member = &membership->members[m];
  connection_close(&member->connection);
  member->node = -1;
  member->asked = false;
  if (member->forked) end_child(member);
  become(member, MEMBER_LOST);
  put_off(member, again_seconds, again_max);
  if (useless) put_off(member, useless_seconds, useless_max);
}

/* ---- workers: from connecting to WELCOME, step by step */

/* A worker serves one connection at a time: a second one would wait for the first forever. */
static Status check_only_one(const Membership *membership, const LeaderMember *member) {
  char text[ADDRESS_TEXT];
  for (int m = membership->cluster->local; m < membership->count; m++) {
    const LeaderMember *other = &membership->members[m];
    bool same = other->reached.on_disk == member->reached.on_disk && other->reached.port == member->reached.port &&
                strcmp(other->reached.name, member->reached.name) == 0;
    if (other == member || !same) continue;
    return status_set(STATUS_BAD_VALUE, "node %d is the same worker, at %s: name each one once", m, address_text(&member->reached, text));
  }
  return STATUS_OK;
}

/* Connects to the next address of the worker. Its name is resolved again after calls have failed for long. */
static Status call(Membership *membership, LeaderMember *member) {
  Status status = STATUS_OK;
  if (member->number_count == 0 || (member->turn == 0 && member->pause >= again_max))
    TRY(address_numbers(&member->address, member->numbers, &member->number_count));
  become(member, MEMBER_CALLED);
  member->answered = false;
  do {
    status =
        connection_dial(&member->connection, &member->numbers[member->turn], HELLO_LEADER, membership->session, membership->cluster->key);
    if (status != STATUS_OK) member->turn = (member->turn + 1) % member->number_count;
  } while (status != STATUS_OK && member->turn > 0);
  return status;
}

static Status step_handshake(Membership *membership, int m) {
  LeaderMember *member = &membership->members[m];
  Connection *connection = &member->connection;
  char text[ADDRESS_TEXT];
  bool done;
  if (!connection_is_open(connection)) return clock_now() < member->next ? STATUS_OK : call(membership, member);
  Status status = connection_step(connection, &done);
  bool calling = connection->calling;
  if (status == STATUS_OK && !calling && !member->answered) {
    member->answered = true;
    member->since = clock_now(); /* the time limit of the handshake starts */
    status = address_of_peer(connection_fd(connection), &member->address, &member->reached);
    if (status == STATUS_OK) status = check_only_one(membership, member);
  }
  if (status == STATUS_OK && !done && clock_now() - member->since >= call_seconds) {
    address_text(&member->numbers[member->turn], text);
    status = member->answered ? status_set(STATUS_TIMEOUT, "did not answer within %g s", call_seconds)
                              : status_set(STATUS_TIMEOUT, "%s: no answer within %g s", text, call_seconds);
  }
  if (status != STATUS_OK && calling) { /* the next address */
    connection_close(connection);
    member->turn = (member->turn + 1) % member->number_count;
    return member->turn > 0 ? call(membership, member) : status;
  }
  if (status != STATUS_OK || !done) return status;
  connection_receive(connection, m, &membership->sink);
  connection->nameless = true; /* errors get membership_name */
  become(member, MEMBER_GREETED);
  return connections_step(&connection, 1, 0);
}

static Status step_call(Membership *membership, int m) {
  Connection *connection = &membership->members[m].connection;
  return membership->members[m].state == MEMBER_GREETED ? connections_step(&connection, 1, 0) : step_handshake(membership, m);
}

static bool is_calling(const Membership *membership) {
  for (int m = 0; m < membership->count; m++) {
    const LeaderMember *member = &membership->members[m];
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED || member->yields) return true;
  }
  return false;
}

void membership_ping(Membership *membership) {
  double now = clock_now();
  if (now < membership->next_ping) return;
  membership->next_ping = now + MEMBERSHIP_PING_SECONDS;
  wire_pack(&(WireHeader){.kind = WIRE_PING, .sender = WIRE_LEADER}, membership->ping);
  for (int m = membership->cluster->local; m < membership->count; m++) {
    if (membership->members[m].state >= MEMBER_HERE) connection_ping(&membership->members[m].connection, membership->ping);
  }
}

/* That a lost worker is still lost is not logged. */
bool membership_poll(Membership *membership) {
  double now = clock_now();
  for (int m = 0; m < membership->count; m++) {
    LeaderMember *member = &membership->members[m];
    Status status = STATUS_OK;
    if (member->state == MEMBER_LOST && !member->forked && !member->refused && now >= member->next) status = call(membership, member);
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED) status = status == STATUS_OK ? step_call(membership, m) : status;
    if (status == STATUS_OK) continue;
    if (member->refused) log_warning("%s", status_message());
    membership_drop(membership, m, false);
  }
  return is_calling(membership);
}

/* ---- start */

/* A worker that cannot be reached, or is silent, is left out until it answers a later call (membership.h), if the cluster may continue
 * without failed devices. A worker that refuses, or is busy for too long, is an error. */
static Status miss(Membership *membership, int m, Status status) {
  const LeaderMember *member = &membership->members[m];
  bool out_of_reach = status == STATUS_NOT_FOUND || status == STATUS_TIMEOUT || status == STATUS_PEER || status == STATUS_IO;
  if (membership->cluster->on_failure == ON_FAILURE_ABORT || member->forked || member->place > 0 || !out_of_reach) return status;
  log_warning("%s; going on without it", status_message());
  membership_drop(membership, m, false);
  return STATUS_OK;
}

/* By address, an order that is the same for all leaders. */
static bool waits_for_an_earlier_one(const Membership *membership, int m) {
  char own[ADDRESS_TEXT], other[ADDRESS_TEXT];
  address_text(&membership->members[m].reached, own);
  for (int b = membership->cluster->local; b < membership->count; b++) {
    const LeaderMember *busy = &membership->members[b];
    bool waits = b != m && busy->state == MEMBER_GREETED && busy->place > 0;
    if (waits && strcmp(address_text(&busy->reached, other), own) < 0) return true;
  }
  return false;
}

/* Avoids deadlock: of two leaders that want the same workers, each could hold one and wait for the other. So a leader that waits for a
 * worker releases those after it, and calls them again when it has got that one. */
static Status keep_order(Membership *membership) {
  for (int m = membership->cluster->local; m < membership->count; m++) {
    LeaderMember *member = &membership->members[m];
    bool waits = waits_for_an_earlier_one(membership, m);
    if (waits && member->state == MEMBER_HERE) {
      membership_drop(membership, m, false);
      member->yields = true;
    } else if (!waits && member->yields) {
      member->yields = false;
      Status status = call(membership, member);
      if (status != STATUS_OK) TRY(miss(membership, m, status));
    }
  }
  return STATUS_OK;
}

/* Time limit for WELCOME; a worker that has queued this leader gets --wait. */
static Status check_idle_timeout(Membership *membership, int m) {
  const LeaderMember *member = &membership->members[m];
  double waited = clock_now() - member->since, max = member->place ? membership->cluster->wait : fmax(membership->timeout, call_seconds);
  char name[MEMBERSHIP_NAME];
  if (member->state != MEMBER_GREETED || waited <= max) return STATUS_OK;
  membership_name(membership, m, name);
  if (member->place)
    return status_set(STATUS_TIMEOUT,
                      "%s is busy with another leader, and after %g s this run is number %u in its queue; --wait gives it longer", name,
                      max, member->place);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer", name, max);
}

/* A worker that accepted the connection and hung up or fell silent, before WELCOME or BUSY, may have too many callers: it is called again,
 * for as long as --wait. */
static bool try_again(Membership *membership, int m, Status status) {
  LeaderMember *member = &membership->members[m];
  char name[MEMBERSHIP_NAME];
  double now = clock_now();
  bool hung_up = status == STATUS_PEER || status == STATUS_IO || status == STATUS_TIMEOUT;
  if (!member->answered || !hung_up || member->refused || member->place > 0 || now - membership->began > membership->cluster->wait)
    return false;
  if (member->tries++ == 0) log_info("%s hung up before it said who it is; calling it again", membership_name(membership, m, name));
  connection_close(&member->connection);
  become(member, MEMBER_CALLED);
  double share = (double)(now * 1e6 - floor(now * 1e6)); /* jitter, so that leaders do not all call again at the same time */
  member->next = now + fmin(again_max_soon, again_soon * (double)(1U << (member->tries < 8 ? member->tries : 8))) * (0.5 + share);
  return true;
}

static Status step_member(Membership *membership, int m) {
  LeaderMember *member = &membership->members[m];
  char name[MEMBERSHIP_NAME];
  bool known;
  if (membership->stop && *membership->stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  Status status = step_call(membership, m);
  if (status != STATUS_OK && !member->forked && try_again(membership, m, status)) return STATUS_OK;
  if (status == STATUS_OK)
    status = check_idle_timeout(membership, m);
  else if (member->forked)
    return membership_explain(membership, status, status == STATUS_PEER, &known);
  else if (!member->refused) /* whose message names it already */
    status_wrap(status, "%s", membership_name(membership, m, name));
  return status == STATUS_OK ? STATUS_OK : miss(membership, m, status);
}

static void wait_for_events(Membership *membership) {
  Connection *waiting[WIRE_NODES];
  int count = 0;
  for (int m = 0; m < membership->count; m++) {
    LeaderMember *member = &membership->members[m];
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED) waiting[count++] = &member->connection;
  }
  connections_wait(waiting, count, -1, slice_seconds);
}

static Status make_members(Membership *membership) {
  membership->members = calloc((size_t)membership->count, sizeof *membership->members);
  if (!membership->members) return status_set(STATUS_NO_MEMORY, "no memory for %d nodes", membership->count);
  for (int m = 0; m < membership->count; m++) {
    LeaderMember *member = &membership->members[m];
    *member = (LeaderMember){.forked = m < membership->cluster->local, .passed = -1, .node = -1};
    if (!member->forked) member->address = membership->cluster->peers[m - membership->cluster->local];
    connection_init(&member->connection);
  }
  if (RAND_bytes(membership->session, sizeof membership->session) == 1) return STATUS_OK;
  return status_set(STATUS_IO, "the system gives no random numbers");
}

Status membership_open(Membership *membership) {
  membership->began = clock_now();
  TRY(make_members(membership));
  TRY(fork_local(membership));
  for (int m = membership->cluster->local; m < membership->count; m++) {
    Status status = call(membership, &membership->members[m]);
    if (status != STATUS_OK) TRY(miss(membership, m, status));
  }
  while (is_calling(membership)) {
    for (int m = 0; m < membership->count; m++) {
      MemberState state = membership->members[m].state;
      if (state == MEMBER_CALLED || state == MEMBER_GREETED) TRY(step_member(membership, m));
    }
    TRY(keep_order(membership));
    membership_ping(membership);
    if (is_calling(membership)) wait_for_events(membership);
  }
  return STATUS_OK;
}

/* ---- stop */

/* Idle nodes exit after BYE; those that compute or hang are killed, or notice that their leader is gone. Failures here must not replace the
 * message that says why the cluster ends. */
void membership_close(Membership *membership, bool idle) {
  char said[1024];
  if (!membership->members) return;
  snprintf(said, sizeof said, "%s", status_message());
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, membership->bye);
  for (int m = 0; m < membership->count; m++) {
    Connection *connection = &membership->members[m].connection;
    bool told = idle && connection_is_open(connection) && connection_send(connection, membership->bye, WIRE_HEADER) == STATUS_OK;
    if (told) connections_step(&connection, 1, 0);
    connection_close(connection);
  }
  stop_children(membership, idle ? stop_seconds : 0);
  free(membership->members);
  membership->members = NULL;
  status_set(STATUS_OK, "%s", said); /* the failure that led here, not one of saying BYE */
}
