"""deepinfer synth and deepinfer inspect."""

import filecmp
import json
import unittest

from program import MODEL, ProgramTest, run


class SynthAndInspect(ProgramTest):
    def synth(self, name, *arguments):
        self.assert_runs(run("synth", "--preset", "nano", "--out", self.folder / name, *arguments))
        return self.folder / name

    def test_synthetic_checkpoint_passes_its_inspection(self):
        folder = self.synth("a")
        result = self.assert_runs(run("inspect", folder))
        for word in ["Configuration", "Tensors", "Memory"]:
            self.assertIn(word, result.out.decode())

    def test_same_flags_give_the_same_bytes(self):
        first, second, other = self.synth("a"), self.synth("b"), self.synth("c", "--seed", "7")
        names = sorted(file.name for file in first.iterdir())
        self.assertEqual(filecmp.cmpfiles(first, second, names, shallow=False), (names, [], []))
        self.assertNotEqual(filecmp.cmpfiles(first, other, names, shallow=False)[1], [])

    def test_dimensions_can_be_changed(self):
        folder = self.synth("a", "--layers", "5", "--experts", "8")
        config = json.loads((folder / "config.json").read_text())
        config = config.get("text_config", config)
        self.assertEqual((config["num_hidden_layers"], config["n_routed_experts"]), (5, 8))

    def test_released_size_is_laid_out_sparse(self):
        folder = self.folder / "flash"
        self.assert_runs(run("synth", "--preset", "flash", "--sparse", "--out", folder))
        used = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
        size = sum(file.stat().st_size for file in folder.iterdir())
        self.assertGreater(size, 510_286_023_000)
        self.assertLess(used, 100 << 20)
        report = json.dumps(json.loads(self.assert_runs(run("inspect", "--json", folder)).out))
        self.assertIn("96085", report)
        self.assertIn("510286023000", report)

    def test_bad_flags_are_refused(self):
        out = self.folder / "x"
        self.assert_refused(run("synth", "--preset", "huge", "--out", out), "huge")
        self.assert_refused(run("synth", "--preset", "nano", "--out", out, "--layers", "0"), "--layers")
        self.assert_refused(run("synth", "--preset", "nano", "--out", out, "--layers", "99999999999"))
        self.assert_refused(run("synth", "--preset", "nano", "--out", out, "--seed", "x"), "--seed")
        self.assertFalse(out.exists())

    def test_folder_with_content_is_not_overwritten(self):
        self.write("mine", b"content")
        self.assert_refused(run("synth", "--preset", "nano", "--out", self.folder), str(self.folder))
        self.assertEqual((self.folder / "mine").read_bytes(), b"content")
        self.assert_refused(run("synth", "--preset", "nano", "--out", self.folder / "mine"), "mine")

    def test_tiny_model_passes_its_inspection(self):
        result = self.assert_runs(run("inspect", "--verify", MODEL))
        self.assertNotIn("FAIL", result.out.decode())
        self.assertIsInstance(json.loads(self.assert_runs(run("inspect", MODEL, "--json")).out), dict)

    def test_bad_checkpoint_is_reported_and_refused(self):
        self.assert_refused(run("inspect", self.folder / "absent"), "absent")
        folder = self.synth("a")
        shard = next(folder.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-1])
        self.assert_refused(run("inspect", folder), shard.name)
        (folder / "config.json").write_text("{")
        self.assert_refused(run("inspect", folder), "config.json")


if __name__ == "__main__":
    unittest.main()
