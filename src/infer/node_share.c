/* See node_share.h. */
#include "infer/node_share.h"
#include "infer/strategy/collective.h"
#include "nn/tensor_parallel.h"
#include <math.h>
#include <string.h>

Strategy node_share_strategy(const NodeSetup *setup) { return node_setup_count(setup) == 1 ? STRATEGY_SINGLE : setup->strategy; }

bool node_share_everything(const NodeSetup *setup) {
  Strategy strategy = node_share_strategy(setup);
  return strategy != STRATEGY_SINGLE && !strategy_facts(strategy)->divides_tokens;
}

/* ---- what is possible */

static Status check_division(const NodeSetup *setup) {
  const ModelConfig *config = setup->weights->config;
  const TensorParallel how = {.strategy = setup->strategy, .retained = setup->retained};
  const TokenLayout layout = {.rows = 1};
  HeadShare share;
  if (!node_share_everything(setup)) return STATUS_OK;
  if (setup->strategy != STRATEGY_TP) TRY(strategy_check_retained(setup->retained, config->blocks));
  CollectiveSetup collective = {.nodes = node_setup_count(setup),
                                .steps = tensor_parallel_steps(config, &how, 1, &layout, MODEL_ROWS_ALL, NULL)};
  TRY(tensor_parallel_share(config, 0, collective.nodes, &share));
  return collective_check(&collective);
}

Status node_share_check(const NodeSetup *setup) {
  Strategy strategy = node_share_strategy(setup);
  const char *name = strategy_facts(strategy)->name;
  char plain[STRATEGY_LIST];
  if (!setup->weights->books && strategy_facts(strategy)->needs_codebooks)
    return status_set(STATUS_BAD_VALUE,
                      "a plain model (no codebooks) runs on one node only: use --nodes 1, without --peers, or fine-tune it for several "
                      "with astra-train --groups; --strategy %s can do without codebooks, but for single not for prompts",
                      strategy_list(", ", true, plain));
  Status status = check_division(setup);
  if (status != STATUS_OK) return status_wrap(status, "strategy %s", name);
  if (setup->keep_codes && strategy != STRATEGY_ASTRA) return status_set(STATUS_BAD_VALUE, "with strategy %s no codes are exchanged", name);
  return STATUS_OK;
}

Status node_share_check_batch(const NodeSetup *setup) {
  double numbers = setup->split ? 2 * (double)setup->tokens_max : (double)weights_pixels(setup->weights);
  if (setup->split) numbers = fmax(numbers, (double)weights_outputs(setup->weights));
  if (setup->batch_max >= 1 && (double)setup->batch_max * numbers * 4 <= (double)INT32_MAX) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "a batch of %lld is too large for one request; use a smaller --batch or --max-context",
                    (long long)setup->batch_max);
}

/* ---- tokens */

/* The same nodes in another order, such that the home has the last span of a text of that many tokens: span s is node (first + s) mod
 * nodes, and rotated has the weights in the order of spans. Returns `first`; home: 1 + node; 0: the order stays, and *first is 0. */
static int rotate(const TokenSplit *split, int64_t tokens, int home, TokenSplit *rotated) {
  const int nodes = split->nodes, spans = tokens < nodes ? (int)tokens : nodes, first = home == 0 ? 0 : (home - spans + nodes) % nodes;
  *rotated = (TokenSplit){.nodes = nodes};
  for (int s = 0; s < nodes; s++) rotated->weights[s] = split->weights[(first + s) % nodes];
  return first;
}

int node_share_first(const NodeSetup *setup, int64_t tokens, int home) {
  TokenSplit rotated;
  if (!setup->split || !strategy_facts(node_share_strategy(setup))->divides_tokens) return 0;
  return rotate(setup->split, tokens, home, &rotated);
}

int node_share_counts(const NodeSetup *setup, int64_t tokens, int home, int64_t *counts) {
  int nodes = node_setup_count(setup);
  if (strategy_facts(node_share_strategy(setup))->divides_tokens) {
    if (setup->split) {
      int64_t spans[WIRE_NODES];
      TokenSplit rotated;
      const int first = rotate(setup->split, tokens, home, &rotated);
      const int last = token_split_counts(&rotated, tokens, spans) - 1;
      for (int s = 0; s < nodes; s++) counts[(first + s) % nodes] = spans[s];
      return (first + last) % nodes;
    }
    memcpy(counts, setup->partition->counts, (size_t)nodes * sizeof *counts);
    return nodes - 1;
  }
  const int answers = home == 0 ? 0 : home - 1;
  for (int d = 0; d < nodes; d++) counts[d] = d == answers || node_share_everything(setup) ? tokens : 0;
  return answers;
}

Status node_share_layout(const NodeSetup *setup, int64_t tokens, int home, int node, TokenLayout *layout) {
  bool divided = strategy_facts(node_share_strategy(setup))->divides_tokens, takes_part;
  if (divided && !setup->split) return partition_layout(setup->partition, setup->class_token, node, layout);
  if (divided) {
    int64_t counts[WIRE_NODES];
    TokenSplit rotated;
    const int first = rotate(setup->split, tokens, home, &rotated), span = (node - first + rotated.nodes) % rotated.nodes;
    int spans = token_split_counts(&rotated, tokens, counts);
    takes_part = span < spans;
    TRY(layout_build(layout, tokens, spans, counts, NULL, CLASS_NONE, takes_part ? span : -1));
  } else {
    takes_part = node == (home == 0 ? 0 : home - 1) || node_share_everything(setup);
    TRY(layout_build_plain(layout, tokens, setup->class_token));
  }
  if (!takes_part) layout->rows = layout->shared_rows = layout->class_rows = layout->last_rows = 0;
  return STATUS_OK;
}

RequestShare node_share_of(const NodeSetup *setup, int node, const TokenLayout *layout) {
  bool causal = layout->class_token == CLASS_NONE, silent = node > 0 && node_share_everything(setup);
  return (RequestShare){.class_rows = silent ? 0 : layout->class_rows,
                        .sent_rows = causal && layout->last_rows ? 0 : layout->shared_rows,
                        .last = causal && layout->last_rows > 0 && !silent,
                        .tokens = layout->rows - layout->class_rows};
}
