/* A tokenizer as the metadata of a GGUF file, as llama.cpp's converter writes them. */
#ifndef UNIT_GGUF_TOKENIZER_H
#define UNIT_GGUF_TOKENIZER_H
#include "data/tokenizer/tokenizer_internal.h"
#include "unit/gguf_writer.h"

enum { GT_NORMAL = 1, GT_UNKNOWN = 2, GT_CONTROL = 3, GT_USER = 4, GT_BYTE = 6, GT_PIECE = 2048 };

static inline bool gguf_tokenizer_findable(const Tokenizer *tokenizer, int32_t id) {
  size_t size;
  const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
  return bpe_pieces_find(&tokenizer->pieces, bytes, size) == id;
}

static inline int32_t gguf_tokenizer_type(const Tokenizer *tokenizer, int32_t id) {
  if (tokenizer->kind != TOKENIZER_SCORES) return gguf_tokenizer_findable(tokenizer, id) ? GT_NORMAL : GT_CONTROL;
  return id == 0 ? GT_UNKNOWN : id < 3 ? GT_CONTROL : id < 259 ? GT_BYTE : GT_NORMAL;
}

/* U+2581 for each space; bytes as <0x0A>; what has no text by its usual name. */
static inline size_t gguf_tokenizer_scored_text(const Tokenizer *tokenizer, int32_t id, char *text) {
  static const char *const names[] = {"<unk>", "<s>", "</s>"};
  size_t size, used = 0;
  const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
  if (id < 3) return (size_t)sprintf(text, "%s", names[id]);
  if (id < 259) return (size_t)sprintf(text, "<0x%02X>", (unsigned)id - 3);
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] == ' ')
      memcpy(text + used, "\xe2\x96\x81", 3), used += 3;
    else
      text[used++] = bytes[i];
  }
  return used;
}

static inline void gguf_tokenizer_add_tokens(GgufWriter *writer, const Tokenizer *tokenizer) {
  gguf_add_array(writer, "tokenizer.ggml.tokens", 8, (uint64_t)tokenizer->pieces.count);
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) {
    char text[GT_PIECE];
    size_t size;
    const char *bytes = bpe_pieces_text(&tokenizer->pieces, id, &size);
    if (size > GT_PIECE / 3) abort();
    if (tokenizer->kind == TOKENIZER_SCORES)
      size = gguf_tokenizer_scored_text(tokenizer, id, text);
    else if (gguf_tokenizer_findable(tokenizer, id))
      size = bpe_alphabet_write(bytes, size, text);
    else
      memcpy(text, bytes, size);
    gguf_put_text(&writer->entries, text, size);
  }
  gguf_add_array(writer, "tokenizer.ggml.token_type", 5, (uint64_t)tokenizer->pieces.count);
  for (int32_t id = 0; id < tokenizer->pieces.count; id++) gguf_put_u32(&writer->entries, (uint32_t)gguf_tokenizer_type(tokenizer, id));
}

/* tokenizer.ggml.merges: of a tokenizer with a list of them, that; of one with ranks, all ways in which a piece is two pieces. */
static inline void gguf_tokenizer_add_merges(GgufWriter *writer, const Tokenizer *tokenizer) {
  const BpePieces *pieces = &tokenizer->pieces;
  GgufBytes list = {0};
  uint64_t count = 0;
  for (int64_t i = 0; i < tokenizer->merge_count; i++, count++) {
    char text[GT_PIECE];
    size_t size, used;
    const char *bytes = bpe_pieces_text(pieces, tokenizer->merges[i].left, &size);
    used = bpe_alphabet_write(bytes, size, text);
    text[used++] = ' ';
    bytes = bpe_pieces_text(pieces, tokenizer->merges[i].right, &size);
    used += bpe_alphabet_write(bytes, size, text + used);
    gguf_put_text(&list, text, used);
  }
  for (int32_t id = 0; tokenizer->kind == TOKENIZER_RANKS && id < pieces->count; id++) {
    size_t size;
    const char *bytes = bpe_pieces_text(pieces, id, &size);
    for (size_t cut = 1; gguf_tokenizer_findable(tokenizer, id) && cut < size; cut++) {
      char text[GT_PIECE];
      if (bpe_pieces_find(pieces, bytes, cut) < 0 || bpe_pieces_find(pieces, bytes + cut, size - cut) < 0) continue;
      size_t used = bpe_alphabet_write(bytes, cut, text);
      text[used++] = ' ';
      used += bpe_alphabet_write(bytes + cut, size - cut, text + used);
      gguf_put_text(&list, text, used);
      count++;
    }
  }
  gguf_add_array(writer, "tokenizer.ggml.merges", 8, count);
  gguf_put(&writer->entries, list.data, list.size);
  free(list.data);
}

static inline void gguf_tokenizer_write(GgufWriter *writer, const Tokenizer *tokenizer) {
  bool scores = tokenizer->kind == TOKENIZER_SCORES;
  gguf_add_text(writer, "tokenizer.ggml.model", scores ? "llama" : "gpt2");
  gguf_add_text(writer, "tokenizer.ggml.pre", scores ? "default" : tokenizer->pattern == BPE_PATTERN_LLAMA3 ? "llama-bpe" : "gpt-2");
  gguf_tokenizer_add_tokens(writer, tokenizer);
  if (scores) {
    gguf_add_array(writer, "tokenizer.ggml.scores", 6, (uint64_t)tokenizer->pieces.count);
    gguf_put(&writer->entries, tokenizer->scores, (size_t)tokenizer->pieces.count * sizeof(float));
  } else {
    gguf_tokenizer_add_merges(writer, tokenizer);
  }
  int32_t begin = tokenizer->begin >= 0 ? tokenizer->begin : tokenizer->end; /* so it is for GPT-2 */
  if (begin >= 0) gguf_add_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)begin);
  if (tokenizer->end >= 0) gguf_add_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)tokenizer->end);
}

#endif
