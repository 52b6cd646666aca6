/* See leader_members.h. Leaves out: who takes part in an epoch (leader_epoch.c), what is to happen after a failure (leader_failure.c). */
#include "infer/leader_members.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/control/device_session.h"
#include "infer/control/preamble.h"
#include "infer/leader_parts.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double call_seconds = 5;  /* for a connection, and for its handshake */
static const double again_seconds = 1; /* between calls to a worker that is lost */
static const double stop_seconds = 2;  /* for nodes to leave by themselves */
static const double slice_seconds = 0.02;

const char *leader_name(const Leader *leader, int m, char text[LEADER_NAME]) {
  const LeaderMember *member = &leader->members[m];
  char address[ADDRESS_TEXT];
  if (member->forked)
    snprintf(text, LEADER_NAME, "node %d (pid %d)", m, (int)leader->processes.pid[m]);
  else
    snprintf(text, LEADER_NAME, "node %d (worker %s)", m, address_text(&member->address, address));
  return text;
}

/* ---- one member */

static void become(LeaderMember *member, MemberState state) {
  member->state = state;
  member->since = clock_now();
}

static Status greet(Leader *leader, LeaderMember *member) {
  Greeting greeting = {.version = WIRE_VERSION, .fingerprints = leader->fingerprints};
  memcpy(greeting.session, leader->session, GREETING_SESSION);
  wire_pack(&(WireHeader){.kind = WIRE_GREET, .sender = WIRE_LEADER, .bytes = GREETING_BYTES}, member->greet);
  greeting_pack(&greeting, member->greet + WIRE_HEADER);
  become(member, MEMBER_GREETED);
  TRY(link_send(&member->link, member->greet, sizeof member->greet));
  return links_step(&(Link *){&member->link}, 1, 0);
}

static LinkSink sink_of(Leader *leader) {
  LinkSink sink = leader_messages_sink;
  sink.context = leader;
  sink.most_payload = WIRE_TEXT;
  return sink;
}

Status leader_members_take_hello(Leader *leader, int m) {
  LeaderMember *member = &leader->members[m];
  char address[ADDRESS_TEXT], name[ADDRESS_TEXT + 8] = "a process of this machine";
  if (!member->forked) snprintf(name, sizeof name, "worker %s", address_text(&member->address, address));
  TRY(greeting_parse_hello(member->hello_bytes, &member->hello));
  member->place = 0;
  Status status = greeting_compare(member->hello.version, &member->hello.fingerprints, &leader->fingerprints, name);
  member->refused = status != STATUS_OK;
  if (status == STATUS_OK) become(member, MEMBER_HERE);
  return status;
}

void leader_members_drop(Leader *leader, int m) {
  LeaderMember *member = &leader->members[m];
  link_close(&member->link);
  channel_free(member->channel);
  if (member->calling >= 0) close(member->calling);
  member->channel = NULL;
  member->calling = -1;
  member->node = -1;
  if (member->forked) processes_end(&leader->processes, m);
  become(member, MEMBER_LOST);
  member->next = clock_now() + again_seconds;
}

/* ---- workers: from a socket to HELLO, a step at a time */

static Status begin_tls(Leader *leader, LeaderMember *member) {
  int fd = member->calling;
  TRY(preamble_send(fd, PREAMBLE_LEADER, leader->session));
  member->calling = -1;
  return channel_tls(&member->channel, fd, CHANNEL_DIALS, leader->cluster.key);
}

/* A worker serves one connection at a time: the second one would wait for the first for ever. */
static Status check_only_one(const Leader *leader, const LeaderMember *member) {
  char text[ADDRESS_TEXT];
  for (int m = leader->cluster.local; m < leader->member_count; m++) {
    const LeaderMember *other = &leader->members[m];
    if (other == member || !address_equal(&other->reached, &member->reached)) continue;
    return status_set(STATUS_BAD_VALUE, "node %d is the same worker, at %s: name each one once", m, address_text(&member->reached, text));
  }
  return STATUS_OK;
}

