/* Where a device listens or is found: "HOST:PORT" with a name or an IPv4 address, "[V6]:PORT", "unix:PATH", "PORT" alone, which means this
 * machine (127.0.0.1), or "local": a UNIX socket in a folder of this user's that nobody else can enter. Stream sockets, close-on-exec and
 * non-blocking. */
#ifndef INFER_ADDRESS_H
#define INFER_ADDRESS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { ADDRESS_NAME = 256, ADDRESS_TEXT = ADDRESS_NAME + 16, ADDRESS_SOCKETS = 4 };

typedef struct Address {
  bool on_disk;            /* a UNIX socket: name is its path */
  char name[ADDRESS_NAME]; /* host name, or a number without brackets */
  bool own_folder;         /* "local": the folder is made to listen there, and must be this user's alone */
  uint16_t port;           /* 0, to listen: any that is free */
} Address;

/* BAD_USAGE says what is wrong with it and what is accepted. */
Status address_parse(const char *text, Address *address);

/* In the form that address_parse takes. Returns text. */
const char *address_text(const Address *address, char text[ADDRESS_TEXT]);

/* Only this machine reaches it: a UNIX socket, or a name all of whose numbers are loopback ones. */
bool address_is_local(const Address *address);

/* Listens on all that a name stands for, at most ADDRESS_SOCKETS sockets, with one port. A socket left at a path by a process that is gone
 * is replaced; the new one is its owner's alone. NOT_FOUND: no such name; IO names the address and the reason. */
Status address_listen(const Address *address, int sockets[ADDRESS_SOCKETS], int *count);

/* Closes them, and removes the path. */
void address_close(const Address *address, int sockets[ADDRESS_SOCKETS], int count);

/* A TCP connection fails from here on when what was sent stays without an answer for 20 s. Signs of life are not asked for while
 * something is under way, and the system itself would go on trying for a quarter of an hour. Not while a peer may compute for long, which
 * takes nothing meanwhile. */
void address_limit_silence(int socket, bool limited);

uint16_t address_port(int socket); /* that a listening socket has; 0 for a UNIX socket */

/* What a name stands for, one after another; of a number or a path that alone. NOT_FOUND: no such name. May wait for a name server. */
Status address_numbers(const Address *address, Address numbers[ADDRESS_SOCKETS], int *count);

/* Connects to a number or a path without waiting: *socket is on its way. PEER: nobody listens there; IO. */
Status address_call(const Address *address, int *socket);
Status address_called(const Address *address, int socket, bool *done); /* whether it has come through; the socket stays the caller's */

/* Where a connection to `address` has come out: a number in place of a name, a whole path in place of one from here. */
Status address_of_peer(int socket, const Address *address, Address *reached);

/* Who is at the other end of a connection that was accepted, for people: an address, or "pid N" behind a UNIX socket. Returns text. */
const char *address_caller(int socket, char text[ADDRESS_TEXT]);

/* A link-local number becomes one of the link over which `socket` has come, as this machine calls it, if it has come over one; any other
 * address stays as it is. */
void address_on_link(Address *address, int socket);

#endif
