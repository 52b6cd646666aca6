/* Monotonic time, and the processor's. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_now(void);    /* seconds since an arbitrary start */
double clock_thread(void); /* seconds that the calling thread has had a processor */

#endif
