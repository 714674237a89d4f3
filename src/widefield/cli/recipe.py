"""`widefield recipe`."""

from widefield.cli.output import print_json, print_line, print_table


def recipe(
    name: str = "default",
    /,
    *,
    method: str | None = None,
    data: str = "",
    json: bool = False,
) -> None:
    """Print a recipe as a table, beside what its paper says.

    Parameters
    ----------
    name
        Print this recipe: default, s-diet-paper, feature-dropout or solo-learn.
    method
        Print it for this method; by default for the recipe's first.
    data
        Print it for these data, where it depends on what is planted in them.
    json
        Print one JSON object.
    """
    from widefield.config.recipes.beside import recipe_table, shown

    table = recipe_table(name, method=method, data=data)
    if json:
        print_json(table.to_json())
        return
    rows = [
        [line.setting, "" if line.value is None else shown(line.value), line.paper]
        for line in table.lines
    ]
    columns = ["setting", "value", "paper"]
    if not any(line.paper for line in table.lines):
        columns, rows = columns[:2], [row[:2] for row in rows]
    print_table(f"{table.recipe}, {table.method}", columns, rows)
    print_line(f"source: {table.source}")
