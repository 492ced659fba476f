// SPDX-License-Identifier: Apache-2.0
// A plugin file in the process: loaded once, started once, never unloaded.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cfloat>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>

#include "core/registry/registry.hpp"
#include "core/registry/threads.hpp"

namespace eng {
namespace {

struct Library {
  std::string where;  // prefix of its messages
  std::string description;
  Registry::Loaded loaded;
  std::shared_ptr<const PluginFile> file;  // stays open: no other file can take its inode number
  eng_plugin plugin{};
  eng_host host{};
  boost::dll::shared_library* handle = nullptr;  // never deleted: its destructor would call dlclose
  bool started = false;
  std::optional<Error> failure;  // why it cannot be used

  Error error(const std::string& why, const std::string& help = "") const {
    return Error(Exit::environment, where + ": " + why, help);
  }
  // Calls into the plugin. A C function must not throw; if it does, that becomes an Error instead of std::terminate.
  template <class Call>
  auto guarded(const char* function, const Call& call) const try {
    return call();
  } catch (const std::exception& thrown) {
    throw error(fmt::format("{} threw through the C ABI: {}", function, thrown.what()));
  } catch (...) {
    throw error(fmt::format("{} threw through the C ABI", function));
  }
  void start();
};

// Never freed: a plugin's code and our handle to it must outlive every static destructor.
struct Process {
  std::mutex mutex, log_mutex;
  std::vector<Library*> libraries;  // in loading order
  PluginLog log;
  std::atomic<bool> stopped{false};
  std::atomic<Extensions> extensions{nullptr};
};
Process& process = *new Process;

void log_line(const eng_host* host, int32_t level, const char* text, uint64_t length) try {
  const std::lock_guard lock(process.log_mutex);
  const auto* from = static_cast<const Library*>(host->data);
  if (process.log && text) process.log(from->loaded.id, level, std::string(text, length));
} catch (...) {  // losing a log line must not stop the run
}

// Process state that loading a plugin may change unnoticed.
struct Surroundings {
  static constexpr int signals[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGPIPE};
  std::fenv_t floats;
  std::string locale = std::setlocale(LC_ALL, nullptr);
  struct sigaction handlers[4];
  std::map<std::string, std::string> values;  // what -> its value as text, for comparison

