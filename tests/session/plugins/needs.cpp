// SPDX-License-Identifier: Apache-2.0
// Libraries that come with a plugin: where they are looked for, and who may put them there.
#include "session/plugins/needs.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.hpp"
#include "session/plugins/elf_rows.hpp"
#include "tests/registry/fixture.h"
#include "tests/registry/folder.hpp"

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

namespace {

std::string bytes_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

// A plugin in FOLDER/plugins that needs libneeded, with a search path of its own.
struct Needing : Folder {
  Needing() {
    for (const char* name : {"plugins", "libs", "more"}) {
      fs::create_directory(path / name);
      REQUIRE(chmod((path / name).c_str(), 0755) == 0);
    }
    REQUIRE(chmod(path.c_str(), 0755) == 0);
  }

  // `kind`: "runpath" or "rpath". In `list`, % is the folder. `needed`: the library's name as the file has it.
  void make(const std::string& kind, std::string list, std::string needed = "libneeded.so") {
    for (std::string* text : {&list, &needed})
      for (size_t at; (at = text->find('%')) != text->npos;) text->replace(at, 1, path.string());
    write(plugin(), FIXTURES "/fixture_" + kind + ".eng.so", {{'R', list}, {'N', needed}});
  }
  // The library, which ends a process that loads it.
  void library(const std::string& to, const std::string& list = "") const {
    write(path / to, FIXTURES "/libneeded_fixture.so", {{'R', list}});
  }
  fs::path plugin() const { return path / "plugins" / "needing.eng.so"; }
  std::string refused() const {
    const auto registry = eng::find_plugins({{path / "plugins"}, false});
    return at(*registry, plugin()).refused;
  }
  void mode(const std::string& name, unsigned bits) const { REQUIRE(chmod((path / name).c_str(), bits) == 0); }

 private:
  // A copy of a file with texts in place of its runs of one letter.
  static void write(const fs::path& to, const std::string& from,
                    const std::vector<std::pair<char, std::string>>& texts) {
    std::string bytes = bytes_of(from);
    REQUIRE(bytes.size() > 1000);
    for (const auto& [letter, text] : texts) {
      const size_t at = bytes.find(std::string(100, letter));
      REQUIRE(at != bytes.npos);
      const size_t end = bytes.find_first_not_of(letter, at);
      REQUIRE(text.size() < end - at);
      bytes.replace(at, end - at, text + std::string(end - at - text.size(), '\0'));
    }
    std::ofstream(to, std::ios::binary) << bytes;
    REQUIRE(chmod(to.c_str(), 0644) == 0);
  }
};

}  // namespace

TEST_CASE("folders in which a plugin's libraries are looked for are closed to others") {
  Needing one;
  one.library("libs/libneeded.so");
  for (const char* kind : {"runpath", "rpath"}) {
    const std::string what = std::string(kind) == "rpath" ? "RPATH" : "RUNPATH";
    INFO(what);
    for (const char* good :
         {"%/libs", "$ORIGIN/../libs", "${ORIGIN}/../libs:/usr/lib", "%/none/at/all", "%/libs:%/more"}) {
      INFO(good);
      one.make(kind, good);
      CHECK(one.refused() == "");
    }
    for (const char* relative : {".", "", "libs", "%/libs:", ":%/libs", "%/libs::%/more", "./libs", "$ORIGINAL"}) {
      INFO(relative);
      one.make(kind, relative);
      if (*relative)
        CHECK_THAT(one.refused(), Contains("its " + what) && Contains("depends on the working directory"));
      else
        CHECK(one.refused() == "");
    }
    for (const char* unknown : {"%/$LIB", "/usr/${PLATFORM}"}) {
      one.make(kind, unknown);
      CHECK_THAT(one.refused(), Contains("whose value only the loader knows"));
    }
    // An attacker can write a folder, one above it, or the library.
    one.make(kind, "$ORIGIN/../more:%/libs");
    for (const char* name : {"libs", "more", "libs/libneeded.so"}) {
      INFO(name);
      one.mode(name, 0777);
      CHECK_THAT(one.refused(), Contains(fs::path(name).filename().string()) && Contains("every user can"));
      one.mode(name, 0755);
      CHECK(one.refused() == "");
    }
    one.mode("libs", 01777);
    CHECK_THAT(one.refused(), Contains("every user can put libraries there"));
    one.mode("libs", 0755);
    one.make(kind, (fs::temp_directory_path() / "engine-no-such-folder").string());
    CHECK_THAT(one.refused(), Contains("has mode 1777") || Contains("every user can"));
    // Folders in them that the loader prefers.
    fs::create_directories(one.path / "libs/glibc-hwcaps/x86-64-v3");
    one.make(kind, "%/libs");
    CHECK(one.refused() == "");
    one.mode("libs/glibc-hwcaps/x86-64-v3", 0777);
    CHECK_THAT(one.refused(), Contains("x86-64-v3") && Contains("every user can"));
    fs::remove_all(one.path / "libs/glibc-hwcaps");
  }
}

