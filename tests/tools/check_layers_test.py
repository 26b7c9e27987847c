"""Runs tools/check_layers on small made-up trees: each rule must find its offence and nothing else."""

import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_layers"
LOADER = importlib.machinery.SourceFileLoader("check_layers", str(SCRIPT))
check_layers = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_layers", LOADER))
LOADER.exec_module(check_layers)

# A tree without offences, which each test changes in one place.
GOOD = {
    "include/deepinfer/error.h": "#pragma once\n#include <string>\n",
    "include/deepinfer/engine.h": '#pragma once\n#include "deepinfer/error.h"\n',
    "src/base/CMakeLists.txt": "deepinfer_room(base SOURCES error.cc)\n",
    "src/base/README.md": "# base\n",
    "src/base/error.h": '#pragma once\n#include "deepinfer/error.h"\n',
    "src/base/error.cc": '#include "base/error.h"\n#include <spdlog/spdlog.h>\n',
    "src/tensor/CMakeLists.txt": "deepinfer_room(tensor SOURCES tensor.cc DEPENDS base)\n",
    "src/tensor/README.md": "# tensor\n",
    "src/tensor/tensor.cc": '#include "base/error.h"\n',
    "src/ops/CMakeLists.txt": "deepinfer_room(ops SOURCES a.cc DEPENDS tensor LIBRARIES m)\n",
    "src/ops/README.md": "# ops\n",
    "src/ops/plan_row.h": "#pragma once\n",
    "src/ops/rows.h": '#pragma once\n#include "ops/plan_row.h"\n#include "tensor/tensor.h"\n',
    "src/ops/a.cc": '#include "ops/rows.h"\n#include "base/error.h"\n',
    "src/scheduler/CMakeLists.txt": "deepinfer_room(scheduler SOURCES s.cc DEPENDS ops)\n",
    "src/scheduler/README.md": "# scheduler\n",
    "src/scheduler/s.cc": '#include "ops/plan_row.h"\n',
    "apps/main.cc": '#include "deepinfer/engine.h"\n#include "base/error.h"\n#include <CLI/CLI.hpp>\n',
    "tests/ops/a_test.cc": '#include "ops/rows.h"\n#include "temporary_directory.h"\n',
    "examples/e.cpp": "#include <deepinfer/engine.h>\n",
}


def findings(changes):
    """What the checker reports for GOOD with some files changed or, where the text is None, removed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **changes}.items():
            if text is not None:
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return check_layers.Checker(folder).run()


class CheckLayers(unittest.TestCase):
    def expect(self, changes, *parts):
        found = findings(changes)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_accepts_a_good_tree(self):
        self.assertEqual(findings({}), [])

    def test_refuses_an_include_of_a_room_above(self):
        self.expect({"src/tensor/tensor.cc": '// why\n#include "ops/rows.h"\n'}, "src/tensor/tensor.cc:2", "may not see room ops")

    def test_refuses_an_include_that_cmake_does_not_declare(self):
        self.expect({"src/scheduler/CMakeLists.txt": "deepinfer_room(scheduler SOURCES s.cc DEPENDS base)\n"},
                    "src/scheduler/s.cc:1", "DEPENDS")

    def test_accepts_an_include_of_an_indirect_dependency(self):
        self.assertEqual(findings({"src/ops/a.cc": '#include "base/error.h"\n'}), [])

    def test_refuses_a_link_to_a_room_above(self):
        self.expect({"src/base/CMakeLists.txt": "deepinfer_room(base SOURCES error.cc DEPENDS tensor)\n"},
                    "src/base/CMakeLists.txt", "links tensor")
        self.expect({"src/base/CMakeLists.txt": "target_link_libraries(deepinfer_base PUBLIC deepinfer_ops)\n"}, "links ops")

    def test_ignores_commented_cmake(self):
        self.assertEqual(findings({"src/base/CMakeLists.txt": "deepinfer_room(base SOURCES error.cc)  # not DEPENDS ops\n"}), [])

    def test_refuses_tensors_in_the_scheduler(self):
        self.expect({"src/scheduler/s.cc": '#include "ops/rows.h"\n'}, "may include only ops/plan_row.h")

    def test_refuses_internal_headers_in_the_public_api(self):
        self.expect({"include/deepinfer/error.h": '#pragma once\n#include "base/error.h"\n'}, "public headers")
        self.expect({"include/deepinfer/error.h": "#pragma once\n#include <fmt/core.h>\n"}, "public headers")

    def test_refuses_the_engine_header_below_the_engine(self):
        self.expect({"src/ops/a.cc": '#include "deepinfer/engine.h"\n'}, "room ops", "deepinfer/engine.h")

    def test_refuses_internals_in_apps_and_examples(self):
        self.expect({"apps/main.cc": '#include "ops/rows.h"\n'}, "may not see room ops")
        self.expect({"examples/e.cc": '#include "base/error.h"\n'}, "public API only")

    def test_refuses_heavy_headers_in_headers_and_other_rooms(self):
        self.expect({"src/base/error.h": "#pragma once\n#include <nlohmann/json.hpp>\n"}, "slow to compile")
        self.expect({"src/ops/a.cc": "#include <CLI/CLI.hpp>\n"}, "apps only")
        self.assertEqual(findings({"src/base/error.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"}), [])

    def test_refuses_long_files(self):
        self.expect({"src/ops/a.cc": "int x;\n" * 601}, "601 lines")

    def test_refuses_a_room_without_readme_and_unknown_rooms(self):
        self.expect({"src/ops/README.md": None}, "src/ops: has no README.md")
        self.expect({"src/attic/old.cc": "int x;\n"}, "src/attic: unknown room")

    def test_refuses_headers_without_pragma_once(self):
        self.expect({"src/ops/plan_row.h": "// #pragma once\n"}, "without #pragma once")

    def test_refuses_paths_of_one_machine(self):
        for path in ("/wo" + "rk/x", "/ho" + "me/me", "/ro" + "ot/.cache", "../" + "shared"):
            self.expect({"src/ops/README.md": f"See {path}/y.\n"}, "src/ops/README.md:1", "outside the repository")
        self.assertEqual(findings({"src/ops/README.md": "src/wo" + "rk/x, https://example.com/ro" + "ot/x\n"}), [])

    def test_refuses_too_many_bytes(self):
        limit = check_layers.MAX_TRACKED_BYTES
        check_layers.MAX_TRACKED_BYTES = 100
        try:
            self.expect({}, "repository", "at most 100")
        finally:
            check_layers.MAX_TRACKED_BYTES = limit


if __name__ == "__main__":
    unittest.main()
