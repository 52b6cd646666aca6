/* Who may use the service, and how often: keys of a file, and a number of requests a minute for each of them (or for each address where
 * there are no keys). Any thread may call. */
#ifndef SERVE_HTTP_ACCESS_H
#define SERVE_HTTP_ACCESS_H
#include "base/status.h"
#include <stdbool.h>

typedef struct HttpAccess HttpAccess;

enum { HTTP_KEY_MIN = 8, HTTP_KEY_MAX = 256, HTTP_KEYS_MAX = 4096 };

/* key_file: a key a line, of HTTP_KEY_MIN to HTTP_KEY_MAX visible ASCII characters; empty lines and those that begin with # are skipped;
 * NULL: everybody may. per_minute: requests of one key or address, which may come all at once; 0: any number. BAD_FILE names the line. */
Status http_access_new(HttpAccess **access, const char *key_file, double per_minute);
void http_access_free(HttpAccess *access); /* accepts NULL */

/* What a client sends: the first key of such a file, fresh, as it stands there (another service's may be of any form). */
Status http_access_first_key(const char *path, char **key);

/* The number of the key in "Bearer KEY", from 1; 0: none is needed; -1: none, or another one (authorization may be NULL). Takes the same
 * time for each key of the same length. */
int http_access_find(const HttpAccess *access, const char *authorization);

/* One more request of `who`, a key or an address, at `now` (clock_now); the addresses of an IPv6 network of 64 bits count as one. 0: it may
 * go on; else the seconds after which it may. */
double http_access_take(HttpAccess *access, const char *who, double now);

#endif
