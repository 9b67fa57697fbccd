"""What every group of settings has in common: nothing unknown, nothing infinite, no yes for a number."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator

# What to give instead, by the kind of mistake that pydantic finds.
WANTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "give a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "give a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "give true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "give a list"),
    **dict.fromkeys(("dict_type", "model_type", "mapping_type"), "it is a section: give settings by name"),
    "finite_number": "give a finite number",
    "string_type": "give text",
    "greater_than": "give more than {gt}",
    "greater_than_equal": "give {ge} or more",
    "less_than": "give less than {lt}",
    "less_than_equal": "give {le} or less",
    "literal_error": "give {expected}",
    "missing": "it is missing",
}


def brief(value: Any) -> str:
    """Return a value as an error message shows it: of YAML whose aliases stand for billions of it, a few."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxlong, short.maxother = 2, 200, 50, 200
    return short.repr(value)


def in_words(mistake: Mapping[str, Any]) -> str:
    """Say what is wrong with a value, and what to give instead, as pydantic describes a mistake."""
    wanted = WANTED.get(mistake["type"])
    if wanted is None:
        return str(mistake["msg"]).removeprefix("Value error, ")
    limits = mistake.get("ctx", {}).items()
    return wanted.format(**{name: f"{one:g}" if isinstance(one, float) else one for name, one in limits})


class Settings(BaseModel):
    """Typed settings that do not change once they are made."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_booleans(cls, given: Any) -> Any:
        """Take YAML's `off` for the word where a word is meant, and refuse `true` where a number is."""
        if not isinstance(given, Mapping):
            return given
        read = dict(given)
        for name, field in cls.model_fields.items():
            key = field.alias if field.alias in read else name
            if not isinstance(read.get(key), bool) or bool in (field.annotation, *get_args(field.annotation)):
                continue
            if read[key] or "off" not in get_args(field.annotation):
                raise ValueError(f"{key} is {str(read[key]).lower()}; give a value")
            read[key] = "off"
        return read
