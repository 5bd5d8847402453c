package frame

// How a frame is sent over HTTP: one encoded frame, as Encode makes it, in the body of a POST.
const (
	// Path is where a server takes frames.
	Path = "/v1/frames"
	// ContentType is that of a request.
	ContentType = "application/x-outsight-frame"
	// WantKeyHeader is "1" in the answer to a frame that was taken whose key frame the server has not seen. The next frame
	// should be a key frame. A server asks once for each key frame that it misses.
	WantKeyHeader = "Outsight-Want-Key"
)
