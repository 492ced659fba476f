/* SPDX-License-Identifier: Apache-2.0
 *
 * A small plugin. Without a FAULT_* macro it is a good one; each macro breaks one rule. */
#include "fixture.h"

#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine/optimizer.h"
#include "engine/plugin.h"
#include "engine/threads.h"

#ifndef FIXTURE_ID
#define FIXTURE_ID "org.example.fixture"
#endif

/* clang-format off */
#if defined(FAULT_WRONG_DRAFT)
ENG_SECTION_ static const char eng_description[] = "draft = 'draft-0'\n[plugin]\nid = '" FIXTURE_ID "'\n";
#elif defined(FAULT_KIND_DRAFT)
ENG_DESCRIPTION(
  "[plugin]\nid = '" FIXTURE_ID "'\nname = 'Fixture'\nversion = '1.2.3'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = 'eng.optimizer/1-draft1'\nname = 'lion'\n"
  "[[provides]]\nkind = 'eng.opz/1-draft1'\nname = 'lion'\n"
  "[[provides]]\nkind = '" COUNTER_KIND "'\nname = 'counter'\n")
#elif defined(FAULT_OLD_DRAFT)
ENG_DESCRIPTION(
  "[plugin]\nid = '" FIXTURE_ID "'\nname = 'Fixture'\nversion = '1.2.3'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = 'eng.optimizer/1-draft" FAULT_OLD_DRAFT "'\nname = 'lion'\n"
  "[[provides]]\nkind = '" COUNTER_KIND "'\nname = 'counter'\n")
#elif defined(FAULT_NO_SECTION)
static const char eng_description[] = "";
#elif defined(FAULT_BAD_TOML)
ENG_DESCRIPTION("[plugin\nid = '" FIXTURE_ID "'\n")
#else
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = '" FIXTURE_ID "'\n"
  "name = 'Fixture'\n"
  "version = '1.2.3'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'for the tests of the registry'\n"
  "[[provides]]\n"
  "kind = '" ENG_OPTIMIZER_DRAFT "'\n"
  "name = 'lion'\n"
  "summary = 'sign of the momentum'\n"
  "[provides.options.beta1]\n"
  "type = 'float'\n"
  "default = 0.9\n"
  "min = 0.0\n"
  "max = 1.0\n"
  "help = 'decay of the momentum'\n"
  "[provides.options.mode]\n"
  "type = 'string'\n"
  "choices = ['a', 'b']\n"
  "default = 'a'\n"
  "[provides.options.steps]\n"
  "type = 'int'\n"
  "required = true\n"
  "[provides.presets.slow]\n"
  "beta1 = 0.99\n"
  "mode = 'b'\n"
  "[[provides]]\n"
  "kind = '" COUNTER_KIND "'\n"
  "name = 'counter'\n")
#endif
/* clang-format on */

#if defined(FAULT_FOREIGN)
/* A program that loads it ends here: exit status 99. */
__attribute__((constructor)) static void foreign(void) {
  _Exit(99);
}
#endif

static int32_t n_starts, n_stops;
static int32_t starts(void) {
  return n_starts;
}
static int32_t stops(void) {
  return n_stops;
}

static const char* describe(void) {
#if defined(FAULT_DESCRIBE_DIFFERS)
  return "draft = 'another'\n";
#else
  return eng_description;
#endif
}

#if !defined(FAULT_START_SILENT) && !defined(FAULT_START_FAILS)
static eng_status add(void* data, uint64_t begin, uint64_t end, eng_error* error) {
  (void)error;
  for (uint64_t i = begin; i < end; ++i) ((uint64_t*)data)[i] = i;
  return ENG_OK;
}
/* The extension is there, and works from the start on. */
static eng_status tries_threads(const eng_threads* threads) {
  uint64_t sum = 0, numbers[100] = {0};
  if (!threads || threads->struct_size < sizeof(*threads) || threads->count(threads) < 1) return ENG_INTERNAL;
  if (threads->run(threads, 3, 100, 9, add, numbers, NULL) != ENG_OK) return ENG_INTERNAL;
  for (int i = 0; i < 100; ++i) sum += numbers[i];
  return sum == 4950 ? ENG_OK : ENG_INTERNAL;
}
#endif

