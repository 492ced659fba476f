// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/probe.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <cfloat>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/error.hpp"
#include "core/execute/device.hpp"
#include "core/registry/threads.hpp"
#include "engine/plugin.h"
#include "tools/engine/plugin_test/kinds.hpp"

extern char** environ;

namespace eng::plugin_test {
namespace fs = std::filesystem;
namespace {

std::string open_files() {
  std::string out;
  std::error_code error;
  std::set<std::string> all;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(it->path(), gone).string();
    if (!gone && target.find("/proc/") != 0) all.insert(it->path().filename().string() + " " + target);
  }
  for (const std::string& one : all) out += (out.empty() ? "" : ", ") + one;
  return out;
}

size_t threads() {
  std::error_code error;
  size_t n = 0;
  for (fs::directory_iterator it("/proc/self/task", error), end; !error && it != end; it.increment(error)) ++n;
  return n;
}

}  // namespace

size_t threads_left() {
  // libgomp keeps a pool; a hard pause ends it.
  if (void* gomp = ::dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD))
    if (auto* pause = reinterpret_cast<int (*)(int)>(::dlsym(gomp, "omp_pause_resource_all"))) pause(2);
  for (int k = 0; k < 100 && threads() > 1; ++k) ::usleep(2000);  // those that end now
  return threads() - 1;
}

