// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cfloat>
#include <clocale>
#include <csignal>
#include <fstream>

#include "core/base/error.hpp"
#include "engine/optimizer.h"
#include "fixture.h"
#include "folder.hpp"
#include "session/plugins/pins.hpp"

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

namespace {

// The message of loading fixture NAME; "" if that works.
std::string failure(const std::string& name, const std::string& provides = "lion") {
  const Folder folder;
  const fs::path file = folder.put(name);
  const auto registry = folder.scan();
  if (!at(*registry, file).refused.empty()) return "refused by the scan: " + at(*registry, file).refused;
  std::string text[2];
  for (std::string& t : text) try {
      registry->table<eng_optimizer>("eng.optimizer/1", provides);
    } catch (const eng::Error& error) {
      CHECK(error.exit() == eng::Exit::environment);
      t = error.what();
      CHECK_THAT(t, Contains(file.string()));
    }
  CHECK(text[0] == text[1]);  // nothing is tried twice
  return text[0];
}

// The message of loading fixture NAME about its effects on the process.
std::string warning(const std::string& name) {
  const Folder folder;
  folder.put(name);
  std::string said;
  eng::set_plugin_log([&](const std::string&, int32_t level, const std::string& text) {
    if (level == ENG_LOG_WARNING) said += text;
  });
  folder.scan()->table<counter>(COUNTER_KIND, "counter");
  eng::set_plugin_log(nullptr);
  return said;
}

}  // namespace

TEST_CASE("a good plugin is loaded once, however many registries ask") {
  const Folder folder;
  const fs::path file = folder.put("good");
  std::vector<std::string> lines;
  eng::set_plugin_log([&](const std::string& id, int32_t level, const std::string& text) {
    lines.push_back(id + " " + std::to_string(level) + " " + text);
  });
  counter counts{};
  for (int k = 0; k < 3; ++k) {
    const auto registry = folder.scan();
    counts = registry->table<counter>(COUNTER_KIND, "counter");
    const auto lion = registry->table<eng_optimizer>("eng.optimizer/1", "lion");
    CHECK(lion.granularity == 1);
    void* self = &lines;
    CHECK(lion.create(nullptr, &self, nullptr) == ENG_OK);
    REQUIRE(registry->loaded().size() == 1);
    CHECK(registry->loaded()[0].id == "org.example.fixture");
    CHECK(registry->loaded()[0].sha256 == sha256_of(file));
  }
  eng::set_plugin_log(nullptr);
  CHECK(counts.starts() == 1);
  CHECK(counts.stops() == 0);
  CHECK(lines == std::vector<std::string>{"org.example.fixture 2 hello from the fixture"});
}

TEST_CASE("a plugin that breaks a rule while loading is refused with the reason") {
  CHECK(failure("good") == "");
  CHECK_THAT(
      failure("size_zero"),
      Contains("its eng_plugin table states struct_size 0: it must be a multiple of 8 from 48 (ABI 1.0) to 65536"));
  CHECK_THAT(failure("size_small"), Contains("states struct_size 40: it must be"));
  CHECK_THAT(failure("size_odd"), Contains("states struct_size 50: it must be a multiple of 8"));
  CHECK_THAT(failure("size_huge"),
             Contains("states struct_size 1073741824: it must be a multiple of 8 from 48 (ABI 1.0) to 65536"));
  CHECK_THAT(failure("null_root"), Contains("its eng_plugin table is NULL"));
  CHECK_THAT(failure("root_draft"), Contains("built from ABI draft 'draft-0'"));
  CHECK_THAT(failure("describe_differs"), Contains("describe() differs from the file's section .eng_plugin"));
  CHECK_THAT(failure("start_fails"), Contains("start: there is no such device"));
  CHECK_THAT(failure("start_silent"), Contains("start: failed with status 14 and no text"));
  CHECK_THAT(failure("throwing", "throwing"), Contains("start threw through the C ABI: out of luck"));
  CHECK_THAT(failure("small_table"), Contains("its table of eng.optimizer/1 'lion' states struct_size 40"));
  CHECK_THAT(failure("null_slot"), Contains("the pointer at byte 40 is NULL"));
  CHECK_THAT(failure("no_interface"), Contains("get_interface gave NULL for eng.optimizer/1 'lion'"));
}

