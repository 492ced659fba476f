// SPDX-License-Identifier: Apache-2.0
// Tensors and batches that cross as DLPack: in place, both ways, and with every lifetime.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <thread>

#include "support.hpp"

using namespace embed;
using Catch::Matchers::Contains;

namespace {

const std::string weight = "model.norm.weight";

std::vector<float> values(engine::Session& run, const std::string& name, const std::string& role = "parameter") {
  const engine::Tensor copy = run.take(name, role, ENG_TAKE_COPY);
  int64_t n = 1;
  for (const int64_t d : copy.shape()) n *= d;
  return {copy.data<float>(), copy.data<float>() + n};
}

}  // namespace

TEST_CASE("embed: tensors are lent in place, and show what a step does", "[embed]") {
  const Folder folder;
  engine::Session run(folder.options());
  const engine::Tensor a = run.take(weight), b = run.take(weight, "parameter", ENG_TAKE_WRITABLE);
  CHECK(a.read_only());
  CHECK_FALSE(b.read_only());
  CHECK(a.data<float>() == b.data<float>());
  CHECK(a.shape() == std::vector<int64_t>{16});
  CHECK(a.data<float>()[0] == 1.0f);
  CHECK(run.step());
  CHECK(a.data<float>()[0] != 1.0f);
  const engine::Tensor copy = run.take(weight, "parameter", ENG_TAKE_COPY);
  CHECK(copy.data<float>() != a.data<float>());
  CHECK(std::memcmp(copy.data<float>(), a.data<float>(), 64) == 0);
  const float before = copy.data<float>()[0];
  CHECK(run.step());
  CHECK(copy.data<float>()[0] == before);
  CHECK(a.data<float>()[0] != before);
  // All tensors are listed once, with their roles.
  size_t parameters = 0, states = 0;
  for (const eng_tensor_info& t : run.tensors()) {
    parameters += t.role == std::string("parameter"),
        states += t.role == std::string("exp_avg") || t.role == std::string("exp_avg_sq");
    CHECK(t.flags == (ENG_TENSOR_WHOLE | ENG_TENSOR_ADDRESSABLE));
    CHECK(run.take(t.name, t.role).shape() == std::vector<int64_t>(t.desc.dims, t.desc.dims + t.desc.ndim));
  }
  CHECK(parameters > 5);
  CHECK(states == 2 * parameters);
}

TEST_CASE("embed: what is written counts from the next step on", "[embed]") {
  const Folder folder;
  const std::string precision = GENERATE("fp32", "bf16");
  const std::vector<std::string> overrides = {"precision.plugin=" + precision};
  engine::Session run(folder.options("", overrides)), twin(folder.options("", overrides));
  const double same = run.evaluate().loss;
  CHECK(twin.evaluate().loss == same);
  std::vector<float> half(16, 0.5f);
  run.write(weight, {"", half.data(), {16}});
  {
    const engine::Tensor in_place = twin.take(weight, "parameter", ENG_TAKE_WRITABLE);
    std::fill_n(in_place.data<float>(), 16, 0.5f);
    const double other = run.evaluate().loss;
    CHECK(other != same);
    CHECK(twin.evaluate().loss == other);
    // Again, without a word to the engine.
    std::fill_n(in_place.data<float>(), 16, 0.25f);
  }
  std::fill_n(half.data(), 16, 0.25f);
  run.write(weight, {"", half.data(), {16}});
  const auto a = run.step(), b = twin.step();
  REQUIRE((a && b));
  CHECK(a->loss == b->loss);
  CHECK(values(run, weight) == values(twin, weight));
}

