"""Agreement of the map with the tokens that annotators marked as the rationale."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.metrics.base import metric
from heatcheck.metrics.localisation import MASK_FACTS, MaskMetric, top_precision
from heatcheck.metrics.synscore import average_precision


@dataclass(frozen=True, kw_only=True, repr=False)
class Rationale(MaskMetric):
    """The base of both; a word is marked if one of its tokens is."""

    units: str = "token"

    @property
    def mask_units(self) -> str:
        return self.units


@metric("rationale_f1", on=("text",), invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleF1(Rationale):
    r"""How well do the most relevant tokens agree with those that annotators marked?

    $F_1 = 2|T \cap R| \,/\, (|T| + |R|)$, T the $|R|$ most relevant tokens

    As T and R are equally large, precision, recall and F1 are equal. Tokens tied at the end of T are counted in
    proportion: a constant map scores the rationale's share of the tokens. The score is undefined where no token is
    marked, or all are.

    Args:
        units: `token`, or `word` or `sentence`, whose relevance is the sum over their tokens: this favours long ones,
            and raises the scores of the random and the constant map.

    Paper: deyoung2020.  Differs: T is as long as the sample's own rationale, not as the data's mean rationale.
    Cost per sample: none.
    """

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return top_precision(values, inside)


@metric("rationale_auprc", on=("text",), invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleAUPRC(Rationale):
    r"""What is the average precision of the map at finding the tokens that annotators marked?

    $\sum_k (\mathrm{recall}_k - \mathrm{recall}_{k-1})\,\mathrm{precision}_k$ over the map's distinct values

    A constant map scores the rationale's share of the tokens. Undefined where no token is marked, or all are.

    Args:
        units: as in `rationale_f1`.

    Paper: deyoung2020.  Differs: average precision, not the trapezoid rule, which interpolates between thresholds.
    Cost per sample: none.
    """

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return average_precision(values, inside)
