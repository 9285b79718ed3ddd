"""Checks what a storage node did against what it promised.

A `LedgerBook` is told what clients asked for and what they were answered, and raises `Violation`
at the first thing that no node may do, whatever happened to the node in between. It knows nothing
of how a node works, and not even that it was started again; it knows ledgers, entries and outcomes,
and what began before what was answered. The names of the checks:

- *acked is there* (J1): what was acknowledged, or once read, is found by every read that begins
  behind that; so nothing is shown that may still vanish.
- *never absent* (J2): such an entry is never called absent; suspect it may be only if bytes were
  harmed behind the node's back.
- *a fence holds* (J3): behind a fence or a close that was answered no ordinary add is taken, and an
  entry that was absent then is never acknowledged to its writer.
- *one value*: an entry id never has two, a ledger one epoch, one last entry.
- *refused stays refused*: what was refused never appears, nor what was never sent.
- *nothing runs back*: the LAC, the highest entry and the fence of a ledger; the LAC is none that
  nobody sent.
- *deleted for good*: nothing is heard of a deleted ledger any more.
- *refused for a reason*: errors name what really happened.
- *a loss of power takes the end*: of what was not synced an entry is gone only if all that was sent
  after it was known is gone, too; it is called suspect, and never absent.
"""

from collections.abc import Iterable, Mapping

from roost.errors import Conflict, Fenced, Invalid, NotFound, RoostError, Sealed
from roost.sim.checkers import Violation
from roost.sim.ledger_page import Attempt, Look, Page
from roost.types import NO_ENTRY
from roost.wire.messages import LedgerState, VerifyReport


