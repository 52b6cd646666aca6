/* See leader_members.h. Leaves out: who takes part in an epoch (leader_epoch.c), what is to happen after a failure (leader_failure.c). */
#include "infer/cluster/leader_members.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/device_session.h"
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/probe_message.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double call_seconds = 5;                         /* for a connection, and for its handshake */
static const double again_soon = 0.02, again_max_soon = 1;    /* to one that hung up before it said who it is */
static const double again_seconds = 1, again_max = 30;        /* between calls to a worker that is lost */
static const double useless_seconds = 60, useless_max = 3600; /* to one that could be called and was of no use */
static const double stop_seconds = 2;                         /* for nodes to leave by themselves */
static const double slice_seconds = 0.02;

const char *leader_name(const Leader *leader, int m, char text[LEADER_NAME]) {
  const LeaderMember *member = &leader->membership.members[m];
  char address[ADDRESS_TEXT];
  if (member->forked)
    snprintf(text, LEADER_NAME, "node %d (pid %d)", m, (int)leader->membership.processes.pid[m]);
  else
    snprintf(text, LEADER_NAME, "node %d (worker %s)", m, address_text(&member->address, address));
  return text;
}

/* ---- one member */

static void become(LeaderMember *member, MemberState state) {
  member->state = state;
  member->since = clock_now();
}

static ConnectionSink sink_of(Leader *leader) {
  ConnectionSink sink = leader_messages_sink;
  sink.context = leader;
  sink.max_payload = PROBE_MAX;
  return sink;
}

Status leader_members_take_welcome(Leader *leader, int m) {
  LeaderMember *member = &leader->membership.members[m];
  char address[ADDRESS_TEXT], name[ADDRESS_TEXT + 8] = "a process of this machine";
  Welcome welcome;
  if (!member->forked) snprintf(name, sizeof name, "worker %s", address_text(&member->address, address));
  TRY(hello_parse_welcome(member->welcome, &welcome));
  memcpy(member->name, welcome.name, sizeof member->name);
  member->place = 0;
  Status status = hello_compare(&welcome.fingerprints, &leader->fingerprints, name);
  member->refused = status != STATUS_OK;
  if (status == STATUS_OK) become(member, MEMBER_HERE);
  return status;
}

/* At least so long, and twice as long as last time; no longer than `most` by this alone. */
static void put_off(LeaderMember *member, double min, double max) {
  member->pause = fmin(fmax(2 * member->pause, min), fmax(member->pause, max));
  member->next = clock_now() + member->pause;
}

void leader_members_drop(Leader *leader, int m) {
  LeaderMember *member = &leader->membership.members[m];
  connection_close(&member->connection);
  member->node = -1;
  member->asked = false;
  if (member->forked) processes_end(&leader->membership.processes, m);
  become(member, MEMBER_LOST);
  put_off(member, again_seconds, again_max);
}

void leader_members_put_off(Leader *leader, int m) { put_off(&leader->membership.members[m], useless_seconds, useless_max); }

/* ---- workers: from a call to WELCOME, a step at a time */

/* A worker serves one connection at a time: the second one would wait for the first for ever. */
static Status check_only_one(const Leader *leader, const LeaderMember *member) {
  char text[ADDRESS_TEXT];
  for (int m = leader->cluster.local; m < leader->membership.count; m++) {
    const LeaderMember *other = &leader->membership.members[m];
    if (other == member || !address_equal(&other->reached, &member->reached)) continue;
    return status_set(STATUS_BAD_VALUE, "node %d is the same worker, at %s: name each one once", m, address_text(&member->reached, text));
  }
  return STATUS_OK;
}

