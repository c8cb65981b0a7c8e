"""Formulas of docstrings as a terminal can show them: LaTeX between dollar signs becomes plain characters."""

import re

_SIGNS = {
    "sum": "Σ", "partial": "∂", "odot": "⊙", "ominus": "⊖", "in": "∈", "top": "ᵀ", "sim": "~", "cdot": "·", "le": "≤",
    "ge": "≥", "setminus": "∖", "leftarrow": "←", "to": "→", "infty": "∞", "dots": "…", "cdots": "⋯", "int": "∫",
    "cup": "∪", "cap": "∩", "propto": "∝", "nabla": "∇", "lVert": "‖", "rVert": "‖", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε",
    "pi": "π", "phi": "φ", "psi": "ψ", "sigma": "σ", "Delta": "Δ", "Pi": "Π", "Sigma": "Σ", "big": "", "Big": "",
    "quad": "  ", "mathrm": "", "text": "", "operatorname": "", "mathcal": "", "max": "max ", "min": "min ", "log": "log ",
    "ln": "ln ", "exp": "exp ", "cos": "cos ", "arg": "arg ",
}  # fmt: skip
_MARKS = {"tilde": "\u0303", "bar": "\u0304", "hat": "\u0302"}
_BLACKBOARD = {"E": "𝔼", "R": "ℝ", "1": "𝟙", "P": "ℙ"}
_RAISED = dict(zip("0123456789+-=niᵀ*", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼ⁿⁱᵀ*", strict=True))
_LOWERED = dict(zip("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_ARGUMENT = r"\s*(\{(?:[^{}]|\{[^{}]*\})*\}|[^\\{}\s])"


def plain(text: str) -> str:
    r"""A text whose formulas have plain characters in the place of LaTeX.

    >>> plain(r"the sum $\sum_i \frac{a_i}{b} \cdot x^2$ of all")
    'the sum Σᵢ aᵢ/b · x² of all'
    """
    return re.sub(r"\$([^$]+)\$", lambda found: _formula(found[1]), text)


def _formula(tex: str) -> str:
    tex = re.sub(rf"\\t?frac{_ARGUMENT}{_ARGUMENT}", lambda m: f"{_grouped(m[1])}/{_grouped(m[2])}", tex)
    tex = re.sub(rf"\\binom{_ARGUMENT}{_ARGUMENT}", lambda m: f"C({_inner(m[1])}, {_inner(m[2])})", tex)
    tex = re.sub(rf"\\sqrt{_ARGUMENT}", lambda m: f"√{_grouped(m[1])}", tex)
    tex = re.sub(rf"\\mathbb{_ARGUMENT}", lambda m: _BLACKBOARD.get(_inner(m[1]), _inner(m[1])), tex)
    for name, mark in _MARKS.items():
        tex = re.sub(rf"\\{name}{_ARGUMENT}", lambda m, mark=mark: _inner(m[1]) + mark, tex)
    tex = re.sub(r"\\([a-zA-Z]+)", lambda m: _SIGNS.get(m[1], m[1]), tex)
    tex = tex.replace(r"\|", "‖").replace(r"\{", "❴").replace(r"\}", "❵")
    tex = re.sub(r"\\.", " ", tex)
    tex = re.sub(rf"\^{_ARGUMENT}", lambda m: _shifted(_inner(m[1]), _RAISED, "^"), tex)
    tex = re.sub(rf"_{_ARGUMENT}", lambda m: _shifted(_inner(m[1]), _LOWERED, "_"), tex)
    tex = tex.replace("{", "").replace("}", "").replace("❴", "{").replace("❵", "}")
    tex = re.sub(r"(max|min|log) (?=[_₀-₉ₐ-ₜᵢᵣᵤᵥⱼ|])", r"\1", tex)
    return re.sub(r"\s+", " ", tex.replace("Σ", " Σ")).replace("( ", "(").replace("[ ", "[").strip()


def _inner(argument: str) -> str:
    return argument[1:-1] if argument.startswith("{") else argument


def _grouped(argument: str) -> str:
    """An argument that stays one thing beside a slash."""
    inner = _inner(argument).strip()
    return inner if re.fullmatch(r"\\?\w+(_\w|_\{\w+\})?", inner) else f"({inner})"


def _shifted(text: str, letters: dict[str, str], mark: str) -> str:
    if text and all(letter in letters for letter in text):
        return "".join(letters[letter] for letter in text)
    whole = len(text) == 1 or (text.startswith("(") and text.endswith(")"))
    return f"{mark}{text}" if whole else f"{mark}({text})"
