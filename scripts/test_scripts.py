"""Scripts that documents start by their path."""

import os
import pathlib
import unittest

FOLDERS = [pathlib.Path(__file__).resolve().parent, pathlib.Path(__file__).resolve().parents[1] / "kernel"]


class Scripts(unittest.TestCase):
    def test_what_names_an_interpreter_can_be_executed(self):
        scripts = [path for folder in FOLDERS for path in folder.rglob("*")
                   if path.is_file() and path.suffix in ("", ".py", ".sh")
                   and path.read_bytes().startswith(b"#!")]
        self.assertGreater(len(scripts), 40)
        self.assertEqual([path for path in scripts if not os.access(path, os.X_OK)], [])
