/* Addresses of devices: "HOST:PORT" with a name or an IPv4 address, "[V6]:PORT", "unix:PATH", "PORT" alone (127.0.0.1), or "local": a UNIX
 * socket in a folder that only this user can enter. All sockets are stream sockets, close-on-exec and non-blocking. */
#ifndef INFER_ADDRESS_H
#define INFER_ADDRESS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_NAME = 256, ADDRESS_TEXT = ADDRESS_NAME + 16, ADDRESS_SOCKETS = 4 };

typedef struct Address {
  bool on_disk;            /* a UNIX socket: name is its path */
  char name[ADDRESS_NAME]; /* host name, or a number without brackets */
  bool own_folder;         /* "local": the folder is made to listen there, and must be this user's alone */
  uint16_t port;           /* 0, to listen: any that is free */
} Address;

/* BAD_USAGE: the message says what is wrong and what is accepted. */
Status address_parse(const char *text, Address *address);

/* The form that address_parse accepts. Returns text. */
const char *address_text(const Address *address, char text[ADDRESS_TEXT]);

/* Whether only this machine can reach it: a UNIX socket, or a name that resolves to loopback addresses only. */
bool address_is_local(const Address *address);

/* The same of one number: 127.0.0.0/8 or ::1. */
bool address_number_is_local(const struct sockaddr *number);

/* Listens on every address that a name resolves to (at most ADDRESS_SOCKETS), all on one port. A stale socket at a path is replaced; the
 * new one has mode 0600. NOT_FOUND: the name does not resolve; IO names the address and the reason. */
Status address_listen(const Address *address, int sockets[ADDRESS_SOCKETS], int *count);

/* Removes the path, after which another program may listen there; to be called while a socket is still open: a path whose socket refuses
 * calls may be another's by then. */
void address_remove(const Address *address);

/* Removes the path and closes the sockets. */
void address_close(const Address *address, int sockets[ADDRESS_SOCKETS], int count);

/* With `limited` a TCP connection fails when sent data stays unacknowledged for 20 s. Keepalive does not run while data is in flight, and
 * the system by itself would retry for a quarter of an hour. Not for a peer that may compute for long without reading. */
void address_limit_silence(int socket, bool limited);

uint16_t address_port(int socket); /* of a listening socket; 0 for a UNIX socket */

/* All addresses that a name resolves to, as numbers; a number or a path stays as it is. NOT_FOUND: the name does not resolve. May wait for
 * a name server. */
Status address_numbers(const Address *address, Address numbers[ADDRESS_SOCKETS], int *count);

/* The same on a thread of its own, for those who must not wait. NO_MEMORY; IO: the thread does not start. After either *search is NULL. */
typedef struct AddressSearch AddressSearch;
Status address_search(AddressSearch **search, const Address *address);
/* Whether it has ended. Then *status is what address_numbers says, with its message, and *search is freed and NULL. */
bool address_search_ended(AddressSearch **search, Address numbers[ADDRESS_SOCKETS], int *count, Status *status);
void address_search_leave(AddressSearch **search); /* it ends by itself; *search NULL: there is none */

/* Starts a non-blocking connect to a number or a path. PEER: connection refused; IO. */
Status address_call(const Address *address, int *socket);
/* *done: it is over, connected or not; the socket stays the caller's. Fails as address_call does. */
Status address_called(const Address *address, int socket, bool *done);

/* The other end of a connection to `address`: a number in place of a name, an absolute path in place of a relative one. */
Status address_of_peer(int socket, const Address *address, Address *reached);

/* The other end of an accepted connection, for messages: an address, or "pid N" for a UNIX socket. Returns text. */
const char *address_caller(int socket, char text[ADDRESS_TEXT]);

/* Gives a link-local address the scope (this machine's interface) of the connection `socket`, if that has one; other addresses stay. */
void address_on_link(Address *address, int socket);

#endif
