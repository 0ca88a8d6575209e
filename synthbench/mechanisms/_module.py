"""Functions that inspect the constructor of a plain ``nn.Module`` used as a mechanism, and seed its initial values."""

import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial, wraps
from types import CodeType, MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch
from torch import nn

from synthbench.errors import UsageError
from synthbench.options import VALUES, option
from synthbench.plugins import place_of, raised_at
from synthbench.registry import functions_of

WIDTHS = ("width", "dim", "model_dim", "d_model", "embed_dim", "hidden_size", "n_embd", "embedding_dim", "emb_dim")
HEADS = ("num_heads", "n_heads", "heads", "n_head", "nhead", "num_attention_heads")
LENGTHS = ("max_length", "max_len", "max_seq_len", "l_max", "max_position_embeddings", "context_length", "n_ctx")
SUPPLIED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(WIDTHS, "model_dim"),
        **dict.fromkeys(HEADS, "num_heads"),
        **dict.fromkeys(LENGTHS, "max_length"),
        "bias": "bias",
        "generator": "generator",
    }
)
"""Names of constructor parameters, each with the mechanism's field that it receives: ``d_model``, for example, receives
``model_dim``."""

OTHER_WIDTHS = ("hidden_dim", "input_size", "input_dim", "in_features", "out_features", "in_dim", "out_dim")
CHANNELS = ("channels", "in_channels", "out_channels")
IF_REQUIRED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((*OTHER_WIDTHS, *CHANNELS), "model_dim"),
        **dict.fromkeys(("block_size", "seq_len"), "max_length"),
    }
)
"""Further names as in ``SUPPLIED``, which are used for required parameters only. If a parameter such as ``block_size``
has a default, its name may mean something else."""

FACTS = ("name", "label", "family", "source", "complexity", "version")
"""Class variables that a plain module may declare, with the same meaning as in a mechanism."""

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

FRAMES = frozenset({"synthbench", "jaxtyping", "beartype"})
"""Top-level modules whose stack frames are skipped in the search for the plugin that called the decorator
``mechanism``."""


class Construction(NamedTuple):
    """The parameters of a module's constructor to which synthbench passes values; some of them are hyper-parameters."""

    fields: Mapping[str, str]
    """Name of the mechanism's field that is passed to each constructor parameter."""
    options: Mapping[str, tuple[Any, Any]]
    """Annotation and option field for each parameter that becomes a hyper-parameter."""


def construction_of(module: type[nn.Module], taken: Collection[str]) -> Construction:
    """Find the constructor parameters that the model sets, such as the width, and the hyper-parameters.

    A parameter is a hyper-parameter if its default is a boolean, a number or a string. All other parameters keep their
    defaults.

    Args:
        module: Class whose constructor takes keyword arguments.
        taken: Names that hyper-parameters must not have.

    Raises:
        UsageError: If the constructor has a required parameter that is in neither ``SUPPLIED`` nor ``IF_REQUIRED``.
            These two mappings hold the parameter names for which the model has values.
    """
    fields, options = {}, {}
    for owner, parameter in _parameters_of(module):
        name, default = parameter.name, parameter.default
        is_keyword = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        supplied = {**IF_REQUIRED, **SUPPLIED} if default is parameter.empty else SUPPLIED
        if is_keyword and name in supplied:
            fields[name] = supplied[name]
        elif default is parameter.empty:
            raise _unknown(module, owner, parameter)
        elif is_keyword and name not in taken and (option := _option(module, default, _hints(owner).get(name))):
            fields[name] = name
            options[name] = option
    return Construction(fields, options)


def class_built_by(function: Callable[..., nn.Module]) -> type[nn.Module]:
    """Make a class that takes the parameters of ``function``; a call of the class returns what ``function`` builds.

    Raises:
        UsageError: If the parameters of the function cannot be determined.
    """
    written = function.func if isinstance(function, partial) else function
    is_named = getattr(written, "__name__", "").isidentifier()  # that of a lambda is no identifier
    name = written.__name__ if is_named else "Module"

    @wraps(function)
    def build(_cls: type[nn.Module], **given: Any) -> nn.Module:
        built = function(**given)
        if not isinstance(built, nn.Module):
            raise UsageError(f"module {name} builds {type(built).__name__}; allowed: an nn.Module")
        return built

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise UsageError(
            f"module is {function!r}, whose parameters are not known; allowed: a Python function"
        ) from None
    content = {"__new__": build, "__signature__": signature, "__doc__": written.__doc__}
    content |= {"__module__": getattr(written, "__module__", name)}
    content |= {"__qualname__": written.__qualname__ if is_named else name}
    return type(name, (nn.Module,), content)


