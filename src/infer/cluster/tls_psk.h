/* TLS 1.3 with an external pre-shared key and an ephemeral exchange (RFC 8446, psk_dhe_ke), through OpenSSL: no certificates, no tickets,
 * no earlier versions, one cipher suite (TLS_AES_256_GCM_SHA384), X25519 or P-256. Whoever does not know the key can neither answer nor
 * dial, and one who learns it later cannot read what was said before.
 *
 * Private to connection.c, whose words it keeps: read and write as recv and send with errno. */
#ifndef INFER_TLS_PSK_H
#define INFER_TLS_PSK_H
#include "infer/cluster/key_file.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct TlsPsk TlsPsk;

/* On a non-blocking socket that stays the caller's. key is copied; NULL: the open one. */
Status tls_psk_new(TlsPsk **tls, int fd, bool answers, const KeyFile *key);
void tls_psk_forget(TlsPsk *tls); /* no goodbye will be said: another process goes on with it */
void tls_psk_free(TlsPsk *tls);   /* accepts NULL; close_notify if it can be sent at once */

Status tls_psk_step(TlsPsk *tls, bool *done);
ssize_t tls_psk_read(TlsPsk *tls, void *to, size_t room);
ssize_t tls_psk_write(TlsPsk *tls, const void *from, size_t bytes);
short tls_psk_events(const TlsPsk *tls, bool to_read, bool to_write);
bool tls_psk_pending(const TlsPsk *tls);
Status tls_psk_export(TlsPsk *tls, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes);

#endif
