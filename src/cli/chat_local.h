/* A chat with a checkpoint in this process: its cluster and its engine, without HTTP. Apart from astra-chat.c because libedit's header and
 * data/tokenizer/tokenizer.h both name a type Tokenizer. */
#ifndef CLI_CHAT_LOCAL_H
#define CLI_CHAT_LOCAL_H
#include "cli/infer_settings.h"
#include "serve/chat_client.h"
#include <signal.h>

typedef struct ChatLocal ChatLocal;

/* settings->checkpoint and what its cluster is. template: the name of a chat template, or NULL. *stop: a signal handler sets it to give up
 * waiting for workers, INTERRUPTED; it outlives the chat, whose cluster it ends whenever it is set. It forks: before any thread. *local is
 * NULL after a failure. */
Status chat_local_open(ChatLocal **local, const InferSettings *settings, const char *template, const volatile sig_atomic_t *stop);
void chat_local_close(ChatLocal *local); /* accepts NULL */

/* As chat_client_ask. BAD_VALUE: the messages do not fit into the context, or the template refuses them. */
Status chat_local_ask(ChatLocal *local, const ChatQuestion *question, ChatAnswer *answer);

#endif
