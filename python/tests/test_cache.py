# SPDX-License-Identifier: Apache-2.0
"""What is kept on disk: for the next process, beside another one, and after one that was killed."""

from __future__ import annotations

import multiprocessing

import pytest

from reprise.cache import Cache

FORK = multiprocessing.get_context("fork")  # a process that imports torch anew takes seconds


def test_the_cache_keeps_what_it_is_told_for_the_next_process(tmp_path):
    first = Cache(tmp_path)
    first.put("a", [1, 2])
    assert Cache(tmp_path).get("a") is None  # not saved yet
    first.save()
    assert Cache(tmp_path).get("a") == [1, 2]


def assert_warns_and_goes_on(folder, says):
    with pytest.warns(UserWarning, match=says):
        cache = Cache(folder)
    cache.put("a", 1)
    cache.save()
    assert cache.get("a") == 1


def test_a_cache_that_can_not_be_written_warns_and_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    assert_warns_and_goes_on(tmp_path / "file", "can't be written")


def test_a_torn_cache_warns_and_goes_on(tmp_path):
    (tmp_path / "cache.sqlite").write_bytes(b"no database" * 100)
    assert_warns_and_goes_on(tmp_path, "is no cache")


def fill(folder, name, count, written):
    cache = Cache(folder)
    for i in range(count):
        cache.put(f"{name} {i}", i)
        cache.save()
        written.value = i + 1


def filling(folder, name, count):
    """A process that writes, and how often it has."""
    written = FORK.Value("i", 0)
    process = FORK.Process(target=fill, args=(folder, name, count, written), daemon=True)
    process.start()
    return process, written


def assert_there(folder, name, count):
    cache = Cache(folder)
    assert all(cache.get(f"{name} {i}") == i for i in range(count))


def test_two_processes_share_a_cache(tmp_path):
    for process, _ in [filling(tmp_path, name, 50) for name in "ab"]:
        process.join()
        assert process.exitcode == 0
    for name in "ab":
        assert_there(tmp_path, name, 50)


def test_a_process_killed_while_it_writes_leaves_a_cache_that_reads(tmp_path):
    process, written = filling(tmp_path, "a", 1_000_000)
    while written.value < 20:
        process.join(0.01)
        assert process.exitcode is None
    process.kill()
    process.join()
    assert_there(tmp_path, "a", 20)
