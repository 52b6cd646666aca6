/* The simulation. */
#include "infer/virtual/net_sim.h"

Status net_sim_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result) {
  (void)devices, (void)links, (void)options;
  *result = (SimResult){0};
  return status_set(STATUS_UNSUPPORTED, "a network of %d devices: this version cannot compute one yet", count);
}
