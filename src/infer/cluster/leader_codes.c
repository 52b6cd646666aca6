/* Unpacks the codes behind each node's answer: see leader_codes.h. */
#include "infer/cluster/leader_codes.h"
#include "vq/pack.h"
#include <string.h>

typedef struct NodeCodes {
  int64_t sent, count, first; /* rows sent, content tokens, where these begin in the order */
  int64_t batch, tokens, groups;
  const int32_t *order;
} NodeCodes;

/* A node's codes of one block and site, [B, sent, G] -> their places in [B, T, G]. A single class token has codes too, but no place among
 * the content tokens. */
static void place_codes(const NodeCodes *node, const int32_t *from, int32_t *out) {
  int64_t skip = node->sent - node->count;
  for (int64_t b = 0; b < node->batch; b++) {
    for (int64_t i = skip; i < node->sent; i++) {
      int64_t place = node->first + i - skip, token = node->order ? node->order[place] : place;
      memcpy(out + (b * node->tokens + token) * node->groups, from + (b * node->sent + i) * node->groups,
             (size_t)node->groups * sizeof(int32_t));
    }
  }
}

static Status unpack_node(Leader *leader, const LeaderRequest *request, int d, const NodeCodes *node) {
  const NodeSetup *setup = &leader->setup;
  const Codebook *book = &setup->weights->books[0];
  int64_t rows = node->batch * node->sent, set = node->batch * node->tokens * node->groups;
  size_t all = request_code_bytes(setup, &request->request, &request->shares[d]);
  const uint8_t *packed = request->results[d] + request_answer_bytes(setup, &request->request, &request->shares[d]) - all;
  for (int i = 0; i < setup->weights->book_count; i++, packed += all / (size_t)setup->weights->book_count) {
    if (pack_unpack(packed, rows, book->groups, book->entries, leader->node_codes) != STATUS_OK)
      return status_wrap(STATUS_BAD_VALUE, "node %d: codes of block %d", d, i);
    place_codes(node, leader->node_codes, leader->codes + i * set);
  }
  return STATUS_OK;
}

Status leader_codes_gather(Leader *leader, const LeaderRequest *request, const int32_t *order) {
  NodeCodes node = {
      .batch = request->request.batch, .tokens = request->request.tokens, .groups = leader->setup.weights->books[0].groups, .order = order};
  int64_t numbers = leader->setup.weights->book_count * node.batch * node.tokens * node.groups;
  for (int64_t i = 0; i < numbers; i++) leader->codes[i] = -1;
  for (int d = 0; d < leader->nodes; node.first += request->counts[d++]) {
    node.sent = request->shares[d].sent_rows;
    node.count = request->counts[d];
    bool missing = request->missing >> leader->member_of[d] & 1;
    if (node.sent > 0 && !missing) TRY(unpack_node(leader, request, d, &node));
  }
  return STATUS_OK;
}
