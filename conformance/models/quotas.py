"""A model of quotas of users and clients (KIP-546): what each entity has, and which entities a filter matches."""

from collections.abc import Sequence
from dataclasses import dataclass, field

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = range(3)
PRODUCED, FETCHED, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
Entity = tuple[tuple[str, str], ...]
"""Types and names."""
Change = tuple[str, float | None]
"""Key and value; None removes it."""


@dataclass(slots=True)
class Quotas:
    """The quotas of entities by key."""

    values: dict[Entity, dict[str, float]] = field(default_factory=dict)

    def change(self, entity: Entity, changes: Sequence[Change]) -> None:
        known = self.values.get(entity, {}) | {key: value for key, value in changes if value is not None}
        self.values[entity] = {key: known[key] for key in known if (key, None) not in changes}

    def matching(self, components: Sequence[tuple[str, int, str]], *, strict: bool) -> list[Entity]:
        """Return the entities with quotas that match each component, and if strict, have no other part."""
        return [entity for entity, known in self.values.items() if known and _matches(entity, components, strict)]


def _matches(entity: Entity, components: Sequence[tuple[str, int, str]], strict: bool) -> bool:
    """Return whether each component matches a part of the entity, and if strict, no part is left."""
    parts = dict(entity)
    each_matches = all(
        kind in parts and (match == SPECIFIED or parts[kind] == name) for kind, match, name in components
    )
    return each_matches and (not strict or len(parts) == len(components))
