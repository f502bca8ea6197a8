"""What the parts of a configuration have in common."""

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """The configuration is not usable; each line of the message starts with a dotted path."""


class Section(BaseModel):
    """A frozen part of the configuration that refuses unknown keys and does not convert types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
