// SPDX-License-Identifier: Apache-2.0
// Saving and loading; every damage to every byte is noticed.
#include "session/checkpoint/checkpoint.hpp"

#include <catch2/catch.hpp>

#include "sample.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/run/run_dir.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace {

std::string load_text(const fs::path& directory, const std::vector<TensorShare>& specs) {
  Filled filled;
  return refusal(Exit::checkpoint, [&] { load_checkpoint(directory, specs, filled.fill()); });
}

// Saves `parts` of one 10-element tensor as ranges in two files, as several ranks would.
void save_sliced(const fs::path& directory, const std::vector<std::pair<uint64_t, uint64_t>>& parts) {
  fs::create_directories(directory);
  Manifest manifest;
  manifest.point.step = 5;
  ManifestTensor tensor{{"w", "parameter", ENG_U8, {2, 5}}, {}};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [first, count] = parts[i];
    std::vector<StoredTensor> stored{{"w", ENG_U8, {int64_t(count)}, 0, 0}};
    const std::string head = safetensors_header(stored, {});
    std::string data;
    for (uint64_t k = first; k < first + count; ++k) data += char('a' + k);
    const std::string name = "model-0000" + std::to_string(i) + ".safetensors";
    write_file(directory / name, head + data);
    manifest.files.push_back({name, head.size() + data.size(), Checksum::of(head)});
    tensor.ranges.push_back({{first, count}, name, "w", Checksum::of(data)});
  }
  manifest.tensors.push_back(tensor);
  write_file(directory / "manifest.json", manifest_text(manifest));
}

}  // namespace

TEST_CASE("checkpoint: what is saved is loaded", "[checkpoint]") {
  for (uint64_t staging : {0, 16, 24, 1 << 20}) {
    Scratch scratch;
    const Sample sample;
    std::vector<char> memory(staging);
    const std::span<char> given(memory);
    const Saved saved = save_checkpoint(scratch / "checkpoints", sample.point(100), sample.specs, sample.read(), given);
    CHECK(saved.path == scratch / "checkpoints" / "step-00000100");
    uint64_t bytes = 0;
    for (const auto& e : fs::directory_iterator(saved.path)) bytes += e.file_size();
    CHECK(saved.bytes == bytes);
    CHECK(checkpoint_bytes(sample.specs) == bytes - fs::file_size(saved.path / "manifest.json"));
    Filled filled;
    CHECK(load_checkpoint(saved.path, sample.specs, filled.fill(), given) == sample.point(100));
    check_equal(sample, filled);
    if (staging) CHECK(filled.largest <= staging);
    // Nothing else is left.
    size_t entries = 0;
    for ([[maybe_unused]] const auto& e : fs::directory_iterator(scratch / "checkpoints")) ++entries;
    CHECK(entries == 1);
  }
}

TEST_CASE("checkpoint: the parameters are a plain safetensors file under their own names", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path path = save_checkpoint(scratch.path(), sample.point(1), sample.specs, sample.read()).path;
  SafetensorsFile model(path / "model-00000.safetensors"), optim(path / "optim-00000.safetensors");
  CHECK_THAT(model.header_text(), Catch::Contains(R"("__metadata__":{"format":"pt"})"));
  CHECK(model.header().tensors.size() == 3);
  REQUIRE(model.find("lm_head.weight"));
  CHECK(model.find("lm_head.weight")->shape == std::vector<int64_t>{7, 4});
  CHECK(optim.find("model.norm.weight.exp_avg_sq"));
}

TEST_CASE("checkpoint: without optimizer state there is no file for it", "[checkpoint]") {
  Scratch scratch;
  Sample sample;
  sample.specs.resize(3);
  const fs::path path = save_checkpoint(scratch.path(), sample.point(1), sample.specs, sample.read()).path;
  CHECK_FALSE(fs::exists(path / "optim-00000.safetensors"));
  CHECK(load_text(path, sample.specs) == "accepted");
}

TEST_CASE("checkpoint: one flipped bit anywhere is found", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path path = save_checkpoint(scratch.path(), sample.point(100), sample.specs, sample.read()).path;
  for (const char* name : {"manifest.json", "model-00000.safetensors", "optim-00000.safetensors"}) {
    const std::string good = read_file(path / name);
    int missed = 0, wrong = 0;
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ 1 << at % 8);
      write_file(path / name, bad);
      const std::string text = load_text(path, sample.specs);
      missed += text == "accepted";
      wrong += text.find(name) == std::string::npos;  // the message names the file
    }
    INFO(name);
    CHECK(missed == 0);
    CHECK(wrong == 0);
    write_file(path / name, good);
  }
  CHECK(load_text(path, sample.specs) == "accepted");
  CHECK(inspect_checkpoint(path, true).problem == "");
}

