package framelog

import "errors"

// ErrRejected means that some frames of a batch can never be stored.
var ErrRejected = errors.New("frames rejected")
