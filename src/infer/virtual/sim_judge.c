/* Knowledge of groups and peers: see sim_judge.h. */
#include "infer/virtual/sim_judge.h"
#include "infer/transport/packet.h"
#include <math.h>
#include <stdlib.h>

static const double default_timeout = 60;

static SimPeer *about(const SimJudge *judge, int by, int whom) { return &judge->peer[by * judge->nodes + whom]; }

bool sim_judge_asks(const SimJudge *judge) { return judge->rules.mode != RELIABILITY_STREAM; }

/* ---- sizes */

size_t sim_judge_question_bytes(const SimGroup *group) {
  return PACKET_HEADER + (group->known ? packet_bits_bytes((int)group->event->packets) : 0);
}

size_t sim_judge_answer_bytes(const SimGroup *group, bool sent) {
  return PACKET_HEADER + PACKET_STATUS_HEAD + (sent ? packet_bits_bytes((int)group->event->packets) : 0);
}

/* ---- beginning */

/* Of the smallest question and answer, on links that are idle. */
static double round_trip_of(const SimNetwork *network, int by, int whom) {
  return sim_network_idle(network, by, whom, PACKET_HEADER) + sim_network_idle(network, whom, by, PACKET_HEADER + PACKET_STATUS_HEAD);
}

Status sim_judge_init(SimJudge *judge, const Reliability *rules, const SimNetwork *network) {
  int nodes = network->nodes;
  *judge = (SimJudge){.nodes = nodes};
  if (rules) judge->rules = *rules;
  if (!sim_judge_asks(judge)) judge->rules.timeout = INFINITY;
  if (judge->rules.timeout <= 0) judge->rules.timeout = default_timeout;
  judge->peer = malloc((size_t)nodes * (size_t)nodes * sizeof *judge->peer);
  if (!judge->peer) return status_set(STATUS_NO_MEMORY, "no memory for what %d devices know of each other", nodes);
  for (int i = 0; i < nodes * nodes; i++)
    judge->peer[i] = (SimPeer){.round_trip = round_trip_of(network, i / nodes, i % nodes), .jitter = network->options->jitter};
  return STATUS_OK;
}

void sim_judge_release(SimJudge *judge) {
  free(judge->peer);
  *judge = (SimJudge){0};
}

/* ---- what is learnt */

/* A packet that was asked for says nothing about how they come by themselves. */
void sim_judge_packet(SimJudge *judge, SimGroup *group, double now) {
  SimPeer *peer = about(judge, group->receiver, group->sender);
  if (isfinite(group->last) && now > group->last && !isfinite(group->asked)) peer->gap = policy_smooth(peer->gap, now - group->last);
  group->known = true;
  group->last = now;
}

void sim_judge_answer(SimJudge *judge, SimGroup *group, bool sent, double now) {
  SimPeer *peer = about(judge, group->receiver, group->sender);
  double took = now - group->asked;
  group->says = sent ? SENDER_SENT : SENDER_NOT_YET;
  group->known |= sent;
  group->told = now;
  if (group->unanswered == 1) {
    peer->jitter = policy_smooth(peer->jitter, peer->round_trip > 0 ? fabs(took - peer->round_trip) : 0);
    peer->round_trip = policy_smooth(peer->round_trip, took);
  } else if (group->unanswered > 1) {
    peer->round_trip = fmax(peer->round_trip, took); /* to which of them it was is not known: the last is the least that it can be */
  }
  group->unanswered = 0;
}

/* ---- what follows */

Decision sim_judge_verdict(const SimJudge *judge, const SimGroup *group, double block_time, double now, bool *ask, double *again) {
  const SimPeer *peer = about(judge, group->receiver, group->sender);
  int packets = (int)group->event->packets;
  const MessageState state = {.packets = group->known ? packets : 0,
                              .arrived = group->arrived,
                              .missing_sent = group->says == SENDER_SENT ? sim_groups_missing(group) : 0,
                              .sender = group->says,
                              .waiting = group->waiting,
                              .asked = group->asked,
                              .unanswered = group->unanswered,
                              .told = group->told,
                              .heard = group->last,
                              .gap = peer->gap,
                              .round_trip = peer->round_trip,
                              .jitter = peer->jitter,
                              .block_time = block_time};
  return policy_decide(&judge->rules, &state, now, ask, again);
}

bool sim_judge_sends_again(const SimJudge *judge, const SimGroup *group, double now) {
  if (judge->rules.mode != RELIABILITY_RETRANSMIT || !group->sent || group->under_way > 0) return false;
  return !policy_is_in_flight(about(judge, group->sender, group->receiver)->round_trip, group->left, now);
}
