/* The training-time exchange: see emulate.h. All arrays of a step come from the tape's arena, so a step allocates nothing of its own. */
#include "train/emulate.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/philox.h"
#include "autograd/ops/ops.h"
#include "autograd/tape.h"
#include "base/rng.h"
#include "base/status.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "vq/codebook.h"
#include "vq/ema.h"
#include "vq/navq.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which device holds which token ---- */

/* How many devices there are, how many tokens each has and which; the layout is built from that. All draws come from one generator in a
 * fixed order (N, counts, permutation), so a map follows from the generator's state alone. */

static Status check_options(const DeviceMapOptions *options, int64_t tokens) {
  if (options->devices_min < 1 || options->devices_min > options->devices_max)
    return status_set(STATUS_BAD_VALUE, "devices %d-%d: a range from at least 1 upwards is accepted", options->devices_min,
                      options->devices_max);
  if (options->devices_max > TOKEN_MAP_DEVICES || options->devices_max > tokens)
    return status_set(STATUS_BAD_VALUE, "%d devices: at most %lld are accepted here, as every device needs one of the %lld tokens",
                      options->devices_max, (long long)(tokens < TOKEN_MAP_DEVICES ? tokens : TOKEN_MAP_DEVICES), (long long)tokens);
  if (options->counts == COUNTS_FIXED && (options->devices_min != options->devices_max || !options->fixed))
    return status_set(STATUS_BAD_VALUE, "fixed token counts need one number of devices, not %d-%d", options->devices_min,
                      options->devices_max);
  if (options->counts == COUNTS_DIRICHLET && !(options->concentration > 0 && isfinite(options->concentration)))
    return status_set(STATUS_BAD_VALUE, "concentration %g of the random token counts: a positive number is accepted",
                      options->concentration);
  return STATUS_OK;
}

static Status draw_counts(const DeviceMapOptions *options, int64_t tokens, int devices, Rng *rng, int64_t *counts) {
  if (options->counts == COUNTS_DIRICHLET) { /* proportions: gamma variates of which only the ratios count */
    double weights[TOKEN_MAP_DEVICES];
    const double min = 1e-290; /* a small concentration underflows to 0; large enough that T / min is finite */
    for (int d = 0; d < devices; d++) weights[d] = fmax(rng_gamma(rng, options->concentration), min);
    return layout_weighted_counts(tokens, devices, weights, counts);
  }
  if (options->counts == COUNTS_EVEN) layout_even_counts(tokens, devices, counts);
  for (int d = 0; options->counts == COUNTS_FIXED && d < devices; d++) counts[d] = options->fixed[d];
  return STATUS_OK;
}

Status device_map_draw(TokenLayout *layout, int64_t tokens, ClassToken class_token, const DeviceMapOptions *options, Rng *rng,
                       int32_t *order_buffer) {
  TRY(check_options(options, tokens));
  int64_t counts[TOKEN_MAP_DEVICES];
  int devices = options->devices_min + (int)rng_below(rng, (uint64_t)(options->devices_max - options->devices_min) + 1);
  TRY(draw_counts(options, tokens, devices, rng, counts));
  /* Fixed counts come from a user: unchecked they could run the sorting beyond the buffer. */
  TRY(layout_build(layout, tokens, devices, counts, NULL, class_token, -1));
  if ((!options->permute && options->side == 0) || devices == 1) return STATUS_OK;
  if (options->permute)
    token_map_draw(rng, tokens, devices, counts, order_buffer);
  else
    TRY(token_map_order(&options->map, options->side, options->side, devices, counts, order_buffer));
  return layout_build(layout, tokens, devices, counts, order_buffer, class_token, -1);
}

Status device_map_place(TokenLayout *layout, const ModelConfig *config, int64_t tokens, int devices, int32_t *order_buffer) {
  int64_t counts[TOKEN_MAP_DEVICES], side = config_is_decoder(config) ? 0 : config->image / config->patch;
  if (devices < 1 || devices > TOKEN_MAP_DEVICES || devices > tokens)
    return status_set(STATUS_BAD_VALUE, "%d devices for %lld tokens: every device needs one, and at most %d are accepted", devices,
                      (long long)tokens, TOKEN_MAP_DEVICES);
  layout_even_counts(tokens, devices, counts);
  if (side > 0) TRY(token_map_order(&config->astra.layout, side, side, devices, counts, order_buffer));
  return layout_build(layout, tokens, devices, counts, side > 0 ? order_buffer : NULL, config->astra.class_token, -1);
}

