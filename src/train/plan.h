/* --dry-run: what a run would take, without running it. The step is planned on the tape (every array allocated, every product counted,
 * nothing computed), so memory and FLOPs are exact. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H
#include "nn/model.h"
#include "train/session.h"

/* What a node of a cluster takes to run a language model on its longest sequence: for --dry-run. Counted is the last node, with an even
 * share: it hears all others, and it makes the new tokens. Leaves out the sockets' buffers, which hold codes alone. */

typedef struct PlanNode {
  int64_t tokens;           /* N of the longest sequence */
  double weights;           /* bytes in 16 bits (norms and biases in 32), once for all processes of a machine */
  double codebooks;         /* L C K d 2, the paper's M_codebook: in 16 bits, as are the weights */
  double cache;             /* keys and values: own tokens in full, 16 bits, those of the others as codes (kv_cache_predict) */
  double work;              /* the tape of a prompt of N tokens: from ids to the logits of the last */
  double together;          /* weights, codebooks, cache and work */
  double cache_full;        /* all tokens in full, 16 bits */
  double paper, paper_full; /* the paper's M_KV^ASTRA, codes in whole bytes, and M_KV^orig: numbers of 16 bits */
} PlanNode;

/* The model as nodes load it, adapters folded in. It gets no memory. A plain one, or one for one device, has no codes: both caches are
 * full. */
Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node);

typedef struct Plan {
  double parameters, trainable;                                                        /* numbers, and those of them that learn */
  double weights, gradients, moments, average, codebooks, activations, data, selftest; /* bytes: the first four of what learns */
  double evaluation;                                      /* bytes of its largest forward pass, whose place is that of `activations` */
  double selftest_mapped;                                 /* bytes of the exported weights, which the self-test reads in place */
  double selftest_activations;                            /* bytes of its forward pass, whose place is that of `activations` */
  double frozen;                                          /* bytes of what does not learn, in a file of 16 bits */
  double kmeans_samples, kmeans_work, kmeans_activations; /* bytes, before the first step; 0 where codebooks come from a file */
  double forward_flops, step_flops;                       /* of one batch's products */
  double kmeans_flops;                                    /* of the K-means initialisation, with all its iterations */
} Plan;

Status plan_make(Session *session, Plan *plan);

/* Resident memory of the two parts of a run, which do not overlap: its peak is the larger one (0: no K-means), and that of the program. */
double plan_training_bytes(const Plan *plan);
double plan_kmeans_bytes(const Plan *plan);
double plan_program_bytes(const Session *session); /* code, libraries, threads with their buffers, and what the data's files say */
double plan_total_bytes(const Session *session, const Plan *plan); /* that peak */

/* Makes the run fit into options.memory: the smallest number of blocks is computed twice (session_recompute) that brings plan_total_bytes
 * under it. BAD_USAGE, saying what would be needed, when no number does. Without such an option nothing is done. */
Status plan_fit(Session *session);

/* NO_MEMORY, saying how much is needed and what there is, when a step would not fit into this machine's free memory. K-means looks for
 * itself (codebooks_fit). */
Status plan_check(Session *session);

/* What --dry-run says: memory by purpose, products, an estimate of the time, bits per token, a node's memory. */

/* Prints the plan (plan.h), bits per token and compression, what a node of a language model takes, and shows the first batch: images as a
 * sheet in options.out/first_batch.png. rate: FLOP/s that large products reach on this machine, from which times are estimated. The session
 * may be one that was opened for SESSION_PLAN. */
Status plan_print(Session *session, double rate, bool json);

#endif
