// SPDX-License-Identifier: Apache-2.0
// The machine that reads data.pkl, instruction by instruction.
#include <catch2/catch.hpp>
#include <map>

#include "core/tensor/dtype.hpp"
#include "session/huggingface/torch_pickle.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using Catch::Contains;
using namespace std::string_literals;

namespace {

std::vector<PickledTensor> read(const std::string& body) {
  return read_torch_pickle("\x80\x02" + body, "data.pkl");
}

std::string refused(const std::string& body) {
  return test::refusal(Exit::checkpoint, [&] { read(body); });
}

std::string text(const std::string& of) {
  return "X" + std::string(1, static_cast<char>(of.size())) + "\0\0\0"s + of;
}

std::string number(int64_t value) {  // LONG1
  std::string out = "\x8a\x08";
  for (int k = 0; k < 8; ++k) out += static_cast<char>(value >> 8 * k);
  return out;
}

std::string numbers(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += number(value);
  return out + "t";
}

const std::string ordered = "ccollections\nOrderedDict\n)R";

std::string storage(int64_t elements, const std::string& type = "Float") {
  return "(" + text("storage") + "ctorch\n" + type + "Storage\n" + text("7") + text("cuda:0") + number(elements) + "tQ";
}

std::string tensor(const std::string& of, int64_t first, const std::string& shape, const std::string& strides,
                   const std::string& more = "") {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + of + number(first) + shape + strides + "\x89" + ordered + more + "tR";
}

std::string named(const std::string& value) {
  return "}" + text("w") + value + "s.";
}

}  // namespace

TEST_CASE("torch pickle: a tensor", "[torch]") {
  const auto tensors = read(named(tensor(storage(10, "Half"), 3, numbers({1, 2, 3}), numbers({99, 3, 1}), "N")));
  REQUIRE(tensors.size() == 1);
  CHECK(tensors[0].name == "w");
  CHECK(tensors[0].dtype == ENG_F16);
  CHECK(tensors[0].shape == std::vector<int64_t>{1, 2, 3});
  CHECK(tensors[0].storage == "7");
  CHECK(tensors[0].storage_elements == 10);
  CHECK((tensors[0].first == 3 && tensors[0].count == 6));
  const int64_t large = int64_t{1} << 40;
  const auto huge = read(named(tensor(storage(2 * large), large, numbers({large}), numbers({1}))));
  CHECK((huge[0].first == uint64_t(large) && huge[0].count == uint64_t(large)));
  for (const auto& [type, dtype] : std::map<std::string, int32_t>{{"Float", ENG_F32},
                                                                  {"Double", ENG_F64},
                                                                  {"BFloat16", ENG_BF16},
                                                                  {"Int", ENG_I32},
                                                                  {"Long", ENG_I64},
                                                                  {"Byte", ENG_U8},
                                                                  {"Char", ENG_U8},
                                                                  {"Bool", ENG_U8}})
    CHECK(read(named(tensor(storage(1, type), 0, ")", ")")))[0].dtype == dtype);
}

TEST_CASE("torch pickle: dictionaries, and what is ignored beside them", "[torch]") {
  CHECK(read("}.").empty());
  CHECK(read(ordered + ".").empty());
  const std::string one = tensor(storage(1), 0, ")", ")");
  CHECK(read("}(" + text("a") + one + text("b") + one + "u.").size() == 2);
  CHECK(read("}(u.").empty());
  CHECK(read(ordered + text("a") + one + "s}" + text("_metadata") + "](K\x01M\x02\x01J\xff\xff\xff\xff\x88N" + "eNasb.")
            .size() == 1);
  // Names that a dictionary within another one has are none of the outer one.
  CHECK_THAT(refused("}" + text("a") + "}" + text("b") + one + "ss."), Contains("tensor `a`: is a dictionary"));
}

