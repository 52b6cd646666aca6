/* Waiting for devices, who is at fault when that fails, and what happens then. The only place that knows the policies
 * (ClusterOptions.on_failure).
 *
 * Who is left behind: who has failed is not believed from others alone. Everybody is asked to give the epoch up, and is lost who is gone,
 * or does not say in time that it has: within --timeout as ever, or at once where it was silent for as long already. All the others go on,
 * but each failure is laid on somebody, the one it is about or else the one that tells of it; whoever has two since it last took part in
 * an answer is left behind as well, though it answers this leader: others cannot reach it, or it fails by itself.
 *
 * When it is called again: leader_members.h; who is left behind as it was of no use, not for a minute and more. It takes part again when
 * nothing is under way: nobody's work is thrown away for it.
 *
 * All of it ends when the time of a request is over (--request-timeout). */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/idle_timeout.h"
#include "infer/cluster/leader_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RERUNS_MAX = 3, TRIES_MAX = 4, FAULTS_MAX = 2 };
static const double cancel_seconds = 5, silent_seconds = 1; /* to give a block up, at least; of one that was silent already */
static const double slice_seconds = 0.02;
static const double explain_seconds = 0.5;   /* for the system to tell which child has died */
static const double setting_up_seconds = 15; /* devices call each other, which their own idle_timeout ends before */
static const double calling_slice = 0.02;

static bool interrupted(const Leader *leader) { return leader->options.stop && *leader->options.stop; }

/* ---- waiting, and who is at fault */

/* A device numbers the others as they are in this epoch, where they are others than the user's: what it says of "node 2" goes behind that
 * one's name. NULL: it begins in another way. */
static const char *without_number(const char *complaint) {
  int length = 0;
  sscanf(complaint, "node %*d%n", &length);
  return length > 0 ? complaint + length : NULL;
}

static Status explain_complaint(const Leader *leader) {
  int from = leader->epoch.complainer, about = leader->epoch.fault;
  char name[LEADER_NAME];
  const char *complaint = leader->epoch.complaints[from];
  Status status = leader->epoch.not_finite ? STATUS_NUMERIC : STATUS_PEER;
  if (about < 0 || leader->epoch.not_finite) return status_set(status, "%s: %s", leader_name(leader, from, name), complaint);
  leader_name(leader, about, name);
  const char *rest = without_number(complaint);
  if (rest) return status_set(STATUS_PEER, "%s%s (reported by node %d)", name, rest, from);
  return status_set(STATUS_PEER, "%s (about %s; reported by node %d)", complaint, name, from);
}

/* A worker whose connection has failed; which has said how. */
static int broken_worker(const Leader *leader) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    const LeaderMember *member = leader_member(leader, d);
    if (!member->forked && member->state >= MEMBER_HERE && !connection_is_open(&member->connection)) return leader->epoch.member_of[d];
  }
  return -1;
}

/* The cause is a dead child, if there is one; else a worker that is gone; else what a node has said; else what the connections say. A
 * child's end may show a moment after its sockets have closed. */
Status leader_wait_explain(Leader *leader, Status status) {
  char text[128], name[LEADER_NAME], said[WIRE_TEXT];
  int broken = broken_worker(leader);
  bool may_show = status == STATUS_PEER && broken < 0;
  /* What ends this process may have ended others as well; that is no failure of theirs. */
  if (interrupted(leader)) return status_set(STATUS_INTERRUPTED, "interrupted");
  snprintf(said, sizeof said, "%s", status_message());
  int dead = leader->membership.processes.count
                 ? processes_find_dead(&leader->membership.processes, may_show ? explain_seconds : 0, text, sizeof text)
                 : -1;
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)leader_pid(leader, dead), text);
  status_set(status, "%s", said);
  if (broken >= 0 && leader->epoch.complainer < 0) return status_wrap(status, "%s", leader_name(leader, broken, name));
  if (broken >= 0) return status_set(STATUS_PEER, "%s is gone", leader_name(leader, broken, name));
  return leader->epoch.complainer < 0 ? status : explain_complaint(leader);
}

static uint64_t bytes_moved(const Leader *leader) {
  uint64_t bytes = 0;
  for (int d = 0; d < leader->epoch.nodes; d++)
    bytes += leader->epoch.connections[d]->sent.bytes + leader->epoch.connections[d]->received.bytes;
  return bytes;
}

/* The member that is waited for and has come least far. */
static int latest(const Leader *leader, const bool *arrived) {
  int late = 0;
  bool found = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    bool there = arrived ? arrived[d] : leader_member(leader, d)->state == MEMBER_READY;
    if (there || (found && leader->epoch.progress[d] >= leader->epoch.progress[late])) continue;
    late = d;
    found = true;
  }
  return leader->epoch.member_of[late];
}

