// SPDX-License-Identifier: Apache-2.0
// Files and folders in place of a model's: each is told as what it is, and what to do.
#include "session/huggingface/recognise.hpp"

#include <catch2/catch.hpp>

#include "session/huggingface/config_json.hpp"
#include "session/run/weights.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace recognise_test {

using namespace eng;
using namespace std::string_literals;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abab\nsize 330454481\n";
const std::string safetensors = "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"s;

std::string told(const std::string& bytes, ModelFile wanted) {
  const auto found = recognise(std::string_view(bytes).substr(0, 512), bytes.size(), wanted);
  return found ? found->what + " | " + found->help : "may be right";
}

struct Refused {
  std::string text, help;
};
Refused folder_refused(const fs::path& folder) {
  try {
    read_model_source(folder, "", {});
  } catch (const Error& e) {
    return {e.exit() == Exit::usage ? e.what() : "wrong exit code", e.help()};
  }
  return {"accepted", ""};
}

}  // namespace

TEST_CASE("recognise: by first bytes, whatever is wanted") {
  const std::pair<std::string, const char*> files[] = {
      {pointer,
       "is a Git LFS pointer, not the file that it stands for | fetch the file itself: in the folder, `git lfs"},
      {"version https://hawser.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"},
      {"/annex/objects/SHA256E-s4--ab.safetensors\n", "git-annex pointer"},
      {"<!DOCTYPE html>\n<html>", "is a web page"},
      {"\n  <html lang=\"en\">", "is a web page"},
      {"\xef\xbb\xbf<!doctype HTML>", "is a web page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "the answer of a server"},
      {"GGUF\3\0\0\0"s, "is a GGUF file"},
      {"tjgg\3\0\0\0"s, "is a GGML file"},
      {"\x1f\x8b\x08\0\0"s, "is compressed by gzip | unpack it: `gunzip`"},
      {"BZh91AY&SY", "is compressed by bzip2"},
      {"\xfd"
       "7zXZ\0\0"s,
       "is compressed by xz"},
      {"\x28\xb5\x2f\xfd\0"s, "is compressed by zstd"},
      {"7z\xbc\xaf\x27\x1c\0"s, "is a 7z archive"},
      {std::string(257, 'a') + "ustar\0"s, "is a tar archive"},
      {"\x93NUMPY\1\0"s, "is a NumPy array"},
      {"\x89HDF\r\n\x1a\n\0"s, "is an HDF5 file"},
      {"PAR1\x15\4"s, "is a Parquet file"},
      {"\xff\xfe{\0\n\0"s, "is text in UTF-16 | save it as UTF-8"},
      {"PK\5\6"s + std::string(18, '\0'), "is an empty zip archive"},
      {std::string(4096, '\0'), "begins with zeros"},
      {"", "is empty | download"}};
  for (const auto& [bytes, what] : files)
    for (const ModelFile wanted : {ModelFile::json, ModelFile::safetensors, ModelFile::torch, ModelFile::tokenizer}) {
      INFO(what << " " << int(wanted));
      CHECK_THAT(told(bytes, wanted), Contains(what));
    }
}

TEST_CASE("recognise: one kind of weights in the place of another") {
  const std::string zip = "PK\3\4" + std::string(26, '\0'), torch = zip + "model/data.pkl";
  const std::string old = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"s;
  CHECK_THAT(told(torch, ModelFile::safetensors),
             Contains("file of torch.save") && Contains("rename it to pytorch_model.bin"));
  CHECK_THAT(told(old, ModelFile::safetensors), Contains("before version 1.6"));
  CHECK_THAT(told(zip + "notes.txt", ModelFile::safetensors), Contains("is a zip archive | unpack it"));
  CHECK_THAT(told(zip + "notes.txt", ModelFile::json), Contains("is a zip archive | unpack it"));
  CHECK_THAT(told(safetensors, ModelFile::torch), Contains("is a safetensors file | rename it to model.safetensors"));
  CHECK_THAT(told(safetensors, ModelFile::json), Contains("is a safetensors file"));
  CHECK_THAT(told("Entry not found", ModelFile::safetensors), Contains("is a text that begins \"Entry not found\""));
  CHECK_THAT(told("{\"error\": \"Access to model is restricted\"}", ModelFile::torch),
             Contains("is a text that begins"));
  CHECK_THAT(told("\xef\xbb\xbf{}", ModelFile::json), Contains("byte order mark"));
  // A right file is no mistake, also where its first bytes are those of something else.
  CHECK(told(safetensors, ModelFile::safetensors) == "may be right");
  CHECK(told("\x1f\x8b\0\0\0\0\0\0{\"a\""s, ModelFile::safetensors) == "may be right");
  CHECK(told("BZh\0\0\0\0\0{\"a\""s, ModelFile::safetensors) == "may be right");
  for (const std::string& one : {torch, old, zip + "x"}) CHECK(told(one, ModelFile::torch) == "may be right");
  for (const char* json : {"{}", " \n{\"a\": 1}", "[1]", "x"}) CHECK(told(json, ModelFile::json) == "may be right");
  for (const std::string& model : {"\x0a\x0e\x0a\x05<unk>"s, "IQ== 0\nIg== 1\n"s, "#version: 0.2\n\xc4\xa0 t\n"s})
    CHECK(told(model, ModelFile::tokenizer) == "may be right");
}

TEST_CASE("recognise: config.json and the files of a tokenizer") {
  const eng::test::Scratch scratch;
  fs::create_directories(scratch / "m");
  const auto refused = [&] { return test::refusal(Exit::usage, [&] { read_config_json(scratch / "m/config.json"); }); };
  test::write_file(scratch / "m/config.json", pointer);
  CHECK_THAT(refused(), Contains("config.json is a Git LFS pointer"));
  test::write_file(scratch / "m/config.json", "");
  CHECK_THAT(refused(), Contains("config.json is empty"));
  fs::remove(scratch / "m/config.json");
  fs::create_symlink("../blobs/0123", scratch / "m/config.json");
  CHECK_THAT(refused(), Contains("config.json is a symbolic link to ../blobs/0123, which is not there"));

  const auto tokens = [&](const fs::path& path) {
    return test::refusal(Exit::data, [&] { refuse_mistaken_tokenizer(path); });
  };
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json"}) {
    fs::create_directories(scratch / "t");
    CHECK(tokens(scratch / "t") == "accepted");
    test::write_file(scratch / "t" / name, pointer);
    CHECK_THAT(tokens(scratch / "t"), Contains(name) && Contains("Git LFS pointer"));
    CHECK_THAT(tokens(scratch / "t" / name), Contains("Git LFS pointer"));
    test::write_file(scratch / "t" / name, "<html>");
    CHECK_THAT(tokens(scratch / "t"), Contains(name) && Contains("web page"));
    fs::remove_all(scratch / "t");
  }
  CHECK(tokens(scratch / "nowhere") == "accepted");  // its reader says so
}

