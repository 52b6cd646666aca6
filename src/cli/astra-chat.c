/* astra-chat: a conversation on the terminal, with a checkpoint in this process or with a service. Lines are edited with libedit where
 * standard input is a terminal, and read as they are where it is not. */
#include "autograd/kernels/matmul.h"
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/chat_local.h"
#include "cli/cli.h"
#include "cli/infer_settings.h"
#include "infer/sampler.h"
#include "serve/chat_client.h"
#include "serve/http_access.h"
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options */

typedef struct Chat {
  const char *checkpoint, *url, *model, *keys, *template, *system, *history;
  int64_t max_tokens, top_k, seed;
  double temperature, top_p, answer_timeout;
} Chat;

enum { OWN_ROWS = 24 };

static const char usage[] = "astra-chat --checkpoint DIR | --url URL [OPTION...]",
                  about[] =
                      "A chat on the terminal: with a checkpoint, on processes of this machine or a cluster of workers, or with a service.";

static int own_options(Chat *c, Option rows[OWN_ROWS]) {
  *c = (Chat){.max_tokens = 512, .temperature = 0.7, .top_p = 0.95, .seed = 42, .answer_timeout = 300};
  const Option table[] = {
      {OPTION_GROUP, .help = "Model or service:"},
      {OPTION_TEXT, "checkpoint", 'c', &c->checkpoint, "DIR", .help = "directory or GGUF file of a model, or the name of an installed one"},
      {OPTION_TEXT, "url", 'u', &c->url, "URL", .help = "address of a service, e.g. http://127.0.0.1:8080, or unix:PATH"},
      {OPTION_TEXT, "model", 0, &c->model, "NAME", .help = "model of the service (default: its first language model)"},
      {OPTION_TEXT, "api-key-file", 0, &c->keys, "FILE", .help = "file whose first key is sent to the service"},
      {OPTION_TIMEOUT, "answer-timeout", 0, &c->answer_timeout, "TIME", .help = "give up a service that sends nothing for this long"},
      {OPTION_TEXT, "chat-template", 0, &c->template, "NAME", .help = "name of the template, where a checkpoint has several"},
      {OPTION_GROUP, .help = "Conversation:"},
      {OPTION_TEXT, "system", 's', &c->system, "TEXT", .help = "system message, which comes before all others"},
      {OPTION_TEXT, "history", 0, &c->history, "FILE", .help = "file that keeps the lines typed, for the next time (default: none)"},
      {OPTION_INT, "max-new-tokens", 'm', &c->max_tokens, "N", .min = 1, .max = 1e9, .help = "maximum number of new tokens per answer"},
      {OPTION_REAL, "temperature", 0, &c->temperature, "T", .min = 0, .max = SAMPLING_TEMPERATURE_MAX,
       .help = "sampling temperature; 0: greedy decoding"},
      {OPTION_REAL, "top-p", 0, &c->top_p, "P", .min = SAMPLING_TOP_P_MIN, .max = 1,
       .help = "sample from the most likely tokens with total probability P"},
      {OPTION_INT, "top-k", 0, &c->top_k, "K", .min = 0, .max = SAMPLING_TOP_K_MAX, .help = "sample from the K most likely tokens; 0: all"},
      {OPTION_INT, "seed", 0, &c->seed, "N", .min = 0, .max = 9e15, .help = "sampling seed; each answer takes the next one"}};
  memcpy(rows, table, sizeof table);
  return (int)(sizeof table / sizeof *table);
}

static const char commands[] = "/help           this list\n"
                               "/reset          forget the conversation, keep the system message\n"
                               "/system [TEXT]  set the system message, or remove it, and forget the conversation\n"
                               "/save FILE      write the conversation as JSON\n"
                               "/quit           leave (also: Ctrl-D)\n"
                               "Ctrl-C ends an answer. A line that ends with \\ goes on in the next one; //text sends /text.\n";

/* ---- the conversation */

typedef struct Session {
  const Chat *chat;
  ChatClient *client; /* one of these two */
  ChatLocal *local;
  json_t *messages;
  bool terminal; /* lines are typed, answers are read by a person */
  bool quiet;
  uint64_t answers;
  bool line_open; /* the last line of stdout has no end yet */
  char *text;     /* [text_bytes] of the answer under way */
  size_t text_bytes, text_room;
  Status text_status; /* of text that could not be kept */
} Session;

static volatile sig_atomic_t stop, started, start_stop;

