// SPDX-License-Identifier: Apache-2.0
// An observer that needs its C++ runtime: strings, streams, maps, exceptions, thread-local and inline variables. It is
// built several times, by other compilers and with other values of TAP, and its helpers have the same symbols each
// time.
#include <cstring>
#include <map>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "engine/observer.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example." TEXT(TAP) "'\n"
    "name = '" TEXT(TAP) "'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_OBSERVER_DRAFT "'\n"
    "name = '" TEXT(TAP) "'\n")

// Outside of an anonymous namespace: these are the symbols that clash.
namespace tap {

// One for each library. The dynamic linker makes it one for the whole process where the symbol is exported.
template <class T>
struct Kept {
  static inline std::string owner;
};

int asked() {
  static int count = 0;
  return ++count;
}

std::string name_of(const eng_site& site) {
  std::ostringstream text;
  text << TEXT(TAP) << "_norm." << site.block;
  return text.str();
}

// 1000 terms of a sum that is 500500, by the OpenMP of this compiler where there is one.
long sum() {
  long out = 0;
#ifdef _OPENMP
#pragma omp parallel for reduction(+ : out) num_threads(3)
#endif
  for (long k = 1; k <= 1000; ++k) out += k;
  return out;
}

struct Observer {
  std::map<std::string, int> sites;
  std::string name;  // of the last result; the host reads it until the next call
};

}  // namespace tap

namespace {

thread_local int depth = 0;

eng_status report(eng_error* error, const char* text) {
  if (error) error->set(error, ENG_INTERNAL, text, std::strlen(text));
  return ENG_INTERNAL;
}

eng_status create(const eng_options*, void** self, eng_error* error) {
  try {
    try {
      ++depth;
      throw std::out_of_range("caught by its own runtime");
    } catch (const std::exception& caught) {
      --depth;
      if (std::string(caught.what()) != "caught by its own runtime") return report(error, "another exception");
    }
    if (tap::Kept<int>::owner.empty()) tap::Kept<int>::owner = TEXT(TAP);
    if (tap::Kept<int>::owner != TEXT(TAP)) return report(error, "another plugin has this one's variables");
    if (depth != 0 || tap::sum() != 500500) return report(error, "the sum is wrong");
    *self = new tap::Observer();
    return ENG_OK;
  } catch (...) {
    return report(error, "an exception that was not expected");
  }
}

void destroy(void* self) {
  delete static_cast<tap::Observer*>(self);
}

eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t, uint32_t* n, eng_error* error) {
  if (site->what != ENG_SITE_UPDATE) return ENG_OK;
  try {
    auto& me = *static_cast<tap::Observer*>(self);
    if (++me.sites[site->block] < 1 || tap::asked() < 1) return report(error, "it counts backwards");
    me.name = tap::name_of(*site);
    out[0] = {me.name.c_str(), ENG_COMBINE_SUM, ENG_RESULT_SQRT};
    *n = 1;
    return ENG_OK;
  } catch (...) {
    return report(error, "an exception that was not expected");
  }
}

// (n) -> (n / 4096) sums of squares -> their sum (1)
eng_status observe(void*, eng_build* b, const eng_site* site, eng_id* out, uint32_t, eng_error* error) {
  eng_desc sums{};
  const eng_id squares = eng_emit1(b, ENG_OP_SUM_SQUARES, &site->value, 1, nullptr, 0);
  b->api->shape(b, squares, &sums, nullptr);
  const eng_attr rows = {"rows", sums.dims[0], 0};
  out[0] = eng_emit1(b, ENG_OP_FOLD, &squares, 1, &rows, 1);
  return b->api->status(b, error);
}

constexpr eng_observer make_table() {
  eng_observer table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.results = results;
  table.observe = observe;
  return table;
}
constexpr eng_observer table = make_table();

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_OBSERVER_KIND) && !std::strcmp(name, TEXT(TAP)) ? &table : nullptr;
}
const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
