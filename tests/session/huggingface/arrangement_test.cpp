// SPDX-License-Identifier: Apache-2.0
// Tensors that are split, joined and transposed between a model and its files, as its plugin's description declares.
#include "session/huggingface/arrangement.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "engine/tensor.h"
#include "session/huggingface/tensors.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace arrangement_test {

using namespace eng;
using Catch::Contains;

namespace {

using Values = std::vector<float>;

uint64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1},
                         [](uint64_t n, int64_t d) { return n * uint64_t(d); });
}

// A fused projection of unequal parts, transposed and not, a joined pair, and tensors that stay as they are.
const std::vector<TensorShape>& model() {
  static const std::vector<TensorShape> made = {{"words.weight", {7, 6}},
                                                {"h.0.q.weight", {6, 6}},
                                                {"h.0.k.weight", {2, 6}},
                                                {"h.0.v.weight", {2, 6}},
                                                {"h.0.q.bias", {6}},
                                                {"h.0.k.bias", {2}},
                                                {"h.0.v.bias", {2}},
                                                {"h.0.mix.weight", {6, 5}},
                                                {"h.0.gate_up.weight", {8, 6}},
                                                {"h.0.wide.weight", {3, 4}},
                                                {"h.0.pair.a", {2, 3, 2}},
                                                {"h.0.pair.b", {2, 1, 2}},
                                                {"scale", {}}};
  return made;
}

Pretrained description() {
  Pretrained out;
  out.model_types = {"snake"};
  out.transpose = {"h.*.qkv.weight", "h.*.mix.weight", "h.*.left.weight", "h.*.right.weight"};
  out.regroup = {{{"h.*.qkv.weight"}, {"h.*.q.weight", "h.*.k.weight", "h.*.v.weight"}, 1},
                 {{"h.*.qkv.bias"}, {"h.*.q.bias", "h.*.k.bias", "h.*.v.bias"}, 0},
                 {{"h.*.both"}, {"h.*.pair.a", "h.*.pair.b"}, 1},
                 {{"h.*.gate.weight", "h.*.up.weight"}, {"h.*.gate_up.weight"}, 0},
                 {{"h.*.left.weight", "h.*.right.weight"}, {"h.*.wide.weight"}, 0}};
  return out;
}

// Every element of the model has a value of its own.
std::vector<Values> numbered(const std::vector<TensorShape>& tensors) {
  std::vector<Values> out;
  float next = 0;
  for (const TensorShape& t : tensors) {
    out.emplace_back(elements(t.shape));
    for (float& value : out.back()) value = ++next;
  }
  return out;
}

std::vector<Values> gathered(const std::vector<Arranged>& made, const std::vector<Values>& sources, uint64_t tile) {
  std::vector<Values> out;
  for (const Arranged& one : made) {
    Values values(elements(one.shape), -1.0f);
    for (uint64_t first = 0; first < values.size(); first += tile)
      gather(
          one, first, std::min<uint64_t>(tile, values.size() - first), sizeof(float),
          [&](size_t source, uint64_t from, uint64_t count, void* to) {
            REQUIRE(from + count <= sources.at(source).size());
            std::memcpy(to, sources[source].data() + from, count * sizeof(float));
          },
          values.data() + first);
    out.push_back(std::move(values));
  }
  return out;
}

const Values& file(const Arrangement& a, const std::vector<Values>& values, const std::string& name) {
  for (size_t k = 0; k < a.files.size(); ++k)
    if (a.files[k].name == name) return values[k];
  FAIL(name);
  return values[0];
}

std::string refused(const std::vector<TensorShape>& tensors, const Pretrained& pretrained) {
  return test::refusal(Exit::checkpoint, [&] { arrange(tensors, pretrained, "dir"); });
}

