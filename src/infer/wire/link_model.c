/* The arithmetic of a link. Random numbers: one stream for what is lost and one for jitter, so that either can be changed alone. */
#include "infer/wire/link_model.h"
#include <math.h>

void link_model_init(LinkModel *link, const LinkOptions *options, int from, int to) {
  uint64_t pair = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
  *link = (LinkModel){
      .options = options, .rate = options->bits_per_second, .latency = options->latency, .busy = -INFINITY, .arrived = -INFINITY};
  rng_init(&link->fate, options->seed, 2 * pair);
  rng_init(&link->jitter, options->seed, 2 * pair + 1);
}

void link_model_limit(LinkModel *link, double rate, double latency) {
  link->rate = link_slower(link->rate, rate);
  link->latency = fmax(link->latency, latency);
}

static double rate_at(const LinkModel *link, double at) {
  return link->options->trace.count ? link_trace_rate(&link->options->trace, at) : link->rate;
}

/* A bucket that is full after a pause lets as much pass as if the link had begun to send that much earlier. */
double link_model_leave(LinkModel *link, double ready, size_t bytes) {
  const LinkOptions *o = link->options;
  double bits = 8 * (double)(bytes + o->overhead), rate = rate_at(link, ready);
  if (!o->trace.count && rate <= 0) return ready;
  double credit = rate > 0 ? 8 * o->burst_bytes / rate : 0, from = fmax(link->busy, ready - credit);
  link->busy = o->trace.count ? link_trace_advance(&o->trace, from, bits) : from + bits / rate;
  return fmax(ready, link->busy);
}

double link_model_arrive(LinkModel *link, double left) {
  const LinkOptions *o = link->options;
  double delay = link->latency;
  if (o->jitter > 0) delay += o->jitter * (2 * rng_uniform(&link->jitter) - 1);
  return link->arrived = fmax(left + fmax(delay, 0), link->arrived);
}

/* Gilbert and Elliott: the bad state is left with 1 / b and entered so that it holds the wanted share of packets. */
static void change_state(LinkModel *link) {
  double p = link->options->loss, leave = 1 / fmax(1, link->options->loss_burst), draw = rng_uniform(&link->fate);
  link->bad = link->bad ? draw >= leave : draw < leave * p / (1 - p);
}

bool link_model_loses(LinkModel *link) {
  const LinkOptions *o = link->options;
  if (o->loss <= 0 || o->lose_tokens) return false;
  if (o->loss_model == LOSS_BERNOULLI) return rng_uniform(&link->fate) < o->loss;
  change_state(link);
  return link->bad;
}
