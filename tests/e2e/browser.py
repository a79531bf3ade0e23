"""A headless Chromium for stories, spoken to over its pipe. Standard library only.

    with Browser() as b:
        b.go("http://127.0.0.1:8000/console")
        b.fill("input[type=password]", key)
        b.click("button", "Sign in")
        b.until("document.querySelector('h1').textContent == 'Jobs'")
        assert not b.complaints()

What a page logs as an error, throws, or cannot load is kept.
"""
import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

LIMIT_S = int(os.environ.get("SHUNT_BROWSER_LIMIT_S", "60"))
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9}

def program():
    """Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self, width=1280, height=900):
        self.dir = tempfile.mkdtemp(prefix="shunt-browser-")
        self.events, self.replies, self.number = [], queue.Queue(), 0
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        env = {**os.environ, "HOME": self.dir, "XDG_CONFIG_HOME": self.dir, "XDG_CACHE_HOME": self.dir}

        def pipes():
            """3 and 4 are what it reads and writes."""
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--mute-audio",
             "--disable-background-networking", "--hide-scrollbars", "--user-data-dir=" + self.dir,
             "--window-size=%d,%d" % (width, height), "about:blank"],
            preexec_fn=pipes, close_fds=False, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        threading.Thread(target=self.read, daemon=True).start()
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ------------------------------------------------------------ the protocol
    def read(self):
        rest = b""
        while piece := os.read(self.back, 1 << 20):
            rest += piece
            *whole, rest = rest.split(b"\0")
            for message in map(json.loads, whole):
                if "id" in message:
                    self.replies.put(message)
                else:
                    self.events.append(message)

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.replies.get(timeout=LIMIT_S)
            if reply["id"] == self.number:
                break
        if "error" in reply:
            raise AssertionError("%s: %s" % (method, reply["error"]))
        return reply["result"]

    def js(self, expression):
        """Its value; of a promise, what becomes of it."""
        r = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True,
                      userGesture=True)
        if "exceptionDetails" in r:
            raise AssertionError("%s: %s" % (expression[:200], r["exceptionDetails"]))
        return r["result"].get("value")

    # ------------------------------------------------------------ what a user does
    def size(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)

    def scheme(self, name):
        """light or dark"""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def go(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState == 'complete'")

    def until(self, expression, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        while True:
            got = self.js("!!(%s)" % expression)
            if got:
                return got
            if time.monotonic() > end:
                raise AssertionError("not within %d s: %s\n%s" % (limit_s, expression, self.text()[:3000]))
            time.sleep(0.05)

    def find(self, selector, text=None):
        """JavaScript for the first visible element, with exactly this text if one is given."""
        return "[...document.querySelectorAll(%s)].find(e => e.getClientRects().length && (%s))" % (
            json.dumps(selector), "e.textContent.trim() === %s" % json.dumps(text) if text else "true")

    def click(self, selector, text=None):
        self.until("!!(%s)" % self.find(selector, text))
        self.js("(%s).click()" % self.find(selector, text))

    def fill(self, selector, value):
        """As if typed: the element hears of it."""
        self.until("!!(%s)" % self.find(selector))
        self.js("(e => { e.focus(); e.value = %s; e.dispatchEvent(new Event('input', {bubbles: true}));"
                " e.dispatchEvent(new Event('change', {bubbles: true})); })(%s)" % (
                    json.dumps(value), self.find(selector)))

    def press(self, key):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    def text(self):
        return self.js("document.body.innerText")

    def files(self, selector, *paths):
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=list(paths))

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    # ------------------------------------------------------------ what went wrong
    def complaints(self):
        """What the page logged as an error or a warning, threw, or could not load."""
        out = []
        for e in list(self.events):
            p = e["params"]
            if e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
            elif e["method"] == "Runtime.exceptionThrown":
                d = p["exceptionDetails"]
                out.append(d.get("exception", {}).get("description", d["text"]))
            elif e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append("%s %s" % (p["entry"]["text"], p["entry"].get("url", "")))
        return out

    def requests(self):
        """URLs that were asked for."""
        return [e["params"]["request"]["url"] for e in list(self.events)
                if e["method"] == "Network.requestWillBeSent"]

    def start_trace(self):
        self.send("Tracing.start", transferMode="ReportEvents", traceConfig={
            "includedCategories": ["toplevel", "__metadata", "disabled-by-default-thread_time"]})

    def longest_task_ms(self):
        """Since start_trace(): the most time on a core that a task of the page's main thread took. What it
        waited for one, on a busy machine, is not the page's."""
        before = len(self.events)
        self.send("Tracing.end")
        end = time.monotonic() + LIMIT_S
        while not any(e["method"] == "Tracing.tracingComplete" for e in self.events[before:]):
            assert time.monotonic() < end, "the trace does not come"
            time.sleep(0.05)
        rows = [row for e in self.events[before:] if e["method"] == "Tracing.dataCollected"
                for row in e["params"]["value"]]
        main = {(r["pid"], r["tid"]) for r in rows
                if r["name"] == "thread_name" and r["args"]["name"] == "CrRendererMain"}
        took = [r["tdur"] / 1000 for r in rows if (r["pid"], r["tid"]) in main and "tdur" in r]
        assert took, "the trace has no tasks"
        return round(max(took))
