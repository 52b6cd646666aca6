/* A prompt through a running cluster: its text goes on token by token. Printing is the caller's. */
#ifndef INFER_GENERATE_H
#define INFER_GENERATE_H
#include "infer/cluster/leader.h"
#include "infer/text_stream.h"
#include "infer/vocabulary.h"

typedef struct GenerateOptions {
  Sampling sampling;        /* vocabulary and ends are set by generate_run */
  const char *const *stops; /* [stop_count] */
  int stop_count;
  TextStreamWrite *write; /* gets the new text as it comes; NULL: nobody does */
  void *context;
} GenerateOptions;

#define GENERATE_ENDS(X)                                                                                                                   \
  X(LENGTH, "length")   /* as many tokens as were wanted */                                                                                \
  X(END, "end")         /* the model has ended the text */                                                                                 \
  X(STOP, "stop")       /* a stop string came */                                                                                           \
  X(CONTEXT, "context") /* the context is full */

typedef enum GenerateEnd {
#define GENERATE_ENUM(name, text) GENERATE_##name,
  GENERATE_ENDS(GENERATE_ENUM)
#undef GENERATE_ENUM
} GenerateEnd;
const char *generate_end_name(GenerateEnd end);

/* Bytes, of the node that decodes. */
typedef struct GenerateMemory {
  int64_t weights;    /* mapped, shared by all nodes and not copied by any */
  int64_t codebooks;  /* likewise */
  int64_t tables;     /* of keys and values of codewords, likewise */
  int64_t cache_rows; /* keys and values in full */
  int64_t cache_codes;
  int64_t cache_full; /* what these tokens would take in full */
  int64_t buffers;    /* the most that its computation held while it did this, and its room for codes, requests and answers */
} GenerateMemory;

typedef struct Generation {
  int64_t prompt_tokens;
  int nodes;     /* that took part */
  int decoder;   /* the one that decoded */
  TokenList ids; /* new ones */
  char *text;    /* [bytes], and a NUL behind: what the stream let through */
  size_t bytes, capacity;
  double first_seconds; /* from the request to the first token */
  double seconds;       /* from the first token to the last */
  GenerateEnd end;
  int64_t bytes_sent; /* by all nodes together */
  GenerateMemory memory;
} Generation;

/* prompt: its ids, at least one; more than the cluster was made for is BAD_VALUE and names both numbers. Release *generation whatever comes
 * back. */
Status generate_run(Leader *leader, const Vocabulary *vocabulary, const GenerateOptions *options, const TokenList *prompt,
                    Generation *generation);
void generate_release(Generation *generation);

double generate_rate(const Generation *generation); /* tokens a second after the first; 0 with fewer than two */

#endif
