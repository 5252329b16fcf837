"""The catalogue of faults fits the sources: whoever changes a line that is in it is told here, not hours later."""

import ast
from pathlib import Path

import pytest
from mutations.catalogue import CATALOGUE
from mutations.reach import Reach
from mutations.sources import MismatchError, Mutation, Sources, faults

HOME = Path(__file__).parents[1]
SOURCES = Sources(HOME)


def test_every_mutation_fits_once_and_changes_something():
    assert faults(SOURCES, CATALOGUE) == []
    assert len(CATALOGUE) >= 72


def test_every_room_has_mutations():
    rooms = {path.parent.name for path in (HOME / "streamsvm").rglob("*.py")} - {"streamsvm", "cli"}
    touched = {SOURCES.find(mutation).path.parent.name for mutation in CATALOGUE}
    assert rooms <= touched


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("Hinge.slop", "x", "y", "no module"),
        ("Hinge.slope", "nowhere", "y", "0 times"),
        ("Hinge.slope", "label", "y", "times, not once"),
        ("Hinge.slope", "< self.margin", "< (self.margin", "does not parse"),
        ("Hinge.slope", "< self.margin", "<  self.margin", "changes nothing"),
    ],
)
def test_what_does_not_fit_is_refused(name, old, new, reason):
    with pytest.raises(MismatchError, match=reason):
        SOURCES.mutated(Mutation(name, old, new))


def test_only_the_function_is_changed():
    function, changed = SOURCES.mutated(Mutation("Hinge.slope", "< self.margin", "<= self.margin"))
    before, after = SOURCES.modules[function.module].text.splitlines(), changed.splitlines()
    different = [number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]]
    assert len(different) == 1
    assert function.node.lineno < different[0] <= (function.node.end_lineno or 0)
    ast.parse(changed)


@pytest.mark.full
def test_a_helper_is_reached_through_what_it_is_compiled_into():
    reach = Reach(SOURCES)
    entries = reach.entries(SOURCES.find(Mutation("Hinge.slope", "", "")))
    assert {"streamsvm.solvers.sgd:sgd_pass", "streamsvm.losses:Hinge.slope"} <= entries
    assert "streamsvm.solvers.sgd" in reach.dependants("streamsvm.losses")
    assert "streamsvm.hashing" not in reach.dependants("streamsvm.losses")
    assert reach.baked_in(SOURCES.find(Mutation("_power_table", "", "")))
    assert not reach.baked_in(SOURCES.find(Mutation("Holdout.measure", "", "")))
