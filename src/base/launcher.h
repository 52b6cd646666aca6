/* What mpirun, srun and their kin tell a process before it starts MPI, so that a program which is not one of a job never does. */
#ifndef BASE_LAUNCHER_H
#define BASE_LAUNCHER_H

int launcher_rank(void);  /* of this process in its job; -1: it was not started as part of one */
int launcher_ranks(void); /* processes of the job; 0: the launcher does not say */

#endif