static Status report_silence(Leader *leader, const bool *arrived, double max) {
  char name[LEADER_NAME];
  leader->epoch.fault = latest(leader, arrived);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer",
                    leader_name(leader, leader->epoch.fault, name), max);
}

bool leader_wait_all(const Leader *leader, const bool *arrived) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (!arrived[d]) return false;
  }
  return true;
}

/* Those who have not been heard of for long get a call meanwhile. */
static double slice(Leader *leader, const IdleTimeout *idle_timeout) {
  leader_members_poll(leader);
  leader_members_ping(leader);
  return leader_members_calling(leader) ? fmin(calling_slice, idle_timeout_slice(idle_timeout)) : idle_timeout_slice(idle_timeout);
}

/* When the input of a request has left. */
static void note_sent(Leader *leader) {
  for (int i = 0; i < LEADER_DEPTH; i++) {
    LeaderRequest *request = &leader->queue.requests[i];
    bool left = request->number && request->sent <= 0;
    for (int d = 0; left && d < leader->epoch.nodes; d++) left = connection_queued(leader->epoch.connections[d]) == 0;
    if (left) request->sent = clock_now();
  }
}

double leader_wait_left(const Leader *leader) {
  double max = leader->cluster.request_timeout, left = INFINITY;
  for (uint32_t i = leader->queue.collected + 1; max > 0 && i <= leader->queue.submitted; i++)
    left = fmin(left, leader->queue.requests[i & 1].began + max - clock_now());
  return left;
}

static Status check_time(Leader *leader, const bool *arrived) {
  char name[LEADER_NAME];
  if (leader_wait_left(leader) > 0) return STATUS_OK;
  return status_set(STATUS_TIMEOUT, "the request took longer than --request-timeout %g; last it waited for %s",
                    leader->cluster.request_timeout, leader_name(leader, latest(leader, arrived), name));
}

/* Silence is evaluated over all nodes: while any of them gets on, a long request is only long. The nodes know best whom they wait for, so
 * they are given a moment to say it first. */
Status leader_wait(Leader *leader, LeaderDone *done, const bool *arrived) {
  IdleTimeout idle_timeout;
  double max = leader->epoch.setting_up ? fmax(leader->options.timeout, setting_up_seconds) : leader->options.timeout;
  idle_timeout_start(&idle_timeout, max + 1, bytes_moved(leader), clock_now());
  while (!done(leader, arrived)) {
    if (interrupted(leader)) return status_set(STATUS_INTERRUPTED, "interrupted");
    /* A complaint counts once there is nothing else: what came before it, in the same step perhaps, is taken first. */
    Status status = leader->epoch.complainer >= 0
                        ? STATUS_PEER
                        : connections_step(leader->epoch.connections, leader->epoch.nodes, slice(leader, &idle_timeout));
    if (status != STATUS_OK) return leader_wait_explain(leader, status);
    note_sent(leader);
    TRY(check_time(leader, arrived));
    if (idle_timeout_ends(&idle_timeout, bytes_moved(leader), clock_now())) return report_silence(leader, arrived, max);
  }
  return STATUS_OK;
}

/* ---- leaving members behind */

static void leave_behind(Leader *leader, int m, const char *why) {
  char name[LEADER_NAME];
  log_warning("%s%s%s: left behind", leader_name(leader, m, name), *why ? ": " : "", why);
  leader_members_drop(leader, m);
}

static void drop_broken(Leader *leader) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderMember *member = leader_member(leader, d);
    if (member->state >= MEMBER_HERE && !connection_is_open(&member->connection))
      leave_behind(leader, leader->epoch.member_of[d], "it is gone");
  }
}

static void drop_dead(Leader *leader) {
  char text[128];
  int dead;
  while (leader->membership.processes.count > 0 && (dead = processes_find_dead(&leader->membership.processes, 0, text, sizeof text)) >= 0)
    leave_behind(leader, dead, text);
}

/* ---- giving an epoch up */

static void send_cancel(Leader *leader) {
  wire_pack(&(WireHeader){.kind = WIRE_CANCEL, .sender = WIRE_LEADER}, leader->word);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderMember *member = leader_member(leader, d);
    member->asked = connection_is_open(&member->connection) && connection_send(&member->connection, leader->word, WIRE_HEADER) == STATUS_OK;
  }
}

/* In the middle of a block nobody listens, and others who wait for codes say as little. */
static double idle_timeout_with(const Leader *leader, int m) {
  bool fault = leader->epoch.fault == m && leader->epoch.complainer != m;
  bool silent = fault && clock_now() - leader->membership.members[m].heard > leader->options.timeout / 2;
  return silent ? silent_seconds : fmax(cancel_seconds, leader->options.timeout);
}