static Status step_connection(Leader *leader, LeaderMember *member) {
  bool done;
  TRY(address_called(&member->address, member->calling, &done));
  if (!done) return STATUS_OK;
  TRY(address_of_peer(member->calling, &member->address, &member->reached));
  TRY(check_only_one(leader, member));
  return begin_tls(leader, member);
}

static Status step_handshake(Leader *leader, int m) {
  LeaderMember *member = &leader->members[m];
  char name[LEADER_NAME];
  bool done;
  TRY(preamble_check_answer(channel_fd(member->channel), leader_name(leader, m, name)));
  TRY(channel_step(member->channel, &done));
  if (!done) return STATUS_OK;
  LinkSink sink = sink_of(leader);
  link_open_channel(&member->link, member->channel, m, &sink);
  member->link.nameless = true; /* leader_name */
  member->channel = NULL;
  return greet(leader, member);
}

static Status step_call(Leader *leader, int m) {
  LeaderMember *member = &leader->members[m];
  Link *link = &member->link;
  if (member->state == MEMBER_GREETED) return links_step(&link, 1, 0);
  Status status = member->channel ? step_handshake(leader, m) : step_connection(leader, member);
  if (status != STATUS_OK || member->state != MEMBER_CALLED || clock_now() - member->since < call_seconds) return status;
  return status_set(STATUS_TIMEOUT, "did not answer within %g s", call_seconds);
}

/* Calls once more; the number that it was reached at before, if it was. */
static Status call(LeaderMember *member) {
  bool known = member->reached.name[0] != 0;
  become(member, MEMBER_CALLED);
  return address_call(known ? &member->reached : &member->address, &member->calling);
}

bool leader_members_calling(const Leader *leader) {
  for (int m = 0; m < leader->member_count; m++) {
    if (leader->members[m].state == MEMBER_CALLED || leader->members[m].state == MEMBER_GREETED) return true;
  }
  return false;
}

int leader_members_waiting(const Leader *leader) {
  int count = 0;
  for (int m = 0; m < leader->member_count; m++) count += leader->members[m].state == MEMBER_HERE;
  return count;
}

/* A worker that is still lost is no news. */
void leader_members_poll(Leader *leader) {
  double now = clock_now();
  for (int m = 0; m < leader->member_count; m++) {
    LeaderMember *member = &leader->members[m];
    Status status = STATUS_OK;
    if (member->state == MEMBER_LOST && !member->forked && !member->refused && now >= member->next) status = call(member);
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED) status = status == STATUS_OK ? step_call(leader, m) : status;
    if (status == STATUS_OK) continue;
    if (member->refused) log_warning("%s", status_message());
    leader_members_drop(leader, m);
  }
}

/* ---- beginning */

static int child(void *context, int number, int control, int handed) {
  Leader *leader = context;
  SessionPlace place = {.weights = leader->setup.weights,
                        .fingerprints = &leader->fingerprints,
                        .handed = handed,
                        .together = leader->cluster.peer_count == 0,
                        .key = leader->cluster.key,
                        .threads = leader->options.threads,
                        .number = number,
                        .siblings = leader->cluster.local};
  if (channel_plain(&place.control, control) != STATUS_OK) return 1;
  return session_run(&place);
}

static Status fork_local(Leader *leader) {
  LinkSink sink = sink_of(leader);
  if (leader->cluster.local == 0) return STATUS_OK;
  TRY(processes_start(&leader->processes, leader->cluster.local, child, leader));
  for (int m = 0; m < leader->cluster.local; m++) {
    int control = leader->processes.control[m];
    leader->processes.control[m] = -1;
    TRY(link_open(&leader->members[m].link, control, m, &sink));
    TRY(greet(leader, &leader->members[m]));
  }
  return STATUS_OK;
}

