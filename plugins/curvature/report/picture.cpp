// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <dlfcn.h>
#include <unistd.h>

namespace curvature::report {
namespace {

std::string beside_this() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<const void*>(&picture), &here) || !here.dli_fname) return "cairo.curvature.so";
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "cairo.curvature.so";
}

}  // namespace

Picture picture(const Scene& scene, Medium medium, const std::string& library) {
  const std::string path = library.empty() ? beside_this() : library;
  if (access(path.c_str(), F_OK) != 0)
    return {"", "this build of the engine has no cairo (" + path +
                    " is missing); build it with libcairo2-dev and fonts-dejavu-core"};
  void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const char* const why = file ? nullptr : dlerror();
  const auto* const table = file ? static_cast<const CairoLibrary*>(dlsym(file, "engine_curvature_cairo")) : nullptr;
  if (!table)
    return {"", "the cairo library cannot be loaded: " + std::string(why ? why : path + " is of another build") +
                    "; install it (Debian: apt-get install libcairo2)"};
  Picture out;
  const auto take = [](void* sink, const unsigned char* data, size_t size) {
    static_cast<std::string*>(sink)->append(reinterpret_cast<const char*>(data), size);
  };
  if (const char* const wrong = table->draw(scene, medium, take, &out.bytes))
    return {"", "cairo " + std::string(table->version) + ": " + wrong};
  return out;
}

}  // namespace curvature::report
