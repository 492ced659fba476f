/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/chat.h - kind "eng.chat/1": conversations to token ids, by the chat template of a model.
 *
 * `engine generate --chat` asks for the name "jinja". A conversation is a JSON object. It has "messages", a list of
 * objects with "role" and "content", and maybe "tools"; a plugin may take other forms, too. The ids are those of the text
 * that the template makes of it. They are the only ids before the answer: nothing is put before or after them.
 *
 * Nothing is dropped in silence: a conversation of which the template leaves out a message, a call of a tool or the
 * tools is refused.
 */
#ifndef ENGINE_CHAT_H_
#define ENGINE_CHAT_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_CHAT_KIND "eng.chat/1"
#define ENG_CHAT_DRAFT "eng.chat/1-draft1" /* for the description: see engine/plugin.h */

/* A flag of render: the text goes on to where an answer begins, as add_generation_prompt of transformers. The last
 * message must then be no answer. */
#define ENG_CHAT_ANSWER 1u

/* Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_chat_request {
  uint32_t struct_size;
  uint32_t reserved;
  const char *tokenizer;     /* as `path` of eng_tokenizer.create */
  const char *folder;        /* absolute: of the model. Its files name tokens such as bos_token. NULL: none */
  const char *template_file; /* absolute; NULL: the template of `folder` */
  const char *date;          /* the day that a template writes which asks for that of today, "2024-07-26"; NULL: none */
} eng_chat_request;

typedef struct eng_chat {
  uint32_t struct_size;
  uint32_t minor;
  /* ENG_NOT_FOUND: no such file, or the folder has no template. ENG_UNSUPPORTED: the template uses what the plugin does
   * not know. The text names the file.
   *   Owner: caller, until destroy.  Call: [any & !step]  since 1.0 */
  eng_status (*create)(const eng_chat_request *, void **self, eng_error *);
  /* Call: [any & !step & created]  since 1.0 */
  void (*destroy)(void *self);
  /* The ids of a conversation, `size` bytes of JSON in UTF-8. *count becomes their number. If that is more than
   * `capacity`, only the first `capacity` ids were written; a second call with a capacity of *count must then succeed.
   * `flags`: ENG_CHAT_*. Equal calls get equal ids.
   * ENG_INVALID: no conversation, or the template fails on it or drops a part of it; the text says which message.
   *   Owner: caller.  Valid: during the call.  Call: [any & created], several calls at a time  since 1.0 */
  eng_status (*render)(void *self, const char *conversation, uint64_t size, uint32_t flags, int32_t *ids,
                       uint64_t capacity, uint64_t *count, eng_error *);
  /* The ids with which the template ends an answer; there may be none. `engine generate` stops after them, and after
   * those that the tokenizer and the model's files name. *count and `capacity` are as in render.
   *   Owner: caller.  Call: [any & created], several calls at a time  since 1.0 */
  eng_status (*ends)(void *self, int32_t *ids, uint64_t capacity, uint64_t *count, eng_error *);
} eng_chat;

#ifdef __cplusplus
}
#endif
#endif
