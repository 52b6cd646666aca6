/* Waiting for nodes, and finding the one to blame when it fails. */
#include "base/clock.h"
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/patience.h"
#include <math.h>
#include <stdio.h>

static const double explain_seconds = 0.5;   /* for the system to tell which child has died */
static const double setting_up_seconds = 15; /* devices call each other, which their own patience ends before */
static const double calling_slice = 0.02;

/* A device numbers the others as they are in this epoch, where they are others than the user's: what it says of "node 2" goes behind that
 * one's name. NULL: it begins in another way. */
static const char *without_number(const char *complaint) {
  int length = 0;
  sscanf(complaint, "node %*d%n", &length);
  return length > 0 ? complaint + length : NULL;
}

static Status explain_complaint(const Leader *leader) {
  int from = leader->complainer, about = leader->accused;
  char name[LEADER_NAME];
  const char *complaint = leader->complaints[from];
  Status status = leader->not_finite ? STATUS_NUMERIC : STATUS_PEER;
  if (about < 0 || leader->not_finite) return status_set(status, "%s: %s", leader_name(leader, from, name), complaint);
  leader_name(leader, about, name);
  const char *rest = without_number(complaint);
  if (rest) return status_set(STATUS_PEER, "%s%s (reported by node %d)", name, rest, from);
  return status_set(STATUS_PEER, "%s (about %s; reported by node %d)", complaint, name, from);
}

/* A worker whose connection has failed; which has said how. */
static int broken_worker(const Leader *leader) {
  for (int d = 0; d < leader->nodes; d++) {
    const LeaderMember *member = leader_member(leader, d);
    if (!member->forked && member->state >= MEMBER_HERE && !connection_is_open(&member->connection)) return leader->member_of[d];
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
  if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  snprintf(said, sizeof said, "%s", status_message());
  int dead = leader->processes.count ? processes_find_dead(&leader->processes, may_show ? explain_seconds : 0, text, sizeof text) : -1;
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)leader_pid(leader, dead), text);
  status_set(status, "%s", said);
  if (broken >= 0 && leader->complainer < 0) return status_wrap(status, "%s", leader_name(leader, broken, name));
  if (broken >= 0) return status_set(STATUS_PEER, "%s is gone", leader_name(leader, broken, name));
  return leader->complainer < 0 ? status : explain_complaint(leader);
}

static uint64_t bytes_moved(const Leader *leader) {
  uint64_t bytes = 0;
  for (int d = 0; d < leader->nodes; d++) bytes += leader->connections[d]->sent.bytes + leader->connections[d]->received.bytes;
  return bytes;
}

/* The member that is waited for and has come least far. */
static int latest(const Leader *leader, const bool *arrived) {
  int late = 0;
  bool found = false;
  for (int d = 0; d < leader->nodes; d++) {
    bool there = arrived ? arrived[d] : leader_member(leader, d)->state == MEMBER_READY;
    if (there || (found && leader->progress[d] >= leader->progress[late])) continue;
    late = d;
    found = true;
  }
  return leader->member_of[late];
}

static Status report_silence(Leader *leader, const bool *arrived, double most) {
  char name[LEADER_NAME];
  leader->accused = latest(leader, arrived);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer", leader_name(leader, leader->accused, name),
                    most);
}

bool leader_wait_all(const Leader *leader, const bool *arrived) {
  for (int d = 0; d < leader->nodes; d++) {
    if (!arrived[d]) return false;
  }
  return true;
}

/* Those who have not been heard of for long get a call meanwhile. */
static double slice(Leader *leader, const Patience *patience) {
  leader_members_poll(leader);
  leader_members_ping(leader);
  return leader_members_calling(leader) ? fmin(calling_slice, patience_slice(patience)) : patience_slice(patience);
}

/* When the input of a request has left. */
static void note_sent(Leader *leader) {
  for (int i = 0; i < LEADER_DEPTH; i++) {
    LeaderRequest *request = &leader->requests[i];
    bool left = request->number && request->sent <= 0;
    for (int d = 0; left && d < leader->nodes; d++) left = connection_queued(leader->connections[d]) == 0;
    if (left) request->sent = clock_now();
  }
}

double leader_wait_left(const Leader *leader) {
  double most = leader->cluster.request_timeout, left = INFINITY;
  for (uint32_t i = leader->collected + 1; most > 0 && i <= leader->submitted; i++)
    left = fmin(left, leader->requests[i & 1].began + most - clock_now());
  return left;
}

static Status check_time(Leader *leader, const bool *arrived) {
  char name[LEADER_NAME];
  if (leader_wait_left(leader) > 0) return STATUS_OK;
  return status_set(STATUS_TIMEOUT, "the request took longer than --request-timeout %g; last it waited for %s",
                    leader->cluster.request_timeout, leader_name(leader, latest(leader, arrived), name));
}

/* Silence is judged over all nodes: while any of them gets on, a long request is only long. The nodes know best whom they wait for, so they
 * are given a moment to say it first. */
Status leader_wait(Leader *leader, LeaderDone *done, const bool *arrived) {
  Patience patience;
  double most = leader->setting_up ? fmax(leader->options.timeout, setting_up_seconds) : leader->options.timeout;
  patience_start(&patience, most + 1, bytes_moved(leader), clock_now());
  while (!done(leader, arrived)) {
    if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
    /* A complaint counts once there is nothing else: what came before it, in the same step perhaps, is taken first. */
    Status status = leader->complainer >= 0 ? STATUS_PEER : connections_step(leader->connections, leader->nodes, slice(leader, &patience));
    if (status != STATUS_OK) return leader_wait_explain(leader, status);
    note_sent(leader);
    TRY(check_time(leader, arrived));
    if (patience_ends(&patience, bytes_moved(leader), clock_now())) return report_silence(leader, arrived, most);
  }
  return STATUS_OK;
}
