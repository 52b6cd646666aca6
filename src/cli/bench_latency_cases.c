/* A list of what was measured, and simulations of it. */
#include "base/array.h"
#include "cli/bench_latency_internal.h"
#include "infer/plan/planner.h"
#include "infer/plan/probe.h"
#include "infer/sim/measure.h"
#include "infer/sim/packet_work.h"
#include "infer/sim/schedule.h"
#include "infer/sim/simulate.h"
#include "nn/kv_tables.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The encoder ---- */

/* Weights and codebooks at random. */

static void describe(ModelConfig *config, const LatencySize *size) {
  config_defaults(config, MODEL_VIT);
  config->width = size->width;
  config->blocks = size->blocks;
  config->heads = config->kv_heads = size->heads;
  config->mlp = 4 * size->width;
  config->patch = 16, config->image = 512; /* of no matter: rows are given, nothing is embedded */
  config->channels = 3;
  config->astra = (AstraConfig){.groups = 1,
                                .codebook_size = (int)size->entries,
                                .devices = 4,
                                .devices_min = 1,
                                .exchange_blocks = size->exchange_blocks,
                                .site = SITE_X,
                                .class_token = CLASS_DISTRIBUTED};
}

Status bench_latency_model_open(LatencyModel *model, const LatencySize *size) {
  Rng rng;
  *model = (LatencyModel){.groups = 0};
  describe(&model->config, size);
  TRY(config_set_labels(&model->config, NULL, 2));
  TRY(model_new(&model->weights.model, &model->config));
  TRY(param_allocate(model_params(model->weights.model), false));
  rng_init(&rng, 1, 0);
  model_initialise(model->weights.model, &rng);
  model->weights.config = model_config(model->weights.model);
  return STATUS_OK;
}

static void release_books(LatencyModel *model) {
  for (int64_t b = 0; model->books && b < model->config.blocks; b++) codebook_release(&model->books[b]);
  free(model->books);
  kv_tables_free(model->tables);
  model->books = NULL;
  model->tables = NULL;
  model->groups = model->entries = 0;
}

/* accepts a zeroed one */
static void bench_latency_model_close(LatencyModel *model) {
  release_books(model);
  model_free(model->weights.model);
  config_release(&model->config);
  *model = (LatencyModel){.groups = 0};
}

static Status draw_books(LatencyModel *model, int groups, int entries) {
  Rng rng;
  rng_init(&rng, 1, 1);
  model->books = calloc((size_t)model->config.blocks, sizeof *model->books);
  if (!model->books) return status_no_memory(NULL, "codebooks");
  for (int64_t b = 0; b < model->config.blocks; b++) {
    Codebook *book = &model->books[b];
    TRY(codebook_init(book, groups, entries, model->config.width, NULL));
    for (int64_t i = 0; i < book->entries * book->width; i++) book->codewords[i] = (real)(rng_uniform(&rng) - 0.5);
    codebook_refresh(book);
  }
  return STATUS_OK;
}

static Status build_tables(LatencyModel *model, size_t memory) {
  const real **codewords = calloc((size_t)model->config.blocks, sizeof *codewords);
  if (!codewords) return status_no_memory(NULL, "tables of keys and values");
  for (int64_t b = 0; b < model->config.blocks; b++) codewords[b] = model->books[b].codewords;
  const KvTablesSetup setup = {.codewords = codewords,
                               .groups = model->books[0].groups,
                               .entries = model->books[0].entries,
                               .memory = memory,
                               .measure = model->books[0].groups > 1};
  Status status = kv_tables_build(&model->tables, model->weights.model, &setup);
  free(codewords);
  return status;
}

/* Codebooks of so many groups and codewords, in place of those before; tables of keys and values for them where `table_bytes` of memory are
 * enough, and they are faster than products. */
static Status bench_latency_model_codes(LatencyModel *model, int groups, int entries, double table_bytes) {
  if (model->groups == groups && model->entries == entries) return STATUS_OK;
  release_books(model);
  Status status = draw_books(model, groups, entries);
  if (status == STATUS_OK && table_bytes >= 1) status = build_tables(model, (size_t)table_bytes);
  if (status == STATUS_OK)
    model->groups = groups, model->entries = entries;
  else
    release_books(model);
  return status;
}

