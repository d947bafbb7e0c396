# SPDX-License-Identifier: Apache-2.0
"""What can go wrong that a user can do something about."""


class RepriseError(Exception):
    """Any error of Reprise's own."""


class CaptureError(RepriseError):
    """The model's training step can't be captured; says where and why."""


class BudgetError(RepriseError, ValueError):
    """The budget makes no sense."""


class InfeasibleBudget(RepriseError):
    """No plan was found inside the budget. `smallest` is a budget in bytes that can be met, or None."""

    def __init__(self, message: str, smallest: int | None = None):
        super().__init__(message)
        self.smallest = smallest


class PlanMismatch(RepriseError):
    """A plan file can't be read, is broken, or is for another graph."""
