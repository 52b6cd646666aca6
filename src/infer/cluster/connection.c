/* See connection.h. First TLS, through OpenSSL; then what a connection is, over it or without it. Shapes, models and meaning of messages
 * are the owner's. */
#include "infer/cluster/connection.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct Tls Tls;

enum { MESSAGES_AT_ONCE = 256 }; /* of one peer: far more than an honest one sends between two looks */
static const char identity_of_key[] = "astra-2", identity_of_none[] = "astra-open";
static const unsigned char suite[2] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */

struct Tls {
  SSL *ssl;
  int fd;
  KeyFile key;
  bool done;
  bool other_identity;           /* of caller and this side only one has a key */
  bool read_writes, write_reads; /* the last try could not go on until the other direction is free */
  short handshake;               /* what the handshake waits for */
};

/* Made once for all connections of the process, of which a listener has very many: OpenSSL allows a few hundred types of BIO. */
static struct {
  SSL_CTX *context[2]; /* of those who dial and of those who answer */
  BIO_METHOD *method;
} shared;
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;

/* ---- TLS: bytes to and from the socket. OpenSSL's own BIO writes without MSG_NOSIGNAL, and SIGPIPE is not this library's to ignore */

static int bio_write(BIO *bio, const char *from, size_t bytes, size_t *written) {
  const Tls *tls = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  ssize_t n = send(tls->fd, from, bytes, MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
  *written = n > 0 ? (size_t)n : 0;
  return n > 0;
}

static int bio_read(BIO *bio, char *to, size_t room, size_t *got) {
  const Tls *tls = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  ssize_t n = recv(tls->fd, to, room, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  *got = n > 0 ? (size_t)n : 0;
  return n > 0;
}

static long bio_control(BIO *bio, int what, long number, void *pointer) {
  (void)number, (void)pointer;
  if (what == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return what == BIO_CTRL_FLUSH || what == BIO_CTRL_DUP;
}

/* ---- TLS: the key */

static const char *identity_of(const Tls *tls) { return tls->key.open ? identity_of_none : identity_of_key; }

/* The key in the form that OpenSSL takes: a session to be resumed, whose ownership it takes. */
static SSL_SESSION *session_of(Tls *tls, SSL *ssl) {
  const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
  SSL_SESSION *session = SSL_SESSION_new();
  bool set = cipher && session && SSL_SESSION_set1_master_key(session, tls->key.bytes, KEY_FILE_BYTES) &&
             SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  if (set) return session;
  SSL_SESSION_free(session);
  return NULL;
}

/* Of the side that dials. digest: that of the chosen suite, once there is one: a key belongs to one digest. */
static int offer_key(SSL *ssl, const EVP_MD *digest, const unsigned char **identity, size_t *bytes, SSL_SESSION **session) {
  Tls *tls = SSL_get_app_data(ssl);
  *session = NULL;
  if (digest && !EVP_MD_is_a(digest, "SHA384")) return 1;
  *identity = (const unsigned char *)identity_of(tls);
  *bytes = strlen(identity_of(tls));
  return (*session = session_of(tls, ssl)) != NULL;
}

/* Of the side that answers. Without a session OpenSSL looks for a certificate, of which there is none. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t bytes, SSL_SESSION **session) {
  Tls *tls = SSL_get_app_data(ssl);
  const char *own = identity_of(tls);
  *session = NULL;
  tls->other_identity = bytes != strlen(own) || memcmp(identity, own, bytes) != 0;
  if (tls->other_identity) return 1;
  return (*session = session_of(tls, ssl)) != NULL;
}

/* ---- TLS: beginning and end */

/* SSL_OP_ALLOW_NO_DHE_KEX is never set: the ephemeral exchange is certain. A client would go on without the key with one who shows a
 * certificate: SSL_VERIFY_PEER refuses all of them, and tls_step asks once more. */
static bool configure(SSL_CTX *c, bool answers) {
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (answers)
    SSL_CTX_set_psk_find_session_callback(c, find_key);
  else
    SSL_CTX_set_psk_use_session_callback(c, offer_key);
  if (!answers) SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
  return SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) && SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) &&
         SSL_CTX_set_ciphersuites(c, "TLS_AES_256_GCM_SHA384") && SSL_CTX_set1_groups_list(c, "X25519:P-256") &&
         SSL_CTX_set_num_tickets(c, 0);
}

static void make_shared(void) {
  for (int answers = 0; answers < 2; answers++) {
    SSL_CTX *context = SSL_CTX_new(answers ? TLS_server_method() : TLS_client_method());
    if (context && configure(context, answers)) shared.context[answers] = context;
  }
  BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "socket without SIGPIPE");
  bool set = method && BIO_meth_set_write_ex(method, bio_write) && BIO_meth_set_read_ex(method, bio_read) &&
             BIO_meth_set_ctrl(method, bio_control);
  if (set) shared.method = method;
}

