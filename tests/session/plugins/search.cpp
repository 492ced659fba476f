// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "core/base/error.hpp"
#include "session/config/schemas.hpp"
#include "session/plugins/listing.hpp"
#include "session/plugins/program.hpp"
#include "session/run/record.hpp"
#include "tests/registry/fixture.h"
#include "tests/registry/folder.hpp"

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

struct Variable {
  Variable(const char* n, const std::string& value) : name(n) {
    const char* before = std::getenv(n);
    if (before) old = before, had = true;
    setenv(n, value.c_str(), 1);
  }
  ~Variable() { had ? setenv(name, old.c_str(), 1) : unsetenv(name); }
  const char* name;
  std::string old;
  bool had = false;
};

}  // namespace

TEST_CASE("this program's file is known, without /proc too") {
  const fs::path file = fs::canonical("/proc/self/exe");
  CHECK(eng::program_file() == file);
  CHECK(eng::program_file("/nowhere/exe") == file);
}

TEST_CASE("a good plugin is found and listed without running it") {
  const Folder folder;
  const fs::path file = folder.put("good");
  const auto registry = folder.scan();
  REQUIRE(at(*registry, file).refused == "");
  const eng::Provided* lion = registry->find("eng.optimizer/1", "lion");
  REQUIRE(lion);
  CHECK(lion->summary == "sign of the momentum");
  CHECK(lion->schema.options.size() == 3);
  CHECK(lion->schema.presets.count("slow") == 1);
  CHECK(registry->providers("eng.optimizer/1", "lion").at(0)->path == file);
  CHECK(schemas_of(*registry).find("eng.optimizer/1", "lion") == &lion->schema);
  CHECK(schemas_of(*registry).find("eng.optimizer/1", "tiger") == nullptr);
  CHECK_THAT(registry->names("eng.optimizer/1"), Catch::Matchers::VectorContains(std::string("lion")));
  CHECK(registry->loaded().empty());
}

TEST_CASE("each kind of bad file is refused with its reason, without running it") {
  const Folder folder;
  const auto refused = [&](const std::string& name) {
    const fs::path file = folder.put(name);
    return at(*folder.scan(), file).refused;
  };
  CHECK_THAT(refused("no_symbol"), StartsWith("exports no eng_plugin_query_1"));
  CHECK(refused("wrong_major") == "built for ABI 2, this engine speaks 1");
  CHECK_THAT(refused("strangers"), Contains("exports helper besides eng_plugin_query_1 (1 in all)"));
  CHECK_THAT(refused("no_section"), Contains("has no section .eng_plugin"));
  CHECK_THAT(refused("bad_toml"), Contains("description is not TOML: line 1"));
  CHECK_THAT(refused("wrong_draft"),
             Contains("built from ABI draft 'draft-0', this engine speaks ABI " ENG_ABI_DRAFT_ID));
  const auto written = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path / name, std::ios::binary) << text;
    fs::permissions(folder.path / name, fs::perms(0644));
    return at(*folder.scan(), folder.path / name).refused;
  };
  CHECK(written("text.eng.so", "hello\n") == "not an ELF file");
  CHECK(written("empty.eng.so", "") == "not an ELF file");
  const fs::path cut = folder.put("good", "cut.eng.so");
  fs::resize_file(cut, fs::file_size(cut) / 2);
  CHECK_THAT(at(*folder.scan(), cut).refused, Contains("truncated ELF file"));
  fs::create_directory(folder.path / "folder.eng.so");
  CHECK(at(*folder.scan(), folder.path / "folder.eng.so").refused == "not a regular file");
  fs::create_symlink("nowhere", folder.path / "dangling.eng.so");
  CHECK_THAT(at(*folder.scan(), folder.path / "dangling.eng.so").refused, Contains("cannot be opened: No such file"));
  REQUIRE(mkfifo((folder.path / "pipe.eng.so").c_str(), 0600) == 0);
  CHECK(at(*folder.scan(), folder.path / "pipe.eng.so").refused == "not a regular file");
}