TEST_CASE("checkpoint: one byte more, or any byte less, is found", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path path = save_checkpoint(scratch.path(), sample.point(100), sample.specs, sample.read()).path;
  for (const char* name : {"manifest.json", "model-00000.safetensors", "optim-00000.safetensors"}) {
    const std::string good = read_file(path / name);
    int missed = 0;
    for (size_t n = 0; n < good.size(); n += 1 + n % 5) {
      write_file(path / name, good.substr(0, n));
      missed += inspect_checkpoint(path, true).problem.empty();
    }
    write_file(path / name, good + "\n");
    missed += inspect_checkpoint(path, true).problem.empty();
    INFO(name);
    CHECK(missed == 0);
    fs::remove(path / name);
    CHECK_THAT(load_text(path, sample.specs), Catch::Contains(path.string()));
    write_file(path / name, good);
  }
}

TEST_CASE("checkpoint: another model is refused by tensor", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path path = save_checkpoint(scratch.path(), sample.point(100), sample.specs, sample.read()).path;
  auto specs = sample.specs;
  specs[0].shape = {4, 7};
  CHECK_THAT(load_text(path, specs), Catch::Contains("model.embed_tokens.weight") &&
                                         Catch::Contains("holds F32 [7, 4], this run needs F32 [4, 7]"));
  specs = sample.specs;
  specs[0].dtype = ENG_I32;
  CHECK_THAT(load_text(path, specs), Catch::Contains("this run needs I32 [7, 4]"));
  specs = sample.specs;
  specs.pop_back();
  CHECK_THAT(load_text(path, specs), Catch::Contains("this run has no such tensor"));
  specs = sample.specs;
  for (const auto& t : whole({{"x", "parameter", ENG_F32, {1}}, {"y", "parameter", ENG_F32, {1}}})) specs.push_back(t);
  CHECK_THAT(load_text(path, specs), Catch::Contains("`x` (parameter) is missing, and 1 more"));
  try {
    Filled filled;
    load_checkpoint(path, specs, filled.fill());
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK_THAT(e.help(), Catch::Contains("config.resolved.toml") && Catch::Contains("[model] and [optimizer]"));
  }
  // A directory under another step's name.
  fs::rename(path, scratch / "step-00000200");
  CHECK_THAT(load_text(scratch / "step-00000200", sample.specs), Catch::Contains("manifest is of step 100"));
}

TEST_CASE("checkpoint: 16-bit and f32 values are converted where nothing is lost", "[checkpoint]") {
  Scratch scratch;
  Sample halves;
  halves.specs.clear(), halves.bytes.clear();
  for (int32_t dtype : {ENG_BF16, ENG_F16}) halves.add("w" + std::to_string(dtype), "parameter", dtype, {3, 5}, 0);
  const fs::path narrow = save_checkpoint(scratch / "a", halves.point(1), halves.specs, halves.read()).path;
  auto specs = halves.specs;
  for (auto& t : specs) t.dtype = ENG_F32;
  // Wide, as the table of conversions says.
  Filled wide;
  load_checkpoint(narrow, specs, wide.fill());
  for (const auto& t : halves.specs) {
    std::vector<float> want(15);
    convert(t.dtype, halves.bytes.at(Sample::key(t)).data(), ENG_F32, want.data(), want.size());
    CHECK(std::memcmp(want.data(), wide.bytes.at(Sample::key(t)).data(), 60) == 0);
    for (int n : wide.times.at(Sample::key(t))) CHECK(n == 1);
  }
  // And back, whatever the size of the tiles: these values came from 16 bits.
  Sample back;
  back.specs = specs, back.bytes = wide.bytes;
  const fs::path again = save_checkpoint(scratch / "b", halves.point(2), back.specs, back.read()).path;
  for (uint64_t staging : {0, 16, 64}) {
    Filled filled;
    std::vector<char> memory(staging);
    load_checkpoint(again, halves.specs, filled.fill(), memory);
    check_equal(halves, filled);
  }
  // A value that came from elsewhere is refused, or rounded for who asks for it.
  float third = 1.0f / 3;
  std::memcpy(back.bytes.at(Sample::key(specs[0])).data() + 8, &third, 4);
  const fs::path lossy = save_checkpoint(scratch / "c", halves.point(3), back.specs, back.read()).path;
  CHECK_THAT(load_text(lossy, halves.specs), Catch::Contains("tensor `w3` (parameter)") &&
                                                 Catch::Contains("holds F32 values that this run's BF16 would round"));
  Filled rounded;
  load_checkpoint(lossy, halves.specs, rounded.fill(), {}, "", {}, true);
  uint16_t got = 0, want = 0;
  std::memcpy(&got, rounded.bytes.at(Sample::key(specs[0])).data() + 4, 2);
  convert(ENG_F32, &third, ENG_BF16, &want, 1);
  CHECK(got == want);
  // A reader that only looks at names and shapes sees no values.
  load_checkpoint(lossy, halves.specs, {});
}

