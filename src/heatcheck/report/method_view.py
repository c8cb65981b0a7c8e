"""A method on the page: its name, and how it is drawn everywhere."""

import re
from dataclasses import dataclass

_PIECE = re.compile(r"[^_(,= ]+[_(,= ]?|[_(,= ]")
_LONGEST = 24  # characters that fit a column of a phone


@dataclass(frozen=True)
class MethodView:
    """A method's name, colour and line style, the same everywhere on the page.

    Args:
        index: its place among the case's methods.
        name: its full name.
        control: shown for comparison only.
        slot: its colour; −1 for controls.
        dash: its line style, where colours repeat, and of controls, which have none.
    """

    index: int
    name: str
    control: bool
    slot: int
    dash: int

    @property
    def head(self) -> str:
        """The name without its parameters."""
        return self.name.partition("(")[0] or self.name

    @property
    def rest(self) -> str:
        """The parameters, with their brackets."""
        return self.name[len(self.head) :]

    @property
    def pieces(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The name and its parameters, in pieces between which a line may break.

        Example:
            >>> MethodView(0, "grad_cam(layer=last)", False, 0, 0).pieces
            (('grad_', 'cam'), ('(', 'layer=', 'last)'))
        """
        return tuple(_PIECE.findall(self.head)), tuple(_PIECE.findall(self.rest))

    @property
    def unbreakable(self) -> bool:
        """Whether a piece is too long for a narrow column, so that it must break anywhere."""
        return any(len(piece) > _LONGEST for part in self.pieces for piece in part)

    @property
    def css(self) -> str:
        """Its CSS classes in charts."""
        return f"sc c{self.dash}" if self.slot < 0 else f"s{self.slot} d{self.dash}"
