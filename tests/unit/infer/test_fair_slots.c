/* A table shared between addresses: none has more than its share, a newcomer to a full table takes the slot of the oldest of the address
 * that has most, so that a flood from one address costs only itself, and one from many addresses gives all the same time; slots that are
 * given back are taken again; random histories against a model that searches everything. */
#include "base/rng.h"
#include "infer/cluster/fair_slots.h"
#include <cmocka.h>
#include <stdbool.h>

enum { CAPACITY = 8, SHARE = 4, ADDRESSES = 12 };

typedef struct Table {
  FairSlots slots;
  uint64_t address[ADDRESSES]; /* of different buckets */
} Table;

static int bucket(uint64_t address) { return (int)(address % FAIR_BUCKETS); }

/* The hash's key is random: addresses are chosen so that no two share a bucket. */
static void open_table(Table *t, int capacity, int share) {
  uint64_t number = 0;
  assert_int_equal(fair_slots_init(&t->slots, capacity, share), STATUS_OK);
  for (int a = 0; a < ADDRESSES; number++) {
    bool alone = true;
    t->address[a] = fair_slots_address(&t->slots, &number, sizeof number);
    for (int b = 0; b < a; b++) alone = alone && bucket(t->address[b]) != bucket(t->address[a]);
    a += alone;
  }
}

static int take(Table *t, int a) {
  static double now = 0;
  const int slot = fair_slots_take(&t->slots, t->address[a], ++now);
  assert_in_range(slot, 0, t->slots.capacity - 1);
  assert_true(t->slots.slots[slot].since == now);
  return slot;
}

static int victim(const Table *t, int a) { return fair_slots_victim(&t->slots, t->address[a]); }

/* As a newcomer does: frees a slot where it must, and takes one. */
static int arrive(Table *t, int a) {
  const int leaves = victim(t, a);
  if (leaves >= 0) fair_slots_give(&t->slots, leaves);
  return take(t, a);
}

static void no_address_has_more_than_its_share(void **state) {
  (void)state;
  Table t;
  int own[SHARE];
  open_table(&t, CAPACITY, SHARE);
  for (int i = 0; i < SHARE; i++) {
    assert_int_equal(victim(&t, 0), -1);
    own[i] = take(&t, 0);
  }
  assert_int_equal(victim(&t, 0), own[0]); /* though half of the table is free */
  assert_int_equal(victim(&t, 1), -1);
  for (int i = 0; i < 3 * SHARE; i++) {
    assert_int_equal(victim(&t, 0), own[i % SHARE]);
    own[i % SHARE] = arrive(&t, 0);
    assert_int_equal(t.slots.used, SHARE);
  }
  fair_slots_release(&t.slots);
}

static void a_full_table_gives_up_the_oldest_of_who_has_most(void **state) {
  (void)state;
  Table t;
  open_table(&t, CAPACITY, SHARE);
  const int c = take(&t, 2), b = take(&t, 1);
  int a[SHARE];
  for (int i = 0; i < SHARE; i++) a[i] = take(&t, 0);
  take(&t, 1);
  assert_int_equal(victim(&t, 3), -1);
  take(&t, 1);
  assert_int_equal(victim(&t, 3), a[0]); /* 4, 3 and 1: not the oldest of all, which is c */
  arrive(&t, 3);
  assert_int_equal(victim(&t, 3), b); /* 3, 3, 1 and 1: of two that have most, the older one */
  arrive(&t, 3);
  assert_int_equal(victim(&t, 3), a[1]); /* 3, 2, 1 and 2 */
  assert_int_equal(victim(&t, 0), a[1]); /* below its share it is a newcomer like any other */
  assert_int_equal(fair_slots_any_victim(&t.slots), a[1]);
  assert_int_equal(t.slots.slots[c].bucket, bucket(t.address[2]));
  assert_int_equal(t.slots.used, CAPACITY);
  fair_slots_release(&t.slots);
}

static void a_flood_from_one_address_costs_only_itself(void **state) {
  (void)state;
  Table t;
  int kept[CAPACITY - SHARE];
  open_table(&t, CAPACITY, SHARE);
  for (int i = 0; i < CAPACITY - SHARE; i++) kept[i] = take(&t, 1 + i);
  for (int i = 0; i < 1000; i++) arrive(&t, 0);
  for (int i = 0; i < CAPACITY - SHARE; i++) assert_int_equal(t.slots.slots[kept[i]].bucket, bucket(t.address[1 + i]));
  assert_int_equal(t.slots.used, CAPACITY);
  fair_slots_release(&t.slots);
}

static void a_flood_from_many_addresses_gives_all_the_same_time(void **state) {
  (void)state;
  Table t;
  int taken[CAPACITY];
  open_table(&t, CAPACITY, SHARE);
  for (int i = 0; i < CAPACITY; i++) taken[i] = take(&t, i % ADDRESSES);
  for (int i = CAPACITY; i < 20 * CAPACITY; i++) {
    assert_int_equal(victim(&t, i % ADDRESSES), taken[i % CAPACITY]);
    taken[i % CAPACITY] = arrive(&t, i % ADDRESSES);
  }
  fair_slots_release(&t.slots);
}

