"""Storms: what a product must bear many times over, each as a function that counts violations."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Storm:
    """How often something was done, what it should not have done, and what else was counted."""

    name: str
    times: int
    violations: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def check(self, holds: bool, number: int, problem: str) -> None:
        """Note a violation at one of the times unless something holds."""
        if not holds:
            self.violations.append(f"{self.name} {number}: {problem}")

    def count(self, what: str, happened: bool = True) -> None:
        self.seen[what] = self.seen.get(what, 0) + happened
