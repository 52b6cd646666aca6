/* See carrier_mpi.h. Messages are copied as they are sent, into places that are free again when MPI says so; a packet for which the courier
 * has no room stays where it was received, and nothing more is taken from its sender. */
#include "infer/wire/carrier_mpi.h"

#ifdef ASTRA_MPI
#include "base/clock.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_OVER = 0, PLACES = 4 /* messages to a node under way */ };

typedef struct MpiPeer {
  uint8_t *out; /* [PLACES][packet_most] */
  MPI_Request request[PLACES];
  uint8_t *in; /* [packet_most] */
  int held;    /* bytes in `in` that nobody has taken yet */
} MpiPeer;

typedef struct Mpi {
  Carrier carrier; /* first */
  int self, nodes, tag;
  MpiPeer *peers; /* [nodes] */
} Mpi;

Status carrier_mpi_possible(void) { return STATUS_OK; }

/* ---- the job ---- */

Status carrier_mpi_join(int *rank, int *ranks) {
  int provided;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return status_set(STATUS_IO, "MPI does not start");
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
  if (provided >= MPI_THREAD_SERIALIZED) return STATUS_OK;
  MPI_Finalize();
  return status_set(STATUS_UNSUPPORTED, "this MPI does not let a thread carry messages (MPI_THREAD_SERIALIZED)");
}

void carrier_mpi_gather(const void *own, void *all, size_t each) {
  MPI_Allgather(own, (int)each, MPI_BYTE, all, (int)each, MPI_BYTE, MPI_COMM_WORLD);
}

void carrier_mpi_spread(void *bytes, size_t count) { MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, MPI_COMM_WORLD); }

bool carrier_mpi_is_over(void) {
  int over;
  MPI_Iprobe(0, TAG_OVER, MPI_COMM_WORLD, &over, MPI_STATUS_IGNORE);
  return over;
}

void carrier_mpi_leave(void) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int d = 1; d < ranks && rank == 0; d++) MPI_Send(NULL, 0, MPI_BYTE, d, TAG_OVER, MPI_COMM_WORLD);
  if (rank > 0) MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_OVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
}

/* ---- the carrier ---- */

static Status mpi_send(Carrier *self, int to, const uint8_t *packet, size_t bytes, bool *taken) {
  Mpi *mpi = (Mpi *)self;
  MpiPeer *peer = &mpi->peers[to];
  *taken = false;
  for (int i = 0; i < PLACES && !*taken; i++) {
    int free_again;
    MPI_Test(&peer->request[i], &free_again, MPI_STATUS_IGNORE);
    if (!free_again) continue;
    uint8_t *out = peer->out + (size_t)i * self->packet_most;
    memcpy(out, packet, bytes);
    MPI_Isend(out, (int)bytes, MPI_BYTE, to, mpi->tag, MPI_COMM_WORLD, &peer->request[i]);
    *taken = true;
  }
  return STATUS_OK;
}

static bool mpi_pending(const Carrier *self) {
  const Mpi *mpi = (const Mpi *)self;
  int done = true;
  for (int d = 0; d < mpi->nodes && done; d++) {
    if (d != mpi->self) MPI_Testall(PLACES, mpi->peers[d].request, &done, MPI_STATUSES_IGNORE);
  }
  return !done;
}

/* The next packet of a node into its place; false: there is none. */
static Status next_packet(Mpi *mpi, int from, bool *any) {
  MpiPeer *peer = &mpi->peers[from];
  MPI_Message message;
  MPI_Status status;
  int there, bytes;
  *any = peer->held > 0;
  if (*any) return STATUS_OK;
  MPI_Improbe(from, mpi->tag, MPI_COMM_WORLD, &there, &message, &status);
  if (!there) return STATUS_OK;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes <= 0 || (size_t)bytes > mpi->carrier.packet_most)
    return status_set(STATUS_BAD_VALUE, "node %d: sent a message of %d bytes; 1 to %zu are possible", from, bytes,
                      mpi->carrier.packet_most);
  MPI_Mrecv(peer->in, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  peer->held = bytes;
  *any = true;
  return STATUS_OK;
}

static Status receive_from(Mpi *mpi, int from, CarrierTake *take, void *context) {
  MpiPeer *peer = &mpi->peers[from];
  for (bool any, taken = true; taken;) {
    TRY(next_packet(mpi, from, &any));
    if (!any) return STATUS_OK;
    TRY(take(context, from, peer->in, (size_t)peer->held, clock_now(), &taken));
    if (taken) peer->held = 0;
  }
  return STATUS_OK;
}

