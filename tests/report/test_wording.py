"""Names in headlines: short where a path is long, and never two alike."""

import pytest

from heatcheck.report.page import _title
from heatcheck.report.wording import in_headline

MUTANTS = [
    ("report/wording.py", "if len(name) > _HEADLINE else name", "", "test_what_a_headline_calls_a_name"),
    (
        "report/wording.py",
        "return short if len(set(short)) == len(set(names)) else list(names)",
        "return short",
        "test_two_names_stay_two",
    ),
]
FAR = "/home/jane/studies/2026/november/explanations"


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("hf:org/name", "hf:org/name"),
        ("efficientnet_lite0", "efficientnet_lite0"),
        ("runs/bert", "runs/bert"),
        (f"{FAR}/bert", "…/bert"),
        (f"resnet50_v1@{FAR}/weights.safetensors", "resnet50_v1@…/weights.safetensors"),
        (f"trained:{FAR}/aligned@05", "trained:…/aligned@05"),
        (f"folder:{FAR}/val/", "folder:…/val/"),
        (r"folder:C:\Users\jane\a folder\with pictures\val", "folder:C:…/val"),
        ("a" * 60, "a" * 60),
    ],
)
def test_what_a_headline_calls_a_name(name, called):
    assert in_headline([name]) == [called]


def test_two_names_stay_two():
    names = [f"{FAR}/base/model.safetensors", f"{FAR}/int8/model.safetensors"]
    assert in_headline(names) == names
    assert _title([(name, f"folder:{FAR}/val") for name in names]) == " and ".join(names) + " on folder:…/val"
