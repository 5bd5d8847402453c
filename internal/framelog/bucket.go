package framelog

import (
	"context"
	"io"
)

// Bucket is where segments of key frames may lie: objects that are written once, read in parts and removed. An
// implementation for S3 is in internal/framelog/s3.
type Bucket interface {
	// Put writes an object. It is there as a whole, or not at all.
	Put(ctx context.Context, name string, content io.Reader, size int64) error
	// ReadAt reads len(p) bytes of an object from an offset. Fewer are an error.
	ReadAt(ctx context.Context, name string, p []byte, offset int64) error
	List(ctx context.Context) ([]Object, error)
	// Remove removes an object. It is no error that there is none.
	Remove(ctx context.Context, name string) error
}

// Object is something in a bucket, with its size in bytes.
type Object struct {
	Name string
	Size int64
}

func (f *Files) loadBucket(ctx context.Context) error { return nil }
func (f *Files) tidyBucket(ctx context.Context) error { return nil }
