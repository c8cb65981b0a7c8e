"""Models that `heatcheck train` has made: a folder with weights, and the record of how they came about."""

from pathlib import Path

from torch import Tensor

from heatcheck.core.sources import source
from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.models.architectures.fresh import UNTRAINED
from heatcheck.models.base import Model
from heatcheck.models.load import load_model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.retarget import with_classes
from heatcheck.models.text_description import DESCRIPTION, described
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.training_record import ALL, KEPT, LAST, OF_NETWORK, WEIGHTS, TrainingRecord
from heatcheck.models.weights import fill_network, load_weights


@source(
    "trained",
    form="trained:FOLDER[@CHECKPOINT]",
    modality="either",
    about="what `heatcheck train` has made; @03, @last for weights along the way, @* for all of them",
    install="nothing",
    licence="that of the model it began with",
    group="own",
    reads="trained_modality",
)
def trained(where: str, request: Request) -> Model:
    """The chosen weights of a training, or others that it kept, in the network that it began with."""
    folder = Path(where).expanduser()
    record = TrainingRecord.read(folder)
    wanted = str(request.checkpoint) if request.checkpoint is not None else ""
    path = _weights_file(folder, record, wanted)
    weights = _weights_in(path)
    if record.parent.modality == "text":
        model: Model = described(folder / DESCRIPTION, weights, str(path), request)
    else:
        model = rebuild(record, folder, request)
        fill_network(model.module(), weights, str(path))
        model.__dict__.pop("identity", None)
        model.notes = [note for note in model.notes if UNTRAINED not in note]
    model.trained = {**record.model_dump(mode="json"), "checkpoint": wanted or "chosen"}
    return model


def trained_modality(where: str) -> str:
    """What the network in a folder was trained to read."""
    return str(TrainingRecord.read(Path(where).expanduser()).parent.modality)


def rebuild(record: TrainingRecord, folder: Path, request: Request) -> Model:
    """The model that a training began with, with the training's classes; its weights are to be replaced.

    Raises:
        HeatcheckError: it was an object that only its program has.
    """
    parent = record.parent
    if not parent.spec:
        raise HeatcheckError(
            f"trained:{folder} was made from an object, {parent.name}, which cannot be built again: "
            "train a model that has a spec, such as FILE.py:NAME"
        )
    preprocess = request.preprocess or (Preprocess(**parent.preprocess) if parent.preprocess else None)
    model = load_model(
        parent.spec,
        name=request.name,
        preprocess=preprocess,
        multi_label=False,
        headless=parent.new_head,
        trainers=request.trainers,
    )
    if not isinstance(model, TorchModel):
        raise HeatcheckError(f"trained:{folder} began with {parent.spec}, which is no network")
    if parent.new_head:
        return replaced(model, record.classes, seed=record.settings["seed"])
    model.classes = model.classes or tuple(record.classes)
    return model


def replaced(model: TorchModel, classes: list[str], *, seed: int) -> TorchModel:
    """The same model with a new last layer for other classes."""
    twin: TorchModel = model.around(with_classes(model, classes, seed=seed))
    twin.classes = tuple(classes)
    return twin


def _weights_in(path: Path) -> dict[str, Tensor]:
    """The network's tensors in a file, which may hold the optimizer's beside them."""
    state = load_weights(path)
    own = {name.removeprefix(OF_NETWORK): t for name, t in state.items() if name.startswith(OF_NETWORK)}
    return own or state


def _weights_file(folder: Path, record: TrainingRecord, wanted: str) -> Path:
    if not wanted:
        if not record.finished:
            raise HeatcheckError(
                f"the training in {str(folder)!r} is not finished: run its command again to go on, "
                f"or write trained:{folder}@last for what there is"
            )
        return folder / WEIGHTS
    if wanted == "last":
        return folder / LAST
    known = {kept.name for kept in record.kept}
    if wanted == ALL:
        every = ", ".join(f"@{kept.name}" for kept in record.kept) or "none, as none was kept"
        raise HeatcheckError(f"trained:{folder}@{ALL} is several models, and one is wanted here: {every}")
    if wanted not in known:
        raise HeatcheckError(f"trained:{folder} has no checkpoint {wanted!r}{suggest(wanted, {*known, 'last'})}")
    return folder / KEPT / f"{wanted}.safetensors"
