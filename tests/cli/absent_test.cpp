// SPDX-License-Identifier: Apache-2.0
// A build folder that lacks a plugin: the command says how it is built.
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

// Lines are broken at any blank.
std::string on_one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

}  // namespace

TEST_CASE("a build folder in which plugins are not built yet says so", "[cli]") {
  Scratch scratch;
  fs::create_directories(scratch / "here/tools");
  fs::create_directories(scratch / "here/plugins");
  fs::copy_file(ENGINE_COMMAND, scratch / "here/tools/engine");
  scratch.write("here/build.ninja", "");
  scratch.write("here/plugins/declared",
                "cuda/cuda.eng.so build --cuda\nnccl/nccl.eng.so build --cuda\ncurvature/curvature.eng.so\n"
                "llama/llama.eng.so\nmamba/mamba.eng.so\nmpi/mpi.eng.so\noptim/muon.eng.so\nobserve/stats.eng.so\n");
  Limits alone;
  alone.program = (scratch / "here/tools/engine").string();
  const std::string all = "not built yet: curvature, llama, mamba, mpi, muon, stats; `tools/dev build` builds them";
  const Result preset = engine(scratch, {"init", "7b_mamba"}, alone);
  INFO(preset.err);
  CHECK(preset.exit == 2);
  CHECK(has(preset.err, all));
  scratch.config();
  const Result model = engine(scratch, {"check", "config.toml", "device.plugin=cuda"}, alone);
  INFO(model.err);
  CHECK(model.exit == 2);
  const std::string said = on_one_line(model.err);
  CHECK(has(said, all));
  CHECK(has(said, "plugins/llama/llama.eng.so: it is not built yet; `tools/dev build` builds it"));
  CHECK(has(said, "plugins/cuda/cuda.eng.so: it is not in this build; `tools/dev build --cuda` builds it"));
  // The message names only what is asked for.
  const Result one = engine(scratch, {"check", "config.toml", "model.plugin=mamba"}, alone);
  INFO(one.err);
  CHECK(has(on_one_line(one.err), "mamba.eng.so: it is not built yet; `tools/dev build` builds it"));
  CHECK_FALSE(has(on_one_line(one.err), "cuda.eng.so"));
  CHECK_FALSE(has(on_one_line(one.err), "nccl"));
  for (const auto& [words, file] : {std::pair("optimizer.plugin=muon", "muon"),
                                    {"comm.plugin=nccl", "nccl"},
                                    {"job.plugin=curvature", "curvature"},
                                    {"observers=[{plugin=\"stats\",name=\"s\",every=1}]", "stats"}}) {
    const std::string err = engine(scratch, {"check", "config.toml", words}, alone).err;
    INFO(err);
    CHECK(has(on_one_line(err), "/" + std::string(file) + ".eng.so: it is not "));
    CHECK_FALSE(has(err, "cuda.eng.so"));
  }
  for (const char* folder : {"m", "t", "q"}) fs::create_directories(scratch / folder);
  scratch.write("m/config.json", R"({"model_type": "mamba", "architectures": ["MambaForCausalLM"]})");
  scratch.write("t/config.json", R"({"d_model": 64, "n_layer": 1, "ssm_cfg": {}})");
  scratch.write("q/config.json", R"({"model_type": "gemma"})");
  const Result directory = engine(scratch, {"eval", "m"}, alone);
  INFO(directory.err);
  CHECK(directory.exit == 2);
  CHECK(has(on_one_line(directory.err), "mamba.eng.so: it is not built yet; `tools/dev build` builds it"));
  CHECK_FALSE(has(on_one_line(directory.err), "cuda.eng.so"));
  CHECK(has(on_one_line(engine(scratch, {"eval", "t"}, alone).err), all));
  const Result other = engine(scratch, {"eval", "q"}, alone);
  CHECK(has(other.err, "it is LLaMA with scaled embeddings and other norms"));
  CHECK_FALSE(has(other.err, "cuda.eng.so"));
  CHECK(has(engine(scratch, {"plugins", "ls", "--why"}, alone).out, "mpi.eng.so: refused: it is not built yet"));
  // A file that is there is not said to be missing.
  fs::create_directories(scratch / "here/plugins/llama");
  scratch.write("here/plugins/llama/llama.eng.so", "no plugin");
  CHECK(has(engine(scratch, {"init", "7b_mamba"}, alone).err, "not built yet: curvature, mamba, mpi, muon, stats;"));
}
