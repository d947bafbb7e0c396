# SPDX-License-Identifier: Apache-2.0
"""Builds the extension modules and the program with CMake; pyproject.toml has the rest."""

import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


class CMakeBuild(build_ext):
    """One CMake build for all modules and the program, the one of `make build`; installed where setuptools wants it."""

    def run(self):
        package = Path(self.get_ext_fullpath("reprise._core")).parent.resolve()
        for command in (
            ["cmake", "--preset", "release", "-DREPRISE_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"],
            ["cmake", "--build", "--preset", "release"],
            ["cmake", "--install", "build/release", "--component", "python", "--prefix", package],
        ):
            subprocess.run(command, check=True, cwd=ROOT)


setup(ext_modules=[Extension("reprise._core", sources=[])], cmdclass={"build_ext": CMakeBuild})
