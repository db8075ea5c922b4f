"""The paper's numbers: sums taken from its source by another program, and what it says of them."""

from __future__ import annotations

import pytest

from ocil.data import SOURCES
from ocil.learners import registry
from ocil.paper.published import printed, protocol, tasks_of


@pytest.mark.parametrize(
    ("label", "count", "values", "deviations"),
    [
        ("Table 1", 90, 3455.2, 117.8),
        ("Table 2", 90, 2367.2, 125.2),
        ("Table 3", 12, 879.9, 0.0),
        ("Table 4", 16, 776.9, 5.5),
        ("Table 5", 24, 1269.16, 0.0),
    ],
)
def test_sums_of_the_tables(label: str, count: int, values: float, deviations: float) -> None:
    numbers = [n for n in printed() if n.label == label]
    assert len(numbers) == count
    assert sum(n.value for n in numbers) == pytest.approx(values)
    assert sum(n.deviation or 0.0 for n in numbers) == pytest.approx(deviations)


def test_methods_and_data_are_ours() -> None:
    assert {n.method for n in printed()} <= set(registry.names())
    assert {n.data for n in printed()} <= set(SOURCES)
    assert {n.metric for n in printed()} == {"accuracy", "forgetting"}
    assert all(tasks_of(n.data) for n in printed())
    assert protocol("batch") == 10
    assert protocol("replay") == 64


def test_the_bold_cells_of_the_accuracy_tables_are_the_best() -> None:
    """The paper sets OTC in bold in every cell of its tables of accuracy."""
    plain = [n for n in printed() if n.metric == "accuracy" and not n.settings]
    for otc in (n for n in plain if n.method == "otc"):
        place = (otc.data, otc.memory, otc.offline)
        rivals = [n for n in plain if (n.data, n.memory, n.offline) == place and n != otc]
        assert len(rivals) in (3, 9)
        assert otc.value > max(n.value for n in rivals)


def test_a_cell_says_what_the_paper_prints() -> None:
    told = {
        (n.method, n.data, n.memory, n.metric, n.offline, *sorted(n.settings.items())): str(n)
        for n in printed()
    }
    assert len(told) == len(printed())
    assert told["er", "cifar10", 1000, "accuracy", False] == "62.3 ± 4.1"
    assert told["cope", "tiny-imagenet", 10000, "forgetting", False] == "8.2 ± 0.6"
    assert told["bic-ac", "mnist", 1500, "forgetting", False] == "1.2 ± 0.3"
    assert told["geodl", "cifar10", 200, "accuracy", True] == "49.20"
    ablation = (("choice", "random"), ("components", 3))
    assert told["otc", "cifar10", 1000, "accuracy", False, *ablation] == "73.6"
    assert told["otc", "cifar10", 1000, "accuracy", False] == "76.1 ± 2.0"
    assert ("er", "mnist", 500, "accuracy", False) not in told
