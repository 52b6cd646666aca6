/* Which device has which token: the rows of this process's activations, sorted by device.
 *
 *   training emulation (self = -1), 2 devices, distributed class token: rows  [c0, tokens of 0..., c1, tokens of 1...]
 *   one node of a cluster (self = d):                                   rows  [cd, tokens of d...]
 *
 * "Shared" rows are those that are quantised and sent: the content tokens (and, with a single class token, the class token, which then
 * lives on device 0 and is shared as if it were a content token before the others of device 0). The shared sequence is the same on all
 * processes: sorted by device, in each device in row order. */
#ifndef NN_LAYOUT_H
#define NN_LAYOUT_H
#include "autograd/ops/attention.h"
#include "base/rng.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Which device holds which token of an image: named maps from a grid of tokens to devices. A map is a pure function of its name, the grid
 * and the number of tokens per device, so all processes and machines compute the same one, and codes are sent without token numbers.
 * Decoders have no map: their devices hold contiguous spans of the text, in order.
 *
 *   raster        contiguous spans in reading order
 *   strided       tokens in reading order are dealt to the devices in turn, those with more tokens more often (Sainte-Lague's divisors)
 *   checkerboard  positions ranked by the matrix of ordered dithering (Bayer, 1973); devices hold consecutive ranks: two devices make a
 *                 checkerboard, four a 2 x 2 tiling, and any other counts are dispersed in both dimensions
 *   random:SEED   a permutation that is drawn from SEED once */

typedef enum TokenMapKind { TOKEN_MAP_RASTER, TOKEN_MAP_STRIDED, TOKEN_MAP_CHECKERBOARD, TOKEN_MAP_RANDOM } TokenMapKind;

typedef struct TokenMap {
  TokenMapKind kind;
  uint64_t seed; /* of TOKEN_MAP_RANDOM; else 0 */
} TokenMap;

enum { TOKEN_MAP_DEVICES = 1024, TOKEN_MAP_NAME = 32 };

/* A kind without a seed: the default of evaluation and inference, also for checkpoints that name none (written before there was a choice,
 * and trained with a new permutation for each batch). Measured: docs/results/cifar100.md, "Which device holds which token". */
enum { TOKEN_MAP_DEFAULT = TOKEN_MAP_CHECKERBOARD };

/* The accepted names, for messages. */
extern const char *const token_map_names;

/* A name as above -> *map; false, and *map as it was, for any other text. */
bool token_map_parse(const char *name, TokenMap *map);
void token_map_name(const TokenMap *map, char name[TOKEN_MAP_NAME]); /* what token_map_parse reads */

/* order [height * width]: all tokens sorted by device, within a device in reading order (token = row * width + column); device d holds
 * counts[d] of them. BAD_VALUE, and order unspecified: no grid of 1 to 2^30 tokens, devices beyond TOKEN_MAP_DEVICES, a count below 1, or
 * counts that do not sum to the tokens. Allocates nothing. */
Status token_map_order(const TokenMap *map, int64_t height, int64_t width, int devices, const int64_t *counts, int32_t *order);

/* The same for a random permutation drawn from *rng. counts [devices] sum to `tokens`. */
void token_map_draw(Rng *rng, int64_t tokens, int devices, const int64_t *counts, int32_t *order);

typedef enum ClassToken { CLASS_DISTRIBUTED, CLASS_SINGLE, CLASS_NONE } ClassToken;

typedef struct TokenLayout {
  int devices;
  int self;       /* -1: all devices in this process */
  int64_t tokens; /* T, content tokens of the whole sequence */
  ClassToken class_token;
  int64_t rows;           /* S, rows of this process */
  int32_t *row_token;     /* [rows] content token at each row; -1: class token */
  int spans;              /* devices in this process */
  AttentionSpan *span;    /* [spans]; `own` counts in this process's remote rows (see below) */
  int64_t class_rows;     /* class-token replicas in this process */
  int32_t *class_row;     /* [class_rows] */
  int64_t *class_tokens;  /* [class_rows] content tokens of each replica's device */
  int64_t *class_of_span; /* [spans] class-token replicas of each span: 1 or 0 */
  int64_t shared;         /* length of the whole shared sequence: T, or T + 1 with a single class token */
  int64_t shared_rows;    /* rows of this process that are shared */
  int32_t *shared_row;    /* [shared_rows] their row numbers, in order */
  int64_t *device_shared; /* [devices + 1] device d's part of the shared sequence is [device_shared[d], device_shared[d+1]) */
  int64_t remote;         /* remote rows that attention sees: `shared` in training (own parts skipped), the others' rows on a node, of a
                           * decoder those of the devices before it */
  int32_t *remote_token;  /* [remote] content token at each of them; -1: class token */
  int64_t last_rows;      /* 1 where token T - 1 is in this process, else 0 (of a decoder: the token that says what comes next) */
  int32_t last_row[1];    /* [last_rows] its row */
  int32_t last_token[1];  /* [last_rows] T - 1 */
  int64_t *last_of_span;  /* [spans] how many of last_row are in each span: 1 or 0 */
  void *memory;           /* private: holds the arrays above, for up to `capacity` tokens on as many devices */
  int64_t capacity;
} TokenLayout;

/* order [T]: content tokens sorted by device; counts [devices]: how many each holds (their sum is T; each at least 1).
 * NULL order means raster order. Buffers are kept and reused by the next build on the same struct (zero it before the first): only a
 * larger T than ever before allocates. N larger than T, a count below 1 or an order that is no permutation is STATUS_BAD_VALUE and
 * leaves an empty layout.
 * A decoder's layout has no class token and no order: contiguous spans, device d's tokens before those of d + 1, so that row_token and
 * remote_token are absolute positions; a node has no remote rows of devices after it, which none of its tokens may see. */
Status layout_build(TokenLayout *layout, int64_t tokens, int devices, const int64_t *counts, const int32_t *order, ClassToken class_token,
                    int self);

/* The plain model on one device: no remote rows. */
Status layout_build_plain(TokenLayout *layout, int64_t tokens, ClassToken class_token);

/* The plain model on a choice of content tokens (PatchDropout): one class token and the `count` different tokens of `chosen`, no remote
 * rows; layout->tokens is `count`. `tokens`: T of the whole image. Memory and failures as for layout_build. */
Status layout_build_chosen(TokenLayout *layout, int64_t tokens, const int32_t *chosen, int64_t count);

void layout_release(TokenLayout *layout);

/* Part `part` of `parts` of what a device shares: rows [*first, *first + *count) of its part of the shared sequence. Content tokens are cut
 * as evenly as possible, the first parts taking the rest; a class token that is shared is in part 0. The same on all processes. */
void layout_part_shared(const TokenLayout *layout, int device, int parts, int part, int64_t *first, int64_t *count);

/* The same of the rows of a node (self >= 0): rows [*first, *first + *rows), the class token's in part 0, and where the shared ones among
 * them lie in shared_row: [*first_shared, *first_shared + *shared). A layout without rows has empty parts. */
void layout_part(const TokenLayout *layout, int parts, int part, int64_t *first, int64_t *rows, int64_t *first_shared, int64_t *shared);

/* T tokens over N devices as evenly as possible, the first ones taking the rest. counts [devices]. */
void layout_even_counts(int64_t tokens, int devices, int64_t *counts);

/* In proportion to weights (largest remainders; every device gets at least one). BAD_VALUE when devices > tokens or a weight is not
 * positive. */
Status layout_weighted_counts(int64_t tokens, int devices, const double *weights, int64_t *counts);

/* Full-precision attention rate: sum n_k^2 / T^2. */
double layout_fpar(int64_t tokens, int devices, const int64_t *counts);

#endif