void write_directory(const std::filesystem::path& folder, const std::vector<TensorShape>& tensors,
                     const std::vector<Values>& values) {
  std::vector<StoredTensor> stored;
  for (const TensorShape& t : tensors) stored.push_back({t.name, ENG_F32, t.shape});
  std::string bytes = safetensors_header(stored, {});
  for (const Values& v : values) bytes.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  std::filesystem::create_directories(folder);
  test::write_file(folder / "model.safetensors", bytes);
}

}  // namespace

TEST_CASE("arrangement: the files' tensors are made of the model's, and the model's of the files'") {
  const Arrangement a = arrange(model(), description(), "dir");
  std::vector<std::string> names;
  for (const TensorShape& t : a.files) names.push_back(fmt::format("{} {}", t.name, fmt::join(t.shape, "x")));
  CHECK(names == std::vector<std::string>{"words.weight 7x6", "h.0.qkv.weight 6x10", "h.0.qkv.bias 10",
                                          "h.0.mix.weight 5x6", "h.0.gate.weight 4x6", "h.0.up.weight 4x6",
                                          "h.0.left.weight 2x3", "h.0.right.weight 2x3", "h.0.both 2x4x2", "scale "});
  CHECK_FALSE(a.plain());
  CHECK(arrange(model(), {}, "dir").plain());
  const auto values = numbered(model());
  const auto files = gathered(a.from_model, values, 1000);
  CHECK(file(a, files, "scale") == values[12]);
  // Row i of the fused matrix has column i of q, k and v, one after the other.
  const Values& qkv = file(a, files, "h.0.qkv.weight");
  for (size_t i = 0; i < 6; ++i)
    for (size_t j = 0; j < 10; ++j)
      CHECK(qkv[i * 10 + j] == (j < 6   ? values[1][j * 6 + i]
                                : j < 8 ? values[2][(j - 6) * 6 + i]
                                        : values[3][(j - 8) * 6 + i]));
  CHECK(file(a, files, "h.0.up.weight") == Values(values[8].begin() + 24, values[8].end()));
  // (3, 4) is [left^T | right^T].
  const Values& right = file(a, files, "h.0.right.weight");
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j) CHECK(right[i * 3 + j] == values[9][j * 4 + 2 + i]);
  const Values& both = file(a, files, "h.0.both");
  CHECK(Values(both.begin(), both.begin() + 8) == Values{values[10][0], values[10][1], values[10][2], values[10][3],
                                                         values[10][4], values[10][5], values[11][0], values[11][1]});
  for (const uint64_t tile : {1, 2, 3, 5, 7, 11, 1000}) {
    INFO(tile);
    CHECK(gathered(a.from_model, values, tile) == files);
    CHECK(gathered(a.from_files, files, tile) == values);
  }
}