/* The next number that somebody may answer at. A name is asked for anew where calls have been in vain for long. */
static Status call(Leader *leader, LeaderMember *member) {
  Status status = STATUS_OK;
  if (member->number_count == 0 || (member->turn == 0 && member->pause >= again_max))
    TRY(address_numbers(&member->address, member->numbers, &member->number_count));
  become(member, MEMBER_CALLED);
  member->answered = false;
  do {
    status =
        connection_dial(&member->connection, &member->numbers[member->turn], HELLO_LEADER, leader->membership.session, leader->cluster.key);
    if (status != STATUS_OK) member->turn = (member->turn + 1) % member->number_count;
  } while (status != STATUS_OK && member->turn > 0);
  return status;
}

/* Where nobody takes the call, at the next number. */
static Status call_next_number(Leader *leader, LeaderMember *member, Status status) {
  connection_close(&member->connection);
  member->turn = (member->turn + 1) % member->number_count;
  return member->turn > 0 ? call(leader, member) : status;
}

static Status check_call_time(const LeaderMember *member) {
  char text[ADDRESS_TEXT];
  if (clock_now() - member->since < call_seconds) return STATUS_OK;
  if (member->answered) return status_set(STATUS_TIMEOUT, "did not answer within %g s", call_seconds);
  return status_set(STATUS_TIMEOUT, "%s: nobody answered within %g s", address_text(&member->numbers[member->turn], text), call_seconds);
}

/* From now on it has its time for the handshake. */
static Status note_answered(Leader *leader, LeaderMember *member) {
  member->answered = true;
  member->since = clock_now();
  TRY(address_of_peer(connection_fd(&member->connection), &member->address, &member->reached));
  return check_only_one(leader, member);
}

static Status step_handshake(Leader *leader, int m) {
  LeaderMember *member = &leader->membership.members[m];
  Connection *connection = &member->connection;
  bool done;
  if (!connection_is_open(connection)) return clock_now() < member->next ? STATUS_OK : call(leader, member);
  Status status = connection_step(connection, &done);
  bool calling = connection_is_calling(connection);
  if (status == STATUS_OK && !calling && !member->answered) status = note_answered(leader, member);
  if (status == STATUS_OK && !done) status = check_call_time(member);
  if (status != STATUS_OK && calling) return call_next_number(leader, member, status);
  if (status != STATUS_OK || !done) return status;
  ConnectionSink sink = sink_of(leader);
  connection_receive(connection, m, &sink);
  connection->nameless = true; /* leader_name */
  become(member, MEMBER_GREETED);
  return connections_step(&connection, 1, 0);
}

static Status step_call(Leader *leader, int m) {
  Connection *connection = &leader->membership.members[m].connection;
  return leader->membership.members[m].state == MEMBER_GREETED ? connections_step(&connection, 1, 0) : step_handshake(leader, m);
}

bool leader_members_calling(const Leader *leader) {
  for (int m = 0; m < leader->membership.count; m++) {
    const LeaderMember *member = &leader->membership.members[m];
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED || member->yields) return true;
  }
  return false;
}

int leader_members_waiting(const Leader *leader) {
  int count = 0;
  for (int m = 0; m < leader->membership.count; m++) count += leader->membership.members[m].state == MEMBER_HERE;
  return count;
}

void leader_members_ping(Leader *leader) {
  double now = clock_now();
  if (now < leader->membership.next_ping) return;
  leader->membership.next_ping = now + LEADER_PING_SECONDS;
  wire_pack(&(WireHeader){.kind = WIRE_PING, .sender = WIRE_LEADER}, leader->membership.ping);
  for (int m = leader->cluster.local; m < leader->membership.count; m++) {
    if (leader->membership.members[m].state >= MEMBER_HERE)
      connection_ping(&leader->membership.members[m].connection, leader->membership.ping);
  }
}

/* A worker that is still lost is no news. */
void leader_members_poll(Leader *leader) {
  double now = clock_now();
  for (int m = 0; m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    Status status = STATUS_OK;
    if (member->state == MEMBER_LOST && !member->forked && !member->refused && now >= member->next) status = call(leader, member);
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED) status = status == STATUS_OK ? step_call(leader, m) : status;
    if (status == STATUS_OK) continue;
    if (member->refused) log_warning("%s", status_message());
    leader_members_drop(leader, m);
  }
}

