/* Text to token ids and back, exactly as the models' own tokenizers do it: GPT-2's byte-level BPE (Radford et al. 2019), Llama-3's, and the
 * scored vocabulary of small Llama models (llama2.c's tokenizer.bin). Files: docs/FORMATS.md.
 *
 * Text is any bytes, NUL and invalid UTF-8 included: decoding what was encoded gives the same bytes, but for the names of unknown, begin
 * and end of a scored vocabulary where special tokens are meant: those have no text.
 * Threads: any number may use one tokenizer at the same time, for everything but tokenizer_close. */
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing list of token ids. Owned by the caller: zero it first, token_list_release at the end; count = 0 uses it again. */
typedef struct TokenList {
  int32_t *ids; /* [capacity], of which count are set */
  size_t count, capacity;
} TokenList;

Status token_list_add(TokenList *list, int32_t id);
void token_list_release(TokenList *list); /* the list is zeroed */

typedef struct Tokenizer Tokenizer;

/* From a directory (a checkpoint or a tokenizer alone), where tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe,
 * tokenizer.model and tok*.bin are looked for in this order, or from one of these files (the other one of a pair beside it), or
 * from the metadata of a GGUF file.
 * NOT_FOUND, BAD_FILE or UNSUPPORTED name the file; *tokenizer is NULL then. */
Status tokenizer_open(Tokenizer **tokenizer, const char *path);

/* Whether files of this name are of a tokenizer as tokenizer_open finds it in a directory, either one of a pair. */
bool tokenizer_is_file(const char *name);
void tokenizer_close(Tokenizer *tokenizer); /* accepts NULL */

int64_t tokenizer_count(const Tokenizer *tokenizer); /* ids are 0 .. count - 1 */

/* Whether it can be that of a model whose table of tokens has `rows` rows: as many as ids, or up to 255 more, which fill a multiple of a
 * power of two. */
bool tokenizer_fits(const Tokenizer *tokenizer, int64_t rows);

/* Appends the ids of text [bytes] to out. `special`: where the text of a special token stands, that token is meant; otherwise it is text
 * like any other. Added tokens that the files call not special are meant in any case. No token for begin or end is added. After a failure
 * (NO_MEMORY, BAD_VALUE) out is as before. */
Status tokenizer_encode(Tokenizer *tokenizer, const char *text, size_t bytes, bool special, TokenList *out);

/* The text of ids [count], from the beginning of a text on: *text is malloc'd (caller frees), with a NUL behind its *bytes bytes. With a
 * scored vocabulary the spaces that encoding put in front, and behind special tokens, are taken away again. BAD_VALUE: an id out of range;
 * *text is NULL then. */
Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count, char **text, size_t *bytes);

/* The bytes of one id, for text that is shown as it comes; NULL (and 0) for an id out of range, "" for one without text. The tokenizer's. A
 * character may be spread over several ids. */
const char *tokenizer_piece(const Tokenizer *tokenizer, int32_t id, size_t *bytes);

/* The bytes of a document's text that `id` stands for, behind the id `before` (-1: none) in documents as token_cache.h joins them, so that
 * the sum over a corpus is its bytes: those of the piece; 0 for begin and end; and of the first token of a document, or behind an added
 * token, without the space that encoding with a scored vocabulary puts in front of it. 0 for an id out of range. */
size_t tokenizer_text_bytes(const Tokenizer *tokenizer, int32_t before, int32_t id);

/* The tokens for begin and end of text; -1: there is none. GPT-2 has an end only, <|endoftext|>, which also separates documents. */
int32_t tokenizer_begin(const Tokenizer *tokenizer);
int32_t tokenizer_end(const Tokenizer *tokenizer);

/* SHA-256, 64 hexadecimal digits, over everything that decides which ids a text has. The same for the same tokenizer in other files, but
 * for a Llama-3 tokenizer.json and tokenizer.model, which break ties differently. The tokenizer's. */
const char *tokenizer_fingerprint(const Tokenizer *tokenizer);

/* What a cache of tokens or a set of labelled texts needs of a tokenizer, so that these can be tested without one. */
typedef struct TextEncoder {
  Status (*encode)(void *context, const char *text, size_t bytes, TokenList *out); /* appends; texts of special tokens stay text */
  void *context;
  int64_t vocabulary;      /* ids are 0 .. vocabulary - 1 */
  int32_t begin;           /* put before each text; -1: none */
  int32_t separator;       /* put between documents; -1: none */
  bool cuttable;           /* cuts as in text_source_start change no token */
  const char *fingerprint; /* SHA-256 in lower-case hexadecimal over what defines it */
} TextEncoder;

/* Over a tokenizer, which must outlive it. The separator is its end of text; its beginning of text is put before each document if that is
 * another token (Llama), not if it is the same (GPT-2). Whether texts may be cut is found out by encoding a sentence whole and in two; they
 * may not where an added token that is recognised in any text has a space. */
Status tokenizer_encoder(TextEncoder *encoder, Tokenizer *tokenizer);

/* Writes the tokenizer's files into a directory (made if need be), for tokenizer_open: vocab.json, merges.txt and tokenizer.json for
 * GPT-2's kind, tokenizer.model or tokenizer.json for Llama-3's, tokN.bin (N pieces) for a scored vocabulary. BAD_VALUE, and nothing
 * written: the directory holds another file that tokenizer_open would prefer. UNSUPPORTED likewise: a scored vocabulary that came with
 * special tokens besides the first ids, which tokN.bin has no place for, a begin and end that the files cannot tell, special tokens that
 * are not UTF-8 or have a NUL, which JSON cannot hold, or several tokens of one text. */
Status tokenizer_save(const Tokenizer *tokenizer, const char *directory);
Status tokenizer_save_check(const Tokenizer *tokenizer, const char *directory); /* that refusal alone, for before the work */

/* Training a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): text is cut into pieces by GPT-2's expression, every byte begins
 * as a symbol, and the most frequent two neighbours are merged until the vocabulary is full. Of pairs that are equally frequent the one
 * whose left symbol has the lowest id is merged, then the one whose right symbol has. The result depends on the text alone; the order of
 * the files matters only where a piece would reach over the end of one. One thread; 14 MB of English take seconds. */

enum { TOKENIZER_TRAIN_MIN = 257, TOKENIZER_TRAIN_MAX = 1000000 }; /* pieces of a vocabulary: 256 bytes and <|endoftext|> */

typedef struct TokenizerTraining {
  bool quiet;           /* no progress bar */
  int64_t bytes, words; /* set: bytes of text, distinct pieces in it */
} TokenizerTraining;

/* A tokenizer of `pieces` pieces from files [count], plain or .gz: ids 0 to 255 the bytes in the order of GPT-2's alphabet, then merges,
 * the last one <|endoftext|>. BAD_VALUE: `pieces` out of range, or the text has too few pairs that occur twice; the message names the
 * first file and says how many pieces it allows. *tokenizer is NULL after a failure. */
Status tokenizer_train(Tokenizer **tokenizer, const char *const *files, int count, int64_t pieces, TokenizerTraining *training);

#endif
