"""Cases in turn with their floor, round after round, and the rows that come of them.

A busy machine slows both, so a ratio is taken only between samples that lie next to each
other: each case against the mean of the floor just before and the floor just after it.
"""

import statistics
from dataclasses import asdict, dataclass, field


@dataclass
class Sample:
    nbytes: int
    seconds: float

    @property
    def rate(self):
        return self.nbytes / max(self.seconds, 1e-9)


@dataclass
class Row:
    """One line of the table. need is (">=" or "<=", number) where the project set itself a target."""

    group: str
    case: str
    value: float
    unit: str
    need: tuple | None = None
    samples: list = field(default_factory=list)
    rate: float | None = None  # bytes a second
    floor: float | None = None
    cpu: tuple | None = None  # CPU seconds of the daemon and of its readers, per GB served

    def met(self):
        if self.need is None:
            return None
        sense, number = self.need
        return self.value >= number if sense == ">=" else self.value <= number

    def document(self):
        return asdict(self) | {"met": self.met()}


class Results:
    """All rows of a run, in order, and what could not be measured."""

    def __init__(self, say):
        self.rows, self.missing, self.say = [], [], say

    def add(self, group, case, samples, unit, need=None, **more):
        """A row of the median of the samples."""
        samples = [float(sample) for sample in samples]
        row = Row(group, case, statistics.median(samples), unit, need, samples, **more)
        self.rows.append(row)
        mark = {True: "", False: "  MISSED", None: ""}[row.met()]
        self.say(f"{group}: {case}: {row.value:.3g} {unit}{mark}")
        return row

    def lack(self, group, why):
        why = " ".join(why.split())[:300]
        self.missing.append({"group": group, "why": why})
        self.say(f"{group}: not measured: {why}")


class Race:
    """Cases that are measured in turn with one floor.

    A case is a function that returns {label: Sample}: one mount may give a first read and
    a second one. A case that fails once is left out, and said to be missing.
    """

    def __init__(self, results, group, floor, rounds):
        self.results, self.group, self.floor, self.rounds = results, group, floor, rounds
        self.cases = {}
        self.ratios, self.rates, self.floors, self.cpu = {}, {}, {}, {}

    def case(self, name, run):
        self.cases[name] = run
        return self

    def run(self):
        names = list(self.cases)
        self.floor()
        for turn in range(self.rounds):
            before = self.floor()
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if name not in self.cases:
                    continue
                try:
                    samples = self.cases[name]()
                except Exception as error:  # whatever a peer does, the others are still measured
                    del self.cases[name]
                    self.results.lack(self.group, f"{name}: {type(error).__name__}: {error}")
                    continue
                cpu = samples.pop("cpu", None)
                after = self.floor()
                floor = 2 / (1 / before.rate + 1 / after.rate)
                for label, sample in samples.items():
                    key = (name, label)
                    self.ratios.setdefault(key, []).append(sample.rate / floor)
                    self.rates.setdefault(key, []).append(sample.rate)
                    self.floors.setdefault(key, []).append(floor)
                    if cpu is not None:
                        self.cpu.setdefault(key, []).append(cpu)
                before = after
        return self

    def row(self, name, label, case, need=None, unit="of the source"):
        """The row of one label of a case; nothing where the case failed."""
        key = (name, label)
        if not self.ratios.get(key):
            return None
        more = {}
        if self.cpu.get(key):
            more["cpu"] = tuple(map(statistics.median, zip(*self.cpu[key])))
        return self.results.add(
            self.group, case, self.ratios[key], unit, need,
            rate=statistics.median(self.rates[key]), floor=statistics.median(self.floors[key]), **more,
        )

    def against(self, one, other, case, unit, need=None):
        """The row of one case's ratio over another's, round by round; each a (name, label)."""
        left, right = self.ratios.get(one, []), self.ratios.get(other, [])
        if not left or len(left) != len(right):
            return None
        return self.results.add(
            self.group, case, [a / b for a, b in zip(left, right)], unit, need,
            rate=statistics.median(self.rates[one]), floor=statistics.median(self.rates[other]),
        )
