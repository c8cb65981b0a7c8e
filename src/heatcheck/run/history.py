"""The studies of a run folder: each is written down before it is computed, and none is forgotten.

`run.json` is the last study and how far it is; `studies/` has one file per study, named by the digest of what decides it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from heatcheck.core.files import StorageError
from heatcheck.core.identity import digest
from heatcheck.probe.calls import Spent
from heatcheck.run.records import RUN
from heatcheck.run.shard import Shard, elsewhere
from heatcheck.run.store import Store, files_in

Manifest = dict[str, Any]
PROGRESS = ("passes", "peak_bytes", "finished", "studies", "shards", "merged")
"""What `run.json` has beside its study: how far it is, and the studies of the folder."""
_DECIDES = ("study", "target", "seed", "data", "samples", "methods", "metrics")


def study_digest(manifest: Mapping[str, Any]) -> str:
    """The digest of what decides a study; when, where and how fast it was computed does not."""
    models = [{k: v for k, v in model.items() if k != "numerics"} for model in manifest["models"]]
    return digest({**{k: manifest[k] for k in _DECIDES}, "models": models})


def begin(store: Store, manifest: Manifest) -> None:
    """Write a study down beside the earlier ones, before anything is computed."""
    before: Manifest = store.read(RUN) or {}
    for study in (before, manifest):
        if study:
            path = f"studies/{study_digest(study)}.json"
            if store.read(path) is None:
                store.write(path, {k: v for k, v in study.items() if k not in PROGRESS})
    manifest["passes"] = before.get("passes", manifest["passes"])
    _add_shards(manifest, before)
    write_run(store, manifest)


def end(store: Store, manifest: Manifest, spent: Spent, peak: int, *, finished: bool) -> None:
    """Write down how far a study is; what other processes have spent meanwhile is counted too."""
    now: Manifest = store.read(RUN) or manifest
    manifest["passes"] = {name: n + now["passes"].get(name, 0) for name, n in asdict(spent).items()}
    manifest["peak_bytes"] = max(peak, now.get("peak_bytes", 0))
    _add_shards(manifest, now)
    manifest["finished"] = finished and not elsewhere(manifest)
    write_run(store, manifest)


def _add_shards(manifest: Manifest, other: Manifest) -> None:
    """Count the shards of the same study that others have run into the folder."""
    if "shards" in manifest and "shards" in other and study_digest(manifest) == study_digest(other):
        manifest["shards"] = sorted({*manifest["shards"], *other["shards"]}, key=Shard.parse)


def write_run(store: Store, manifest: Manifest) -> None:
    """Write `run.json`, with the studies that the folder has."""
    store.write(RUN, {**manifest, "studies": [path.stem for path in files_in(store.studies, ".json")]})


def last_study(store: Store) -> Manifest:
    """What `run.json` says; where it is lost, the newest study stands in for it, without its counts of passes.

    Raises:
        StorageError: it is damaged, and there is nothing to rebuild it from.
    """
    found: Manifest | None = store.read(RUN)
    if found is not None:
        return found
    known = [read for path in files_in(store.studies, ".json") if (read := store.read(f"studies/{path.name}"))]
    if known:
        newest = max(known, key=lambda study: str(study["created"]))
        return {**newest, "passes": asdict(Spent()), "finished": False}
    why = store.damaged.get(RUN, "it is not there")
    raise StorageError(
        f"{store.folder / RUN} cannot be used: {why}; run the study into this folder again, which writes it anew and "
        "keeps what is computed"
    )


def studies(store: Store, last: Manifest) -> list[Manifest]:
    """Every study of the folder, in the order they were begun; the last one last, as `run.json` has it."""
    mine = study_digest(last)
    others = [path for path in files_in(store.studies, ".json") if path.stem != mine]
    earlier: list[Manifest] = [read for path in others if (read := store.read(f"studies/{path.name}")) is not None]
    return [*sorted(earlier, key=lambda study: str(study["created"])), last]


def forgotten(store: Store, last: Mapping[str, Any]) -> list[str]:
    """Studies that the folder had and has no more."""
    there = {path.stem for path in files_in(store.studies, ".json")}
    return [name for name in last.get("studies", ()) if name not in there]