static Status mpi_receive(Carrier *self, CarrierTake *take, void *context) {
  Mpi *mpi = (Mpi *)self;
  for (int d = 0; d < mpi->nodes; d++) {
    if (d != mpi->self) TRY(receive_from(mpi, d, take, context));
  }
  return STATUS_OK;
}

static int mpi_polls(Carrier *self, struct pollfd *polls, int room) {
  (void)self, (void)polls, (void)room;
  return -1;
}

static Status mpi_peer_status(const Carrier *self, int peer, const char **why) {
  (void)self, (void)peer;
  *why = "";
  return STATUS_OK;
}

static void mpi_free(Carrier *self) {
  Mpi *mpi = (Mpi *)self;
  for (int d = 0; mpi->peers && d < mpi->nodes; d++) {
    for (int i = 0; i < PLACES && d != mpi->self; i++) {
      if (mpi->peers[d].request[i] == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&mpi->peers[d].request[i]); /* an epoch that was given up */
      MPI_Wait(&mpi->peers[d].request[i], MPI_STATUS_IGNORE);
    }
    free(mpi->peers[d].out);
    free(mpi->peers[d].in);
  }
  free(mpi->peers);
  free(mpi);
}

static Status allocate(Mpi *mpi) {
  if (!mpi->peers) return status_set(STATUS_NO_MEMORY, "no memory for %d peers", mpi->nodes);
  for (int d = 0; d < mpi->nodes; d++) {
    MpiPeer *peer = &mpi->peers[d];
    for (int i = 0; i < PLACES; i++) peer->request[i] = MPI_REQUEST_NULL;
  }
  for (int d = 0; d < mpi->nodes; d++) {
    MpiPeer *peer = &mpi->peers[d];
    if (d == mpi->self) continue;
    peer->out = malloc(PLACES * mpi->carrier.packet_most);
    peer->in = malloc(mpi->carrier.packet_most);
    if (!peer->out || !peer->in) return status_set(STATUS_NO_MEMORY, "no memory for packets of %d peers", mpi->nodes);
  }
  return STATUS_OK;
}

Status carrier_mpi(Carrier **carrier, int self, int nodes, size_t packet_most, int tag) {
  int rank, ranks;
  *carrier = NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != self || ranks != nodes)
    return status_set(STATUS_BAD_VALUE, "process %d of %d was told to be node %d of %d: an MPI job goes on with all of its processes", rank,
                      ranks, self, nodes);
  Mpi *mpi = calloc(1, sizeof *mpi);
  if (!mpi) return status_set(STATUS_NO_MEMORY, "no memory for messages");
  *mpi = (Mpi){.self = self, .nodes = nodes, .tag = tag, .peers = calloc((size_t)nodes, sizeof(MpiPeer))};
  mpi->carrier = (Carrier){.packet_most = packet_most,
                           .reliable = true,
                           .ordered = true,
                           .send = mpi_send,
                           .receive = mpi_receive,
                           .polls = mpi_polls,
                           .pending = mpi_pending,
                           .peer_status = mpi_peer_status,
                           .free = mpi_free};
  Status status = allocate(mpi);
  if (status == STATUS_OK)
    *carrier = &mpi->carrier;
  else
    mpi_free(&mpi->carrier);
  return status;
}

#else /* nobody calls what follows carrier_mpi_possible, but the program must link */

Status carrier_mpi_possible(void) {
  return status_set(STATUS_UNSUPPORTED, "this program was built without MPI: install Open MPI with its headers (Debian: libopenmpi-dev "
                                        "openmpi-bin), and build it again with `make clean all`");
}
Status carrier_mpi_join(int *rank, int *ranks) {
  *rank = *ranks = 0;
  return carrier_mpi_possible();
}
void carrier_mpi_gather(const void *own, void *all, size_t each) { (void)own, (void)all, (void)each; }
void carrier_mpi_spread(void *bytes, size_t count) { (void)bytes, (void)count; }
bool carrier_mpi_is_over(void) { return true; }
void carrier_mpi_leave(void) {}
Status carrier_mpi(Carrier **carrier, int self, int nodes, size_t packet_most, int tag) {
  (void)self, (void)nodes, (void)packet_most, (void)tag;
  *carrier = NULL;
  return carrier_mpi_possible();
}

#endif
