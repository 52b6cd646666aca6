/* Codes of all nodes, from their answers into the order of the tokens. */
#ifndef INFER_LEADER_CODES_H
#define INFER_LEADER_CODES_H
#include "infer/cluster/leader_internal.h"

/* -> leader->codes [blocks * sites][B, T, G]. order [T]: content tokens sorted by node; NULL: as they are. Tokens whose codes are not sent
 * get -1. */
Status leader_codes_gather(Leader *leader, const LeaderRequest *request, const int32_t *order);

#endif
