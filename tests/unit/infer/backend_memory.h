/* A backend between transports of one process, whose packets suffer what the test says: kept, lost, sent twice, or overtaken by the next
 * one. Unordered and unreliable unless told otherwise. */
#ifndef TESTS_BACKEND_MEMORY_H
#define TESTS_BACKEND_MEMORY_H
#include "base/clock.h"
#include "infer/transport/backend.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MEMORY_NODES = 4, MEMORY_BYTES = 256, MEMORY_QUEUE = 4096 };

typedef enum MemoryFate { MEMORY_KEEP, MEMORY_LOSE, MEMORY_TWICE, MEMORY_OVERTAKEN } MemoryFate;

/* number: of the packets from this node to that one, from 0 on. */
typedef MemoryFate MemoryDecide(void *context, int from, int to, const uint8_t *packet, size_t bytes, uint64_t number);

typedef struct MemoryQueue {
  uint8_t bytes[MEMORY_QUEUE][MEMORY_BYTES];
  size_t size[MEMORY_QUEUE];
  int first, count;
  uint8_t kept[MEMORY_BYTES]; /* overtaken */
  size_t kept_size;
  uint64_t number;
} MemoryQueue;

typedef struct MemoryWire {
  pthread_mutex_t lock;
  MemoryQueue queue[MEMORY_NODES][MEMORY_NODES]; /* [to][from] */
  int event[MEMORY_NODES];
  MemoryDecide *decide;
  void *context;
  size_t max_packet;
  bool closed[MEMORY_NODES];
  useconds_t stall[MEMORY_NODES]; /* before the next look: as if the process had no processor for so long */
} MemoryWire;

typedef struct MemoryBackend {
  Backend backend; /* first */
  MemoryWire *wire;
  int self;
} MemoryBackend;

/* What TransportThreadSetup.open_context points to. */
typedef struct MemoryPlace {
  MemoryWire *wire;
  int self;
} MemoryPlace;

static inline MemoryWire *memory_wire_new(MemoryDecide *decide, void *context, size_t max_packet) {
  MemoryWire *wire = calloc(1, sizeof *wire);
  pthread_mutex_init(&wire->lock, NULL);
  for (int i = 0; i < MEMORY_NODES; i++) wire->event[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  wire->decide = decide;
  wire->context = context;
  wire->max_packet = max_packet;
  return wire;
}

static inline void memory_wire_free(MemoryWire *wire) {
  for (int i = 0; i < MEMORY_NODES; i++) close(wire->event[i]);
  pthread_mutex_destroy(&wire->lock);
  free(wire);
}

/* Into a full queue as into a socket's full buffer: the packet is lost. */
static inline void memory_push(MemoryQueue *queue, const uint8_t *packet, size_t bytes) {
  if (bytes > MEMORY_BYTES) abort();
  if (queue->count == MEMORY_QUEUE) return;
  int at = (queue->first + queue->count++) % MEMORY_QUEUE;
  memcpy(queue->bytes[at], packet, bytes);
  queue->size[at] = bytes;
}

static inline Status memory_send(Backend *self, int peer, const uint8_t *packet, size_t bytes, bool *taken) {
  MemoryBackend *me = (MemoryBackend *)self;
  MemoryWire *wire = me->wire;
  pthread_mutex_lock(&wire->lock);
  MemoryQueue *queue = &wire->queue[peer][me->self];
  MemoryFate fate = wire->decide ? wire->decide(wire->context, me->self, peer, packet, bytes, queue->number++) : MEMORY_KEEP;
  if (fate == MEMORY_OVERTAKEN && !queue->kept_size) {
    memcpy(queue->kept, packet, bytes);
    queue->kept_size = bytes;
  } else if (fate != MEMORY_LOSE) {
    memory_push(queue, packet, bytes);
    if (fate == MEMORY_TWICE) memory_push(queue, packet, bytes);
    if (queue->kept_size) memory_push(queue, queue->kept, queue->kept_size);
    queue->kept_size = 0;
  }
  (void)!write(wire->event[peer], &(uint64_t){1}, sizeof(uint64_t));
  pthread_mutex_unlock(&wire->lock);
  *taken = true;
  return STATUS_OK;
}

static inline bool memory_pop(MemoryWire *wire, int to, int from, uint8_t packet[MEMORY_BYTES], size_t *bytes) {
  pthread_mutex_lock(&wire->lock);
  MemoryQueue *queue = &wire->queue[to][from];
  bool there = queue->count > 0;
  if (there) {
    *bytes = queue->size[queue->first];
    memcpy(packet, queue->bytes[queue->first], *bytes);
    queue->first = (queue->first + 1) % MEMORY_QUEUE;
    queue->count--;
  }
  pthread_mutex_unlock(&wire->lock);
  return there;
}

static inline Status memory_receive(Backend *self, BackendTake *take, void *context) {
  MemoryBackend *me = (MemoryBackend *)self;
  uint64_t woken;
  uint8_t packet[MEMORY_BYTES];
  size_t bytes;
  (void)!read(me->wire->event[me->self], &woken, sizeof woken);
  pthread_mutex_lock(&me->wire->lock);
  useconds_t stall = me->wire->stall[me->self];
  me->wire->stall[me->self] = 0;
  pthread_mutex_unlock(&me->wire->lock);
  if (stall) usleep(stall);
  for (int from = 0; from < MEMORY_NODES; from++) {
    bool taken;
    while (memory_pop(me->wire, me->self, from, packet, &bytes)) TRY(take(context, from, packet, bytes, clock_now(), &taken));
  }
  return STATUS_OK;
}

static inline int memory_polls(Backend *self, struct pollfd *polls, int room) {
  MemoryBackend *me = (MemoryBackend *)self;
  (void)room;
  polls[0] = (struct pollfd){.fd = me->wire->event[me->self], .events = POLLIN};
  return 1;
}

static inline bool memory_pending(const Backend *self) {
  (void)self;
  return false;
}

static inline Status memory_peer_status(const Backend *self, int peer, const char **why) {
  MemoryWire *wire = ((const MemoryBackend *)self)->wire;
  *why = "closed the connection";
  pthread_mutex_lock(&wire->lock);
  bool closed = wire->closed[peer];
  pthread_mutex_unlock(&wire->lock);
  return closed ? STATUS_PEER : STATUS_OK;
}

static inline void memory_free(Backend *self) { free(self); }

static inline Status memory_open(void *context, Backend **backend) {
  const MemoryPlace *place = context;
  MemoryBackend *me = calloc(1, sizeof *me);
  if (!me) return status_set(STATUS_NO_MEMORY, "no memory");
  me->wire = place->wire;
  me->self = place->self;
  me->backend = (Backend){.max_packet = place->wire->max_packet,
                          .overhead = 5,
                          .send = memory_send,
                          .receive = memory_receive,
                          .polls = memory_polls,
                          .pending = memory_pending,
                          .peer_status = memory_peer_status,
                          .free = memory_free};
  *backend = &me->backend;
  return STATUS_OK;
}

#endif
