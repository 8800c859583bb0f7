"""The table of a run: every row that is expected, measured or missing."""
import concurrent.futures
import time

START = time.monotonic()
AT_ONCE = 6  # checks without timing that run at the same time
HEADINGS = ("what", "measured", "effective TFLOP/s", "executed TFLOP/s", "target", "result")


class Table:
    """Rows by name. A row that is expected and never added fails."""

    def __init__(self, expected):
        self.rows = dict.fromkeys(expected)
        self.errors = []

    def add(self, what, measured, target, passed, effective="", executed=""):
        assert what in self.rows, f"{what}: not an expected row"
        self.rows[what] = (measured, effective, executed, target, "pass" if passed else "FAIL")
        rates = f", {effective} effective, {executed} executed TFLOP/s" if effective else ""
        print(f"[{seconds():5.0f} s] {what}: {measured}{rates} ({target}) {self.rows[what][-1]}", flush=True)

    def error(self, what, message):
        """Why rows are missing."""
        self.errors.append(f"{what}: {message}")
        print(f"[{seconds():5.0f} s] {self.errors[-1]}", flush=True)

    def run(self, part, *args):
        """Runs a part of the check; an exception makes its remaining rows missing ones."""
        try:
            return part(*args, self)
        except (OSError, ValueError, KeyError, IndexError) as error:
            self.error(part.__name__, f"{type(error).__name__}: {error}")

    def run_together(self, parts):
        """Runs parts that are not timed at the same time."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda part: self.run(*part), parts))

    def failed(self):
        """Names of the rows that failed or are missing."""
        return [what for what, row in self.rows.items() if row is None or row[-1] != "pass"]

    def markdown(self):
        lines = [" | ".join(HEADINGS), " | ".join("---" for _ in HEADINGS)]
        for what, row in self.rows.items():
            lines.append(" | ".join((what, *(row or ("missing", "", "", "", "FAIL")))))
        return "\n".join(f"| {line} |" for line in lines) + "\n"


def seconds():
    return time.monotonic() - START
