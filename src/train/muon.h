/* Muon (Jordan et al., 2024): the step of a hidden matrix is its momentum with all singular values near 1, so that directions with small
 * gradients are learnt as fast as those with large ones. Scaled to the size of AdamW's steps (Liu et al., 2025, "Muon is scalable for LLM
 * training"), so that rate and weight decay mean the same for both. */
#ifndef TRAIN_MUON_H
#define TRAIN_MUON_H
#include "autograd/param.h"

/* The matrices that Muon moves: those of blocks that learn as a whole. Tables, heads, norms, biases and adapters stay with AdamW. */
bool muon_moves(const Param *param);

/* Bytes of the scratch that muon_direction needs for every matrix of the set. */
size_t muon_scratch_bytes(const ParamSet *set);

/* One step's momentum and direction of a matrix:
 *   m = 0.95 m + 0.05 scale g;  u = 0.95 m + 0.05 scale g (Nesterov);  direction = 0.2 sqrt(max(rows, columns)) orthogonal(u)
 * where orthogonal(u) is five Newton-Schulz iterations from u / |u|_F. m and direction [rows, columns] like the gradient; the products run
 * over the pool, so that the last bits depend on its size. A gradient of zeros gives the direction 0. */
void muon_direction(const Param *param, real scale, real *m, real *direction, real *scratch);

#endif
