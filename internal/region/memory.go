package region

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Copy copies words of a region upwards, 8 bytes at a time, so that no counter is torn while the kernel adds to it: the
// memcpy of C and of Go tears them. src must begin at a multiple of 8, and both must have the same length, a multiple of
// 8.
func Copy(dst, src []byte) error {
	if len(dst) != len(src) || len(src)%8 != 0 {
		return fmt.Errorf("copying a region: %w: %d bytes to %d, want a multiple of 8", ErrBounds, len(src), len(dst))
	}
	if len(src) == 0 {
		return nil
	}
	if uintptr(unsafe.Pointer(&src[0]))%8 != 0 {
		return fmt.Errorf("copying a region: %w: it does not begin at a multiple of 8", ErrBounds)
	}
	from := unsafe.Slice((*uint64)(unsafe.Pointer(&src[0])), len(src)/8)
	for i := range from {
		w := atomic.LoadUint64(&from[i])
		*(*[8]byte)(dst[8*i:]) = *(*[8]byte)(unsafe.Pointer(&w))
	}
	return nil
}

// Part is length bytes of a region from offset on, both multiples of 8, or ErrBounds.
func Part(memory []byte, offset uint64, length int) ([]byte, error) {
	if offset%8 != 0 || length%8 != 0 || length < 0 || offset > uint64(len(memory)) ||
		uint64(length) > uint64(len(memory))-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", ErrBounds, length, offset, len(memory))
	}
	return memory[offset : offset+uint64(length)], nil
}

// publish writes a body whose generation is its word at generationOffset into a region: first the tail, which is the
// region's last word, then the body upwards, and the generation last. A reader that reads upwards, and then finds the
// tail equal to the generation, has one state.
func publish(memory, body []byte) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), len(memory)/8)
	from := func(i int) (w uint64) {
		*(*[8]byte)(unsafe.Pointer(&w)) = [8]byte(body[8*i : 8*i+8])
		return w
	}
	const head = generationOffset / 8
	atomic.StoreUint64(&words[len(words)-1], from(head))
	for i := range len(body) / 8 {
		if i != head {
			atomic.StoreUint64(&words[i], from(i))
		}
	}
	atomic.StoreUint64(&words[head], from(head))
}

// publishWord writes one word alone.
func publishWord(memory []byte, offset int, w uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&memory[offset])), w)
}
