"""Flags go before App's arguments, those before the environment, that before .env."""

from pathlib import Path
from typing import Any

import pytest

from consumer_idem.app import App
from consumer_idem.errors import DeclarationError, SettingRefused
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.settings import Settings, settings_from

PLACES = {
    "database": ("CONSUMER_IDEM_DATABASE", "postgresql://{}/shop"),
    "kafka": ("CONSUMER_IDEM_KAFKA", "{}:9092"),
    "schema_name": ("CONSUMER_IDEM_SCHEMA", "{}"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder without .env, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE", "KAFKA", "SCHEMA", "CLIENT", "BATCH_SIZE", "KAFKA_OPTIONS"):
        monkeypatch.delenv(f"CONSUMER_IDEM_{name}", raising=False)
    return tmp_path


def plain(settings: Settings, name: str) -> Any:
    value = getattr(settings, name)
    return value.get_secret_value() if name == "database" else value


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("places", [("flag", "app", "env", "file"), ("app", "env", "file"), ("env", "file"), ("file",)])
def test_the_first_place_that_says_something_counts(
    name: str, places: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, form = PLACES[name]
    if "file" in places:
        (folder / ".env").write_text(f"{variable}={form.format('file')}\n")
    if "env" in places:
        monkeypatch.setenv(variable, form.format("env"))
    app = made(name, form.format("app") if "app" in places else None)
    flags = {"database": "postgresql://db/shop"} if name != "database" else {}

    settings = app.runtime({**flags, **({name: form.format("flag")} if "flag" in places else {})}).settings

    assert plain(settings, name) == form.format(places[0])


def made(name: str, value: str | None) -> App:
    """An App with this argument; a schema is given by its settings."""
    if value is None:
        return App(group="shop")
    if name == "schema_name":
        return App(group="shop", settings=Settings(schema_name=value))
    return App(group="shop", database=value) if name == "database" else App(group="shop", kafka=value)


def test_an_argument_of_app_goes_before_its_settings() -> None:
    app = App(group="shop", kafka="argument:9092", settings=Settings(database="postgresql://db/shop", kafka="settings:9092", batch_size=7))

    assert (app.runtime().settings.kafka, app.runtime().settings.batch_size) == ("argument:9092", 7)


def test_a_flag_for_an_adapter_that_the_code_makes_is_refused() -> None:
    app = App(group="shop", database=AsyncpgDatabase("postgresql://db/shop"))

    with pytest.raises(DeclarationError, match="--database would change nothing"):
        app.runtime({"database": "postgresql://other/shop"})


def test_what_cannot_be_used_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_IDEM_BATCH_SIZE", "hunter2")

    with pytest.raises(SettingRefused, match="batch_size: Input should be a valid integer") as refused:
        settings_from({})

    assert "hunter2" not in f"{refused.value}{refused.value.__cause__}"


def test_options_that_are_no_json_are_named_without_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_IDEM_KAFKA_OPTIONS", '{"sasl.password": "hunter2"')

    with pytest.raises(SettingRefused, match="kafka_options") as refused:
        settings_from({})

    assert "hunter2" not in f"{refused.value}{refused.value.__cause__}"


def test_shown_settings_hide_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_IDEM_KAFKA_OPTIONS", '{"sasl.password": "hunter2"}')
    settings = settings_from({"database": "postgresql://shop:hunter2@db/shop"})

    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
