/* SETUP: what a leader tells a worker about the cluster before the first request of an epoch (docs/FORMATS.md). Every length on the wire
 * follows from it and from the worker's own model; what does not fit that model is refused. */
#ifndef INFER_SETUP_MESSAGE_H
#define INFER_SETUP_MESSAGE_H
#include "infer/cluster/address.h"
#include "infer/cluster/fingerprint.h"
#include "infer/transport/netem.h"
#include "infer/transport/packet.h"
#include "infer/transport/policy.h"
#include "infer/wire.h"
#include "nn/strategy.h"

typedef enum TransportKind { TRANSPORT_TCP, TRANSPORT_UDP, TRANSPORT_COUNT } TransportKind;
/* auto: where the checkpoint's frequencies promise enough (setup_message_codes_pay); on: wherever it makes a packet shorter; frequencies
 * are required. */
typedef enum EntropyChoice { ENTROPY_OFF, ENTROPY_AUTO, ENTROPY_ON, ENTROPY_COUNT } EntropyChoice;

/* Whether codes are entropy-coded; coded_share: as of WeightsRate. */
bool setup_message_codes_pay(EntropyChoice choice, double coded_share);

typedef struct SetupDevice {
  bool reachable;  /* it listens at `address`; otherwise it dials all others (the leader's own device) */
  Address address; /* a number, not a name, or a path of fewer than SETUP_PATH bytes */
  int64_t tokens;  /* of an image */
  double weight;   /* of a text's tokens */
} SetupDevice;

typedef struct ClusterSetup {
  uint16_t epoch; /* from 1, incremented with each SETUP of a session */
  int nodes, self;
  Strategy strategy;
  TransportKind transport;
  Reliability reliability; /* its timeout is that of the cluster */
  int parts, retained;     /* parts of a block; blocks that bp-* retains */
  ClassToken class_token;
  EntropyChoice entropy;
  bool keep_codes;
  bool mask;                     /* continue without a lost device, its tokens masked; otherwise that is a failure */
  int64_t batch_max, tokens_max; /* tokens_max: of the longest text; 0 for images */
  int rate;                      /* number of the bit rate whose codes are sent (config_rates); 0 of a plain model */
  int sequences;                 /* that a device decodes at the same time; 0: requests of sequences are not served */
  uint32_t mtu;                  /* 0: ask the system */
  LinkOptions links;             /* trace.points are owned */
  bool shaped;                   /* simulate `links` instead of the real network */
  Fingerprints fingerprints;
  SetupDevice device[WIRE_NODES]; /* [nodes] */
  int64_t tokens;                 /* T of an image; 0 for texts */
  int32_t *order;                 /* [tokens], owned: content tokens sorted by node */
} ClusterSetup;

enum { SETUP_HEAD = 144, SETUP_DEVICE = 128, SETUP_POINT = 16, SETUP_PATH = 96, SETUP_LINK = 16, SETUP_SESSION = 16, SETUP_AGREED = 44 };
enum { SETUP_SEQUENCES = 1024 /* most of a device */ };
/* The maximum length for a model. */
size_t setup_message_max(const ModelConfig *config);

size_t setup_message_bytes(const ClusterSetup *setup);
/* BAD_VALUE: the address of a device is a name, or its path is too long. */
Status setup_message_pack(const ClusterSetup *setup, uint8_t *bytes);

/* What two connected devices have in common, for deriving keys: the leader's session, epoch, protocol version, fingerprints. */
void setup_message_agreed(const ClusterSetup *setup, const uint8_t session[SETUP_SESSION], uint8_t agreed[SETUP_AGREED]);

/* Hostile bytes: BAD_VALUE names the field that is out of range, or does not fit the model or other fields. Release *setup also after a
 * failure. */
Status setup_message_parse(const uint8_t *bytes, size_t size, const Weights *weights, ClusterSetup *setup);
void setup_message_release(ClusterSetup *setup);

#endif
