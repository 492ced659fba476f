// SPDX-License-Identifier: Apache-2.0
#include "session/report/events.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>

#include "core/base/error.hpp"
#include "session/report/scalars.hpp"
#include "session/stamp.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// A little-endian number.
template <class T>
void put(std::string& out, T value) {
  for (size_t k = 0; k < sizeof(T); ++k) out += static_cast<char>(value >> (8 * k) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Fields of a protocol buffer: the number of the field, and how its value is written.
enum class Wire : uint32_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };
void put_tag(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint32_t>(wire));
}
void put_text(std::string& out, uint32_t field, std::string_view value) {
  put_tag(out, field, Wire::counted);
  put_varint(out, value.size());
  out += value;
}

// Event: 1 wall_time (double), 2 step (int64), and one of 3 file_version, 5 summary, 7 session_log.
std::string event(int64_t step, uint32_t field, const std::string& content) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string out;
  put_tag(out, 1, Wire::eight_bytes);
  put(out, std::bit_cast<uint64_t>(now));
  put_tag(out, 2, Wire::varint);
  put_varint(out, static_cast<uint64_t>(step));
  put_text(out, field, content);
  return out;
}

// A checksum of data that hold checksums themselves is no good one: so they are masked.
uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8;
}

// "events.out.tfevents.SECONDS.HOST.PROCESS": TensorBoard reads the files of a folder in the order of their names.
fs::path new_name(const fs::path& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const std::string prefix = "events.out.tfevents.";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename(); name.starts_with(prefix))
      seconds = std::max<int64_t>(seconds, std::atoll(name.c_str() + prefix.size()) + 1);
  return folder / fmt::format("{}{:010}.{}.{}", prefix, seconds, host_name(), ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<uint32_t, 256> all{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0u);
      all[byte] = value;
    }
    return all;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const fs::path& folder, int64_t last_step) {
  make_directories(folder);
  path_ = new_name(folder);
  fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (fd_ < 0) disk_error("open", path_, errno);
  record(event(0, 3, "brain.Event:2"));
  // SessionLog: 1 status = START (1). A reader then drops the events of this step and later ones that it has read.
  std::string start;
  put_tag(start, 1, Wire::varint);
  put_varint(start, 1);
  if (last_step > 0) record(event(last_step + 1, 7, start));
}

void EventFile::append(const Json& line) {
  std::string summary;
  for (const auto& [name, number] : scalars_of(line)) {
    std::string value;  // Summary.Value: 1 tag, 2 simple_value (float)
    put_text(value, 1, name);
    put_tag(value, 2, Wire::four_bytes);
    put(value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    put_text(summary, 1, value);  // Summary: 1 value, repeated
  }
  record(event(line.at("step").integer(), 5, summary));
}

void EventFile::record(const std::string& content) {
  std::string out;
  put(out, static_cast<uint64_t>(content.size()));
  put(out, masked(out));
  out += content;
  put(out, masked(content));
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  ssize_t n = 0;
  do {
    n = file_calls().write(fd_, out.data(), out.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(out.size())) return;
  const int error = n < 0 ? errno : ENOSPC;
  [[maybe_unused]] const int failed = ::ftruncate(fd_, before);
  disk_error("write", path_, error);
}

}  // namespace eng
