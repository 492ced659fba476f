// SPDX-License-Identifier: Apache-2.0
// Files of events, byte by byte. tools/tensorboard-check reads them with TensorBoard itself.
#include "session/report/events.hpp"

#include <unistd.h>
#include <bit>
#include <catch2/catch.hpp>
#include <fstream>

#include "core/base/error.hpp"
#include "session/report/scalars.hpp"
#include "tests/cli/harness.hpp"

using namespace eng;

namespace {

uint64_t number(std::string_view bytes) {
  uint64_t out = 0;
  for (size_t k = bytes.size(); k-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[k]);
  return out;
}

uint32_t unmasked(uint64_t crc) {
  const auto rotated = static_cast<uint32_t>(crc) - 0xa282ead8u;
  return rotated << 15 | rotated >> 17;
}

// The records of a file, with their checksums checked.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < file.size()) {
    REQUIRE(at + 12 <= file.size());
    const uint64_t length = number(file.substr(at, 8));
    CHECK(unmasked(number(file.substr(at + 8, 4))) == crc32c(file.substr(at, 8)));
    REQUIRE(at + 12 + length + 4 <= file.size());
    out.push_back(file.substr(at + 12, length));
    CHECK(unmasked(number(file.substr(at + 12 + length, 4))) == crc32c(out.back()));
    at += 16 + length;
  }
  return out;
}

std::string only_file(const cli::fs::path& folder) {
  const auto all = cli::names(folder);
  REQUIRE(all.size() == 1);
  return cli::read(folder / all[0]);
}

}  // namespace

TEST_CASE("CRC-32C of RFC 3720", "[events]") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  CHECK(crc32c(rising) == 0x46dd794e);
}

TEST_CASE("scalars: all numbers of a line, by their names", "[events]") {
  const Json line = Json::parse_or_null(
      R"({"v":1,"step":7,"tokens":64,"loss":2.5,"mfu":null,"skipped":true,"wait_seconds":{"data":0.25,"comm":0},)"
      R"("terms":{"ce":2.25,"z":0.25},"observed":{"layer 0":{"rms":1}},"name":"x","list":[1],"attempt":2})",
      true);
  const std::vector<std::pair<std::string, double>> expected = {
      {"tokens", 64},     {"loss", 2.5},     {"wait_seconds/data", 0.25}, {"wait_seconds/comm", 0},
      {"terms/ce", 2.25}, {"terms/z", 0.25}, {"observed/layer 0/rms", 1}};
  CHECK(scalars_of(line) == expected);
  CHECK(scalars_of(Json()).empty());
}

TEST_CASE("events: a file of records, each an Event", "[events]") {
  cli::Scratch scratch;
  const auto folder = scratch / "tensorboard";
  EventFile file(folder, 0);
  file.append(Json::parse(R"({"step":300,"loss":2.5,"wait":{"data":-0.5}})"));
  const auto all = records(only_file(folder));
  REQUIRE(all.size() == 2);
  // wall_time: field 1 of 8 bytes, a time of this century; step 0; field 3 of 13 bytes
  const auto time = [](const std::string& event) { return std::bit_cast<double>(number(event.substr(1, 8))); };
  CHECK(all[0][0] == 1 * 8 + 1);
  CHECK((time(all[0]) > 1e9 && time(all[0]) < 4e9));
  CHECK(all[0].substr(9) == std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  // step 300 = 0b10'0101100; field 5: a Summary of two values, each a tag and a float
  const std::string loss = std::string("\x0a\x04loss\x15", 7) + std::string("\x00\x00\x20\x40", 4),
                    wait = std::string("\x0a\x09wait/data\x15", 12) + std::string("\x00\x00\x00\xbf", 4);
  std::string summary = std::string("\x0a\x0b") + loss + "\x0a\x10" + wait;
  CHECK(all[1].substr(9) == std::string("\x10\xac\x02\x2a\x1f") + summary);
}

TEST_CASE("events: a resumed run begins another file, later by name, that says what no longer holds", "[events]") {
  cli::Scratch scratch;
  const auto folder = scratch / "tensorboard";
  for (int start = 0; start < 3; ++start) EventFile(folder, start ? 200 : 0);
  const auto names = cli::names(folder);
  REQUIRE(names.size() == 3);
  for (const std::string& name : names) CHECK(name.starts_with("events.out.tfevents."));
  CHECK(records(cli::read(folder / names[0])).size() == 1);
  for (int k : {1, 2}) {
    const auto all = records(cli::read(folder / names[k]));
    REQUIRE(all.size() == 2);
    CHECK(all[1].substr(9) == std::string("\x10\xc9\x01\x3a\x02\x08\x01"));  // step 201, SessionLog of START
  }
}

TEST_CASE("events: a write that fails leaves whole records, and names the file", "[events]") {
  cli::Scratch scratch;
  const auto folder = scratch / "tensorboard";
  EventFile file(folder, 0);
  const auto real = file_calls();
  file_calls().write = [](int fd, const void* data, size_t n) { return ::write(fd, data, n / 2); };
  CHECK_THROWS_WITH(file.append(Json::parse(R"({"step":1,"loss":1})")), Catch::Contains("events.out.tfevents"));
  file_calls() = real;
  file.append(Json::parse(R"({"step":1,"loss":1})"));
  CHECK(records(only_file(folder)).size() == 2);
}
