// SPDX-License-Identifier: Apache-2.0
// A device that is not on this machine: its plugin tells no memory, and refuses to make an object.
#include "hostile.hpp"

namespace hostile {

TEST_CASE("check and plan refuse a device that is not here, as run does", "[hostile]") {
  const Scratch scratch;
  scratch.write("absent.toml",
                "[model]\nplugin = \"hostile\"\n[precision]\nplugin = \"hostile\"\n[optimizer]\nplugin = \"hostile\"\n"
                "learning_rate = 0.1\n[data]\nplugin = \"hostile\"\n[train]\nsteps = 3\nsequence_length = 16\n"
                "[device]\nplugin = \"void\"\nfault = \"device: absent\"\n");
  for (const char* command : {"run", "check", "plan"}) {
    const Result r = engine(scratch, {"--plugin-path", HOSTILE_DIR, command, "absent.toml"});
    INFO(command << "\n" << r.out << r.err);
    CHECK(r.exit == 3);
    CHECK(has(r.err, "void: there is no such card on this machine"));
    CHECK_FALSE(has(r.out, "of 0 B"));
    CHECK(has(r.out, "process peak") == (std::string(command) == "plan"));  // which holds all the same
    CHECK_FALSE(fs::exists(scratch / "runs"));
  }
  const Result json = engine(scratch, {"--plugin-path", HOSTILE_DIR, "plan", "absent.toml", "--json"});
  CHECK(Json::parse(json.out).at("fits").is_null());
}

TEST_CASE("errors name an op's file, a role and a type", "[hostile]") {
  check({
      {in_run, "trace: an op of an unused file", 3, "mamba.eng.so is there, but the run does not use it"},
      {in_run, "precision: whole numbers", 3, "precision hostile gives weights i32, which is no floating type"},
      {in_run, "precision: no such type", 3, "precision hostile gives weights dtype 99"},
  });
}

}  // namespace hostile
