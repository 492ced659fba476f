// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/safetensors.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "scratch.hpp"

using namespace eng;
using test::refusal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// A file around a JSON header and `data` bytes.
std::string file_of(const std::string& json, size_t data) {
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i) out[size_t(i)] = char(json.size() >> (8 * i) & 0xff);
  return out + json + std::string(data, 'x');
}

std::string refused(const std::string& json, size_t data) {
  return refusal(Exit::checkpoint,
                 [&] { parse_safetensors_header(json.data(), json.size(), 8 + json.size() + data, "f.safetensors"); });
}

const char* kTwo = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                   R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

}  // namespace

TEST_CASE("safetensors: what is written is read back", "[safetensors]") {
  test::Scratch scratch;
  std::vector<StoredTensor> tensors(4);
  tensors[0] = {"model.embed.weight", ENG_F32, {2, 3}, 0, 0};
  tensors[1] = {"quote\"d \u00e9 name", ENG_U8, {5}, 0, 0};
  tensors[2] = {"empty", ENG_F64, {0, 7}, 0, 0};
  tensors[3] = {"scalar", ENG_I64, {}, 0, 0};
  const std::string head = safetensors_header(tensors, {{"format", "pt"}});
  CHECK(head.size() % 8 == 0);
  std::string data(24 + 5 + 0 + 8, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = char(i + 1);
  test::write_file(scratch / "x.safetensors", head + data);

  SafetensorsFile file(scratch / "x.safetensors");
  REQUIRE(file.header().tensors.size() == 4);
  CHECK(file.header_text() == head);
  const StoredTensor* t = file.find("model.embed.weight");
  REQUIRE(t);
  CHECK(t->dtype == ENG_F32);
  CHECK(t->shape == std::vector<int64_t>{2, 3});
  char out[8];
  file.read(*t, 1, 2, out);
  CHECK(std::memcmp(out, data.data() + 4, 8) == 0);
  file.read(*file.find("scalar"), 0, 1, out);
  CHECK(std::memcmp(out, data.data() + 29, 8) == 0);
  CHECK(file.find("empty")->count() == 0);
  CHECK(file.find("none") == nullptr);
  CHECK(refusal(Exit::checkpoint, [&] { file.read(*t, 5, 2, out); }).find("6 elements") != std::string::npos);
  CHECK(refusal(Exit::checkpoint, [&] { file.read(*t, UINT64_MAX, 2, out); }) != "");
}

TEST_CASE("safetensors: a header by hand is accepted", "[safetensors]") {
  const auto header = parse_safetensors_header(kTwo, std::strlen(kTwo), 8 + std::strlen(kTwo) + 32, "f");
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[1].name == "b");
  CHECK(header.tensors[1].dtype == ENG_BF16);
  CHECK(header.data_bytes == 32);
}

TEST_CASE("safetensors: malformed headers are refused, by name", "[safetensors]") {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  struct Case {
    std::string json;
    size_t data;
    const char* text;
  };
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const Case cases[] = {
      {one("F32", "[2]", "[0,8]"), 7, "do not lie"},
      {one("F32", "[2]", "[0,8]"), 9, "belong to no tensor"},
      {one("F32", "[2]", "[8,0]"), 8, "do not lie"},
      {one("F32", "[3]", "[0,8]"), 8, "do not make 8 bytes"},
      {one("F32", "[-2]", "[0,8]"), 8, "whole number"},
      {one("F32", "[2]", "[-8,0]"), 8, "whole number"},
      {one("F32", "[2.0]", "[0,8]"), 8, "whole number"},
      {one("F32", "[18446744073709551615]", "[0,8]"), 8, "negative"},
      {one("F32", "[4294967296,4294967296,4294967296]", "[0,8]"), 8, "too large"},
      {one("F32", "[4611686018427387906]", "[0,8]"), 8, "do not make"},
      {one("F32", "[99999999999999999999999]", "[0,8]"), 8, "whole number"},
      {one("F32", "[2]", "[0,18446744073709551608]"), 8, "do not lie"},
      {one("F32", "[2]", "[0,8,9]"), 8, "two data_offsets"},
      {one("F32", "[2]", "[0]"), 8, "a list ends before item 2"},
      {one("F32", "[[2]]", "[0,8]"), 8, "a whole number is expected where a list stands"},
      {one("F32", "{}", "[0,8]"), 8, "a list is expected where an object stands"},
      {one("F32", "null", "[0,8]"), 8, "whole number"},
      {one("F32", "\"2\"", "[0,8]"), 8, "a list is expected where a text stands"},
      {one("F31", "[2]", "[0,8]"), 8, "`F31` is not supported"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", 8, "data_offsets"},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "twice"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "more than"},
      {R"({"w":3})", 8, "an object is expected where a whole number stands"},
      {R"({"w":[1]})", 8, "an object is expected where a list stands"},
      {R"([1])", 0, "`{`"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "twice"},
      {"{" + a + "," + a + "}", 4, "twice"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, "overlaps"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9, "hole"},
      {"{" + a, 4, "JSON"},
      {"{" + a + "} {", 4, "JSON"},
      {"{\"\xff\":1}", 0, "JSON"},
      {"", 0, "`{`"},
  };
  for (const auto& c : cases) {
    INFO(c.json);
    CHECK_THAT(refused(c.json, c.data), Catch::Contains(c.text) && Catch::StartsWith("f.safetensors"));
  }
}

TEST_CASE("safetensors: depth costs nothing", "[safetensors]") {
  const std::string deep(2'000'000, '[');
  CHECK(refused(R"({"w":)" + deep, 0) != "");
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += R"({"a":)";
  CHECK(refused(objects, 0) != "");
}

TEST_CASE("safetensors: impossible header lengths", "[safetensors]") {
  test::Scratch scratch;
  const std::string good = file_of(kTwo, 32);
  const auto opens = [&](const std::string& bytes) {
    test::write_file(scratch / "f", bytes);
    return refusal(Exit::checkpoint, [&] { SafetensorsFile file(scratch / "f"); });
  };
  CHECK(opens(good) == "accepted");
  for (size_t n = 0; n < good.size(); ++n) {
    INFO("truncated to " << n);
    CHECK(opens(good.substr(0, n)) != "accepted");
  }
  for (unsigned char top : {0x01, 0x7f, 0x80, 0xff}) {
    std::string bad = good;
    bad[7] = char(top);
    CHECK_THAT(opens(bad), Catch::Contains("truncated"));
  }
  CHECK_THAT(refusal(Exit::checkpoint, [&] { SafetensorsFile file(scratch.path()); }), Catch::Contains("regular file"));
  CHECK_THAT(refusal(Exit::checkpoint, [&] { SafetensorsFile file(scratch / "none"); }),
             Catch::Contains("No such file"));
}

TEST_CASE("safetensors: damaged bytes never do more than be refused", "[safetensors]") {
  const std::string good = file_of(kTwo, 32);
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned n = 1 + random() % 4; n; --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = char(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 3);
          break;
        case 2:
          bytes.insert(at, 1, "0123456789[]{},:\"-e."[random() % 20]);
          break;
        default:
          bytes[at] = char(bytes[at] ^ 1 << random() % 8);
      }
      if (bytes.empty()) bytes = "x";
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}
