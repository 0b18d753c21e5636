"""What was landed since this server started, so that it can be taken back."""

from collections import OrderedDict

from etude.agent import landing
from etude.agent.landing import LandingReport
from etude.errors import InputError

# A report holds the files as they were before.
MAX_KEPT = 20


class Landings:
    """The last landing of each run; the oldest are forgotten."""

    def __init__(self) -> None:
        self._reports: OrderedDict[str, LandingReport] = OrderedDict()

    def keep(self, run: str, report: LandingReport) -> None:
        if not report.written:
            return
        self._reports[run] = report
        self._reports.move_to_end(run)
        while len(self._reports) > MAX_KEPT:
            self._reports.popitem(last=False)

    async def undo(self, run: str) -> LandingReport:
        """Files that were changed since stay, and are told as conflicts. Raises InputError."""
        report = self._reports.get(run)
        if report is None:
            raise InputError("Nothing of this run was applied since etude was started; there is nothing to take back.")
        undone = await landing.undo(report)
        del self._reports[run]
        return undone
