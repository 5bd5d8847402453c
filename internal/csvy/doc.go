// Package csvy reads and writes recordings: one file per container with a head that says what is
// in it, and one row per sample. It knows three formats: rAdvisor's CSVY, a superset of it with
// declared types and units, and (where outsight/internal/csvy/parquet is linked) Parquet. The
// layouts and all columns are in docs/recording.md.
package csvy
