/* The table of strategies. */
#include "nn/strategy.h"
#include <stdio.h>
#include <string.h>

static const StrategyFacts facts[STRATEGY_COUNT] = {
    [STRATEGY_ASTRA] =
        {.name = "astra", .needs_codebooks = true, .divides_tokens = true, .sends_codes = true, .decodes = true, .right_answers = true},
    [STRATEGY_SINGLE] = {.name = "single", .decodes = true, .right_answers = true},
    [STRATEGY_TP] = {.name = "tp", .right_answers = true},
    [STRATEGY_SP] = {.name = "sp", .divides_tokens = true, .right_answers = true},
    [STRATEGY_BP_AG] = {.name = "bp-ag"},
    [STRATEGY_BP_SP] = {.name = "bp-sp"},
};

const StrategyFacts *strategy_facts(Strategy strategy) { return &facts[strategy]; }

Status strategy_find(Strategy *strategy, const char *name) {
  char names[80] = "";
  size_t used = 0;
  for (int i = 0; i < STRATEGY_COUNT; i++) {
    *strategy = (Strategy)i;
    if (strcmp(facts[i].name, name) == 0) return STATUS_OK;
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", facts[i].name);
  }
  return status_set(STATUS_BAD_VALUE, "\"%s\" is no strategy; accepted are %s", name, names);
}