class LedgerBook:
    """All that is known of the ledgers of one node."""

    def __init__(self, *, payload_bytes_max: int) -> None:
        self._payload_bytes_max = payload_bytes_max
        self._now = 0
        self._pages: dict[int, Page] = {}
        self._harmed = False
        self._doubted = 0
        self._synced = 0
        self.acked = 0
        self.found = 0
        self.refused = 0

    def harmed(self) -> None:
        """Note that bytes may have been changed, or not be readable, behind the node's back."""
        self._harmed = True

    @property
    def is_harmed(self) -> bool:
        """Whether bytes may have been changed."""
        return self._harmed

    @property
    def moment(self) -> int:
        """Tell when it is, as `lost_power` wants to know it."""
        return self._now

    def lost_power(self, *, kept: int) -> None:
        """Note that the power went under a node that does not sync at once.

        What was known at the moment `kept` was durable, and what was known when somebody first
        asked for a fence, a close or a deletion that was answered.
        """
        self._doubted = self._tick()
        for page in self._pages.values():
            page.doubt(max(kept, self._synced), self._doubted)

    def is_deleted(self, ledger: int) -> bool:
        """Tell whether anybody ever asked for its deletion."""
        return self._page(ledger).deleting

    def surely_has(self, ledger: int) -> dict[int, bytes]:
        """Give the entries of a ledger that the node must have."""
        page = self._page(ledger)
        if page.deleting:
            return {}
        return {
            entry: payload
            for entry, (payload, _) in page.values.items()
            if entry <= min(page.lasts, default=entry)
        }

    def damage(self, what: str) -> None:
        """Note that stored bytes are said not to hold: somebody must have harmed them."""
        if not self._doubted:
            self._unless_harmed(f"never absent: nothing was harmed, and yet: {what}")

    @property
    def ledgers(self) -> list[int]:
        """List all that anybody ever asked about."""
        return [*self._pages]

    def highest_tried(self, ledger: int) -> int:
        """Tell the highest entry that anybody tried to add."""
        return max(self._page(ledger).attempts, default=NO_ENTRY)

    def _page(self, ledger: int) -> Page:
        page = self._pages.get(ledger)
        if page is None:
            page = self._pages[ledger] = Page(ledger)
        return page

    def _tick(self) -> int:
        self._now += 1
        return self._now

    # Adds

    def adding(
        self, ledger: int, entry: int, payload: bytes, *, epoch: int, lac: int, recovery: bool
    ) -> Attempt:
        """Note that an add was sent; until more is known its outcome is open."""
        page = self._page(ledger)
        attempt = Attempt(page, entry, payload, self._tick())
        attempt.epoch, attempt.lac, attempt.recovery = epoch, lac, recovery
        page.attempts.setdefault(entry, []).append(attempt)
        return attempt

    def added(self, attempt: Attempt) -> None:
        """Note that it was acknowledged."""
        page, entry = attempt.page, attempt.entry
        self.acked += 1
        if attempt.since <= self._doubted:
            return  # it was said before the power went
        if why := self._wrong_with(attempt):
            raise Violation(f"refused for a reason: {attempt} was taken though {why}")
        if page.deleted_since is not None and attempt.since > page.deleted_since:
            self._unless_harmed(f"deleted for good: {attempt} was taken behind the deletion")
        if not attempt.recovery:
            self._check_not_behind_end(attempt)
            page.acked_to_writers.add(entry)
        elif page.last is not None and entry > page.last and attempt.since > self._closed(page):
            self._unless_harmed(f"a fence holds: {attempt} was taken beyond the end {page.last}")
        if page.epoch is not None and page.epoch != attempt.epoch:
            self._unless_harmed(
                f"one value: {attempt} of epoch {attempt.epoch} was taken, and the ledger belongs "
                f"to {page.epoch}"
            )
        page.epoch = attempt.epoch
        self._has(page, entry, attempt.payload, "an add was acknowledged")
        page.highest = max(page.highest, entry)
        if page.attempts[entry] == [attempt]:
            page.lac = max(page.lac, attempt.lac)

    def not_added(self, attempt: Attempt, error: RoostError) -> None:
        """Note that it was refused for certain."""
        page = attempt.page
        self.refused += 1
        attempt.refused = True
        others = page.attempts[attempt.entry]
        held = page.values.get(attempt.entry)
        if held and held[0] == attempt.payload and not _alive(others, attempt.payload):
            raise Violation(f"refused stays refused: {attempt} was refused, and is there")
        reasons = {
            Fenced: bool(page.fences) or self._doubted > 0,
            Sealed: bool(page.lasts),
            NotFound: page.deleting,
            Invalid: bool(self._wrong_with(attempt)),
            Conflict: any(other.payload != attempt.payload for other in others)
            or any(each.epoch != attempt.epoch for one in page.attempts.values() for each in one),
        }
        if not reasons.get(type(error), True):
            self._unless_harmed(f"refused for a reason: {attempt}: {error}")

    def _wrong_with(self, attempt: Attempt) -> str:
        if attempt.lac >= attempt.entry and not attempt.recovery:
            return f"its LAC is {attempt.lac}"
        if len(attempt.payload) > self._payload_bytes_max:
            return f"it has {len(attempt.payload)} bytes"
        return ""

    def _check_not_behind_end(self, attempt: Attempt) -> None:
        """Check what the writer of a ledger was told, against fences and closes."""
        page = attempt.page
        if page.fenced_since is not None and attempt.since > page.fenced_since:
            self._unless_harmed(f"a fence holds: {attempt} was taken behind a fence")
        if page.closed_since is not None and attempt.since > page.closed_since:
            self._unless_harmed(f"a fence holds: {attempt} was taken behind the close")
        if attempt.entry in page.absent:
            self._unless_harmed(
                f"a fence holds: {attempt} was acknowledged to its writer, and was absent for "
                "somebody behind the fence"
            )

    def _closed(self, page: Page) -> float:
        return float("inf") if page.closed_since is None else page.closed_since

    def _has(self, page: Page, entry: int, payload: bytes, where: str) -> None:
        """Fix what an entry is: from here on it is there, and nothing else is."""
        held = page.values.get(entry)
        if held is None:
            page.values[entry] = (payload, self._tick())
            page.doubtful.pop(entry, None)
        elif held[0] != payload:
            self._unless_harmed(
                f"one value: {where}: {page.ledger}/{entry} is {payload[:16]!r}, and was "
                f"{held[0][:16]!r} before"
            )
            page.values[entry] = (payload, self._tick())

    # Fences, closes, deletes

    def fencing(self, ledger: int, epoch: int) -> None:
        """Note that a fence is asked for: from now on it may hold."""
        page = self._page(ledger)
        page.fences.add(epoch)
        page.asked.setdefault(("fence", epoch), self._tick())

    def fenced(self, ledger: int, epoch: int) -> None:
        """Note that it was answered: it holds."""
        page = self._page(ledger)
        # One that a higher one covers is not written again, so nothing is synced for it.
        covered = [page.asked.get(("fence", each), 0) for each in page.fences if each >= epoch]
        self._synced = max(self._synced, min(covered, default=0))
        page.fenced = epoch if page.fenced is None else max(epoch, page.fenced)
        if page.fenced_since is None:
            page.fenced_since = self._tick()

    def closing(self, ledger: int, last: int) -> None:
        """Note that a close is asked for."""
        page = self._page(ledger)
        page.lasts.add(last)
        page.asked.setdefault(("close", last), self._tick())

    def closed(self, ledger: int, last: int) -> None:
        """Note that it was answered."""
        page = self._page(ledger)
        self._synced = max(self._synced, page.asked.get(("close", last), 0))
        self._ends_at(page, last)
        if page.closed_since is None:
            page.closed_since = self._tick()

    def _ends_at(self, page: Page, last: int) -> None:
        if last not in page.lasts:
            raise Violation(f"one value: ledger {page.ledger} ends at {last}: nobody said so")
        if page.last is not None and page.last != last:
            self._unless_harmed(
                f"one value: ledger {page.ledger} ends at {last}, and ended at {page.last}"
            )
        page.last = last

    def deleting(self, ledger: int) -> None:
        """Note that a deletion is asked for."""
        page = self._page(ledger)
        page.deleting = True
        page.asked.setdefault("delete", self._tick())

    def deleted(self, ledger: int) -> None:
        """Note that it was answered, or seen."""
        page = self._page(ledger)
        self._synced = max(self._synced, page.asked.get("delete", 0))
        if page.deleted_since is None:
            page.deleted_since = self._tick()

    # Looking

    def looking(self, ledger: int, *, fence: int | None = None) -> Look:
        """Note that somebody asks how a ledger is, or what it holds."""
        page = self._page(ledger)
        if fence is not None:
            self.fencing(ledger, fence)
        return Look(
            page=page,
            since=self._tick(),
            fences=fence is not None or page.fenced_since is not None,
            existed=page.exists,
            deleted=page.deleted_since is not None,
            fenced=page.fenced if fence is None else max(fence, page.fenced or 0),
            last=page.last,
            lac=page.lac,
            highest=page.highest,
            epoch=page.epoch,
        )

    def not_found(self, look: Look) -> None:
        """Note that there is no such ledger."""
        page = look.page
        if look.since <= self._doubted:
            return
        if page.doubtful and not page.deleting:
            self._unless_harmed(f"never absent: ledger {page.ledger} is said not to be there")
        if look.existed and not page.deleting:
            self._unless_harmed(f"acked is there: ledger {page.ledger} is gone")
        if look.existed:
            self.deleted(page.ledger)

    def stated(self, look: Look, state: LedgerState) -> None:
        """Note how a ledger is said to be."""
        page = look.page
        if look.since <= self._doubted:
            return
        self._seen(look, lac=state.lac, last=state.last, fenced=state.fenced)
        if look.highest > state.highest:
            self._unless_harmed(
                f"nothing runs back: the highest entry of ledger {page.ledger} is {state.highest}, "
                f"and was {look.highest}"
            )
        tried = page.attempts.get(state.highest, ())
        if state.highest != NO_ENTRY and all(attempt.refused for attempt in tried):
            self._unless_harmed(
                f"refused stays refused: the highest entry of ledger {page.ledger} is "
                f"{state.highest}: nobody added that"
            )
        page.highest = max(page.highest, state.highest)
        # Who has lost its journal knows no epoch of what it finds in its files, until one is added.
        unknown = state.epoch is None and self._doubted
        if look.epoch is not None and state.epoch != look.epoch and not unknown:
            self._unless_harmed(
                f"one value: ledger {page.ledger} belongs to epoch {state.epoch}, and belonged to "
                f"{look.epoch}"
            )
        if state.suspect and not self._doubted:
            self._unless_harmed(f"never absent: ledger {page.ledger} is suspect")
        page.epoch = page.epoch if state.epoch is None else state.epoch

    def verified(self, look: Look, report: VerifyReport) -> None:
        """Note what came of a check of all entries."""
        page = look.page
        if self._doubted:
            return  # it is about what was suspect, too
        known = sum(since < look.since for _, since in page.values.values())
        beyond = sum(entry > min(page.lasts, default=entry) for entry in page.values)
        if not page.deleting and (
            not report.complete or report.bad_total or report.entries < known - beyond
        ):
            self._unless_harmed(f"never absent: {known} entries were there: {report}")

    def read(
        self,
        look: Look,
        first: int,
        before: int,
        found: Mapping[int, bytes],
        suspects: Iterable[int],
        *,
        lac: int,
        last: int | None,
        fenced: int | None,
    ) -> None:
        """Note what there is of the entries [first, before)."""
        page = look.page
        if look.since <= self._doubted:
            return
        self._seen(look, lac=lac, last=last, fenced=fenced)
        for entry, payload in found.items():
            self._check_found(page, entry, payload)
            self.found += 1
        unsure = {*suspects}
        for entry in unsure:
            if not (page.deleting or self._harmed or self._doubted):
                raise Violation(f"never absent: {page.ledger}/{entry} is suspect: nothing is wrong")
        for entry in range(first, before):
            if entry not in found and entry not in unsure:
                self._check_absent(look, entry)
        if page.doubtful:
            self._check_end(page, found, unsure)

    def _check_end(self, page: Page, found: Iterable[int], unsure: set[int]) -> None:
        """Check that what a loss of power has taken of a ledger is its end."""
        page.outlived.update(found)
        page.gone = {entry for entry in page.gone | unsure if entry in page.doubtful}
        for lost in page.gone:
            doubt = page.doubtful[lost]
            for entry in page.outlived:
                if all(doubt.known < one.since <= doubt.doubted for one in page.attempts[entry]):
                    self._unless_harmed(
                        f"a loss of power takes the end: {page.ledger}/{lost} is gone, and "
                        f"{entry}, which was sent later, is there"
                    )

    def _check_found(self, page: Page, entry: int, payload: bytes) -> None:
        name = f"{page.ledger}/{entry} {payload[:16]!r}"
        same = [each for each in page.attempts.get(entry, ()) if each.payload == payload]
        if not same:
            raise Violation(f"refused stays refused: {name} was read: nobody sent it")
        if not _alive(same, payload):
            raise Violation(f"refused stays refused: {name} was read")
        if entry in page.absent and not any(each.recovery and not each.refused for each in same):
            self._unless_harmed(f"a fence holds: {name} was absent behind the fence, and was read")
        self._has(page, entry, payload, "it was read")
        page.highest = max(page.highest, entry)

    def _check_absent(self, look: Look, entry: int) -> None:
        page = look.page
        if any(entry > last for last in page.lasts):
            return
        value = page.values.get(entry)
        if value is not None and value[1] < look.since:
            raise Violation(f"never absent: {page.ledger}/{entry} {value[0][:16]!r} is gone")
        if entry in page.doubtful:
            raise Violation(f"never absent: {page.ledger}/{entry} was there, and is called absent")
        if look.fences:
            if entry in page.acked_to_writers:
                self._unless_harmed(
                    f"a fence holds: {page.ledger}/{entry} was acknowledged to its writer, and is "
                    "absent behind the fence"
                )
            page.absent.add(entry)

    def _seen(self, look: Look, *, lac: int, last: int | None, fenced: int | None) -> None:
        """Check and keep what every answer tells about a ledger."""
        page = look.page
        name = f"ledger {page.ledger}"
        if look.deleted:
            self._unless_harmed(f"deleted for good: {name} was deleted, and there it is")
        if lac < look.lac:
            self._unless_harmed(f"nothing runs back: the LAC of {name} is {lac}, was {look.lac}")
        tried = (each for one in page.attempts.values() for each in one if not each.refused)
        if lac > max((each.lac for each in tried), default=NO_ENTRY):
            raise Violation(f"nothing runs back: the LAC of {name} is {lac}: nobody sent that")
        page.lac = max(page.lac, lac)
        if last is not None:
            self._ends_at(page, last)
        elif look.last is not None:
            self._unless_harmed(f"a fence holds: {name} was closed at {look.last}, and is open")
        if fenced is not None and fenced not in page.fences and not (self._doubted and not fenced):
            # A ledger of which only files are left is fenced, since it may have been.
            self._unless_harmed(f"a fence holds: {name} is fenced by {fenced}, which nobody did")
        if look.fenced is not None and (fenced is None or fenced < look.fenced):
            self._unless_harmed(
                f"a fence holds: {name} was fenced by {look.fenced}, and is by {fenced}"
            )
        if fenced is not None:
            page.fenced = fenced if page.fenced is None else max(fenced, page.fenced)

    def _unless_harmed(self, text: str) -> None:
        if not self._harmed:
            raise Violation(text)


def _alive(attempts: Iterable[Attempt], payload: bytes) -> bool:
    return any(each.payload == payload and not each.refused for each in attempts)
