/* A connection to another process: a plain stream socket (a pair that two processes of this machine share), or TLS 1.3 with the cluster's
 * key over TCP or a UNIX socket. Users of a connection need not know which.
 *
 * TLS has an external pre-shared key and an ephemeral exchange (RFC 8446, psk_dhe_ke): no certificates, no tickets, no earlier versions,
 * one cipher suite (TLS_AES_256_GCM_SHA384), X25519 or P-256. A side without the key can neither answer nor dial, and learning the key
 * later does not make earlier traffic readable.
 *
 * It has three phases:
 *   beginning   connection_step continues connecting, HELLO (hello.h) and the TLS handshake, without waiting
 *   bytes       connection_read and connection_write, as recv and send
 *   messages    whole ones (wire.h), in both directions: connection_send queues, connections_step moves all connections of a thread
 *               together, so that two peers whose socket buffers are full of each other's messages still make progress
 *
 * Non-blocking always. Sending never copies: a queued message stays its owner's and must not change until connection_queued says that it
 * has left. Receiving never allocates: the owner is asked where a payload belongs as soon as its header has been checked. The end of a
 * stream is no message: where it matters that all was sent, the peer says so (BYE). One thread for each connection. */
#ifndef INFER_CONNECTION_H
#define INFER_CONNECTION_H
#include "infer/cluster/address.h"
#include "infer/cluster/hello.h"
#include "infer/wire.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct Connection Connection;

typedef enum ConnectionRole { CONNECTION_DIALS, CONNECTION_ANSWERS } ConnectionRole;

typedef struct ConnectionSink {
  void *context;
  WireSide from;      /* who is at the other end */
  size_t max_payload; /* longer announcements are refused */
  /* Checks a header and says where its payload goes; *payload = NULL: no room yet, ask again at the next step (the peer is held back). For
   * a message without payload any non-NULL address. A failure closes the connection. */
  Status (*place)(void *context, Connection *from, const WireHeader *header, uint8_t **payload);
  /* A whole message has arrived. */
  Status (*deliver)(void *context, Connection *from, const WireHeader *header, uint8_t *payload);
} ConnectionSink;

typedef struct ConnectionCount {
  uint64_t bytes, messages;
} ConnectionCount;

enum { CONNECTION_QUEUE = 8, MAX_CONNECTIONS = WIRE_NODES + 16 };

struct Connection {
  int fd;          /* -1: not open */
  struct Tls *tls; /* NULL: plain, or not yet */
  /* Of one that is called: */
  bool calling;    /* the call is not accepted yet */
  Address address; /* of the peer */
  HelloRole role;  /* role, session and key for HELLO */
  uint8_t session[HELLO_SESSION];
  const KeyFile *key;
  /* Messages: */
  int peer;      /* node, or -1: the leader */
  bool nameless; /* error messages do not begin with the peer's name: the owner adds a better one */
  ConnectionSink sink;
  double idle_timeout;            /* seconds of silence tolerated while waiting; 0: unlimited */
  double heard;                   /* clock_now: when bytes came last; at first, when messages began */
  ConnectionCount sent, received; /* headers included */
  Status status;                  /* of the first failure, after which it is closed */
  struct {
    const uint8_t *bytes;
    size_t size;
  } queue[CONNECTION_QUEUE]; /* ring of messages not completely sent */
  int first, queued;
  bool limited;   /* the last message sent was a PING (address_limit_silence) */
  size_t written; /* of the first one */
  uint8_t head[WIRE_HEADER];
  WireHeader header;
  uint8_t *payload; /* NULL: header incomplete, or no room for the payload yet */
  size_t got;       /* bytes of header and payload so far */
  bool more;        /* the last step left messages unread */
};

/* ---- beginning and end. Ownership of descriptors is taken, also on failure */

void connection_init(Connection *connection);           /* closed, nothing queued; first, unless allocated by one of the functions below */
Status connection_open(Connection *connection, int fd); /* a plain one */
Status connection_dial(Connection *connection, const Address *address, HelloRole role, const uint8_t session[HELLO_SESSION],
                       const KeyFile *key);    /* key (outlives the handshake) NULL: the open one. As address_call */
void connection_close(Connection *connection); /* with TLS close_notify if that can be sent at once; idempotent */

/* The same on the heap. BAD_VALUE..., and *connection is NULL. */
Status connection_plain(Connection **connection, int fd);
Status connection_tls(Connection **connection, int fd, ConnectionRole role, const KeyFile *key); /* key: copied */
void connection_free(Connection *connection);                                                    /* accepts NULL */

/* After fork, in the process that does not continue with it: connection_free without close_notify. */
void connection_forget(Connection *connection);

