"""One request as its listener has it: what they have been given, when it runs out, and what is due.

Plain arithmetic on times that are handed in; no clock, no thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from oscine.types import Event, EventSink


@dataclass(frozen=True, kw_only=True)
class Live:
    """That somebody listens to a request while it is made, at `speed` times its own.

    They wait `max_wait_s` (None: as long as it takes) for their turn, then `QueueFull` is raised. `audible_until` is
    when what they hear already runs out, for one who goes on listening: they are let in at once.
    """

    speed: float = 1.0
    max_wait_s: float | None = None
    audible_until: float = -math.inf


@dataclass(eq=False)
class Piece:
    """How much of one job's audio there is, in seconds: `given` to the listener, and `coming` out of the decoder.

    `decoded_s` is what has come out of it, given or not.
    """

    given_s: float = 0.0
    coming_s: float = 0.0
    decoded_s: float = 0.0
    ended: bool = False


@dataclass(eq=False, kw_only=True)
class Pace:
    """One request on its way: what has been heard of it and what is due. `live` None: nobody listens meanwhile.

    `num_pieces` and `budget_s` (the most audio it may have) are those of the whole request. Until its listener begins,
    its events are kept here. `paused_s` is how long they have waited in mid-speech. Times are those of the engine's
    clock.
    """

    live: Live | None = None
    num_pieces: int = 1
    budget_s: float = 0.0
    model: str = ""
    arrived: float = 0.0
    let_in: bool = False
    """Whether its listener may begin as soon as there is enough to hear."""
    ahead: bool = False
    """Whether it is worked on, in time that is left, before they are let in."""
    paced: bool = True
    """Whether the listener can be kept up with at all."""
    closed: bool = False
    made_s: float = 0.0
    paused_s: float = 0.0
    next_run_s: float = 0.0
    """How much audio comes next, at once."""
    kept: list[tuple[EventSink, Event]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    """Those that have not been given to their end, in the order in which they are played."""
    _num_ended: int = 0
    _num_whole: int = 0
    _before_s: float = 0.0  # of the pieces that have been
    _origin: float | None = None

    def __post_init__(self) -> None:
        if self.live is not None and self.live.audible_until > -math.inf:
            self._origin = self.live.audible_until

    @property
    def speed(self) -> float:
        """Seconds of audio that the listener plays in a second."""
        return self.live.speed if self.live else 1.0

    @property
    def listened(self) -> bool:
        """Whether somebody listens who can be kept up with."""
        return self.live is not None and self.paced

    @property
    def begun(self) -> bool:
        """Whether the listener hears something."""
        return self._origin is not None

    @property
    def over(self) -> bool:
        """Whether nothing is left to be made."""
        return self.closed or self._num_ended >= self.num_pieces

    @property
    def complete(self) -> bool:
        """Whether all of it has been made, to its end."""
        return self._num_whole >= self.num_pieces

    @property
    def runs_out(self) -> float:
        """When what they have been given has been played; infinite before they begin."""
        return math.inf if self._origin is None else self._origin + self._audible_s() / self.speed

    def lead_s(self, now: float) -> float:
        """How long they could listen to what there is, from now on."""
        return self._audible_s() / self.speed if self._origin is None else self.runs_out - now

    def due(self, piece: Piece) -> float:
        """When the next frame of a piece must be there; infinite when nobody waits for it."""
        if not self.listened or not self.let_in:
            return math.inf
        if self._origin is None:
            return self.arrived
        before = self._before_s
        for each in list(self.pieces):  # the thread that decodes asks too
            before += each.given_s + each.coming_s
            if each is piece:
                break
        return self._origin + before / self.speed

    def decode_due(self, piece: Piece) -> float:
        """When the next audio must come out of a piece's decoder; infinite when nobody waits for it."""
        due = self.due(piece)
        return due if self._origin is None else due - (piece.given_s + piece.coming_s - piece.decoded_s) / self.speed

    def begin(self, now: float) -> list[tuple[EventSink, Event]]:
        """The events kept so far, for the listener who begins with them."""
        if self._audible_s() and self._origin is None:
            self._origin = now
        kept, self.kept = self.kept, []
        return kept

    def give(self, piece: Piece, seconds: float, now: float) -> None:
        """A piece has got so much more audio."""
        ran_out = self.runs_out
        self.made_s += seconds
        piece.given_s += seconds
        self._go_on(ran_out, now)

    def end(self, piece: Piece, now: float, *, whole: bool = True) -> None:
        """A piece has ended, `whole` or not: what comes after it can be heard."""
        ran_out = self.runs_out
        piece.ended = True
        self._num_ended += 1
        self._num_whole += whole
        while self.pieces and self.pieces[0].ended:
            self._before_s += self.pieces.pop(0).given_s
        self._go_on(ran_out, now)

    def _go_on(self, ran_out: float, now: float) -> None:
        """Somebody who had run out of audio and has got some goes on from now."""
        if self._origin is not None and ran_out < min(now, self.runs_out):
            self._origin += now - ran_out
            self.paused_s += now - ran_out

    def _audible_s(self) -> float:
        seconds = self._before_s
        for piece in self.pieces:
            seconds += piece.given_s
            if not piece.ended:
                break
        return seconds