/* ---- Token loss ---- */

/* [0, 1), number `at` of the stream's. */
static double uniform(uint64_t key, uint64_t at) {
  uint32_t word[PHILOX_WORDS];
  philox(key, at, word);
  return ((double)word[0] + (double)word[1] * 0x1p-32) * 0x1p-32;
}

/* lost [sequences, tokens] of the sequences from `first` on: 1 for a token that does not arrive. Two draws are independent where seed,
 * stream or sequence differ. */
static void token_loss_draw(const TokenLoss *loss, uint64_t seed, uint64_t stream, int64_t first, int64_t sequences, int64_t tokens,
                            uint8_t *lost) {
  uint64_t key = seed ^ (stream * UINT64_C(0x9E3779B97F4A7C15) + UINT64_C(0xD1B54A32D192ED03));
  const bool runs = loss->span > 0;
  const double ends = runs ? 1 / loss->span : 0, begins = ends * loss->share / (1 - loss->share);
  for (int64_t s = 0; s < sequences; s++) {
    uint64_t counter = (uint64_t)((first + s) * tokens);
    uint8_t *to = lost + s * tokens;
    for (int64_t t = 0; t < tokens; t++) {
      const double draw = uniform(key, counter + (uint64_t)t);
      if (t == 0 || !runs) /* a chain starts as it is in the long run, so that every token is lost with the same probability */
        to[t] = draw < loss->share;
      else
        to[t] = to[t - 1] ? draw >= ends : draw < begins;
    }
  }
}

/* ---- The exchange of emulated devices ---- */

enum { MOMENT_ROWS = 1024, MOMENT_SHARE = 4 }; /* minimum number of rows of a step; share of a larger batch */

static EmulateSite *site_of(Emulation *emulation, int block, int site) {
  return &emulation->site[(block - emulation->first) * emulation->block_sites + site];
}

/* The nearest codewords of the shared tokens. */
static Status find_codes(const Emulation *emulation, EmulateSite *site, Tape *tape, int64_t rows, const Tensor *shared) {
  site->codes = tape_segment_keep(tape, (size_t)(rows * site->book.groups) * sizeof *site->codes);
  site->x = shared->value;
  site->rows = rows;
  if (emulation->training && tape_segment_inside(tape)) { /* emulate_update wants the tokens after backward; their memory goes before */
    size_t bytes = (size_t)tensor_count(shared) * sizeof(real);
    real *copy = tape_segment_keep(tape, bytes);
    if (copy != NULL && !tape_planning(tape)) memcpy(copy, shared->value, bytes);
    site->x = copy;
  }
  if (site->codes == NULL || site->x == NULL) return tape_status(tape);
  double begun = tape_clock(tape);
  size_t mark = tape_scratch_begin(tape);
  void *scratch = tape_alloc(tape, codebook_assign_scratch(&site->book, rows));
  if (scratch == NULL) return tape_status(tape);
  if (!tape_planning(tape))
    codebook_assign(&site->book, shared->value, rows, site->codes, NULL, scratch);
  else
    matmul_count_only(rows * site->book.groups, site->book.entries, site->book.width / site->book.groups);
  tape_scratch_end(tape, mark);
  tape_note(tape, "nearest codewords", TAPE_FORWARD, begun);
  return STATUS_OK;
}

typedef struct Noise {
  QuantiseNoise quantise;
  NavqSampler sampler;
} Noise;

static void draw_noise(const QuantiseNoise *self, int64_t first, int64_t rows, real *noise, real *scratch) {
  navq_sampler_draw(&((const Noise *)self)->sampler, first, rows, noise, scratch);
}

static double noise_scale(const Emulation *emulation) {
  const double lambda = emulation->options.noise, batches = (double)emulation->options.noise_warmup;
  return (double)emulation->step < batches ? lambda * (double)emulation->step / batches : lambda;
}

