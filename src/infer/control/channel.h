/* A stream of bytes to another process over a connected stream socket, plain (a socket pair, which belongs to these processes alone) or in
 * TLS 1.3 with a pre-shared key (tls_psk.h). Non-blocking always: waiting is the owner's, with poll on channel_fd.
 *
 * The end of a stream is no message: a peer that died and one that cut the wire look the same, so whoever needs to know that all was said
 * lets the peer say so (BYE). One thread per channel. */
#ifndef INFER_CHANNEL_H
#define INFER_CHANNEL_H
#include "infer/control/key_file.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct Channel Channel;

typedef enum ChannelRole { CHANNEL_DIALS, CHANNEL_ANSWERS } ChannelRole;

/* Takes over the descriptor, also when it fails: IO or NO_MEMORY, and *channel is NULL. */
Status channel_plain(Channel **channel, int fd);

/* The same in TLS. key (copied) NULL: the open one (key_file_open). Nothing is sent yet: channel_step or channel_handshake begin. */
Status channel_tls(Channel **channel, int fd, ChannelRole role, const KeyFile *key);

/* Goes on with the handshake as far as that is possible without waiting; *done: it is over, as it is from the start on a plain channel.
 * BAD_VALUE: the other side has another key, or none; PEER: it went away, or speaks something else. The message says which, as far as this
 * side can know. */
Status channel_step(Channel *channel, bool *done);

/* Waits for the handshake to be over, at most so many seconds: TIMEOUT, or as channel_step. */
Status channel_handshake(Channel *channel, double seconds);

/* As recv: bytes read, 0 at the end of the stream, or -1 with errno EAGAIN (nothing there), ECONNRESET (the peer is gone), EPROTO (bytes
 * that were not sealed by the peer), ENOTCONN (the handshake is not over), or what recv says. */
ssize_t channel_read(Channel *channel, void *to, size_t room);

/* As send, without SIGPIPE: bytes taken, perhaps fewer than `bytes`, or -1 with errno EAGAIN, EPIPE or ECONNRESET, EPROTO, ENOTCONN...
 * After EAGAIN the next try begins with the same bytes, perhaps at another address, and has as many at least: they may be sealed already.
 */
ssize_t channel_write(Channel *channel, const void *from, size_t bytes);

/* What to poll for when bytes are wanted, or wait to be written; TLS may need the other direction for either. While the handshake is not
 * over: what it waits for. */
short channel_events(const Channel *channel, bool to_read, bool to_write);
/* Whether what poll found is a reason to try. */
bool channel_may_read(const Channel *channel, short events);
bool channel_may_write(const Channel *channel, short events);
bool channel_pending(const Channel *channel); /* bytes wait inside, of which no poll will tell */

int channel_fd(const Channel *channel);
bool channel_is_secret(const Channel *channel); /* TLS */

/* Key material that both ends of a TLS channel can derive and nobody else (RFC 8446, 7.5), bound to a label and a context: other ones give
 * other bytes. UNSUPPORTED on a plain channel; BAD_VALUE before the handshake is over. */
Status channel_export(Channel *channel, const char *label, const uint8_t *context, size_t context_bytes, uint8_t *out, size_t bytes);

/* After fork, in the process that does not go on with it: closes this copy without a word of goodbye. */
void channel_forget(Channel *channel);

/* Closes the socket, after a word of goodbye if that can be sent at once. Accepts NULL. */
void channel_free(Channel *channel);

#endif
