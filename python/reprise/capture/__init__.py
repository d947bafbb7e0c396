# SPDX-License-Identifier: Apache-2.0
"""From a module to the operations of its training step, and from these to a graph."""
