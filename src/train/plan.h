/* --dry-run and --memory: what a run would take, without running it. The step is planned on the tape (every array allocated, every product
 * counted, nothing computed), so memory and FLOPs are exact. The session may be one that was opened for SESSION_PLAN. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H
#include "train/session.h"

typedef struct TrainPlan {
  double parameters, trainable;                                                        /* numbers, and those of them that learn */
  double weights, gradients, moments, average, codebooks, activations, data, selftest; /* bytes: the first four of what learns */
  double evaluation;                                      /* bytes of its largest forward pass, whose place is that of `activations` */
  double selftest_mapped;                                 /* bytes of the exported weights, which the self-test reads in place */
  double selftest_activations;                            /* bytes of its forward pass, whose place is that of `activations` */
  double frozen;                                          /* bytes of what does not learn, in a file of 16 bits */
  double teacher;                                         /* bytes of a teacher's weights, and in bf16 of their packed copies */
  double kmeans_samples, kmeans_work, kmeans_activations; /* bytes, before the first step; 0 where codebooks come from a file */
  double forward_flops, step_flops;                       /* of one batch's products */
  double kmeans_flops;                                    /* of the K-means initialisation, with all its iterations */
} TrainPlan;

/* Of the run as it is set up, data and model included. The session's step is as it was; who reads on from the data seeks first. Errors: of
 * the model's operations and of memory, NO_MEMORY. */
Status plan_make(Session *session, TrainPlan *plan);

/* Bytes of parts that are not in memory at the same time, or of all that are. */
double plan_program_bytes(const Session *session);                      /* code, libraries, threads with their buffers, the data's files */
double plan_selftest_bytes(const TrainPlan *plan);                      /* part of training's, in turns with the activations of a step */
double plan_training_bytes(const TrainPlan *plan);                      /* without the program */
double plan_kmeans_bytes(const TrainPlan *plan);                        /* likewise; 0: there is none */
double plan_total_bytes(const Session *session, const TrainPlan *plan); /* the peak: of training and K-means the larger, and the program */

/* Seconds; 0 where a part does not occur or is not known. */
typedef struct PlanTime {
  double rate; /* FLOP/s of large products on this machine */
  double step, kmeans, evaluation, run;
  int64_t evaluations;
} PlanTime;

/* An estimate. rate: FLOP/s that large products reach on this machine. */
PlanTime plan_time(const Session *session, const TrainPlan *plan, double rate);

/* What a node of a cluster takes to run a language model on its longest sequence. Counted is the last node, with an even share: it receives
 * from all others, and it generates the new tokens. Leaves out the sockets' buffers, which hold codes alone, and tables of keys and values,
 * which a node makes of what its --table-memory allows (kv_tables.h). */
typedef struct PlanNode {
  int64_t tokens;           /* N of the longest sequence */
  double weights;           /* bytes in 16 bits (norms and biases in 32), once for all processes of a machine */
  double codebooks;         /* L C K d 2 for each bit rate, the paper's M_codebook: in 16 bits, as are the weights */
  double cache;             /* keys and values: own tokens in 16 bits, others as codes or, with predictions, likewise (kv_cache_predict) */
  double work;              /* the tape of a prompt of N tokens: from ids to the logits of the last */
  double together;          /* weights, codebooks, cache and work */
  double cache_full;        /* all tokens in full, 16 bits */
  double paper, paper_full; /* the paper's M_KV^ASTRA, codes in whole bytes, and M_KV^orig: numbers of 16 bits */
} PlanNode;

/* Of config->astra.devices nodes and `tokens` tokens; of a plain model one node. NO_MEMORY, or the errors of its operations. */
Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node);

/* Makes the run fit into options.memory: the smallest number of blocks is computed twice (session_recompute) that brings its peak
 * under it. BAD_USAGE, saying what would be needed, when no number does. Without such an option nothing is done. */
Status plan_fit(Session *session);

/* NO_MEMORY, saying how much is needed and what there is, when a step would not fit into this machine's free memory. K-means looks for
 * itself (codebooks_fit). */
Status plan_check(Session *session);

#endif
