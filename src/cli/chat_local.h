/* A chat with a checkpoint in this process: its cluster and its engine, without HTTP. Apart from astra-chat.c because libedit's header and
 * data/tokenizer/tokenizer.h both name a type Tokenizer. */
#ifndef CLI_CHAT_LOCAL_H
#define CLI_CHAT_LOCAL_H
#include "cli/infer_settings.h"
#include "serve/chat_client.h"
#include <signal.h>

typedef struct ChatLocal ChatLocal;

/* Loads settings->checkpoint, which takes as long as it takes: no signal is looked for. template: the name of a chat template, or NULL.
 * settings outlive the chat. *local is NULL after a failure. */
Status chat_local_open(ChatLocal **local, const InferSettings *settings, const char *template);
void chat_local_close(ChatLocal *local); /* accepts NULL */

/* Its cluster. It forks: before any thread. *stop: a signal handler sets it to give up waiting for workers, INTERRUPTED; it outlives the
 * chat, whose cluster it ends whenever it is set. After a failure the chat can only be closed. */
Status chat_local_start(ChatLocal *local, const volatile sig_atomic_t *stop);

/* As chat_client_ask. BAD_VALUE: the messages do not fit into the context, or the template refuses them. */
Status chat_local_ask(ChatLocal *local, const ChatQuestion *question, ChatAnswer *answer);

#endif
