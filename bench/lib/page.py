"""A page of docs/: a text in which each @NAME@ is replaced by what was measured."""


def write(text_path, page_path, parts):
    """parts: {NAME: text}."""
    with open(text_path) as f:
        text = f.read()
    for name, part in parts.items():
        text = text.replace("@%s@" % name, part)
    with open(page_path, "w") as f:
        f.write(text)