/* ---- Measured cases ---- */

enum { LONG_TOKENS = 2048, LONG_REPEATS = 2 };

typedef struct LatencyMeasured {
  LatencyCase of;
  Timeline device[WIRE_NODES];
  double share; /* of a core, the least */
} LatencyMeasured;

/* A model without weights, and what this device takes for its products. */
typedef struct LatencyPredicted {
  ModelConfig config;
  DeviceProfile profile;
} LatencyPredicted;

static void release_predicted(LatencyPredicted *predicted) {
  if (predicted) config_release(&predicted->config);
  free(predicted);
}

void bench_latency_cases_release(LatencyBench *bench) {
  for (int i = 0; i < bench->count; i++)
    for (int d = 0; d < WIRE_NODES; d++) timeline_release(&bench->list[i].device[d]);
  free(bench->list);
  bench_latency_model_close(&bench->model);
  release_predicted(bench->predicted);
  arena_free(bench->arena);
  bench->predicted = NULL;
  bench->arena = NULL;
  bench->list = NULL;
  bench->count = bench->capacity = 0;
}

static bool same(const LatencyCase *a, const LatencyCase *b) {
  return a->strategy == b->strategy && a->groups == b->groups && a->entries == b->entries && a->devices == b->devices &&
         a->retained == b->retained && a->parts == b->parts && a->tokens == b->tokens;
}

static Status new_measured(LatencyBench *bench, const LatencyCase *wanted, LatencyMeasured **measured) {
  TRY(ARRAY_RESERVE(bench->list, bench->count, 1, bench->capacity, "measurements"));
  *measured = &bench->list[bench->count++];
  **measured = (LatencyMeasured){.of = *wanted, .share = 1};
  return STATUS_OK;
}

/* ---- devices, one after another */

/* Runs of a device of which medians are taken: fewer of long inputs. */
static int bench_latency_cases_repeats(const LatencyBench *bench, int64_t tokens) {
  return tokens > LONG_TOKENS && bench->repeats > LONG_REPEATS ? LONG_REPEATS : bench->repeats;
}

static Status measure_device(LatencyBench *bench, const LatencyCase *wanted, const int64_t *counts, int self, Timeline *timeline,
                             MeasureQuality *quality) {
  const DeviceCase device = {.strategy = wanted->strategy,
                             .devices = wanted->devices,
                             .self = self,
                             .tokens = wanted->tokens,
                             .counts = counts,
                             .books = bench->model.books,
                             .tables = bench->model.tables,
                             .parts = wanted->parts,
                             .min_packets = bench->min_packets,
                             .retained = wanted->retained,
                             .arena = bench->arena,
                             .warm = wanted->tokens <= bench->warm_tokens};
  TRY(measure_timeline(timeline, &bench->model.weights, &device, bench_latency_cases_repeats(bench, wanted->tokens), quality));
  bench->quality.min_share = fmin(bench->quality.min_share, quality->min_share);
  bench->quality.spread = fmax(bench->quality.spread, quality->spread);
  bench->measured++;
  if (wanted->strategy == STRATEGY_SINGLE && wanted->tokens > bench->warm_tokens) bench->warm_tokens = wanted->tokens;
  return STATUS_OK;
}

/* What device `from` does, in the place of device `self`, which is like it: everybody moves on by as many places, the devices whose rows
 * travel (part, of sums and joins) as well. That a class row makes one device of sums longer by a row is passed over. */
static Status stand_in(const LatencyCase *of, const Timeline *timeline, int from, int self, Timeline *to) {
  bool by_rows = !strategy_facts(of->strategy)->divides_tokens;
  int moved = self - from + of->devices;
  to->tokens = timeline->tokens;
  for (int i = 0; i < timeline->count; i++) {
    Event event = timeline->list[i];
    uint64_t peers = 0;
    for (int d = 0; d < of->devices; d++) peers |= (event.peers >> d & 1) << (d + moved) % of->devices;
    event.peers = peers;
    if (by_rows && (event.kind == EVENT_SEND || event.kind == EVENT_WAIT)) event.part = (uint8_t)((event.part + moved) % of->devices);
    TRY(timeline_add(to, &event));
  }
  return STATUS_OK;
}

