/* The variables of Open MPI, MPICH and its kin, and PMIx. */
#include "base/launcher.h"
#include <stddef.h>
#include <stdlib.h>

static int first_number(const char *const *names, int otherwise) {
  for (; *names != NULL; names++)
    if (getenv(*names)) return atoi(getenv(*names));
  return otherwise;
}

int launcher_rank(void) { return first_number((const char *const[]){"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL}, -1); }

int launcher_ranks(void) { return first_number((const char *const[]){"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL}, 0); }
