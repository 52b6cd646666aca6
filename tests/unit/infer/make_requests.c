/* make_requests DIR PEERS KEY LOCAL tcp|udp rerun|mask REQUESTS TIMEOUT: leads the workers PEERS, and LOCAL (0 or 1) devices of its own,
 * through requests in a row, while somebody else ends and stops devices. Prints a line for each:
 *
 *   request 17: right, 3 of 4 devices, 1 reruns, 5120 kB, 14 descriptors
 *
 * right: its logits are, bit for bit, those that as many devices as took part give when nobody disturbs them, computed beforehand. masked:
 * it says itself that tokens are missing. error: there was no answer, but a message (on stderr). Anything else is wrong: exit code 1. */
#include "base/log.h"
#include "infer/cluster/leader.h"
#include "sample_cluster.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 24, INPUTS = 3, DEVICES = 8 };
static const double undisturbed_timeout = 120, pause_seconds = 0.2;

typedef struct Run {
  Weights weights;
  Address peers[DEVICES];
  ClusterOptions cluster;
  ClusterSetup network;
  int devices, requests, done;
  double timeout;
  int64_t numbers;         /* of an answer: BATCH logits */
  float *pixels[INPUTS];   /* [BATCH, C, H, W] */
  real *expected[DEVICES]; /* [INPUTS][numbers] of so many devices and one more */
  Leader *leader;          /* NULL: none at present */
  int right, masked, wrong, errors, reruns;
} Run;

/* ---- what is right */

static Status open_leader(Run *run, const ClusterOptions *cluster, int devices, Partition *partition, Leader **leader) {
  double timeout = cluster == &run->cluster ? run->timeout : undisturbed_timeout;
  LeaderOptions options = {.batch_max = BATCH, .timeout = timeout, .threads = 1, .network = &run->network, .cluster = cluster};
  TRY(partition_init(partition, config_tokens(run->weights.config), devices, NULL));
  return leader_start(leader, &run->weights, partition, &options);
}

static Status compute_expected(Run *run, int devices) {
  ClusterOptions here = {.local = devices};
  Partition partition = {0};
  Leader *leader = NULL;
  real *to = run->expected[devices - 1] = malloc(INPUTS * (size_t)run->numbers * sizeof *to);
  Status status = to ? open_leader(run, &here, devices, &partition, &leader) : STATUS_NO_MEMORY;
  for (int i = 0; i < INPUTS && status == STATUS_OK; i++) {
    LeaderAnswer answer = {0};
    status = leader_submit(leader, run->pixels[i], BATCH);
    if (status == STATUS_OK) status = leader_collect(leader, &answer);
    if (status == STATUS_OK) memcpy(to + i * run->numbers, answer.logits, (size_t)run->numbers * sizeof *to);
  }
  leader_stop(leader);
  partition_release(&partition);
  return status;
}

static Status prepare(Run *run) {
  for (int i = 0; i < INPUTS; i++) {
    if (!(run->pixels[i] = malloc((size_t)(BATCH * weights_pixels(&run->weights)) * sizeof(float)))) return STATUS_NO_MEMORY;
    sample_pixels(run->weights.config, (uint64_t)(100 + i), BATCH, run->pixels[i]);
  }
  for (int devices = 1; devices <= run->devices; devices++) TRY(compute_expected(run, devices));
  return STATUS_OK;
}

/* ---- what this process takes */

static long memory(void) { /* kB */
  long all, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int descriptors(void) { /* the one that looks included */
  DIR *folder = opendir("/proc/self/fd");
  int count = -2; /* . and .. */
  if (!folder) return 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

static void tell(const Run *run, const char *decision, int devices, int reruns) {
  printf("request %d: %s, %d of %d devices, %d reruns, %ld kB, %d descriptors\n", run->done, decision, devices, run->devices, reruns,
         memory(), descriptors());
}

/* ---- one request after another */

static void check_answer(Run *run, int input, const LeaderAnswer *answer) {
  int devices = 0;
  uint64_t masked = answer->missing;
  for (int m = 0; m < run->devices; m++) {
    devices += answer->counts[m] > 0;
    masked |= answer->nodes[m].masked;
  }
  bool equal = devices > 0 && memcmp(answer->logits, run->expected[devices - 1] + input * run->numbers,
                                     (size_t)run->numbers * sizeof *answer->logits) == 0;
  run->done++;
  run->right += !masked && equal;
  run->masked += masked != 0;
  run->wrong += !masked && !equal;
  run->reruns += answer->reruns;
  tell(run, masked ? "masked" : equal ? "right" : "WRONG", devices, answer->reruns);
}

/* Everything that was under way has failed; the next requests go to a leader of their own. */
static void fail(Run *run) {
  int lost = run->leader ? leader_under_way(run->leader) : 1;
  log_error("%s", status_message());
  leader_stop(run->leader);
  run->leader = NULL;
  for (int i = 0; i < (lost > 0 ? lost : 1) && run->done < run->requests; i++) {
    run->errors++;
    run->done++;
    tell(run, "error", 0, 0);
  }
  nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * pause_seconds)}, NULL);
}