TEST_CASE("libraries of another user are not loaded with a plugin") {
  if (geteuid() != 0) {
    WARN("SKIPPED: only root can give files to other users");
    return;
  }
  Needing one;
  one.library("libs/libneeded.so");
  one.make("runpath", "%/more:%/libs");
  for (const char* name : {"libs", "more", "libs/libneeded.so"}) {
    INFO(name);
    REQUIRE(chown((one.path / name).c_str(), 4711, 4711) == 0);
    CHECK_THAT(one.refused(), Contains("owner 4711, who is neither root nor you"));
    REQUIRE(chown((one.path / name).c_str(), 0, 0) == 0);
    CHECK(one.refused() == "");
  }
}

TEST_CASE("libraries of a plugin's libraries, and those with a path, are looked at as well") {
  Needing one;
  one.make("runpath", "%/libs");
  // The library itself looks for what it needs where others can write.
  one.library("libs/libneeded.so", ".");
  CHECK_THAT(one.refused(), Contains("it needs " + (one.path / "libs/libneeded.so").string()) &&
                                Contains("depends on the working directory"));
  one.library("libs/libneeded.so", (one.path / "more").string());
  CHECK(one.refused() == "");
  one.mode("more", 0757);
  CHECK_THAT(one.refused(),
             Contains("it needs " + (one.path / "libs/libneeded.so").string()) && Contains("every user can exchange"));
  one.mode("more", 0755);
  // By path.
  one.library("more/libneeded.so");
  for (const char* path : {"%/more/libneeded.so", "$ORIGIN/../more/libneeded.so"}) {
    one.make("runpath", "%/libs", path);
    CHECK(one.refused() == "");
    one.mode("more/libneeded.so", 0666);
    CHECK_THAT(one.refused(), Contains("more/libneeded.so") && Contains("every user can write"));
    one.mode("more/libneeded.so", 0644);
  }
  one.make("runpath", "%/libs", "./libneeded.so");
  CHECK_THAT(one.refused(), Contains("it needs `./libneeded.so`, which depends on the working directory"));
  // A file that is no library of this machine is passed over, as the loader does.
  std::ofstream(one.path / "more" / "libneeded.so") << "no library";
  one.make("runpath", "%/more:%/libs");
  CHECK(one.refused() == "");
}

TEST_CASE("a library that became writable after the scan is not loaded") {
  Needing one;
  one.library("libs/libneeded.so");
  one.make("runpath", "%/libs");
  const auto registry = eng::find_plugins({{one.path / "plugins"}, false});
  REQUIRE(at(*registry, one.plugin()).refused == "");
  one.mode("libs", 0777);
  // The library's constructor would end this process.
  CHECK_THROWS_WITH(registry->table<counter>(COUNTER_KIND, "counter"),
                    Contains("its RUNPATH has libraries looked for in") && Contains("every user can exchange"));
}

namespace {

// The help of the error when the plugin is loaded.
std::string help_of(const Needing& one) {
  const auto registry = eng::find_plugins({{one.path / "plugins"}, false});
  REQUIRE(at(*registry, one.plugin()).refused == "");
  try {
    registry->table<counter>(COUNTER_KIND, "counter");
  } catch (const eng::Error& error) {
    CHECK_THAT(error.what(), Contains("cannot be loaded"));
    return error.help();
  }
  return "it was loaded";
}

}  // namespace

