"""What the rounding of fp32 allows to losses, for sweep.py."""
import numpy as np


class Spread:
    """What PyTorch's own fp32 allows: a loss may be as far from fp64 as TIMES the root mean square of
    how far PyTorch's runs are at that step, or were at one before.

    Not their largest difference: of nine equal draws each is the largest one time in nine, so one of
    nine right programs would be wrong. A program that rounds as PyTorch does is beyond 4 times in one
    step of 250 (Student's t of eight draws); one that trains something else is beyond it by far. Where
    the runs are all exact by chance they say nothing, so the loss may be rounded: two units of its last
    place.

    Some losses have kinks: a number that is zero but for rounding goes through a ReLU or not, which
    changes a gradient at once, in some runs of many. timm.ecaresnet101d with one sample: of 60 runs of
    PyTorch 54 are within 1.2e-7 of fp64 at the last step and six are off by 2.7e-6 to 2.9e-6; eight runs
    show none of these as often as not. Therefore what is beyond its bound is compared with more runs: it
    is not wrong if one of them is at least half as far at that step. What trains something else has no
    such company."""
    TIMES, FLOOR = 4, 2.0 ** -22

    def __init__(self, fp64, runs):
        off = np.array([Spread.off(r, fp64) for r in runs])
        self.bounds = np.maximum(np.maximum.accumulate(self.TIMES * np.sqrt((off ** 2).mean(0))), self.FLOOR)

    def worst(self, off):
        """(difference, bound, number) of the step that is beyond its bound by most, or nearest to it"""
        k = int(np.argmax(np.array(off) / self.bounds[:len(off)]))
        return float(off[k]), float(self.bounds[k]), k

    @staticmethod
    def off(losses, fp64):
        return [abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses, fp64)]