def read_by(module: Callable[..., nn.Module]) -> dict[str, str]:
    """Return, as texts keyed by dotted names, the values that a class or function reads from outside its own code.

    Two layers with the same source code can differ in these values. For example, a factory called in a loop can make
    classes that differ only in a captured variable. The values are global and captured variables, default arguments,
    arguments bound by a ``partial``, and attributes of objects whose class is in the same file. Booleans, numbers,
    strings and tuples of them are returned as they are. For anything else, the path of the class or function is
    returned, such as ``torch.nn.ReLU``, or that of the object's class. If the code refers to functions or classes of
    the same file, what they read is returned too. For a ``lambda``, the bytecode is returned too, since Python's source
    text for it is the whole line.
    """
    texts: dict[str, str] = {}
    home = getattr(module.func if isinstance(module, partial) else module, "__module__", None)
    pending: list[tuple[str, Any]] = [(getattr(module, "__name__", ""), module)]
    seen: set[int] = set()
    while pending:
        name, thing = pending.pop()
        if isinstance(thing, (*VALUES, torch.dtype)):
            texts[name] = repr(thing)
        elif isinstance(thing, partial):
            bound: dict[Any, Any] = {**dict(enumerate(thing.args)), **thing.keywords}
            pending += [(name, thing.func), *((f"{name}({key})", value) for key, value in bound.items())]
        elif isinstance(thing, tuple):
            pending += [(f"{name}.{key}", value) for key, value in enumerate(thing)]
        else:
            texts[name] = _path_of(thing, home)
            if getattr(thing, "__module__", None) != home or id(thing) in seen:
                continue
            seen.add(id(thing))
            if not isinstance(thing, type):  # of an object that holds settings, or builds the layer
                slots = slots_of(type(thing)) if type(thing).__module__ == home else []
                names = {*getattr(thing, "__dict__", {}), *slots, "__self__"}
                pending += [(f"{name}.{key}", getattr(thing, key, None)) for key in sorted(names)]
            for key, function in (functions_of(thing) if isinstance(thing, type) else {"": thing}).items():
                if not inspect.isfunction(function):
                    continue
                outside = inspect.getclosurevars(function)
                read: dict[Any, Any] = {**outside.globals, **outside.nonlocals, **(function.__kwdefaults__ or {})}
                read |= enumerate(function.__defaults__ or ())
                pending += [(f"{name}.{key}.{one}", value) for one, value in read.items()]
                if function.__name__ == "<lambda>":
                    texts[f"{name}.{key}"] = _text_of(function.__code__)
    return texts


def _path_of(thing: object, home: str | None) -> str:
    """Return the module and name of a class or function; for any other object, those of its class.

    The module ``home`` is left out, so that a layer may move to another file.
    """
    named: Any = thing if isinstance(getattr(thing, "__qualname__", None), str) else type(thing)
    return str(named.__qualname__) if named.__module__ == home else f"{named.__module__}.{named.__qualname__}"


def slots_of(owner: type) -> list[str]:
    """List the names that a class or its bases keep in ``__slots__``."""
    return [key for one in owner.__mro__ for key, slot in vars(one).items() if inspect.ismemberdescriptor(slot)]


