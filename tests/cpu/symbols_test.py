#!/usr/bin/env python3
"""Fails if an object file of an instruction set defines a function that the linker may merge with another file's.

    symbols_test.py NM OBJECT...

Inline functions outside the level's namespace (of the standard library, say) would be compiled with the level's flags,
and the copy that the linker keeps could run on a processor that lacks them.
"""

import re
import subprocess
import sys

MERGED = {"W", "w", "V", "v", "u"}


def leaks(nm, path, level):
    listing = subprocess.run([nm, "--defined-only", path], check=True, capture_output=True, text=True).stdout
    mangled = f"3cpu{len(level)}{level}"  # deepinfer::cpu::LEVEL, as it stands in every mangled name
    for line in listing.splitlines():
        kind, name = line.split(maxsplit=2)[1:]
        if kind in MERGED and mangled not in name and not is_substituted(name, level):
            yield name


def is_substituted(name, level):
    """Mangled names write a namespace once and refer back to it: NS0_4avx2 is cpu::avx2."""
    return re.search(rf"S\d*_{len(level)}{level}\d", name) is not None


def main():
    nm, objects = sys.argv[1], sys.argv[2:]
    found = checked = 0
    for path in objects:
        match = re.search(r"kernels_(\w+)\.", path)
        if match is None or match.group(1) == "portable":
            continue  # compiled as everything else is
        checked += 1
        for name in leaks(nm, path, match.group(1)):
            print(f"{path}: {name}")
            found += 1
    print(f"{checked} object files, {found} shared functions outside their level's namespace")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