TEST_CASE("files and folders that others can write are refused") {
  const Folder folder;
  const fs::path file = folder.put("good");
  CHECK(at(*folder.scan(), file).refused == "");
  fs::permissions(file, fs::perms(0646));
  CHECK_THAT(at(*folder.scan(), file).refused, StartsWith("the file has mode 0646"));
  fs::permissions(file, fs::perms(0644));
  fs::permissions(folder.path, fs::perms(0707));
  CHECK_THAT(at(*folder.scan(), file).refused, StartsWith("folder " + folder.path.string() + " has mode 0707"));
  fs::permissions(folder.path, fs::perms(0700));
  CHECK(at(*folder.scan(), file).refused == "");
  // A link in a safe folder does not make an unsafe one safe.
  const Folder other;
  fs::create_symlink(file, other.path / "link.eng.so");
  CHECK(at(*other.scan(), other.path / "link.eng.so").refused == "");
  fs::permissions(folder.path, fs::perms(0707));
  CHECK_THAT(at(*other.scan(), other.path / "link.eng.so").refused, Contains("has mode 0707"));
}

TEST_CASE("the first of two plugins wins and the other is reported") {
  const Folder first, second;
  const fs::path a = first.put("good"), b = second.put("good"), c = second.put("other_id");
  const auto registry = eng::find_plugins({{first.path, second.path}, false});
  CHECK(registry->providers("eng.optimizer/1", "lion").at(0)->path == a);
  CHECK(at(*registry, b).refused == "shadowed by " + a.string() + " (the same plugin id org.example.fixture)");
  CHECK(at(*registry, c).refused == "eng.optimizer/1 'lion' is shadowed by " + a.string());
  const auto turned = eng::find_plugins({{second.path, first.path}, false});
  CHECK(turned->providers("eng.optimizer/1", "lion").at(0)->path == b);
}

TEST_CASE("files are taken in the order of their names, from the folder itself") {
  const Folder folder;
  folder.put("good", "b.eng.so");
  folder.put("good", "a.eng.so");
  folder.put("good", "c.so");
  fs::create_directory(folder.path / "sub");
  folder.put("other_id", "sub/0.eng.so");
  const auto registry = folder.scan();
  CHECK(registry->providers("eng.optimizer/1", "lion").at(0)->path == folder.path / "a.eng.so");
  CHECK_THROWS(at(*registry, folder.path / "c.so"));
  CHECK_THROWS(at(*registry, folder.path / "sub" / "0.eng.so"));
  const auto direct = eng::find_plugins({{folder.path / "b.eng.so"}, false});
  CHECK(direct->providers("eng.optimizer/1", "lion").at(0)->path == folder.path / "b.eng.so");
}

TEST_CASE("the environment adds folders behind --plugin-path, and only absolute ones") {
  const Folder given, listed, data;
  fs::create_directories(data.path / "engine" / "plugins" / "1");
  const Variable path("ENGINE_PLUGIN_PATH", "relative/folder::" + listed.path.string());
  const Variable xdg("XDG_DATA_HOME", data.path.string());
  const auto registry = eng::find_plugins({{given.path}, true});
  const auto& places = registry->places();
  REQUIRE(places.size() >= 4);
  CHECK(places[0] == given.path);
  CHECK(places[1] == listed.path);
  CHECK(places[2] == data.path / "engine" / "plugins" / "1");
  CHECK(at(*registry, "relative/folder").refused == "ENGINE_PLUGIN_PATH must list absolute folders");
  for (const fs::path& place : places) CHECK(place.is_absolute());
  CHECK(std::find(places.begin(), places.end(), fs::current_path()) == places.end());
  const auto without = eng::find_plugins({{given.path}, false});
  for (const fs::path& place : without->places()) CHECK((place != listed.path && place != places[2]));
}

