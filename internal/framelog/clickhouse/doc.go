// Package clickhouse keeps frames in tables of ClickHouse: the log of a server that one machine is too small for.
// Several servers may write to the same tables.
//
// There is a table for each table of a frame, whose columns are those of frame.Schema, and the table frames of their
// headers. A key frame is stored whole; of the frames after it, the rows that are other than the key frame's, and a row
// with removed=1 for each of the key frame's that is not there any more. So what was so at any frame is read from two
// frames, and any other frame may be left out.
//
// The rows of frames are stored before their headers, and are read for headers that are there: a frame is there whole
// or not at all. What is stored twice is the same twice: the engine ReplacingMergeTree leaves one of it when it merges,
// and until then queries read one row of each number.
//
// What a window gained is computed by ClickHouse (difference.go), so that one row of each entity is sent.
package clickhouse
