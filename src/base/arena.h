/* A bump allocator over one reserved range of address space.
 *
 *   | used .................. | free ................................ |
 *   base                      base + used                             base + reserved
 *
 * The range is reserved once (pages come on first touch, 2 MiB pages where the kernel gives them) and kept for the
 * arena's life, so that a training step that allocates from it asks the system for nothing after the first one.
 * Blocks are freed together, back to a mark. Under the address sanitizer each block is followed by a red zone. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include <stdbool.h>
#include <stddef.h>

typedef struct Arena Arena;

enum { ARENA_ALIGN = 64 }; /* every block starts on a cache line */

/* Reserves `bytes` of address space (rounded up to pages; halved until the system agrees, never under 1 MiB).
 * NULL when not even that is to be had. Owned by the caller: arena_free. */
Arena *arena_new(size_t bytes);
void arena_free(Arena *arena); /* accepts NULL */

/* Whether the system may give 2 MiB where a block is touched (true at the start), or gives 4 KiB alone: for an arena whose blocks are
 * hardly touched (planning). While no block is in use. */
void arena_huge_pages(Arena *arena, bool huge);

/* An uninitialised block of at least `bytes`, aligned to ARENA_ALIGN; NULL when the range is full. */
void *arena_alloc(Arena *arena, size_t bytes);

void arena_trim(Arena *arena); /* gives free pages back to the system: they come anew, as zeroes, when they are touched */

size_t arena_mark(const Arena *arena);         /* bytes in use now */
void arena_release(Arena *arena, size_t mark); /* back to a mark; 0 empties the arena */
size_t arena_peak(const Arena *arena);         /* maximum bytes ever in use */
void arena_watch(Arena *arena);                /* begins a count of its own: */
size_t arena_watched(const Arena *arena);      /* maximum bytes in use since then */
size_t arena_reserved(const Arena *arena);

#endif
