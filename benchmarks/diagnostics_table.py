"""Write the table of diagnostics into docs/audit.md.

    python benchmarks/diagnostics_table.py

The rows between the two comments of the page are written anew; a test compares.
"""

from pathlib import Path

from widefield.diagnose import DIAGNOSTICS

PAGE = Path(__file__).parents[1] / "docs" / "audit.md"
BEGIN, END = (
    "<!-- diagnostics: benchmarks/diagnostics_table.py writes these rows -->",
    "<!-- end -->",
)


def page() -> str:
    """Return the whole page, with the diagnostics of today."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    rows = [f"| `{name}` | {entry.meaning} |" for name, entry in DIAGNOSTICS.items()]
    table = "\n".join(["| diagnostic | what it says |", "|---|---|", *rows])
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
