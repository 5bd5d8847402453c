package framelog

import (
	"context"
	"io"
	"iter"
	"time"

	"outsight/internal/frame"
)

// Log keeps frames. There are two of them: files of this process, and tables of ClickHouse.
type Log interface {
	// Append stores encoded frames and returns when they are on the disk. A frame that is there already, by tenant, host,
	// epoch and number, is not stored twice. It answers ErrRejected, with what was wrong, when frames can never be stored;
	// the others of the batch are stored.
	Append(ctx context.Context, batch []Encoded) error
	// Windows answers one window for each two consecutive moments of the query, in order. The frames are not to be
	// changed.
	Windows(ctx context.Context, q Query) iter.Seq2[*frame.Window, error]
	// Hosts are all hosts of a tenant, in order of their names, with when they were heard of.
	Hosts(ctx context.Context, tenant string) ([]Host, error)
	// Newest are the newest frames of a tenant's hosts, in order of the hosts' names, however old they are.
	Newest(ctx context.Context, tenant string) ([]*frame.Frame, error)
	Stats() Stats
	io.Closer
}

// Encoded is a frame as an agent sent it.
type Encoded struct {
	Tenant string
	frame.Header
	// Data is what frame.Encode made.
	Data []byte
}

// Query asks for the windows between moments.
type Query struct {
	Tenant string
	// Times ascend; there are two or more.
	Times []time.Time
	// Hosts are those that are wanted; nil for all.
	Hosts []string
	// Only are the tables and columns that are wanted; nil for all.
	Only *frame.Projection
	// Memory is that of the windows' frames, which must not be read any more once it is released; new memory where it is
	// nil. It frees nothing before that: it is for one window.
	Memory *frame.Memory
}

// Host is a host of which there are frames.
type Host struct {
	Name        string
	First, Last time.Time
}

// Stats are what a log holds, and what it lost.
type Stats struct {
	Oldest, Newest time.Time
	Hosts, Frames  int
	Bytes          int64
	MaxBytes       int64
	// Damaged counts frames that could not be read, KeyMissing those that were refused because their key frame is not
	// there, Duplicates those that were there already.
	Damaged, KeyMissing, Duplicates uint64
	// Rejected counts frames that were refused for another reason: a time too far ahead or too old, no name, too many
	// hosts. Removed counts those that retention removed, Thinned those that were left out with age.
	Rejected, Removed, Thinned uint64
	// Segments are the files, Streams the epochs of hosts of which something is known. RemoteBytes of Bytes are in a
	// bucket.
	Segments, Streams int
	RemoteBytes       int64
}
