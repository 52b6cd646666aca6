/* Which device holds which token of an image: maps from a grid of tokens to devices, by name. A map is a pure function of its name, the
 * grid and the number of tokens of each device, so every process and machine computes the same one, and codes travel without token numbers.
 * Rows and spans that follow from a map are layout.h's. Decoders have no map: their devices hold contiguous spans of the text, in order.
 *
 *   raster        contiguous spans in reading order
 *   strided       tokens in reading order are dealt to the devices in turn, those with more tokens more often (Sainte-Lague's divisors)
 *   checkerboard  positions ranked by the matrix of ordered dithering (Bayer, 1973); devices hold consecutive ranks: two devices make a
 *                 checkerboard, four a 2 x 2 tiling, and any other counts are dispersed in both dimensions
 *   random:SEED   a permutation that is drawn from SEED once */
#ifndef NN_TOKEN_MAP_H
#define NN_TOKEN_MAP_H
#include "base/rng.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum TokenMapKind { TOKEN_MAP_RASTER, TOKEN_MAP_STRIDED, TOKEN_MAP_CHECKERBOARD, TOKEN_MAP_RANDOM } TokenMapKind;

typedef struct TokenMap {
  TokenMapKind kind;
  uint64_t seed; /* of TOKEN_MAP_RANDOM; else 0 */
} TokenMap;

enum { TOKEN_MAP_DEVICES = 1024, TOKEN_MAP_NAME = 32 };

/* A kind without a seed: for evaluation and for the runner where nothing else is said; also of checkpoints that say nothing (written before
 * there was a choice, and trained with a new permutation for each batch). Measured: docs/results/cifar100.md, "Where tokens live". */
enum { TOKEN_MAP_DEFAULT = TOKEN_MAP_CHECKERBOARD };

/* What messages say is accepted. */
extern const char *const token_map_names;

/* A name as above -> *map; false, and *map as it was, for any other text. */
bool token_map_parse(const char *name, TokenMap *map);
void token_map_name(const TokenMap *map, char name[TOKEN_MAP_NAME]); /* what token_map_parse reads */

/* order [height * width]: all tokens sorted by device, within a device in reading order (token = row * width + column); device d holds
 * counts[d] of them. BAD_VALUE, and order unspecified: no grid of 1 to 2^30 tokens, devices beyond TOKEN_MAP_DEVICES, a count below 1, or
 * counts that do not sum to the tokens. Allocates nothing. */
Status token_map_order(const TokenMap *map, int64_t height, int64_t width, int devices, const int64_t *counts, int32_t *order);

/* The same for a permutation that is drawn from *rng: any token anywhere. counts [devices] sum to `tokens`. */
void token_map_draw(Rng *rng, int64_t tokens, int devices, const int64_t *counts, int32_t *order);

#endif
