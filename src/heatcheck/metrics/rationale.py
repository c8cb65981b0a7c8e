"""Does the map find the tokens that people marked as the reason?"""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.metrics.base import metric
from heatcheck.metrics.localisation import Located, expected_hits
from heatcheck.metrics.synscore import average_precision


@dataclass(frozen=True, kw_only=True, repr=False)
class Rationale(Located):
    """What metrics share that compare a map with marked tokens; a word is marked if one of its tokens is."""

    units: str = "token"

    @property
    def grain(self) -> str:
        return self.units


@metric(
    "rationale_f1",
    family="reference",
    better="higher",
    within=(0, 1),
    on=("text",),
    needs=("reference:mask",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleF1(Rationale):
    r"""How well do the most relevant tokens agree with those that people marked?

    $F_1 = 2|T \cap R| \,/\, (|T| + |R|)$, T the $|R|$ most relevant tokens

    As T and R are equally many, precision, recall and F1 are one number. Of tokens that share the value at which T
    ends, each is in it with the same chance: the score is what is expected, and a constant map scores the rationale's
    share of the tokens. A rationale of no token, or of all, is a status.

    Args:
        units: `token`, or `word` (`sentence`), which carries the sum over its tokens: long ones gain, and so do the
            random and the constant map.

    Paper: deyoung2020.  Differs: T is as long as the sample's own rationale, not as the data's mean rationale.
    Cost per sample: none.
    """

    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return expected_hits(values, inside) / inside.sum()


@metric(
    "rationale_auprc",
    family="reference",
    better="higher",
    within=(0, 1),
    on=("text",),
    needs=("reference:mask",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleAUPRC(Rationale):
    r"""How precisely does the map find the tokens that people marked, at every length of its list?

    $\sum_k (\mathrm{recall}_k - \mathrm{recall}_{k-1})\,\mathrm{precision}_k$ over the map's distinct values

    A constant map scores the rationale's share of the tokens. A rationale of no token, or of all, is a status.

    Args:
        units: `token`, or `word` (`sentence`), which carries the sum over its tokens: long ones gain, and so do the
            random and the constant map.

    Paper: deyoung2020.  Differs: average precision, not the trapezoid rule, which joins points that no list reaches.
    Cost per sample: none.
    """

    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return average_precision(values, inside)
