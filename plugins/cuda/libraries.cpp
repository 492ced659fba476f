// SPDX-License-Identifier: Apache-2.0
// The libraries of CUDA in this process, for `engine doctor`: their versions and files.
#include <cublasLt.h>
#include <dlfcn.h>

#include <filesystem>
#include <memory>

#include "attention_workspace.hpp"
#include "device.hpp"

namespace cuda {
namespace {

// The file that a function is in.
std::string file_of(const void* function) {
  Dl_info info{};
  if (!dladdr(function, &info) || !info.dli_fname) return "file unknown";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? info.dli_fname : file.string();
}

// A library that is loaded when it is needed. `version` asks its function `name` for a number, such as 91900.
template <class Version>
std::string loaded(const char* what, const char* library, const char* name, const char* without, Version&& version) {
  const std::unique_ptr<void, int (*)(void*)> handle(dlopen(library, RTLD_LAZY | RTLD_LOCAL), dlclose);
  if (!handle) {
    const char* why = dlerror();
    return std::string(what) + ": " + (why ? why : "not found") + "; " + without + "\n";
  }
  void* const function = dlsym(handle.get(), name);
  if (!function) return std::string(what) + ": " + library + " has no " + name + "\n";
  return what + (" " + sdpa::version_text(version(function))) + ": " + file_of(function) + "\n";
}

}  // namespace

std::string libraries() {
  const auto cudnn = [](void* function) { return reinterpret_cast<size_t (*)()>(function)(); };
  const auto nccl = [](void* function) {
    int version = 0;
    reinterpret_cast<int (*)(int*)>(function)(&version);
    return static_cast<uint64_t>(version);
  };
  return "CUDA runtime " + versions().runtime + ": " + file_of(reinterpret_cast<void*>(&cudaRuntimeGetVersion)) +
         "\ncuBLASLt " + sdpa::version_text(cublasLtGetVersion()) + ": " +
         file_of(reinterpret_cast<void*>(&cublasLtGetVersion)) + "\n" +
         loaded("cuDNN", "libcudnn.so.9", "cudnnGetVersion",
                "pip's nvidia-cudnn-cu13 has it; attention = \"own\" does without", cudnn) +
         loaded("NCCL", "libnccl.so.2", "ncclGetVersion",
                "pip's nvidia-nccl-cu13 has it; only [comm] plugin = \"nccl\" needs it", nccl);
}

}  // namespace cuda
