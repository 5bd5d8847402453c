package graph

// Fields that tests alone ask for by name.
var (
	DiskReadBytes = containerTable.field("disk_read_bytes")
	MemoryUsage   = containerTable.field("memory_usage")
	Threads       = containerTable.field("threads")
	Transfers     = edgeTable.field("transfers")
	Held          = edgeTable.field("held")
	Pushes        = edgeTable.field("pushes")
	Resets        = edgeTable.field("resets")
	TimedOut      = edgeTable.field("timed_out")
	Continued     = edgeTable.field("continued")
	WindowLimited = edgeTable.field("window_limited")
)
