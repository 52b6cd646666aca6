/* The one pool of compute threads, bound to cores where it has one for each, with a fixed partition of work: for a given thread count every
 * item is always done by the same thread in the same order, so results repeat bit for bit. The caller is thread 0. A call from inside a
 * body runs inline on the calling thread. One caller at a time. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H
#include "base/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { THREADS_MAX = 256 };

/* Starts count - 1 workers; 0 means one thread for each core this process may use, and no more than the cores whose time its control
 * groups allow. BAD_VALUE: more than THREADS_MAX. Call once, before any use; without it everything runs on the caller. */
Status threads_start(int count);
void threads_stop(void);
int threads_usable(void); /* how many that is for 0 */
int threads_count(void);  /* at least 1 */

/* Calls body(context, begin, end, thread) on disjoint ranges that cover [0, items); each begin is a multiple of
 * `grain` and each thread gets at most one range. Ranges are as equal as the grain allows. Returns when all are done. */
typedef void ThreadsBody(void *context, int64_t begin, int64_t end, int thread);
void threads_for(int64_t items, int64_t grain, ThreadsBody *body, void *context);

/* A thread beside the pool, which takes no part in threads_for. All signals are blocked in it: they are the other threads'. Returns 0, or
 * an error number as pthread_create. */
int threads_spawn(pthread_t *thread, void *(*run)(void *context), void *context);

/* A condition for threads_wait. */
void threads_condition_init(pthread_cond_t *condition);

/* Waits for a signal, with the lock held, until clock_now() is `until`, which is finite, at most: false then. Setting the system's date
 * changes nothing, as it would with the clock of other conditions. As of any condition, a wait may end without a signal. */
bool threads_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double until);

#endif
