"""What the members of a group have and receive during a bounce."""


class Observed:
    """What the members of a group receive; shared by their threads, each of which appends only."""

    def __init__(self, partitions: int) -> None:
        self.received: dict[int, list[float]] = {number: [] for number in range(partitions)}
        self.revoked = 0
        self.owned: dict[str, set[int]] = {}

    def assign(self, member: str, partitions: set[int]) -> None:
        self.owned[member] = self.owned.get(member, set()) | partitions

    def revoke(self, member: str, partitions: set[int]) -> None:
        self.revoked += len(partitions & self.owned.get(member, set()))
        self.owned[member] = self.owned.get(member, set()) - partitions

    def leave(self, member: str) -> None:
        """Forget a member that was closed: what it gave up then is the bounce, not a revocation."""
        self.owned.pop(member, None)

    def settled(self, members: int) -> bool:
        shares = [share for share in list(self.owned.values()) if share]
        return len(shares) == members and sum(map(len, shares)) == len(self.received)
