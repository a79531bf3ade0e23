"""The served description as a judge: is this reply one that it lists? Standard library only.

    spec = Spec(json.loads(text of /openapi.json))
    spec.check("GET", "/api/v1/jobs/7?tenant=a", 200, headers, body)     raises Undescribed, says why

Stricter than JSON Schema in one thing: a reply's object may have no field that the description of it
does not name. system.py checks every reply of every story; `spec.py DOCUMENT <LINES` checks lines of
"METHOD PATH STATUS MEDIA-TYPE" from a script.
"""
import json
import re
import sys

SAME = {"HEAD": "GET"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float),
         "integer": int, "null": type(None)}


class Undescribed(AssertionError):
    pass


def is_type(value, name):
    if isinstance(value, bool) and name in ("number", "integer"):
        return False
    return isinstance(value, TYPES[name]) or \
        (name == "integer" and isinstance(value, float) and value.is_integer())


class Spec:
    def __init__(self, doc):
        self.doc = doc
        # A fixed segment goes before a parameter, as in the server's table.
        self.routes = sorted(doc["paths"], key=lambda p: [s.startswith("{") for s in p.split("/")])
        self.patterns = [(p, re.compile(re.sub(r"\{[^}]*\}", "[^/]+", re.escape(p).replace(
            r"\{", "{").replace(r"\}", "}")) + r"\Z")) for p in self.routes]

    def operations(self):
        """(method, path, operation)"""
        return [(m.upper(), p, op) for p, item in self.doc["paths"].items() for m, op in item.items()]

    def resolve(self, node):
        while isinstance(node, dict) and "$ref" in node:
            at = self.doc
            for step in node["$ref"].split("/")[1:]:
                at = at[step]
            node = at
        return node

    def find(self, method, path):
        """The operation; "METHOD" if the path has others only, None if there is no such path."""
        path = path.partition("?")[0]
        for route, pattern in self.patterns:
            if pattern.match(path):
                item = self.doc["paths"][route]
                return item.get(SAME.get(method, method).lower(), "METHOD")
        return None

    # ------------------------------------------------------------ values
    def faults(self, value, schema, at="$", closed=False):
        """What is wrong with the value, as sentences. closed: no field that is not described."""
        schema = self.resolve(schema)
        out = []
        if closed and "anyOf" not in schema and "allOf" not in schema and isinstance(value, dict) and \
                "properties" in schema and "additionalProperties" not in schema:
            out += ["%s.%s is not described" % (at, k) for k in value if k not in schema["properties"]]
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(is_type(value, k) for k in kinds):
            return ["%s is %r, not of type %s" % (at, value, "/".join(kinds))]
        if "enum" in schema and value not in schema["enum"]:
            out.append("%s is %r, not one of %s" % (at, value, schema["enum"]))
        if "const" in schema and value != schema["const"]:
            out.append("%s is %r, not %r" % (at, value, schema["const"]))
        if isinstance(value, str):
            out += self.faults_of_text(value, schema, at)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                out.append("%s is %r, out of its range" % (at, value))
        elif isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                out.append("%s has %d elements" % (at, len(value)))
            for i, v in enumerate(value if "items" in schema else []):
                out += self.faults(v, schema["items"], "%s[%d]" % (at, i), closed)
        elif isinstance(value, dict):
            out += self.faults_of_object(value, schema, at, closed)
        for inner in schema.get("allOf", []):
            out += self.faults(value, inner, at)
        for how, most in (("anyOf", 99), ("oneOf", 1)):
            tried = [self.faults(value, s, at, closed) for s in schema.get(how, [])]
            if tried and not 1 <= sum(not t for t in tried) <= most:
                out.append("%s fits %d of %s: %s" % (at, sum(not t for t in tried), how, tried))
        return out

    @staticmethod
    def faults_of_text(value, schema, at):
        out = []
        if "pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            out.append("%s is %r, not of the pattern %s" % (at, value, schema["pattern"]))
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            out.append("%s has %d characters" % (at, len(value)))
        if schema.get("format") == "date-time" and \
                not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z", value):
            out.append("%s is %r, no time" % (at, value))
        return out

    def faults_of_object(self, value, schema, at, closed):
        out = ["%s.%s is missing" % (at, k) for k in schema.get("required", []) if k not in value]
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for k, v in value.items():
            if k in known:
                out += self.faults(v, known[k], at + "." + k, closed)
            elif more is False:
                out.append("%s.%s is not allowed" % (at, k))
            elif isinstance(more, dict):
                out += self.faults(v, more, at + "." + k, closed)
        return out

    # ------------------------------------------------------------ replies
    def check(self, method, path, status, headers=None, body=None):
        """headers: lower-case names, or only {"content-type": ...}; body: bytes, None = not looked at."""
        op, what = self.find(method, path), "%s %s -> %d" % (method, path, status)
        media = ((headers or {}).get("content-type") or "").partition(";")[0].strip()
        if not isinstance(op, dict):
            want = {404, 400, 414} if op is None else {405, 400} | ({204} if method == "OPTIONS" else set())
            if status not in want:
                raise Undescribed("%s: there is no such operation" % what)
            return
        if str(status) not in op["responses"]:
            raise Undescribed("%s: described are %s" % (what, ", ".join(sorted(op["responses"]))))
        response = self.resolve(op["responses"][str(status)])
        content = response.get("content", {})
        if media not in content and (content or media):
            raise Undescribed("%s: media type \"%s\", described: %s" % (what, media, list(content)))
        faults = self.faults_of_headers(response, headers) if headers and len(headers) > 1 else []
        schema = content.get(media, {}).get("schema")
        if schema and body is not None and method != "HEAD":
            try:
                faults += self.faults(json.loads(body) if "json" in media else body.decode(), schema,
                                      closed=True)
            except ValueError as e:
                faults.append("the body is no JSON: %s" % e)
        if faults:
            raise Undescribed("%s: %s" % (what, "; ".join(faults[:8])))

    def faults_of_headers(self, response, headers):
        out = []
        for name, header in response.get("headers", {}).items():
            header, value = self.resolve(header), headers.get(name.lower())
            if value is None:
                out += ["there is no header %s" % name] if header.get("required") else []
                continue
            schema = self.resolve(header["schema"])
            if schema.get("type") == "integer" and value.isdigit():
                value = int(value)
            out += self.faults(value, schema, name)
        return out

    # ------------------------------------------------------------ requests
    def example(self, op):
        """A JSON body that the operation takes, or None."""
        media = op.get("requestBody", {}).get("content", {}).get("application/json")
        if not media:
            return None
        schema = self.resolve(media["schema"])
        return schema["examples"][0] if "examples" in schema else {}


def main():
    with open(sys.argv[1]) as f:
        spec = Spec(json.load(f))
    bad = n = 0
    for line in sys.stdin:
        method, path, status, media = (line.rstrip("\n").split(" ") + [""])[:4]
        n += 1
        try:
            spec.check(method, path, int(status), {"content-type": media})
        except Undescribed as e:
            print(e)
            bad += 1
    print("%d replies, %d of them not described" % (n, bad))
    return 1 if bad or not n else 0


if __name__ == "__main__":
    sys.exit(main())
