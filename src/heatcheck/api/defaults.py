"""What is used where no model or no data are named: the embedded ones of the modality that the other has."""

from heatcheck.data.catalogue import default_data, modality_of_data
from heatcheck.models.catalogue import default_model, modality_of_model


def with_embedded(models: list[str] | None, data: str | None) -> tuple[list[str], str]:
    """Specs of models and data, of which one or both may be None.

    Without either, real pictures. A spec that means nothing is left to whoever checks it.

    >>> with_embedded(None, "texts"), with_embedded(["minilm_sentiment"], None)
    ((['minilm_sentiment'], 'texts'), (['minilm_sentiment'], 'texts'))
    """
    if models is None:
        models = [default_model("image" if data is None else modality_of_data(data))]
    return models, default_data(modality_of_model(models[0])) if data is None else data
