#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of the plugin arrow by pyarrow and datasets.

  python3 tools/goldens/arrow.py [OUT_DIR]      needs pyarrow, datasets; writes into tests/arrow/golden

texts.jsonl has the rows of each file texts-*, and *.jsonl those of the file of the same name: what `json.dumps` writes for
a row of pyarrow's. The names say the codec, the encoding and the type."""
import json
import pathlib
import shutil
import sys

import datasets
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2] / "tests/arrow/golden")

WORDS = ("the cat sat on the mat", "caf\u00e9 \u4e2d\u6587 \U0001f600", "line one\nline \"two\"\t\\", "", "1234567890 " * 9)
TEXTS = [f"{k}: {WORDS[k % len(WORDS)]}" if k % 7 else "" for k in range(40)]
TABLE = pa.table({"id": pa.array(range(40), pa.int64()), "text": pa.array(TEXTS), "score": pa.array([k / 8 for k in range(40)])})


def lines(name, rows):
    (OUT / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def parquet(name, table=TABLE, **how):
    how = {"row_group_size": 15, "compression": "none", "data_page_size": 300, **how}
    pq.write_table(table, OUT / f"{name}.parquet", **how)


def with_text(values):
    return TABLE.set_column(1, "text", values)


def codecs_and_encodings():
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        parquet(f"texts-{codec}", compression=codec, data_page_version="2.0" if codec in ("snappy", "zstd") else "1.0",
                write_page_checksum=codec == "gzip")
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        parquet(f"texts-{encoding.lower()}", use_dictionary=False,
                column_encoding={"text": encoding, "id": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT"})


CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
OF_TEXTS = ("DICTIONARY", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
OF_REALS = ("DICTIONARY", "PLAIN", "BYTE_STREAM_SPLIT")


def every_encoding():
    """A column for each kind of values, encoding and codec, named by them; the rows have the values of each kind."""
    values = {"text": (TEXTS[:8] + [None] + TEXTS[9:12], pa.string(), OF_TEXTS),
              "list": ([[t, None, t[::-1]][: k % 4] for k, t in enumerate(TEXTS[:12])], pa.list_(pa.string()), OF_TEXTS),
              "fixed": ([f"{k * 7919:08d}".encode() for k in range(12)], pa.binary(8), ("DICTIONARY", "PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT")),
              "int32": ([k * 1001 - 5000 for k in range(11)] + [None], pa.int32(), ("DICTIONARY", "PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")),
              "int64": ([(-3) ** (3 * k) for k in range(12)], pa.int64(), ("DICTIONARY", "PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")),
              "float": ([k / 8 for k in range(12)], pa.float32(), OF_REALS),
              "double": ([None] + [k / 7 for k in range(11)], pa.float64(), OF_REALS),
              "bool": ([k % 3 == 0 for k in range(12)], pa.bool_(), ("PLAIN", "RLE"))}
    columns, encodings, codecs, dictionaries = {}, {}, {}, []
    for kind, (rows, type, known) in values.items():
        for encoding in known:
            for codec in CODECS:
                name = f"{kind}-{encoding.lower()}-{codec}"
                path = name + ".list.element" if kind == "list" else name
                columns[name], codecs[path] = pa.array(rows, type), codec
                if encoding == "DICTIONARY":
                    dictionaries.append(path)
                else:
                    encodings[path] = encoding
    for version in ("1.0", "2.0"):
        file = OUT / f"encodings-{version[0]}.parquet"
        pq.write_table(pa.table(columns), file, compression=codecs, column_encoding=encodings, use_dictionary=dictionaries,
                       row_group_size=12, data_page_version=version, store_schema=False)
        group = pq.ParquetFile(file).metadata.row_group(0)
        for k in range(group.num_columns):  # pyarrow did as it was asked
            column = group.column(k)
            kind, encoding, codec = column.path_in_schema.split(".")[0].split("-")
            used = "RLE_DICTIONARY" if encoding == "dictionary" else encoding.upper()
            assert used in column.encodings and (codec == "none") == (column.compression == "UNCOMPRESSED"), column
    texts = {kind: [v.decode() if isinstance(v, bytes) else v for v in rows] for kind, (rows, *_) in values.items()}
    lines("encodings.jsonl", [{kind: rows[k] for kind, rows in texts.items()} for k in range(12)])


def types():
    text = TABLE["text"]
    parquet("texts-large_string", with_text(text.cast(pa.large_string())))
    parquet("texts-binary", with_text(text.cast(pa.binary())))
    parquet("texts-dictionary", with_text(text.combine_chunks().dictionary_encode()))
    parquet("texts-view", with_text(text.cast(pa.string_view())))
    parquet("nested", pa.table({"data": pa.array([{"n": k, "text": t} for k, t in enumerate(TEXTS)])}))
    nulls = pa.array([None if k in (17, 31) else t for k, t in enumerate(TEXTS)])
    parquet("nulls", with_text(nulls))


def ipc():
    for name, options in (("plain", None), ("zstd", "zstd"), ("lz4", "lz4")):
        with pa.ipc.new_stream(OUT / f"texts-stream-{name}.arrow", TABLE.schema, options=pa.ipc.IpcWriteOptions(compression=options)) as out:
            out.write_table(TABLE, max_chunksize=15)
    feather.write_feather(TABLE, OUT / "texts-feather.feather", compression="lz4", chunksize=15)
    for name, values in (("dictionary", TABLE["text"].combine_chunks().dictionary_encode()), ("view", TABLE["text"].cast(pa.string_view())),
                         ("large_string", TABLE["text"].cast(pa.large_string()))):
        table = with_text(values)
        with pa.ipc.new_file(OUT / f"texts-file-{name}.arrow", table.schema) as out:
            out.write_table(table, max_chunksize=15)


def rows():
    """Rows of chats and of pairs, nested and with nulls, as Parquet and as the folder of a data set."""
    tool = {"type": "function", "function": {"name": "add", "parameters": {"a": "int", "b": "int"}}}
    chats = [{"messages": [{"role": "user", "content": f"{k} + {k}? \"\n"}, {"role": "assistant", "content": f"{2 * k} caf\u00e9"}],
              "tools": [tool] if k % 2 else None, "weight": 0.5 * k + 0.25, "source": None} for k in range(12)]
    table = pa.Table.from_pylist(chats)
    parquet("chats", table, row_group_size=5)
    lines("chats.jsonl", table.to_pylist())
    pairs = [{"prompt": f"{k}?", "chosen": f"+{k}\n", "rejected": f"-{k}"} for k in range(12)]
    table = pa.Table.from_pylist(pairs)
    parquet("pairs", table, row_group_size=5)
    lines("pairs.jsonl", table.to_pylist())
    everything = pa.table({
        "bool": [True, None], "i8": pa.array([-1, 2], pa.int8()), "u64": pa.array([2**64 - 1, 0], pa.uint64()),
        "f32": pa.array([0.1, 2.0], pa.float32()), "f64": [1e300, -0.5], "f16": pa.array([0.5, 65504.0], pa.float16()), "text": ["a\u0001\u007f", "\u4e2d"],
        "list": [[1, None], []], "large": pa.array([[["x"]], None], pa.large_list(pa.list_(pa.string()))),
        "fixed": pa.array([[1.5, 2.5], [3.0, None]], pa.list_(pa.float64(), 2)), "struct": [{"a": {"b": None}}, None],
        "dictionary": pa.array(["p", "q"]).dictionary_encode(), "null": pa.nulls(2)})
    with pa.ipc.new_stream(OUT / "everything.arrow", everything.schema) as out:
        out.write_table(everything)
    lines("everything.jsonl", everything.to_pylist())
    pq.write_table(pa.table({"text": ["one", "two"], "score": [1.0, float("nan")]}), OUT / "nan.parquet")


def saved():
    datasets.disable_progress_bars()
    folder = OUT / "saved"
    datasets.Dataset(TABLE).save_to_disk(folder, num_shards=2)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    lines("texts.jsonl", TABLE.to_pylist())
    codecs_and_encodings()
    every_encoding()
    types()
    ipc()
    rows()
    saved()
    (OUT / "versions.txt").write_text(f"pyarrow {pa.__version__}, datasets {datasets.__version__}\n")


main()