static Status step(Run *run) {
  while (leader_takes_more(run->leader) && run->done + leader_under_way(run->leader) < run->requests)
    TRY(leader_submit(run->leader, run->pixels[(run->done + leader_under_way(run->leader)) % INPUTS], BATCH));
  LeaderAnswer answer;
  int input = run->done % INPUTS;
  TRY(leader_collect(run->leader, &answer));
  check_answer(run, input, &answer);
  return STATUS_OK;
}

static Status begin(Run *run, Partition *partition) {
  partition_release(partition);
  TRY(open_leader(run, &run->cluster, run->devices, partition, &run->leader));
  if (run->cluster.local) printf("node 0 is pid %d\n", (int)leader_pid(run->leader, 0));
  return STATUS_OK;
}

static void go_through(Run *run) {
  Partition partition = {0};
  while (run->done < run->requests) {
    Status status = run->leader ? STATUS_OK : begin(run, &partition);
    if (status == STATUS_OK) status = step(run);
    if (status != STATUS_OK) fail(run);
  }
  leader_stop(run->leader);
  partition_release(&partition);
  printf("%d requests: %d right, %d masked, %d wrong, %d errors, %d reruns\n", run->requests, run->right, run->masked, run->wrong,
         run->errors, run->reruns);
}

/* ---- beginning and end */

static Status read_peers(Run *run, char *list) {
  for (char *rest = list, *one; (one = strtok_r(rest, ",", &rest)) && run->cluster.peer_count < DEVICES - 1;)
    TRY(address_parse(one, &run->peers[run->cluster.peer_count++]));
  return STATUS_OK;
}

static Status read_arguments(Run *run, char **argv) {
  bool datagrams = strcmp(argv[5], "udp") == 0;
  TRY(read_peers(run, argv[2]));
  run->cluster.peers = run->peers;
  run->cluster.local = atoi(argv[4]) > 0;
  run->cluster.on_failure = strcmp(argv[6], "mask") == 0 ? ON_FAILURE_MASK : ON_FAILURE_RERUN;
  run->cluster.wait = 10;
  run->requests = atoi(argv[7]);
  run->timeout = atof(argv[8]);
  run->devices = run->cluster.local + run->cluster.peer_count;
  run->network = (ClusterSetup){.transport = datagrams ? TRANSPORT_UDP : TRANSPORT_TCP,
                                .reliability = {.mode = datagrams ? RELIABILITY_RETRANSMIT : RELIABILITY_STREAM, .min_packets = 1},
                                .parts = 1};
  return weights_load(&run->weights, argv[1]);
}

int main(int argc, char **argv) {
  static Run run;
  KeyFile key;
  if (argc != 9) {
    fprintf(stderr, "usage: make_requests DIR PEERS KEY LOCAL tcp|udp rerun|mask REQUESTS TIMEOUT\n");
    return 2;
  }
  log_program("make_requests");
  setvbuf(stdout, NULL, _IOLBF, 0);
  run.cluster.key = &key;
  Status status = key_file_read(&key, argv[3]);
  if (status == STATUS_OK) status = read_arguments(&run, argv);
  if (status == STATUS_OK) run.numbers = BATCH * run.weights.config->classes;
  if (status == STATUS_OK) status = prepare(&run);
  if (status == STATUS_OK) go_through(&run);
  if (status != STATUS_OK) log_error("%s", status_message());
  for (int i = 0; i < INPUTS; i++) free(run.pixels[i]);
  for (int i = 0; i < DEVICES; i++) free(run.expected[i]);
  weights_release(&run.weights);
  return status != STATUS_OK || run.wrong > 0;
}
