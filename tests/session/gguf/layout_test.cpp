// SPDX-License-Identifier: Apache-2.0
// The bytes of GGUF files, read back by a reader of the tests; blocks of q8_0 beside NumPy's.
#include "session/gguf/layout.hpp"

#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "session/json.hpp"
#include "tests/paths.hpp"
#include "tests/session/gguf/reader.hpp"

namespace gguf_layout_test {

using namespace eng;

namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t k = 0; k < hex.size(); k += 2) out += static_cast<char>(std::stoi(hex.substr(k, 2), nullptr, 16));
  return out;
}

}  // namespace

TEST_CASE("what a GGUF header is given, a reader finds", "[gguf]") {
  GgufHeader header;
  header.text("general.architecture", "snake");
  header.number("general.alignment", 32);
  header.real("snake.rope.freq_base", 10000.5f);
  header.flag("yes", true);
  header.flag("no", false);
  header.texts("tokens", {"a", "", "\xc4\xa0the"});
  header.texts("merges", {});
  header.reals("scores", {-1.5f, 0});
  header.integers("types", {1, -2});
  header.bytes("map", std::string("\0\xff", 2));
  header.value("whole", Value(int64_t{4294967295}));
  header.value("fraction", Value(0.25));
  header.value("boolean", Value(true));
  CHECK_THROWS_AS(header.value("negative", Value(int64_t{-1})), Error);
  CHECK_THROWS_AS(header.value("large", Value(int64_t{4294967296})), Error);
  CHECK_THROWS_AS(header.value("none", Value()), Error);
  // Sizes that are no multiples of the alignment: each tensor is padded by the writer of the data.
  const std::vector<GgufTensor> tensors = {{"a.weight", {2, 3}, GgufType::f32, 24},
                                           {"b", {5}, GgufType::f16, 10},
                                           {"one", {}, GgufType::f32, 4},
                                           {"q.weight", {2, 32}, GgufType::q8_0, 68}};
  std::string bytes = header.finish(tensors);
  REQUIRE(bytes.size() % 32 == 0);
  for (size_t k = 0; k < tensors.size(); ++k) {
    bytes += std::string(tensors[k].bytes, static_cast<char>('a' + k));
    bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  }
  const gguf::File file = gguf::read_gguf(bytes);
  CHECK(file.text("general.architecture") == "snake");
  CHECK(file.real("snake.rope.freq_base") == 10000.5f);
  CHECK(file.flag("yes"));
  CHECK_FALSE(file.flag("no"));
  CHECK(file.texts("tokens") == gguf::Texts{"a", "", "\xc4\xa0the"});
  CHECK(file.texts("merges").empty());
  CHECK(file.get<std::vector<float>>("scores") == std::vector<float>{-1.5f, 0});
  CHECK(file.get<std::vector<int32_t>>("types") == std::vector<int32_t>{1, -2});
  CHECK(file.get<std::vector<uint8_t>>("map") == std::vector<uint8_t>{0, 255});
  CHECK(file.number("whole") == 4294967295);
  CHECK(file.real("fraction") == 0.25f);
  CHECK(file.flag("boolean"));
  CHECK(file.order == gguf::Texts{"a.weight", "b", "one", "q.weight"});
  CHECK(file.tensors.at("a.weight").dims == std::vector<uint64_t>{3, 2});
  CHECK(file.tensors.at("one").dims == std::vector<uint64_t>{1});
  CHECK(file.tensors.at("q.weight").bytes == std::string(68, 'd'));
  // The reader notices a tensor in another place, and data that are missing.
  CHECK_THROWS(gguf::read_gguf(bytes.substr(0, bytes.size() - 32)));
  CHECK_THROWS(gguf::read_gguf(bytes + std::string(32, '\0')));
}

TEST_CASE("a GGUF file cannot hold every tensor", "[gguf]") {
  const GgufHeader header;
  CHECK_THROWS_AS(header.finish({{std::string(64, 'n'), {1}, GgufType::f32, 4}}), Error);
  CHECK_NOTHROW(header.finish({{std::string(63, 'n'), {1}, GgufType::f32, 4}}));
  CHECK_THROWS_AS(header.finish({{"n", {1, 1, 1, 1, 1}, GgufType::f32, 4}}), Error);
  CHECK_THROWS_AS(header.finish({{"n", {1}, GgufType::f32, 4}, {"n", {1}, GgufType::f32, 4}}), Error);
}

TEST_CASE("blocks of q8_0 are NumPy's", "[gguf]") {
  const auto golden = Json::parse(
      read_text(std::filesystem::path(ENGINE_SOURCE_DIR) / "tests/session/gguf/q8_0.json", 1 << 20, Exit::data));
  const std::string values = from_hex(golden.at("values").text()), blocks = from_hex(golden.at("blocks").text());
  std::vector<float> numbers(values.size() / 4);
  std::memcpy(numbers.data(), values.data(), values.size());
  REQUIRE(gguf_bytes(GgufType::q8_0, numbers.size()) == blocks.size());
  std::string out(blocks.size(), '\0');
  gguf_encode(GgufType::q8_0, numbers.data(), numbers.size(), out.data());
  CHECK(out == blocks);
  numbers[40] = -numbers[40];
  gguf_encode(GgufType::q8_0, numbers.data(), numbers.size(), out.data());
  CHECK(out != blocks);
}

TEST_CASE("elements of GGUF files have the bytes of their types", "[gguf]") {
  const float values[] = {1.0f, -2.5f, 65504.0f};
  uint16_t half[3] = {};
  gguf_encode(GgufType::f16, values, 3, half);
  CHECK(half[0] == 0x3c00);
  CHECK(half[1] == 0xc100);
  CHECK(half[2] == 0x7bff);
  gguf_encode(GgufType::bf16, values, 3, half);
  CHECK(half[0] == 0x3f80);
  float same[3] = {};
  gguf_encode(GgufType::f32, values, 3, same);
  CHECK(std::memcmp(same, values, sizeof same) == 0);
  CHECK(gguf_bytes(GgufType::f32, 3) == 12);
  CHECK(gguf_bytes(GgufType::bf16, 3) == 6);
}

}  // namespace gguf_layout_test
