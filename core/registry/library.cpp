// SPDX-License-Identifier: Apache-2.0
#include "core/registry/library.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <mutex>
#include <utility>
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>

#include "core/registry/guard.hpp"
#include "core/registry/normalise.hpp"

namespace eng {
namespace {

// Leaked on purpose, all of it: a plugin's code and our handle to it outlive every static destructor.
struct Process {
  std::mutex mutex;
  std::vector<Library*> libraries;  // in loading order
  std::mutex log_mutex;
  PluginLog log;
};

Process& process() {
  static Process* const one = new Process;
  return *one;
}

// Calls into a plugin. A C function must not throw; one that does is reported instead of ending the process.
template <class Call>
auto guarded(const char* function, const Call& call) {
  try {
    return call();
  } catch (const std::exception& thrown) {
    throw Error(Exit::environment, fmt::format("{} threw through the C ABI: {}", function, thrown.what()));
  } catch (...) {
    throw Error(Exit::environment, fmt::format("{} threw through the C ABI", function));
  }
}

}  // namespace

void set_plugin_log(PluginLog log) {
  const std::lock_guard lock(process().log_mutex);
  process().log = std::move(log);
}

void stop_plugins() {
  const std::lock_guard lock(process().mutex);
  auto& all = process().libraries;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    Library& library = **it;
    if (!library.started_ || library.stopped_) continue;
    library.stopped_ = true;
    try {
      library.plugin_.stop();
    } catch (...) {
      // The process is leaving; there is nobody left to tell.
    }
  }
}

Library::Library(const Candidate& candidate, const FileIdentity& id)
    : path_(candidate.path), description_(candidate.description), identity_(id) {
  host_.struct_size = sizeof(host_);
  host_.minor = ENG_ABI_MINOR;
  host_.data = this;
  host_.log = [](const eng_host* host, int32_t level, const char* text, uint64_t length) {
    if (!host || !text) return;
    const std::lock_guard lock(process().log_mutex);
    try {
      if (process().log)
        process().log(static_cast<const Library*>(host->data)->description_.id, level, std::string(text, length));
    } catch (...) {
      // Nothing is thrown across the ABI, and a lost log line is no reason to stop.
    }
  };
  host_.get_extension = [](const eng_host*, const char*) -> const void* { return nullptr; };
}

Error Library::error(const std::string& why, const std::string& help) const {
  return Error(Exit::environment, fmt::format("plugin {} ({}): {}", description_.id, path_.string(), why), help);
}

Library& Library::load(const Candidate& candidate, const FileIdentity& expected) {
  const std::lock_guard lock(process().mutex);
  const FileIdentity now = eng::identity(candidate.path);
  Library* library = nullptr;
  for (Library* known : process().libraries)
    if (known->identity_.device == now.device && known->identity_.inode == now.inode) library = known;
  if (!library) {
    library = new Library(candidate, now);
    process().libraries.push_back(library);
    ProcessGuard guard;
    try {
      if (now != expected) throw Error(Exit::environment, "the file changed since it was read: start again");
      library->sha256_ = sha256_file(candidate.path);
      library->open();
      library->start();
    } catch (const Error& failure) {
      library->failure_ = failure.what();
      library->failure_help_ = failure.help();
    }
    library->warning_ = guard.restore();
  }
  if (!library->failure_.empty()) throw library->error(library->failure_, library->failure_help_);
  if (library->stopped_) throw library->error("was stopped already: nothing can be loaded from it any more");
  return *library;
}

// Maps the file and takes its root table.
void Library::open() {
  namespace load_mode = boost::dll::load_mode;
  // Boost.DLL has no name for RTLD_NODELETE but passes it on. Leaked: its destructor would call dlclose.
  const auto mode = load_mode::rtld_now | load_mode::rtld_local | static_cast<load_mode::type>(RTLD_NODELETE);
  auto* library = new boost::dll::shared_library;
  try {
    library->load(std::filesystem::absolute(path_), mode);
  } catch (const std::exception& failure) {
    throw Error(Exit::environment, fmt::format("cannot be loaded: {}", failure.what()),
                "a library it needs is missing or of another version (ldd shows which)");
  }
  const std::string entry = "eng_plugin_query_" + std::to_string(ENG_ABI_MAJOR);
  if (!library->has(entry)) throw Error(Exit::environment, fmt::format("exports no {}", entry));
  const auto query = library->get<const eng_plugin*(uint32_t)>(entry);
  const eng_plugin* root = guarded(entry.c_str(), [&] { return query(ENG_ABI_MINOR); });
  copy_struct(root, &plugin_, sizeof(plugin_), sizeof(plugin_), "its eng_plugin table");
  if (std::string(plugin_.draft_id) != ENG_ABI_DRAFT_ID)
    throw Error(Exit::environment, fmt::format("built from ABI draft '{}', this engine speaks draft '{}'",
                                               plugin_.draft_id, ENG_ABI_DRAFT_ID));
  const char* text = guarded("describe", [&] { return plugin_.describe(); });
  if (!text || description_.text != text)
    throw Error(Exit::environment, "describe() differs from the file's section .eng_plugin",
                "let describe() return eng_description, which ENG_DESCRIPTION defines");
}

void Library::start() {
  Sink sink;
  const eng_status status = guarded("start", [&] { return plugin_.start(&host_, sink.get()); });
  sink.check(status, Exit::environment, "start");
  started_ = true;
  // Registered behind the plugin's own static constructors, so it runs before its static destructors.
  std::atexit([] { stop_plugins(); });
}

const void* Library::get_interface(const std::string& kind, const std::string& name) {
  try {
    return guarded("get_interface", [&] { return plugin_.get_interface(kind.c_str(), name.c_str()); });
  } catch (const Error& failure) {
    throw error(failure.what());
  }
}

}  // namespace eng