/* Until all have given it up, or their time is over; connections that fail meanwhile close. */
static void await_cancelled(Leader *leader) {
  double start = clock_now();
  for (bool waiting = true; waiting;) {
    double waited = clock_now() - start;
    waiting = false;
    for (int d = 0; d < leader->epoch.nodes; d++) {
      const LeaderMember *member = leader_member(leader, d);
      waiting |= member->asked && connection_is_open(&member->connection) && waited < idle_timeout_with(leader, leader->epoch.member_of[d]);
    }
    if (waiting) connections_step(leader->epoch.connections, leader->epoch.nodes, slice_seconds);
    leader_members_ping(leader);
    waiting = waiting && leader_wait_left(leader) > 0 && !interrupted(leader);
  }
}

static void give_up_epoch(Leader *leader) {
  send_cancel(leader);
  await_cancelled(leader);
  drop_broken(leader);
  drop_dead(leader);
  bool waited = leader_wait_left(leader) > 0 && !interrupted(leader);
  for (int d = 0; d < leader->epoch.nodes && waited; d++) {
    if (leader_member(leader, d)->asked) leave_behind(leader, leader->epoch.member_of[d], "it does not answer");
  }
}

/* Of those that are still there. */
static void count_fault(Leader *leader) {
  int m = leader->epoch.fault >= 0 ? leader->epoch.fault : leader->epoch.complainer;
  if (m < 0 || leader->membership.members[m].state < MEMBER_HERE || ++leader->membership.members[m].faults < FAULTS_MAX) return;
  leave_behind(leader, m, leader->epoch.fault >= 0 ? "others cannot work with it" : "it fails again and again");
  leader_members_put_off(leader, m);
}

/* ---- beginning again */

/* Each failure of a beginning costs a member, or is laid on one; so this comes to an end. */
static Status begin_again(Leader *leader) {
  Status status = STATUS_OK;
  char why[1024] = "";
  for (int tries = 0; tries < TRIES_MAX + FAULTS_MAX * leader->membership.count; tries++) {
    status = leader_epoch_open(leader);
    if (status == STATUS_OK) status = leader_requests_resend(leader);
    if (status == STATUS_OK || leader->epoch.nodes == 0 || interrupted(leader) || leader_wait_left(leader) <= 0) return status;
    snprintf(why, sizeof why, "%s", status_message());
    give_up_epoch(leader);
    count_fault(leader);
  }
  return status_set(status, "%s", why);
}

static int max_reruns(const Leader *leader) {
  int max = 0;
  for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
    int reruns = leader->queue.requests[i & 1].reruns;
    max = reruns > max ? reruns : max;
  }
  return max;
}

/* Tokens that were handed on already cannot be taken back, and others may come of another partition. */
static bool text_has_begun(Leader *leader) {
  return leader_under_way(leader) > 0 && leader_requests_oldest(leader)->request.kind == WIRE_PROMPT && leader->queue.taken > 0;
}

static bool can_recover(Leader *leader, Status cause) {
  bool of_devices =
      leader->epoch.nodes > 0 && (cause == STATUS_PEER || cause == STATUS_TIMEOUT || cause == STATUS_IO || cause == STATUS_BAD_VALUE);
  return leader->cluster.on_failure != ON_FAILURE_ABORT && of_devices && !interrupted(leader);
}

Status leader_failure_recover(Leader *leader, Status cause) {
  char why[1024];
  if (!can_recover(leader, cause) || leader_wait_left(leader) <= 0) return cause;
  if (max_reruns(leader) >= RERUNS_MAX) return status_wrap(cause, "after %d reruns", RERUNS_MAX);
  if (text_has_begun(leader)) return status_wrap(cause, "the text had begun");
  snprintf(why, sizeof why, "%s", status_message());
  log_warning("%s", why);
  give_up_epoch(leader);
  count_fault(leader);
  Status status = begin_again(leader);
  if (status != STATUS_OK && leader->epoch.nodes == 0) return status_set(STATUS_PEER, "no device is left; at last %s", why);
  if (status == STATUS_OK) log_info("%d of %d devices go on", leader->epoch.nodes, leader->membership.count);
  return status;
}

/* ---- the rest of a request without one of its nodes */

static bool has_answered(const Leader *leader, int node) {
  bool all = true;
  for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++)
    all = all && leader->queue.requests[i & 1].arrived[node];
  return all;
}

/* Whoever is gone and has answered all that it was asked is missed by nobody; true where that is all that has failed. */
static bool drop_answered(Leader *leader) {
  bool all = leader->epoch.complainer < 0 && !leader->epoch.setting_up, any = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderMember *member = leader_member(leader, d);
    if (member->state < MEMBER_HERE || connection_is_open(&member->connection)) continue;
    bool answered = has_answered(leader, d);
    if (answered) leave_behind(leader, leader->epoch.member_of[d], "it is gone");
    all = all && answered;
    any = true;
  }
  return all && any;
}