  Surroundings() {
    fegetenv(&floats);
    volatile float tiny = FLT_TRUE_MIN;  // its double is 0 if subnormal floats are flushed to zero
    values["flush-to-zero (is it linked with -ffast-math?)"] = tiny + tiny == 0 ? "on" : "off";
    values["rounding of floats"] = std::to_string(fegetround());
    values["locale"] = locale;
    for (int k = 0; k < 4; ++k) {
      sigaction(signals[k], nullptr, &handlers[k]);
      values[fmt::format("handler of SIG{}", sigabbrev_np(signals[k]))] =
          fmt::format("{:#x}", reinterpret_cast<uintptr_t>(handlers[k].sa_handler));
    }
  }
  // Undoes the changes and returns them: "" or "it changed the locale from C to C.UTF-8; ...; undone".
  std::string restore() const {
    std::string said;
    for (const auto& [what, now] : Surroundings().values)
      if (now != values.at(what)) said += fmt::format("it changed the {} from {} to {}; ", what, values.at(what), now);
    if (said.empty()) return "";
    fesetenv(&floats);
    std::setlocale(LC_ALL, locale.c_str());
    for (int k = 0; k < 4; ++k) sigaction(signals[k], &handlers[k], nullptr);
    return said + "undone";
  }
};

void Library::start() {
  namespace load_mode = boost::dll::load_mode;
  // Boost.DLL has no name for RTLD_NODELETE but passes it to dlopen.
  const auto mode = load_mode::rtld_now | load_mode::rtld_local | static_cast<load_mode::type>(RTLD_NODELETE);
  handle = new boost::dll::shared_library;
  eng_plugin_query_fn query = nullptr;
  try {
    handle->load(loaded.path, mode);
    query = handle->get<const eng_plugin*(uint32_t)>("eng_plugin_query_" + std::to_string(ENG_ABI_MAJOR));
  } catch (const std::exception& failed) {
    throw error(fmt::format("cannot be loaded: {}", failed.what()), file->missing());
  }
  // No other user can have replaced it (see load), but this user may have, with an installation.
  if (const std::string why = file->doubt(); !why.empty()) throw error("changed while it was loaded: " + why);
  const eng_plugin* root = guarded("eng_plugin_query", [&] { return query(ENG_ABI_MINOR); });
  copy_struct(root, &plugin, sizeof(plugin), sizeof(plugin), where + ": its eng_plugin table");
  if (!speaks(plugin.draft_id))
    throw error(fmt::format("built from ABI draft '{}', this engine speaks ABI {}", plugin.draft_id, ENG_ABI_DRAFT_ID));
  const char* text = guarded("describe", [&] { return plugin.describe(); });
  if (!text || description != text)
    throw error("describe() differs from the file's section .eng_plugin",
                "let describe() return eng_description, which ENG_DESCRIPTION defines");
  Sink sink;
  const eng_status status = guarded("start", [&] { return plugin.start(&host, sink.get()); });
  sink.check(status, Exit::environment, where + ": start");
  started = true;
  // Registered after the plugin's static constructors ran, so it runs before its static destructors.
  std::atexit(stop_plugins);
}

// The library of this file, loaded and started on the first call in the process. After a failure it is not retried.
Library& load(const Candidate& candidate, const std::string& pin, const std::string& by, const std::string& help) {
  const std::lock_guard lock(process.mutex);
  const Description& d = candidate.description;
  const std::string& path = candidate.file->path();
  Library* library = nullptr;
  for (Library* known : process.libraries)
    if (known->loaded.path == path) library = known;
  const auto& file = library ? library->file : candidate.file;
  const std::string hash = library ? library->loaded.sha256 : file->sha256();
  const std::string where = fmt::format("plugin {} ({})", d.id, candidate.path.string());
  if (!pin.empty() && hash != pin)
    throw Error(Exit::environment, fmt::format("{}: its sha256 is {}, {} pins {}", where, hash, by, pin), help);
  // dlopen goes by path, so that $ORIGIN works. There is no window in which the path could lead to another user's file:
  // doubt() proves, from / on, that each folder on the path can be altered by root and this user only, and that the
  // path leads to the file that was read and hashed. From then on, nobody else can exchange any part of it.
  if (!library || file != candidate.file)
    if (const std::string why = file->doubt(); !why.empty()) throw Error(Exit::environment, where + ": " + why);
  if (!library) {
    library = new Library{where, d.text, {d.id, d.version, path, hash}, file, {}, {}, nullptr, false, {}};
    library->host = {sizeof(eng_host), ENG_ABI_MINOR, library, log_line,
                     [](const eng_host*, const char* id) -> const void* {
                       if (id && std::strcmp(id, ENG_THREADS_EXTENSION) == 0) return &host_threads;
                       const Extensions more = process.extensions;
                       return id && more ? more(id) : nullptr;
                     }};
    process.libraries.push_back(library);
    const Surroundings before;
    try {
      library->start();
    } catch (const Error& failure) {
      library->failure = failure;
    }
    if (const std::string did = before.restore(); !did.empty())
      log_line(&library->host, ENG_LOG_WARNING, did.data(), did.size());
    for (const Provided& one : d.provides) {
      const std::string why = one.refused.empty() ? fmt::format("'{}': {}", one.name, one.old)
                                                  : fmt::format("'{}' is not used: {}", one.name, one.refused);
      if (!one.refused.empty() || !one.old.empty()) log_line(&library->host, ENG_LOG_WARNING, why.data(), why.size());
    }
  }
  if (library->failure) throw *library->failure;
  return *library;
}

}  // namespace

void set_plugin_log(PluginLog log) {
  const std::lock_guard lock(process.log_mutex);
  process.log = std::move(log);
}

void set_extensions(Extensions find) {
  process.extensions = find;
}

bool plugins_stopped() {
  return process.stopped;
}

void stop_plugins() {
  const std::lock_guard lock(process.mutex);
  process.stopped = true;
  auto& all = process.libraries;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    Library& library = **it;
    if (!std::exchange(library.started, false)) continue;
    library.failure = library.error("was stopped: nothing more can be loaded from it");
    try {
      library.plugin.stop();
    } catch (...) {
      // The process is exiting; nothing reads an error any more.
    }
  }
}

void Registry::copy_table(const Candidate& from, const std::string& kind, const std::string& name, void* out,
                          uint32_t size, uint32_t required) {
  const auto pin = pins_.find(from.description.id);
  const bool pinned = pin != pins_.end();
  const Library& library =
      load(from, pinned ? pin->second.hash : "", pinned ? pin->second.by : "", pinned ? pin->second.help : "");
  const void* table =
      library.guarded("get_interface", [&] { return library.plugin.get_interface(kind.c_str(), name.c_str()); });
  if (!table)
    throw library.error(fmt::format("get_interface gave NULL for {} '{}', which its description lists", kind, name));
  copy_struct(table, out, size, required, fmt::format("{}: its table of {} '{}'", library.where, kind, name));
  const auto same = [&](const Loaded& one) { return one.path == library.loaded.path; };
  if (std::none_of(loaded_.begin(), loaded_.end(), same)) loaded_.push_back(library.loaded);
}

void copy_struct(const void* theirs, void* out, uint32_t size, uint32_t required, const std::string& what) {
  constexpr uint32_t most = 64u << 10;
  const auto need = [&](bool right, const std::string& why) {
    if (!right) throw Error(Exit::environment, what + why, "rebuild the plugin with this engine's headers");
  };
  need(theirs, " is NULL");
  uint32_t given = 0;
  std::memcpy(&given, theirs, sizeof(given));
  need(given >= required && given <= most && given % 8 == 0,
       fmt::format(" states struct_size {}: it must be a multiple of 8 from {} (ABI {}.0) to {}", given, required,
                   ENG_ABI_MAJOR, most));
  std::memset(out, 0, size);
  std::memcpy(out, theirs, std::min(given, size));
  for (uint32_t at = 8; at + 8 <= required; at += 8) {
    uint64_t slot = 0;
    std::memcpy(&slot, static_cast<const char*>(theirs) + at, sizeof(slot));
    need(slot, fmt::format(": the pointer at byte {} is NULL", at));
  }
}

}  // namespace eng