TEST_CASE("a kind of another draft is not used, the file's other kinds are") {
  const Folder folder;
  const fs::path file = folder.put("kind_draft");
  std::vector<std::string> said;
  eng::set_plugin_log([&](const std::string&, int32_t level, const std::string& text) {
    if (level == ENG_LOG_WARNING) said.push_back(text);
  });
  const auto registry = folder.scan();
  CHECK(at(*registry, file).refused == "");
  CHECK(registry->find("eng.optimizer/1", "lion") == nullptr);
  CHECK(registry->names("eng.optimizer/1").empty());
  CHECK_THROWS_WITH(registry->table<eng_optimizer>("eng.optimizer/1", "lion"), Contains("no plugin provides"));
  CHECK(registry->table<counter>(COUNTER_KIND, "counter").starts() == 1);
  eng::set_plugin_log(nullptr);
  REQUIRE(said.size() == 2);
  CHECK_THAT(
      said[0],
      Contains("'lion' is not used: built from draft eng.optimizer/1-draft1, this engine speaks " ENG_OPTIMIZER_DRAFT
               ": rebuild the plugin"));
  CHECK_THAT(said[1], Contains("this engine has no kind eng.opz/1; did you mean eng.ops/1?"));
}

TEST_CASE("what was built from the draft before is used with a warning, where tables only grew") {
  const Folder folder;
  const fs::path file = folder.put("old_draft");
  std::vector<std::string> said;
  eng::set_plugin_log([&](const std::string&, int32_t level, const std::string& text) {
    if (level == ENG_LOG_WARNING) said.push_back(text);
  });
  const auto registry = folder.scan();
  CHECK(at(*registry, file).refused == "");
  REQUIRE(registry->find("eng.optimizer/1", "lion"));
  CHECK(registry->table<eng_optimizer>("eng.optimizer/1", "lion").create);
  eng::set_plugin_log(nullptr);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("'lion': built from draft eng.optimizer/1-draft") &&
                          Contains("which this engine still accepts: rebuild the plugin for " ENG_OPTIMIZER_DRAFT));
}

TEST_CASE("what a plugin changes in the process is undone and reported") {
  CHECK(warning("good") == "");
  CHECK_THAT(warning("ftz"),
             Contains("it changed the flush-to-zero (is it linked with -ffast-math?) from off to on; undone"));
  volatile float small = FLT_MIN;
  CHECK(small / 4 > 0);
  CHECK_THAT(warning("locale"), Contains("it changed the locale from C to C.UTF-8"));
  CHECK(std::string(std::setlocale(LC_ALL, nullptr)) == "C");
  CHECK_THAT(warning("signal"), Contains("it changed the handler of SIGPIPE"));
  struct sigaction now;
  sigaction(SIGPIPE, nullptr, &now);
  CHECK(now.sa_handler == SIG_DFL);
}

TEST_CASE("fields that the plugin does not know are zero") {
  const Folder folder;
  folder.put("good");
  const auto registry = folder.scan();
  const auto later = registry->table<counter_later>(COUNTER_KIND, "counter", sizeof(counter));
  CHECK(later.first.struct_size == sizeof(counter));
  CHECK(later.first.starts() == 1);
  CHECK(later.added_later == nullptr);
  CHECK_THROWS_WITH(registry->table<counter_later>(COUNTER_KIND, "counter"), Contains("from 32 (ABI 1.0)"));
}

TEST_CASE("a table from a later version is cut to what is known") {
  struct {
    uint64_t slots[4];
  } theirs = {{sizeof(theirs), 7, 8, 9}};
  uint64_t ours[2] = {};
  eng::copy_struct(&theirs, ours, sizeof(ours), sizeof(ours), "x");
  CHECK(ours[0] == sizeof(theirs));
  CHECK(ours[1] == 7);
}

TEST_CASE("a pinned plugin must have that very content") {
  const Folder folder;
  const fs::path file = folder.put("good");
  const std::string hash = sha256_of(file), wrong(64, '0');
  const auto registry = folder.scan();
  pin_plugins(*registry, {"org.example.fixture=" + wrong});
  CHECK_THROWS_WITH(registry->table<counter>(COUNTER_KIND, "counter"),
                    Contains(file.string()) && Contains("its sha256 is " + hash + ", [plugins] sha256 pins " + wrong));
  std::string upper = hash;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  pin_plugins(*registry, {"org.example.fixture=" + upper});
  CHECK(registry->table<counter>(COUNTER_KIND, "counter").starts() == 1);  // and it was not started before
  pin_plugins(*registry, {"org.example.fixture=" + wrong});
  CHECK_THROWS_WITH(registry->table<counter>(COUNTER_KIND, "counter"), Contains("its sha256 is"));
  CHECK_THROWS_WITH(pin_plugins(*registry, {"org.example.nothing=" + hash}), Contains("there is no plugin with id"));
  CHECK_THROWS_WITH(pin_plugins(*registry, {hash}), Contains("there is no plugin with id"));
  for (const std::string& no_hash : {std::string(), std::string("="), "=" + hash + "0", "=x" + hash.substr(1)})
    CHECK_THROWS_WITH(pin_plugins(*registry, {"org.example.fixture" + no_hash}), Contains("is not ID=HASH"));
}
