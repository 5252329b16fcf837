"""The programs compared: one small class each, every run in a process of its own."""

from pathlib import Path

from peers.liblinear_dual import LibLinear
from peers.peer import InRam, Peer
from peers.scikit import ScikitLearn
from peers.streamsvm_cli import StreamSvm
from peers.svmsgd import SvmSgd
from peers.vowpal import VowpalWabbit

__all__ = ["InRam", "Peer", "StreamSvm", "all_peers"]


# The problem, the step size and the order of rows that svmsgd.c has.
AS_SVMSGD = ("--solver", "sgd", "--loss", "hinge", "--l2", "1e-5", "--eta0", "1", "--shuffle", "0")


def all_peers(work: Path) -> list[Peer | InRam]:
    """Every peer, in the order of the tables. `work` is where they may build and cache."""
    return [
        StreamSvm(cache=work / "streamsvm"),
        StreamSvm(name="streamsvm-sgd", options=AS_SVMSGD, cache=work / "streamsvm"),
        VowpalWabbit(),
        ScikitLearn(),
        LibLinear(work),
        SvmSgd(work),
    ]
