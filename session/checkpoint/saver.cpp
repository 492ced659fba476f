// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/saver.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/layout.hpp"
#include "session/checkpoint/parts.hpp"
#include "session/clock.hpp"
#include "session/held_folder.hpp"

namespace eng {
namespace fs = std::filesystem;
struct Saver::Job {
  fs::path path;  // of the checkpoint, by its name
  RunPoint point;
  std::vector<TensorShare> tensors;
  Read read;
  std::span<char> staging;
  std::optional<HeldFolder> folder = {};  // in which all of it is written
  Layout layout = {};
  std::map<std::string, std::unique_ptr<FileWriter>> files = {};
  double waited = 0;
  std::atomic<bool> given_up = false;
  std::future<void> writing = {};  // the last member: its destructor waits for the thread

  void open() {
    const fs::path above = path.parent_path().parent_path();
    folder.emplace(HeldFolder(above.empty() ? "." : above), path.parent_path().filename());
  }
  fs::path complete() const { return folder->inside() / path.filename(); }
  fs::path temporary() const { return folder->inside() / (temporary_prefix + path.filename().string()); }
};

Saver::Saver(fs::path checkpoints, int64_t keep, bool asynchronous, Peers peers)
    : checkpoints_(std::move(checkpoints)), keep_(keep), asynchronous_(asynchronous), peers_(std::move(peers)) {}

Saver::~Saver() {
  if (job_) give_up();
}

void Saver::begin(const RunPoint& point, const std::vector<TensorShare>& tensors, const Read& read,
                  std::span<char> staging) {
  const auto started = SteadyClock::now();
  const std::string name = checkpoint_name(point.step);
  job_.reset(new Job{checkpoints_ / name, point, tensors, read, staging});
  Job& job = *job_;
  try {
    peers_.lead(still("rank 0 was still preparing the save of"), [&] {
      make_directories(checkpoints_);
      job.open();
      remove_leftovers(job.folder->inside());
      make_directories(job.temporary());
      return "";
    });
    number_copies(job.tensors, peers_);
    // Creates all files and reserves their space before the first byte, so that a full disk is detected at once.
    peers_.agree(still("a rank was still making its files for"), [&] {
      if (!job.folder) job.open();
      job.layout = lay_out(job.tensors, peers_.rank);
      for (const auto& f : job.layout.manifest.files)
        job.files[f.name] = std::make_unique<FileWriter>(job.temporary() / f.name, f.bytes);
      if (asynchronous_) {
        const uint64_t bytes = snapshot_bytes(job.tensors);
        if (bytes != snapshot_bytes_) snapshot_.reset(new char[bytes]);  // its pages are not touched before use
        snapshot_bytes_ = bytes;
        char* at = snapshot_.get();
        for (const ManifestTensor& t : job.layout.manifest.tensors)
          for (const StoredRange& s : t.ranges) {
            if (s.count) read_part(read, t, s.columns, s, at);
            at += s.count * dtype_size(t.dtype);
          }
      }
      job.writing =
          std::async(asynchronous_ ? std::launch::async : std::launch::deferred, [this, &job] { write(job); });
      return "";
    });
  } catch (...) {
    give_up();
    throw;
  }
  job.waited = since(started);
}

// The operation that the others wait for, in the words of a message.
std::string Saver::still(const char* what) const {
  return fmt::format("{} {}", what, job_->path.filename().string());
}

// Everything this rank writes.
void Saver::write(Job& job) const {
  Manifest& manifest = job.layout.manifest;
  for (size_t i = 0; i < manifest.files.size(); ++i)
    job.files[manifest.files[i].name]->write(job.layout.headers[i].data(), job.layout.headers[i].size());
  job.layout.headers = {};
  const std::span<char> snapshot(snapshot_.get(), snapshot_bytes_);
  const Tiles tiles(asynchronous_ ? snapshot : job.staging);
  const char* from = asynchronous_ ? snapshot.data() : tiles.data();
  for (ManifestTensor& t : manifest.tensors)
    for (StoredRange& range : t.ranges) {
      const uint64_t size = dtype_size(t.dtype);
      Checksum sum;
      tiles.each(range.count, size, [&](uint64_t first, uint64_t count) {
        if (job.given_up) throw Error(Exit::bug, "the save was given up");
        if (!asynchronous_) read_part(job.read, t, range.columns, {range.first + first, count}, tiles.data());
        sum.add(from, count * size);
        job.files[range.file]->write(from, count * size);
        if (asynchronous_) from += count * size;
      });
      range.xxh3_128 = sum.hex();
    }
  for (const auto& f : manifest.files) job.files[f.name]->finish();
}

std::optional<Saved> Saver::poll() {
  if (!job_) return std::nullopt;
  const auto written = peers_.agree(
      [&] { return job_->writing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout ? "" : "written"; });
  return std::count(written.begin(), written.end(), "") ? std::nullopt : finish();
}

std::optional<Saved> Saver::finish() {
  if (!job_) return std::nullopt;
  const auto started = SteadyClock::now();
  Job& job = *job_;
  Saved saved{job.path};
  try {
    auto parts = peers_.agree(still("a rank was still writing its part of"), [&] {
      job.writing.get();
      job.files.clear();
      return part_text(job.layout.manifest);
    });
    const std::string naming = still("rank 0 was still saving (naming the new, removing old checkpoints)");
    const std::string bytes = peers_.lead(naming, [&] {
      const uint64_t all =
          write_manifest(job.temporary() / "manifest.json", job.point, job.layout.manifest.tensors, std::move(parts));
      sync_directory(job.temporary());
      rename_durably(job.temporary(), job.complete());
      collect_checkpoints(job.folder->inside(), keep_);
      return std::to_string(all);
    });
    saved.bytes = std::strtoull(bytes.c_str(), nullptr, 10);
  } catch (...) {
    give_up();
    throw;
  }
  saved.seconds = job.waited + since(started);
  job_.reset();
  return saved;
}

void Saver::give_up() {
  job_->given_up = true;
  job_->writing = {};  // waits for its thread
  job_->files.clear();
  std::error_code ignored;
  if (peers_.rank == 0 && job_->folder) fs::remove_all(job_->temporary(), ignored);
  job_.reset();
}

bool saves_nothing(const Section& checkpoint) {
  return !checkpoint.integer("every") && !checkpoint.boolean("last") && !checkpoint.boolean("best");
}

uint64_t checkpoint_bytes(const std::vector<TensorShare>& tensors) {
  uint64_t bytes = 0;
  for (const auto& f : lay_out(tensors, 0).manifest.files) bytes += f.bytes;
  return bytes;
}

}  // namespace eng