TEST_CASE("embed: writing converts where it is exact, or where it may round", "[embed]") {
  const Folder folder;
  engine::Session run(folder.options());
  run.start();
  std::string why;
  std::vector<double> wide(16, 0.1);
  const engine::Array doubles("", wide.data(), {kDLFloat, 64, 1}, {16});
  CHECK(refused(why, [&] { run.write(weight, doubles); }) == ENG_UNSUPPORTED);
  CHECK_THAT(why, Contains("round=True"));
  CHECK(values(run, weight)[0] == 1.0f);
  run.write(weight, doubles, "parameter", ENG_WRITE_ROUND);
  CHECK(values(run, weight)[3] == 0.1f);
  std::vector<uint16_t> bf16(16, 0x3f40);  // 0.75
  run.write(weight, {"", bf16.data(), {kDLBfloat, 16, 1}, {16}});
  CHECK(values(run, weight)[15] == 0.75f);
  std::vector<int32_t> whole(16, 2);
  CHECK(refused(why, [&] {
          run.write(weight, {"", whole.data(), {16}}, "parameter", ENG_WRITE_ROUND);
        }) == ENG_UNSUPPORTED);
  CHECK(refused(why, [&] { run.write(weight, {"", wide.data(), {kDLFloat, 64, 1}, {4, 4}}); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("(4, 4)"));
  CHECK(refused(why, [&] { run.write(weight, doubles, "gradient"); }) == ENG_UNSUPPORTED);
  // A state, from a strided tensor.
  std::vector<float> both(32);
  for (size_t k = 0; k < 32; ++k) both[k] = static_cast<float>(k);
  int64_t shape[] = {16}, strides[] = {-2};
  const DLTensor back = {both.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, strides, 31 * sizeof(float)};
  const eng_tensor_in in = {sizeof(in), 0, nullptr, nullptr, nullptr, &back};
  engine::call(eng_session_write, run.get(), weight.c_str(), "exp_avg", &in, 0u);
  CHECK(values(run, weight, "exp_avg")[0] == 31.0f);
  CHECK(values(run, weight, "exp_avg")[15] == 1.0f);
}

TEST_CASE("embed: batches by field, however they are laid out", "[embed]") {
  const Folder folder;
  const auto loss = [&](const std::function<double(engine::Session&)>& make) {
    engine::Session run(folder.options());
    return make(run);
  };
  const std::vector<int64_t> all = ids(4 * 17);
  std::vector<int64_t> tokens, labels, cut;
  for (size_t r = 0; r < 4; ++r)
    for (size_t t = 0; t < 16; ++t) {
      tokens.push_back(all[r * 17 + t]), labels.push_back(all[r * 17 + t + 1]);
      cut.push_back(t < 15 ? all[r * 17 + t + 1] : ENG_IGNORE_LABEL);
    }
  const double given = loss([&](auto& run) {
    Foreign x(tokens, {4, 16}), y(labels, {4, 16});
    const double out = step(run, {x.in("tokens"), y.old("labels")});
    CHECK((x.deleted == 1 && y.deleted == 1));
    return out;
  });
  CHECK(given > 1);
  // One column more: its labels are the tokens after.
  CHECK(given == loss([&](auto& run) { return step(run, {Foreign(all, {4, 17}).in("tokens")}); }));
  // Labels made inside; the last token of a row has none.
  const double inside = loss([&](auto& run) { return step(run, {Foreign(tokens, {4, 16}).in("tokens")}); });
  CHECK(inside != given);
  CHECK(inside == loss([&](auto& run) {
          Foreign x(tokens, {4, 16}), y(cut, {4, 16});
          return step(run, {y.in("labels"), x.in("tokens")});
        }));
  // By columns, with an offset, and as int32.
  CHECK(given == loss([&](auto& run) {
          std::vector<int64_t> turned(4 * 17 + 1);
          for (size_t r = 0; r < 4; ++r)
            for (size_t t = 0; t < 17; ++t) turned[1 + t * 4 + r] = all[r * 17 + t];
          Foreign x(turned, {4, 17});
          x.strides = {1, 4};
          x.versioned.dl_tensor.byte_offset = 8;
          x.versioned.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
          return step(run, {x.in("tokens")});
        }));
  CHECK(given == loss([&](auto& run) {
          const std::vector<int32_t> narrow(all.begin(), all.end());
          return run.step({{"tokens", narrow.data(), {4, 17}}})->loss;
        }));
  CHECK(given == loss([&](auto& run) {
          const std::vector<uint8_t> bytes(all.begin(), all.end());
          return run.step({{"tokens", bytes.data(), {kDLUInt, 8, 1}, {4, 17}}})->loss;
        }));
}

TEST_CASE("embed: what cannot be a batch is refused, and given back once", "[embed]") {
  const Folder folder;
  engine::Session run(folder.options());
  const auto refusal = [&](eng_status status, const std::string& words, auto change) {
    INFO(words);
    Foreign x(ids(4 * 16), {4, 16}), y(ids(4 * 16), {4, 16});
    std::vector<eng_tensor_in> fields = {x.in("tokens"), y.in("labels")};
    change(x, fields);
    std::string why;
    CHECK(refused(why, [&] { step(run, fields); }) == status);
    CHECK_THAT(why, Contains(words));
    CHECK((x.deleted == 1 && y.deleted == 1));
  };
  using Fields = std::vector<eng_tensor_in>;
  refusal(ENG_UNSUPPORTED, "DLPack 2.0", [](Foreign& x, Fields&) {
    x.versioned.version = {2, 0};
    x.versioned.dl_tensor.shape = reinterpret_cast<int64_t*>(1);  // must not be read
  });
  refusal(ENG_UNSUPPORTED, "complex64", [](Foreign& x, Fields&) { x.versioned.dl_tensor.dtype = {kDLComplex, 64, 1}; });
  refusal(ENG_UNSUPPORTED, "type-code-17", [](Foreign& x, Fields&) { x.versioned.dl_tensor.dtype = {17, 4, 1}; });
  refusal(ENG_UNSUPPORTED, "int64x2", [](Foreign& x, Fields&) { x.versioned.dl_tensor.dtype.lanes = 2; });
  refusal(ENG_UNSUPPORTED, "no integer type", [](Foreign& x, Fields&) { x.versioned.dl_tensor.dtype.code = kDLFloat; });
  refusal(ENG_UNSUPPORTED, "device 2:0", [](Foreign& x, Fields&) { x.versioned.dl_tensor.device = {kDLCUDA, 0}; });
  refusal(ENG_UNSUPPORTED, "7 dimensions", [](Foreign& x, Fields&) { x.versioned.dl_tensor.ndim = 7; });
  refusal(ENG_INVALID, "a batch is (4, 16)", [](Foreign& x, Fields&) { x.versioned.dl_tensor.ndim = 0; });
  refusal(ENG_INVALID, "a batch is (4, 16)", [](Foreign& x, Fields&) { x.shape[0] = 0; });
  refusal(ENG_INVALID, "is -1", [](Foreign& x, Fields&) { x.shape[0] = -1; });
  refusal(ENG_INVALID, "larger than memory", [](Foreign& x, Fields&) { x.shape = {INT64_MAX, 16}; });
  refusal(ENG_INVALID, "shape is NULL", [](Foreign& x, Fields&) { x.versioned.dl_tensor.shape = nullptr; });
  refusal(ENG_INVALID, "no data", [](Foreign& x, Fields&) { x.versioned.dl_tensor.data = nullptr; });
  refusal(ENG_DATA_LOSS, "is 256, the model has the ids 0 to 255", [](Foreign& x, Fields&) { x.data[5] = 256; });
  refusal(ENG_DATA_LOSS, "no id", [](Foreign& x, Fields&) { x.data[5] = int64_t{1} << 40; });
  refusal(ENG_INVALID, "field `masks`", [](Foreign&, Fields& f) { f[1].name = "masks"; });
  refusal(ENG_INVALID, "two fields `tokens`", [](Foreign&, Fields& f) { f[1].name = "tokens"; });
  refusal(ENG_INVALID, "no field `tokens`", [](Foreign& x, Fields& f) { f.erase(f.begin()), x.deleted = 1; });
  CHECK(run.step());  // and the session goes on
}

TEST_CASE("embed: a deleter runs when its owner likes: elsewhere, and after the session", "[embed]") {
  const Folder folder;
  std::optional<engine::Tensor> late, legacy_late;
  DLManagedTensor* old = nullptr;
  std::vector<float> before;
  {
    engine::Session run(folder.options("own"));
    run.step();
    late.emplace(run.take("model.embed_tokens.weight", "parameter", ENG_TAKE_WRITABLE));
    engine::call(eng_session_take_legacy, run.get(), weight.c_str(), "parameter", ENG_TAKE_WRITABLE, &old);
    std::string why;
    CHECK(refused(why, [&] {
            DLManagedTensor* none = nullptr;
            engine::call(eng_session_take_legacy, run.get(), weight.c_str(), "parameter", 0u, &none);
          }) == ENG_UNSUPPORTED);
    before = values(run, "model.embed_tokens.weight");
    std::thread([tensor = run.take(weight)]() mutable { tensor.reset(); }).join();
    run.close();
  }
  // Closed, and its directory is free; the memory is still there, to read and to write.
  CHECK(std::equal(before.begin(), before.end(), late->data<float>()));
  std::fill_n(late->data<float>(), before.size(), 1.0f);
  CHECK(static_cast<const float*>(old->dl_tensor.data)[0] != 0.0f);
  engine::Session other(folder.options("", {"train.seed=5"}));
  CHECK(other.step());
  std::thread([&] { late.reset(); }).join();
  CHECK(static_cast<const float*>(old->dl_tensor.data)[0] != 0.0f);
  old->deleter(old);
  CHECK(other.step());
}

TEST_CASE("embed: gradients of the last step, and logits", "[embed]") {
  const Folder folder;
  engine::Options options = folder.options("own", {"train.grad_clip=0"});
  options.flags = ENG_SESSION_GRADIENTS | ENG_SESSION_LOGITS;
  engine::Session run(options), plain(folder.options("plain", {"train.grad_clip=0"}));
  const auto a = run.step(), b = plain.step();
  REQUIRE((a && b));
  CHECK(a->loss == b->loss);
  CHECK(values(run, weight) == values(plain, weight));  // what is kept for others changes nothing
  double squares = 0;
  for (const eng_tensor_info& t : run.tensors())
    if (t.role == std::string("gradient"))
      for (const float g : values(run, t.name, "gradient")) squares += static_cast<double>(g) * g;
  CHECK(std::sqrt(squares) == Approx(a->grad_norm).epsilon(1e-5));
  CHECK(run.take(weight, "gradient", ENG_TAKE_WRITABLE).read_only());
  CHECK_FALSE(run.take(weight, "parameter", ENG_TAKE_WRITABLE).read_only());
  // Logits give the loss of an evaluation.
  const std::vector<int64_t> tokens = ids(2 * 16);
  const engine::Tensor logits = run.logits({{"tokens", tokens.data(), {2, 16}}});
  CHECK(logits.shape() == std::vector<int64_t>{2, 16, 256});
  double sum = 0;
  for (size_t r = 0; r < 2; ++r)
    for (size_t t = 0; t + 1 < 16; ++t) {
      const float* row = logits.data<float>() + (r * 16 + t) * 256;
      double all = 0;
      for (size_t v = 0; v < 256; ++v) all += std::exp(static_cast<double>(row[v]));
      sum += std::log(all) - static_cast<double>(row[tokens[r * 16 + t + 1]]);
    }
  CHECK(run.evaluate({{"tokens", tokens.data(), {2, 16}}}).loss == Approx(sum / 30).epsilon(1e-5));
  // More rows than a micro-batch, and not a multiple of it.
  const std::vector<int64_t> more = ids(5 * 16);
  CHECK(run.evaluate({{"tokens", more.data(), {5, 16}}}).tokens == 75);
}
