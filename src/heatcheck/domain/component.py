"""What methods, metrics and fills have in common: an id, a version, parameters, a printable name."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, final

from heatcheck.core import catalogue
from heatcheck.core.catalogue import CHOICES, NESTED
from heatcheck.core.spec import Spec, SpecError
from heatcheck.core.types import Modality, NotApplicable
from heatcheck.domain.base import Domain


class Component:
    """A frozen, keyword-only dataclass that stores its parameters and can be rebuilt from its name."""

    id: ClassVar[str]
    kind: ClassVar[str]
    version: ClassVar[int] = 1
    revised: ClassVar[Mapping[str, int]] = {}
    """The version on single modalities, where results changed there alone."""
    facts: ClassVar[Mapping[str, Any]] = {}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What a parameter may be, where only some words mean anything."""

    def __post_init__(self) -> None:
        for name, allowed in {**CHOICES, **self.choices}.items():
            value = getattr(self, name, None)
            if value is not None and value not in allowed:
                raise SpecError(f"{type(self).kind} {self.id}: {name}={value!r} is not one of {', '.join(allowed)}")
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.type is int and (isinstance(value, bool) or not isinstance(value, int)):
                raise SpecError(f"{type(self).kind} {self.id}: {f.name}={value!r} is not a whole number")
            if f.type is float and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise SpecError(f"{type(self).kind} {self.id}: {f.name}={value!r} is not a number")
            if f.type is float:  # 5 and 5.0 are one value with one identity
                object.__setattr__(self, f.name, float(value))
            if f.type is bool and not isinstance(value, bool):
                raise SpecError(f"{type(self).kind} {self.id}: {f.name}={value!r} is neither true nor false")
            if f.type is str and f.name not in NESTED and not isinstance(value, str):
                raise SpecError(f"{type(self).kind} {self.id}: {f.name}={value!r} is not a name")
            if f.type is int and f.name in ("steps", "samples", "grid") and value < 1 and value != f.default:
                raise SpecError(f"{type(self).kind} {self.id}: {f.name}={value} must be at least 1")

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Parameter names and defaults."""
        return {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]

    def params(self) -> dict[str, Any]:
        """Every parameter with its value."""
        return {name: getattr(self, name) for name in self.parameters()}

    @property
    def name(self) -> str:
        """The id with the parameters that differ from their defaults."""
        given = {k: v for k, v in self.params().items() if v != self.parameters()[k]}
        return str(Spec(self.id, given))

    def __repr__(self) -> str:
        return self.name

    def applies_to(self, domain: Domain) -> None:
        """Raise NotApplicable, with the reason, where this component cannot work on the domain."""
        on = self.facts.get("on", tuple(Modality))
        if domain.modality not in on:
            raise NotApplicable(f"{self.id} is defined for {' and '.join(on)}, not for {domain.modality}")

    def resolve(self, domain: Domain) -> Self:
        """The same component with `auto` fills and unit roles replaced by what they mean on this domain."""
        self.applies_to(domain)
        changes: dict[str, Any] = {}
        for name, value in self.params().items():
            if name in NESTED and value == "auto":
                changes[name] = value = domain.default_fill
            if name in NESTED:
                changes[name] = catalogue.build(NESTED[name], value).resolve(domain).name
            if name == "units":
                changes[name] = domain.resolve_units(value)
                domain.check_units(changes[name])
        return dataclasses.replace(self, **changes) if changes else self  # type: ignore[type-var]

    @final
    def resolved_on(self, domain: Domain, *, number: bool = False) -> Self:
        """Like `resolve`; what is resolved for the domain's modality already is returned as it is.

        Args:
            domain: pictures or texts.
            number: whether the model gives one number per input, which then takes the place of a probability.
        """
        place = (domain.modality, number)
        if self.__dict__.get("_resolved_on") == place:
            return self
        found = (self.with_number() if number else self).resolve(domain)
        found = dataclasses.replace(found) if found is self else found  # type: ignore[type-var]
        object.__setattr__(found, "_resolved_on", place)
        return found

    def with_number(self) -> Self:
        """The same component for a model without classes: where it reads a probability, it reads the number itself."""
        changes: dict[str, Any] = {"output": "logit"} if self.params().get("output") == "prob" else {}
        for name, value in self.params().items():
            if NESTED.get(name) == "method" and value != "auto":
                changes[name] = catalogue.build("method", value).with_number().name
        return dataclasses.replace(self, **changes) if changes else self  # type: ignore[type-var]

    def identity(self) -> dict[str, Any]:
        """What decides this component's results: id, version and every parameter, nested components included."""
        params: dict[str, Any] = {}
        for name, value in self.params().items():
            nested = name in NESTED and value != "auto"
            params[name] = catalogue.build(NESTED[name], value).identity() if nested else value
        modality, _ = self.__dict__.get("_resolved_on", ("", False))
        version = self.revised.get(modality, self.version)
        return {"id": self.id, "version": version, "params": params}


T = TypeVar("T")
C = TypeVar("C", bound=Component)


def from_function(function: Callable[..., Any], base: type[C], **members: Any) -> type[C]:
    """A component class around a user's function, whose keyword-only arguments become its parameters.

    Raises:
        SpecError: a keyword-only argument has no default.
    """
    keywords = [p for p in inspect.signature(function).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for p in keywords:
        if p.default is inspect.Parameter.empty:
            raise SpecError(f"{function.__name__}: the parameter {p.name!r} needs a default value")
    space: dict[str, Any] = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__annotations__": {p.name: type(p.default) for p in keywords},
        "function": staticmethod(function),
        **{p.name: p.default for p in keywords},
        **members,
    }
    cls = type(function.__name__, (base,), space)
    return dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)


def call_with_parameters(component: Component) -> Callable[..., Any]:
    """The user's function behind a component, with the component's parameters filled in."""
    function: Callable[..., Any] = component.function  # type: ignore[attr-defined]
    names = inspect.signature(function).parameters
    own = {name: value for name, value in component.params().items() if name in names}
    return functools.partial(function, **own)


def declare(
    kind: str, id: str, version: int, facts: Mapping[str, Any], function_base: type[Component] | None = None
) -> Callable[[T], T]:
    """The decorator behind `@method`, `@metric` and `@fill`: sets a class's id, version and facts, and registers it.

    A function becomes a class derived from `function_base`, which is registered in its place.
    """

    def decorate(target: T) -> T:
        if inspect.isclass(target):
            register(target)
        elif function_base is not None and callable(target):
            register(from_function(target, function_base))
        else:
            raise SpecError(f"@{kind}({id!r}) is for a class, not for {target!r}")
        return target

    def register(cls: Any) -> None:
        cls.id, cls.kind, cls.version, cls.facts = id, kind, version, dict(facts)
        if not cls.__module__.startswith(f"heatcheck.{catalogue.KINDS[kind]}."):
            params = {k: repr(v) for k, v in cls.parameters().items()}
            doc = inspect.getdoc(cls) or ""
            catalogue.register(
                catalogue.Entry(kind, id, cls.__module__, cls.__qualname__, dict(facts), doc, params, cls)
            )

    return decorate
