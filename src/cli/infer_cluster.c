/* See infer_cluster.h. */
#include "cli/infer_cluster.h"
#include <string.h>

static OnFailure choose_policy(const InferSettings *s) {
  static const OnFailure policies[] = {[INFER_ABORT] = ON_FAILURE_ABORT, [INFER_RERUN] = ON_FAILURE_RERUN, [INFER_MASK] = ON_FAILURE_MASK};
  if (s->on_failure == INFER_ON_FAILURE_AUTO) return s->peers ? ON_FAILURE_RERUN : ON_FAILURE_ABORT;
  return policies[s->on_failure];
}

static Status add_peer(InferCluster *cluster, const char *at, size_t length) {
  char text[ADDRESS_TEXT];
  int most = WIRE_NODES - cluster->options.local;
  if (cluster->options.peer_count == most)
    return status_set(STATUS_BAD_USAGE, "--peers: more than %d devices; a cluster has at most %d", most, WIRE_NODES);
  if (length >= sizeof text) return status_set(STATUS_BAD_USAGE, "--peers: an address of %zu letters", length);
  memcpy(text, at, length);
  text[length] = 0;
  Status status = address_parse(text, &cluster->peers[cluster->options.peer_count++]);
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "--peers");
}

static Status read_peers(InferCluster *cluster, const char *list) {
  for (const char *at = list;; at++) {
    size_t length = strcspn(at, ",");
    TRY(add_peer(cluster, at, length));
    at += length;
    if (!*at) return STATUS_OK;
  }
}

/* The open key is known to everybody: over a network anybody could be the worker. */
static Status check_key(const InferCluster *cluster) {
  char text[ADDRESS_TEXT];
  for (int i = 0; cluster->key.open && i < cluster->options.peer_count; i++) {
    const Address *peer = &cluster->peers[i];
    if (!address_is_local(peer))
      return status_set(STATUS_BAD_USAGE, "--peers %s needs --key-file: without a key only workers of this machine are called",
                        address_text(peer, text));
  }
  return STATUS_OK;
}

/* Of two workers the later one calls the earlier (peer_meeting.h): an address of this machine leads nowhere from another one. */
static Status check_reachable(const InferCluster *cluster) {
  char near[ADDRESS_TEXT], far[ADDRESS_TEXT];
  for (int i = 0; i + 1 < cluster->options.peer_count; i++) {
    const Address *first = &cluster->peers[i], *next = first + 1;
    if (address_is_local(first) && !address_is_local(next))
      return status_set(STATUS_BAD_USAGE,
                        "--peers %s,%s: the second worker could not call the first, which only its own machine reaches; name the first by "
                        "an address that all reach, or behind those of other machines",
                        address_text(first, near), address_text(next, far));
  }
  return STATUS_OK;
}

Status infer_cluster_open(InferCluster *cluster, const InferSettings *s) {
  *cluster = (InferCluster){.key = key_file_open()};
  cluster->options = (ClusterOptions){.peers = cluster->peers,
                                      .key = &cluster->key,
                                      .wait = s->wait,
                                      .on_failure = choose_policy(s),
                                      .request_timeout = s->request_timeout};
  if (!s->peers) return STATUS_OK;
  cluster->options.local = s->local;
  TRY(read_peers(cluster, s->peers));
  if (s->key_file) TRY(key_file_read(&cluster->key, s->key_file));
  TRY(check_key(cluster));
  return check_reachable(cluster);
}
