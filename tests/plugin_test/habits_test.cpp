// SPDX-License-Identifier: Apache-2.0
// A plugin's effects on its process, the contents of its file, and the words that the command line may have.
#include "tried.hpp"

namespace plugin_test {

TEST_CASE("what a plugin does to its process is reported", "[plugin_test][.slow]") {
  const Scratch place;
  const fs::path file = fs::path(PLANTED_DIR) / "habits.eng.so";
  const Tried good = try_plugin(place, file);
  INFO(good.text());
  CHECK(good.result.exit == 0);
  for (const auto& [habit, said] : std::vector<std::pair<const char*, const char*>>{
           {"thread", "process, stop: 1 threads still run after stop"},
           {"prints", "it wrote 6 bytes"},
           {"environment", "environment variable LD_PRELOAD: absent, then mine.so"},
           {"folder", "working directory: "},
           {"file", "open files: "},
           {"locale", "locale: C, then C.UTF-8"},
           {"signal", "handler of SIGTERM: 0x0, then 0x1"},
#ifdef SANITIZED  // a sanitizer has words of its own
           {"exits", "process, start: "},
           {"dies", "process, start: "},
#else
           {"exits", "process, start: ended the process with exit code 0"},
           {"dies", "process, start: died of SIGSEGV"},
#endif
           {"dies in alloc", "eng.tier/1 habits, arenas: died of SIGABRT"},
           {"any kind", "get_interface gives a table of"},
           {"refuses", "create fails"},
       }) {
    const Tried tried = try_plugin(place, file, {}, {std::string("HABIT=") + habit});
    INFO(habit << "\n" << tried.text());
    CHECK(tried.result.exit == 3);
    CHECK(tried.failed(said));
  }
  const Tried hangs = try_plugin(place, file, {"--timeout", "1"}, {"HABIT=hangs"});
  CHECK(hangs.failed("process, start: did not return within 1 s"));
}

TEST_CASE("what is wrong with a file is told without loading it, or where it is loaded", "[plugin_test]") {
  const Scratch place;
  for (const auto& [name, said] : std::vector<std::pair<const char*, const char*>>{
           {"good", ""},
           {"strangers", "exports helper besides eng_plugin_query_1"},
           {"wrong_major", "built for ABI 2"},
           {"no_symbol", "exports no eng_plugin_query_1"},
           {"no_section", "has no section .eng_plugin"},
           {"bad_toml", "description is not TOML"},
           {"wrong_draft", "built from ABI draft 'draft-0'"},
           {"root_draft", "built from ABI draft 'draft-0'"},
           {"kind_draft", "this engine has no kind eng.opz/1; did you mean eng.ops/1?"},
           {"old_draft", "which this engine still accepts: rebuild the plugin"},
           {"describe_differs", "describe() differs from the section"},
           {"start_silent", "process, start: start: failed with status 14 and no text"},
           {"start_fails", "there is no such device"},
           {"no_interface", "get_interface gives NULL"},
           {"null_root", "its eng_plugin table is NULL"},
           {"size_odd", "states struct_size 50"},
           {"small_table", "states struct_size"},
           {"null_slot", "is NULL"},
           {"foreign", "process, load: ended the process with exit code 99"},
           {"ftz", "denormal floats (is it linked with -ffast-math?): kept, then flushed to zero"},
       }) {
    const fs::path file = fs::path(FIXTURES) / (std::string("fixture_") + name + ".eng.so");
    const bool bare = std::string(name) == "kind_draft" || std::string(name) == "old_draft";  // has no options
    const Tried tried = try_plugin(place, file, bare ? Args{} : Args{"steps=3"});
    INFO(name << "\n" << tried.text());
    if (*said) CHECK(tried.result.exit == 3);
    if (*said) CHECK(tried.failed(said));
    // The fixture's optimizer updates nothing, and everything else of it is right.
    if (!*said) CHECK(tried.failed().size() == 1);
  }
}

TEST_CASE("a second OpenMP runtime is reported", "[plugin_test]") {
  const Scratch place;
  std::string bytes = read(fs::path(FIXTURES) / "fixture_good.eng.so");
  const std::string from = "libc.so.6", to = "libomp.so";
  for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
    bytes.replace(at, to.size(), to);
  const Tried tried = try_plugin(place, place.write("omp.eng.so", bytes), {"steps=3"});
  INFO(tried.text());
  CHECK(tried.failed("it needs libomp.so: a second OpenMP runtime beside libgomp"));
}

TEST_CASE("a key or a name that nothing has is refused with the nearest", "[plugin_test]") {
  const Scratch place;
  const std::string file = (fs::path(PLANTED_DIR) / "habits.eng.so").string();
  const std::string muon = (fs::path(ENGINE_PLUGIN_DIR) / "optim/muon.eng.so").string();
  Result r = engine(place, {"plugins", "test", muon, "stps=2"});
  CHECK(r.exit == 2);
  CHECK(has(r.err, "did you mean `steps`?"));
  r = engine(place, {"plugins", "test", file, "--name", "habit"});
  CHECK(r.exit == 2);
  CHECK(has(r.err, "it provides: eng.tier/1 habits"));
  r = engine(place, {"plugins", "test", "nothing.eng.so"});
  CHECK(r.exit == 3);
  CHECK(has(r.err, "there is no file"));
}

}  // namespace plugin_test
