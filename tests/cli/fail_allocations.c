/* A library to preload: lets one request for memory fail that a program of the project makes from its own code, and counts them. Requests
 * of libraries are left alone: what these do without memory is theirs.
 *
 * FAIL_COUNT names a file of at least eight bytes, which all processes of a run count in; request FAIL_AT of them fails, counted from 0;
 * without it none does. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

static uintptr_t code_begin, code_end; /* of the program */
static atomic_long *count;
static long fail_at = -1;

static void *map(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset); /* NOLINT: the system's answer is an address */
}

/* The first object is the program. */
static int find_code(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size, (void)context;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    if (header->p_type != PT_LOAD || !(header->p_flags & PF_X)) continue;
    code_begin = info->dlpi_addr + header->p_vaddr;
    code_end = code_begin + header->p_memsz;
  }
  return 1;
}

/* Programs that only start one of ours (timeout, env) are not counted. */
__attribute__((constructor)) static void start(void) {
  const char *file = getenv("FAIL_COUNT"), *at = getenv("FAIL_AT");
  if (file == NULL || strncmp(program_invocation_short_name, "astra-", 6) != 0) return;
  const int fd = open(file, O_RDWR | O_CLOEXEC);
  void *shared = fd < 0 ? MAP_FAILED : map(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) _exit(99);
  close(fd);
  if (at) fail_at = strtol(at, NULL, 10);
  dl_iterate_phdr(find_code, NULL);
  count = shared;
}

static int fails(const void *caller) {
  if (count == NULL || (uintptr_t)caller < code_begin || (uintptr_t)caller >= code_end) return 0;
  if (atomic_fetch_add(count, 1) != fail_at) return 0;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t number, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(number, size); }
void *realloc(void *block, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(block, size); }
void *aligned_alloc(size_t align, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, size); }

int posix_memalign(void **block, size_t align, size_t size) {
  void *got = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, size);
  if (got == NULL) return ENOMEM;
  *block = got;
  return 0;
}

char *strdup(const char *text) {
  const size_t size = strlen(text) + 1;
  char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
  return copy ? memcpy(copy, text, size) : NULL;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  return fails(__builtin_return_address(0)) ? MAP_FAILED : map(address, length, protection, flags, fd, offset);
}