static bool others_answer(const Leader *leader, const LeaderRequest *request, int node) {
  bool any = false;
  for (int d = 0; d < leader->epoch.nodes; d++) any |= d != node && !(request->missing >> leader->epoch.member_of[d] & 1);
  return any;
}

/* Other nodes know what to do without its codes; what it alone could have said is missing from the answer. */
static bool can_mask(const Leader *leader, const LeaderRequest *request, int node) {
  bool single = leader->setup.class_token == CLASS_SINGLE && node == 0;
  if (!strategy_facts(leader->setup.strategy)->sends_codes) return false;
  return request->request.kind != WIRE_LAST && !single && !request->shares[node].last && others_answer(leader, request, node);
}

static void tell_gone(Leader *leader, int node) {
  const LeaderMember *gone = leader_member(leader, node);
  uint8_t *message = leader->gone[leader->epoch.member_of[node]];
  wire_pack(&(WireHeader){.kind = WIRE_GONE, .sender = WIRE_LEADER, .count = (uint32_t)node}, message);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    Connection *connection = leader->epoch.connections[d];
    if (leader_member(leader, d) != gone && connection_is_open(connection)) connection_send(connection, message, WIRE_HEADER);
  }
}

/* Those whose connection is broken are missing from all that is under way; false where that cannot be, or where there are none. */
static bool mask_broken(Leader *leader) {
  bool any = false;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    LeaderMember *member = leader_member(leader, d);
    if (member->state < MEMBER_HERE || connection_is_open(&member->connection)) continue;
    for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
      LeaderRequest *request = &leader->queue.requests[i & 1];
      if (request->arrived[d]) continue;
      if (!can_mask(leader, request, d)) return false;
      request->arrived[d] = true;
      request->missing |= (uint64_t)1 << leader->epoch.member_of[d];
    }
    tell_gone(leader, d);
    leave_behind(leader, leader->epoch.member_of[d], "its tokens are masked");
    any = true;
  }
  return any;
}

/* One that is silent, or whom others accuse, is as good as gone. */
static Status try_mask(Leader *leader, Status cause) {
  int fault = leader->epoch.fault;
  if (leader->cluster.on_failure != ON_FAILURE_MASK || !can_recover(leader, cause) || leader->epoch.setting_up) return cause;
  drop_dead(leader);
  if (fault >= 0 && leader->membership.members[fault].state >= MEMBER_HERE) connection_close(&leader->membership.members[fault].connection);
  bool by_others = leader->epoch.complainer >= 0 && leader->epoch.complainer != fault; /* whoever complains has given up */
  if (by_others || !mask_broken(leader)) return cause;
  leader->epoch.complainer = leader->epoch.fault = -1;
  return STATUS_OK;
}

static Status wait_and_recover(Leader *leader, LeaderDone *done, LeaderRequest *request);

Status leader_failure_wait(Leader *leader, LeaderDone *done, LeaderRequest *request) {
  heartbeat_hold(leader->heartbeat);
  Status status = wait_and_recover(leader, done, request);
  heartbeat_release(leader->heartbeat);
  return status;
}

static Status wait_and_recover(Leader *leader, LeaderDone *done, LeaderRequest *request) {
  for (;;) {
    Status status = leader_wait(leader, done, request->arrived);
    if (status == STATUS_OK) return STATUS_OK;
    if (leader->cluster.on_failure != ON_FAILURE_ABORT && drop_answered(leader)) continue;
    status = try_mask(leader, status);
    if (status != STATUS_OK) TRY(leader_failure_recover(leader, status));
  }
}

/* ---- coming back */

/* Some of this epoch's nodes are gone, for the leader or for each other. */
static bool any_lost(const Leader *leader) {
  if (leader->epoch.parted) return true;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (leader_member(leader, d)->state != MEMBER_READY || !connection_is_open(leader->epoch.connections[d])) return true;
  }
  return false;
}

bool leader_failure_rests(const Leader *leader) {
  return leader->cluster.on_failure != ON_FAILURE_ABORT && (leader_members_waiting(leader) > 0 || any_lost(leader));
}

Status leader_failure_rejoin(Leader *leader) {
  if (leader->cluster.on_failure != ON_FAILURE_ABORT) leader_members_poll(leader);
  if (!leader_failure_rests(leader) || leader_under_way(leader) > 0) return STATUS_OK;
  int back = leader_members_waiting(leader);
  give_up_epoch(leader);
  TRY(begin_again(leader));
  if (back > 0) log_info("%d of %d devices from here on", leader->epoch.nodes, leader->membership.count);
  return STATUS_OK;
}
