"""Makes the client without `await` from the one with it, then builds as pyproject.toml says."""
import os
import sys

from setuptools import setup

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sync  # noqa: E402

sync.main()
setup()
