/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/plugin.h - how a shared object becomes a plugin.
 *
 * A plugin is one file NAME.eng.so that exports one symbol, eng_plugin_query_1, and carries a
 * description in TOML in the ELF section .eng_plugin, so that it can be listed without running it:
 *
 *   ENG_DESCRIPTION("[plugin]\n" "id = 'org.example.lion'\n" ...)
 *   static const eng_plugin plugin = { ENG_PLUGIN_INIT, describe, start, stop, get_interface };
 *   ENG_EXPORT const eng_plugin *eng_plugin_query_1(uint32_t host_minor) { (void)host_minor; return &plugin; }
 *
 * Drafts. Until the ABI is frozen every kind changes by itself, and a plugin names the drafts that it was built from: that
 * of base.h and plugin.h (ENG_ABI_DRAFT_ID, here and in eng_plugin.draft_id; of another one the whole file is refused),
 * and that of each kind that it provides (ENG_MODEL_DRAFT in model.h, ENG_OPTIMIZER_DRAFT in optimizer.h, ...; of another
 * one the engine refuses this kind alone, and uses the file's other kinds). ENG_DESCRIPTION writes these lines for every
 * kind whose header was included before it. Whoever writes the section by hand, in another language than C or C++, begins
 * it with them; the ids are those of the headers that were followed:
 *   draft = 'draft-8'
 *   [drafts]
 *   'eng.optimizer/1' = 'optimizer-2'
 * A kind of somebody else's (reverse DNS) has no line.
 *
 * The description:
 *   draft, [drafts]  as said above
 *   [plugin]      id (reverse DNS, or eng.*), name, version, license (SPDX), summary
 *   [[provides]]  kind = "eng.optimizer/1", name = "lion", summary
 *   [provides.options.KEY]  type = "bool|int|float|string|bytes|duration|strings|floats", default, min, max, above,
 *                 choices, help, required = true; of an optimizer per_group = true: [[optimizer.groups]] may give it
 *                 another value for some parameters, which eng_parameter.options answers with
 *   [provides.presets.NAME] KEY = value ...       (models); called = "6.89B": the size that people give it
 *
 * Of a model that exists as a Hugging Face directory. PATH is a key of config.json, with dots where it lies inside of
 * others:
 *   [provides.options.KEY]  json = "PATH" or ["PATH", ...]: all are read, null and absent mean "not given", the first
 *                 is written; default: the option's own name; []: it has none.
 *                 json_none = "auto": a text that means "not given".
 *                 json_multiple = "PATH": the value is rounded up to a multiple of the number there.
 *                 adjustable = true: [model] may say something else than the config.json of its weights
 *   [provides.pretrained]   model_type = "llama", architectures = ["LlamaForCausalLM"] (the first is written),
 *                 recognise = ["PATH", ...]: all present in a config.json without model_type: it is ours,
 *                 ignore = ["PATH", ...]: change no number,
 *                 rename = [["decoder.", "model.decoder."], ...]: prefixes of tensor names that are accepted; the first
 *                 that fits is replaced,
 *                 tied = [["lm_head.weight", "model.embed_tokens.weight"]]: may be stored, equal to the other, while
 *                 the model does not declare it,
 *                 ignore_tensors = [".inv_freq"]: suffixes
 *   [provides.pretrained.fixed]  PATH = value, or [value, ...]: what is supported where config.json says anything
 *   [provides.pretrained.write]  PATH = value: constants for export, over what the options say;
 *                 PATH = { product = ["KEY", ...] }: of options, in whole numbers, where they say nothing
 */
#ifndef ENGINE_PLUGIN_H_
#define ENGINE_PLUGIN_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_LOG_DEBUG 1
#define ENG_LOG_INFO 2
#define ENG_LOG_WARNING 3
#define ENG_LOG_ERROR 4

/* What the engine offers a plugin.
 *   Owner: host.  Valid: from start until stop returned.  since 1.0 */
typedef struct eng_host {
  uint32_t struct_size;
  uint32_t minor;
  void *data;
  /* Writes one line; the host adds the plugin's name and the step. Copies the text.
   * It need not end in NUL; control characters become `?`.
   *   Thread: [any], not [step] */
  void (*log)(const struct eng_host *, int32_t level, const char *text, uint64_t length);
  /* A host extension by id, or NULL. Reverse-DNS ids are free for anybody.
   *   Owner: host.  Valid: as the host.  Thread: [setup] */
  const void *(*get_extension)(const struct eng_host *, const char *id);
} eng_host;

/* The plugin's root table, in static storage.
 *   Owner: plugin.  Valid: as long as the process (plugins are never unloaded).  since 1.0 */
typedef struct eng_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;
  const char *draft_id;
  /* The very text of section .eng_plugin.  Valid: for ever.  Thread: [any] */
  const char *(*describe)(void);
  /* Called exactly once before any get_interface.  Thread: [setup] */
  eng_status (*start)(const eng_host *, eng_error *);
  /* Called exactly once, after every object the plugin made was destroyed, and not at all where start failed or the
   * process was killed.  Thread: [setup] */
  void (*stop)(void);
  /* The table of `kind` (for example "eng.model/1") that the description lists under `name`; NULL if
   * there is none. May be asked for the same one again.  Owner: plugin.  Valid: for ever.  Thread: [any] */
  const void *(*get_interface)(const char *kind, const char *name);
} eng_plugin;

#define ENG_PLUGIN_INIT (uint32_t)sizeof(eng_plugin), ENG_ABI_MINOR, ENG_ABI_DRAFT_ID

#if defined(__GNUC__)
#define ENG_EXPORT __attribute__((visibility("default")))
#define ENG_SECTION_ __attribute__((section(".eng_plugin"), used))
#else
#define ENG_EXPORT
#define ENG_SECTION_
#endif

#define ENG_DRAFTS_                                                                                            \
  "draft = '" ENG_ABI_DRAFT_ID                                                                                 \
  "'\n[drafts]\n" ENG_DRAFT_MODEL_ ENG_DRAFT_OPTIMIZER_ ENG_DRAFT_DATA_ ENG_DRAFT_TOKENIZER_ ENG_DRAFT_DEVICE_ \
      ENG_DRAFT_KERNELS_ ENG_DRAFT_OPS_ ENG_DRAFT_COMM_ ENG_DRAFT_PRECISION_ ENG_DRAFT_ZERO_

/* Puts the drafts (above) and the description into the section, and defines `eng_description` for describe(). Include
 * the headers of all kinds that the description lists before it. `text` begins with a table: [plugin]. */
#define ENG_DESCRIPTION(text) ENG_SECTION_ static const char eng_description[] = ENG_DRAFTS_ text;

/* The one exported symbol: pure, no side effect.  Thread: [any]  since 1.0 */
#ifdef __cplusplus
#define ENG_QUERY extern "C" ENG_EXPORT
#else
#define ENG_QUERY ENG_EXPORT
#endif
typedef const eng_plugin *(*eng_plugin_query_fn)(uint32_t host_minor);
ENG_EXPORT const eng_plugin *eng_plugin_query_1(uint32_t host_minor);

#ifdef __cplusplus
}
#endif
#endif
