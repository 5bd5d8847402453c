"""Runs the statements of the SQL file that is its argument with DuckDB. Prints the rows of each query as JSON."""
import json
import sys

import duckdb

connection = duckdb.connect()
with open(sys.argv[1], encoding="utf-8") as file:
    for statement in file.read().split(";"):
        if not statement.strip():
            continue
        rows = connection.execute(statement).fetchall()
        if statement.split()[0] in ("SELECT", "WITH"):
            print(json.dumps(rows))