Surroundings::Surroundings() {
  volatile float tiny = FLT_TRUE_MIN;
  values_["denormal floats (is it linked with -ffast-math?)"] = tiny + tiny == 0 ? "flushed to zero" : "kept";
  values_["rounding of floats"] = std::to_string(std::fegetround());
  values_["locale"] = std::setlocale(LC_ALL, nullptr);
  std::error_code error;
  values_["working directory"] = fs::current_path(error).string();
  const mode_t mask = ::umask(0);
  ::umask(mask);
  values_["umask"] = fmt::format("{:o}", mask);
  for (int number = 1; number < 32; ++number) {
    struct sigaction now {};
    if (number == SIGKILL || number == SIGSTOP || ::sigaction(number, nullptr, &now) != 0) continue;
    values_[fmt::format("handler of SIG{}", sigabbrev_np(number))] =
        fmt::format("{:#x}", reinterpret_cast<uintptr_t>(now.sa_handler));
  }
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  std::string set;
  for (int number = 1; number < 32; ++number)
    if (sigismember(&blocked, number) == 1) set += fmt::format("{} ", number);
  values_["blocked signals"] = set;
  for (char** one = environ; one && *one; ++one) {
    const std::string text = *one;
    values_["environment variable " + text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  values_["open files"] = open_files();
  values_["threads"] = std::to_string(threads());
}

std::vector<std::string> Surroundings::changes(bool with_threads) const {
  const Surroundings now;
  std::vector<std::string> out;
  for (const auto* side : {&values_, &now.values_})
    for (const auto& [what, value] : *side) {
      if (what == "threads" && !with_threads) continue;
      const auto before = values_.find(what), after = now.values_.find(what);
      const std::string a = before == values_.end() ? "absent" : before->second,
                        b = after == now.values_.end() ? "absent" : after->second;
      const std::string line = fmt::format("{}: {}, then {}", what, a.empty() ? "none" : a, b.empty() ? "none" : b);
      if (a != b && std::find(out.begin(), out.end(), line) == out.end()) out.push_back(line);
    }
  return out;
}

namespace {

void expect_unchanged(const Surroundings& before, const char* after, bool with_threads) {
  const auto changes = before.changes(with_threads);
  if (!changes.empty()) throw Broken(fmt::format("{} changes this process: {}", after, fmt::join(changes, "; ")));
}

off_t printed() {
  std::fflush(stdout), std::fflush(stderr);
  struct stat out {
  }, err{};
  ::fstat(1, &out), ::fstat(2, &err);
  return out.st_size + err.st_size;
}

}  // namespace

void probe(const Candidate& file, Sheet& sheet) {
  void* handle = nullptr;
  eng_plugin_query_fn query = nullptr;
  eng_plugin plugin{};
  const Description& d = file.description;
  const off_t quiet = printed();
  bool good = sheet.check("load", [&] {
    const Surroundings before;
    handle = ::dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) throw Broken(::dlerror());
    query = reinterpret_cast<eng_plugin_query_fn>(::dlsym(handle, "eng_plugin_query_1"));
    if (!query) throw Broken("it exports no eng_plugin_query_1");
    expect_unchanged(before, "loading it", true);
    return "";
  });
  if (!good) return;
  good = sheet.check("query, describe", [&] {
    const Surroundings before;
    const eng_plugin* root = query(ENG_ABI_MINOR);
    if (root != query(ENG_ABI_MINOR)) throw Broken("eng_plugin_query_1 gives two tables");
    copy_struct(root, &plugin, sizeof plugin, sizeof plugin, "its eng_plugin table");
    if (!speaks(plugin.draft_id))
      throw Broken(fmt::format("built from ABI draft '{}', this engine speaks ABI {}", one_line(plugin.draft_id, 60),
                               ENG_ABI_DRAFT_ID));
    const char* text = plugin.describe();
    if (!text || d.text != text)
      throw Broken("describe() differs from the section .eng_plugin: let it return eng_description");
    expect_unchanged(before, "describing it", true);
    return "";
  });
  if (!good) return;
  static size_t lines = 0;
  const eng_host host = {sizeof(eng_host), ENG_ABI_MINOR, nullptr,
                         [](const eng_host*, int32_t, const char*, uint64_t) { ++lines; },
                         [](const eng_host*, const char* id) -> const void* {
                           return id && std::strcmp(id, ENG_THREADS_EXTENSION) == 0 ? &host_threads : nullptr;
                         }};
  const Surroundings before;
  good = sheet.check("start", [&] {
    Sink sink;
    sink.check(plugin.start(&host, sink.get()), Exit::environment, "start");
    expect_unchanged(before, "start", false);
    return lines ? fmt::format("it logs {} lines", lines) : "";
  });
  if (!good) return;
  sheet.check("a table for each kind that is listed", [&] {
    for (const Provided& one : d.provides) {
      const void* table = plugin.get_interface(one.kind.c_str(), one.name.c_str());
      if (!table)
        throw Broken(fmt::format("get_interface gives NULL for {} '{}', which is listed", one.kind, one.name));
      if (table != plugin.get_interface(one.kind.c_str(), one.name.c_str()))
        throw Broken(fmt::format("get_interface gives two tables for {} '{}'", one.kind, one.name));
      const uint32_t size = *static_cast<const uint32_t*>(table);
      if (size < 8 || size > 65536 || size % 8)
        throw Broken(fmt::format("the table of {} '{}' states struct_size {}", one.kind, one.name, size));
    }
    return fmt::format("{}", d.provides.size());
  });
  sheet.check("no table for what it does not provide", [&] {
    // A plugin may compare kinds alone: the engine never asks for a name that is not listed.
    for (const char* kind : {"eng.nothing/1", "org.example.unknown/1", ""})
      if (plugin.get_interface(kind, "nothing"))
        throw Broken(fmt::format("get_interface gives a table of kind '{}'", kind));
    for (const Kind& kind : kinds()) {
      const auto same = [&](const Provided& one) { return one.kind == kind.id; };
      if (std::none_of(d.provides.begin(), d.provides.end(), same) && plugin.get_interface(kind.id, "nothing"))
        throw Broken(fmt::format("get_interface gives a table of {}, which is not listed", kind.id));
    }
    return "";
  });
  sheet.check("stop", [&] {
    plugin.stop();
    if (const size_t left = threads_left()) throw Broken(fmt::format("{} threads still run after stop", left));
    expect_unchanged(before, "starting and stopping it", true);
    return "no thread, file or setting is left";
  });
  sheet.check("nothing on stdout or stderr", [&] {
    if (const off_t n = printed() - quiet; n > 0)
      throw Broken(fmt::format("it wrote {} bytes: a plugin logs by eng_host.log, and prints nothing", n));
    return "";
  });
}

}  // namespace eng::plugin_test
