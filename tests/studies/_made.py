"""Cells of Markdown tables, for the tests of several studies."""


def cells_in(text: str, beginning: str = "") -> list[list[str]]:
    """Return the cells of the lines of Markdown tables that begin in some way, headings among them."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
