/* The session of a process that is a device of one run alone and was started together with all others (an MPI job): it waits for the leader
 * to call, and serves it in this very process. Whoever calls without the key is turned away. */
#ifndef INFER_JOB_SESSION_H
#define INFER_JOB_SESSION_H
#include "infer/control/device_session.h"

typedef struct JobSession {
  SessionPlace place; /* its control channel comes from the call */
  const int *sockets; /* [socket_count] that listen */
  int socket_count;
  bool (*is_over)(void *context); /* the leader will not call any more; asked some times a second */
  void *context;
} JobSession;

/* Returns when the leader is gone, or will not come. */
void job_session_run(JobSession *job);

#endif
