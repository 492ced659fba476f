/* SPDX-License-Identifier: Apache-2.0 */
#include "hostile.h"

#define FAULT "fault = { type = 'string', default = '', help = 'what it does wrong' }\n"
#define PROVIDES(kind, name) \
  "[[provides]]\n"           \
  "kind = '" kind            \
  "'\n"                      \
  "name = '" name "'\n"
#define WITH_FAULT(kind, name) PROVIDES(kind, name) "[provides.options]\n" FAULT

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.hostile'\n"
  "name = 'Hostile'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'a plugin of every kind that does something wrong'\n"
  WITH_FAULT(ENG_MODEL_DRAFT, "hostile")
  "vocab_size = { type = 'int', default = 256, help = 'token ids are below this' }\n"
  PROVIDES(ENG_OPS_DRAFT, "hostile")
  PROVIDES(ENG_KERNELS_DRAFT, "cpu")
  WITH_FAULT(ENG_OPTIMIZER_DRAFT, "hostile")
  WITH_FAULT(ENG_PRECISION_DRAFT, "hostile")
  WITH_FAULT(ENG_ZERO_DRAFT, "hostile")
  WITH_FAULT(ENG_DATA_KIND, "hostile")
  "tokenizer = { type = 'string', default = 'bytes', help = 'of the prompts' }\n"
  PROVIDES(ENG_TOKENIZER_KIND, "auto")
  WITH_FAULT(ENG_DEVICE_DRAFT, "void")
  PROVIDES(ENG_KERNELS_DRAFT, "void")
  PROVIDES(ENG_TIER_DRAFT, "hostile")
  WITH_FAULT(ENG_SCHEDULE_KIND, "hostile")
  WITH_FAULT(ENG_COMM_DRAFT, "mirror")
  PROVIDES(ENG_KERNELS_DRAFT, "mirror"))
/* clang-format on */

static char fault[200] = "";

void set_fault(const char* text) {
  snprintf(fault, sizeof fault, "%s", text);
}

int is(const char* what) {
  return strcmp(fault, what) == 0;
}

void take_fault(const eng_options* options) {
  const char* text = "";
  if (options->get_string(options, "fault", &text, NULL) == ENG_OK && text[0]) set_fault(text);
}

/* The text after `word` in the fault, or NULL. */
static const char* behind(const char* word) {
  const size_t n = strlen(word);
  return strncmp(fault, word, n) == 0 && fault[n] == ' ' ? fault + n + 1 : NULL;
}

static int matches(const char* word, const char* name) {
  const char* rest = behind(word);
  return rest && strcmp(rest, name) == 0;
}

static void say(eng_error* error, const char* text, size_t n) {
  if (error) error->set(error, ENG_INTERNAL, text, n);
}

eng_status enter(const char* name, eng_error* error) {
  static const char odd[] = "odd \x1b[31m\xff\xfe\n\r\t\x01 bytes";
  if (matches("fail", name)) {
    say(error, "out of luck", 11);
  } else if (matches("mute", name)) {
    return ENG_INTERNAL;
  } else if (matches("code", name)) {
    return -77;
  } else if (matches("odd", name)) {
    say(error, odd, sizeof odd - 1);
  } else if (matches("twice", name)) {
    say(error, "first text", 10);
    say(error, NULL, 0);
    say(error, "second text", 11);
  } else if (matches("long", name)) {
    const size_t n = 1u << 20;
    char* text = malloc(n);
    if (!text) return ENG_NO_MEMORY;
    memset(text, 'x', n);
    say(error, text, n);
    free(text);
  } else {
    return ENG_OK;
  }
  return ENG_INTERNAL;
}

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_MODEL_KIND) == 0) return &hostile_model;
  if (strcmp(kind, ENG_OPS_KIND) == 0) return hostile_ops();
  if (strcmp(kind, ENG_OPTIMIZER_KIND) == 0) return hostile_optimizer();
  if (strcmp(kind, ENG_PRECISION_KIND) == 0) return &hostile_precision;
  if (strcmp(kind, ENG_ZERO_KIND) == 0) return &hostile_zero;
  if (strcmp(kind, ENG_DATA_KIND) == 0) return &hostile_data;
  if (strcmp(kind, ENG_SCHEDULE_KIND) == 0) return &hostile_schedule;
  if (strcmp(kind, ENG_TOKENIZER_KIND) == 0) return &hostile_tokenizer;
  if (strcmp(kind, ENG_DEVICE_KIND) == 0) return &hostile_device;
  if (strcmp(kind, ENG_TIER_KIND) == 0) return is("tier: not host memory") ? &hostile_memory : &hostile_tier;
  if (strcmp(kind, ENG_COMM_KIND) == 0) return &hostile_comm;
  if (strcmp(kind, ENG_KERNELS_KIND) != 0) return NULL;
  if (strcmp(name, "void") == 0) return hostile_device_kernels();
  return strcmp(name, "mirror") == 0 ? hostile_collectives() : hostile_kernels();
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
