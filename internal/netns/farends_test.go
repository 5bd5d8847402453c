package netns

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// message is one of the kernel's, with its body.
func message(kind uint16, number uint32, body ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, number)
	b = append(binary.NativeEndian.AppendUint32(b, 0), body...)
	return append(b, make([]byte, -len(b)&3)...)
}

// TestAnswers: those of a request that was given up are passed over, and what the kernel refuses is told.
func TestAnswers(t *testing.T) {
	var taken []byte
	take := func(_ uint16, body []byte) { taken = append(taken, body...) }
	all := append(message(unix.RTM_NEWSTATS, 1, 9), message(unix.RTM_NEWSTATS, 2, 5, 6, 7)...)
	if done, err := eachAnswer(all, 2, take); done || err != nil || string(taken) != "\x05\x06\x07" {
		t.Errorf("%v, %v, %v", done, err, taken)
	}
	if done, err := eachAnswer(message(unix.NLMSG_DONE, 2, 0, 0, 0, 0), 2, take); !done || err != nil {
		t.Errorf("the end: %v, %v", done, err)
	}
	refused := int32(-int(unix.EPERM))
	if _, err := eachAnswer(message(unix.NLMSG_ERROR, 2, binary.NativeEndian.AppendUint32(nil, uint32(refused))...), 2, take); err != unix.EPERM {
		t.Errorf("refused: %v", err)
	}
	if _, err := eachAnswer(all[:len(all)-5], 2, take); err != errNetlinkCut {
		t.Errorf("cut off: %v", err)
	}
}

// FuzzAnswers: whatever is there, nothing outside of it is taken, and it ends.
func FuzzAnswers(f *testing.F) {
	f.Add(message(unix.RTM_NEWSTATS, 7, 8, 0, 4, 0, 1, 2, 3, 4), uint32(7))
	f.Add(message(unix.NLMSG_ERROR, 7, 0, 0, 0, 0), uint32(7))
	f.Fuzz(func(t *testing.T, messages []byte, asked uint32) {
		taken := 0
		_, _ = eachAnswer(messages, asked, func(_ uint16, body []byte) {
			taken += len(body)
			within := 0
			eachAttribute(body, func(_ uint16, value []byte) { within += len(value) })
			if within > len(body) {
				t.Errorf("%d bytes of values in %d", within, len(body))
			}
		})
		if taken > len(messages) {
			t.Errorf("%d bytes were taken of %d", taken, len(messages))
		}
	})
}
