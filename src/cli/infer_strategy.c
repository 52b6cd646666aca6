/* See infer_strategy.h. */
#include "cli/infer_strategy.h"
#include "base/log.h"
#include "infer/node_share.h"

static const char notice[] = "latency baseline: the accuracy would need its own training";

static bool given(const Option *options, const char *name) {
  const Option *option = options_find(options, name);
  return option && option->given;
}

Status infer_strategy_check(const InferSettings *s, const Option *options) {
  const StrategyFacts *facts = strategy_facts((Strategy)s->strategy);
  bool retains = s->strategy == STRATEGY_BP_AG || s->strategy == STRATEGY_BP_SP;
  if (given(options, "retained") && !retains) return status_set(STATUS_BAD_USAGE, "--retained is for --strategy bp-ag and bp-sp");
  if (s->split && !facts->divides_tokens)
    return status_set(STATUS_BAD_USAGE, "--split: --strategy %s divides no tokens; --nodes N says how many nodes there are", facts->name);
  if ((s->prompts.count > 0 || s->prompt_file) && !facts->decodes)
    return status_set(STATUS_BAD_USAGE,
                      "--strategy %s keeps nothing from token to token, so that it cannot go on from a prompt: astra and single can; "
                      "`astra-infer eval` takes every strategy",
                      facts->name);
  return STATUS_OK;
}

Status infer_strategy_read(const InferSettings *s, ClusterSetup *setup) {
  const StrategyFacts *facts = strategy_facts((Strategy)s->strategy);
  setup->strategy = (Strategy)s->strategy;
  setup->retained = (int)s->retained;
  if (facts->sends_codes) return STATUS_OK;
  if (setup->transport == TRANSPORT_UDP && setup->strategy == STRATEGY_SINGLE)
    return status_set(STATUS_BAD_USAGE, "--strategy single sends nothing between nodes: leave out --transport udp");
  if (setup->transport == TRANSPORT_UDP)
    return status_set(STATUS_BAD_USAGE, "--strategy %s sends whole tokens: --transport tcp", facts->name);
  if (setup->parts > 1) return status_set(STATUS_BAD_USAGE, "--parts: --strategy %s knows no parts of blocks, astra does", facts->name);
  if (setup->reliability.deadline > 0)
    return status_set(STATUS_BAD_USAGE, "--deadline: --strategy %s cannot go on without what has not come, astra can", facts->name);
  if (setup->links.lose_tokens && setup->links.loss > 0)
    return status_set(STATUS_BAD_USAGE, "--loss: --strategy %s cannot go on without what was lost, astra can", facts->name);
  setup->links.lose_tokens = false;
  return STATUS_OK;
}

static const StrategyFacts *facts_of(const Leader *leader) { return strategy_facts(node_share_strategy(leader_setup(leader))); }

void infer_strategy_notice(const Leader *leader) {
  if (!facts_of(leader)->right_answers) log_warning("strategy %s: %s", facts_of(leader)->name, notice);
}

void infer_strategy_json(json_t *value, const Leader *leader) {
  json_object_set_new(value, "strategy", json_string(strategy_facts(leader_setup(leader)->strategy)->name));
  if (!facts_of(leader)->right_answers) json_object_set_new(value, "notice", json_string(notice));
}
