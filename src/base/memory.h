/* What the system says about memory: of the machine, and of this process. Read from Linux's /proc. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

/* Bytes that this process can still get without swapping and within the limits of its control groups; INFINITY where the system does not
 * say. Reads a few files: nothing for a loop. */
double memory_available(void);

typedef struct MemoryUse {
  double resident;  /* bytes of this process in memory: its own, and of files that it has mapped, libraries among them */
  double anonymous; /* of these its own */
} MemoryUse;

MemoryUse memory_used(void); /* zeroes where the system does not say */

/* Bytes of this process that were resident at once at most, since its start or the last reset; 0 where the system does not say. A reset
 * does nothing where the system does not allow it. */
double memory_peak(void);
void memory_peak_reset(void);

/* Free pages of the heap go back to the system: what requests of all sizes leave between blocks that stay would add up. */
void memory_give_back(void);

/* The same, at most every two seconds: for a loop. *last: when it was done, 0 at first. */
void memory_give_back_at_times(double *last);

/* For a process of many threads, at its start: at most two heaps in place of one for each few threads. */
void memory_few_heaps(void);

#endif
