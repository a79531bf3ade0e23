"""Writes src/shunt/_sync/ from src/shunt/_async/: the same code without `await`.

It is part of every build (setup.py) and not kept in git. To use the package from a checkout without
installing it: python3 sync.py, then PYTHONPATH=src.
"""
import os
import re

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "src", "shunt")
HEAD = "# Made by sync.py from _async/: change that one.\n"
WORDS = [(r"\basyncio\.to_thread\(([\w.]+)(, )?", r"\1("),
         (r"\basync (def|with|for)\b", r"\1"), (r"\bawait ", ""), (r"\bAsync([A-Z]\w*)", r"\1"),
         (r"\b__aenter__\b", "__enter__"), (r"\b__aexit__\b", "__exit__"), (r"\baclose\b", "close"),
         (r"\baread\b", "read"), (r"\baiter_", "iter_"), (r"\basyncio\b", "time")]


def without_await(text):
    for old, new in WORDS:
        text = re.sub(old, new, text)
    return re.sub(r"^import time\n(?=(.*\n)*?import time\n)", "", text, count=1, flags=re.M)  # it was there


def main():
    os.makedirs(os.path.join(HERE, "_sync"), exist_ok=True)
    for name in os.listdir(os.path.join(HERE, "_async")):
        if name.endswith(".py"):
            with open(os.path.join(HERE, "_async", name), encoding="utf-8") as f:
                text = without_await(f.read())
            with open(os.path.join(HERE, "_sync", name), "w", encoding="utf-8") as f:
                f.write(HEAD + text)


if __name__ == "__main__":
    main()
