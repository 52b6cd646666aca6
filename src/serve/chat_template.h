/* How the messages of a chat become the text that a model was trained on: by the template of its tokenizer, a Jinja program
 * (serve/jinja.h), or in the form of ChatML where it has none:
 *
 *   <|im_start|>ROLE\nCONTENT<|im_end|>\n ... <|im_start|>assistant\n
 *
 * Any number of threads may render with one template. */
#ifndef SERVE_CHAT_TEMPLATE_H
#define SERVE_CHAT_TEMPLATE_H
#include "base/status.h"
#include "infer/vocabulary.h"
#include <jansson.h>
#include <stdbool.h>

typedef struct ChatTemplate ChatTemplate;

/* The template of this name beside a checkpoint (NULL: "default"): the file chat_template.jinja of the default one,
 * additional_chat_templates/NAME.jinja of any, or where there is no file chat_template of tokenizer_config.json, a string, which is the
 * default, or a list of {"name", "template"}, of which NULL takes the only one, too. Of a GGUF file: tokenizer.chat_template. The tokens
 * that templates name (bos_token, eos_token, unk_token, pad_token) are those of tokenizer_config.json. NOT_FOUND: there is no template of
 * this name; BAD_VALUE: it is a path; BAD_FILE and UNSUPPORTED name file and line. *template is NULL after a failure. */
Status chat_template_open(ChatTemplate **template, const char *directory, const char *name);
void chat_template_free(ChatTemplate *template); /* accepts NULL */

/* messages: an array of objects with a string `role` and `content`, which is a string, null, or an array of {"type": "text", "text": ...},
 * joined by newlines; other members reach the template as they are, but for the role "developer", which is "system" to a template that does
 * not name it. add_generation_prompt: the text ends where the answer begins. *text is
 * malloc'd (caller frees), with a NUL behind its *size bytes; NULL after a failure. BAD_VALUE: messages of another form, or that the
 * template refuses, or for which it takes too long; UNSUPPORTED: the template does what serve/jinja.h leaves out. */
Status chat_template_render(const ChatTemplate *template, const json_t *messages, bool add_generation_prompt, char **text, size_t *size);

/* A text that was rendered, as ids, appended: texts of special tokens in it are these tokens. A template of the tokenizer writes the begin
 * of text itself, where one is wanted; before ChatML it is put. */
Status chat_template_encode_text(const ChatTemplate *template, const Vocabulary *vocabulary, const char *text, size_t size, TokenList *ids);

/* Both. For a service, whose clients choose the messages, the text between is to be looked at first (service_encode_messages). */
Status chat_template_encode(const ChatTemplate *template, const Vocabulary *vocabulary, const json_t *messages, bool add_generation_prompt,
                            TokenList *ids);

/* What ends an answer in this form, to be used as a stop string besides the model's own end of text; NULL: nothing else does. */
const char *chat_template_stop(const ChatTemplate *template);

#endif
