"""What `explain` takes for a text, and what it says about its own time and about what it could not read."""

from pathlib import Path

import pytest

import heatcheck as hc
from heatcheck.cli.explain import announced, check_pictures, explained, sorted_out
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Modality, NotApplicable, Sample
from heatcheck.data.base import Dataset
from heatcheck.models.text import TextModel
from heatcheck.testing.text_zoo import small_text

MUTANTS = (
    (
        "api/explain.py",
        "if refused and len(refused) == len(groups)",
        "if refused",
        "test_texts_without_a_reference_have_no_score_whatever_their_length",
    ),
    ("api/explain.py", "*([unread] if unread else [])", "", "test_a_warning_tells_what_is_cut_off_of_a_text"),
    (
        "cli/explain.py",
        "        note(unread, quiet=quiet)\n",
        "        pass\n",
        "test_a_note_tells_what_is_cut_off_of_texts",
    ),
    (
        "cli/explain.py",
        'modality_of_model(model) == "text":',
        'modality_of_model(model) == "image":',
        "test_what_is_no_file_is_a_text_for_a_text_model",
    ),
    (
        "cli/explain.py",
        "(texts or with_texts) and not any(_is_file(name) or _ends_as_picture(name) for name in names)",
        "(texts or with_texts)",
        "test_words_beside_a_text_are_texts_unless_there_is_a_file",
    ),
)
LONG, SHORT = "good film " * 20, "a good film"
READ_AS = {"preprocess": None, "output": None, "device": None, "precision": None}


class Fake:
    """Stands for an `Explainer` whose passes take a tenth of a second each."""

    def __init__(self, forwards: int, backwards: int) -> None:
        self.count = (forwards, backwards)
        self.tick = None

    def passes(self, methods: object) -> tuple[int, int]:
        return self.count

    def seconds(self, passes: tuple[int, int]) -> float:
        return sum(passes) / 10

    def report_to(self, tick: object) -> None:
        self.tick = tick


def test_long_work_is_announced_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    fakes = [Fake(1000, 200), Fake(1000, 200)]
    with announced(fakes, {"rise": None, "lime": None, "saliency": None}, quiet=False) as progress:
        progress.note("skipped rollout: it has no attention")
        assert all(fake.tick == progress.advance for fake in fakes)
    told = capsys.readouterr().err
    assert told.startswith("3 methods on 2 inputs: about 2,400 passes, about 4 min\n")
    assert "skipped rollout" in told


@pytest.mark.parametrize(("passes", "quiet"), [((10, 2), False), ((25, 0), False), ((1000, 200), True)])
def test_work_of_a_moment_and_quiet_work_are_not(
    passes: tuple[int, int], quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with announced([Fake(*passes)], {"saliency": None}, quiet=quiet):
        pass
    assert capsys.readouterr().err == ""


def small_model() -> TextModel:
    """A BERT that reads 12 tokens."""
    bert = small_text("BERT")
    return TextModel(bert.module(), bert.tokenizer, "bert", tokens=12)


def test_a_warning_tells_what_is_cut_off_of_a_text() -> None:
    model = small_model()
    told = "bert reads 12 tokens, and the text is longer: what lies beyond is cut off, .*% of all tokens"
    with pytest.warns(UserWarning, match=told):
        heat = hc.explain(model, LONG, method="saliency")
    with pytest.warns(UserWarning, match=told):
        hc.score(model, LONG, heat, metric="morf(steps=2)")
    hc.explain(model, SHORT, method="saliency")  # here, a warning would be an error


def test_texts_without_a_reference_have_no_score_whatever_their_length() -> None:
    model = small_model()
    marked = Sample("marked", "1", SHORT, reference={"spans": [(2, 6)]})
    plain = Sample("plain", "2", "a")
    data = Dataset("texts", Modality.TEXT, (plain, marked))
    scores = hc.score(model, data, ["input_magnitude"], metric="synscore")
    assert scores.isnan().tolist() == [[True, False]]
    with pytest.raises(NotApplicable, match="synscore needs a reference 'mask', and none was given"):
        hc.score(model, Dataset("texts", Modality.TEXT, (plain,)), ["input_magnitude"], metric="synscore")


def test_a_note_tells_what_is_cut_off_of_texts(capsys: pytest.CaptureFixture[str]) -> None:
    model = small_model()

    def told(texts: list[str], quiet: bool = False) -> str:
        found = explained(model, texts, {"saliency": "saliency"}, None, READ_AS, lenient=False, quiet=quiet)
        assert [e.input for e in found] == texts
        return capsys.readouterr().err

    assert "bert reads 12 tokens, and 1 of 2 texts is longer: what lies beyond is cut off" in told([LONG, SHORT])
    assert told([SHORT]) == told([LONG], quiet=True) == ""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the process is, with a picture's file and another."""
    for name in ("cat.png", "notes.txt"):
        (tmp_path / name).write_text("what a film")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_no_file_is_a_text_for_a_text_model(here: Path) -> None:
    for names in (["dull"], [""], ["dull", "a bad film"], ["dog.png"], ["x" * 5000]):
        assert sorted_out(names, "minilm_sentiment", False) == ([], names)
    assert sorted_out(["cat.png"], "minilm_sentiment", False) == (["cat.png"], [])
    for model in ("efficientnet_lite0", None):
        assert sorted_out(["dull"], model, False) == (["dull"], [])


def test_words_beside_a_text_are_texts_unless_there_is_a_file(here: Path) -> None:
    sentence = "a bad film"
    assert sorted_out([sentence, "bad"], None, False) == ([], [sentence, "bad"])
    assert sorted_out(["bad"], None, True) == ([], ["bad"])
    assert sorted_out([""], None, False) == ([], [""])
    for picture in ("cat.png", "absent.png"):
        assert sorted_out([sentence, picture, "bad"], None, False) == ([picture, "bad"], [sentence])


def test_a_file_that_is_no_picture_is_not_explained_by_its_name(here: Path) -> None:
    check_pictures(["cat.png"])
    with pytest.raises(SpecError, match=r"'notes.txt' does not end as a picture does.*heatcheck explain - < notes.txt"):
        check_pictures(["notes.txt"])
    with pytest.raises(SpecError, match=r"there is no picture 'dull'; .* write --text 'dull'"):
        check_pictures(["dull"])


def test_an_empty_text_is_said_to_be_empty_and_a_files_name_is_a_text(here: Path) -> None:
    def found(*texts: str) -> list[str]:
        asked = {"saliency": "saliency"}
        return [e.input for e in explained(small_model(), texts, asked, None, READ_AS, lenient=False, quiet=True)]

    with pytest.raises(hc.HeatcheckError, match="text 2: the text is empty"):
        found("good", "")
    assert found("cat.png", "good") == ["cat.png", "good"]
