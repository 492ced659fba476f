// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/tester.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "engine/comm.h"
#include "engine/model.h"
#include "engine/tier.h"
#include "engine/tokenizer.h"
#include "session/config/spelling.hpp"
#include "session/plugins/elf_audit.hpp"
#include "session/plugins/held_file.hpp"
#include "session/plugins/needs.hpp"
#include "session/plugins/search.hpp"
#include "session/ranks/ranks.hpp"
#include "tools/engine/plugin_test/child.hpp"
#include "tools/engine/plugin_test/comm.hpp"
#include "tools/engine/plugin_test/probe.hpp"

namespace eng::plugin_test {
namespace fs = std::filesystem;
namespace {

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "engine-plugins-test-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw Error(Exit::environment, "no folder can be made in " + fs::temp_directory_path().string());
    path_ = name;
  }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path folder(const std::string& name) const {
    fs::create_directory(path_ / name);
    return path_ / name;
  }

 private:
  fs::path path_;
};

std::unique_ptr<Registry> search(const Request& request) {
  PluginSearch where;
  where.extra.push_back(fs::absolute(request.file).lexically_normal());
  where.extra.insert(where.extra.end(), request.plugin_paths.begin(), request.plugin_paths.end());
  return find_plugins(where);
}

const Candidate& candidate_of(const Registry& registry, const Request& request) {
  const fs::path path = fs::absolute(request.file).lexically_normal();
  for (const Candidate& one : registry.candidates())
    if (one.path == path) return one;
  throw Error(Exit::environment, fmt::format("there is no file {}", path.string()));
}

bool selected(const Request& request, const Provided& one) {
  return (request.kind.empty() || request.kind == one.kind) && (request.name.empty() || request.name == one.name);
}

// Every key must be one of something that the file provides: to try its kernels, its model is made.
void check_keys(const Request& request, const Candidate& file) {
  std::vector<std::string> known = {"preset", "tokenizer", "file"};
  bool any = false;
  for (const Provided& one : file.description.provides) {
    any = any || selected(request, one);
    for (const Option& option : one.schema.options) known.push_back(option.key);
    const Kind* kind = find_kind(one.kind);
    for (const SectionSchema& section : section_schemas())
      for (const Option& option : section.options)
        if (kind && section.name == kind->section) known.push_back(option.key);
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (!any) {
    std::vector<std::string> all;
    for (const Provided& one : file.description.provides) all.push_back(one.kind + " " + one.name);
    throw Error(Exit::usage, fmt::format("{} provides nothing of that kind and name", file.path.string()),
                fmt::format("it provides: {}", fmt::join(all, ", ")));
  }
  for (const std::string& given : request.given) {
    const std::string key = given.substr(0, given.find('='));
    if (given.find('=') == std::string::npos)
      throw Error(Exit::usage, fmt::format("`{}` is not of the form KEY=VALUE", given));
    if (key.find('.') != std::string::npos || std::count(known.begin(), known.end(), key)) continue;
    const auto near = nearest(key, known);
    throw Error(Exit::usage, fmt::format("nothing that it provides has an option `{}`", key),
                near.empty() ? fmt::format("options are: {}", fmt::join(known, ", "))
                             : fmt::format("did you mean `{}`?", fmt::join(near, "` or `")));
  }
}

void audit(const Request& request, const Candidate& file, Sheet& sheet) {
  const Held held = hold(fs::absolute(request.file).lexically_normal());
  const ReadAt read = held.file ? held.file->reader() : [](void*, uint64_t, uint64_t) -> uint64_t { return 0; };
  const ElfAudit elf = audit_elf(read);
  const auto told = [&](const char* name, const std::vector<std::string>& wrong, const std::string& good) {
    sheet.check(name, [&] {
      if (!wrong.empty()) throw Broken(fmt::format("{}", fmt::join(wrong, "; ")));
      return good;
    });
  };
  told("may be loaded", held.refused.empty() ? std::vector<std::string>{} : std::vector{held.refused}, "");
  told("exports its entry alone", elf.problem.empty() ? std::vector<std::string>{} : std::vector{elf.problem}, "");
  told("description", file.refused.empty() ? std::vector<std::string>{} : std::vector{file.refused},
       file.description.id + " " + file.description.version);
  if (!elf.problem.empty()) return;
  std::vector<std::string> wrong;
  if (const std::string why = distrust_of_needs(held.file->path(), read); !why.empty()) wrong.push_back(why);
  for (const std::string& name : elf.needed)
    if (name.starts_with("libomp") || name.starts_with("libiomp"))
      wrong.push_back(
          fmt::format("it needs {}: a second OpenMP runtime beside libgomp in one process; link with -fopenmp "
                      "of gcc, or do without",
                      name));
  told("needed libraries", wrong, fmt::format("{}", fmt::join(elf.needed, ", ")));
  told("versions of symbols", elf.too_new, "all are here");
  told("segments", elf.segments, "none is writable and executable");
  told("constructors", {},
       elf.constructors <= 1 ? "none of its own" : fmt::format("{} run when it is loaded", elf.constructors - 1));
}

std::string of(const Provided& one) {
  return one.kind + " " + one.name;
}

}  // namespace

