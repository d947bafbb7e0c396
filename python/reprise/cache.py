# SPDX-License-Identifier: Apache-2.0
"""What was measured and planned before, on disk: one SQLite file, so that processes share it and none can tear it."""

from __future__ import annotations

import json
import os
import sqlite3
import warnings
from pathlib import Path
from typing import Any

_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"


def default_folder() -> Path:
    named = os.environ.get("REPRISE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reprise"


class Cache:
    """Keys to JSON values. Where the folder can't be written it warns once and forgets at exit."""

    def __init__(self, folder: str | os.PathLike | None = None):
        self._known: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        self._file = Path(folder or default_folder()) / "cache.sqlite"
        self._database = self._open()

    def _open(self) -> sqlite3.Connection | None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self._file, timeout=20, isolation_level=None, check_same_thread=False)
            database.execute(_SCHEMA)
            return database
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                return self._open_to_read(error)
            warnings.warn(f"{self._file} is no cache ({error}): moved aside", stacklevel=4)
            self._file.replace(self._file.with_suffix(".torn"))
            return self._open()
        except OSError as error:
            return self._open_to_read(error)

    def _open_to_read(self, error: Exception) -> sqlite3.Connection | None:
        warnings.warn(f"{self._file.parent} can't be written ({error}): measurements are not kept; "
                      "set REPRISE_CACHE to a folder that can", stacklevel=4)
        try:
            database = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, check_same_thread=False)
            database.execute("SELECT 1 FROM kept LIMIT 1")
            return database
        except sqlite3.Error:
            return None

    def get(self, key: str) -> Any | None:
        if key in self._known:
            return self._known[key]
        if self._database is None:
            return None
        try:
            row = self._database.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error:
            return None
        try:
            self._known[key] = None if row is None else json.loads(row[0])
        except ValueError:  # not ours: as if it were not there
            self._known[key] = None
        return self._known[key]

    def put(self, key: str, value: Any) -> None:
        """Kept at once for this process, on disk from the next `save` on."""
        self._known[key] = self._new[key] = value

    def save(self) -> None:
        if not self._new or self._database is None:
            return
        rows = [(key, json.dumps(value)) for key, value in self._new.items()]
        self._new = {}
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            warnings.warn(f"{self._file} can't be written ({error}): measurements are not kept", stacklevel=2)
            self._database = None


_open_caches: dict[Path, Cache] = {}


def cache() -> Cache:
    """The cache of this process."""
    folder = default_folder()
    if folder not in _open_caches:
        _open_caches[folder] = Cache(folder)
    return _open_caches[folder]
