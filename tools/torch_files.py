#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes files as torch.save writes them (PyTorch 1.6 and later), most with Python's standard library alone.

    python3 tools/torch_files.py          writes tests/models/hf_torch and tests/fuzz/corpus/torch again
    python3 tools/torch_files.py torch    writes those of tests/models/hf_torch that torch itself writes
                                          (pip install torch safetensors; written by torch 2.15)
    python3 tools/torch_files.py check    compares tests/models/hf_torch with tests/models/hf, as torch reads and writes
                                          both (pip install torch safetensors)

tests/models/hf_torch has the weights of the directories of the same names in tests/models/hf. The pickles are made by
Python's own pickler, which torch.save uses too, from objects that have the names of torch's; the archives have the
layout of torch's writer, or that of Python's zipfile.
"""
import collections
import io
import json
import pathlib
import pickle
import struct
import sys
import types
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDENS, TWINS = ROOT / "tests" / "models" / "hf", ROOT / "tests" / "models" / "hf_torch"
CORPUS = ROOT / "tests" / "fuzz" / "corpus" / "torch"
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
STORAGES = {"F64": "DoubleStorage", "F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage",
            "I64": "LongStorage", "I32": "IntStorage", "I16": "ShortStorage", "I8": "CharStorage",
            "U8": "ByteStorage", "BOOL": "BoolStorage"}


# ---- objects that pickle as torch's ----

class Storage:
    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, data


class Tensor:
    def __init__(self, storage, shape, first=0, strides=None):
        self.storage, self.shape, self.first = storage, tuple(shape), first
        self.strides = dense(self.shape) if strides is None else strides

    def __reduce_ex__(self, protocol):
        hooks = collections.OrderedDict()
        return FAKES["torch._utils"]._rebuild_tensor_v2, (self.storage, self.first, self.shape, self.strides, False, hooks)


class Parameter:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce_ex__(self, protocol):
        return FAKES["torch._utils"]._rebuild_parameter, (self.tensor, True, collections.OrderedDict())


def dense(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def fakes():
    """Modules in which pickle finds the names that it writes."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        function = types.FunctionType((lambda *arguments: None).__code__, {}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    return {"torch": torch, "torch._utils": utils}


FAKES = fakes()


class Pickler(pickle.Pickler):
    def __init__(self, out, protocol):
        super().__init__(out, protocol)
        self.storages = []

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        if thing not in self.storages:
            self.storages.append(thing)
        return ("storage", getattr(FAKES["torch"], STORAGES[thing.dtype]), str(self.storages.index(thing)), "cpu",
                len(thing.data) // SIZES[thing.dtype])


def pickled(thing, protocol=2):
    """(data.pkl, the content of each storage)"""
    out = io.BytesIO()
    pickler = Pickler(out, protocol)
    before = {name: sys.modules.get(name) for name in FAKES}
    sys.modules.update(FAKES)
    try:
        pickler.dump(thing)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return out.getvalue(), [storage.data for storage in pickler.storages]


# ---- archives ----

def local_header(name, begin):
    """With the padding that puts the data on a multiple of 64."""
    pad = -(begin + 30 + len(name) + 4) % 64
    return struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, 0x0808, 0, 0, 0, 0, 0, 0, len(name), 4 + pad) + name.encode() + \
        b"FB" + struct.pack("<H", pad) + b"Z" * pad


def listed(name, data, begin, wide=None):
    """The entry of the central directory. `wide`: how many bytes of its zip64 record there are, as in files of more than
    4 GiB."""
    numbers, extra = [len(data), len(data), begin], b""
    if wide:
        extra = b"xy\1\0-" + struct.pack("<HH", 1, wide) + struct.pack("<QQQ", *numbers)[:wide]
        numbers = [0xffffffff] * 3
    return struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, 0x0808, 0, 0, 0, zlib.crc32(data), *numbers[:2], len(name),
                       len(extra), 0, 0, 0, 0, numbers[2]) + name.encode() + extra


