/* --dry-run: what a run would take, without running it. The step is planned on the tape (every array allocated, every product counted,
 * nothing computed), so memory and FLOPs are exact. Printing is plan_print.h's. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H
#include "train/session.h"

typedef struct Plan {
  double parameters, trainable;                                                        /* numbers, and those of them that learn */
  double weights, gradients, moments, average, codebooks, activations, data, selftest; /* bytes: the first four of what learns */
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
double plan_selftest_bytes(const Plan *plan);      /* of training's, in turns with the activations of a step */
double plan_program_bytes(const Session *session); /* code, libraries, threads with their buffers, and what the data's files say */
double plan_total_bytes(const Session *session, const Plan *plan); /* that peak */

/* Makes the run fit into options.memory: the smallest number of blocks is computed twice (session_recompute) that brings plan_total_bytes
 * under it. BAD_USAGE, saying what would be needed, when no number does. Without such an option nothing is done. */
Status plan_fit(Session *session);

/* NO_MEMORY, saying how much is needed and what there is, when a step would not fit into this machine's free memory. K-means looks for
 * itself (codebooks_fit). */
Status plan_check(Session *session);

#endif