static void tls_free(Tls *tls) {
  if (!tls) return;
  ERR_clear_error();
  if (tls->done) SSL_shutdown(tls->ssl); /* a full socket or a lost peer: then without */
  ERR_clear_error();
  SSL_free(tls->ssl);
  OPENSSL_cleanse(tls, sizeof *tls);
  free(tls);
}

static Status tls_new(Tls **out, int fd, bool answers, const KeyFile *key) {
  Tls *tls = *out = calloc(1, sizeof *tls);
  if (!tls) return status_no_memory(NULL, "a secured connection");
  *tls = (Tls){.fd = fd, .key = key ? *key : key_file_open(), .handshake = answers ? POLLIN : POLLOUT};
  pthread_once(&shared_once, make_shared);
  SSL_CTX *context = shared.context[answers];
  bool set = context && shared.method && (tls->ssl = SSL_new(context)) && SSL_set_app_data(tls->ssl, tls);
  BIO *bio = set ? BIO_new(shared.method) : NULL;
  if (!bio) {
    tls_free(tls);
    *out = NULL;
    return set ? status_no_memory(NULL, "a secured connection")
               : status_set(STATUS_NO_MEMORY, "OpenSSL cannot start TLS 1.3 with a pre-shared key");
  }
  BIO_set_data(bio, tls);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl, bio, bio);
  if (answers)
    SSL_set_accept_state(tls->ssl);
  else
    SSL_set_connect_state(tls->ssl);
  return STATUS_OK;
}

/* ---- TLS: the handshake */