/* It ends an answer or a line, and before the first one the start, which may wait for a busy worker or a
 * service that does not answer. */
static void on_interrupt(int number) {
  (void)number;
  stop = 1;
  if (!started) start_stop = 1;
}

static Status add_message(Session *session, const char *role, const char *text, size_t bytes) {
  json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text, bytes);
  if (!message) return status_set(STATUS_BAD_VALUE, "the text is not valid UTF-8, so it cannot be sent");
  return json_array_append_new(session->messages, message) == 0 ? STATUS_OK : status_no_memory(NULL, "a message");
}

/* A message that cannot be sent leaves the conversation as it was. */
static Status reset(Session *session, const char *system) {
  json_t *before = session->messages;
  session->messages = json_array();
  if (!session->messages) return session->messages = before, status_no_memory(NULL, "a conversation");
  const Status status = system && system[0] ? add_message(session, "system", system, strlen(system)) : STATUS_OK;
  json_decref(status == STATUS_OK ? before : session->messages);
  if (status != STATUS_OK) session->messages = before;
  return status;
}

static void write_text(void *context, const char *text, size_t bytes) {
  Session *session = context;
  cli_write_text(text, bytes);
  if (ferror(stdout)) stop = 1; /* nobody reads the rest */
  if (bytes > 0) session->line_open = text[bytes - 1] != '\n';
  if (session->text_status == STATUS_OK)
    session->text_status = ARRAY_RESERVE(session->text, session->text_bytes, bytes, session->text_room, "an answer");
  if (session->text_status != STATUS_OK) return;
  memcpy(session->text + session->text_bytes, text, bytes);
  session->text_bytes += bytes;
}

static void tell(const Session *session, const ChatAnswer *answer) {
  const int64_t made = answer->new_tokens, max = session->chat->max_tokens;
  const bool length = strcmp(answer->end, "length") == 0; /* of a service for a full context, too */
  const bool full = strcmp(answer->end, "context") == 0 || (length && made >= 0 && made < max);
  if (length && !full) log_info("the answer was ended after %lld token%s (--max-new-tokens)", (long long)max, text_plural(max));
  if (full) log_info("the context is full: /reset begins anew");
  if (strcmp(answer->end, "cancelled") == 0) log_info("stopped");
  if (session->quiet || !session->terminal || answer->new_tokens < 1) return;
  double rest = answer->seconds - answer->first;
  fprintf(stderr, "(%lld token%s", (long long)answer->new_tokens, text_plural(answer->new_tokens));
  if (answer->new_tokens > 1 && rest > 0) fprintf(stderr, ", %.1f per second", (double)(answer->new_tokens - 1) / rest);
  fprintf(stderr, ", first after %.2f s)\n", answer->first);
}

/* A failed answer leaves the conversation as it was before the question. */
static Status ask(Session *session, const char *text) {
  const Chat *c = session->chat;
  ChatAnswer answer = {0};
  TRY(add_message(session, "user", text, strlen(text)));
  const ChatQuestion question = {.messages = session->messages,
                                 .max_tokens = c->max_tokens,
                                 .temperature = c->temperature,
                                 .top_p = c->top_p,
                                 .top_k = c->top_k,
                                 .seed = (uint64_t)c->seed + session->answers++,
                                 .write = write_text,
                                 .context = session,
                                 .stop = &stop};
  stop = 0;
  session->text_bytes = 0;
  session->text_status = STATUS_OK;
  Status status =
      session->client ? chat_client_ask(session->client, &question, &answer) : chat_local_ask(session->local, &question, &answer);
  stop = 0;
  if (session->line_open || status == STATUS_OK) {
    if (session->line_open || answer.bytes == 0) putchar('\n');
    status = cli_flush(status);
    session->line_open = false;
  }
  if (status == STATUS_OK && session->text_status != STATUS_OK) status = status_no_memory(NULL, "an answer");
  if (status == STATUS_OK) {
    char *kept = session->text;
    tell(session, &answer);
    /* A model may write bytes that are no character, at its end half of one: in the conversation they are question marks. */
    for (size_t at = 0, size; at < session->text_bytes; at += size) {
      size = utf8_size(kept + at, session->text_bytes - at);
      if (size == 0) kept[at] = '?', size = 1;
    }
    status = add_message(session, "assistant", kept ? kept : "", session->text_bytes);
  } else {
    json_array_remove(session->messages, json_array_size(session->messages) - 1);
  }
  return status;
}