TEST_CASE("a plugin that is not found is explained") {
  const Folder folder;
  folder.put("good");
  const fs::path bad = folder.put("bad_toml");
  const auto registry = eng::find_plugins({{folder.path, "/nonexistent/folder"}, false});
  // A plain typo: one line, and what could not be read at all, which may be what is meant.
  const std::string text = eng::explain_missing(*registry, "eng.optimizer/1", "tiger");
  const std::string places = std::to_string(registry->places().size());
  const std::string line =
      "no plugin provides eng.optimizer/1 'tiger' in " + places + " places: `engine plugins ls --why` lists them";
  CHECK(text.ends_with(line));
  CHECK_THAT(text, StartsWith(bad.string() + " is refused: description is not TOML"));
  fs::remove(bad);
  // Folders that somebody asked for are told one by one.
  CHECK_THAT(eng::explain_missing(*folder.scan(), "eng.optimizer/1", "tiger", {folder.path, "/nonexistent/folder"}),
             StartsWith("searched " + folder.path.string() +
                        " (plugin files: 1)\nsearched /nonexistent/folder (no such folder)\nno plugin provides"));
  CHECK(eng::explain_missing(*folder.scan(), "eng.optimizer/1", "tiger").find('\n') == std::string::npos);
  // A name of the file, of its id, or of something else in it.
  for (const char* name : {"fixture_good", "org.example.fixture"})
    CHECK_THAT(eng::explain_missing(*folder.scan(), "eng.optimizer/1", name),
               StartsWith((folder.path / "fixture_good.eng.so").string() + " provides ") &&
                   Contains("eng.optimizer/1 'lion'"));
  CHECK_THAT(eng::explain_missing(*folder.scan(), "eng.zero/1", "lion"), Contains("eng.optimizer/1 'lion'"));
  for (const auto& [kind, name] : {std::pair("eng.device/1", "cuda"), {"eng.comm/1", "nccl"}})
    CHECK_THAT(eng::explain_missing(*folder.scan(), kind, name), StartsWith("the package engine-cuda13 has it"));
  CHECK_THAT(eng::explain_missing(*folder.scan(), "eng.device/1", "nccl"), !Contains("engine-cuda13"));
  try {
    registry->table<eng_error>("eng.optimizer/1", "tiger");
    FAIL("found");
  } catch (const eng::Error& error) {
    CHECK(error.exit() == eng::Exit::environment);
    CHECK(error.what() == std::string("no plugin provides eng.optimizer/1 'tiger'"));
  }
}

TEST_CASE("one plugin is printed by its id, by what it provides, or by its file's name; else names that are near") {
  const Folder folder;
  const fs::path file = folder.put("good");
  const auto registry = folder.scan();
  for (const char* name : {"org.example.fixture", "lion", "fixture_good"})
    CHECK_THAT(eng::print_plugin(*registry, name), StartsWith("org.example.fixture 1.2.3") && Contains("'lion'"));
  CHECK(eng::print_plugin(*registry, "lino").empty());
  const std::string near = eng::near_plugins(*registry, "lino");
  CHECK_THAT(near, StartsWith("did you mean `lion`? `engine plugins ls`"));
  CHECK(near.find('\n') == std::string::npos);
  fs::permissions(file, fs::perms(0646));
  CHECK_THAT(eng::near_plugins(*folder.scan(), "lion"),
             StartsWith(file.string() + " is refused: the file has mode 0646"));
}

TEST_CASE("plugins of a run's own folders are those that it was started with") {
  const Folder folder, run, given;
  const fs::path file = folder.put("good");
  const std::string hash = sha256_of(file);
  const auto record = [&](const std::string& sha256) {
    std::ofstream(run.path / "run.json") << R"({"ranks": 2, "plugins": [{"id": "org.example.fixture", "sha256": ")"
                                         << sha256 << R"("}], "extra": {"base_dir": "/base", "plugin_folders": [")"
                                         << folder.path.string() << "\"]}}";
    return eng::read_record(run.path);
  };
  const auto load = [&](const eng::RunRecord& read, std::vector<fs::path> places) {
    const auto registry = eng::find_plugins({std::move(places), false});
    eng::pin_recorded(*registry, read);
    return registry->table<counter>(COUNTER_KIND, "counter").struct_size;
  };
  const eng::RunRecord same = record(hash);
  CHECK(same.base_dir == "/base");
  CHECK(same.ranks == 2);
  REQUIRE(same.plugin_folders == std::vector<fs::path>{folder.path});
  CHECK(load(same, same.plugin_folders) > 0);
  const eng::RunRecord other = record(std::string(64, 'a'));
  CHECK_THROWS_WITH(load(other, other.plugin_folders),
                    Contains("its sha256 is " + hash + ", the run's run.json pins aaaaaaaa"));
  // A folder that the user names himself is taken as it is.
  given.put("good");
  CHECK(load(other, {given.path, folder.path}) > 0);
  // A file that cannot be read is ignored.
  for (const char* text : {"", "[]", "{\"extra\": 3, \"plugins\": {}, \"ranks\": \"x\"}"}) {
    std::ofstream(run.path / "run.json") << text;
    const eng::RunRecord none = eng::read_record(run.path);
    CHECK((none.base_dir.empty() && none.ranks == 0 && none.plugin_folders.empty() && none.plugins.empty()));
  }
}

TEST_CASE("sha256 of files") {
  const Folder folder;
  const auto hash = [&](const std::string& text) {
    std::ofstream(folder.path / "f", std::ios::binary) << text;
    return sha256_of(folder.path / "f");
  };
  // FIPS 180-4 examples.
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
