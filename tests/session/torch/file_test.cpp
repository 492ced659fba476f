// SPDX-License-Identifier: Apache-2.0
// Files of torch.save: the first inputs of the fuzzer (tools/torch_files.py), and the twins of safetensors files.
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "core/tensor/dtype.hpp"
#include "session/huggingface/torch_file.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using Catch::Contains;
namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

const fs::path tests = fs::path(ENGINE_SOURCE_DIR) / "tests", corpus = tests / "fuzz" / "corpus" / "torch";

std::string refused(const fs::path& file) {
  return test::refusal(Exit::checkpoint, [&] { TorchFile one(file); });
}

std::string content(const auto& file, const StoredTensor& tensor) {
  std::string out(tensor.count() * dtype_size(tensor.dtype), '\0');
  file.read(tensor, 0, tensor.count(), out.data());
  return out;
}

const StoredTensor* find(const TorchFile& file, const std::string& name) {
  for (const StoredTensor& t : file.tensors())
    if (t.name == name) return &t;
  return nullptr;
}

void fuzz(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

TEST_CASE("torch: tensors of one storage, whoever wrote the archive", "[torch]") {
  for (const char* name : {"good-torch", "good-old-writer", "good-zipfile", "good-zip64"}) {
    INFO(name);
    const TorchFile file(corpus / name);
    REQUIRE(file.tensors().size() == 3);
    const StoredTensor *weight = find(file, "a.weight"), *tied = find(file, "a.tied"), *bias = find(file, "a.bias");
    REQUIRE((weight && tied && bias));
    CHECK(weight->dtype == ENG_F32);
    CHECK(weight->shape == std::vector<int64_t>{2, 3});
    CHECK(bias->shape == std::vector<int64_t>{2});
    CHECK(content(file, *weight) == content(file, *tied));
    float out[3] = {};
    file.read(*weight, 2, 3, out);
    CHECK((out[0] == 2 && out[1] == 3 && out[2] == 4));
    file.read(*bias, 0, 2, out);
    CHECK((out[0] == 6 && out[1] == 7));
    CHECK_THAT(test::refusal(Exit::checkpoint, [&] { file.read(*bias, 1, 2, out); }), Contains("2 elements"));
    CHECK_THAT(test::refusal(Exit::checkpoint, [&] { file.read(*bias, UINT64_MAX, 2, out); }), Contains("2 elements"));
  }
}

TEST_CASE("torch: parameters, buffers and tensors without elements", "[torch]") {
  const TorchFile file(corpus / "good-buffers");
  REQUIRE(file.tensors().size() == 4);
  CHECK(find(file, "p")->dtype == ENG_BF16);
  CHECK(content(file, *find(file, "p")) == "ab");
  CHECK(find(file, "none")->count() == 0);
  CHECK(find(file, "mask")->dtype == ENG_U8);
  CHECK(find(file, "ids")->dtype == ENG_I64);
}

TEST_CASE("torch: what is hostile or not understood is refused with its reason", "[torch]") {
  const std::map<std::string, std::string> reasons = {
      {"system", "`posix.system` is not allowed in a weights file"},
      {"new-object", "data.pkl: byte 28: instruction 0x81 (makes an object of any class)"},
      {"protocol-4", "is not a pickle of protocol 2"},
      {"loop", "tensor `a`: is a dictionary, not a tensor"},
      {"loop-of-tuples", "ends with more or less than one object"},
      {"text-too-long", "ends within an instruction"},
      {"memo-too-far", "value 4294967295 is kept after 0 values"},
      {"long-number", "a number of more than 64 bits"},
      {"marks", "ends with more or less than one object"},
      {"transposed", "tensor `w`: its shape is [2, 3] and its strides are [1, 2]: it is transposed"},
      {"expanded", "its strides are [0, 1]"},
      {"negative-strides", "its strides are [-3, -1]"},
      {"huge-strides", "its strides are [4611686018427387904, 1]"},
      {"huge-shape", "the shape is too large"},
      {"negative-shape", "negative dimension -2"},
      {"far", "6 elements from 3 do not lie in its storage of 8"},
      {"negative-first", "2 elements from -1 do not lie"},
      {"deep", "has 70 dimensions; at most 6 are read"},
      {"short-storage", "its storage `0` has 28 bytes, too few for 8 elements"},
      {"no-storage", "its storage `0` is not in the file"},
      {"int16", "elements of `torch.ShortStorage` are not read"},
      {"big-endian", "not in little-endian order"},
      {"compressed", "is compressed"},
      {"twice", "entry `archive/.data/serialization_id`: appears twice"},
      {"zip64-short", "its zip64 record is too short"},
      {"truncated", "is truncated, or something else"},
      {"half", "is truncated, or something else"},
      {"longer", "is truncated, or something else"},
      {"overlap", "two entries overlap at byte"},
      {"old-format", "in the format that torch.save had before version 1.6"},
      {"good-pickle", "does not begin as a zip archive"},
  };
  size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    const std::string name = entry.path().filename(), why = refused(entry.path());
    INFO(name << ": " << why);
    CHECK_THAT(why, Contains(reasons.count(name) ? reasons.at(name) : "accepted"));
    CHECK((why == "accepted" || why.starts_with(entry.path().string())));
    seen += reasons.count(name);
    fuzz(test::read_file(entry.path()));
  }
  CHECK(seen == reasons.size());
}

TEST_CASE("torch: the advice is how to convert", "[torch]") {
  for (const char* name : {"system", "transposed", "old-format"}) try {
      TorchFile file(corpus / name);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK_THAT(e.help(), Contains("tools/bin-to-safetensors " + corpus.string()));
    }
}

TEST_CASE("torch: a file cut anywhere, or with any bit changed, is read or refused", "[torch][.slow]") {
  for (const char* name : {"good-torch", "good-zip64", "good-buffers"}) {
    const std::string good = test::read_file(corpus / name);
    for (size_t n = 0; n < good.size(); ++n) fuzz(good.substr(0, n));
    for (size_t n = 0; n < good.size() * 8; ++n) {
      std::string bytes = good;
      bytes[n / 8] = static_cast<char>(bytes[n / 8] ^ (1 << n % 8));
      fuzz(bytes);
    }
  }
}

TEST_CASE("torch: the same tensors as in safetensors files, to the byte", "[torch]") {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(tests / "models" / "hf_torch")) {
    if (entry.path().extension() != ".bin") continue;
    INFO(entry.path());
    ++files;
    std::string twin = entry.path().stem().string().substr(std::strlen("pytorch_")) + ".safetensors";
    const SafetensorsFile safe(tests / "models" / "hf" / entry.path().parent_path().filename() / twin);
    const TorchFile torch(entry.path());
    REQUIRE(torch.tensors().size() == safe.tensors().size());
    std::set<uint64_t> places;
    for (const StoredTensor& t : torch.tensors()) {
      const StoredTensor* same = safe.find(t.name);
      INFO(t.name);
      REQUIRE(same);
      CHECK(same->dtype == t.dtype);
      CHECK(same->shape == t.shape);
      CHECK(content(safe, *same) == content(torch, t));
      places.insert(t.begin);
    }
    const bool tied = entry.path().parent_path().filename() == "tied_head";
    CHECK(places.size() == torch.tensors().size() - tied);  // a tied head is a second name of the embedding
  }
  CHECK(files == 9);
}
