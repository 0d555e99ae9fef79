"""SQL to plans: a statement is parsed by sqlglot and becomes a Dataset of weft.data's own steps. Nothing runs here.

`statement` parses and gives every column its table, `selecting` makes the steps of a SELECT, `sources` those of FROM,
`subqueries` turns what is nested into joins, `aggregating` and `windows` do what their names say, and `values` and
`calls` make expressions of one row. What is not supported is refused by name, with what to write instead.
"""
