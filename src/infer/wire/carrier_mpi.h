/* An MPI job whose processes are the nodes of a cluster, by rank, and packets as MPI messages between them. All of MPI is behind this
 * header; without it at build time everything here is UNSUPPORTED, and says what to install. A process that fails ends the job: MPI knows
 * no other way.
 *
 * The main thread joins and leaves; in between the carrier's thread alone calls MPI, so that calls never overlap. */
#ifndef INFER_CARRIER_MPI_H
#define INFER_CARRIER_MPI_H
#include "infer/wire/carrier.h"

Status carrier_mpi_possible(void); /* whether it was built in */

/* Once for each process, all of them. UNSUPPORTED: this MPI is not made for threads. */
Status carrier_mpi_join(int *rank, int *ranks);
void carrier_mpi_gather(const void *own, void *all, size_t each); /* all [ranks][each]: what each process gave */
void carrier_mpi_spread(void *bytes, size_t count);               /* from rank 0 to all */

/* Rank 0 says that the job is over, for which the others wait; then all leave. */
bool carrier_mpi_is_over(void); /* of another rank: it has been said. Without waiting; before a carrier is open, or after */
void carrier_mpi_leave(void);

/* Packets to and from the other ranks, in order and without loss. tag: of an epoch, 1 or more: a message of another one is never taken for
 * one of this. BAD_VALUE: the nodes are not the job's processes. */
Status carrier_mpi(Carrier **carrier, int self, int nodes, size_t packet_most, int tag);

#endif