/* lambda xi for this site and step, or NULL, of rows from `first` on in the whole batch. */
static Status prepare_noise(Emulation *emulation, EmulateSite *site, Tape *tape, int64_t first, int64_t rows, Noise **noise) {
  _Static_assert((int)QUANTISE_ROWS == (int)NAVQ_ROWS, "the same bits for any number of threads");
  *noise = NULL;
  if (!emulation->training || emulation->options.noise == 0) return STATUS_OK;
  *noise = tape_alloc(tape, sizeof **noise);
  void *scratch = tape_alloc(tape, navq_sampler_scratch(&site->navq));
  if (*noise == NULL || scratch == NULL) return tape_status(tape);
  uint64_t stream = emulation->step * (uint64_t)emulate_sites(emulation) + (uint64_t)(site - emulation->site);
  (*noise)->quantise.draw = draw_noise;
  if (tape_planning(tape))
    navq_count_sample(&site->navq, rows);
  else
    navq_sampler_init(&(*noise)->sampler, &site->navq, noise_scale(emulation), emulation->options.seed ^ (stream * 0x9E3779B97F4A7C15u),
                      first, scratch);
  return STATUS_OK;
}

/* With predictions the site's rows are what is expected and the codewords. The next block's are expected of rows without noise: those that
 * devices have. */
static void chain(Tape *tape, EmulateSite *site, Tensor *shared, Tensor *expected, const Quantise *options) {
  Quantise exact = *options;
  Tensor *rows = site->remote, *counted = NULL;
  exact.noise = NULL, exact.distance = NULL;
  if (options->noise != NULL) {
    rows = op_quantise(tape, shared, &exact, &counted);
    if (expected != NULL) site->remote = op_add(tape, site->remote, expected);
  }
  if (expected != NULL) rows = op_add(tape, rows, expected);
  if (options->noise == NULL) site->remote = rows;
  site->exact = rows;
}

/* Of one site, number i of its block, whose activations are h. */
static Status quantise(Emulation *emulation, Tape *tape, const TokenLayout *layout, EmulateSite *site, int i, Tensor *h) {
  Tensor *const weight = emulation->exchange.predict_weight[i], *const bias = emulation->exchange.predict_bias[i];
  Tensor *shared = op_gather_rows_wide(tape, h, layout->shared_row, layout->shared_rows), *expected = NULL;
  if (weight != NULL) {
    expected = op_widen(tape, op_linear(tape, emulation->carried[EMULATE_REMOTE], weight, bias, ACTIVATION_NONE, NULL));
    shared = op_add_scaled(tape, shared, expected, -1);
  }
  if (shared == NULL) return tape_status(tape);
  int64_t rows = tensor_rows(shared);
  if (!tape_segment_again(tape)) TRY(find_codes(emulation, site, tape, rows, shared));
  Noise *noise;
  double distance = 0;
  TRY(prepare_noise(emulation, site, tape, emulation->first_sample * layout->shared_rows, rows, &noise));
  Quantise options = {.codebook = site->book.codewords,
                      .groups = site->book.groups,
                      .entries = site->book.entries,
                      .codes = site->codes,
                      .noise = noise ? &noise->quantise : NULL,
                      .distance = &distance,
                      .gradient = emulation->options.gradient};
  Tensor *commitment = NULL;
  /* Devices add what is expected to codewords in full; without predictions products round the same codewords, here or later. */
  const bool narrow = tape_narrow(tape, tape_is_narrow(tape) && !emulation->predicts);
  site->remote = op_quantise(tape, shared, &options, &commitment);
  if (emulation->predicts) chain(tape, site, shared, expected, &options);
  tape_narrow(tape, narrow);
  if (tape_status(tape) == STATUS_OK && !tape_planning(tape) && !tape_segment_again(tape))
    usage_add(&site->usage, site->codes, rows, distance);
  Tensor **sum = &emulation->carried[EMULATE_COMMITMENT];
  *sum = *sum ? op_add(tape, *sum, commitment) : commitment;
  return tape_status(tape);
}

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Emulation *emulation = (Emulation *)self;
  (void)part;
  for (int i = 0; i < emulation->block_sites; i++) TRY(quantise(emulation, tape, layout, site_of(emulation, block, i), i, h[i]));
  if (!emulation->predicts) return STATUS_OK;
  Tensor *const first = site_of(emulation, block, 0)->exact;
  emulation->carried[EMULATE_REMOTE] = emulation->block_sites == 1 ? first : op_join(tape, first, site_of(emulation, block, 1)->exact);
  return tape_status(tape);
}

