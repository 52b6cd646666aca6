/* OpenSSL's side of a connection. Leaves out: sockets' life and waiting (connection.c), where keys come from (key_file.c).
 *
 * Bytes go through a BIO of our own: OpenSSL's writes without MSG_NOSIGNAL, and SIGPIPE is not this library's to ignore. */
#include "infer/cluster/tls_psk.h"
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char identity_of_key[] = "astra-2", identity_of_none[] = "astra-open";
static const unsigned char suite[2] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */

struct TlsPsk {
  SSL *ssl;
  int fd;
  KeyFile key;
  bool answers, done;
  bool other_identity;           /* the one who dialled has a key and this side has none, or the other way round */
  bool read_writes, write_reads; /* the last try could not go on until the other direction is free */
  short handshake;               /* what the handshake waits for */
};

/* Made once for all connections of the process, of which a listener has very many: OpenSSL has room for some hundred kinds of BIO. */
static struct {
  SSL_CTX *context[2]; /* of those who dial and of those who answer */
  BIO_METHOD *method;
} shared;
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;

/* ---- bytes to and from the socket */

static int bio_write(BIO *bio, const char *from, size_t bytes, size_t *written) {
  const TlsPsk *tls = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  ssize_t n = send(tls->fd, from, bytes, MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
  *written = n > 0 ? (size_t)n : 0;
  return n > 0;
}

static int bio_read(BIO *bio, char *to, size_t room, size_t *got) {
  const TlsPsk *tls = BIO_get_data(bio);
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

static Status make_bio(TlsPsk *tls) {
  BIO *bio = BIO_new(shared.method);
  if (!bio) return status_set(STATUS_NO_MEMORY, "no memory for a secured connection");
  BIO_set_data(bio, tls);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl, bio, bio);
  return STATUS_OK;
}

/* ---- the key */

static const char *identity_of(const TlsPsk *tls) { return tls->key.open ? identity_of_none : identity_of_key; }

/* The key as OpenSSL takes it: a session to be resumed. It takes each one over. */
static SSL_SESSION *session_of(TlsPsk *tls, SSL *ssl) {
  const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
  SSL_SESSION *session = SSL_SESSION_new();
  bool set = cipher && session && SSL_SESSION_set1_master_key(session, tls->key.bytes, KEY_FILE_BYTES) &&
             SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  if (set) return session;
  SSL_SESSION_free(session);
  return NULL;
}

/* Of the one who dials. digest: of the suite that was chosen, once it has been: a key goes with one. */
static int offer_key(SSL *ssl, const EVP_MD *digest, const unsigned char **identity, size_t *bytes, SSL_SESSION **session) {
  TlsPsk *tls = SSL_get_app_data(ssl);
  *session = NULL;
  if (digest && !EVP_MD_is_a(digest, "SHA384")) return 1;
  *identity = (const unsigned char *)identity_of(tls);
  *bytes = strlen(identity_of(tls));
  return (*session = session_of(tls, ssl)) != NULL;
}

/* Of the one who answers. Without a session OpenSSL looks for a certificate, of which there is none. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t bytes, SSL_SESSION **session) {
  TlsPsk *tls = SSL_get_app_data(ssl);
  const char *own = identity_of(tls);
  *session = NULL;
  tls->other_identity = bytes != strlen(own) || memcmp(identity, own, bytes) != 0;
  if (tls->other_identity) return 1;
  return (*session = session_of(tls, ssl)) != NULL;
}

/* ---- beginning and end */

/* SSL_OP_ALLOW_NO_DHE_KEX is never set: the ephemeral exchange is certain. A client would go on without the key with one who shows a
 * certificate: SSL_VERIFY_PEER refuses all of them, and tls_psk_step asks once more. */
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

static Status start(TlsPsk *tls) {
  pthread_once(&shared_once, make_shared);
  SSL_CTX *context = shared.context[tls->answers];
  bool set = context && shared.method && (tls->ssl = SSL_new(context)) && SSL_set_app_data(tls->ssl, tls);
  if (!set) return status_set(STATUS_NO_MEMORY, "OpenSSL cannot start TLS 1.3 with a pre-shared key");
  TRY(make_bio(tls));
  if (tls->answers)
    SSL_set_accept_state(tls->ssl);
  else
    SSL_set_connect_state(tls->ssl);
  return STATUS_OK;
}

Status tls_psk_new(TlsPsk **out, int fd, bool answers, const KeyFile *key) {
  TlsPsk *tls = *out = calloc(1, sizeof *tls);
  if (!tls) return status_set(STATUS_NO_MEMORY, "no memory for a secured connection");
  *tls = (TlsPsk){.fd = fd, .key = key ? *key : key_file_open(), .answers = answers, .handshake = answers ? POLLIN : POLLOUT};
  Status status = start(tls);
  if (status == STATUS_OK) return STATUS_OK;
  tls_psk_free(tls);
  *out = NULL;
  return status;
}

void tls_psk_forget(TlsPsk *tls) {
  if (tls) tls->done = false;
}

void tls_psk_free(TlsPsk *tls) {
  if (!tls) return;
  ERR_clear_error();
  if (tls->done) SSL_shutdown(tls->ssl); /* a full socket or a lost peer: then without */
  ERR_clear_error();
  SSL_free(tls->ssl);
  OPENSSL_cleanse(tls, sizeof *tls);
  free(tls);
}

/* ---- the handshake */

static Status explain(const TlsPsk *tls) {
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

Status tls_psk_step(TlsPsk *tls, bool *done) {
  *done = tls->done;
  if (tls->done) return STATUS_OK;
  ERR_clear_error();
  int result = SSL_do_handshake(tls->ssl);
  int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    tls->handshake = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return STATUS_OK;
  }
  if (result != 1) return explain(tls);
  if (!SSL_session_reused(tls->ssl)) return status_set(STATUS_BAD_VALUE, "the other device did not prove that it has the key");
  *done = tls->done = true;
  return STATUS_OK;
}

/* ---- bytes */

static ssize_t refuse(int code) {
  errno = code;
  return -1;
}

/* What a try that moved nothing means, as errno. 0: the end of the stream. */
static ssize_t failed(TlsPsk *tls, int fault, bool *other_way, int other) {
  int error = SSL_get_error(tls->ssl, 0);
  unsigned long reason = ERR_peek_error();
  *other_way = error == other;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return refuse(EAGAIN);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_SSL && ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return 0;
  if (error == SSL_ERROR_SYSCALL) return refuse(fault ? fault : ECONNRESET);
  return refuse(EPROTO);
}

ssize_t tls_psk_read(TlsPsk *tls, void *to, size_t room) {
  size_t got = 0;
  if (!tls->done) return refuse(ENOTCONN);
  ERR_clear_error();
  errno = 0;
  tls->read_writes = false;
  if (SSL_read_ex(tls->ssl, to, room, &got)) return (ssize_t)got;
  return failed(tls, errno, &tls->read_writes, SSL_ERROR_WANT_WRITE);
}

ssize_t tls_psk_write(TlsPsk *tls, const void *from, size_t bytes) {
  size_t written = 0;
  if (!tls->done) return refuse(ENOTCONN);
  ERR_clear_error();
  errno = 0;
  tls->write_reads = false;
  if (SSL_write_ex(tls->ssl, from, bytes, &written)) return (ssize_t)written;
  ssize_t result = failed(tls, errno, &tls->write_reads, SSL_ERROR_WANT_READ);
  return result == 0 ? refuse(EPIPE) : result;
}

short tls_psk_events(const TlsPsk *tls, bool to_read, bool to_write) {
  if (!tls->done) return tls->handshake;
  short read = tls->read_writes ? POLLOUT : POLLIN, write = tls->write_reads ? POLLIN : POLLOUT;
  return (short)((to_read ? read : 0) | (to_write ? write : 0));
}

bool tls_psk_pending(const TlsPsk *tls) { return tls->done && SSL_has_pending(tls->ssl); }

Status tls_psk_export(TlsPsk *tls, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes) {
  if (!tls->done) return status_set(STATUS_BAD_VALUE, "keys were asked for before the handshake was over");
  if (SSL_export_keying_material(tls->ssl, out, bytes, label, strlen(label), context, context_bytes, 1) == 1) return STATUS_OK;
  return status_set(STATUS_IO, "OpenSSL derives no keys for %s", label);
}