def _text_of(code: CodeType) -> str:
    """Write a function's instructions and constants as text, without line numbers."""
    constants = [_text_of(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def declared_facts(module: type[nn.Module]) -> dict[str, str | int]:
    """Return the name, label and other facts that the class variables of a module declare.

    Undeclared names, labels, families and sources get default values. For example, the default name of the class
    ``GatedMean`` is ``gated_mean``.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", module.__name__)
    facts: dict[str, str | int] = {
        "name": words.lower().strip("_"),
        "label": module.__name__,
        "family": "other",
        "source": "unpublished",
    }
    declared: dict[str, Any] = {name: getattr(module, name, None) for name in FACTS} | {
        "version": vars(module).get("version")
    }
    return facts | {name: fact for name, fact in declared.items() if _is_fact(name, fact)}


def calling_module() -> str:
    """Return the name of the Python module outside synthbench from which the current call comes."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "synthbench").partition(".")[0] in FRAMES:
        frame = frame.f_back
    return frame.f_globals["__name__"] if frame is not None else "__main__"


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Seed PyTorch's process-wide CPU generator from ``generator`` for the duration of a ``with`` block.

    Ordinary PyTorch layers draw their initial weights from the process-wide generator. After the block, the state of
    the process-wide generator is restored. If nothing was drawn in the block, ``generator`` is left unchanged.
    Otherwise, ``generator`` advances, so that the next layer draws other values.
    """
    if generator is None:
        yield
        return
    of_process, before = torch.default_generator, torch.get_rng_state()
    of_process.manual_seed(_next_seed(generator.clone_state()))
    fresh = torch.get_rng_state()
    try:
        yield
        if not torch.equal(torch.get_rng_state(), fresh):
            _next_seed(generator)
    finally:
        torch.set_rng_state(before)


@contextmanager
def without_compilation() -> Iterator[None]:
    """Run a ``with`` block without ``torch.compile``, which would compile anew for each shape, precision and mode."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and its import takes a second
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _next_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def _parameters_of(module: type[nn.Module]) -> Iterator[tuple[type, inspect.Parameter]]:
    """Yield the parameters of a constructor, except ``*args`` and ``**kwargs``, each with the class that declares it.

    If a class takes ``**kwargs`` but no parameter that the model sets, it is assumed to pass ``**kwargs`` to its base.
    """
    seen: set[str] = set()
    for owner in module.__mro__:
        if not {"__init__", "__new__", "__signature__"} & vars(owner).keys():
            continue
        parameters = [*inspect.signature(owner).parameters.values()]
        if all(one.kind in VARIADIC for one in parameters) and "__init__" in vars(owner):
            # A metaclass, or ``__new__``, may hide the parameters of ``__init__``.
            parameters = [*inspect.signature(partial(vars(owner)["__init__"], None)).parameters.values()]
        yield from ((owner, one) for one in parameters if one.kind not in VARIADIC and one.name not in seen)
        seen |= {one.name for one in parameters}
        if not any(one.kind is one.VAR_KEYWORD for one in parameters) or seen & {*SUPPLIED, *IF_REQUIRED}:
            return


def _hints(owner: type) -> dict[str, Any]:
    try:
        return get_type_hints(vars(owner).get("__init__"))
    except Exception:  # noqa: BLE001 - names that only a type checker imports; the defaults' types do as well
        return {}


def _option(module: type[nn.Module], default: Any, hint: Any) -> tuple[Any, Any] | None:
    """Return the type and the option field of the hyper-parameter that a constructor parameter becomes.

    The result is None if the parameter's default is not a finite value of the annotated type.
    """
    is_choice = get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint))
    kind = hint if is_choice or hint in VALUES else type(default)
    if not _fits(default, str if is_choice else kind) or (is_choice and default not in get_args(hint)):
        return None
    return kind, option(float(default) if kind is float else default, f"parameter of {module.__name__}")


def _fits(default: Any, kind: Any) -> bool:
    if kind is float and type(default) in (int, float):
        return math.isfinite(default)
    return kind in VALUES and type(default) is kind


def _is_fact(name: str, fact: Any) -> bool:
    """Return whether the value of a class variable can be the mechanism's ``name``, ``label``, ``version`` or the like.

    A class may use such a variable name for something else.
    """
    if name == "version":
        return isinstance(fact, int) and not isinstance(fact, bool) and fact >= 1
    return isinstance(fact, str) and fact.strip() != "" and fact.isprintable()


def refusal(module: type[nn.Module], reason: str, problem: TypeError | None = None) -> str:
    """Return the error message for a module that cannot be built: reason, place, and parameters that are supplied."""
    place = (raised_at(problem, module) if problem else "") or place_of(module)
    return (
        f"{module.__name__}{f' ({place})' if place else ''} cannot be built as a mechanism: {reason}; "
        f"supplied by name: {', '.join((*SUPPLIED, *IF_REQUIRED))}"
    )


def _unknown(module: type[nn.Module], owner: type, parameter: inspect.Parameter) -> UsageError:
    name, known = parameter.name, (*SUPPLIED, *IF_REQUIRED)
    nearest = get_close_matches(name, known, n=1)
    whose = "" if owner is module else f", that of {owner.__name__},"
    hint = f"did you mean {nearest[0]!r}?" if nearest else "give every other parameter a default"
    if name in known and parameter.kind is parameter.POSITIONAL_ONLY:
        hint = f"{name!r} is positional-only: remove the '/' after it"
    if module.__module__.startswith("torch."):
        hint = "write a class of nn.Module that takes width, makes this layer, and returns one tensor from forward"
    return UsageError(f"{refusal(module, f'its constructor{whose} requires {name!r}')}; {hint}")