static Status know(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  (void)layout, (void)part, (void)own;
  if (remote != NULL) ((Emulation *)self)->carried[EMULATE_REMOTE] = op_widen(tape, remote);
  return tape_status(tape);
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  Emulation *emulation = (Emulation *)self;
  (void)part;
  for (int i = 0; i < emulation->block_sites; i++) rows[i].x = site_of(emulation, block, i)->remote;
  const TokenLoss *loss = emulation->training ? &emulation->options.loss : &emulation->options.eval_loss;
  if (rows[0].x == NULL || loss->share == 0) return tape_status(tape);
  const int64_t batch = rows[0].x->shape[0]; /* lost [spans, B, remote]; at site kv the two sites of a token arrive, or not, together */
  uint8_t *lost = tape_alloc(tape, (size_t)(layout->spans * batch * layout->remote));
  rows[0].lost = lost;
  if (lost == NULL || tape_planning(tape)) return tape_status(tape);
  uint64_t number = emulation->training ? emulation->step : emulation->look;
  uint64_t stream = (number * (uint64_t)emulation->blocks + (uint64_t)(block - emulation->first)) * 2 + (uint64_t)emulation->training;
  int64_t samples = emulation->samples > 0 ? emulation->samples : batch;
  for (int64_t span = 0; span < layout->spans; span++)
    token_loss_draw(loss, emulation->options.seed, stream, span * samples + emulation->first_sample, batch, layout->remote,
                    lost + span * batch * layout->remote);
  return tape_status(tape);
}

int emulate_sites(const Emulation *emulation) { return emulation->blocks * emulation->block_sites; }
int emulate_all_sites(const Emulation *emulation) { return emulation->rates * emulate_sites(emulation); }

/* index: of all rates' sites. */
static Status init_site(Emulation *emulation, const ModelConfig *config, int index) {
  EmulateSite *site = &emulation->all[index];
  const int groups = config_rate_groups(config, index / emulate_sites(emulation));
  int64_t width = config_site_width(config);
  TRY(codebook_init(&site->book, groups, config->astra.codebook_size, width,
                    emulation->codewords + (int64_t)index * config->astra.codebook_size * width));
  TRY(ema_init(&site->ema, &site->book, 1));
  TRY(navq_init(&site->navq, groups, width, emulation->options.covariance));
  TRY(usage_init(&site->usage, groups, config->astra.codebook_size));
  return usage_init(&site->aside, groups, config->astra.codebook_size);
}

void emulate_use_rate(Emulation *emulation, int rate) { emulation->site = emulation->all + rate * emulate_sites(emulation); }

Status emulate_init(Emulation *emulation, const ModelConfig *config, const EmulateOptions *options) {
  const Exchange exchange = {.begin = begin, .finish = finish, .know = know, .carried = emulation->carried, .lost_of_spans = true};
  *emulation = (Emulation){.exchange = exchange,
                           .options = *options,
                           .blocks = config_end_coded(config) - config_first_coded(config),
                           .first = config_first_coded(config),
                           .block_sites = config_sites(config),
                           .rates = config_rates(config),
                           .predicts = config->astra.prediction};
  size_t sites = (size_t)emulate_all_sites(emulation);
  size_t numbers = sites * (size_t)config->astra.codebook_size * (size_t)config_site_width(config);
  emulation->all = calloc(sites, sizeof *emulation->all);
  emulation->codewords = calloc(numbers, sizeof *emulation->codewords);
  if (emulation->all == NULL || emulation->codewords == NULL) {
    emulate_release(emulation);
    return status_set(STATUS_NO_MEMORY, "no memory for %zu codebooks of %d x %lld numbers", sites, config->astra.codebook_size,
                      (long long)config_site_width(config));
  }
  Status status = STATUS_OK;
  emulate_use_rate(emulation, config_rate(config));
  for (size_t index = 0; index < sites && status == STATUS_OK; index++) status = init_site(emulation, config, (int)index);
  if (status != STATUS_OK) emulate_release(emulation);
  return status;
}

void emulate_release(Emulation *emulation) {
  for (int index = 0; emulation->all != NULL && index < emulate_all_sites(emulation); index++) {
    EmulateSite *site = &emulation->all[index];
    codebook_release(&site->book);
    ema_release(&site->ema);
    navq_release(&site->navq);
    usage_release(&site->usage);
    usage_release(&site->aside);
  }
  free(emulation->all);
  free(emulation->codewords);
  *emulation = (Emulation){0};
}

