// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "failure.hpp"
#include "host_threads.hpp"
#include "input.hpp"
#include "notes.hpp"
#include "parts.hpp"

namespace text_data {
namespace {

// Bytes of text after which the work is kept for the case of an interruption, and the most times of that: the threads
// wait for each other then.
constexpr uint64_t least_kept = uint64_t{1} << 20, most_kept = 64;

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
    hash.add_field(format.key(path));
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
  set_tokenizer(header, tokenizer);
  TokenWriter writer(path, header);
  std::vector<int32_t> between;
  if (request.eot < 0) tokenizer.encode(request.separator, between);
  const std::optional<BuildMark> before = writer.go_on();
  if (before)
    note("[data] an earlier build of these tokens was interrupted: this one goes on behind the first " +
         std::to_string(writer.tokens()) + " of them");
  const BuildMark from = before.value_or(BuildMark{});
  Encoders encoders(tokenizer, threads, [&](const Batch& batch) {
    std::size_t at = 0;
    for (const Part& part : batch.parts) {
      if (part.first) {
        if (writer.has_documents()) writer.add(between.data(), between.size());
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
  Seen seen{from.skipped, from.wrong};
  uint64_t size = 0, since = 0;  // bytes of the files; of the texts since something was kept
  for (const std::string& name : request.files) size += InputFile(name).size();
  const uint64_t enough = std::max(least_kept, size / most_kept);
  const auto keep = [&](std::size_t number, uint64_t part, const Seen& so_far) {
    if (since < enough) return;
    batcher.finish();
    encoders.finish();
    writer.keep({number, part, so_far.skipped, so_far.wrong});
    since = 0;
  };
  const DocumentSink sink{[&] { batcher.begin(); },
                          [&](std::string_view text) {
                            batcher.text(text);
                            since += text.size();
                          },
                          [&] { batcher.end(); }};
  try {
    for (std::size_t i = 0; i < request.files.size(); ++i) {
      InputFile file(request.files[i]);
      if (i < from.file) {
        watch.add(file.size());
        continue;
      }
      const TextFormat format = text_format(file, request.reading);
      file.on_read = [&](uint64_t bytes) { watch.add(bytes); };
      each_document(
          file, request.reading, format, sink, seen,
          {i == from.file ? from.part : 0, [&](uint64_t part, const Seen& so_far) { keep(i, part, so_far); }});
      check_same(file);
      keep(i + 1, 0, seen);
    }
  } catch (const Failure& failure) {
    if (!watch.stopped || !writer.leave()) throw;
    throw Failure(failure.status, "[data] the build was stopped; started again within a day, it goes on where it was");
  }
  batcher.finish();
  encoders.finish();
  watch.tell();
  writer.finish(seen.skipped, seen.wrong);
}

}  // namespace

Built build(const BuildRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch_of_host) {
  Watch watch(watch_of_host, request.files);
  const Digest key = key_of(request, tokenizer, watch);
  return find_or_make(request.folder, key, [&](const std::string& path) {
    uint32_t threads = watch_of_host != nullptr ? watch_of_host->threads : 0;
    if (threads == 0)
      threads =
          std::clamp(host_threads ? host_threads->count(host_threads) : std::thread::hardware_concurrency(), 1u, 256u);
    write_tokens(request, tokenizer, path, key, threads, watch);
  });
}

}  // namespace text_data