TEST_CASE("torch pickle: what is not of tensors is refused with its byte", "[torch]") {
  const std::string w = text("w"), one = tensor(storage(1), 0, ")", ")");
  struct Case {
    std::string body;
    const char* why;
  };
  const Case cases[] = {
      {"", "byte 2: the pickle ends within an instruction"},
      {".", "ends with more or less than one object"},
      {"}}.", "ends with more or less than one object"},
      {"}(.", "ends with more or less than one object"},
      {"}.}", "more bytes follow"},
      {"N.", "holds None, not a dictionary"},
      {one + ".", "holds a tensor, not a dictionary"},
      {"}" + w + "Ns.", "tensor `w`: is None, not a tensor"},
      {"}" + w + "}s.", "tensor `w`: is a dictionary, not a tensor"},
      {"}" + w + one + "s" + w + one + "s.", "tensor `w` appears twice"},
      {"}NNs.", "None is the key of a dictionary"},
      {"N" + w + "Ns.", "None takes no keys"},
      {"}s.", "there is no value to use"},
      {"u.", "there is no mark"},
      {"(u.", "there is no dictionary for the items"},
      {"}((u.", "there is no dictionary for the items"},
      {"}(Nu.", "a key has no value"},
      {"a.", "there is no list for the items"},
      {"Na.", "there is no list for the items"},
      {"}Na.", "an item for a dictionary, not for a list"},
      {"(e.", "there is no list for the items"},
      {"}(Ne.", "an item for a dictionary, not for a list"},
      {"t.", "there is no mark"},
      {"N\x86.", "not enough values for a tuple"},
      {"N(\x85.", "not enough values for a tuple"},
      {"N(q\0."s, "there is no value to use"},
      {"q\0."s, "there is no value to use"},
      {"}q\x01.", "value 1 is kept after 0 values"},
      {"}r\0\0\0\x80."s, "value 2147483648 is kept after 0 values"},
      {"h\0."s, "value 0 of 0 kept ones is used"},
      {"}q\0j\1\0\0\0."s, "value 1 of 1 kept ones is used"},
      {"K", "ends within an instruction"},
      {"J\0\0\0"s, "ends within an instruction"},
      {"X\5\0\0\0abcd"s, "ends within an instruction"},
      {"\x8a\x09"s + "123456789", "a number of more than 64 bits"},
      {"cos", "ends within a name"},
      {"cos\nsystem", "ends within a name"},
      {"cos\nsystem\n" + w + "\x85R.", "byte 2: `os.system` is not allowed in a weights file"},
      {"cbuiltins\neval\n.", "would run code; nothing of it was run"},
      {"ctorch._utils\n_rebuild_tensor_v3\n.", "`torch._utils._rebuild_tensor_v3` is not allowed in a weights file"},
      {"ctorch\n_utils._rebuild_tensor_v2.__globals__\n.", "is not allowed in a weights file"},
      {"ctorch.storage\nUntypedStorage\n.", "elements of `torch.storage.UntypedStorage` are not read"},
      {"N)R.", "calls None"},
      {"ctorch\nFloatStorage\n)R.", "calls a storage type"},
      {"ccollections\nOrderedDict\nNR.", "calls a function"},
      {"ccollections\nOrderedDict\n(]tR.", "with other arguments"},
      {"ctorch._utils\n_rebuild_parameter\n)R.", "with other arguments"},
      {"ctorch._utils\n_rebuild_parameter\nN\x88}\x87R.", "with other arguments"},
      {"ctorch._utils\n_rebuild_tensor_v2\n)R.", "with other arguments"},
      {named(tensor("N", 0, ")", ")")), "with other arguments"},
      {named(tensor(storage(1), 0, "N", ")")), "with other arguments"},
      {named(tensor(storage(1), 0, ")", ")", "}")), "with other arguments"},
      {"NQ.", "another object than a storage"},
      {"(" + text("storage") + "NNNNtQ.", "another object than a storage"},
      {"(" + text("module") + "ctorch\nFloatStorage\n" + w + w + "K\1tQ.", "another object than a storage"},
      {"}}b.", "sets attributes of a dictionary"},
      {"N}b.", "sets attributes of None"},
      {ordered + "Nb.", "sets attributes of a dictionary"},
      {ordered + "}" + text("__class__") + "Nsb.", "sets attributes of a dictionary"},
      {ordered + "}" + text("_metadata") + "Ns" + text("x") + "Nsb.", "sets attributes of a dictionary"},
      {"\x80\x02.", "byte 2: instruction 0x80 is none of those"},
      {named(tensor(storage(1), 0, "(Nt", numbers({1}))), "its shape or strides are not numbers"},
      {named(tensor(storage(4), 0, numbers({2}), numbers({1, 1}))), "its strides are [1, 1]"},
      {named(tensor(storage(4), 0, numbers({4}), numbers({-1}))), "its strides are [-1]"},
      {named(tensor(storage(-1), 0, ")", ")")), "1 elements from 0 do not lie in its storage of -1"},
      {named(tensor(storage(INT64_MAX), INT64_MAX, ")", ")")), "do not lie in its storage"},
      {named(tensor(storage(INT64_MAX), INT64_MIN, ")", ")")), "do not lie in its storage"},
      {named(tensor(storage(4), 5, numbers({0}), numbers({1}))), "0 elements from 5 do not lie in its storage of 4"},
      {named(tensor(storage(4), 0, numbers({INT64_MAX, 3}), numbers({3, 1}))), "the shape is too large"},
  };
  for (const Case& c : cases) {
    INFO(c.body);
    CHECK_THAT(refused(c.body), Contains(c.why));
  }
  CHECK_THAT(test::refusal(Exit::checkpoint, [] { read_torch_pickle("\x80\x04}.", "p"); }),
             Contains("p: is not a pickle of protocol 2"));
  CHECK_THAT(test::refusal(Exit::checkpoint, [] { read_torch_pickle("", "p"); }), Contains("protocol 2"));
}

TEST_CASE("torch pickle: every other instruction is refused", "[torch]") {
  const std::string known = ".(N\x88\x89JKM\x8aX}])t\x85\x86\x87suaeqrhjcQRb";
  for (int op = 0; op < 256; ++op) {
    if (known.find(static_cast<char>(op)) != std::string::npos) continue;
    INFO(op);
    CHECK_THAT(refused("}" + std::string(1, static_cast<char>(op)) + std::string(300, '\n')),
               Contains("byte 3: instruction 0x") && Contains("was not run"));
  }
}

TEST_CASE("torch pickle: its memory is bounded", "[torch]") {
  CHECK_THAT(refused(std::string((1 << 20) + 1, 'N')), Contains("more than 1048576 values at a time"));
  CHECK_THAT(refused(std::string((1 << 20) + 1, '(')), Contains("more than 1048576 marks at a time"));
  // Deep nesting and circles: nothing follows them.
  std::string deep = ")";
  deep += std::string(1'000'000, '\x85');
  CHECK_THAT(refused(deep + "."), Contains("holds a tuple"));
  std::string lists = "}q"s + '\0';
  for (int k = 0; k < 100'000; ++k) lists += text("_") + "h"s + '\0' + "s";
  CHECK_THAT(refused(lists + "."), Contains("tensor `_`: is a dictionary"));
}
