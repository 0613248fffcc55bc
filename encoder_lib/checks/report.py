"""What a check says: which misconceptions it knows, and the report it gives."""

from collections.abc import Callable
from dataclasses import dataclass

PASSED, FAILED, NOT_ATTEMPTED = "passed", "not right yet", "not attempted yet"


@dataclass(frozen=True)
class Misconception:
    """One wrong idea, how to recognise it, and what to say about it.

    A wrong idea is recognised by what it computes: ``form`` takes the same inputs as the exercise
    and makes the mistake, and an answer that equals it in every case holds that idea. Where no
    formula says it, ``signs`` looks at the evidence (``Evidence``) and returns True or False.

    Args:
        key: short name, the same in tests and in the teacher's list.
        diagnosis: one or two sentences for the learner; names the cause, never the solution's code.
        form: a function, or several, that make the mistake.
        signs: function of the evidence.
        reread: heading to reread, where it is another than the exercise's.

    Raises: nothing; it is a record.
    """

    key: str
    diagnosis: str
    form: Callable | tuple[Callable, ...] = ()
    signs: Callable | None = None
    reread: str = ""

    @property
    def forms(self) -> tuple[Callable, ...]:
        """The functions that make the mistake, as a tuple."""
        return (self.form,) if callable(self.form) else tuple(self.form)


@dataclass(frozen=True, repr=False)
class Report:
    """The result of one check. It prints itself; ``bool(report)`` is ``report.passed``.

    ``misconception`` is the key of what was recognised, ``diagnosis`` the sentence about it,
    ``expected`` and ``got`` one small row; ``checked`` says what was compared, ``notes`` what is
    worth knowing about a right answer. Raises nothing; it is a record.
    """

    exercise: str
    name: str
    status: str
    diagnosis: str = ""
    misconception: str = ""
    checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    where: str = ""
    expected: str = ""
    got: str = ""
    reread: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.status == PASSED

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        lines = [f"Exercise {self.exercise}, {self.name}: {self.status}"]
        if self.passed:
            n = len(self.checked)
            lines[0] += f" ({n} public check{'s' * (n > 1)}; there are no hidden ones)"
            lines += [f"  + {what}" for what in self.checked]
        elif self.diagnosis != self.status:
            lines.append(f"  {self.diagnosis}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.where:
            lines.append(f"  seen: {self.where}")
        lines += [f"  expected  {self.expected}"] if self.expected else []
        lines += [f"  got       {self.got}"] if self.got else []
        if self.reread:
            lines.append(f"  reread: {self.reread}")
        return "\n".join(lines)

    __str__ = __repr__