def archive(entries, zip64=True, within=None, wide=None):
    """As torch's writer lays it out: sizes behind the data, not before it, and a zip64 end. `within`: name and content of
    an entry that lies within the content of another one."""
    out, directory = bytearray(), b""
    for name, data in entries:
        directory += listed(name, data, len(out), wide)
        out += local_header(name, len(out)) + data
        if data:
            out += struct.pack("<IIII", 0x08074b50, zlib.crc32(data), len(data), len(data))
    if within:
        directory += listed(*within, out.index(within[0].encode()) - 30)
    begin, count = len(out), len(entries) + bool(within)
    out += directory
    if zip64:
        end = len(out)
        out += struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 0x031e, 0x002d, 0, 0, count, count, len(directory), begin)
        out += struct.pack("<IIQI", 0x07064b50, 0, end, 1)
    return bytes(out + struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, count, count, len(directory), begin, 0))


def entries_of(text, storages, folder="pytorch_model", new=True):
    out = [(f"{folder}/data.pkl", text)] + ([(f"{folder}/byteorder", b"little")] if new else [])
    out += [(f"{folder}/data/{key}", data) for key, data in enumerate(storages)]
    return out + [(f"{folder}/version", b"3\n")] + ([(f"{folder}/.data/serialization_id", b"0" * 40)] if new else [])


