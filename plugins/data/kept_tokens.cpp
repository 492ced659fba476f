// SPDX-License-Identifier: Apache-2.0
#include "kept_tokens.hpp"

#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>

#include "failure.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

// The state of a file (size, time) when a fact about it was found.
using Identity = std::tuple<std::string, dev_t, ino_t, off_t, time_t, long>;

Identity identity(const InputFile& file) {
  const struct stat& s = file.status();
  return {file.path(), s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

// Facts that need a whole file to be read. They are kept as long as this process lives, because a run first builds and
// then opens.
template <class Value>
class Memory {
 public:
  bool find(const Identity& key, Value& value) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    if (found == known_.end()) return false;
    value = found->second;
    return true;
  }
  void keep(const Identity& key, const Value& value) {
    const std::lock_guard lock(mutex_);
    known_[key] = value;
  }

 private:
  std::mutex mutex_;
  std::map<Identity, Value> known_;
};

Memory<Digest>& sources() {
  static Memory<Digest> all;
  return all;
}
Memory<TokenFile>& scanned() {
  static Memory<TokenFile> all;
  return all;
}

}  // namespace

Watch::Watch(const eng_data_watch* watch, const std::vector<std::string>& files) : watch_(watch) {
  for (const std::string& path : files) total_ += 2 * InputFile(path).size();
}

void Watch::add(uint64_t bytes) {
  done_ += bytes;
  if (watch_ == nullptr || watch_->report == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  tell();
}

void Watch::tell() const {
  if (watch_ == nullptr || watch_->report == nullptr || watch_->report(watch_, done_, total_, tokens) != 0) return;
  stopped = true;
  throw Failure(ENG_UNAVAILABLE, "[data] the build was stopped; nothing was kept");
}

Digest digest_of(InputFile& file, Watch& watch) {
  Digest digest{};
  if (sources().find(identity(file), digest)) {
    watch.add(file.size());
    return digest;
  }
  Hash hash;
  file.on_read = [&](uint64_t bytes) { watch.add(bytes); };
  file.each_piece(0, file.size(), [&](std::string_view piece) { hash.add(piece); });
  sources().keep(identity(file), hash.digest());
  return hash.digest();
}

void check_same(const InputFile& file) {
  Digest digest{};
  if (!sources().find(identity(file), digest))
    throw Failure(ENG_DATA_LOSS,
                  "[data] " + file.path() + ": the file changed while it was read; start again when it is complete");
}

Built find_or_make(const std::string& folder, const Digest& key, const std::function<void(const std::string&)>& make) {
  const std::string path = (fs::path(folder) / (hexadecimal(key) + ".tokens")).string();
  Built built;
  std::error_code ignored;
  const auto open = [&] {
    const Identity now = identity(InputFile(path));
    if (!scanned().find(now, built.file)) {
      built.file = open_token_file(path);
      if (built.file.header.magic[0] == 0 || built.file.header.key != key)
        throw Failure(ENG_DATA_LOSS,
                      "[data] " + path + " does not have the content that its name stands for: remove it");
      scan(built.file, 0);
      scanned().keep(now, built.file);
    }
  };
  if (fs::exists(path, ignored)) {
    try {
      open();
      built.reused = true;
      return built;
    } catch (const Failure& failure) {
      if (failure.status != ENG_DATA_LOSS && failure.status != ENG_INVALID) throw;  // damaged: made again
    }
  }
  make(path);
  open();
  return built;
}

void set_tokenizer(TokenHeader& header, const Tokenizer& tokenizer) {
  const std::string& hash = tokenizer.info().hash;
  for (std::size_t i = 0; i < header.tokenizer.size() && 2 * i + 1 < hash.size(); ++i)
    header.tokenizer[i] = static_cast<unsigned char>(std::stoi(hash.substr(2 * i, 2), nullptr, 16));
}

void tell_built(const Built& done, eng_data_built& out) {
  out.tokens = done.file.tokens;
  out.documents = done.file.documents;
  if (done.file.path.size() >= sizeof(out.path))
    throw Failure(ENG_INVALID, "[data] cache: the path is too long: " + done.file.path);
  std::snprintf(out.path, sizeof(out.path), "%s", done.file.path.c_str());
}

}  // namespace text_data
