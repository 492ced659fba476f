/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/plugin.h - how a shared object becomes a plugin.
 *
 * A plugin is one file NAME.eng.so. It exports one symbol, eng_plugin_query_1. It carries a description in TOML in the
 * ELF section .eng_plugin, so that it can be listed without running it:
 *
 *   ENG_DESCRIPTION("[plugin]\n" "id = 'org.example.lion'\n" ...)
 *   static const eng_plugin plugin = { ENG_PLUGIN_INIT, describe, start, stop, get_interface };
 *   ENG_EXPORT const eng_plugin *eng_plugin_query_1(uint32_t host_minor) { (void)host_minor; return &plugin; }
 *
 * Drafts
 * Some headers are frozen: their comments say so. A file that provides only kinds of frozen headers states no draft, and
 * loads in every later engine. Each other kind changes independently, and the id of its draft is in its header:
 * ENG_OPTIMIZER_DRAFT of optimizer.h is "eng.optimizer/1-draft6". It also covers the headers that this header includes,
 * unless these are frozen. The description names the kind by this id, and so says from which draft the plugin was built:
 *   kind = 'eng.optimizer/1-draft6'
 * In C and C++, write the constant there instead, so that the text follows the headers:
 *   "kind = '" ENG_OPTIMIZER_DRAFT "'\n"
 * If it is not the engine's draft, the engine refuses this kind and uses the other kinds of the file. The draft before its
 * own it accepts, with a warning, where only ends of tables have been added since. Everywhere else a kind has its id
 * without a draft: get_interface is asked for "eng.optimizer/1". A kind that somebody else defined (reverse DNS) has no
 * draft here.
 *
 * The description
 *   [drafts]         'eng.optimizer/1' = 'optimizer-6': the draft of a kind whose id below has none, as plugins wrote it
 *                 before 1.0
 *   [plugin]         id (reverse DNS, or eng.*), name, version, license (SPDX), summary,
 *                 uses = ["org.example.scan/1", ...]: ops of other plugins that this one emits, init ops included. A run
 *                 that uses this file also uses the files that bring them, wherever plugins are searched; it is an
 *                 error if there is none. Ops of engine/ops.h need not be listed.
 *   [[provides]]     kind = "eng.optimizer/1-draft6", name = "lion", summary; of a format also begins, endings
 *                 (engine/documents.h)
 *                 usual = true: it is taken where no configuration names one. A device: its kernels compute in memory of
 *                 tiers. A tier: states on storage pass through it on their way to the device. A job: `engine analyse`
 *                 does it. Of several, the one that is found first is taken.
 *   [provides.options.KEY]  type = "bool|int|float|string|bytes|duration|strings|floats", default, min, max, above,
 *                 choices, help, required = true; for an optimizer per_group = true: [[optimizer.groups]] may give some
 *                 parameters another value, which eng_parameter.options returns
 *                 resume = "free|note|refuse": what a resumed run does with another value of the key. By default it is
 *                 refused for models and data sources, noted for optimizers and precisions, and free for all others.
 *                 names = "KIND": beside `choices`, the value may be the name of anything of that kind, whose options
 *                 are then keys of the same section. The source `text` names a format so (engine/documents.h).
 *   [provides.presets.NAME] KEY = value ...       (models); called = "6.89B": the size by which people know it
 *   [provides.fit]   order = 20: `engine plan --fit` may choose it (number formats, strategies, tiers, optimizers). Low
 *                 orders give up least, and come first. A strategy with order = 0 saves no memory. effect = "gradients
 *                 in 8 bits": which numbers differ without it; absent: none, or a number format's. Optimizers need it.
 *                 same_as = ["zero1", ...] (strategies): it is not tried in place of these, whose plans are equal
 *                 group = "KEY", lossy = ["KEY=VALUE", ...] (strategies): docs/writing-a-plugin.md
 *                 discrete = true (tiers): only beside a device with memory of its own. A tier with a required option is
 *                 tried where the configuration gives that.
 *                 instead_of = ["adamw", ...] (optimizers): it may take the place of these where nothing fits
 *
 * For a model that exists as a Hugging Face directory. PATH is a key of config.json, with dots if it lies inside
 * others:
 *   [provides.options.KEY]  json = "PATH" or ["PATH", ...]: all are read, the first is written; null and absent mean
 *                 "not given". Default: the option's own name. []: config.json has no such key.
 *                 json_none = "auto": a text that means "not given".
 *                 json_multiple = "PATH": the value is rounded up to a multiple of the number there, in a config.json
 *                 that `recognise` finds; one with a model_type has the value as it is.
 *                 adjustable = true: [model] may give another value than the config.json of its weights.
 *   [provides.pretrained]   model_type = "llama" or ["llama", ...]: all are read, the first is written,
 *                 architectures = ["LlamaForCausalLM"] (the first one is written),
 *                 recognise = ["PATH", ...]: a config.json without model_type that has all of these is of this model,
 *                 ignore = ["PATH", ...]: keys that change no number,
 *                 rename = [["decoder.", "model.decoder."], ...]: accepted prefixes of tensor names; the first that
 *                 matches is replaced,
 *                 tied = [["lm_head.weight", "model.embed_tokens.weight"]]: a file may contain the first tensor, equal
 *                 to the second, although the model does not declare it,
 *                 ignore_tensors = [".inv_freq"]: suffixes of tensor names,
 *                 transpose = ["h.*.c_attn.weight", ...]: matrices of which the files have the transpose,
 *                 split = [{ from = "h.*.c_attn.weight", to = ["h.*.q.weight", "h.*.k.weight"], axis = 1 }, ...]: one
 *                 tensor of the files holds several of the model, one after the other along `axis` of the files,
 *                 join = [{ from = ["h.*.gate", "h.*.up"], to = "h.*.gate_up", axis = 0 }, ...]: one of the model is
 *                 made of several tensors of the files, of equal shapes. `*` stands for one part of a name between
 *                 dots. `axis` is 0 if it is left out. `#` in `from` stands for 0, 1, ...: the tensors of `from` make
 *                 one entry of the model's tensor along its first dimension.
 *   [provides.pretrained.fixed]  PATH = value, or [value, ...]: the supported values, if config.json has the key
 *   [provides.pretrained.write]  PATH = value: constants for export, which take precedence over the options;
 *                 PATH = { product = ["KEY", ...] }: the product of options, as a whole number, if they do not give it
 *   [provides.gguf]  architecture = "llama": what llama.cpp calls the model. With it, or in tables of their own, what it
 *                 calls the tensors and options: docs/writing-a-plugin.md, "A model as a GGUF file".
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
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