def zipped(entries, compression=zipfile.ZIP_STORED):
    """As Python's zipfile writes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            with file.open(info, "w", force_zip64=True) as one:
                one.write(data)
    return out.getvalue()


def named(tensors):
    """An OrderedDict with the `_metadata` that state_dict() adds."""
    out = collections.OrderedDict(tensors)
    out._metadata = collections.OrderedDict((name.rpartition(".")[0], {"version": 1}) for name in ["", *out])
    return out


# ---- weights ----

def read_safetensors(path):
    """Name -> (element type, shape, bytes)"""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + length:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def model_bin(tensors, change=lambda text: text, new=True):
    """The bytes of a pytorch_model.bin. A head that equals the embedding shares its storage. `change` alters the pickle."""
    storages = {name: Storage(dtype, data) for name, (dtype, _, data) in tensors.items()}
    for name in tensors:
        if name.endswith("embed_tokens.weight") and tensors.get("lm_head.weight") == tensors[name]:
            storages["lm_head.weight"] = storages[name]
    made = {name: Tensor(storages[name], shape) for name, (_, shape, _) in tensors.items()}
    text, content = pickled(named(made))
    return archive(entries_of(change(text), content, new=new))


def write_twin(source, target, new):
    target.mkdir(parents=True, exist_ok=True)
    index = source / "model.safetensors.index.json"
    files = sorted(source.glob("*.safetensors"))
    renamed = {file.name: file.name.replace("model", "pytorch_model").replace(".safetensors", ".bin") for file in files}
    for file in files:
        (target / renamed[file.name]).write_bytes(model_bin(read_safetensors(file), new=new))
    if index.exists():
        text = json.loads(index.read_text())
        text["weight_map"] = {name: renamed[file] for name, file in text["weight_map"].items()}
        (target / "pytorch_model.bin.index.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")


# ---- first inputs of the fuzzer: good-* are read, all others are refused ----

def corpus():
    shared = Storage("F32", struct.pack("<8f", *range(8)))
    tensors = {"a.weight": Tensor(shared, (2, 3)), "a.tied": Tensor(shared, (2, 3)), "a.bias": Tensor(shared, (2,), 6)}
    text, content = pickled(named(tensors))
    entries = entries_of(text, content, "archive")
    good = archive(entries)
    buffers = {"p": Parameter(Tensor(Storage("BF16", b"ab"), ())), "none": Tensor(Storage("F16", b""), (0, 3)),
               "mask": Tensor(Storage("BOOL", bytes(4)), (1, 2, 2)), "ids": Tensor(Storage("I64", bytes(16)), (2,))}
    one = lambda tensor: archive(entries_of(*pickled({"w": tensor})))
    bare = lambda body: archive(entries_of(b"\x80\x02" + body + b".", []))
    second = ("archive/data/1", bytes(40))
    around = ("archive/data/0", local_header(second[0], 0) + second[1])
    out = {
        "good-torch": good, "good-old-writer": archive(entries_of(text, content, new=False), zip64=False),
        "good-zipfile": zipped(entries), "good-zip64": archive(entries, wide=24), "zip64-short": archive(entries, wide=20),
        "good-buffers": archive(entries_of(*pickled(buffers))),
        "good-pickle": text,  # not an archive; the fuzzer reads it as a pickle too
        "system": bare(b"cposix\nsystem\nX\x04\0\0\0true\x85R"),
        "new-object": bare(b"ccollections\nOrderedDict\n)\x81"),
        "protocol-4": archive(entries_of(*pickled(named(tensors), 4))),
        "loop": bare(b"}q\0X\x01\0\0\0aq\x01h\0s"), "loop-of-tuples": bare(b"}q\0(h\0h\0tq\x01h\x01h\x01\x86q\x02"),
        "text-too-long": bare(b"X\xff\xff\xff\xffw"), "memo-too-far": bare(b"}r\xff\xff\xff\xff"),
        "long-number": bare(b"\x8a\xff" + b"\xff" * 255), "marks": bare(b"(" * 2000),
        "transposed": one(Tensor(shared, (2, 3), strides=(1, 2))), "expanded": one(Tensor(shared, (2, 3), strides=(0, 1))),
        "negative-strides": one(Tensor(shared, (2, 3), strides=(-3, -1))),
        "huge-strides": one(Tensor(shared, (2, 3), strides=(1 << 62, 1))),
        "huge-shape": one(Tensor(shared, (1 << 31, 1 << 31, 1 << 31))),
        "negative-shape": one(Tensor(shared, (-2, -3))), "far": one(Tensor(shared, (2, 3), 3)),
        "negative-first": one(Tensor(shared, (2,), -1)), "deep": one(Tensor(shared, (1,) * 70)),
        "short-storage": archive(entries_of(text, [content[0][:-4]])),
        "no-storage": archive(entries_of(text, [])), "int16": one(Tensor(Storage("I16", bytes(4)), (2,))),
        "big-endian": archive([(name, b"big" if name.endswith("byteorder") else data) for name, data in entries]),
        "compressed": zipped(entries, zipfile.ZIP_DEFLATED),
        "twice": archive(entries + entries[-1:]), "truncated": good[:-30], "half": good[:len(good) // 2],
        "longer": good + b"\0",
        "overlap": archive([(name, data) if name != around[0] else around for name, data in entries], within=second),
        "old-format": b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.",
    }
    return out


def check():
    import torch
    from safetensors.torch import load_file

    print(f"torch {torch.__version__}")
    for folder in sorted(TWINS.iterdir()):
        for file in sorted(folder.glob("*.bin")):
            name = file.name.replace("pytorch_model", "model").replace(".bin", ".safetensors")
            true, read = load_file(GOLDENS / folder.name / name), torch.load(file, weights_only=True)
            again = io.BytesIO()
            torch.save(read, again)
            same = true.keys() == read.keys() and all(torch.equal(true[key], read[key]) for key in true)
            print(f"{folder.name}/{file.name}: {len(true)} tensors {'equal' if same else 'DIFFER'}")
            if not same:
                sys.exit(1)


def write_by_torch():
    import torch
    from safetensors.torch import load_file

    for name in ("single", "bf16", "opt_bare"):
        (TWINS / name).mkdir(exist_ok=True)
        torch.save(load_file(GOLDENS / name / "model.safetensors"), TWINS / name / "pytorch_model.bin")


def main():
    if sys.argv[1:] == ["torch"]:
        return write_by_torch()
    if sys.argv[1:] == ["check"]:
        return check()
    for name, new in (("opt", False), ("sharded", True), ("tied_head", True), ("f16", True)):
        write_twin(GOLDENS / name, TWINS / name, new)
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, data in corpus().items():
        (CORPUS / name).write_bytes(data)


if __name__ == "__main__":
    main()
