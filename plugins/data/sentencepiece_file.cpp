// SPDX-License-Identifier: Apache-2.0
// Loads the file with the sentencepiece library, which lies beside the plugin.
#include <dlfcn.h>

#include <string>

#include "engine/base.h"
#include "failure.hpp"
#include "sentencepiece_library.hpp"

namespace text_data {

// Loaded at most once; a failed try is repeated, for the library may have been installed since.
const SentencePieceLibrary& sentencepiece_library() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&sentencepiece_library), &here) || !here.dli_fname)
    throw Failure(ENG_INTERNAL, "sentencepiece: the plugin does not know where it lies");
  std::string path = here.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "sentencepiece.data.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char* const why = library ? nullptr : dlerror();
  auto* const table =
      library ? static_cast<const SentencePieceLibrary*>(dlsym(library, "engine_sentencepiece")) : nullptr;
  if (!table)
    throw Failure(ENG_UNAVAILABLE, "a tokenizer.model needs the sentencepiece library, which cannot be loaded: " +
                                       std::string(why ? why : path + " is of another build") +
                                       "; install it (Debian: apt-get install libsentencepiece0), or use the "
                                       "tokenizer.json of the same model");
  return *table;
}

}  // namespace text_data
