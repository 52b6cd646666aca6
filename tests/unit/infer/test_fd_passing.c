/* Descriptors from process to process: they arrive as they were sent, nothing waits, an end is noticed, none is lost open. */
#include "infer/cluster/fd_passing.h"
#include <cmocka.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static void notes_and_descriptors_arrive(void **state) {
  (void)state;
  int pair[2], pipe_ends[2];
  PassedFd got;
  bool any;
  char byte = 0;
  PassedFd sent = {.kind = FD_STREAM, .epoch = 7, .node = 63};
  assert_int_equal(fd_passing_pair(pair), STATUS_OK);
  assert_int_equal(pipe(pipe_ends), 0);
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_OK);
  assert_false(any);
  sent.fd = pipe_ends[1];
  assert_int_equal(fd_passing_send(pair[0], &sent), STATUS_OK);
  close(pipe_ends[1]); /* it is on its way all the same */
  sent.fd = -1, sent.kind = FD_CONNECTION;
  assert_int_equal(fd_passing_send(pair[0], &sent), STATUS_OK);
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_OK);
  assert_true(any && got.kind == FD_STREAM && got.epoch == 7 && got.node == 63 && got.fd >= 0);
  assert_int_equal(fcntl(got.fd, F_GETFD), FD_CLOEXEC);
  assert_int_equal(write(got.fd, "x", 1), 1);
  assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
  assert_int_equal(byte, 'x');
  close(got.fd);
  assert_int_equal(read(pipe_ends[0], &byte, 1), 0); /* that was the last copy */
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_OK);
  assert_true(any && got.kind == FD_CONNECTION && got.fd == -1);
  close(pipe_ends[0]);
  close(pair[0]);
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_PEER);
  assert_int_equal(fd_passing_send(pair[1], &sent), STATUS_PEER);
  close(pair[1]);
}

static void what_is_no_note_is_refused(void **state) {
  (void)state;
  int pair[2];
  PassedFd got;
  bool any;
  assert_int_equal(fd_passing_pair(pair), STATUS_OK);
  assert_int_equal(send(pair[0], "abc", 3, 0), 3);
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_PEER);
  assert_int_equal(fd_passing_send(pair[0], &(PassedFd){.kind = FD_KIND_END, .fd = -1}), STATUS_OK);
  assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_PEER);
  close(pair[0]);
  close(pair[1]);
}

/* As many as a cluster has links, before the other side looks. */
static void many_are_on_their_way_at_once(void **state) {
  (void)state;
  int pair[2];
  PassedFd got;
  bool any;
  assert_int_equal(fd_passing_pair(pair), STATUS_OK);
  for (uint16_t i = 0; i < 63; i++)
    assert_int_equal(fd_passing_send(pair[0], &(PassedFd){.kind = FD_STREAM, .node = i, .fd = STDIN_FILENO}), STATUS_OK);
  for (uint16_t i = 0; i < 63; i++) {
    assert_int_equal(fd_passing_receive(pair[1], &got, &any), STATUS_OK);
    assert_true(any && got.node == i && got.fd >= 0);
    close(got.fd);
  }
  close(pair[0]);
  close(pair[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(notes_and_descriptors_arrive), cmocka_unit_test(what_is_no_note_is_refused),
                                     cmocka_unit_test(many_are_on_their_way_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