static Status tls_explain(const Tls *tls) {
  unsigned long error = ERR_peek_error();
  int reason = ERR_GET_REASON(error);
  if (tls->other_identity && tls->key.open)
    return status_set(STATUS_BAD_VALUE, "the other device has a key and this one has none: give --key-file to both");
  if (tls->other_identity)
    return status_set(STATUS_BAD_VALUE, "the other device has no key, or one of another version: give it this --key-file");
  if (reason == SSL_R_BINDER_DOES_NOT_VERIFY)
    return status_set(STATUS_BAD_VALUE, "the other device has another key: --key-file must hold the same key on all devices");
  if (reason == SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_PSK_IDENTITY && tls->key.open)
    return status_set(STATUS_BAD_VALUE, "the other device has a key and this one has none: give --key-file to both");
  if (reason == SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_PSK_IDENTITY)
    return status_set(STATUS_BAD_VALUE, "the other device has no key: give it this --key-file");
  if (reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
    return status_set(STATUS_BAD_VALUE, "the other device refuses this one's key: --key-file must hold the same key on all devices");
  if (error == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return status_set(STATUS_PEER, "closed the connection before the handshake was over");
  const char *text = ERR_reason_error_string(error);
  return status_set(STATUS_PEER, "no secured connection: %s", text ? text : "unknown reason");
}

static Status tls_step(Tls *tls, bool *done) {
  *done = tls->done;
  if (tls->done) return STATUS_OK;
  ERR_clear_error();
  int result = SSL_do_handshake(tls->ssl);
  int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    tls->handshake = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return STATUS_OK;
  }
  if (result != 1) return tls_explain(tls);
  if (!SSL_session_reused(tls->ssl)) return status_set(STATUS_BAD_VALUE, "the other device did not prove that it has the key");
  *done = tls->done = true;
  return STATUS_OK;
}

/* ---- TLS: bytes, as recv and send with errno */

static ssize_t fail_with(int code) {
  errno = code;
  return -1;
}

/* The reason why nothing was moved, as errno. 0: the end of the stream. */
static ssize_t tls_failed(Tls *tls, int fault, bool *other_direction, int other) {
  int error = SSL_get_error(tls->ssl, 0);
  unsigned long reason = ERR_peek_error();
  *other_direction = error == other;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return fail_with(EAGAIN);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_SSL && ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return 0;
  if (error == SSL_ERROR_SYSCALL) return fail_with(fault ? fault : ECONNRESET);
  return fail_with(EPROTO);
}

/* ---- beginning and end */

/* Codes are small and urgent: no delay to send more together. A device that leaves the network without notice is detected. */
static void prepare(int fd) {
  const int yes = 1, idle = 10, interval = 5, count = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void connection_init(Connection *c) { *c = (Connection){.fd = -1, .peer = -1}; }

Status connection_open(Connection *c, int fd) {
  int flags = fcntl(fd, F_GETFL);
  connection_init(c);
  if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0) {
    c->fd = fd;
    return STATUS_OK;
  }
  Status status = status_set(STATUS_IO, "cannot prepare a socket: %s", strerror(errno));
  close(fd);
  return status;
}

Status connection_dial(Connection *c, const Address *address, HelloRole role, const uint8_t session[HELLO_SESSION], const KeyFile *key) {
  int fd;
  connection_init(c);
  TRY(address_call(address, &fd));
  if (!address->on_disk) prepare(fd);
  *c = (Connection){.fd = fd, .calling = true, .address = *address, .role = role, .key = key, .peer = -1};
  memcpy(c->session, session, HELLO_SESSION);
  return STATUS_OK;
}

void connection_close(Connection *c) {
  tls_free(c->tls);
  if (c->fd >= 0) close(c->fd);
  c->tls = NULL;
  c->fd = -1;
  c->calling = c->more = false;
  c->queued = 0;
}

Status connection_plain(Connection **c, int fd) {
  *c = malloc(sizeof **c);
  if (!*c) {
    close(fd);
    return status_no_memory(NULL, "a connection");
  }
  Status status = connection_open(*c, fd);
  if (status == STATUS_OK) return STATUS_OK;
  free(*c);
  *c = NULL;
  return status;
}

Status connection_tls(Connection **c, int fd, ConnectionRole role, const KeyFile *key) {
  TRY(connection_plain(c, fd));
  if (role == CONNECTION_ANSWERS) prepare(fd); /* without effect on a UNIX socket */
  Status status = tls_new(&(*c)->tls, fd, role == CONNECTION_ANSWERS, key);
  if (status == STATUS_OK) return STATUS_OK;
  connection_free(*c);
  *c = NULL;
  return status;
}

void connection_free(Connection *c) {
  if (!c) return;
  connection_close(c);
  free(c);
}

void connection_forget(Connection *c) {
  if (c->tls) c->tls->done = false;
  connection_free(c);
}

Status connection_pair(int fd[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0) return STATUS_OK;
  fd[0] = fd[1] = -1;
  return status_set(STATUS_IO, "cannot make a pair of sockets: %s%s", strerror(errno),
                    errno == EMFILE ? " (raise the limit with ulimit -n, or use fewer nodes)" : "");
}

bool connection_is_open(const Connection *c) { return c->fd >= 0; }

Status connection_step(Connection *c, bool *done) {
  uint8_t bytes[HELLO_BYTES];
  Hello hello = {.role = c->role};
  *done = false;
  if (c->calling) { /* once the call has been accepted: HELLO, for which a fresh connection has room, and TLS after it */
    bool accepted;
    TRY(address_called(&c->address, c->fd, &accepted));
    if (!accepted) return STATUS_OK;
    c->calling = false;
    memcpy(hello.session, c->session, HELLO_SESSION);
    TRY(hello_pack(&hello, c->key, bytes));
    if (send(c->fd, bytes, sizeof bytes, MSG_NOSIGNAL) != (ssize_t)sizeof bytes)
      return status_set(STATUS_PEER, "closed the connection at once");
    TRY(tls_new(&c->tls, c->fd, false, c->key));
  }
  if (!c->tls) {
    *done = true;
    return STATUS_OK;
  }
  /* A listener of another version says so where TLS would begin; the bytes stay there. */
  bool any = recv(c->fd, bytes, WIRE_HEADER, MSG_PEEK | MSG_DONTWAIT) == WIRE_HEADER;
  if (any && hello_read(bytes, WIRE_HEADER, NULL, &hello) == HELLO_OTHER_VERSION)
    return status_set(STATUS_BAD_VALUE, "another protocol version: %d there, %d here (install the same release of astra on all devices)",
                      bytes[4], WIRE_VERSION);
  return tls_step(c->tls, done);
}

/* ---- bytes */

ssize_t connection_read(Connection *c, void *to, size_t room) {
  Tls *tls = c->tls;
  size_t got = 0;
  if (!tls) return recv(c->fd, to, room, 0);
  if (!tls->done) return fail_with(ENOTCONN);
  ERR_clear_error();
  errno = 0;
  tls->read_writes = false;
  if (SSL_read_ex(tls->ssl, to, room, &got)) return (ssize_t)got;
  return tls_failed(tls, errno, &tls->read_writes, SSL_ERROR_WANT_WRITE);
}

ssize_t connection_write(Connection *c, const void *from, size_t bytes) {
  Tls *tls = c->tls;
  size_t written = 0;
  if (!tls) return send(c->fd, from, bytes, MSG_NOSIGNAL);
  if (!tls->done) return fail_with(ENOTCONN);
  ERR_clear_error();
  errno = 0;
  tls->write_reads = false;
  if (SSL_write_ex(tls->ssl, from, bytes, &written)) return (ssize_t)written;
  ssize_t result = tls_failed(tls, errno, &tls->write_reads, SSL_ERROR_WANT_READ);
  return result == 0 ? fail_with(EPIPE) : result;
}

short connection_events(const Connection *c, bool to_read, bool to_write) {
  const Tls *tls = c->tls;
  if (c->calling) return POLLOUT;
  if (tls && !tls->done) return tls->handshake;
  short read = tls && tls->read_writes ? POLLOUT : POLLIN, write = tls && tls->write_reads ? POLLIN : POLLOUT;
  return (short)((to_read ? read : 0) | (to_write ? write : 0));
}

int connection_fd(const Connection *c) { return c->fd; }
bool connection_is_secret(const Connection *c) { return c->tls != NULL; }

Status connection_export(Connection *c, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes) {
  if (!c->tls) return status_set(STATUS_UNSUPPORTED, "a plain connection has no keys to derive others from");
  if (!c->tls->done) return status_set(STATUS_BAD_VALUE, "keys were asked for before the handshake was over");
  if (SSL_export_keying_material(c->tls->ssl, out, bytes, label, strlen(label), context, context_bytes, 1) == 1) return STATUS_OK;
  return status_set(STATUS_IO, "OpenSSL derives no keys for %s", label);
}

/* ---- messages */

void connection_receive(Connection *c, int peer, const ConnectionSink *sink) {
  c->peer = peer;
  c->sink = *sink;
  c->heard = clock_now();
}

static Status fail(Connection *c, Status code) {
  char name[24] = "the leader";
  if (c->peer >= 0) snprintf(name, sizeof name, "node %d", c->peer);
  c->status = c->nameless ? code : status_wrap(code, "%s", name);
  connection_close(c);
  return c->status;
}

Status connection_send(Connection *c, const uint8_t *message, size_t size) {
  if (!connection_is_open(c)) return fail(c, status_set(STATUS_PEER, "the connection is closed"));
  if (c->queued == CONNECTION_QUEUE)
    return fail(c, status_set(STATUS_PEER, "does not take messages any more (%d are waiting)", CONNECTION_QUEUE));
  if (c->limited) address_limit_silence(c->fd, false);
  c->limited = false;
  int place = (c->first + c->queued++) % CONNECTION_QUEUE;
  c->queue[place].bytes = message;
  c->queue[place].size = size;
  return STATUS_OK;
}

int connection_queued(const Connection *c) { return c->queued; }

/* Writes until all is out or it takes no more. */
static Status write_some(Connection *c) {
  while (c->queued) {
    size_t left = c->queue[c->first].size - c->written;
    ssize_t n = connection_write(c, c->queue[c->first].bytes + c->written, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
    if (n < 0) return fail(c, status_set(STATUS_IO, "cannot send: %s", strerror(errno)));
    c->sent.bytes += (uint64_t)n;
    c->written += (size_t)n;
    if ((size_t)n < left) continue;
    c->sent.messages++;
    c->written = 0;
    c->first = (c->first + 1) % CONNECTION_QUEUE;
    c->queued--;
  }
  return STATUS_OK;
}

void connection_ping(Connection *c, const uint8_t message[WIRE_HEADER]) {
  int unanswered = 0; /* bytes that were sent and that the other end has not taken */
  if (!connection_is_open(c) || c->queued > 0 || (ioctl(c->fd, SIOCOUTQ, &unanswered) == 0 && unanswered > 0)) return;
  if (!c->limited) address_limit_silence(c->fd, true);
  c->limited = true;
  c->queue[c->first].bytes = message;
  c->queue[c->first].size = WIRE_HEADER;
  ssize_t n = connection_write(c, message, WIRE_HEADER);
  c->queued = n < WIRE_HEADER;
  c->written = n > 0 && n < WIRE_HEADER ? (size_t)n : 0;
}

static bool held_back(const Connection *c) { return c->got >= WIRE_HEADER && !c->payload; }

/* Headers and payloads in turn, until nothing more is there, the owner has no room for a payload, or others and the owner have waited for
 * MESSAGES_AT_ONCE. */
static Status read_some(Connection *c) {
  int taken = 0;
  c->more = false;
  while (connection_is_open(c)) {
    if (held_back(c)) { /* the header is complete: the owner is asked for a place */
      Status status = wire_parse(c->head, c->sink.max_payload, &c->header);
      if (status == STATUS_OK) status = wire_check_sender(&c->header, c->sink.from);
      if (status == STATUS_OK) status = c->sink.place(c->sink.context, c, &c->header, &c->payload);
      if (status != STATUS_OK) return fail(c, status);
    }
    if (held_back(c)) return STATUS_OK;
    const bool head = c->got < WIRE_HEADER;
    const size_t wanted = head ? WIRE_HEADER - c->got : WIRE_HEADER + (size_t)c->header.bytes - c->got;
    if (wanted == 0) { /* a whole message */
      uint8_t *payload = c->payload;
      c->payload = NULL;
      c->got = 0;
      c->received.messages++;
      Status status = c->sink.deliver(c->sink.context, c, &c->header, payload);
      if (status != STATUS_OK) return fail(c, status);
      c->more = connection_is_open(c) && ++taken == MESSAGES_AT_ONCE;
      if (c->more) return STATUS_OK;
      continue;
    }
    ssize_t n = connection_read(c, head ? c->head + c->got : c->payload + (c->got - WIRE_HEADER), wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
    if (n < 0) return fail(c, status_set(STATUS_IO, "cannot receive: %s", strerror(errno)));
    c->received.bytes += (uint64_t)n;
    c->heard = clock_now();
    c->got += (size_t)n;
  }
  return STATUS_OK;
}

/* The only place where a thread waits for connections. waiting [count + 1] tells what happened; *ready: to how many. */
static Status wait_for_events(Connection *const *connections, int count, int also, double seconds, struct pollfd *waiting, int *ready) {
  if (count > MAX_CONNECTIONS) return status_set(STATUS_BAD_VALUE, "%d connections, at most %d are possible", count, MAX_CONNECTIONS);
  for (int i = 0; i < count; i++) {
    const Connection *c = connections[i];
    bool open = c && connection_is_open(c);
    waiting[i] = (struct pollfd){.fd = open ? c->fd : -1};
    if (!open) continue;
    if (c->more) seconds = 0;              /* TLS may have read them already: no event would tell */
    bool messages = c->sink.place != NULL; /* else it waits for what its beginning waits for */
    waiting[i].events = messages ? connection_events(c, !held_back(c), c->queued > 0) : connection_events(c, true, false);
  }
  waiting[count] = (struct pollfd){.fd = also, .events = POLLIN};
  *ready = poll(waiting, (nfds_t)count + 1, seconds <= 0 ? 0 : (int)ceil(fmin(seconds, 3600) * 1000));
  if (*ready < 0 && errno != EINTR) return status_set(STATUS_IO, "cannot wait for messages: %s", strerror(errno));
  return STATUS_OK;
}

Status connections_wait(Connection *const *connections, int count, int also, double seconds) {
  struct pollfd waiting[MAX_CONNECTIONS + 1];
  int ready;
  return wait_for_events(connections, count, also, seconds, waiting, &ready);
}

Status connections_step(Connection *const *connections, int count, double seconds) {
  struct pollfd waiting[MAX_CONNECTIONS + 1];
  bool moved = false;
  int ready;
  for (int i = 0; i < count; i++) {
    Connection *c = connections[i];
    if (!c || !connection_is_open(c)) continue;
    bool inside = c->tls && c->tls->done && SSL_has_pending(c->tls->ssl); /* bytes of which no event will tell */
    if (!held_back(c) && !inside && !c->more) continue;
    uint64_t before = c->received.bytes + c->received.messages;
    TRY(read_some(c));
    moved |= c->received.bytes + c->received.messages != before;
  }
  TRY(wait_for_events(connections, count, -1, moved ? 0 : seconds, waiting, &ready));
  for (int i = 0; i < count && ready > 0; i++) {
    Connection *c = connections[i];
    const short events = waiting[i].revents;
    if (!events || !connection_is_open(c)) continue;
    if (events & POLLNVAL) return fail(c, status_set(STATUS_IO, "its socket is not open"));
    /* A peer that hung up takes nothing any more, but may have left messages: all of them are read first. In TLS either direction can be
     * what the other one waited for. */
    if (c->tls || (events & (POLLIN | POLLHUP | POLLERR))) TRY(read_some(c));
    if (connection_is_open(c) && !c->more && c->queued && (c->tls || (events & (POLLOUT | POLLERR)))) TRY(write_some(c));
    if ((events & POLLHUP) && held_back(c)) return fail(c, status_set(STATUS_PEER, "closed the connection"));
  }
  return STATUS_OK;
}

Status connection_await_room(Connection *c) {
  while (c->queued > CONNECTION_QUEUE / 2) {
    TRY(connections_step(&c, 1, 1));
    bool silent = c->idle_timeout > 0 && clock_now() - c->heard > c->idle_timeout;
    if (silent) return status_set(STATUS_TIMEOUT, "the leader takes no tokens and gives no sign of life");
  }
  return STATUS_OK;
}

/* ---- silence */

static const double late_look = 1; /* seconds by which a look may be late before it counts */

void connection_idle_start(IdleTimeout *idle_timeout, double max, uint64_t moved, double now) {
  *idle_timeout = (IdleTimeout){.max = max, .heard = now, .looked = now, .moved = moved};
}

double connection_idle_late(const IdleTimeout *idle_timeout, double now) {
  const double late = now - idle_timeout->looked - connection_idle_slice(idle_timeout);
  return late > late_look ? late : 0;
}

bool connection_idle_ends(IdleTimeout *idle_timeout, uint64_t moved, double now) {
  idle_timeout->heard += connection_idle_late(idle_timeout, now);
  if (moved != idle_timeout->moved) idle_timeout->heard = now;
  idle_timeout->moved = moved;
  idle_timeout->looked = now;
  return now - idle_timeout->heard > idle_timeout->max;
}