TEST_CASE("arrangement: numbered tensors of the files are the entries of one of the model") {
  const std::vector<TensorShape> model = {
      {"l.0.e.both", {3, 4, 2}}, {"l.0.e.down", {3, 2, 5}}, {"l.1.e.both", {1, 4, 2}}, {"l.1.e.down", {1, 2, 5}}};
  Pretrained p;
  p.regroup = {{{"l.*.e.#.gate", "l.*.e.#.up"}, {"l.*.e.both"}, 0, true}, {{"l.*.e.#.down"}, {"l.*.e.down"}, 0, true}};
  const Arrangement a = arrange(model, p, "dir");
  std::vector<std::string> names;
  for (const TensorShape& t : a.files) names.push_back(fmt::format("{} {}", t.name, fmt::join(t.shape, "x")));
  CHECK(names == std::vector<std::string>{"l.0.e.0.gate 2x2", "l.0.e.0.up 2x2", "l.0.e.1.gate 2x2", "l.0.e.1.up 2x2",
                                          "l.0.e.2.gate 2x2", "l.0.e.2.up 2x2", "l.0.e.0.down 2x5", "l.0.e.1.down 2x5",
                                          "l.0.e.2.down 2x5", "l.1.e.0.gate 2x2", "l.1.e.0.up 2x2",
                                          "l.1.e.0.down 2x5"});
  CHECK_THAT(refused({{"l.0.map", {2, 2}}}, p), Contains("no tensor of this model is called"));
  Pretrained some = p;
  for (Regroup& rule : some.regroup) rule.optional = true;
  CHECK(arrange({{"l.0.map", {2, 2}}}, some, "dir").plain());
  const auto values = numbered(model);
  const auto files = gathered(a.from_model, values, 1000);
  CHECK(file(a, files, "l.0.e.1.up") == Values(values[0].begin() + 12, values[0].begin() + 16));
  CHECK(file(a, files, "l.0.e.2.down") == Values(values[1].begin() + 20, values[1].end()));
  for (const uint64_t tile : {1, 3, 7, 1000}) {
    INFO(tile);
    CHECK(gathered(a.from_model, values, tile) == files);
    CHECK(gathered(a.from_files, files, tile) == values);
  }
  p.transpose = {"l.*.e.1.up"};
  CHECK_THAT(refused(model, p), Contains("only one of them is transposed"));
  p.transpose = {"l.*.e.*.gate", "l.*.e.*.up"};
  CHECK_THAT(refused(model, p), Contains("`l.0.e.0.gate` is one of numbered tensors, which are not transposed"));
  p.transpose = {};
  p.regroup[0].files.push_back("l.*.e.#.third");
  CHECK_THAT(refused(model, p),
             Contains("`join` in the description of the model's plugin: `l.0.e.both` is [3, 4, 2]: an "
                      "entry along its first dimension is not made of 3 equal tensors"));
}

TEST_CASE("arrangement: each rank reads its ranges of a directory, in its own element type") {
  const test::Scratch scratch;
  const Arrangement a = arrange(model(), description(), "dir");
  const auto values = numbered(model());
  write_directory(scratch / "hf", a.files, gathered(a.from_model, values, 1000));
  std::vector<TensorSpec> specs;
  for (const TensorShape& t : model()) specs.push_back({t.name, "parameter", ENG_F32, t.shape});
  for (const uint64_t ranks : {1, 2, 3, 5}) {
    INFO(ranks);
    std::vector<Values> read;
    for (const Values& v : values) read.emplace_back(v.size(), -1.0f);
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      std::vector<TensorShare> shares = whole(specs);
      for (size_t k = 0; k < shares.size(); ++k) {
        const uint64_t all = values[k].size(), begin = all * rank / ranks, end = all * (rank + 1) / ranks;
        shares[k].ranges = begin < end ? std::vector<Range>{{begin, end - begin}} : std::vector<Range>{};
      }
      load_tensors(scratch / "hf", description(), shares,
                   [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* data) {
                     for (size_t k = 0; k < specs.size(); ++k)
                       if (specs[k].name == t.name) std::memcpy(&read[k][first], data, count * sizeof(float));
                   });
    }
    CHECK(read == values);
  }
  // 1 to 64 are exact in bf16, whose bits are the upper half.
  std::vector<TensorShare> shares = whole(specs);
  for (TensorShare& share : shares) share.dtype = ENG_BF16;
  size_t seen = 0;
  load_tensors(scratch / "hf", description(), shares,
               [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* data) {
                 for (size_t k = 0; k < 2 && first == 0; ++k)
                   for (uint64_t i = 0; specs[k].name == t.name && i < std::min<uint64_t>(count, 60 - 42 * k);
                        ++i, ++seen) {
                     uint32_t bits = 0;
                     std::memcpy(&bits, &values[k][i], sizeof bits);
                     CHECK(static_cast<const uint16_t*>(data)[i] == bits >> 16);
                   }
               });
  CHECK(seen == 42 + 18);
}

