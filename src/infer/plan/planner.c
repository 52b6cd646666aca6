/* All combinations, predicted and sorted. */
#include "infer/plan/planner.h"
#include "infer/plan/predict.h"
#include "nn/kv_tables.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- one row */

static void fill_row(PlanRow *row, const PlanCase *plan, const SimResult *result) {
  int last = 0;
  for (int d = 1; d < plan->devices; d++) last = result->device[d].end > result->device[last].end ? d : last;
  const bool divided = strategy_facts(plan->strategy)->divides_tokens;
  const DeviceShare share = {.device = plan->devices - 1, /* which has no class token that others lack */
                             .devices = plan->devices,
                             .own = plan->counts[plan->devices - 1],
                             .tokens = plan->tokens,
                             .last = !plan->all_rows};
  const DeviceCost cost = device_cost_all(plan->config, plan->strategy, &share, false, plan->retained);
  row->latency = result->latency;
  row->compute = result->device[last].compute;
  row->wait = result->device[last].wait;
  row->hidden = simulate_hidden(&result->device[last]);
  row->parts = plan->parts;
  row->table_blocks = plan->devices > 1 && predict_uses_tables(plan, 0) ? plan->table_blocks : 0;
  row->tables = row->table_blocks > 0;
  row->bytes_per_token = cost.sent_bits / 8 / (double)(divided ? share.own : plan->tokens);
  row->fpar = divided ? layout_fpar(plan->tokens, plan->devices, plan->counts) : 1;
  row->loss_not_modelled = plan->devices > 1 && plan->links->loss > 0 && !predict_models_loss(plan);
}

static Status add_row(const PlannerSetup *setup, Strategy strategy, int groups, int devices, Plan *plan) {
  PlanRow *row = &plan->rows[plan->count];
  SimResult result;
  int table_blocks = 0;
  ModelConfig config = *setup->config; /* labels are shared, not owned */
  config.astra.groups = groups;
  if (config.astra.codebook_size == 0) config.astra.codebook_size = 1024;
  if (strategy == STRATEGY_ASTRA && config.astra.site == SITE_X && groups > 0)
    table_blocks = (int)kv_tables_room(&config, groups, config.astra.codebook_size, setup->table_bytes);
  *row = (PlanRow){.strategy = strategy, .groups = groups, .devices = devices};
  row->other_groups = strategy == STRATEGY_ASTRA && !setup->untrained && groups != setup->config->astra.groups;
  PlanCase tried = {.config = &config,
                    .strategy = strategy,
                    .tokens = setup->tokens,
                    .devices = devices,
                    .profiles = setup->profiles,
                    .links = setup->links,
                    .ends = setup->ends,
                    .reliability = setup->reliability,
                    .min_packets = setup->min_packets,
                    .retained = setup->retained,
                    .table_blocks = table_blocks,
                    .all_rows = setup->all_rows,
                    .with_input = setup->with_input,
                    .work = setup->work,
                    .scale = setup->scale};
  TRY(split_auto_parts(&tried, setup->parts));
  tried.counts = row->counts;
  if (setup->even) {
    layout_even_counts(tried.tokens, devices, row->counts);
    TRY(predict_latency(&tried, &result));
  } else
    TRY(split_auto_counts(&tried, row->counts, &result));
  fill_row(row, &tried, &result);
  TRY(predict_input(&tried, &row->input));
  plan->count++;
  return STATUS_OK;
}

/* ---- all rows */

static Status add_rows(const PlannerSetup *setup, Strategy strategy, int devices, Plan *plan) {
  const bool by_heads = strategy == STRATEGY_TP || strategy == STRATEGY_BP_AG || strategy == STRATEGY_BP_SP;
  if (!(setup->strategies >> strategy & 1) || strategy == STRATEGY_SINGLE) return STATUS_OK;
  if (devices > (by_heads ? setup->config->kv_heads : setup->tokens)) return STATUS_OK;
  if (strategy != STRATEGY_ASTRA) return add_row(setup, strategy, 0, devices, plan);
  for (int g = 0; g < setup->group_count; g++) TRY(add_row(setup, strategy, setup->groups[g], devices, plan));
  return STATUS_OK;
}

