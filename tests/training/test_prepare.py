"""What a training begins with: data, classes and networks that fit each other, or an error that names what does not."""

import pytest
import torch

import heatcheck as hc
from heatcheck.api.train import plan_training, prepared, train
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError

MODEL = "small:resnet(depth=8, width=4, size=16)"
TWO = "small:resnet(depth=8, width=4, size=16, classes=2)"


def ready(recipe="plain", model=MODEL, data=None, variant="", held_out=None, **settings):
    few = {"epochs": 1, "batch": 8, "augment": "pad_crop"} if recipe != "text" else {}
    return prepared(recipe, variant, {**few, **settings}, model, str(data), held_out, None, "cpu", 1)


def test_a_fifth_is_held_out_where_the_source_has_no_splits(dark_and_bright):
    made = ready(data=dark_and_bright)
    assert (len(made.task), made.task.held_out) == (16, 4)
    assert made.record.data == f"train_part:{dark_and_bright}"
    assert made.record.held_out == f"test_part:{dark_and_bright}"
    assert made.record.classes == ["bright", "dark"]
    names = {s.name for s in made.task.samples}
    assert names.isdisjoint(s.name for s in made.task.judged)


def test_other_classes_get_a_new_last_layer(dark_and_bright):
    made = ready(data=dark_and_bright)
    assert made.record.parent.new_head
    assert made.network(torch.zeros(1, 3, 16, 16)).shape == (1, 2)


def test_a_pretrained_network_goes_on_with_its_weights_and_scratch_does_not(dark_and_bright):
    start = hc.load_model(TWO).module().state_dict()
    kept = ready("align", TWO, dark_and_bright).network.state_dict()
    assert all(torch.equal(kept[name], start[name]) for name in start)
    anew = ready("align", TWO, dark_and_bright, start="scratch", seed=4).network.state_dict()
    assert any(not torch.equal(anew[name], start[name]) for name in start)
    again = ready("align", TWO, dark_and_bright, start="scratch", seed=4).network.state_dict()
    assert all(torch.equal(anew[name], again[name]) for name in anew)


def test_fewer_samples_are_chosen_by_the_seed(dark_and_bright):
    some = [s.name for s in ready(data=dark_and_bright, samples=6).task.samples]
    assert len(some) == 6
    assert some == [s.name for s in ready(data=dark_and_bright, samples=6).task.samples]
    assert some != [s.name for s in ready(data=dark_and_bright, samples=6, seed=1).task.samples]


def test_a_trained_model_can_be_trained_further(dark_and_bright, tmp_path):
    options = {"data": str(dark_and_bright), "device": "cpu", "threads": 1, "progress": "none"}
    few = {"epochs": 1, "batch": 8, "augment": "pad_crop"}
    first = train("plain", model=MODEL, out=tmp_path / "a", settings=few, **options)
    second = train("align", model=first.spec, out=tmp_path / "b", settings=few, **options)
    assert second.record.parent.identity == first.model.identity
    assert not second.record.parent.new_head
    assert second.record.aligned == {"grid": 4, "fill": "zero"}
    assert second.model.classes == ("bright", "dark")
    assert second.model.identity != first.model.identity
    assert first.model.notes == second.model.notes == []  # what they began with was untrained; they are not


def test_an_object_can_be_trained_but_not_found_again(dark_and_bright, tmp_path, toy):
    own = toy().task.model
    few = {"epochs": 1, "batch": 8, "augment": "pad_crop"}
    done = train(
        "align", model=own, data=str(dark_and_bright), out=tmp_path / "a", settings=few, threads=1, progress="none"
    )
    assert done.record.finished
    with pytest.raises(HeatcheckError, match="was made from an object, toy, which cannot be built again"):
        _ = done.model


def test_a_plan_counts_passes_and_bytes(dark_and_bright):
    plan = plan_training("plain", model=MODEL, data=str(dark_and_bright), settings={"epochs": 3, "batch": 8}, threads=1)
    assert (plan.samples, plan.steps, plan.backwards, plan.forwards) == (16, 6, 48, 48 + 4 * 4)
    assert plan.seconds > 0
    assert plan.disk_bytes > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "allign"}, r"no recipe is called 'allign'; did you mean align\?"),
        ({"lrr": 1}, r"recipe plain has no setting 'lrr'; did you mean lr\?"),
        ({"variant": "smal"}, r"has no variant 'smal'; did you mean small\?"),
        ({"recipe": "align"}, r"goes on with the classes that .* knows: it has 10, and 'train_part-pictures' has 2"),
        ({"recipe": "text"}, r"recipe text is for texts, but small"),
        ({"model": "nothing:here"}, r"model='nothing:here' is not known"),
        ({"data": "nowhere"}, r"'nowhere' is neither a data source nor an existing path"),
        ({"fill": "zeero"}, r"no fill is called 'zeero'"),
    ],
)
def test_mistakes_are_named(dark_and_bright, arguments, message):
    if "fill" in arguments:
        arguments = {**arguments, "delete": 0.5}
    with pytest.raises((HeatcheckError, SpecError), match=message):
        ready(**{"data": dark_and_bright, **arguments})


def test_data_without_something_to_learn_are_named(make_pictures, tmp_path):
    alone = make_pictures(tmp_path / "alone", classes=("cat",))
    with pytest.raises(HeatcheckError, match="has no labels: there is nothing to learn"):
        ready(data=alone)
    (alone / "labels.csv").write_text("file,label\n" + "".join(f"cat/{k:02d}.png,cat\n" for k in range(10)))
    with pytest.raises(HeatcheckError, match="has one class, 'cat': there is nothing to learn"):
        ready(data=alone)
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeatcheckError, match="holds no samples"):
        ready(data=tmp_path / "empty")
    broken = make_pictures(tmp_path / "broken")
    (broken / "dark" / "03.png").write_bytes(b"no picture")
    with pytest.raises(
        HeatcheckError, match=r"sample 'dark/03.png' of '.*broken' cannot be read: .*; mend or remove it"
    ):
        ready(data=broken)


def test_weights_of_another_architecture_are_named(dark_and_bright, tmp_path):
    few = {"epochs": 1, "batch": 8, "augment": "pad_crop"}
    train("plain", model=MODEL, data=str(dark_and_bright), out=tmp_path / "a", settings=few, threads=1, progress="none")
    with pytest.raises(HeatcheckError, match=r"weights\.safetensors.* does not fit"):
        ready(
            model=f"small:resnet(depth=14, width=4, size=16, classes=2)@{tmp_path}/a/weights.safetensors",
            data=dark_and_bright,
        )


def test_an_unfinished_training_is_no_model_yet(dark_and_bright, tmp_path, monkeypatch):
    from heatcheck.training import loop

    few = {"epochs": 1, "batch": 8, "augment": "pad_crop"}
    with monkeypatch.context() as patched:
        patched.setattr(loop._Training, "_epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(
                "plain",
                model=MODEL,
                data=str(dark_and_bright),
                out=tmp_path / "a",
                settings=few,
                threads=1,
                progress="none",
            )
    with pytest.raises(
        HeatcheckError, match=r"is not finished: run its command again to go on, or write trained:.*@last"
    ):
        hc.load_model(str(tmp_path / "a"))
    assert hc.load_model(f"trained:{tmp_path / 'a'}@last").classes == ("bright", "dark")


def test_a_folder_without_a_training_is_named(tmp_path):
    with pytest.raises(HeatcheckError, match=r"holds no training: there is no training\.json"):
        hc.load_model(f"trained:{tmp_path}")
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(HeatcheckError, match=r"training\.json is damaged"):
        hc.load_model(f"trained:{tmp_path}")
