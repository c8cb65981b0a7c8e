"""What learnt inpainters share: one picture at a time, kept pixels untouched, nothing painted twice."""

import contextlib
import hashlib
import os
import zlib
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped, UInt8
from scipy import ndimage
from torch import Tensor

from heatcheck.core.cache import cache_folder
from heatcheck.core.files import sha256_of, write_atomically
from heatcheck.core.identity import canonical
from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.base import Domain
from heatcheck.fills.base import HostFill

LIMIT = "HEATCHECK_PAINTINGS"
"""Environment variable: megabytes of painted pixels that may lie in the cache folder; 0 for none."""
_DISK_MB, _MEMORY_MB = 4096, 256
_CHECK = 16
_SWEEP_EVERY = 200


@dataclass
class Paintings:
    """Painted pixels by the hash of what they were painted from: some in memory, more in the cache folder.

    No classifier takes part in painting, so all of them share what is here. A file that is not whole is not read.
    """

    _held: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    _size: int = 0
    _written: int = 0

    def get(self, key: str, size: int, make: Callable[[], bytes]) -> bytes:
        """The `size` bytes painted for `key`, made now if they are not cached."""
        found = self._held.get(key) or self._read(key, size)
        if found is None:
            found = make()
            self._write(key, found)
        self._hold(key, found)
        return found

    def forget(self) -> None:
        """Empty the memory; files stay."""
        self._held.clear()
        self._size = 0

    def _hold(self, key: str, data: bytes) -> None:
        self._size += len(data) - len(self._held.pop(key, b""))
        self._held[key] = data
        while self._size > _MEMORY_MB * 2**20:
            self._size -= len(self._held.popitem(last=False)[1])

    def _read(self, key: str, size: int) -> bytes | None:
        try:
            raw = _file(key).read_bytes()
            data = zlib.decompress(raw[_CHECK:])
        except (OSError, zlib.error):
            return None
        return data if len(data) == size and raw[:_CHECK] == _checksum(data) else None

    def _write(self, key: str, data: bytes) -> None:
        limit = _disk_limit()
        if limit <= 0:
            return
        with contextlib.suppress(OSError):  # a full or read-only disk costs time, not results
            if self._written % _SWEEP_EVERY == 0:
                _sweep(_folder(), limit)
            write_atomically(_file(key), _checksum(data) + zlib.compress(data, 1))
            self._written += 1


PAINTINGS = Paintings()


def _folder() -> Path:
    return cache_folder() / "paintings"


def _file(key: str) -> Path:
    return _folder() / key[:2] / key


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK).digest()


def _disk_limit() -> int:
    given = os.environ.get(LIMIT, str(_DISK_MB))
    if not given.isdigit():
        raise HeatcheckError(f"{LIMIT}={given!r} is not a number of megabytes")
    return int(given) * 2**20


def _sweep(folder: Path, limit: int) -> None:
    """Remove the oldest files until a quarter of the room is free again."""
    files = [(p, p.stat()) for p in folder.glob("*/*")]
    total = sum(s.st_size for _, s in files)
    if total <= limit:
        return
    for path, stat in sorted(files, key=lambda f: f[1].st_mtime):
        path.unlink(missing_ok=True)
        total -= stat.st_size
        if total <= limit * 3 // 4:
            return


@dataclass(frozen=True, kw_only=True, repr=False)
class Painter(HostFill):
    """A network that paints what a hole may have held, from bytes, as if the hole's content had never been seen."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The files that hold the network; NotApplicable, with how to get them, where there are none."""

    @abstractmethod
    def paint(self, rgb: UInt8[np.ndarray, "h w 3"], hole: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
        """The whole picture with its hole painted; what it does to the rest is ignored."""

    def place(self) -> str:
        """The parameter that says where the files are; what is painted depends on their content alone."""
        return "path"

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        self.files()

    def identity(self) -> dict[str, Any]:
        try:
            return {**super().identity(), "files": self._digests()}
        except NotApplicable:  # it cannot paint, but it can be named
            return {**super().identity(), "files": []}

    def _digests(self) -> list[str]:
        return [_digest(p, p.stat().st_mtime_ns, p.stat().st_size) for p in self.files()]

    def full(self, domain: Any, batch: Batch) -> Inputs:
        return self.erase(domain, batch.x, torch.zeros_like(domain.deletable(batch.x)), batch.x)

    def erase_here(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        if keep.dtype != torch.bool:
            raise HeatcheckError(f"fill='{self.id}' cannot delete a part of a pixel; use zero or blur with soft masks")
        low, high = (bound.double() for bound in domain.bounds(x))
        pixels = domain.leaf(x)
        if pixels.shape[1] not in (1, 3):
            raise NotApplicable(f"{self.id} paints grey or coloured pictures, not {pixels.shape[1]} channels")
        kept = keep.reshape(len(x), 1, *pixels.shape[2:])
        colour = ((pixels.detach().double() - low) / (high - low)).clamp(0, 1)
        rgb = (colour * 255).round().to(torch.uint8).permute(0, 2, 3, 1).expand(-1, -1, -1, 3).numpy()
        painted = torch.stack([self._painted(own, ~mask[0].numpy()) for own, mask in zip(rgb, kept, strict=True)])
        grey = painted.double().mean(1, keepdim=True) if pixels.shape[1] == 1 else painted.double()
        back = (low + grey / 255 * (high - low)).to(pixels.dtype)
        return domain.with_leaf(x, torch.where(kept, pixels, back))

    def _painted(self, rgb: UInt8[np.ndarray, "h w 3"], hole: Bool[np.ndarray, "h w"]) -> UInt8[Tensor, "3 h w"]:
        """The picture with its hole painted, from memory where it was painted before."""
        seen = covered(rgb, hole)
        how = {k: v for k, v in self.params().items() if k != self.place()}
        who = canonical([self.id, self.version, how, self._digests(), hole.shape])
        key = hashlib.blake2b(who.encode(), digest_size=20)
        key.update(np.packbits(hole).tobytes() + seen.tobytes())
        size = 3 * int(hole.sum())
        data = PAINTINGS.get(key.hexdigest(), size, lambda: self.paint(seen, hole)[hole].tobytes()) if size else b""
        seen[hole] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return torch.from_numpy(seen).permute(2, 0, 1)


def covered(rgb: UInt8[np.ndarray, "h w 3"], hole: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """A copy whose hole holds the colours of the nearest kept pixels, and black where none is kept.

    Networks resize what they get, which mixes the hole's content into its surroundings; so it must not be there.
    """
    if hole.all():
        return np.zeros_like(rgb)
    if not hole.any():
        return rgb.copy()
    y, x = ndimage.distance_transform_edt(hole, return_distances=False, return_indices=True)
    return np.ascontiguousarray(rgb[y, x])


@lru_cache(maxsize=256)
def _digest(path: Path, _changed: int, _size: int) -> str:
    return sha256_of(path)
