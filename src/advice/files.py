"""Arrays and a little JSON in one file that cannot lie: safetensors layout, SHA-256, atomic writes.

The layout is the public safetensors one (8-byte header length, JSON header, raw bytes), so other
tools can open the files; reading and writing need NumPy alone. Our own metadata sits in the
header's ``__metadata__``: the kind of file, its version, a JSON document, and a digest over
everything else. A file is read only after its size, header and digest have been checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advice.types import Array, BrokenFileError

_TO_NAME = {
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.uint8): "U8",
    np.dtype(np.bool_): "BOOL",
}
_TO_DTYPE = {name: dtype.newbyteorder("<") for dtype, name in _TO_NAME.items()}
_MAX_HEADER = 16 * 2**20
_DIGEST_PLACE = "0" * 64


def write_arrays(
    path: Path | str, arrays: Mapping[str, Array], document: Mapping[str, Any], kind: str, version: int
) -> None:
    """Write ``arrays`` and the JSON ``document`` so that the file is whole or not there at all."""
    path = Path(path)
    entries: dict[str, Any] = {}
    blobs: list[bytes] = []
    offset = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype not in _TO_NAME:
            raise TypeError(f"{name}: cannot store dtype {array.dtype}")
        blob = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        entries[name] = {
            "dtype": _TO_NAME[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(document, sort_keys=True)
    header = _header(entries, text, kind, version, _DIGEST_PLACE)
    digest = hashlib.sha256(header)
    for blob in blobs:
        digest.update(blob)
    header = _header(entries, text, kind, version, digest.hexdigest())
    write_atomically(path, [len(header).to_bytes(8, "little"), header, *blobs])


def read_arrays(path: Path | str, kind: str, version: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what :func:`write_arrays` wrote, or raise :class:`BrokenFileError` saying why not."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    content = path.read_bytes()
    try:
        return _parse(content, kind, version)
    except BrokenFileError as error:
        raise BrokenFileError(f"{path}: {error}") from None


def write_atomically(path: Path, parts: list[bytes]) -> None:
    """Write to a temporary neighbour, flush to disk, rename: readers see the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, readable by people too."""
    write_atomically(path, [(json.dumps(document, indent=2, sort_keys=False) + "\n").encode()])


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _header(entries: dict[str, Any], text: str, kind: str, version: int, digest: str) -> bytes:
    metadata = {"document": text, "kind": kind, "sha256": digest, "version": str(version)}
    header = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)  # arrays start aligned, as safetensors asks


def _parse(content: bytes, kind: str, version: int) -> tuple[dict[str, Array], dict[str, Any]]:
    if len(content) < 8:
        raise BrokenFileError(f"expected a header, found {len(content)} bytes")
    length = int.from_bytes(content[:8], "little")
    if length > min(_MAX_HEADER, len(content) - 8):
        raise BrokenFileError(f"expected a header of at most {len(content) - 8} bytes, found {length}")
    raw, body = content[8 : 8 + length], memoryview(content)[8 + length :]
    try:
        header = json.loads(raw)
        metadata = header.pop("__metadata__")
        found_kind, found_version = metadata["kind"], int(metadata["version"])
        digest, text = metadata["sha256"], metadata["document"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BrokenFileError(f"expected a header of an advice {kind}, found something else") from None
    if found_kind != kind:
        raise BrokenFileError(f"expected an advice {kind}, found {found_kind!r}")
    if found_version != version:
        raise BrokenFileError(f"expected version {version} of the format, found {found_version}")
    unsigned = _header(header, text, kind, version, _DIGEST_PLACE)
    found = hashlib.sha256(unsigned)
    found.update(body)
    signed = _header(header, text, kind, version, found.hexdigest())
    if digest != found.hexdigest() or signed != raw:
        raise BrokenFileError("the SHA-256 does not match: the file was cut short or edited")
    try:
        arrays = {name: _array(name, entry, body) for name, entry in header.items()}
        document = json.loads(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenFileError(f"the header is inconsistent: {error}") from None
    if not isinstance(document, dict):
        raise BrokenFileError(f"expected a JSON object, found {type(document).__name__}")
    return arrays, document


def _array(name: str, entry: dict[str, Any], body: memoryview) -> Array:
    dtype, shape = _TO_DTYPE[entry["dtype"]], tuple(int(n) for n in entry["shape"])
    begin, end = entry["data_offsets"]
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(body):
        raise ValueError(f"{name}: shape {shape} and bytes {begin}..{end} of {len(body)}")
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{name}: shape {shape} of {dtype} does not fill {end - begin} bytes")
    return np.frombuffer(body[begin:end], dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))
