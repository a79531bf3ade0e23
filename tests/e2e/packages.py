"""For stories that need the packages of tests/requirements.txt: go on in the interpreter that has them."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.realpath(os.path.join(HERE, "..", "..", "build", "venv"))


def enter(story, else_skip=False):
    """story: its __file__. else_skip: where they cannot be installed the story says so and ends well."""
    if os.path.realpath(sys.prefix) == VENV:
        return
    made = subprocess.run([os.path.join(HERE, "..", "venv.sh")], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    if made.returncode:
        sys.stderr.write(made.stderr)
        if not else_skip:
            sys.exit(1)
        print("skip: the packages of tests/requirements.txt cannot be installed")
        sys.exit(0)
    python = os.path.join(VENV, "bin", "python")
    os.execv(python, [python, os.path.abspath(story), *sys.argv[1:]])
