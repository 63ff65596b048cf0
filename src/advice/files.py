"""Arrays and a JSON document in one checked file: safetensors layout, SHA-256, atomic writes.

The layout is the public safetensors one (8-byte header length, JSON header, raw bytes). The
header's ``__metadata__`` holds the kind of file, its version, a JSON document, and a digest over
everything else. A file is read only after its size, header and digest have been checked.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from advice.types import Array, BrokenFileError

_CODES = {"F64": "f8", "F32": "f4", "I64": "i8", "I32": "i4", "U8": "u1", "I8": "i1", "BOOL": "?"}
_TO_DTYPE = {name: np.dtype(f"<{code}") for name, code in _CODES.items()}
_TO_NAME = {dtype.newbyteorder("="): name for name, dtype in _TO_DTYPE.items()}
_MAX_HEADER = 16 * 2**20
_DIGEST_PLACE = "0" * 64


def write_arrays(
    path: Path | str,
    arrays: Mapping[str, Array],
    document: Mapping[str, Any],
    kind: str,
    version: int,
) -> None:
    """Write ``arrays`` and the JSON ``document`` atomically."""
    entries: dict[str, Any] = {}
    blobs: list[bytes] = []
    offset = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype not in _TO_NAME:
            raise TypeError(f"{name}: cannot store dtype {array.dtype}")
        blobs.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        place = [offset, offset + len(blobs[-1])]
        shape = list(array.shape)
        entries[name] = {"dtype": _TO_NAME[array.dtype], "shape": shape, "data_offsets": place}
        offset = place[1]
    text = json.dumps(document, sort_keys=True)
    digest = hashlib.sha256(_header(entries, text, kind, version, _DIGEST_PLACE))
    for blob in blobs:
        digest.update(blob)
    header = _header(entries, text, kind, version, digest.hexdigest())
    write_atomically(Path(path), [len(header).to_bytes(8, "little"), header, *blobs])


def read_arrays(
    path: Path | str, kind: str, versions: int | tuple[int, ...]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what :func:`write_arrays` wrote, or raise :class:`BrokenFileError` saying why not."""
    if not Path(path).is_file():
        found = "expected a file, found a folder" if Path(path).is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {found}")
    known = (versions,) if isinstance(versions, int) else versions
    try:
        with open(path, "rb") as stream:
            return _read(stream, os.fstat(stream.fileno()).st_size, kind, known)
    except BrokenFileError as error:
        raise BrokenFileError(f"{path}: {error}") from None


def write_atomically(path: Path, parts: list[bytes]) -> None:
    """Write a temporary file beside it, flush, rename: readers see the old file or the new one.

    First removes what earlier writers left that were killed: a writer locks its temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, path.name)
    stream = tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
    )
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(stream.name, 0o644)
            os.replace(stream.name, path)
        except BaseException:
            Path(stream.name).unlink(missing_ok=True)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete temporary files for ``name`` in a folder whose writers no longer run."""
    for path in folder.glob(f".{name}.*.tmp"):
        with suppress(OSError), open(path, "rb") as stream:  # another process may remove it too
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(stream.fileno()).st_mtime < time.time() - 1:  # or it is not locked yet
                path.unlink()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, readable by people too."""
    write_atomically(path, [(json.dumps(document, indent=2) + "\n").encode()])


def _header(entries: dict[str, Any], text: str, kind: str, version: int, digest: str) -> bytes:
    metadata = {"document": text, "kind": kind, "sha256": digest, "version": str(version)}
    header = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)  # arrays start aligned, as safetensors asks


def _read(
    stream: BinaryIO, size: int, kind: str, versions: tuple[int, ...]
) -> tuple[dict[str, Array], dict[str, Any]]:
    length = int.from_bytes(stream.read(8), "little")
    if 8 + length > size or length > _MAX_HEADER:
        raise BrokenFileError(
            f"expected an advice {kind}, found a file whose header claims {length} bytes"
        )
    raw = stream.read(length)
    try:
        entries = json.loads(raw)
        metadata = entries.pop("__metadata__")
        found_kind, version = metadata["kind"], int(metadata["version"])
        digest, text = metadata["sha256"], metadata["document"]
        unsigned = raw.replace(digest.encode(), _DIGEST_PLACE.encode(), 1)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BrokenFileError(f"expected an advice {kind}, found something else") from None
    if found_kind != kind:
        raise BrokenFileError(f"expected an advice {kind}, found {str(found_kind)[:80]!r}")
    if version not in versions:
        known = " or ".join(map(str, versions))
        raise BrokenFileError(f"expected version {known} of the format, found {version}")
    body = stream.read()
    found = hashlib.sha256(unsigned)
    found.update(body)
    if digest != found.hexdigest():
        raise BrokenFileError("the SHA-256 does not match: the file was cut short or edited")
    try:
        document, arrays = json.loads(text), _arrays(entries, body)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenFileError(f"the contents are inconsistent: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise BrokenFileError(f"expected a JSON object, found {type(document).__name__}")
    return arrays, document


def _arrays(entries: dict[str, Any], body: bytes) -> dict[str, Array]:
    """The arrays in ``body``. They must fill it exactly, one after the other, so a small file
    cannot ask for much memory."""
    arrays = {}
    offset = 0
    for name, entry in entries.items():
        dtype, shape = _TO_DTYPE[entry["dtype"]], entry["shape"]
        begin, end = entry["data_offsets"]
        if any(type(n) is not int or not 0 <= n < 2**48 for n in (*shape, begin, end)):
            raise ValueError(f"{name}: expected whole numbers, found {shape}, {begin}, {end}")
        if begin != offset or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name}: {shape} of {dtype} from {offset} is not {begin}..{end}")
        if dtype == np.bool_ and max(body[begin:end], default=0) > 1:
            raise ValueError("expected bytes 0 and 1 for booleans")
        array: Array = np.ndarray(shape, dtype, body, begin)
        arrays[name] = array.astype(dtype.newbyteorder("="))
        offset = end
    if offset != len(body):
        raise ValueError(f"expected {offset} bytes of arrays, found {len(body)}")
    return arrays