/* ---- beginning */

static int child(void *context, int number, int control, int passed) {
  Leader *leader = context;
  SessionPlace place = {.weights = leader->setup.weights,
                        .fingerprints = &leader->fingerprints,
                        .passed = passed,
                        .together = leader->cluster.peer_count == 0,
                        .key = leader->cluster.key,
                        .threads = leader->options.threads,
                        .number = number,
                        .siblings = leader->cluster.local};
  memcpy(place.session, leader->membership.session, HELLO_SESSION);
  if (connection_plain(&place.control, control) != STATUS_OK) return 1;
  return session_run(&place);
}

static Status fork_local(Leader *leader) {
  ConnectionSink sink = sink_of(leader);
  if (leader->cluster.local == 0) return STATUS_OK;
  TRY(processes_start(&leader->membership.processes, leader->cluster.local, child, leader));
  for (int m = 0; m < leader->cluster.local; m++) {
    int control = leader->membership.processes.control[m];
    leader->membership.processes.control[m] = -1;
    TRY(connection_open(&leader->membership.members[m].connection, control));
    connection_receive(&leader->membership.members[m].connection, m, &sink);
    become(&leader->membership.members[m], MEMBER_GREETED);
  }
  return STATUS_OK;
}

/* A worker that cannot be reached, or falls silent, may come back, where the cluster goes on without those that fail. One that says no, or
 * that others are served by for too long, is another matter. */
static Status miss(Leader *leader, int m, Status status) {
  const LeaderMember *member = &leader->membership.members[m];
  bool out_of_reach = status == STATUS_NOT_FOUND || status == STATUS_TIMEOUT || status == STATUS_PEER || status == STATUS_IO;
  if (leader->cluster.on_failure == ON_FAILURE_ABORT || member->forked || member->place > 0 || !out_of_reach) return status;
  log_warning("%s; going on without it", status_message());
  leader_members_drop(leader, m);
  return STATUS_OK;
}

static Status call_workers(Leader *leader) {
  for (int m = leader->cluster.local; m < leader->membership.count; m++) {
    Status status = call(leader, &leader->membership.members[m]);
    if (status != STATUS_OK) TRY(miss(leader, m, status));
  }
  return STATUS_OK;
}

/* In the order of addresses, which is the same for all leaders. */
static bool waits_for_an_earlier_one(const Leader *leader, int m) {
  char own[ADDRESS_TEXT], other[ADDRESS_TEXT];
  address_text(&leader->membership.members[m].reached, own);
  for (int b = leader->cluster.local; b < leader->membership.count; b++) {
    const LeaderMember *busy = &leader->membership.members[b];
    bool waits = b != m && busy->state == MEMBER_GREETED && busy->place > 0;
    if (waits && strcmp(address_text(&busy->reached, other), own) < 0) return true;
  }
  return false;
}

/* Of two leaders that want the same workers each could have one and wait for the other. So whoever waits for one gives back those behind
 * it, and calls them again when it has got it. */
static Status keep_order(Leader *leader) {
  for (int m = leader->cluster.local; m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    bool waits = waits_for_an_earlier_one(leader, m);
    if (waits && member->state == MEMBER_HERE) {
      leader_members_drop(leader, m);
      member->yields = true;
    } else if (!waits && member->yields) {
      member->yields = false;
      Status status = call(leader, member);
      if (status != STATUS_OK) TRY(miss(leader, m, status));
    }
  }
  return STATUS_OK;
}

/* Who has neither come nor gone within what is due to it: a place in a queue is worth waiting for. */
static Status check_idle_timeout(Leader *leader, int m) {
  const LeaderMember *member = &leader->membership.members[m];
  double waited = clock_now() - member->since, max = member->place ? leader->cluster.wait : fmax(leader->options.timeout, call_seconds);
  char name[LEADER_NAME];
  if (member->state != MEMBER_GREETED || waited <= max) return STATUS_OK;
  leader_name(leader, m, name);
  if (member->place)
    return status_set(STATUS_TIMEOUT, "%s serves somebody else, and after %g s this run is number %u in its queue; --wait gives it longer",
                      name, max, member->place);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer", name, max);
}

