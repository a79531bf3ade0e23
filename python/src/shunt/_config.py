"""Which server, key and tenant: as the command `shunt` finds them (docs/cli.md, "Where a value comes from")."""
from __future__ import annotations

import json
import os
import urllib.parse
from dataclasses import dataclass, field

from ._errors import ConfigError

DEFAULT_SERVER = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Settings:
    server: str
    key: str = field(repr=False)
    tenant: str | None
    ca_file: str | None


def _read_config(path: str) -> dict[str, dict[str, str]]:
    """By section, "" being what stands before the first, the values by their names."""
    sections: dict[str, dict[str, str]] = {"": {}}
    now = sections[""]
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
    except FileNotFoundError:
        return sections
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    for line in map(str.strip, lines):
        if line.startswith("[") and "]" in line:
            now = sections.setdefault(line[1:line.index("]")].strip(), {})
        elif line and not line.startswith("#") and "=" in line:
            name, _, value = line.partition("=")
            now[name.strip()] = value.strip()
    return sections


class _Places:
    """The places of a value, the first of them first; each has names as options are spelt."""

    def __init__(self, given: dict[str, str | None], profile: str | None) -> None:
        env = {k[6:].lower().replace("_", "-"): v for k, v in os.environ.items() if k.startswith("SHUNT_") and v}
        path = env.get("config") or os.path.expanduser("~/.config/shunt/config")
        sections = _read_config(path)

        def section(name: str | None) -> dict[str, str]:
            if name and name not in sections:
                raise ConfigError(f"there is no profile {name} in {path}")
            return sections[name] if name else {}

        used = env.get("profile") or sections[""].get("profile")
        self.all = [{k: v for k, v in given.items() if v}, section(profile), env,
                    section(used if profile is None else None), sections[""]]

    def find(self, *names: str) -> tuple[str, str] | None:
        """(name, value) of the first place that has one of the names; within one place the first name wins."""
        return next(((n, p[n]) for p in self.all for n in names if p.get(n)), None)


def _in_state(folder: str) -> str | None:
    """The URL of the system that `shunt up` runs with this folder, if one does."""
    run = os.path.join(folder, "run")
    if os.name == "nt":  # where nothing runs there, and the question would be a signal
        return None
    try:
        with open(os.path.join(run, "supervisor.pid"), encoding="ascii") as f:
            os.kill(int(f.read().split()[0]), 0)
        with open(os.path.join(run, "system.json"), encoding="utf-8") as f:
            url = json.load(f).get("server")
    except PermissionError:  # another user's process, so there is one
        return None
    except (OSError, ValueError, IndexError):
        return None
    return url if isinstance(url, str) else None


def _read_key(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError as e:
        raise ConfigError(f"cannot read the key in {path}: {e.strerror}") from e


def _server(url: str) -> str:
    """With its scheme in lower case. A server that is no URL of HTTP would only be found out by retries."""
    try:
        at = urllib.parse.urlsplit(url)
        is_good = bool(at.scheme in ("http", "https") and at.hostname and (at.port is None or at.port))
    except ValueError:
        is_good = False
    if not is_good or at.query or at.fragment or at.username is not None:
        raise ConfigError(f"{url!r} is no server: say http://HOST:PORT or https://HOST:PORT")
    return urllib.parse.urlunsplit((at.scheme, at.netloc, at.path.rstrip("/"), "", ""))


def _secret(key: str) -> str:
    """As a header takes it: what a file or a variable has around it is no part of it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("the API key has characters that no key has")
    return key


def find_settings(server: str | None = None, key: str | None = None, key_file: str | None = None,
                  tenant: str | None = None, ca_file: str | None = None, state_dir: str | None = None,
                  profile: str | None = None) -> Settings:
    """What is given wins over a profile that is named, that over the environment, that over the profile in use."""
    places = _Places({"server": server, "key": key, "key-file": key_file, "tenant": tenant, "ca-file": ca_file,
                      "state-dir": state_dir}, profile)

    where = places.find("server", "state-dir")
    folder = where[1] if where and where[0] == "state-dir" else None
    if where and where[0] == "server":
        url = where[1]
    elif folder:
        url = _in_state(folder) or ""
        if not url:
            raise ConfigError(f"no system runs in {folder}: start it with `shunt up --state-dir {folder}`")
    else:
        url = _in_state(".shunt") or DEFAULT_SERVER
    secret = places.find("key", "key-file")
    if secret:
        found = secret[1] if secret[0] == "key" else _read_key(secret[1])
    else:
        admin = os.path.join(folder or ".shunt", "admin.key")
        if not os.path.exists(admin):
            raise ConfigError("there is no API key: give key=, or set SHUNT_KEY or SHUNT_KEY_FILE")
        found = _read_key(admin)
    named, ca = places.find("tenant"), places.find("ca-file")
    return Settings(_server(url), _secret(found), named[1] if named else None, ca[1] if ca else None)
