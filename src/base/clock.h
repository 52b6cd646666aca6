/* Monotonic time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_now(void); /* seconds since an arbitrary start */

#endif
