/* The devices that --nodes, --peers and --local name, and the key that they share. */
#include "cli/infer_cluster.h"
#include "base/log.h"
#include "infer/cluster/discovery.h"
#include <string.h>

/* The workers that announce themselves, without those that are named already. */
static Status find_peers(InferCluster *cluster, int max) {
  Address found[WIRE_NODES];
  int count;
  if (cluster->key.open)
    return status_set(STATUS_BAD_USAGE, "--peers auto needs --key-file: devices that announce themselves are known by their key");
  Status status = discovery_find(&cluster->key, found, &count);
  if (status != STATUS_OK) return status_wrap(status, "--peers auto");
  for (int i = 0; i < count && cluster->options.peer_count < max; i++) {
    char text[ADDRESS_TEXT], other[ADDRESS_TEXT];
    bool named = false;
    address_text(&found[i], text);
    for (int p = 0; p < cluster->options.peer_count; p++) named |= strcmp(address_text(&cluster->peers[p], other), text) == 0;
    if (named) continue;
    cluster->peers[cluster->options.peer_count++] = found[i];
    log_info("found worker %s", text);
  }
  cluster->options.discovered = true;
  return STATUS_OK;
}

static Status read_peers(InferCluster *cluster, const char *list) {
  const int max = WIRE_NODES - cluster->options.local;
  for (const char *at = list;; at++) {
    char text[ADDRESS_TEXT];
    at += strspn(at, " ");
    size_t length = strcspn(at, ",");
    if (cluster->options.peer_count == max)
      return status_set(STATUS_BAD_USAGE, "--peers: more than %d devices; a cluster has at most %d", max, WIRE_NODES);
    if (length >= sizeof text) return status_set(STATUS_BAD_USAGE, "--peers: an address of %zu letters", length);
    memcpy(text, at, length);
    text[length] = 0;
    at += length;
    if (strcmp(text, "auto") == 0) {
      TRY(find_peers(cluster, max));
    } else {
      Status status = address_parse(text, &cluster->peers[cluster->options.peer_count++]);
      if (status != STATUS_OK) return status_wrap(status, "--peers");
    }
    if (!*at) return STATUS_OK;
  }
}

/* Of two workers the later one calls the earlier (peer_handshake.h): an address of this machine leads nowhere from another one. */
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
  static const OnFailure policies[] = {[INFER_ABORT] = ON_FAILURE_ABORT, [INFER_RERUN] = ON_FAILURE_RERUN, [INFER_MASK] = ON_FAILURE_MASK};
  const bool automatic = s->on_failure == INFER_ON_FAILURE_AUTO;
  char text[ADDRESS_TEXT];
  *cluster = (InferCluster){.key = key_file_open()};
  cluster->options = (ClusterOptions){.peers = cluster->peers,
                                      .key = &cluster->key,
                                      .wait = s->wait,
                                      .on_failure = !automatic ? policies[s->on_failure]
                                                    : s->peers ? ON_FAILURE_RERUN
                                                               : ON_FAILURE_ABORT,
                                      .request_timeout = s->request_timeout};
  if (!s->peers) return STATUS_OK;
  cluster->options.local = s->local;
  if (s->key_file) TRY(key_file_read(&cluster->key, s->key_file));
  TRY(read_peers(cluster, s->peers));
  for (int i = 0; cluster->key.open && i < cluster->options.peer_count; i++) /* everybody knows the open key: whoever has taken a port */
    if (!cluster->peers[i].on_disk)                                          /* could be the worker */
      return status_set(STATUS_BAD_USAGE, "--peers %s needs --key-file: without a key only workers behind UNIX sockets are called",
                        address_text(&cluster->peers[i], text));
  return check_reachable(cluster);
}