std::vector<Verdict> test_plugin(const Request& request) {
  std::vector<Verdict> out;
  const auto put = [&](const Verdict& v) { out.push_back(v); };
  const Receiver here{[](const std::string&) {}, put};
  if (!fs::exists(request.file))
    throw Error(Exit::environment, fmt::format("there is no file {}", request.file.string()));
  const auto registry = search(request);
  const Candidate& file = candidate_of(*registry, request);
  Sheet sheet("file", here, request.seed);
  audit(request, file, sheet);
  if (!file.refused.empty()) return out;
  check_keys(request, file);
  for (const Provided& one : file.description.provides)
    if (!one.refused.empty() || !one.old.empty())
      Sheet(of(one), here, request.seed).fail("its kind", one.refused.empty() ? one.old : one.refused);

  Limits limits;
  limits.seconds = std::min(60.0, request.seconds);
  in_child(
      "process", limits,
      [&](const Receiver& to) {
        Sheet process("process", to, request.seed);
        probe(file, process);
      },
      put);
  limits.seconds = request.seconds;
  const Scratch scratch;
  size_t number = 0;
  for (const Provided& one : file.description.provides) {
    const Kind* kind = find_kind(one.kind);
    if (!selected(request, one) || !one.refused.empty()) continue;
    if (!kind) {
      Sheet(of(one), here, request.seed).untested("all", "it is a kind of somebody else, or one without laws here");
      continue;
    }
    const fs::path folder = scratch.folder(std::to_string(number++));
    in_child(
        of(one), limits,
        [&](const Receiver& to) {
          Sheet laws(of(one), to, request.seed);
          set_plugin_log([](const std::string&, int32_t, const std::string&) {});
          const Surroundings before;
          kind->test({*registry, file, one, request.given, request.seed, request.rounds, folder}, laws);
          laws.check("leaves its process as it was", [&]() -> std::string {
            stop_plugins();
            if (const size_t left = threads_left()) throw Broken(fmt::format("{} threads still run after stop", left));
            const auto changes = before.changes();
            if (!changes.empty()) throw Broken(fmt::format("{}", fmt::join(changes, "; ")));
            return "";
          });
        },
        put);
  }
  return out;
}

void test_as_rank(const Request& request, const fs::path& folder) {
  const auto registry = search(request);
  const Candidate& file = candidate_of(*registry, request);
  const Announced said = Announced::read([](const char* name) -> const char* { return std::getenv(name); });
  std::ofstream to(folder / fmt::format("rank-{}", said.rank));
  for (const Provided& one : file.description.provides) {
    if (!selected(request, one)) continue;
    Sheet sheet(of(one),
                {[](const std::string&) {},
                 [&](const Verdict& v) {
                   to << static_cast<int>(v.outcome) << '\t' << v.check << '\t' << v.text << std::endl;
                 }},
                request.seed);
    test_rank({*registry, file, one, request.given, request.seed, request.rounds, folder}, sheet);
  }
}

}  // namespace eng::plugin_test
