package frame

import "errors"

// ErrMalformed is the error of bytes that are no frame.
var ErrMalformed = errors.New("malformed frame")

// ErrNoKey is the error of a frame whose key frame is another one than that which was given.
var ErrNoKey = errors.New("the key frame of this frame is not there")