/* A worker that has taken the call and hung up, or fallen silent, before it said WELCOME or put this leader into its queue has too many
 * callers, perhaps: it is called again, as long as a place in its queue would be waited for. */
static bool try_again(Leader *leader, int m, Status status) {
  LeaderMember *member = &leader->membership.members[m];
  char name[LEADER_NAME];
  double now = clock_now();
  bool hung_up = status == STATUS_PEER || status == STATUS_IO || status == STATUS_TIMEOUT;
  if (!member->answered || !hung_up || member->refused || member->place > 0 || now - leader->membership.began > leader->cluster.wait)
    return false;
  if (member->tries++ == 0) log_info("%s hung up before it said who it is; calling it again", leader_name(leader, m, name));
  connection_close(&member->connection);
  become(member, MEMBER_CALLED);
  double share = (double)(now * 1e6 - floor(now * 1e6)); /* so that not all leaders come back at the same time */
  member->next = now + fmin(again_max_soon, again_soon * (double)(1U << (member->tries < 8 ? member->tries : 8))) * (0.5 + share);
  return true;
}

static Status step_member(Leader *leader, int m) {
  LeaderMember *member = &leader->membership.members[m];
  char name[LEADER_NAME];
  if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  Status status = step_call(leader, m);
  if (status != STATUS_OK && !member->forked && try_again(leader, m, status)) return STATUS_OK;
  if (status == STATUS_OK)
    status = check_idle_timeout(leader, m);
  else if (member->forked)
    return leader_wait_explain(leader, status);
  else if (!member->refused) /* which names it already */
    status_wrap(status, "%s", leader_name(leader, m, name));
  return status == STATUS_OK ? STATUS_OK : miss(leader, m, status);
}

static void pause_a_moment(Leader *leader) {
  Connection *waiting[WIRE_NODES];
  int count = 0;
  for (int m = 0; m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED) waiting[count++] = &member->connection;
  }
  connections_wait(waiting, count, -1, slice_seconds);
}

Status leader_members_open(Leader *leader) {
  leader->membership.began = clock_now();
  TRY(fork_local(leader));
  TRY(call_workers(leader));
  while (leader_members_calling(leader)) {
    for (int m = 0; m < leader->membership.count; m++) {
      MemberState state = leader->membership.members[m].state;
      if (state == MEMBER_CALLED || state == MEMBER_GREETED) TRY(step_member(leader, m));
    }
    TRY(keep_order(leader));
    leader_members_ping(leader);
    if (leader_members_calling(leader)) pause_a_moment(leader);
  }
  return STATUS_OK;
}

/* ---- end */

/* Says bye, which idle nodes follow at once; those that compute or hang are killed after a moment, or find that their leader is gone. Links
 * that fail at that are no news, and must not take the place of the message why all this ends. */
void leader_members_close(Leader *leader) {
  bool idle = leader_under_way(leader) == 0;
  char said[1024];
  snprintf(said, sizeof said, "%s", status_message());
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, leader->word);
  for (int m = 0; leader->membership.members && m < leader->membership.count; m++) {
    LeaderMember *member = &leader->membership.members[m];
    Connection *connection = &member->connection;
    bool told = idle && connection_is_open(connection) && connection_send(connection, leader->word, WIRE_HEADER) == STATUS_OK;
    if (told) connections_step(&connection, 1, 0);
    connection_close(connection);
  }
  processes_stop(&leader->membership.processes, idle ? stop_seconds : 0);
  status_set(STATUS_OK, "%s", said); /* the failure that has led here is the one to tell, not that of saying goodbye */
}
