"""MODULE:APP: what does not name an App is explained."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_idem.cli.load import AppNotFound, load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, which is not on the path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


APP = 'from consumer_idem.app import App\npayments = App(group="shop")\n'


def test_an_app_is_found_from_the_current_folder(folder: Path) -> None:
    (folder / "shop_found.py").write_text(APP)

    assert load("shop_found:payments").group == "shop"


def test_an_app_is_found_in_an_attribute(folder: Path) -> None:
    (folder / "shop_inner.py").write_text(f"{APP}class Wiring:\n    app = payments\n")

    assert load("shop_inner:Wiring.app").group == "shop"


@pytest.mark.parametrize("path", ["shop", "shop:", ":app", ""])
def test_what_is_not_module_colon_app_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(AppNotFound, match="is not MODULE:APP"):
        load(path)


@pytest.mark.parametrize(
    ("path", "missing"), [("nowhere:app", "nowhere"), ("nowhere.inner:app", "nowhere"), ("email.nowhere:app", "email.nowhere")]
)
def test_a_module_that_is_not_there_is_named_with_the_folder(folder: Path, path: str, missing: str) -> None:
    with pytest.raises(AppNotFound) as refused:
        load(path)

    assert f"no module '{missing}'" in str(refused.value)
    assert str(folder) in str(refused.value)


def test_a_module_that_the_apps_module_needs_is_named(folder: Path) -> None:
    (folder / "shop_needy.py").write_text("import something_not_installed\n")

    with pytest.raises(AppNotFound, match=r"shop_needy needs 'something_not_installed'.*shop_needy\.py, line 1"):
        load("shop_needy:app")


def test_an_import_that_raises_is_explained_with_its_place(folder: Path) -> None:
    (folder / "shop_raising.py").write_text("\n\n1 / 0\n")

    with pytest.raises(AppNotFound, match=r"shop_raising\.py, line 3\): ZeroDivisionError: division by zero"):
        load("shop_raising:app")


def test_a_wrong_declaration_is_told_in_its_own_words(folder: Path) -> None:
    (folder / "shop_wrong.py").write_text('from consumer_idem.app import App\napp = App(group="")\n')

    with pytest.raises(AppNotFound, match=r"shop_wrong\.py, line 2\): App needs a group"):
        load("shop_wrong:app")


SOURCE = """from consumer_idem import Fingerprint, Source

def made():
    return Source("checkout", model=dict, message_id=async_id, fingerprint=Fingerprint("id"))

async def async_id(payload, message): ...

checkout = made()
"""


def test_a_wrong_source_is_told_with_the_line_that_declares_it(folder: Path) -> None:
    (folder / "shop_source.py").write_text(SOURCE)

    with pytest.raises(AppNotFound, match=r"\(in \S+shop_source\.py, line 4\): Source 'checkout': "):
        load("shop_source:app")


def test_a_missing_attribute_suggests_the_apps_of_the_module(folder: Path) -> None:
    (folder / "shop_other.py").write_text(APP)

    with pytest.raises(AppNotFound, match=r"no 'app'.*Did you mean shop_other:payments\?"):
        load("shop_other:app")


def test_what_is_no_app_is_named_by_its_type(folder: Path) -> None:
    (folder / "shop_function.py").write_text("def app(): ...\n")

    with pytest.raises(AppNotFound, match=r"is a function, not an App. Make one there"):
        load("shop_function:app")
