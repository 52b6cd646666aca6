/* Waiting for nodes, and finding the one to blame when it fails. */
#include "base/clock.h"
#include "infer/leader_parts.h"
#include "infer/patience.h"

static const double explain_seconds = 0.5; /* for the system to tell which child has died */

/* The cause is a dead child, if there is one; else what a node has said; else what the links say. A child's end may show a moment after
 * its sockets have closed. */
Status leader_wait_explain(Leader *leader, Status status) {
  char text[128];
  int dead = processes_find_dead(&leader->processes, status == STATUS_PEER ? explain_seconds : 0, text, sizeof text);
  if (dead >= 0) return status_set(STATUS_PEER, "node %d (pid %d) %s", dead, (int)leader_pid(leader, dead), text);
  int from = leader->complainer, about = leader->accused;
  if (from < 0) return status;
  const char *complaint = leader->complaints[from];
  if (about < 0) return status_set(STATUS_PEER, "node %d (pid %d): %s", from, (int)leader_pid(leader, from), complaint);
  return status_set(STATUS_PEER, "%s (node %d is pid %d; reported by node %d)", complaint, about, (int)leader_pid(leader, about), from);
}

static uint64_t bytes_moved(const Leader *leader) {
  uint64_t bytes = 0;
  for (int d = 0; d < leader->nodes; d++) bytes += leader->control[d].sent.bytes + leader->control[d].received.bytes;
  return bytes;
}

/* The node that is waited for and has come least far. */
static Status report_silence(const Leader *leader, const bool *arrived) {
  int late = -1;
  for (int d = 0; d < leader->nodes; d++) {
    if (!arrived[d] && (late < 0 || leader->progress[d] < leader->progress[late])) late = d;
  }
  return status_set(STATUS_TIMEOUT, "node %d (pid %d) did not answer within %g s; --timeout gives it longer", late,
                    (int)leader_pid(leader, late), leader->options.timeout);
}

bool leader_wait_all(const Leader *leader, const bool *arrived) {
  for (int d = 0; d < leader->nodes; d++) {
    if (!arrived[d]) return false;
  }
  return true;
}

/* Silence is judged over all nodes: while any of them gets on, a long request is only long. The nodes know best whom they wait for, so they
 * are given a moment to say it first. */
Status leader_wait(Leader *leader, LeaderDone *done, const bool *arrived) {
  Patience patience;
  patience_start(&patience, leader->options.timeout + 1, bytes_moved(leader), clock_now());
  while (!done(leader, arrived)) {
    if (leader->options.stop && *leader->options.stop) return status_set(STATUS_INTERRUPTED, "interrupted");
    /* A complaint counts once there is nothing else: what came before it, in the same step perhaps, is taken first. */
    Status status = leader->complainer >= 0 ? STATUS_PEER : links_step(leader->links, leader->nodes, patience_slice(&patience));
    if (status != STATUS_OK) return leader_wait_explain(leader, status);
    if (patience_ends(&patience, bytes_moved(leader), clock_now())) return report_silence(leader, arrived);
  }
  return STATUS_OK;
}