Status connection_pair(int fd[2]); /* connected stream sockets */

/* Goes on with the beginning; *done: it is over, as it is from the start on a plain one. BAD_VALUE: the other side has another key, none,
 * or another version; PEER: connection refused, it went away, or speaks something else. The message says which, as far as this side can
 * know. */
Status connection_step(Connection *connection, bool *done);
bool connection_is_open(const Connection *connection);

/* ---- bytes */

/* As recv: bytes read, 0 at the end of the stream, or -1 with errno EAGAIN (nothing there), ECONNRESET (the peer is gone), EPROTO (bytes
 * that were not sealed by the peer), ENOTCONN (the handshake is not over), or what recv says. */
ssize_t connection_read(Connection *connection, void *to, size_t room);

/* As send, without SIGPIPE: bytes taken, perhaps fewer than `bytes`, or -1 with errno EAGAIN, EPIPE or ECONNRESET, EPROTO, ENOTCONN...
 * After EAGAIN the next try begins with the same bytes, perhaps at another address, and has as many at least: they may be sealed already.
 */
ssize_t connection_write(Connection *connection, const void *from, size_t bytes);

/* What to poll for when bytes are wanted, or wait to be written; TLS may need the other direction for either. Before the beginning is over:
 * what it waits for. */
short connection_events(const Connection *connection, bool to_read, bool to_write);
int connection_fd(const Connection *connection);
bool connection_is_secret(const Connection *connection); /* TLS */

/* Key material that only the two ends of a TLS connection can derive (RFC 8446, 7.5), bound to a label and a context: other ones
 * give other bytes. UNSUPPORTED on a plain one; BAD_VALUE before the handshake is over. */
Status connection_export(Connection *connection, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out,
                         size_t bytes);

/* ---- messages */

/* From here on: the beginning is over. */
void connection_receive(Connection *connection, int peer, const ConnectionSink *sink);

/* Queues a message (header included) of the caller's, which stays unchanged until it has left. PEER when the queue is full: the peer does
 * not read. */
Status connection_send(Connection *connection, const uint8_t *message, size_t size);
int connection_queued(const Connection *connection); /* messages not completely sent */

/* Sends a header (the caller's, unchanged while it is open) if nothing else is being sent. It is not counted in `sent`, which shows
 * progress of work. Failures are left for connections_step to find. */
void connection_ping(Connection *connection, const uint8_t message[WIRE_HEADER]);

/* Waits until one of them can go on, with its beginning or its messages, or `also` (a descriptor to be read; -1: none); no longer than
 * `seconds`, and no longer than until a signal. NULL entries and closed ones are passed over. */
Status connections_wait(Connection *const *connections, int count, int also, double seconds);

/* Sends and receives what can be without waiting longer than `seconds` for the first event; 0: do not wait. Of a peer that sends without
 * end a step takes some hundreds of messages, and the next one goes on at once. NULL entries and closed ones are passed over. Stops at the
 * first that fails (its status says so and it is closed; the others go on at the next step): a peer that closed is STATUS_PEER and is
 * named. A signal ends the wait early with STATUS_OK. */
Status connections_step(Connection *const *connections, int count, double seconds);

/* Of a device that sends tokens to its leader: waits until half of the queue is free. A leader that reads slowly delays the device: there
 * is time, and if it goes away the connection fails. TIMEOUT: it gives no sign of life for idle_timeout. */
Status connection_await_room(Connection *connection);

/* ---- how long a peer may be silent. A waiting process looks at least every CONNECTION_IDLE_SLICE seconds: a longer gap between two looks
 * is time in which it did not run itself (Ctrl-Z, a busy machine), and does not count as silence of the peer */

#define CONNECTION_IDLE_SLICE 0.25

typedef struct IdleTimeout {
  double max;           /* seconds */
  double heard, looked; /* when something moved last, and when that was last looked at; clock_now */
  uint64_t moved;       /* bytes by then */
} IdleTimeout;

void connection_idle_start(IdleTimeout *idle_timeout, double max, uint64_t moved, double now);

/* The longest that the next wait may take. */
static inline double connection_idle_slice(const IdleTimeout *t) { return t->max < CONNECTION_IDLE_SLICE ? t->max : CONNECTION_IDLE_SLICE; }

/* Seconds that this process was kept from looking, as when it was suspended: nobody was silent then. 0 where it was late by a second or
 * less. */
double connection_idle_late(const IdleTimeout *idle_timeout, double now);

/* After each wait: whether nothing has moved for too long. moved: bytes so far, in both directions. */
bool connection_idle_ends(IdleTimeout *idle_timeout, uint64_t moved, double now);

#endif
