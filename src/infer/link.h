/* Whole messages over one channel to a peer (plain or secured, control/channel.h), with buffered sending and receiving.
 *
 * Sending never copies: link_send queues a finished message that stays the caller's and must not change until link_pending says that
 * it has left. Receiving never allocates: the owner is asked where a payload belongs as soon as its header has been checked.
 * links_step moves all links of a process together, both ways at once, so that two peers whose socket buffers are full of each other's
 * messages still make progress. One thread per set of links. */
#ifndef INFER_LINK_H
#define INFER_LINK_H
#include "infer/control/channel.h"
#include "infer/wire.h"
#include <stdbool.h>

typedef struct Link Link;

typedef struct LinkSink {
  void *context;
  size_t most_payload; /* longer announcements are refused */
  /* Checks a header and says where its payload goes; *payload = NULL: no room yet, ask again at the next step (the peer is held back). For
   * a message without payload any non-NULL address. A failure closes the link. */
  Status (*place)(void *context, Link *link, const WireHeader *header, uint8_t **payload);
  /* A whole message has arrived. */
  Status (*deliver)(void *context, Link *link, const WireHeader *header, uint8_t *payload);
} LinkSink;

typedef struct LinkCount {
  uint64_t bytes, messages;
} LinkCount;

enum { LINK_QUEUE = 8, LINKS_MOST = WIRE_NODES + 1 };

struct Link {
  Channel *channel; /* NULL: not open */
  int peer;         /* node, or -1: the leader */
  bool nameless;    /* messages of failures do not begin with its name: the owner has a better one */
  LinkSink sink;
  double idle_timeout;      /* seconds after which a silent peer is not waited for; 0: any. For whoever waits */
  double heard;             /* clock_now: when bytes came last; at first, when it was opened */
  LinkCount sent, received; /* as they passed the socket, headers included */
  Status status;            /* of the first failure; the link is closed then */
  /* sending: a ring of messages that are not out yet */
  struct {
    const uint8_t *bytes;
    size_t size;
  } queue[LINK_QUEUE];
  int first, queued;
  size_t written; /* of the first one */
  /* receiving */
  uint8_t head[WIRE_HEADER];
  WireHeader header;
  uint8_t *payload; /* NULL: header incomplete, or no room yet */
  size_t got;       /* bytes of header and payload so far */
};

/* Takes over a connected stream socket, as a plain channel; closed also when it fails. peer: node number or -1 for the leader. */
Status link_open(Link *link, int fd, int peer, const LinkSink *sink);
void link_open_channel(Link *link, Channel *channel, int peer, const LinkSink *sink); /* the same over one whose handshake is over */
bool link_is_open(const Link *link);
void link_close(Link *link); /* idempotent; a zeroed link needs link_clear first */
void link_clear(Link *link); /* not open, nothing queued */

/* A connected pair of sockets. */
Status link_pair(int fd[2]);

/* Queues a message (header included) of the caller's, which stays unchanged until it has left. PEER when the queue is full: the peer does
 * not read. */
Status link_send(Link *link, const uint8_t *message, size_t size);
int link_pending(const Link *link); /* messages not wholly handed to the system */

/* Sends a header alone (of the caller's, unchanged while the link is open) if nothing else is on its way. Failures are left for links_step
 * to find. */
void link_ping(Link *link, const uint8_t message[WIRE_HEADER]);

/* Sends and receives what can be without waiting longer than `seconds` for the first event; 0: do not wait. NULL entries and closed links
 * are passed over. Stops at the first link that fails (its status says so and it is closed; the others go on at the next step): a peer
 * that closed is STATUS_PEER and is named. A signal ends the wait early with STATUS_OK. */
Status links_step(Link *const *links, int count, double seconds);

#endif
