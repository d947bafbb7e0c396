# SPDX-License-Identifier: Apache-2.0
"""Reprise trains networks inside a memory budget, with exactly the gradients of plain training."""

from . import memory
from .api import Planned, plan, sweep
from .errors import BudgetError, CaptureError, InfeasibleBudget, PlanMismatch, RepriseError
from .largest_batch import max_batch
from .module import compile
from .step import Step

__version__ = "0.1.0"
__all__ = ["BudgetError", "CaptureError", "InfeasibleBudget", "PlanMismatch", "Planned", "RepriseError", "Step",
           "compile", "max_batch", "memory", "plan", "sweep"]
