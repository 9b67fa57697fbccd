"""What every group of settings has in common: nothing unknown, nothing infinite, no yes for a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


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
