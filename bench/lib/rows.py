"""Rows: what every part and every peer prints, so that one report can put them side by side.

    {"what": "ready", "by": "shunt", "case": {"model": ..., "precision": ..., "batch": ...},
     "unit": "ms", "value": 2.31, "p99": 2.40, "samples": [...], ...}

Rows with the same what and case are compared by their value: of "ms" the smaller is better, of
anything else (samples/s) the larger. What could not be measured has "error" instead of a value;
what this machine does not offer, "skipped".
"""
import random
import statistics


def p99(samples):
    """The least of them that 99 of 100 do not exceed."""
    return sorted(samples)[-(-len(samples) * 99 // 100) - 1]


def row(what, by, case, samples, unit="ms", value=None, **more):
    """value: the median of the samples unless it is given. Times in ms keep four digits. p99: the
    slow end, of a throughput too."""
    if not samples:
        raise ValueError("%s: there are no samples" % what)
    tail = p99(samples) if unit == "ms" else -p99([-s for s in samples])
    return {"what": what, "by": by, "case": case, "unit": unit,
            "value": round(statistics.median(samples) if value is None else value, 4),
            "median": round(statistics.median(samples), 4), "p99": round(tail, 4),
            "samples": [round(s, 4) for s in samples], **more}


def case_text(case):
    """Names as they are, numbers with what they count."""
    return " ".join(v if isinstance(v, str) else
                    (k if v else "not " + k) if isinstance(v, bool) else
                    "%s %g" % (k, v) for k, v in case.items())


def failed(what, by, case, why):
    text = "%s: %s" % (type(why).__name__, why) if isinstance(why, Exception) else str(why)
    if len(text) > 600:
        text = text[:300] + " ... " + text[-300:]
    return {"what": what, "by": by, "case": case, "error": text.strip()}


def skipped(what, by, case, why):
    return {"what": what, "by": by, "case": case, "skipped": str(why).strip()}


def arrivals(rate, seconds, seed=1):
    """Seconds after the start at which requests come: a Poisson process, the same for everybody."""
    rng, out, at = random.Random(seed), [], 0.0
    while True:
        at += rng.expovariate(rate)
        if at >= seconds:
            return out
        out.append(at)


def load_seconds(rate, seconds, requests):
    """How long a load lasts: at least so many seconds, and so many requests on average."""
    return max(seconds, requests / rate)
