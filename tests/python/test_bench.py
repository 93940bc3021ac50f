"""The bench's own arithmetic: a bench that divides the wrong way round praises itself."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "bench.d"))
import readers  # noqa: E402 (the bench's folder comes first)
import table  # noqa: E402
from rounds import Race, Results, Row, Sample  # noqa: E402


@pytest.fixture
def results():
    return Results(lambda text: None)


def floors(*rates):
    """A floor whose samples have these rates, one after another."""
    rest = iter(rates)
    return lambda: Sample(1000, 1000 / next(rest))


def test_a_case_is_compared_with_the_floors_on_both_sides_of_it(results):
    race = Race(results, "group", floors(1, 100, 300), rounds=1)  # the first is thrown away
    race.case("half", lambda: {"first": Sample(750, 10)}).run()
    assert race.row("half", "first", "title", (">=", 0.5)).value == pytest.approx(0.5)  # time at 100 and at 300: 150 on average


def test_a_slower_case_has_the_smaller_ratio(results):
    race = Race(results, "group", lambda: Sample(100, 1), rounds=3)
    race.case("slow", lambda: {"first": Sample(100, 4)}).case("fast", lambda: {"first": Sample(100, 2)}).run()
    assert race.row("slow", "first", "slow").value == pytest.approx(0.25)
    assert race.against(("fast", "first"), ("slow", "first"), "fast against slow", "times").value == pytest.approx(2)


def test_a_case_that_fails_is_named_and_the_others_are_measured(results):
    def broken():
        raise OSError("no such peer")

    race = Race(results, "group", lambda: Sample(100, 1), rounds=2)
    race.case("broken", broken).case("sound", lambda: {"first": Sample(100, 1)}).run()
    assert race.row("broken", "first", "broken") is None
    assert race.row("sound", "first", "sound").value == pytest.approx(1)
    assert results.missing == [{"group": "group", "why": "broken: OSError: no such peer"}]


@pytest.mark.parametrize(
    ("value", "need", "met"),
    [(0.33, (">=", 0.33), True), (0.329, (">=", 0.33), False), (150, ("<=", 150), True), (151, ("<=", 150), False), (1, None, None)],
)
def test_a_target_is_met_at_its_own_value(value, need, met):
    assert Row("group", "case", value, "unit", need).met() is met


def test_a_missed_target_is_marked_in_the_table(results):
    results.add("group", "case", [0.1, 0.2, 0.9], "of the source", (">=", 0.33))
    line = next(line for line in table.text(results, "machine").splitlines() if "case" in line and "MISSED" in line)
    assert line.split()[:2] == ["case", "0.20"]  # the median


def test_readers_read_all_of_a_part(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * readers.MIB + 5))
    part = readers.Part(file, 5)
    pieces = [part.cut(index, 3) for index in range(3)]
    assert sum(piece.length for piece in pieces) == part.length
    assert readers.sequential(part, readers.MIB).seconds > 0
    assert readers.mapped(part).seconds > 0
    span, took = readers.scattered(part, 4096, 10)
    assert len(took) == 10 and sum(took) <= span.seconds * 1e9
    with pytest.raises(EOFError):
        readers.sequential(readers.Part(file, 5, part.length + 1), readers.MIB)


def test_readers_in_processes_of_their_own_span_the_first_to_the_last(tmp_path):
    spans = [readers.Span(10, 11), readers.Span(9, 10.5), readers.Span(10, 12)]
    span, values = readers.together(3, lambda index: (spans[index], os.getpid()))
    assert span == (9, 12)
    assert len(set(values)) == 3 and os.getpid() not in values


def test_pages_of_a_file_are_counted_and_dropped(tmp_path):
    file = tmp_path / "file"
    with open(file, "wb") as out:
        out.write(bytes(range(256)) * 4096 * 8)
        out.flush()
        os.fsync(out.fileno())
    readers.refill(file)
    assert readers.resident(file) == 8 * readers.MIB
    readers.evict(file)
    if readers.resident(file) > 0:
        pytest.skip("this file system keeps its pages (tmpfs)")