/* Each of an address's slots may leave first: the others stay in their order. */
static void slots_that_are_given_back_are_taken_again(void **state) {
  (void)state;
  for (int first = 0; first < SHARE; first++) {
    Table t;
    int own[SHARE];
    open_table(&t, SHARE, SHARE);
    for (int i = 0; i < SHARE; i++) own[i] = take(&t, 0);
    fair_slots_give(&t.slots, own[first]);
    assert_int_equal(t.slots.slots[own[first]].bucket, -1);
    assert_int_equal(victim(&t, 0), -1);
    assert_int_equal(take(&t, 1), own[first]);
    for (int i = 0; i < SHARE; i++) {
      if (i == first) continue;
      assert_int_equal(fair_slots_any_victim(&t.slots), own[i]); /* older than the other address's, and no fewer */
      fair_slots_give(&t.slots, own[i]);
    }
    assert_int_equal(fair_slots_any_victim(&t.slots), own[first]);
    fair_slots_give(&t.slots, own[first]);
    assert_int_equal(fair_slots_any_victim(&t.slots), -1);
    assert_int_equal(t.slots.used, 0);
    bool seen[SHARE] = {false};
    for (int i = 0; i < SHARE; i++) {
      const int slot = take(&t, 2);
      assert_false(seen[slot]);
      seen[slot] = true;
    }
    assert_int_equal(t.slots.free, -1);
    fair_slots_release(&t.slots);
  }
}

/* ---- against a model */

typedef struct Model {
  int address[CAPACITY]; /* -1: free */
  int64_t order[CAPACITY];
  int64_t taken;
} Model;

static int count_of(const Model *m, int a) {
  int count = 0;
  for (int i = 0; i < CAPACITY; i++) count += m->address[i] == a;
  return count;
}

static int oldest_of(const Model *m, int a) {
  int oldest = -1;
  for (int i = 0; i < CAPACITY; i++)
    if (m->address[i] == a && (oldest < 0 || m->order[i] < m->order[oldest])) oldest = i;
  return oldest;
}

static int model_any_victim(const Model *m) {
  int best = -1;
  for (int a = 0; a < ADDRESSES; a++) {
    const int count = count_of(m, a), oldest = oldest_of(m, a), most = best < 0 ? 0 : count_of(m, m->address[best]);
    if (count > most || (count > 0 && count == most && m->order[oldest] < m->order[best])) best = oldest;
  }
  return best;
}

static int model_victim(const Model *m, int a) {
  if (count_of(m, a) >= SHARE) return oldest_of(m, a);
  return count_of(m, -1) > 0 ? -1 : model_any_victim(m);
}

static void any_history_is_fair(void **state) {
  (void)state;
  Rng rng;
  Table t;
  Model m = {.taken = 0};
  rng_init(&rng, 7, 1);
  open_table(&t, CAPACITY, SHARE);
  for (int i = 0; i < CAPACITY; i++) m.address[i] = -1;
  for (int step = 0; step < 50000; step++) {
    const int a = (int)(rng_below(&rng, 3) ? rng_below(&rng, 3) : rng_below(&rng, ADDRESSES)); /* some come often */
    const int leaves = rng_below(&rng, 3) ? model_victim(&m, a) : (int)rng_below(&rng, CAPACITY);
    assert_int_equal(victim(&t, a), model_victim(&m, a));
    assert_int_equal(fair_slots_any_victim(&t.slots), model_any_victim(&m));
    if (leaves >= 0 && m.address[leaves] >= 0) {
      fair_slots_give(&t.slots, leaves);
      m.address[leaves] = -1;
    }
    if (model_victim(&m, a) < 0) {
      const int slot = take(&t, a);
      assert_int_equal(m.address[slot], -1);
      m.address[slot] = a;
      m.order[slot] = ++m.taken;
    }
    assert_int_equal(t.slots.used, CAPACITY - count_of(&m, -1));
    assert_true(count_of(&m, a) <= SHARE);
  }
  fair_slots_release(&t.slots);
}

/* ---- addresses */

/* Equal bytes share slots; which others do, nobody outside can tell: each table has a key of its own. */
static void addresses_are_hashed_with_a_key(void **state) {
  (void)state;
  static const uint8_t v4[] = {192, 0, 2, 1}, v6[] = {32, 1, 13, 184, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9};
  FairSlots one, other;
  assert_int_equal(fair_slots_init(&one, CAPACITY, SHARE), STATUS_OK);
  assert_int_equal(fair_slots_init(&other, CAPACITY, SHARE), STATUS_OK);
  assert_true(fair_slots_address(&one, v4, sizeof v4) == fair_slots_address(&one, v4, sizeof v4));
  assert_true(fair_slots_address(&one, v4, 4) != fair_slots_address(&one, v4, 3));
  assert_true(fair_slots_address(&one, v6, 16) == fair_slots_address(&one, v6, 8)); /* a network of IPv6 */
  assert_true(fair_slots_address(&one, v4, sizeof v4) != fair_slots_address(&other, v4, sizeof v4));
  fair_slots_release(&one);
  fair_slots_release(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_address_has_more_than_its_share),
                                     cmocka_unit_test(a_full_table_gives_up_the_oldest_of_who_has_most),
                                     cmocka_unit_test(a_flood_from_one_address_costs_only_itself),
                                     cmocka_unit_test(a_flood_from_many_addresses_gives_all_the_same_time),
                                     cmocka_unit_test(slots_that_are_given_back_are_taken_again),
                                     cmocka_unit_test(any_history_is_fair),
                                     cmocka_unit_test(addresses_are_hashed_with_a_key)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
