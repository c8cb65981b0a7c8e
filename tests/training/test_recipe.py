"""Recipes: the papers' values, variants, and mistakes that are named."""

import pytest

from heatcheck.core.spec import SpecError
from heatcheck.training.recipe import Recipe, load_recipe, parse_changes, recipes, variants
from heatcheck.training.schedule import learning_rate

MUTANTS = (
    ("training/schedule.py", "(step + 1) / rising", "step / rising", "test_the_rate_rises_and_falls"),
    (
        "training/schedule.py",
        "return recipe.lr * (1 - share)",
        "return recipe.lr * share",
        "test_the_rate_rises_and_falls",
    ),
    (
        "training/recipe.py",
        "**said, **chosen, **(changes or {})",
        "**said, **(changes or {}), **chosen",
        "test_what_a_user_sets_comes_last",
    ),
)


def test_there_are_six_recipes_each_with_a_small_variant():
    assert recipes() == ["align", "birds", "plain", "roar", "synthetic", "text"]
    assert all("small" in variants(id) for id in recipes())
    for id in recipes():
        for variant in ("", *variants(id)):
            assert load_recipe(id, variant).variant == variant


def test_alignment_has_the_papers_values():
    r = load_recipe("align")
    assert (r.optimizer, r.lr, r.momentum, r.weight_decay) == ("sgd", 1e-3, 0.9, 1e-4)
    assert (r.schedule, r.step, r.gamma, r.epochs, r.batch) == ("step", 10, 0.1, 30, 256)
    assert (r.delete, r.grid, r.fill, r.start, r.choose, r.seed) == (0.5, 4, "zero", "pretrained", "best", 0)
    assert (r.augment, r.scale, r.flip, r.loss) == ("resized_crop", 0.08, True, "cross_entropy")
    bcos = load_recipe("align", "bcos")
    assert (bcos.lr, bcos.loss) == (1e-2, "bce")


def test_texts_have_the_papers_values():
    r = load_recipe("text")
    assert (r.optimizer, r.lr, r.batch, r.epochs, r.tokens, r.seed) == ("adamw", 3e-5, 32, 10, 512, 77)
    assert (r.schedule, r.warmup, r.weight_decay, r.decay, r.clip) == ("linear", 0.1, 0.01, "weights", 1.0)
    assert load_recipe("text", "large").tokens == 300


def test_squares_have_the_papers_and_the_codes_values():
    code, paper = load_recipe("synthetic"), load_recipe("synthetic", "paper")
    assert (code.optimizer, code.lr, code.batch, code.epochs, code.seed) == ("sgd", 0.01, 64, 3, 77)
    assert (code.start, code.schedule, code.square, code.augment) == ("scratch", "constant", 0.5, "crop")
    assert (paper.optimizer, paper.lr) == ("adamw", 0.01)
    assert {v: load_recipe("synthetic", v).lr for v in ("mobilenet", "vgg", "vit")} == {
        "mobilenet": 0.1,
        "vgg": 0.001,
        "vit": 0.001,
    }


def test_birds_have_the_papers_values():
    r = load_recipe("birds")
    assert (r.epochs, r.lr, r.step, r.batch, r.weight_decay) == (120, 0.1, 60, 64, 1e-4)


def test_what_a_user_sets_comes_last():
    assert load_recipe("align", "small", {"lr": 1.0}).lr == 1.0
    assert load_recipe("align", "small").lr != load_recipe("align").lr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("allign",), r"no recipe is called 'allign'; did you mean align\?"),
        (("align", "smal"), r"recipe align has no variant 'smal'; did you mean small\?"),
        (("align", "", {"lrr": 1}), r"recipe align has no setting 'lrr'; did you mean lr\?"),
        (("align", "", {"lr": -1}), r"recipe align: lr cannot be -1: input should be greater than 0"),
        (("align", "", {"epochs": 0}), r"recipe align: epochs cannot be 0"),
        (("align", "", {"lr": "fast"}), r"recipe align: lr cannot be 'fast'"),
        (("align", "", {"optimizer": "sdg"}), r"optimizer cannot be 'sdg': input should be 'sgd', 'adam' or 'adamw'"),
        (("align", "", {"about": "x"}), r"recipe align has no setting 'about'"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(SpecError, match=message):
        load_recipe(*arguments)


@pytest.mark.parametrize("written", ["lr", "lr=", "=3"])
def test_changes_have_a_form(written):
    with pytest.raises(SpecError, match=r"is not of the form name=value, such as lr=0\.01"):
        parse_changes([written])
    with pytest.raises(SpecError, match="gives lr twice"):
        parse_changes(["lr=1", "lr=2"])


def rates(steps=20, **settings):
    recipe = load_recipe("plain", changes={"lr": 1.0, **settings})
    return [learning_rate(recipe, step, steps, 2) for step in range(steps)]


def test_the_rate_rises_and_falls():
    assert rates(schedule="constant") == [1.0] * 20
    assert rates(schedule="step", step=5, gamma=0.5) == [1.0] * 10 + [0.5] * 10
    assert rates(schedule="linear") == pytest.approx([1 - s / 20 for s in range(20)])
    warm = rates(schedule="linear", warmup=0.2)
    assert warm == pytest.approx([0.25, 0.5, 0.75, 1.0, *(1 - s / 16 for s in range(16))])
    cosine = rates(schedule="cosine")
    assert cosine[0] == 1.0
    assert cosine[10] == pytest.approx(0.5)
    assert cosine == sorted(cosine, reverse=True)


def test_every_setting_is_documented():
    said = Recipe.__doc__
    assert all(f"        {name}: " in said for name in Recipe.model_fields)