static Status save(const Session *session, const char *path) {
  if (!path[0]) return status_set(STATUS_BAD_VALUE, "/save FILE: the name of a file is missing");
  char *text = json_dumps(session->messages, JSON_INDENT(2));
  if (!text) return status_no_memory(NULL, "the conversation");
  char *target;
  Status status = files_follow(path, &target);
  if (status == STATUS_OK) status = files_write(target, text, strlen(text));
  free(text);
  free(target);
  if (status == STATUS_OK)
    log_info("%zu message%s written to %s", json_array_size(session->messages), text_plural((int64_t)json_array_size(session->messages)),
             path);
  return status;
}

/* Whether the first word of a line is this one. */
static bool is_command(const char *line, const char *name) {
  const size_t length = strcspn(line, " \t");
  return length == strlen(name) && strncmp(line, name, length) == 0;
}

/* A line that begins with "/". *quit: it was the last one. */
static Status obey(Session *session, const char *line, bool *quit) {
  const size_t name = strcspn(line, " \t");
  const char *rest = line + name + strspn(line + name, " \t");
  const bool quits = is_command(line, "/quit") || is_command(line, "/exit"), helps = is_command(line, "/help");
  const bool resets = is_command(line, "/reset");
  if ((quits || helps || resets) && rest[0]) return status_set(STATUS_BAD_VALUE, "%.*s takes nothing behind it", (int)name, line);
  if (quits) return *quit = true, STATUS_OK;
  if (helps) return fputs(commands, stdout), cli_flush(STATUS_OK);
  if (resets) {
    const json_t *first = json_array_get(session->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool system = role && strcmp(role, "system") == 0;
    while (json_array_size(session->messages) > system) json_array_remove(session->messages, json_array_size(session->messages) - 1);
    return STATUS_OK;
  }
  if (is_command(line, "/system")) return reset(session, rest);
  if (is_command(line, "/save")) return save(session, rest);
  return status_set(STATUS_BAD_VALUE, "%.*s is no command; /help lists them", (int)name, line);
}

/* One line or several that were joined. A failure is told; at a terminal the conversation goes on, unless its answers cannot be written. */
static Status take(Session *session, const char *line, bool *quit) {
  Status status = STATUS_OK;
  if (line[0] == '/' && line[1] != '/')
    status = obey(session, line, quit);
  else if (line[strspn(line, " \t")])
    status = ask(session, line[0] == '/' ? line + 1 : line);
  if (status == STATUS_OK || !session->terminal || ferror(stdout)) return status;
  log_error("%s", status_message());
  return STATUS_OK;
}

/* ---- lines */

typedef struct Lines {
  EditLine *edit; /* NULL: standard input is no terminal */
  History *history;
  const char *path; /* of the history, once it has been read, until it cannot be written; or NULL */
  char *line;       /* of getline, or joined of several */
  bool more;        /* the prompt is for a line that goes on */
} Lines;

static const char *prompt_text(EditLine *edit) {
  Lines *lines;
  el_get(edit, EL_CLIENTDATA, &lines);
  return lines->more ? ". " : "> ";
}

/* What was typed before; the first time there is nothing. A file of something else is refused: its place is taken by the lines. */
static Status load_history(Lines *lines, const char *path) {
  HistEvent event;
  struct stat file;
  const bool there = stat(path, &file) == 0, none = there ? file.st_size == 0 : errno == ENOENT;
  if (there && !S_ISREG(file.st_mode))
    return status_set(STATUS_BAD_FILE, "--history %s: it is not a regular file; give one, or leave the option out to keep nothing", path);
  if (!none && history(lines->history, &event, H_LOAD, path) < 0)
    return status_set(STATUS_BAD_FILE,
                      "--history %s: it cannot be read, or holds something else than lines of earlier chats; give another file", path);
  lines->path = path;
  return STATUS_OK;
}

/* For its owner alone, as questions may be private. */
static Status save_history(const Lines *lines) {
  HistEvent event;
  FileWriter writer;
  char *target;
  TRY(files_follow(lines->path, &target));
  Status status = files_create(&writer, target);
  free(target);
  TRY(status);
  const bool written =
      fchmod(fileno(writer.stream), S_IRUSR | S_IWUSR) == 0 && history(lines->history, &event, H_SAVE_FP, writer.stream) >= 0;
  if (written) return files_commit(&writer);
  files_abort(&writer);
  return status_set(STATUS_IO, "%s cannot be written", lines->path);
}

static Status lines_open(Lines *lines, const Chat *chat, bool terminal) {
  HistEvent event;
  *lines = (Lines){0};
  if (!terminal && chat->history) log_warning("--history: only what is typed at a terminal is kept, and standard input is none");
  if (!terminal) return STATUS_OK;
  lines->edit = el_init("astra-chat", stdin, stdout, stderr);
  lines->history = history_init();
  if (!lines->edit || !lines->history) return status_no_memory(NULL, "line editing");
  el_set(lines->edit, EL_CLIENTDATA, lines);
  el_set(lines->edit, EL_PROMPT, prompt_text);
  el_set(lines->edit, EL_EDITOR, "emacs");
  history(lines->history, &event, H_SETSIZE, 1000);
  history(lines->history, &event, H_SETUNIQUE, 1);
  el_set(lines->edit, EL_HIST, history, lines->history);
  if (chat->history) TRY(load_history(lines, chat->history));
  el_source(lines->edit, NULL);
  return STATUS_OK;
}

/* The file is written with each line: what ends the chat may be a signal, as of a terminal that is closed. */
static void remember(Lines *lines) {
  HistEvent event;
  history(lines->history, &event, H_ENTER, lines->line);
  if (!lines->path || save_history(lines) == STATUS_OK) return;
  log_warning("--history: %s; lines from here on are not kept", status_message());
  lines->path = NULL;
}

static void lines_close(Lines *lines) {
  if (lines->edit) el_end(lines->edit);
  if (lines->history) history_end(lines->history);
  free(lines->line);
}

typedef enum LineEnd { LINE_READ, LINE_CANCELLED, LINE_LAST } LineEnd;

/* A line as it was typed, without its end; valid until the next call. */
static LineEnd read_one(Lines *lines, char **buffer, size_t *room, const char **line, size_t *bytes) {
  if (lines->edit) {
    int count;
    *line = el_gets(lines->edit, &count);
    if (!*line || count <= 0) return stop || (count < 0 && errno == EINTR) ? LINE_CANCELLED : LINE_LAST;
    *bytes = (size_t)count;
  } else {
    ssize_t count = getline(buffer, room, stdin);
    if (count < 0) return stop && !feof(stdin) ? LINE_CANCELLED : LINE_LAST;
    *line = *buffer;
    *bytes = (size_t)count;
  }
  while (*bytes > 0 && ((*line)[*bytes - 1] == '\n' || (*line)[*bytes - 1] == '\r')) --*bytes;
  return LINE_READ;
}

/* The next line into lines->line; one that ends with a backslash is joined with the next. */
static Status lines_next(Lines *lines, LineEnd *end) {
  char *buffer = NULL;
  size_t room = 0, used = 0;
  Status status = STATUS_OK;
  lines->more = false;
  for (bool more = true; more && status == STATUS_OK;) {
    const char *line;
    size_t bytes;
    *end = read_one(lines, &buffer, &room, &line, &bytes);
    if (*end != LINE_READ) break;
    if (memchr(line, 0, bytes)) {
      status = status_set(STATUS_BAD_VALUE, "a NUL byte in what is typed or read; lines of text are expected");
      break;
    }
    more = bytes > 0 && line[bytes - 1] == '\\';
    char *grown = realloc(lines->line, used + bytes + 2);
    if (!grown) {
      status = status_no_memory(NULL, "a line");
      break;
    }
    lines->line = grown;
    memcpy(grown + used, line, bytes);
    used += bytes;
    if (more) grown[used - 1] = '\n';
    grown[used] = '\0';
    lines->more = more;
  }
  if (*end == LINE_LAST && used > 0) *end = LINE_READ; /* what follows the backslash never came */
  free(buffer);
  if (status == STATUS_OK && *end == LINE_READ && lines->history && used > 0) remember(lines);
  return status;
}

/* ---- from start to end */

static Status converse(Session *session, Lines *lines) {
  bool typed = false; /* a line */
  for (bool quit = false; !quit;) {
    LineEnd end;
    stop = 0;
    TRY(lines_next(lines, &end));
    if (end == LINE_LAST && !lines->edit && ferror(stdin)) return status_set(STATUS_IO, "standard input cannot be read");
    if (end == LINE_LAST) break;
    if (end == LINE_CANCELLED && !(lines->edit && typed)) return status_set(STATUS_INTERRUPTED, "interrupted");
    typed |= end == LINE_READ;
    if (end == LINE_READ)
      TRY(take(session, lines->line, &quit));
    else
      fputs("\n(/quit leaves, /help says more)\n", stderr);
  }
  if (lines->edit) putchar('\n');
  return STATUS_OK;
}

/* While a checkpoint is loaded nothing looks at flags, and SIGINT ends the program as it does by itself. */
static Status open_partner(const Chat *chat, const InferSettings *settings, Session *session) {
  const struct sigaction action = {.sa_handler = on_interrupt}; /* without SA_RESTART: a line that is being typed is given up */
  char *key = NULL;
  if (chat->checkpoint) TRY(chat_local_open(&session->local, settings, chat->template));
  sigaction(SIGINT, &action, NULL);
  if (chat->checkpoint) return chat_local_start(session->local, &start_stop);
  if (chat->keys) TRY(http_access_first_key(chat->keys, &key));
  const ChatClientOptions options = {
      .url = chat->url, .model = chat->model, .key = key, .key_file = chat->keys, .timeout = chat->answer_timeout, .stop = &start_stop};
  Status status = chat_client_open(&session->client, &options);
  free(key);
  return status;
}

static Status check_partner(const Chat *c, const Option *own, int count, const InferSettings *settings) {
  static const char *const names[] = {"model", "api-key-file", "answer-timeout", NULL};
  const char *of_service = options_first_given(own, count, names); /* that only means something to a service */
  if (!c->checkpoint == !c->url)
    return status_set(STATUS_BAD_USAGE, "%s",
                      c->url ? "--checkpoint and --url cannot be combined: give one of them" : "give --checkpoint DIR or --url URL");
  if (c->checkpoint && of_service) return status_set(STATUS_BAD_USAGE, "--%s is for --url", of_service);
  if (c->url && c->template) return status_set(STATUS_BAD_USAGE, "--chat-template is for --checkpoint: a service has chosen its own");
  if (c->url && settings->device_option)
    return status_set(STATUS_BAD_USAGE, "--%s is for --checkpoint: a service computes as it was told to", settings->device_option);
  return STATUS_OK;
}

static Status run(int argc, char **argv) {
  Chat chat;
  InferSettings settings;
  Option rows[OWN_ROWS];
  Lines lines = {0};
  int count = own_options(&chat, rows);
  TRY(infer_settings_service_parse(&settings, INFER_CHAT, rows, count, argc, argv));
  TRY(check_partner(&chat, rows, count, &settings));
  settings.checkpoint = chat.checkpoint;
  signal(SIGPIPE, SIG_IGN);
  setlocale(LC_CTYPE, "");
  Session session = {.chat = &chat, .messages = json_array(), .terminal = isatty(STDIN_FILENO), .quiet = settings.quiet};
  Status status = session.messages ? reset(&session, chat.system) : status_no_memory(NULL, "messages");
  if (status == STATUS_OK) status = open_partner(&chat, &settings, &session);
  started = 1;
  if (status == STATUS_OK && start_stop) status = status_set(STATUS_INTERRUPTED, "interrupted");
  if (status == STATUS_OK && session.terminal && !settings.quiet)
    log_info("%s%s; /help lists commands", session.client ? "model " : "",
             session.client ? chat_client_model(session.client) : chat.checkpoint);
  if (status == STATUS_OK) status = lines_open(&lines, &chat, session.terminal);
  if (status == STATUS_OK) status = converse(&session, &lines);
  lines_close(&lines);
  chat_client_close(session.client);
  chat_local_close(session.local);
  json_decref(session.messages);
  free(session.text);
  return status;
}

static void help(FILE *stream) {
  Chat chat;
  Option rows[OWN_ROWS];
  int count = own_options(&chat, rows);
  infer_settings_service_help(INFER_CHAT, rows, count, usage, about, stream);
  fprintf(stream, "\nIn the chat:\n\n%s", commands);
}

static void table(Option options[CLI_OPTIONS_MAX]) {
  static Chat chat;
  static InferSettings settings;
  Option rows[OWN_ROWS];
  int count = own_options(&chat, rows);
  infer_settings_service_table(&settings, INFER_CHAT, rows, count, options);
}

int main(int argc, char **argv) {
  matmul_start();
  const CliProgram program = {"astra-chat", NULL, run, help, table};
  return cli_run(argc, argv, &program);
}
