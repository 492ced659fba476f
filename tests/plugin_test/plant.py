#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plant.py INPUT OUTPUT FROM TO [FROM TO ...]: a copy of a source in which each FROM, which occurs once, is TO."""
import pathlib
import sys

text = pathlib.Path(sys.argv[1]).read_text()
for before, after in zip(sys.argv[3::2], sys.argv[4::2]):
    if text.count(before) != 1:
        sys.exit(f"{sys.argv[1]}: `{before}` occurs {text.count(before)} times: plant the fault elsewhere")
    text = text.replace(before, after)
pathlib.Path(sys.argv[2]).write_text(text)