static int by_latency(const void *a, const void *b) {
  const PlanRow *x = a, *y = b;
  if (x->latency != y->latency) return x->latency > y->latency ? 1 : -1;
  return (x->devices > y->devices) - (x->devices < y->devices);
}

static void finish(Plan *plan) {
  plan->single = plan->rows[0].latency;
  for (int i = 0; i < plan->count; i++) plan->rows[i].speedup = plan->single / plan->rows[i].latency;
  qsort(plan->rows, (size_t)plan->count, sizeof *plan->rows, by_latency);
  for (int i = 0; i < plan->count && !plan->best; i++) {
    const PlanRow *row = &plan->rows[i];
    if (!strategy_facts(row->strategy)->right_answers || row->loss_not_modelled) continue;
    if (!row->other_groups)
      plan->best = row;
    else if (!plan->trained)
      plan->trained = row;
  }
}

Status planner_run(const PlannerSetup *setup, Plan *plan) {
  *plan = (Plan){0};
  if (setup->devices < 1 || setup->devices > WIRE_NODES)
    return status_set(STATUS_BAD_VALUE, "%d devices: a plan is for 1 to %d", setup->devices, WIRE_NODES);
  if (setup->tokens < 1) return status_set(STATUS_BAD_VALUE, "%lld tokens: a plan needs one at least", (long long)setup->tokens);
  for (int g = 0; g < setup->group_count; g++)
    if (setup->groups[g] < 1 || config_site_width(setup->config) % setup->groups[g])
      return status_set(STATUS_BAD_VALUE, "%d groups do not divide a width of %lld", setup->groups[g],
                        (long long)config_site_width(setup->config));
  size_t max = 1 + (size_t)setup->devices * (STRATEGY_COUNT + (size_t)setup->group_count);
  plan->rows = calloc(max, sizeof *plan->rows);
  if (!plan->rows) return status_set(STATUS_NO_MEMORY, "no memory for a plan of %zu rows", max);
  Status status = add_row(setup, STRATEGY_SINGLE, 0, 1, plan);
  for (int devices = 2; devices <= setup->devices; devices++)
    for (int s = 0; status == STATUS_OK && (setup->counts_tried >> (devices - 1) & 1) && s < STRATEGY_COUNT; s++)
      status = add_rows(setup, (Strategy)s, devices, plan);
  if (status == STATUS_OK)
    finish(plan);
  else
    planner_release(plan);
  return status;
}

void planner_release(Plan *plan) {
  free(plan->rows);
  *plan = (Plan){0};
}

enum { DECISION = 160, PART = 64 };

/* "astra with 16 groups on 4 devices" */
static const char *describe(const PlanRow *row, char text[PART]) {
  char groups[24] = "";
  if (row->groups) snprintf(groups, sizeof groups, " with %d group%s", row->groups, row->groups == 1 ? "" : "s");
  snprintf(text, PART, "%s%s on %d devices", strategy_facts(row->strategy)->name, groups, row->devices);
  return text;
}

const char *planner_decision(const Plan *plan, char text[160]) {
  const PlanRow *best = plan->best, *trained = plan->trained;
  char name[PART], more[PART + 40] = "";
  if (trained) snprintf(more, sizeof more, "; with training, %s: %.1f ms", describe(trained, name), 1e3 * trained->latency);
  if (best->devices == 1)
    snprintf(text, DECISION, "one device is faster%s: %.1f ms%s", trained ? " than what needs no training" : "", 1e3 * best->latency, more);
  else
    snprintf(text, DECISION, "use %s: %.1f ms, %.2f times as fast as one%s", describe(best, name), 1e3 * best->latency, best->speedup,
             more);
  return text;
}
