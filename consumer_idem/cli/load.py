"""Finding the App that MODULE:APP names."""

import os
import sys
import traceback
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from consumer_idem.errors import ConsumerIdemError

if TYPE_CHECKING:
    from consumer_idem.app import App


class AppNotFound(ConsumerIdemError):
    """MODULE:APP does not name an App, e.g. shop.payments:app."""


def load(path: str) -> "App":
    """Import the module, the current folder first on the path, and return its App; raise AppNotFound with what to do."""
    from consumer_idem.app import App

    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise AppNotFound(f"{path!r} is not MODULE:APP. Name the module and the variable in it, e.g. shop.payments:app.")
    module = _import(module_name)
    try:
        found = _attribute(module, name)
    except AttributeError:
        raise AppNotFound(f"Module {module_name} has no {name!r}. {_suggestion(module)}") from None
    if not isinstance(found, App):
        raise AppNotFound(f"{path} is a {type(found).__name__}, not an App. {_suggestion(module)}")
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except Exception as error:
        raise AppNotFound(_why(name, folder, error)) from error


def _why(name: str, folder: str, error: Exception) -> str:
    """Return why module `name` could not be imported, and what to do."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if f"{name}.".startswith(f"{error.name}."):
            return f"There is no module {error.name!r} in {folder} or on the Python path. Go to its folder, or set PYTHONPATH."
        return f"Module {name} needs {error.name!r}, which is not installed {_place(error)}. Install it."
    what = str(error) if isinstance(error, ConsumerIdemError) else f"{type(error).__name__}: {error}"
    return f"Module {name} could not be imported {_place(error)}: {what}"


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _suggestion(module: ModuleType) -> str:
    from consumer_idem.app import App

    apps = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    return f"Did you mean {' or '.join(apps)}?" if apps else 'Make one there: app = App(group="payments").'


def _place(error: BaseException) -> str:
    """Return where in the user's code `error` arose: outside of the import machinery, of this package and of generated methods."""
    frames = traceback.extract_tb(error.__traceback__)
    own = os.path.dirname(os.path.dirname(__file__))
    users = [frame for frame in frames if not frame.filename.startswith(("<", own)) and "importlib" not in frame.filename]
    return f"(in {users[-1].filename}, line {users[-1].lineno})" if users else ""