/* One that cannot be reached may come back, where the cluster goes on without those that fail. */
static Status miss(Leader *leader, int m, Status status) {
  if (leader->cluster.on_failure == ON_FAILURE_ABORT) return status;
  log_warning("%s; going on without it", status_message());
  leader_members_drop(leader, m);
  return STATUS_OK;
}

static Status call_workers(Leader *leader) {
  for (int m = leader->cluster.local; m < leader->member_count; m++) {
    LeaderMember *member = &leader->members[m];
    become(member, MEMBER_CALLED);
    Status status = address_dial(&member->address, call_seconds, &member->calling);
    if (status != STATUS_OK) TRY(miss(leader, m, status));
  }
  return STATUS_OK;
}

/* Who has neither come nor gone within what is due to it: a place in a queue is worth waiting for. */
static Status check_patience(Leader *leader, int m) {
  const LeaderMember *member = &leader->members[m];
  double waited = clock_now() - member->since, most = member->place ? leader->cluster.wait : fmax(leader->options.timeout, call_seconds);
  char name[LEADER_NAME];
  if (member->state != MEMBER_GREETED || waited <= most) return STATUS_OK;
  leader_name(leader, m, name);
  if (member->place)
    return status_set(STATUS_TIMEOUT, "%s serves somebody else, and after %g s this run is number %u in its queue; --wait gives it longer",
                      name, most, member->place);
  return status_set(STATUS_TIMEOUT, "%s did not answer within %g s; --timeout gives it longer", name, most);
}

static Status step_member(Leader *leader, int m) {
  LeaderMember *member = &leader->members[m];
  char name[LEADER_NAME];
  if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
  Status status = step_call(leader, m);
  if (status == STATUS_OK) return check_patience(leader, m);
  if (member->forked) return leader_wait_explain(leader, status);
  if (member->refused) return status; /* names it already */
  return status_wrap(status, "%s", leader_name(leader, m, name));
}

static void pause_a_moment(const Leader *leader) {
  struct pollfd waiting[WIRE_NODES];
  nfds_t count = 0;
  for (int m = 0; m < leader->member_count; m++) {
    const LeaderMember *member = &leader->members[m];
    const Channel *channel = member->state == MEMBER_GREETED ? member->link.channel : member->channel;
    if (member->state == MEMBER_CALLED || member->state == MEMBER_GREETED)
      waiting[count++] = (struct pollfd){.fd = channel ? channel_fd(channel) : member->calling,
                                         .events = channel ? channel_events(channel, true, false) : POLLOUT};
  }
  poll(waiting, count, (int)(slice_seconds * 1000));
}

Status leader_members_open(Leader *leader) {
  TRY(fork_local(leader));
  TRY(call_workers(leader));
  while (leader_members_calling(leader)) {
    for (int m = 0; m < leader->member_count; m++) {
      MemberState state = leader->members[m].state;
      if (state == MEMBER_CALLED || state == MEMBER_GREETED) TRY(step_member(leader, m));
    }
    if (leader_members_calling(leader)) pause_a_moment(leader);
  }
  return STATUS_OK;
}

/* ---- end */

/* Says bye, which idle nodes follow at once; those that compute or hang are killed after a moment, or find that their leader is gone. */
void leader_members_close(Leader *leader) {
  bool idle = leader_under_way(leader) == 0;
  wire_pack(&(WireHeader){.kind = WIRE_BYE, .sender = WIRE_LEADER}, leader->word);
  for (int m = 0; leader->members && m < leader->member_count; m++) {
    LeaderMember *member = &leader->members[m];
    Link *link = &member->link;
    bool told = idle && link_is_open(link) && link_send(link, leader->word, WIRE_HEADER) == STATUS_OK;
    if (told) links_step(&link, 1, 0);
    link_close(link);
    channel_free(member->channel);
    if (member->calling >= 0) close(member->calling);
  }
  processes_stop(&leader->processes, idle ? stop_seconds : 0);
}
