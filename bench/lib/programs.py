"""Where the programs of ../*.c are. Standard library only."""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILT = os.path.join(ROOT, "build", "bin")


def bench_program(name):
    """Of the build or bundle whose programs are measured, else of what is built here."""
    def beside(programs):
        return os.path.join(os.path.dirname(os.path.abspath(programs)), "bench", name)
    measured = beside(os.environ.get("SHUNT_BIN", BUILT))
    return measured if os.path.exists(measured) else beside(BUILT)