TEST_CASE("checkpoint: ranges of one tensor fill it exactly once", "[checkpoint]") {
  Scratch scratch;
  const auto specs = whole({{"w", "parameter", ENG_U8, {2, 5}}});
  const auto text = [&](const std::vector<std::pair<uint64_t, uint64_t>>& parts) {
    fs::remove_all(scratch / "c");
    save_sliced(scratch / "c", parts);
    return load_text(scratch / "c", specs);
  };
  CHECK(text({{6, 4}, {0, 6}}) == "accepted");
  Filled filled;
  load_checkpoint(scratch / "c", specs, filled.fill());
  CHECK(filled.bytes.at("w parameter") == "abcdefghij");
  CHECK_THAT(text({{0, 6}, {5, 5}}), Catch::Contains("element 5 is in two ranges"));
  CHECK_THAT(text({{0, 4}, {6, 4}}), Catch::Contains("elements 4 to 5 are in no range"));
  CHECK_THAT(text({{0, 6}}), Catch::Contains("elements 6 to 9 are in no range"));
  CHECK_THAT(text({{0, 6}, {6, 5}}), Catch::Contains("after the last of 10"));
  CHECK_THAT(text({{0, 6}, {UINT64_MAX - 2, 0}}), Catch::Contains("are in no range"));
}

TEST_CASE("checkpoint: parts of columns fill a tensor exactly once", "[checkpoint]") {
  struct Part {
    Range own;
    Columns columns;
  };
  const auto text = [](const std::vector<Part>& parts) {  // of a tensor (2, 6)
    Manifest manifest;
    manifest.files = {{"model-00000.safetensors", 100, ""}};
    manifest.tensors = {{{"w", "parameter", ENG_U8, {2, 6}}, {}}};
    for (const Part& p : parts)
      manifest.tensors[0].ranges.push_back({p.own, "model-00000.safetensors", "w", "", p.columns});
    return refusal(Exit::checkpoint, [&] {
      check_manifest(manifest, "here");
      if (manifest_text(manifest).find("[3,1,2]") == std::string::npos) throw Error(Exit::checkpoint, "not written");
    });
  };
  CHECK(text({{{0, 6}, {3, 1, 2}}, {{4, 2}, {3, 0, 2}}, {{0, 4}, {3, 0, 2}}}) == "accepted");
  CHECK_THAT(text({{{0, 6}, {3, 1, 2}}, {{0, 4}, {3, 0, 2}}}), Catch::Contains("columns of part 0 are in no range"));
  CHECK_THAT(text({{{0, 6}, {3, 0, 2}}}), Catch::Contains("columns of part 1 are in no range"));
  CHECK_THAT(text({{{0, 6}, {3, 1, 2}}}), Catch::Contains("columns of part 0 are in no range"));
  CHECK_THAT(text({{{0, 6}, {3, 0, 2}}, {{0, 6}, {3, 0, 2}}}), Catch::Contains("element 0 is in two ranges"));
  CHECK_THAT(text({{{0, 6}, {3, 0, 2}}, {{0, 6}, {3, 2, 2}}}), Catch::Contains("part 2 of 2"));
  CHECK_THAT(text({{{0, 6}, {3, 0, 2}}, {{0, 6}, {2, 1, 2}}}), Catch::Contains("in two ways"));
  CHECK_THAT(text({{{0, 6}, {0, 0, 2}}, {{0, 6}, {0, 1, 2}}}), Catch::Contains("have no 2 parts"));
  CHECK_THAT(text({{{0, 6}, {4, 0, 2}}, {{0, 6}, {4, 1, 2}}}), Catch::Contains("have no 2 parts"));
  CHECK_THAT(text({{{0, 6}, {UINT64_MAX, 0, 2}}, {{0, 6}, {UINT64_MAX, 1, 2}}}), Catch::Contains("have no 2 parts"));
}