/* The first device that does the same as this one, -1: none does. Where a part of some device's codes is empty, the devices' places are not
 * alike. */
static int alike(const LatencyBench *bench, const LatencyCase *of, const int64_t *counts, int self) {
  int64_t heads[WIRE_NODES] = {0};
  if (bench->measure_all || of->parts > counts[of->devices - 1]) return -1;
  if (!strategy_facts(of->strategy)->divides_tokens) layout_even_counts(bench->model.config.kv_heads, of->devices, heads);
  for (int d = 0; d < self; d++)
    if (counts[d] == counts[self] && heads[d] == heads[self]) return d;
  return -1;
}

static Status measure_devices(LatencyBench *bench, LatencyMeasured *measured, Timeline *devices) {
  const LatencyCase *wanted = &measured->of;
  int64_t counts[WIRE_NODES];
  layout_even_counts(wanted->tokens, wanted->devices, counts);
  if (wanted->strategy == STRATEGY_ASTRA)
    TRY(bench_latency_model_codes(&bench->model, wanted->groups, wanted->entries, bench->table_bytes));
  for (int d = 0; d < wanted->devices; d++) {
    int like = alike(bench, wanted, counts, d);
    MeasureQuality quality = {.min_share = 1};
    if (like < 0)
      TRY(measure_device(bench, wanted, counts, d, &devices[d], &quality));
    else
      TRY(stand_in(wanted, &devices[like], like, d, &devices[d]));
    measured->share = fmin(measured->share, quality.min_share);
  }
  return STATUS_OK;
}

/* With what sending and receiving takes of the processor. */
static Status measure_case(LatencyBench *bench, LatencyMeasured *measured) {
  Timeline devices[WIRE_NODES] = {0};
  bool codes = strategy_facts(measured->of.strategy)->sends_codes;
  Status status = measure_devices(bench, measured, devices);
  if (status == STATUS_OK) status = packet_work_add(&bench->work, devices, measured->of.devices, codes, measured->device);
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&devices[d]);
  return status;
}

static Status find(LatencyBench *bench, const LatencyCase *wanted, LatencyMeasured **found) {
  for (int i = 0; i < bench->count; i++)
    if (same(&bench->list[i].of, wanted)) return *found = &bench->list[i], STATUS_OK;
  if (bench->progress) bench->progress(wanted);
  TRY(new_measured(bench, wanted, found));
  Status status = measure_case(bench, *found);
  if (status == STATUS_OK) return STATUS_OK;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&(*found)->device[d]);
  bench->count--;
  return status;
}

/* ---- one device */

static LatencyCase alone(int64_t tokens) { return (LatencyCase){.strategy = STRATEGY_SINGLE, .devices = 1, .parts = 1, .tokens = tokens}; }

static Status measure_again(LatencyBench *bench, int64_t tokens) {
  const LatencyCase wanted = alone(tokens);
  LatencyMeasured *found;
  Timeline again;
  MeasureQuality quality;
  TRY(find(bench, &wanted, &found));
  TRY(measure_device(bench, &wanted, &tokens, 0, &again, &quality));
  bench->single.last = timeline_seconds(&again);
  bench->single.spread = fmax(bench->single.spread, quality.spread);
  found->share = fmin(found->share, quality.min_share);
  bench->single.share = found->share;
  found->device[0].list[0].seconds = (bench->single.first + bench->single.last) / 2;
  timeline_release(&again);
  return STATUS_OK;
}

Status bench_latency_cases_single(LatencyBench *bench, int64_t tokens, bool again, double *seconds) {
  LatencyMeasured *found;
  double before = bench->quality.spread;
  bool first = bench->single.first <= 0;
  const LatencyCase wanted = alone(tokens);
  if (again) TRY(measure_again(bench, tokens));
  if (first) bench->quality.spread = 0;
  TRY(find(bench, &wanted, &found));
  *seconds = timeline_seconds(&found->device[0]);
  if (!first) return STATUS_OK;
  bench->single = (LatencySingle){.first = *seconds, .spread = bench->quality.spread, .share = found->share};
  bench->quality.spread = fmax(before, bench->quality.spread);
  return STATUS_OK;
}

