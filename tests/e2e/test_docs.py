#!/usr/bin/env python3
"""The documentation under /docs: the site that docs/site.sh builds, as shunt-api sends it.

Without it: a page could be missing, have code inside that a browser refuses, ask another host, or a URL could
read a file that is no page; and who has no site would not be told how to get one.

Usage: test_docs.py [-v]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser  # noqa: E402
from system import ROOT, Story, System  # noqa: E402

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "json": "application/json",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml", "png": "image/png",
         "py": "text/plain; charset=utf-8", "cu": "text/plain; charset=utf-8"}


class Docs(Story):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="shunt-docs.")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.site = os.path.join(cls.dir, "site")
        subprocess.run([os.path.join(ROOT, "docs", "site.sh"), cls.site], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        cls.s = System(DOCS_DIR=cls.site)
        cls.addClassCleanup(cls.s.stop)

    def test_each_page_is_sent_as_it_is_with_the_policy_of_the_console(self):
        policy = self.s.call("GET", "/console").headers["content-security-policy"]
        n = 0
        for folder, _, names in os.walk(self.site):
            for name in names:
                path = os.path.join(folder, name)
                at = "/docs/" + os.path.relpath(path, self.site)
                with open(path, "rb") as f:
                    want = f.read()
                r = self.s.call("GET", at)
                self.assertEqual((r.status, r.raw), (200, want), at)
                self.assertEqual(r.headers["content-type"], TYPES[name.rsplit(".", 1)[1]], at)
                self.assertEqual(r.headers["content-security-policy"], policy)
                self.assertEqual(r.headers["x-content-type-options"], "nosniff")
                n += 1
        self.assertGreater(n, 100)

    def test_it_begins_at_docs(self):
        r = self.s.call("GET", "/docs")
        self.assertEqual((r.status, r.headers["location"]), (302, "/docs/"))
        home = self.s.call("GET", "/docs/")
        self.assertEqual(home.raw, self.s.call("GET", "/docs/index.html").raw)
        old = self.s.call("GET", "/docs/", headers={"If-None-Match": home.headers["etag"]})
        self.assertEqual((old.status, old.raw), (304, b""))
        part = self.s.call("GET", "/docs/", headers={"Range": "bytes=0-14"})
        self.assertEqual((part.status, part.raw), (206, b"<!DOCTYPE html>"))

    def test_no_other_file_is_sent(self):
        secret = os.path.join(self.dir, "secret.html")
        with open(secret, "w") as f:
            f.write("secret")
        os.symlink(secret, os.path.join(self.site, "link.html"))
        os.symlink(self.dir, os.path.join(self.site, "linked"))
        with open(os.path.join(self.site, ".hidden.html"), "w") as f:
            f.write("hidden")
        os.mkfifo(os.path.join(self.site, "pipe.html"))
        for name in (".hidden.html", "link.html", "pipe.html"):
            self.addCleanup(os.unlink, os.path.join(self.site, name))
        self.addCleanup(os.unlink, os.path.join(self.site, "linked"))
        for at in ("../secret.html", "%2e%2e/secret.html", "docs/../../secret.html", "linked/secret.html",
                   "link.html", "pipe.html", ".hidden.html", "docs", "docs/tutorials", "nothing.html",
                   "index.html/more.html", "docs/index.txt", "a/b/c/d/e.html", "x%00.html", "%2fetc%2fpasswd"):
            r = self.s.call("GET", "/docs/" + at)
            self.assertIn(r.status, (400, 404), at)
            self.assertNotIn(b"secret\n", r.raw)
        self.assertEqual(self.s.call("POST", "/docs", {}).status, 405)

    def test_without_a_site_one_is_told_how_to_get_it(self):
        away = self.site + ".away"
        os.rename(self.site, away)
        self.addCleanup(os.rename, away, self.site)
        r = self.s.call("GET", "/docs/")
        self.assertEqual(r.status, 404)
        self.assertIn("make docs-site", r.json["detail"])
        other = System()  # of the build, which has one or has none
        self.addCleanup(other.stop)
        built = os.path.join(ROOT, "build", "docs-site", "index.html")
        r = other.call("GET", "/docs/")
        self.assertEqual(r.status, 200 if os.path.exists(built) else 404)
        if r.status == 404:
            self.assertIn("make docs-site", r.json["detail"])

    def test_a_browser_reads_and_searches_it(self):
        b = Browser()
        self.addCleanup(b.stop)
        home = "http://127.0.0.1:%d/docs/" % self.s.port
        for page in ("", "docs/tutorials/index.html", "docs/benchmarks.html", "bench/sim/traces/index.html"):
            b.go(home + page)
            b.until("document.querySelector('main h1')")
            styled = b.js("getComputedStyle(document.querySelector('nav')).position")
            self.assertEqual(styled, "sticky", page)
            for width in (360, 1280):
                b.size(width, 900)
                self.assertLessEqual(b.js("document.documentElement.scrollWidth"), width, page)
            lost = b.js("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
            self.assertEqual(lost, [], page)
        b.fill("#asked", "guarantee quota")
        b.until("document.querySelector('#found a')")
        found = json.loads(b.js("JSON.stringify([...document.querySelectorAll('#found a')].map(a => a.href))"))
        for url in found:
            path = urllib.parse.urlsplit(url).path
            self.assertEqual(self.s.call("GET", path).status, 200, url)
        b.fill("#asked", "xyzzyplugh")
        b.until("document.querySelector('#found').innerText == 'nothing'")
        strangers = [u for u in b.requests() if not u.startswith(home) and not u.startswith(("about:", "data:"))]
        self.assertEqual(strangers, [])
        self.assertEqual(b.complaints(), [])


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, warnings="ignore").result.wasSuccessful() else 1)
