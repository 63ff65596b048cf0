from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from advice.files import read_arrays, write_arrays, write_atomically, write_json
from advice.types import BrokenFileError

DTYPES = st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
EXAMPLE = {"w": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False])}


@pytest.fixture
def path(tmp_path):
    write_arrays(tmp_path / "file", EXAMPLE, {"note": "ü", "n": 3}, "shield", 1)
    return tmp_path / "file"


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=8).filter(lambda x: x != "__metadata__"), ARRAYS, max_size=4)
)
def test_what_is_written_is_read(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("files") / "file"
    write_arrays(path, arrays, {"a": [1, None, "x"]}, "shield", 1)
    found, document = read_arrays(path, "shield", 1)
    assert document == {"a": [1, None, "x"]}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable


def test_the_official_library_opens_our_files(path):
    theirs = load_file(path)
    assert theirs.keys() == EXAMPLE.keys()
    for name, array in EXAMPLE.items():
        np.testing.assert_array_equal(theirs[name], array)


def test_other_kinds_versions_and_files_raise(path, tmp_path):
    with pytest.raises(BrokenFileError, match="expected an advice agent, found 'shield'"):
        read_arrays(path, "agent", 1)
    with pytest.raises(BrokenFileError, match="expected version 2 of the format, found 1"):
        read_arrays(path, "shield", 2)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_arrays(tmp_path / "nothing", "shield", 1)
    for foreign in (b"", b"PK\x03\x04 a zip", b"\x02\0\0\0\0\0\0\0{}", b"\x93NUMPY" + bytes(99)):
        path.write_bytes(foreign)
        with pytest.raises(BrokenFileError):
            read_arrays(path, "shield", 1)


def test_every_cut_and_every_flipped_byte_is_noticed(path):
    good = path.read_bytes()
    bad = [good[:n] for n in range(len(good))] + [good + b"\0"]
    bad += [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(BrokenFileError):
            read_arrays(path, "shield", 1)


def signed(entries: dict, body: bytes, document: str = "{}") -> bytes:
    """A file with a valid digest over any header."""
    from hashlib import sha256

    from advice.files import _DIGEST_PLACE, _header

    digest = sha256(_header(entries, document, "shield", 1, _DIGEST_PLACE) + body).hexdigest()
    header = _header(entries, document, "shield", 1, digest)
    return len(header).to_bytes(8, "little") + header + body


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


INCONSISTENT = {
    "more than is there": ({"a": entry([10**12], 0, 4 * 10**12)}, bytes(8)),
    "the same bytes many times": ({f"a{i}": entry([2], 0, 8) for i in range(9)}, bytes(8)),
    "less than is there": ({"a": entry([1], 0, 4)}, bytes(8)),
    "a gap": ({"a": entry([1], 4, 8)}, bytes(8)),
    "backwards": ({"a": entry([2], 8, 0)}, bytes(8)),
    "a negative shape": ({"a": entry([-2, -1], 0, 8)}, bytes(8)),
    "an overflowing shape": ({"a": entry([2**40, 2**40, 0], 0, 0)}, b""),
    "far too many dimensions": ({"a": entry([1] * 100, 0, 4)}, bytes(4)),
    "fractions": ({"a": entry([2.0], 0, 8)}, bytes(8)),
    "text for a shape": ({"a": entry("2", 0, 8)}, bytes(8)),
    "an unknown type": ({"a": entry([1], 0, 8, "OBJ")}, bytes(8)),
    "a list for a type": ({"a": entry([1], 0, 8, [])}, bytes(8)),
    "no entry": ({"a": None}, b""),
    "an entry of text": ({"a": "F32"}, b""),
    "booleans of seven": ({"a": entry([2], 0, 2, "BOOL")}, b"\1\7"),
}


@pytest.mark.parametrize("case", INCONSISTENT)
def test_an_inconsistent_header_with_a_valid_digest_raises(path, case):
    path.write_bytes(signed(*INCONSISTENT[case]))
    with pytest.raises(BrokenFileError, match="inconsistent"):
        read_arrays(path, "shield", 1)


@pytest.mark.parametrize("document", ["[]", "3", "not json", "[" * 100_000])
def test_invalid_documents_raise(path, document):
    path.write_bytes(signed({}, b"", document))
    with pytest.raises(BrokenFileError):
        read_arrays(path, "shield", 1)
    path.write_bytes(signed({}, b"", "{}"))
    assert read_arrays(path, "shield", 1) == ({}, {})


def test_a_huge_sparse_file_is_refused_without_reading_it(path):
    with path.open("wb") as stream:
        stream.write((2**40).to_bytes(8, "little"))
        stream.truncate(2**42)
    with pytest.raises(BrokenFileError, match="claims 1099511627776"):
        read_arrays(path, "shield", 1)


def test_a_failed_write_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(TypeError, match="cannot store dtype complex128"):
        write_arrays(path, {"a": np.zeros(2, complex)}, {}, "shield", 1)
    with pytest.raises(TypeError):
        write_atomically(path, [b"half a file", "not bytes"])
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["file"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_json(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"b": 1, "a": [2]})
    text = (tmp_path / "deep" / "a.json").read_text()
    assert json.loads(text) == {"b": 1, "a": [2]}
    assert text.endswith("}\n")
