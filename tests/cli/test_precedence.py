"""Flags go before App's arguments, those before the environment, that before .env."""

import os
import re
from datetime import timedelta
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
    for name in filter(re.compile("CONSUMER_IDEM_").match, os.environ):
        monkeypatch.delenv(name)
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


@pytest.mark.parametrize(
    ("session", "idle", "statement", "lock"),
    [("30", 10, 20, 3), ("600", 10, 20, 3), ("12", 6, 8, 3), ("3", 1.5, 2, 1), ("0.3", 0.15, 0.2, 0.1)],
)
def test_time_outs_follow_the_session_time_out(
    session: str, idle: float, statement: float, lock: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUMER_IDEM_SESSION_TIMEOUT", session)
    settings = App(group="shop", database="postgresql://db/shop").runtime().settings

    assert durations(settings) == pytest.approx([idle, statement, lock])


def test_a_lock_time_out_follows_a_statement_time_out_that_is_set() -> None:
    settings = App(group="shop", database="postgresql://db/shop").runtime({"statement_timeout": timedelta(seconds=4)}).settings

    assert durations(settings) == [10, 4, 2]


def test_what_goes_before_the_settings_of_app_is_followed_too() -> None:
    given = Settings(database="postgresql://db/shop", lock_timeout="2")
    settings = App(group="shop", settings=given).runtime({"session_timeout": timedelta(seconds=6)}).settings

    assert durations(settings) == [3, 4, 2]


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"session_timeout": "6", "statement_timeout": "6"}, "statement_timeout .* below session_timeout"),
        ({"session_timeout": "6", "idle_in_transaction_timeout": "7"}, "idle_in_transaction_timeout .* below session_timeout"),
        ({"statement_timeout": "3", "lock_timeout": "3"}, "lock_timeout .* below statement_timeout"),
    ],
)
def test_a_time_out_that_is_set_too_high_is_refused_and_not_lowered_in_silence(chosen: dict[str, str], named: str) -> None:
    with pytest.raises(DeclarationError, match=f"{named}.*Lower it, or leave it out"):
        App(group="shop", database="postgresql://db/shop", settings=Settings(**chosen)).runtime()


def test_a_session_time_out_that_cannot_be_used_is_named_and_nothing_else() -> None:
    with pytest.raises(SettingRefused, match=r"used\. session_timeout: [^;]+$"):
        settings_from({"session_timeout": "soon"})


def durations(settings: Settings) -> list[float]:
    return [each.total_seconds() for each in (settings.idle_in_transaction_timeout, settings.statement_timeout, settings.lock_timeout)]


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
