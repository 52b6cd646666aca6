/* Monotonic time, and processor time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_now(void);   /* seconds since an arbitrary start */
double clock_spent(void); /* seconds of processor time that the calling thread has used: neighbours on a busy machine do not count */

#endif
