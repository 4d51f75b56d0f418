"""Generates the stubs when the package is built, so that they fit the protobuf that is there; the rest is in
pyproject.toml."""

import os
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # pip runs this file without its folder
from stubs import generate  # noqa: E402


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        generate(self.build_lib)


setup(cmdclass={"build_py": BuildWithStubs})