TEST_CASE("checkpoint: a well-sealed manifest that lies is refused", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path path = save_checkpoint(scratch.path(), sample.point(100), sample.specs, sample.read()).path;
  const Manifest good = read_manifest(path);
  const auto text = [&](const auto& change) {
    Manifest m = good;
    change(m);
    write_file(path / "manifest.json", manifest_text(m));
    return load_text(path, sample.specs);
  };
  CHECK(text([](Manifest&) {}) == "accepted");
  CHECK_THAT(text([](Manifest& m) { m.files[0].name = "../" + m.files[0].name; }), Catch::Contains("plain file name"));
  CHECK_THAT(text([](Manifest& m) { m.files[1].name = m.files[0].name; }), Catch::Contains("listed twice"));
  CHECK_THAT(text([](Manifest& m) { m.tensors[0].ranges[0].file = "gone"; }), Catch::Contains("is not listed"));
  CHECK_THAT(text([](Manifest& m) { m.tensors[0].ranges[0].stored = "gone"; }), Catch::Contains("is missing"));
  CHECK_THAT(text([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }), Catch::Contains("listed twice"));
  CHECK_THAT(text([](Manifest& m) { m.tensors.erase(m.tensors.begin()); }), Catch::Contains("is in no range"));
  CHECK_THAT(text([](Manifest& m) { m.tensors[0].dtype = ENG_I32; }), Catch::Contains("differs from the manifest"));
  CHECK_THAT(text([](Manifest& m) { m.tensors[0].shape = {INT64_MAX, INT64_MAX}; }), Catch::Contains("too large"));
  CHECK_THAT(text([](Manifest& m) { m.tensors[1].ranges = m.tensors[0].ranges; }), Catch::Contains("range"));
}

TEST_CASE("manifest: sealed text that is not a manifest", "[checkpoint]") {
  const auto sealed = [](const std::string& body) {
    const std::string text = body + ",\n\"checksum\": \"" + Checksum::of(body) + "\"\n}\n";
    return refusal(Exit::checkpoint, [&] { parse_manifest(text, "m"); });
  };
  CHECK_THAT(sealed("{\"format\": \"other\""), Catch::Contains("it has another format"));
  CHECK_THAT(sealed("{\"format\": \"engine-checkpoint\", \"version\": 2"), Catch::Contains("reads version 1"));
  CHECK_THAT(sealed("{\"format\": \"engine-checkpoint\", \"version\": 1, \"step\": -1"), Catch::Contains("`step`"));
  CHECK_THAT(sealed("{\"format\": \"engine-checkpoint\", \"version\": 1, \"step\": 1.5"), Catch::Contains("`step`"));
  CHECK_THAT(sealed("{\"format\": 3"), Catch::StartsWith("m: "));
  CHECK_THAT(sealed("[1"), Catch::StartsWith("m: "));
  CHECK_THAT(sealed("{\"a\": " + std::string(100000, '[')), Catch::StartsWith("m: "));
  CHECK_THAT(refusal(Exit::checkpoint, [&] { parse_manifest("", "m"); }), Catch::Contains("truncated"));
}

TEST_CASE("checkpoints: the newest good one is found, the others refused by name", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  for (int64_t step : {100, 200, 300, 400})
    save_checkpoint(scratch.path(), sample.point(step), sample.specs, sample.read());
  CHECK(find_latest(scratch.path()).path == scratch / "step-00000400");
  std::string bad = read_file(scratch / "step-00000400/optim-00000.safetensors");
  bad.back() = char(bad.back() ^ 4);
  write_file(scratch / "step-00000400/optim-00000.safetensors", bad);
  fs::remove(scratch / "step-00000300/manifest.json");
  const Found found = find_latest(scratch.path());
  REQUIRE(found.path);
  CHECK(*found.path == scratch / "step-00000200");
  REQUIRE(found.refused.size() == 2);
  CHECK(found.refused[0].path == scratch / "step-00000400");
  CHECK_THAT(found.refused[0].problem, Catch::Contains("optim-00000.safetensors") && Catch::Contains("damaged"));
  CHECK_THAT(found.refused[1].problem, Catch::Contains("never completed"));
  const auto rows = list_checkpoints(scratch.path());
  REQUIRE(rows.size() == 4);
  CHECK(rows[2].problem != "");
  CHECK(rows[3].problem == "");  // the listing reads no data
  const auto verified = list_checkpoints(scratch.path(), true);
  REQUIRE(verified.size() == 4);
  CHECK(verified[0].problem == "");
  CHECK(verified[3].problem != "");
  CHECK(inspect_checkpoint(scratch / "step-00000400", true).problem != "");
  // A run resumed from 200 sets the later ones aside for good.
  set_aside_newer(scratch.path(), 200);
  CHECK(list_checkpoints(scratch.path()).size() == 2);
  CHECK(find_latest(scratch.path()).refused.empty());
  const Found none = find_latest(scratch / "none");
  CHECK((!none.path && none.refused.empty()));
}