/* ---- predictions, and parts */

/* Into how many parts a node would cut its codes on this link. */
static Status find_parts(const LatencyBench *bench, const LatencyCase *of, const LatencyLink *link, double scale, int *parts) {
  DeviceProfile profiles[WIRE_NODES];
  ModelConfig config = bench->model.config;
  LinkOptions links = bench->links;
  int64_t counts[WIRE_NODES];
  *parts = 1;
  if (of->strategy != STRATEGY_ASTRA || of->devices < 2) return STATUS_OK;
  config.astra.groups = of->groups, config.astra.codebook_size = of->entries;
  links.bits_per_second = link->bits_per_second;
  links.loss = links.jitter = 0; /* no number of parts is chosen for the luck of one request */
  layout_even_counts(of->tokens, of->devices, counts);
  for (int d = 0; d < of->devices; d++) profiles[d] = bench->profile;
  PlanCase plan = {.config = &config,
                   .strategy = of->strategy,
                   .tokens = of->tokens,
                   .devices = of->devices,
                   .counts = counts,
                   .profiles = profiles,
                   .links = &links,
                   .reliability = bench->reliability,
                   .min_packets = bench->min_packets,
                   .retained = of->retained,
                   .all_rows = true, /* as measure_device computes them */
                   .work = &bench->work,
                   .scale = scale};
  plan.table_blocks = (int)kv_tables_room(&config, of->groups, of->entries, bench->table_bytes);
  TRY(planner_parts(&plan));
  *parts = plan.parts;
  return STATUS_OK;
}

static Status open_predicted(LatencyBench *bench, int64_t tokens) {
  LatencyPredicted *predicted = calloc(1, sizeof *predicted);
  if (predicted == NULL) return status_no_memory(NULL, "a prediction");
  Status status = config_preset(&predicted->config, "llama-3-8b", 0);
  predicted->config.astra.site = SITE_KV;
  predicted->config.astra.groups = 1; /* whatever the number of groups, codes take as many operations */
  if (status == STATUS_OK) status = probe_compute(&predicted->config, tokens, PROBE_BY_ITSELF, &predicted->profile);
  if (status == STATUS_OK)
    bench->predicted = predicted;
  else
    release_predicted(predicted);
  return status;
}

Status bench_latency_cases_predict(LatencyBench *bench, LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result) {
  DeviceProfile profiles[WIRE_NODES];
  int64_t counts[WIRE_NODES];
  LinkOptions links = bench->links;
  if (bench->predicted == NULL) TRY(open_predicted(bench, wanted->tokens));
  ModelConfig config = bench->predicted->config;
  config.astra.groups = wanted->groups > 0 ? wanted->groups : 1;
  links.bits_per_second = link->bits_per_second;
  layout_even_counts(wanted->tokens, wanted->devices, counts);
  for (int d = 0; d < wanted->devices; d++) profiles[d] = bench->predicted->profile;
  PlanCase plan = {.config = &config,
                   .strategy = wanted->strategy,
                   .tokens = wanted->tokens,
                   .devices = wanted->devices,
                   .counts = counts,
                   .profiles = profiles,
                   .links = &links,
                   .reliability = bench->reliability,
                   .min_packets = bench->min_packets,
                   .retained = wanted->retained,
                   .work = &bench->work,
                   .scale = scale};
  TRY(planner_parts(&plan));
  wanted->parts = plan.parts;
  return planner_latency(&plan, result);
}

/* ---- all */

Status bench_latency_cases_run(LatencyBench *bench, LatencyCase *wanted, const LatencyLink *link, double scale, SimResult *result,
                               double *share) {
  LatencyMeasured *found;
  bool codes = strategy_facts(wanted->strategy)->sends_codes;
  if (wanted->parts == 0) TRY(find_parts(bench, wanted, link, scale, &wanted->parts));
  TRY(find(bench, wanted, &found));
  *share = found->share;
  LinkOptions links = bench->links;
  links.bits_per_second = link->bits_per_second;
  if (link->trace) links.trace = *link->trace;
  const SimOptions options = {.reliability = bench->reliability, .scale = scale, .start = link->start};
  return simulate_request(found->device, wanted->devices, codes, &links, &options, result);
}
