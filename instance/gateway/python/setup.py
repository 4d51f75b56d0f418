"""Generates the stubs when the package is built, so that they fit the protobuf that is there; the rest is in
pyproject.toml."""

from setuptools import setup
from setuptools.command.build_py import build_py

from stubs import generate


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        generate(self.build_lib)


setup(cmdclass={"build_py": BuildWithStubs})
