/* The identity of a tokenizer: SHA-256 over everything that decides which ids a text has, numbers as 32 bits little-endian. What the files
 * leave open (order of keys, spelling of escapes) has no part in it. */
#include "data/tokenizer/tokenizer_model.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const char version[] = "tokenizer 1";

static bool add_number(EVP_MD_CTX *context, uint32_t number) {
  uint8_t bytes[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16), (uint8_t)(number >> 24)};
  return EVP_DigestUpdate(context, bytes, sizeof bytes);
}

static bool add_facts(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  return add_number(context, tokenizer->kind) && add_number(context, tokenizer->pattern) && add_number(context, tokenizer->whole) &&
         add_number(context, (uint32_t)tokenizer->begin) && add_number(context, (uint32_t)tokenizer->end);
}

static bool add_pieces(EVP_MD_CTX *context, const BpePieces *pieces) {
  bool ok = add_number(context, (uint32_t)pieces->count);
  for (int32_t id = 0; id < pieces->count && ok; id++) {
    size_t size;
    const char *bytes = bpe_pieces_text(pieces, id, &size);
    ok = add_number(context, (uint32_t)size) && EVP_DigestUpdate(context, bytes, size);
  }
  return ok;
}

static bool add_merges(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = add_number(context, (uint32_t)tokenizer->merge_count);
  for (int64_t i = 0; i < tokenizer->merge_count && ok; i++)
    ok = add_number(context, (uint32_t)tokenizer->merges[i].left) && add_number(context, (uint32_t)tokenizer->merges[i].right);
  return ok;
}

static bool add_scores(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = true;
  for (int32_t i = 0; tokenizer->scores && i < tokenizer->pieces.count && ok; i++) {
    uint32_t bits;
    memcpy(&bits, &tokenizer->scores[i], sizeof bits);
    ok = add_number(context, bits);
  }
  return ok;
}

static bool add_specials(EVP_MD_CTX *context, const Tokenizer *tokenizer) {
  bool ok = add_number(context, (uint32_t)tokenizer->special_count);
  for (int32_t i = 0; i < tokenizer->special_count && ok; i++) ok = add_number(context, (uint32_t)tokenizer->specials[i]);
  return ok;
}

Status tokenizer_fingerprint_make(Tokenizer *tokenizer) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  bool ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) && EVP_DigestUpdate(context, version, sizeof version) &&
            add_facts(context, tokenizer) && add_pieces(context, &tokenizer->pieces) && add_merges(context, tokenizer) &&
            add_scores(context, tokenizer) && add_specials(context, tokenizer) && EVP_DigestFinal_ex(context, digest, &size) &&
            size == (TOKENIZER_DIGEST_TEXT - 1) / 2;
  EVP_MD_CTX_free(context);
  if (!ok) return status_set(STATUS_UNSUPPORTED, "computing a tokenizer's SHA-256 failed (no memory, or OpenSSL lacks it)");
  for (unsigned i = 0; i < size; i++) sprintf(tokenizer->fingerprint + 2 * i, "%02x", digest[i]);
  return STATUS_OK;
}