static eng_status start(const eng_host* host, eng_error* error) {
  ++n_starts;
#if defined(FAULT_START_SILENT)
  (void)host, (void)error;
  return ENG_UNAVAILABLE;
#elif defined(FAULT_START_FAILS)
  static const char why[] = "there is no such device";
  (void)host;
  if (error && error->set) error->set(error, ENG_UNAVAILABLE, why, sizeof(why) - 1);
  return ENG_UNAVAILABLE;
#else
  static const char hello[] = "hello from the fixture";
  (void)error;
#if defined(FAULT_LOCALE)
  setlocale(LC_ALL, "C.UTF-8");
#endif
#if defined(FAULT_SIGNAL)
  signal(SIGPIPE, SIG_IGN);
#endif
  host->log(host, ENG_LOG_INFO, hello, sizeof(hello) - 1);
  if (host->get_extension(host, "org.example.nothing/1")) return ENG_INTERNAL;
  return tries_threads((const eng_threads*)host->get_extension(host, ENG_THREADS_EXTENSION));
#endif
}

static void stop(void) {
  ++n_stops;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  (void)options, (void)error;
  *self = NULL;
  return ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)out, (void)cap, (void)error;
  *n = 0;
  return ENG_OK;
}
static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)k, (void)out, (void)cap, (void)error;
  *n = 0;
  return ENG_OK;
}
#if !defined(FAULT_NULL_SLOT)
static eng_status update(void* self, eng_build* build, const eng_update* update, eng_error* error) {
  (void)self, (void)build, (void)update, (void)error;
  return ENG_UNSUPPORTED;
}
#else
#define update NULL
#endif

static const eng_optimizer optimizer = {
#if defined(FAULT_SMALL_TABLE)
    sizeof(eng_optimizer) - 8,
#else
    sizeof(eng_optimizer),
#endif
    1,
    create,
    destroy,
    states,
    scalars,
    update};
static const counter counts = {sizeof(counter), 0, starts, stops};

static const void* get_interface(const char* kind, const char* name) {
#if defined(FAULT_NO_INTERFACE)
  const void* const lion = NULL;
  (void)optimizer;
#else
  const void* const lion = &optimizer;
#endif
  if (!strcmp(kind, ENG_OPTIMIZER_KIND) && !strcmp(name, "lion")) return lion;
  if (!strcmp(kind, COUNTER_KIND) && !strcmp(name, "counter")) return &counts;
  return NULL;
}

static const eng_plugin plugin = {
#if defined(FAULT_SIZE)
    FAULT_SIZE,   ENG_ABI_MINOR, ENG_ABI_DRAFT_ID,
#elif defined(FAULT_ROOT_DRAFT)
    sizeof(eng_plugin), ENG_ABI_MINOR, "draft-0",
#else
    ENG_PLUGIN_INIT,
#endif
    describe,     start,         stop,
    get_interface};

#if defined(FAULT_WRONG_MAJOR)
ENG_EXPORT const void* eng_plugin_query_2(uint32_t host_minor);
ENG_EXPORT const void* eng_plugin_query_2(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
#elif defined(FAULT_NO_SYMBOL)
const void* query_by_another_name(void);
const void* query_by_another_name(void) {
  return &plugin;
}
#else
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
#if defined(FAULT_NULL_ROOT)
  (void)plugin;
  return NULL;
#else
  return &plugin;
#endif
}
#endif

#if defined(FAULT_STRANGERS)
ENG_EXPORT int helper(void);
ENG_EXPORT int helper(void) {
  return 1;
}
#endif
