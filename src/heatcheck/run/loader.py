"""A loader process: decodes samples and makes a model's inputs of them, for a process that computes."""

import contextlib
import os
import pickle  # noqa: TID251 - what its parent writes into the pipe, and nothing else
import signal
import sys
from typing import BinaryIO

from heatcheck.run.executors.worker import die_with_parent


def main(inp: BinaryIO, out: BinaryIO) -> None:
    """Serve until the input ends."""
    from heatcheck.run.loaders import answer

    while True:
        reader, sample = pickle.load(inp)  # noqa: S301 - from its parent
        pickle.dump(answer(reader, sample), out)
        out.flush()


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):  # nobody is left to read for
        main(sys.stdin.buffer, replies)
    os._exit(0)