TEST_CASE("checkpoints: one of the same step is not replaced", "[checkpoint]") {
  Scratch scratch;
  const Sample a(0), b(9);
  save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
  CHECK(refusal(Exit::disk, [&] { save_checkpoint(scratch.path(), b.point(1), b.specs, b.read()); }) != "accepted");
  Filled filled;
  load_checkpoint(scratch / "step-00000001", a.specs, filled.fill());
  check_equal(a, filled);
}

TEST_CASE("checkpoints: keep N", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  for (int64_t step : {1, 2, 3, 4, 5}) save_checkpoint(scratch.path(), sample.point(step), sample.specs, sample.read());
  const auto kept = [&](int64_t keep) {
    collect_checkpoints(scratch.path(), keep);
    std::vector<int64_t> steps;
    for (const auto& row : list_checkpoints(scratch.path())) steps.push_back(row.step);
    return steps;
  };
  CHECK(kept(0) == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(kept(9) == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(kept(3) == std::vector<int64_t>{3, 4, 5});
  // Incomplete ones do not count: the only complete one stays.
  for (const char* name : {"step-00000004", "step-00000005"}) fs::remove(scratch / name / "model-00000.safetensors");
  CHECK(kept(1) == std::vector<int64_t>{3, 4, 5});
  CHECK(find_latest(scratch.path()).path == scratch / "step-00000003");
  CHECK(checkpoint_step(checkpoint_name(1234567890)) == 1234567890);
  for (const char* name : {"step-1", "step-0000000x", "tep-00000001", ".tmp-step-00000001", "aside-step-00000001"}) {
    CHECK_FALSE(checkpoint_step(name));
  }
}

TEST_CASE("checkpoints: a damaged one is neither counted nor removed", "[checkpoint]") {
  const Sample sample;
  using Damage = void (*)(const fs::path&);
  static const auto flipped = [](const fs::path& file, size_t at) {
    std::string text = read_file(file);
    text.at(at) = char(text[at] ^ 1);
    write_file(file, text);
  };
  const Damage all[] = {
      [](const fs::path& c) { flipped(c / "manifest.json", read_file(c / "manifest.json").find("first") + 9); },
      [](const fs::path& c) { flipped(c / "manifest.json", fs::file_size(c / "manifest.json") - 10); },
      [](const fs::path& c) { flipped(c / "optim-00000.safetensors", 30); },
      [](const fs::path& c) { fs::resize_file(c / "model-00000.safetensors", 100); },
      [](const fs::path& c) { fs::remove(c / "manifest.json"); },
      [](const fs::path& c) {
        std::string text = read_file(c / "manifest.json");
        text.replace(text.find("\"version\": 1,\n"), 14, "\"version\": 2,\n");
        text.resize(text.rfind(",\n\"checksum\""));
        write_file(c / "manifest.json", text + ",\n\"checksum\": \"" + Checksum::of(text) + "\"\n}\n");
      },
      [](const fs::path& c) {
        fs::rename(c, c.parent_path() / "moved");
        fs::create_directory_symlink("moved", c);
      },
      [](const fs::path& c) {  // another step's
        fs::remove_all(c);
        fs::copy(c.parent_path() / "step-00000002", c);
      },
  };
  for (const Damage& damage : all) {
    CAPTURE(&damage - all);
    Scratch scratch;
    for (int64_t step : {1, 2, 3}) save_checkpoint(scratch.path(), sample.point(step), sample.specs, sample.read());
    const auto there = [&](int64_t step) { return fs::exists(scratch / checkpoint_name(step)); };
    damage(scratch / checkpoint_name(3));
    CHECK_FALSE(list_checkpoints(scratch.path()).back().problem.empty());
    collect_checkpoints(scratch.path(), 1);
    CHECK((!there(1) && there(2) && there(3)));
  }
}
