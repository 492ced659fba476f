// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "failure.hpp"
#include "host_threads.hpp"
#include "input.hpp"
#include "parts.hpp"

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

class Watch {
 public:
  Watch(const eng_data_watch* watch, uint64_t total) : watch_(watch), total_(total) {}
  void add(uint64_t bytes) {
    done_ += bytes;
    if (watch_ == nullptr || watch_->report == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    tell();
  }
  void tell() const {
    if (watch_ != nullptr && watch_->report != nullptr && watch_->report(watch_, done_, total_, tokens) == 0)
      throw Failure(ENG_UNAVAILABLE, "[data] the build was stopped; nothing was kept");
  }
  uint64_t tokens = 0;

 private:
  const eng_data_watch* watch_;
  uint64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point last_{};
};

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

// Everything that the result depends on.
Digest key_of(const BuildRequest& request, const Tokenizer& tokenizer, Watch& watch) {
  Hash hash;
  hash.add_field("engine tokens 2");
  hash.add_field(tokenizer.info().hash);
  hash.add_field(tokenizer.libraries());
  hash.add_field(std::to_string(request.eot) + (request.special ? " special" : ""));
  hash.add_field(request.eot < 0 ? request.separator : "");
  hash.add_field(request.reading.field);
  if (request.reading.replace) hash.add_field("replace");
  if (request.reading.skip) hash.add_field("skip");
  for (const std::string& path : request.files) {
    InputFile file(path);
    const TextFormat format = text_format(file, request.reading);
    hash.add_field(format.is_lines() ? "json lines" : "text");
    if (!format.is_ours()) hash.add_field(std::string("by ") + format.by_plugin.identity);
    hash.add_field(format.packed == Packed::gzip ? ".gz" : format.packed == Packed::zstd ? ".zst" : "");
    if (format.mark > 0) hash.add_field("without its mark");
    hash.add_field(hexadecimal(digest_of(file, watch)));
  }
  return hash.digest();
}

// Threads encode texts, which are written in their order. A ring of slots: each is filled, encoded and written in turn.
class Encoders {
 public:
  Encoders(const Tokenizer& tokenizer, uint32_t threads, std::function<void(const Batch&)> write)
      : tokenizer_(tokenizer), write_(std::move(write)), slots_(threads * 2 + 2) {
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Encoders() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void put(Batch&& batch) {
    if (filled_ - written_ == slots_.size()) write_oldest();
    {
      const std::lock_guard lock(mutex_);
      slots_[filled_ % slots_.size()] = {std::move(batch), false};
      ++filled_;
    }
    changed_.notify_all();
  }
  void finish() {
    while (written_ < filled_) write_oldest();
  }

 private:
  struct Slot {
    Batch batch;
    bool encoded = false;
  };

  void write_oldest() {
    Slot& slot = slots_[written_ % slots_.size()];
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return slot.encoded || failure_; });
      if (failure_) std::rethrow_exception(failure_);
    }
    write_(slot.batch);
    ++written_;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || taken_ < filled_; });
      if (stop_) return;
      Slot& slot = slots_[taken_++ % slots_.size()];
      lock.unlock();
      std::exception_ptr failure;
      try {
        slot.batch.encode(tokenizer_);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure && !failure_) failure_ = failure;
      slot.encoded = true;
      changed_.notify_all();
    }
  }

  const Tokenizer& tokenizer_;
  std::function<void(const Batch&)> write_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0, taken_ = 0, written_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

void write_tokens(const BuildRequest& request, const Tokenizer& tokenizer, const std::string& path, const Digest& key,
                  uint32_t threads, Watch& watch) {
  TokenHeader header{};
  header.width = tokenizer.info().vocabulary <= 65536 ? 2 : 4;
  header.vocabulary = tokenizer.info().vocabulary;
  header.eot = request.eot;
  header.key = key;
  const std::string& hash = tokenizer.info().hash;
  for (std::size_t i = 0; i < header.tokenizer.size() && 2 * i + 1 < hash.size(); ++i)
    header.tokenizer[i] = static_cast<unsigned char>(std::stoi(hash.substr(2 * i, 2), nullptr, 16));
  TokenWriter writer(path, header);
  std::vector<int32_t> between;
  if (request.eot < 0) tokenizer.encode(request.separator, between);
  bool first = true;
  Encoders encoders(tokenizer, threads, [&](const Batch& batch) {
    std::size_t at = 0;
    for (const Part& part : batch.parts) {
      if (part.first) {
        if (!first) writer.add(between.data(), between.size());
        first = false;
        writer.begin_document();
        if (request.special) writer.add(tokenizer.prefix().data(), tokenizer.prefix().size());
      }
      writer.add(batch.ids.data() + at, part.ids - at);
      at = part.ids;
      if (part.last && request.special) writer.add(tokenizer.suffix().data(), tokenizer.suffix().size());
      if (part.last && request.eot >= 0) writer.add(&request.eot, 1);
    }
    watch.tokens = writer.tokens();
  });
  Batcher batcher(cut_of(tokenizer), [&](Batch&& batch) { encoders.put(std::move(batch)); });
  Seen seen;
  for (const std::string& name : request.files) {
    InputFile file(name);
    const TextFormat format = text_format(file, request.reading);
    file.on_read = [&](uint64_t bytes) { watch.add(bytes); };
    each_document(
        file, request.reading, format,
        {[&] { batcher.begin(); }, [&](std::string_view text) { batcher.text(text); }, [&] { batcher.end(); }}, seen);
    Digest digest{};
    if (!sources().find(identity(file), digest)) {
      throw Failure(ENG_DATA_LOSS,
                    "[data] " + name + ": the file changed while it was read; start again when it is complete");
    }
  }
  batcher.finish();
  encoders.finish();
  watch.tell();
  writer.finish(seen.skipped, seen.wrong);
}

}  // namespace

Built build(const BuildRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch_of_host) {
  uint64_t bytes = 0;
  for (const std::string& path : request.files) bytes += InputFile(path).size();
  Watch watch(watch_of_host, 2 * bytes);  // they are read twice: for the name, and for the tokens
  const Digest key = key_of(request, tokenizer, watch);
  const std::string path = (fs::path(request.folder) / (hexadecimal(key) + ".tokens")).string();
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
  uint32_t threads = watch_of_host != nullptr ? watch_of_host->threads : 0;
  if (threads == 0)
    threads =
        std::clamp(host_threads ? host_threads->count(host_threads) : std::thread::hardware_concurrency(), 1u, 256u);
  write_tokens(request, tokenizer, path, key, threads, watch);
  open();
  return built;
}

}  // namespace text_data
