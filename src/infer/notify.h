/* What a service tells systemd about itself (the protocol of sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names; nothing
 * where that is not set. */
#ifndef INFER_NOTIFY_H
#define INFER_NOTIFY_H
#include <stdbool.h>

/* "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=..." (a line for people), or several lines of these. */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));

double notify_interval(void); /* seconds between two WATCHDOG=1; 0: none are wanted */

/* No WATCHDOG=1 will come for up to an hour, or they come again from now on. */
void notify_busy(bool busy);

#endif
