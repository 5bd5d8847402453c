// Package parquet writes frames as Parquet files, beside the log, for readers that are not ours: DuckDB, Spark, pandas.
// docs/format/parquet.md has the columns.
package parquet
