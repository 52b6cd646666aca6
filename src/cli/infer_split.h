/* --split auto: tokens as the devices are found to be at the start, and what was predicted for them beside what came. */
#ifndef CLI_INFER_SPLIT_H
#define CLI_INFER_SPLIT_H
#include "base/status.h"
#include "infer/cluster/leader.h"
#include "infer/plan/planner.h"
#include "infer/wire.h"
#include <jansson.h>

typedef struct InferSplit {
  bool wanted; /* --split auto */
  bool rates;  /* --groups auto: the bit rate to begin with is chosen */
  bool made;   /* the devices were measured, and there are several */
  bool all;    /* every device gets tokens, also where fewer devices would be faster */
  int asked;   /* devices that were measured, of which some have been left out since; 0: all take part */
  double with; /* seconds that all of them were predicted to take */
  const Weights *weights;
  ClusterSetup *network; /* whose parts are chosen with the tokens where that is wanted */
  Partition *partition;  /* of images; NULL for texts: */
  TokenSplit *split;
  int64_t tokens;      /* of the largest request */
  int64_t samples;     /* of a request; 0: one */
  double table_memory; /* of devices that are all elsewhere, for tables as this one would make; 0: this device has its own */
  bool choose_parts;
  bool all_rows; /* every token is scored, not the last or the class alone */
  bool ahead;    /* the input of a request travels while the one before is computed */
  int nodes;
  DeviceMeasure measured[WIRE_NODES];
  MeasuredSplit result;
} InferSplit;

/* The option's text says auto, or all. */
bool infer_split_wanted(const char *split);

/* Its context is the InferSplit. */
LeaderDivide infer_split_divide;

/* Some of the devices that were measured are faster without the others, by enough to trust it, and may be left out: *used, as bits. Says so
 * on stderr, and notes it for the report. */
bool infer_split_leaves_out(InferSplit *split, const Leader *leader, uint64_t *used);

/* What the devices are, and which tokens they got; then an image's predicted and measured time. Nothing where nothing was measured. */
void infer_split_report(FILE *out, const InferSplit *split, const Leader *leader);

/* The same as an object: fresh; NULL when out of memory. */
json_t *infer_split_json(const InferSplit *split, const Leader *leader);

#endif
