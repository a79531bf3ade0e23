#!/usr/bin/env python3
"""The golden models on the device, in every precision (tests/golden/check.py)."""
import json
import os
import subprocess
import sys
import tempfile

import lab
import part


def main():
    args = part.options(__doc__).parse_args()
    env = dict(os.environ, SHUNT_RUN=os.path.join(part.BIN, "shunt-run"))
    with tempfile.NamedTemporaryFile() as f:
        r = subprocess.run([sys.executable, os.path.join(part.ROOT, "tests", "golden", "check.py"),
                            "--device", lab.DEVICE, "--json", f.name, *(args.only or [])],
                           env=env, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
        text = f.read()
    why = r.stderr.strip() or "no golden models: GOLDENS names their folder"
    got = json.loads(text) if text else {"checks": [{"model": "all", "check": "run", "ok": False,
                                                     "wrong": why}]}
    print(json.dumps({"settings": vars(args), "rows": [],
                      "checks": [{**c, "check": c["model"] + " " + c["check"]}
                                 for c in got["checks"]]}))
    return 1 if not text else r.returncode


if __name__ == "__main__":
    sys.exit(main())