TEST_CASE("recognise: folders of other programs, and of a model's neighbours") {
  const eng::test::Scratch scratch;
  const auto folder = [&](const std::vector<std::string>& names) {
    static int number = 0;
    const fs::path out = scratch / std::to_string(++number);
    fs::create_directories(out);
    for (const std::string& name : names) {
      fs::create_directories((out / name).parent_path());
      test::write_file(out / name, name.ends_with("config.json") ? "{}" : "x");
    }
    return out;
  };
  const std::tuple<std::vector<std::string>, const char*, const char*> all[] = {
      {{"adapter_config.json", "adapter_model.safetensors"}, "is a LoRA adapter (`adapter_config.json`)", "merge"},
      {{"adapter_config.json", "config.json", "model.safetensors"}, "is a LoRA adapter", "merge"},
      {{"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"},
       "checkpoint of DeepSpeed",
       "zero_to_fp32"},
      {{"global_step500/mp_rank_00_model_states.pt", "latest", "zero_to_fp32.py"},
       "checkpoint of DeepSpeed (`global_step500`)",
       "zero_to_fp32"},
      {{"__0_0.distcp", ".metadata"}, "sharded checkpoint of FSDP", "merge-weights"},
      {{"pytorch_model_fsdp_0/__0_0.distcp"}, "sharded checkpoint of FSDP", "merge-weights"},
      {{"mp_rank_00/model_optim_rng.pt"}, "checkpoint of Megatron", "convert"},
      {{"optimizer.pt", "scheduler.pt"},
       "has the state of an optimizer, but no weights (`optimizer.pt`)",
       "model.safetensors"},
      {{"consolidated.00.pth", "params.json"}, "Meta's own format", "convert_llama_weights_to_hf"},
      {{"model.Q4_K_M.gguf"}, "as GGUF", "safetensors"},
      {{"tf_model.h5"}, "TensorFlow", "safetensors"},
      {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
       "no model.safetensors.index.json",
       "download"},
      {{"checkpoint-500/config.json", "checkpoint-500/model.safetensors"},
       "its folder `checkpoint-500` does",
       "checkpoint-500"},
      {{"snapshots/abc/config.json", "refs/main"}, "Hugging Face cache", "snapshots/abc"},
      {{"README.md"}, "has neither config.json nor a checkpoint", "`from` takes"}};
  for (const auto& [names, what, help] : all) {
    const Refused said = folder_refused(folder(names));
    INFO(said.text << " / " << said.help);
    CHECK_THAT(said.text, Contains(what));
    CHECK_THAT(said.help, Contains(help));
  }
  test::write_file(scratch / "model.gguf", "GGUF");
  CHECK_THAT(folder_refused(scratch / "model.gguf").text, Contains("is a GGUF file"));
  test::write_file(scratch / "model.safetensors", safetensors);
  const Refused file = folder_refused(scratch / "model.safetensors");
  CHECK_THAT(file.text, Contains("is a safetensors file"));
  CHECK_THAT(file.help, Contains("name the folder in which it lies"));
}

}  // namespace recognise_test
