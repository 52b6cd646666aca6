/* What a simulated receiver makes of a group that it waits for: the transport's estimates of its peers (courier_receive.c), and the
 * transport's judgement (reliability.h). Estimates begin as those of a session that has been at work: with the link's own round trip and
 * jitter. */
#ifndef INFER_SIM_JUDGE_H
#define INFER_SIM_JUDGE_H
#include "infer/virtual/sim_groups.h"
#include "infer/virtual/sim_network.h"

typedef struct SimPeer {
  double gap, round_trip, jitter; /* estimates, seconds; 0: none yet */
} SimPeer;

typedef struct SimJudge {
  Reliability rules; /* a timeout of INFINITY where nothing is ever given up */
  SimPeer *peer;     /* [nodes, nodes] by whom, about whom */
  int nodes;
} SimJudge;

Status sim_judge_init(SimJudge *judge, const Reliability *rules, const SimNetwork *network); /* rules NULL: a stream; NO_MEMORY */
void sim_judge_release(SimJudge *judge);                                                     /* accepts a zeroed one */

bool sim_judge_asks(const SimJudge *judge); /* whether anybody ever asks */

/* What the receiver learns: a packet of the group has come; the answer to its question has. */
void sim_judge_packet(SimJudge *judge, SimGroup *group, double now);
void sim_judge_answer(SimJudge *judge, SimGroup *group, bool sent, double now);

/* Of a group that is waited for; *ask, *again as policy_decide. */
Decision sim_judge_verdict(const SimJudge *judge, const SimGroup *group, double block_time, double now, bool *ask, double *again);

/* Whether a question that reaches the sender then has the missing packets sent again. */
bool sim_judge_sends_again(const SimJudge *judge, const SimGroup *group, double now);

/* Bytes of a question about the group, and of an answer, with headers and a bit for each packet where their number is known. */
size_t sim_judge_question_bytes(const SimGroup *group);
size_t sim_judge_answer_bytes(const SimGroup *group, bool sent);

#endif
