/* A simulation of nothing but the input. */
#include "infer/plan/predict_input.h"
#include "infer/patches.h"
#include "infer/sim/schedule.h"
#include "infer/wire.h"

static double input_bytes(const PlanCase *plan, int device) {
  bool own = strategy_facts(plan->strategy)->divides_tokens;
  if (config_is_decoder(plan->config)) return WIRE_HEADER + 4.0 * (double)plan->tokens;
  return WIRE_HEADER + (double)patches_bytes(plan->config, 1, own ? plan->counts[device] : plan->tokens, plan->config->channels == 3);
}

static Status input_timelines(const PlanCase *plan, Timeline *timelines) {
  for (int d = 1; d < plan->devices; d++) {
    TRY(schedule_send(&timelines[0], 0, 0, d, schedule_stream(input_bytes(plan, d)), 1ull << d));
    TRY(schedule_wait(&timelines[d], 0, 0, d, 1));
  }
  return STATUS_OK;
}

Status predict_input(const PlanCase *plan, double *seconds) {
  Timeline timelines[WIRE_NODES] = {0};
  LinkOptions links = *plan->links;
  SimResult result;
  TRY(predict_check(plan));
  links.overhead = SCHEDULE_SEGMENT_OVERHEAD;
  links.loss = 0;
  Status status = input_timelines(plan, timelines);
  if (status == STATUS_OK) status = simulate_run(timelines, plan->devices, &links, &(SimOptions){.scale = 1, .ends = plan->ends}, &result);
  if (status == STATUS_OK) *seconds = result.latency;
  for (int d = 0; d < WIRE_NODES; d++) timeline_release(&timelines[d]);
  return status;
}