TEST_CASE("arrangement: tensors of the files that are missing or misshapen are told in the files' names") {
  const test::Scratch scratch;
  const Arrangement a = arrange(model(), description(), "dir");
  std::vector<TensorShape> files = a.files;
  auto values = gathered(a.from_model, numbered(model()), 1000);
  files[1].shape = {10, 6};  // not transposed
  files[5].name = "h.0.down.weight";
  write_directory(scratch / "hf", files, values);
  std::vector<TensorSpec> specs;
  for (const TensorShape& t : model()) specs.push_back({t.name, "parameter", ENG_F32, t.shape});
  std::vector<TensorShare> shares = whole(specs);
  const auto problem = [&] {
    return test::refusal(Exit::checkpoint, [&] { load_tensors(scratch / "hf", description(), shares, {}); });
  };
  const std::string text = problem();
  for (const char* part : {"3 of its tensors", "h.0.qkv.weight: is [10, 6] in the file, [6, 10] in the model",
                           "h.0.up.weight [4, 6]: is missing", "h.0.down.weight [4, 6]: the model has no such tensor"})
    CHECK_THAT(text, Contains(part));
  // Half of a joined tensor is missing, although the tensor as a whole may be.
  shares[8].optional = true;
  CHECK(problem() == text);
}

TEST_CASE("arrangement: what cannot be is refused, with what to change") {
  const auto with = [](auto change) {
    Pretrained p = description();
    std::vector<TensorShape> tensors = model();
    change(p, tensors);
    return refused(tensors, p);
  };
  using P = Pretrained;
  using T = std::vector<TensorShape>;
  CHECK(with([](P&, T&) {}) == "accepted");
  const std::string start = "dir: `split` in the description of the model's plugin: ";
  CHECK(with([](P& p, T&) {
          p.regroup[0].model = {"g.*.q", "g.*.k"};
        }) == start + "no tensor of this model is called `g.*.q` or `g.*.k`");
  CHECK_THAT(with([](P& p, T&) { p.transpose[1] = "h.*.mix"; }),
             Contains("`transpose` in") && Contains("`h.*.mix` is the name of no tensor of this model's files"));
  CHECK_THAT(with([](P& p, T&) { p.transpose[1] = "h.0.q.weight"; }),
             Contains("`h.0.q.weight` is the name of no tensor"));
  CHECK_THAT(with([](P& p, T&) { p.transpose[1] = "h.*.qkv.bias"; }), Contains("`h.0.qkv.bias` has 1 dimensions"));
  CHECK_THAT(with([](P&, T& t) { t.erase(t.begin() + 2); }),
             Contains("`h.0.q.weight` goes with `h.0.k.weight`, which the model does not have"));
  CHECK_THAT(with([](P& p, T&) { p.regroup[1] = p.regroup[0]; }), Contains("`h.0.q.weight` is in two groups"));
  CHECK_THAT(
      with([](P&, T& t) {
        t[2].shape = {2, 5};
      }),
      Contains("`h.0.q.weight` is [6, 6] and `h.0.k.weight` is [2, 5]: along axis 1 of the files they make no tensor"));
  CHECK_THAT(with([](P& p, T&) { p.regroup[1].axis = 1; }), Contains("`h.0.q.bias` is [6]: it has no axis 1"));
  CHECK_THAT(with([](P&, T& t) {
               t[8].shape = {9, 6};
             }),
             Contains("`join` in") &&
                 Contains("`h.0.gate_up.weight` is [9, 6]: along axis 0 of the files it is not made of 2 equal"));
  CHECK_THAT(with([](P& p, T&) { p.transpose.pop_back(); }), Contains("only one of them is transposed"));
  CHECK_THAT(with([](P& p, T&) {
               p.regroup[1].files[0] = "h.*.q.up";
               p.regroup[2].files[0] = "h.*.q.up";
             }),
             Contains("`h.0.q.up` would be twice in the files"));
  try {
    arrange({}, description(), "dir");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK_THAT(e.help(), Contains("[provides.pretrained] in the plugin's description"));
  }
}

}  // namespace arrangement_test
