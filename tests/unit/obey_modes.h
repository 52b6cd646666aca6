/* Root may write anywhere; here it obeys the modes of files for a while. */
#ifndef UNIT_OBEY_MODES_H
#define UNIT_OBEY_MODES_H
#include <linux/capability.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From now on the calling thread obeys them, or no longer. False: the system does not let it choose. */
static inline bool obey_modes(bool obeys) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct sets[2];
  const unsigned may_write = 1u << CAP_DAC_OVERRIDE;
  if (syscall(SYS_capget, &header, sets) != 0) return false;
  sets[0].effective = obeys ? sets[0].effective & ~may_write : sets[0].effective | (sets[0].permitted & may_write);
  return syscall(SYS_capset, &header, sets) == 0;
}

#endif