Status emulate_start_ema(Emulation *emulation, int64_t rows_per_batch) {
  for (int index = 0; index < emulate_all_sites(emulation); index++) {
    EmulateSite *site = &emulation->all[index];
    codebook_refresh(&site->book);
    ema_release(&site->ema);
    TRY(ema_init(&site->ema, &site->book, (double)rows_per_batch / (double)site->book.entries));
  }
  return STATUS_OK;
}

void emulate_share(Emulation *emulation, int64_t first, int64_t samples) {
  emulation->first_sample = first;
  emulation->samples = samples;
}

int emulate_draw_rate(const Emulation *emulation) {
  static const uint64_t key = 0x6269742072617465; /* apart from other users of the seed */
  const int last = emulation->rates - 1;
  Rng rng;
  rng_init(&rng, emulation->options.seed ^ key, emulation->step);
  const bool finest = last < 1 || rng_below(&rng, 2) == 0;
  return finest ? last : (int)rng_below(&rng, (uint64_t)last);
}

void emulate_begin_step(Emulation *emulation, bool training) {
  if (!training) emulation->look++;
  emulation->training = training;
  memset(emulation->carried, 0, sizeof emulation->carried);
}

/* Noise moments are averages over a hundred steps, so of a large batch a part of the rows is enough, another part each step. It keeps to
 * four rows for each dimension of a covariance. Returns how many rows, *first is where they begin. */
int64_t emulate_moment_rows(const Emulation *emulation, const EmulateSite *site, int64_t rows, int64_t *first) {
  int64_t min = 4 * site->navq.width / site->navq.groups, part = rows / MOMENT_SHARE;
  if (min < MOMENT_ROWS) min = MOMENT_ROWS;
  if (part < min) part = min < rows ? min : rows;
  if (part == 0) return *first = 0;
  const int64_t turns = (rows + part - 1) / part, turn = (int64_t)(emulation->step % (uint64_t)turns);
  *first = turn < turns - 1 ? turn * part : rows - part; /* the last one takes rows that one before it has had, too, if it must */
  return part;
}

Status emulate_update(Emulation *emulation, Tape *tape, Rng *rng) {
  for (int index = 0; index < emulate_sites(emulation); index++) {
    EmulateSite *site = &emulation->site[index];
    int64_t first, rows = emulate_moment_rows(emulation, site, site->rows, &first);
    size_t mark = tape_scratch_begin(tape);
    real *q = tape_alloc(tape, (size_t)(rows * site->book.width) * sizeof(real));
    void *scratch = tape_alloc(tape, navq_scratch(&site->navq, rows));
    if (q == NULL || scratch == NULL) return tape_status(tape);
    if (!tape_planning(tape)) {
      double begun = tape_clock(tape);
      if (emulation->options.noise != 0) {
        codebook_lookup(&site->book, site->codes + first * site->book.groups, rows, q);
        navq_update(&site->navq, site->x + first * site->book.width, q, rows, scratch);
        tape_note(tape, "noise moments", TAPE_AROUND, begun);
      }
      begun = tape_clock(tape);
      emulation->revived += ema_update(&site->ema, &site->book, site->x, site->codes, site->rows, &emulation->options.ema, rng);
      tape_note(tape, "codebook averages", TAPE_AROUND, begun);
    } else if (emulation->options.noise != 0) {
      navq_count_update(&site->navq, rows);
    }
    tape_scratch_end(tape, mark);
  }
  emulation->step++;
  return STATUS_OK;
}

void emulate_clear_usage(Emulation *emulation) {
  for (int index = 0; index < emulate_all_sites(emulation); index++) usage_clear(&emulation->all[index].usage);
  emulation->revived = 0;
}

void emulate_swap_usage(Emulation *emulation) {
  const int64_t revived = emulation->revived;
  for (int index = 0; index < emulate_all_sites(emulation); index++) {
    EmulateSite *site = &emulation->all[index];
    const CodeUsage usage = site->usage;
    site->usage = site->aside;
    site->aside = usage;
  }
  emulation->revived = emulation->revived_aside;
  emulation->revived_aside = revived;
}

const char *emulate_place(const Emulation *emulation, int index, char text[EMULATE_PLACE]) {
  const bool one = emulation->block_sites == 1;
  snprintf(text, EMULATE_PLACE, "block %d%s%s", emulation->first + index / emulation->block_sites, one ? "" : " ",
           one ? "" : config_site_name(emulation->block_sites, index));
  return text;
}