/* Functions that the engine offers a plugin.
 *   Owner: host.  Valid: from start until stop has returned.  since 1.0 */
typedef struct eng_host {
  uint32_t struct_size;
  uint32_t minor;
  void *data;
  /* Writes one line to the log. The host adds the plugin's name and the step, and copies the text. The text need not
   * end in NUL. Control characters become `?`.
   *   Call: [any & !step]  since 1.0 */
  void (*log)(const struct eng_host *, int32_t level, const char *text, uint64_t length);
  /* A host extension by id, or NULL if the engine does not have it; a plugin must be able to do without. Extensions of
   * this engine:
   *   ENG_THREADS_EXTENSION of engine/threads.h: an eng_threads
   *   ENG_FORMATS_EXTENSION of engine/documents.h: an eng_formats
   * Ids that begin with "eng." belong to the engine. Other programs that load plugins offer reverse-DNS ids. A table is
   * never changed in a way that old plugins do not expect; that would be another id.
   *   Owner: host.  Valid: as long as the host.  Call: [setup]  since 1.0 */
  const void *(*get_extension)(const struct eng_host *, const char *id);
} eng_host;

/* The plugin's root table, in static storage.
 *   Owner: plugin.  Valid: until the process ends (plugins are never unloaded).  since 1.0 */
typedef struct eng_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;
  const char *draft_id; /* ENG_ABI_DRAFT_ID: the engine refuses the file if it is another text */
  /* Exactly the text of section .eng_plugin. Also called before `start`.
   *   Valid: until the process ends.  Call: [any]  since 1.0 */
  const char *(*describe)(void);
  /* Called exactly once, before any get_interface.  Call: [setup & !started]  since 1.0 */
  eng_status (*start)(const eng_host *, eng_error *);
  /* Called exactly once, after every object that the plugin made was destroyed. Not called if `start` failed or the
   * process was killed.  Call: [setup & started]  since 1.0 */
  void (*stop)(void);
  /* The table of `kind` (for example "eng.model/1") that the description lists under `name`; NULL if there is none. It
   * may be asked for the same table more than once.
   *   Owner: plugin.  Valid: until the process ends.  Call: [any & started]  since 1.0 */
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

/* Puts the description into the section, and defines `eng_description` for describe(). `text` begins with a table:
 * [plugin]. */
#define ENG_DESCRIPTION(text) ENG_SECTION_ static const char eng_description[] = text;

/* The one exported symbol. A pure function without side effects. Called before `start`.  Call: [any]  since 1.0 */
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
