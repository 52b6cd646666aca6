/* Text generation on a running cluster: a prompt is continued token by token. Printing is the caller's. */
#ifndef INFER_GENERATE_H
#define INFER_GENERATE_H
#include "infer/cluster/leader.h"
#include "infer/text_stream.h"
#include "infer/vocabulary.h"

typedef struct GenerateOptions {
  Sampling sampling;        /* vocabulary and ends are set by generate_run */
  const char *const *stops; /* [stop_count] */
  int stop_count;
  TextStreamWrite *write; /* receives the new text as it is generated; NULL: none */
  void *context;
} GenerateOptions;

#define GENERATE_ENDS(X)                                                                                                                   \
  X(LENGTH, "length")   /* the maximum number of tokens */                                                                                 \
  X(END, "end")         /* an end token was generated */                                                                                   \
  X(STOP, "stop")       /* a stop string was generated */                                                                                  \
  X(CONTEXT, "context") /* the context is full */

typedef enum GenerateEnd {
#define GENERATE_ENUM(name, text) GENERATE_##name,
  GENERATE_ENDS(GENERATE_ENUM)
#undef GENERATE_ENUM
} GenerateEnd;

/* Memory of the node that decodes, in bytes. */
typedef struct GenerateMemory {
  int64_t weights;    /* mapped and shared by all nodes */
  int64_t codebooks;  /* shared */
  int64_t tables;     /* of keys and values of codewords; shared */
  int64_t cache_rows; /* keys and values in full */
  int64_t cache_codes;
  int64_t cache_full; /* what the same tokens would take in full */
  int64_t buffers;    /* peak of the computation, and buffers of codes, requests and answers */
} GenerateMemory;

typedef struct Generation {
  int64_t prompt_tokens;
  int nodes;     /* that took part */
  int decoder;   /* the one that decoded */
  TokenList ids; /* new ones */
  char *text;    /* [bytes] and a NUL: what the stream has written */
  size_t bytes, capacity;
  double first_seconds; /* from the request to the first token */
  double seconds;       /* from the first token to the last */
  GenerateEnd end;
  int64_t bytes_sent; /* by all nodes together */
  GenerateMemory memory;
} Generation;

/* prompt: its ids, at least one; BAD_VALUE if there are more than the cluster was made for. Release *generation also after a failure. */
Status generate_run(Leader *leader, const Vocabulary *vocabulary, const GenerateOptions *options, const TokenList *prompt,
                    Generation *generation);
void generate_release(Generation *generation);

#endif