TEST_CASE("a plugin without its libraries names them, where they are looked for, and the command that brings them") {
  ::unsetenv("LD_LIBRARY_PATH");  // meson sets it for tests
  const std::string system = ", the folders of the system (ldconfig -p lists them)";
  {
    Needing one;
    one.make("runpath", "$ORIGIN/../tree/nvidia/cu13/lib:%/libs", "libcudart.so.9999");
    const std::string tree = (one.path / "tree").string();
    CHECK_THAT(help_of(one), Contains("libcudart.so.9999 is in none of these: " + tree + "/nvidia/cu13/lib, " +
                                      (one.path / "libs").string() + system +
                                      ". To install: python3 -m pip install --target " + tree + " nvidia-") &&
                                 Contains(" nvidia-cudnn-cu13==9.19.0.56"));
  }
  {
    Needing one;
    const fs::path python = one.path / "env/bin/python3";
    fs::create_directories(python.parent_path());
    std::ofstream(python) << "a Python";
    one.make("runpath", "%/env/lib/python3.11/site-packages/nvidia/cu13/lib", "libnccl.so.9999");
    CHECK_THAT(help_of(one), Contains(". To install: " + python.string() + " -m pip install nvidia-"));
  }
  {
    Needing one;
    one.make("runpath", "%/libs", "libcublasLt.so.9999");
    CHECK_THAT(help_of(one), Contains("build the plugin again with `tools/dev build --cuda`"));
  }
  {
    Needing one;
    one.make("runpath", "$ORIGIN/../tree/pyarrow:%/env/lib/python3.11/site-packages/pyarrow", "libparquet.so.9999");
    CHECK_THAT(help_of(one), Contains("libparquet.so.9999 is in none of these: ") &&
                                 Contains(". To install: python3 -m pip install pyarrow==26."));
  }
  {
    Needing one;
    one.make("runpath", "$ORIGIN/../tree/pyarrow", "libarrow.so.9999");
    CHECK_THAT(help_of(one), Contains(". To install: python3 -m pip install --target " + (one.path / "tree").string() +
                                      " pyarrow==26."));
  }
  {
    Needing one;
    one.make("runpath", "%/libs", "libarrow.so.9999");
    CHECK_THAT(help_of(one), Contains(". To install: run `tools/arrow-library`"));
  }
  {
    Needing one;
    one.make("rpath", "%/libs", "libmpi.so.9999");
    CHECK_THAT(help_of(one),
               Contains("libmpi.so.9999 is in none of these: ") && Contains("To install: apt-get install openmpi-bin"));
  }
  {
    Needing one;
    one.make("runpath", "%/libs", "libnobody_knows.so.1");
    CHECK_THAT(help_of(one), Contains("libnobody_knows.so.1 is in none of these: ") && Contains(system));
    CHECK_THAT(help_of(one), !Contains("To install"));
  }
  {
    Needing one;
    one.make("runpath", "%/libs");
    std::ofstream(one.path / "libs" / "libneeded.so") << "no library";
    CHECK_THAT(help_of(one), Contains("of another version, or lacks a library itself"));
  }
}

TEST_CASE("what a file needs is read through its program headers, and damage is refused") {
  const std::string good = bytes_of(FIXTURES "/fixture_runpath.eng.so");
  const auto needs = [](const std::string& bytes) {
    return eng::elf_needs([&](void* out, uint64_t offset, uint64_t size) {
      const uint64_t n = std::min(size, bytes.size() - std::min<uint64_t>(offset, bytes.size()));
      if (n) std::memcpy(out, bytes.data() + offset, n);
      return n;
    });
  };
  const eng::ElfNeeds all = needs(good);
  CHECK(all.rpath.empty());
  CHECK(all.runpath.find("RRRR") != std::string::npos);
  CHECK(std::any_of(all.libraries.begin(), all.libraries.end(),
                    [](const std::string& name) { return name.starts_with("NNNN"); }));
  // Without sections, which the loader does not read.
  std::string bare = good;
  Elf64_Ehdr head;
  std::memcpy(&head, bare.data(), sizeof(head));
  std::memset(bare.data() + head.e_shoff, 0, bare.size() - head.e_shoff);
  CHECK(needs(bare).libraries == all.libraries);
  for (const size_t size : {size_t{10}, size_t{70}, size_t{300}})
    CHECK_THROWS_AS(needs(good.substr(0, size)), std::runtime_error);
  std::string far = good;
  for (uint16_t k = 0; k < head.e_phnum; ++k) {
    Elf64_Phdr part;
    char* const place = far.data() + head.e_phoff + k * sizeof(part);
    std::memcpy(&part, place, sizeof(part));
    if (part.p_type != PT_DYNAMIC) continue;
    part.p_vaddr = uint64_t{1} << 60;
    std::memcpy(place, &part, sizeof(part));
  }
  CHECK_THROWS_WITH(needs(far), Contains("its dynamic section is not in the file"));
}
